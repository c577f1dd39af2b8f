"""Fetch a published file, with a time limit and without output."""

import shutil
import tempfile
import urllib.request
from pathlib import Path

TIMEOUT_SECONDS = 30


def download(url: str, path: Path) -> None:
    """Fetch `url` to `path`; the file appears only once it is complete.

    Args:
        url: An https address.
        path: Where the file goes; its folder is made.

    Raises:
        OSError: The network, the server or the disk failed, or the server stayed silent for 30 seconds.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as partial:
        try:
            with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as response:  # noqa: S310 - the catalogue's own
                shutil.copyfileobj(response, partial)
            Path(partial.name).replace(path)
        except BaseException:
            Path(partial.name).unlink(missing_ok=True)
            raise
