"""Errors of a damaged file, told in one line that names the file."""

import pickle
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from page_lightning.errors import DataSourceError, PageLightningError

DAMAGE = (
    *(OSError, EOFError, ValueError, KeyError, IndexError, RuntimeError, TypeError, AttributeError, MemoryError),
    *(pickle.UnpicklingError, struct.error, zipfile.BadZipFile, zlib.error),
)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn every error of a parser inside the block into one that names `path`.

    Raises:
        DataSourceError: The block failed to read the file.
    """
    try:
        yield
    except PageLightningError:
        raise
    except FileNotFoundError as error:
        msg = f"{path}: no such file"
        raise DataSourceError(msg) from error
    except DAMAGE as error:
        reason = " ".join(str(error).split())[:160] or type(error).__name__
        msg = f"{path}: truncated or not in the expected format ({reason})"
        raise DataSourceError(msg) from error
