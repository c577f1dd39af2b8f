"""``python -m page_lightning``."""

from page_lightning.cli import main

if __name__ == "__main__":
    main()
