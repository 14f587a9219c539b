"""RocksDB's textual errors as errors of ours, about the original file and not a scratch link.

RocksDB reports what the system refused as text, too. What it is about decides what it means: a
link in the scratch directory stands for a file of the database, everything else there is bkstore's
own, and an error of its medium says nothing about the database.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rocksdict import DbClosedError

from bkstore import forks
from bkstore.errors import (
    BkstoreError,
    CorruptionError,
    DirectoryInUse,
    SystemRefused,
    UnsupportedLayout,
)
from bkstore.files.disk_changes import StrPath
from bkstore.files.os_errors import is_medium_error, os_error, unreadable

_FILE = re.compile(r"\b(\d{6,}\.(?:sst|log|blob)|MANIFEST-\d+)")
_OFFSET = re.compile(r"\boffset (\d+)")
_HINT = re.compile(r"\s*The file \S+ may be corrupted\.")
_REFUSED = re.compile(r"^IO error|\(os error \d+\)")  # RocksDB's words, and Rust's
_UNLISTED = "wal_dir not found"
_LOCKED = re.compile(r"While lock file|lock hold by current process")


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
        raise _of_system(*_located(error, path, scratch()), path, scratch()) from error
    except MemoryError as error:
        if "os error" not in str(error):
            raise
        raise _of_system(
            *_located(OSError(str(error)), path, scratch()), path, scratch()
        ) from error
    except DbClosedError as error:
        raise forks.closed(f"{path}: the database") from error
    except Exception as error:
        if type(error) is not Exception:  # rocksdict raises no other
            raise
        raise _translation(str(error), path, scratch()) from error


def readable_text(text: str, path: Path, scratch: str) -> str:
    """Return an error's text, which names the original file."""
    text = _HINT.sub("", text).rstrip()
    return text.replace(scratch, str(path)) if scratch else text


def _translation(raw: str, path: Path, scratch: str) -> BkstoreError:
    text = readable_text(raw, path, scratch)
    if "IO error" in text and _LOCKED.search(text):
        return DirectoryInUse(f"{path}: {text}")
    refused = os_error(raw) if _REFUSED.search(raw) else OSError(raw)
    if refused.errno is not None:
        file = _named(raw, path, scratch)
        error = _of_system(OSError(refused.errno, os.strerror(refused.errno)), file, path, scratch)
        if isinstance(error, SystemRefused):
            return error
    if scratch and _UNLISTED in raw:  # it is there, but RocksDB may not list it
        return SystemRefused(scratch, OSError(raw))
    if text.startswith(("Invalid argument", "Not implemented")):
        return UnsupportedLayout(f"{path}: not a bookie's database: {text}")
    is_damage = text.startswith("Corruption") or "No such file" in text or is_medium_error(refused)
    if not is_damage:
        return BkstoreError(f"{path}: {text}")
    file_name, offset = _FILE.search(text), _OFFSET.search(text)
    return CorruptionError(
        path / file_name[1] if file_name else path, int(offset[1]) if offset else None, text
    )


def _located(error: OSError, path: Path, scratch: str) -> tuple[OSError, StrPath]:
    """Return an error with its number, and its file.

    rocksdict's own calls, which are about a file that it keeps beside the database, give neither.
    """
    if error.errno is not None:
        return error, error.filename or path
    found = os_error(str(error))
    if found.errno is None:
        return error, path
    return OSError(found.errno, os.strerror(found.errno)), scratch or path


def _named(raw: str, path: Path, scratch: str) -> Path:
    """Return the file that a text is about; the directory it is read in where it names none."""
    place = Path(scratch) if scratch else path
    named = re.search(re.escape(str(place)) + r"/([\w.-]+)", raw)
    return place / named[1] if named else place


def _of_system(error: OSError, file: StrPath, path: Path, scratch: str) -> BkstoreError:
    """Return the error for a file that the system refused: of the database, or of our own."""
    place = Path(file)
    if scratch and place.is_relative_to(scratch):
        if not place.is_symlink():
            return SystemRefused(place, error)
        place = path / place.name
    return unreadable(OSError(error.errno, error.strerror or str(error), os.fspath(place)), place)
