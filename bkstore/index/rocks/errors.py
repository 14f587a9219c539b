"""RocksDB's textual errors as errors of ours, about the original file and not a scratch link."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rocksdict import DbClosedError

from bkstore import forks
from bkstore.errors import BkstoreError, CorruptionError, DirectoryInUse, UnsupportedLayout
from bkstore.files.os_errors import unreadable

__all__ = ["readable_text", "translated"]

_FILE = re.compile(r"\b(\d{6,}\.(?:sst|log|blob)|MANIFEST-\d+)")
_OFFSET = re.compile(r"\boffset (\d+)")
_HINT = re.compile(r"\s*The file \S+ may be corrupted\.")


@contextmanager
def translated(path: Path, scratch: Callable[[], str]) -> Iterator[None]:
    """Raise `BkstoreError` instead of what rocksdict raises for the database at `path`.

    `scratch` gives the directory of links that it is read through when there is an error; empty
    if it is read itself.
    """
    try:
        yield
    except BkstoreError:
        raise
    except OSError as error:
        raise BkstoreError(readable_text(str(unreadable(error, path)), path, scratch())) from error
    except DbClosedError as error:
        raise forks.closed(f"{path}: the database") from error
    except Exception as error:
        if type(error) is not Exception:  # rocksdict raises no other
            raise
        raise _translation(readable_text(str(error), path, scratch()), path) from error


def readable_text(text: str, path: Path, scratch: str) -> str:
    """Return an error's text, which names the original file."""
    text = _HINT.sub("", text).rstrip()
    return text.replace(scratch, str(path)) if scratch else text


def _translation(text: str, path: Path) -> BkstoreError:
    if "IO error" in text and "lock" in text.lower():
        return DirectoryInUse(f"{path}: {text}")
    if text.startswith(("Invalid argument", "Not implemented")):
        return UnsupportedLayout(f"{path}: not a bookie's database: {text}")
    if not text.startswith("Corruption") and "No such file" not in text:
        return BkstoreError(f"{path}: {text}")
    file, offset = _FILE.search(text), _OFFSET.search(text)
    return CorruptionError(
        path / file[1] if file else path, int(offset[1]) if offset else None, text
    )
