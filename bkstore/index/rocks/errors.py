"""Translation of RocksDB's textual errors to `BkstoreError`s that name the original files. RocksDB
also reports errors of the operating system as text. Their meaning depends on the file: a link in
the scratch directory stands for a file of the database; everything else there is bkstore's own, and
an error of its medium says nothing about the database."""

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
from bkstore.files.os_errors import is_medium_error, parse_rocksdb_error, read_error

_FILE = re.compile(r"\b(\d{6,}\.(?:sst|log|blob)|MANIFEST-\d+)")
_OFFSET = re.compile(r"\boffset (\d+)")
_ADVICE = re.compile(r"\s*The file \S+ may be corrupted\.")
_SYSTEM_ERROR = re.compile(r"^IO error|\(os error \d+\)")  # RocksDB's words, and Rust's
_UNLISTED = "wal_dir not found"
_LOCKED = re.compile(r"While lock file|lock hold by current process")


@contextmanager
def translate_errors(path: Path, scratch: Callable[[], str]) -> Iterator[None]:
    """Raise `BkstoreError` instead of what rocksdict raises for the database at `path`. `scratch`,
    called on an error, returns the directory of links that it is read through, or ""."""
    try:
        yield
    except BkstoreError:
        raise
    except OSError as error:
        raise _translate_system_error(error, path, scratch()) from error
    except MemoryError as error:
        # Rust code raises `MemoryError` also for an error of the system, which its text then names.
        if "os error" not in str(error):
            raise
        raise _translate_system_error(OSError(str(error)), path, scratch()) from error
    except DbClosedError as error:
        raise forks.closed_error(f"{path}: the database") from error
    except Exception as error:
        if type(error) is not Exception:  # a subclass does not come from rocksdict
            raise
        raise _translate_text(str(error), path, scratch()) from error


def with_original_paths(text: str, path: Path, scratch: str) -> str:
    """Return an error's text with the scratch directory replaced by the original path."""
    text = _ADVICE.sub("", text).rstrip()
    return text.replace(scratch, str(path)) if scratch else text


def _translate_text(raw: str, path: Path, scratch: str) -> BkstoreError:
    """Return the `BkstoreError` for `raw`, the text of a RocksDB error: its kind, such as "IO
    error" or "Corruption", and often a file, which may be a link in the directory `scratch` ("":
    none) through which the database at `path` is read."""
    text = with_original_paths(raw, path, scratch)
    if "IO error" in text and _LOCKED.search(text):
        return DirectoryInUse(f"{path}: {text}")
    # A refusal of the operating system says nothing about the data; its other errors may.
    system_error = parse_rocksdb_error(raw) if _SYSTEM_ERROR.search(raw) else OSError(raw)
    if system_error.errno is not None:
        file_path = _file_named_in(raw, path, scratch)
        plain_error = OSError(system_error.errno, os.strerror(system_error.errno))
        translated_error = _translate_os_error(plain_error, file_path, path, scratch)
        if isinstance(translated_error, SystemRefused):
            return translated_error
    if scratch and _UNLISTED in raw:  # RocksDB has no permission to list the scratch directory
        return SystemRefused(scratch, OSError(raw))
    if text.startswith(("Invalid argument", "Not implemented")):
        return UnsupportedLayout(f"{path}: not a bookie's database: {text}")
    is_damage = text.startswith("Corruption") or "No such file" in text
    if not is_damage and not is_medium_error(system_error):
        return BkstoreError(f"{path}: {text}")
    file_match, offset_match = _FILE.search(text), _OFFSET.search(text)
    file = path / file_match[1] if file_match else path
    return CorruptionError(file, int(offset_match[1]) if offset_match else None, text)


def _translate_system_error(error: OSError, path: Path, scratch: str) -> BkstoreError:
    """Return the `BkstoreError` for an error of the system. An error without a number is about the
    file that rocksdict itself writes into the directory it opens; the number is in its text."""
    if error.errno is not None:
        return _translate_os_error(error, error.filename or path, path, scratch)
    number = parse_rocksdb_error(str(error)).errno
    if number is None:
        return _translate_os_error(error, path, path, scratch)
    opened = scratch or path
    return _translate_os_error(OSError(number, os.strerror(number)), opened, path, scratch)


def _file_named_in(raw: str, path: Path, scratch: str) -> Path:
    """Return the file that the text of an error names, or the directory that RocksDB has opened if
    it names none. That is `scratch`, a directory of links to the database's files, or the database
    at `path` itself if `scratch` is ""."""
    directory = Path(scratch) if scratch else path
    match = re.search(re.escape(str(directory)) + r"/([\w.-]+)", raw)
    return directory / match[1] if match else directory


def _translate_os_error(error: OSError, file: StrPath, path: Path, scratch: str) -> BkstoreError:
    """Return the `BkstoreError` for an error of the system, by the file it is about. In the
    directory `scratch` ("": none) a link stands for the file of the database at `path`, which is
    input; all other files there are bkstore's own, so that an error is the machine's refusal."""
    file_path = Path(file)
    if scratch and file_path.is_relative_to(scratch):
        if not file_path.is_symlink():
            return SystemRefused(file_path, error)
        file_path = path / file_path.name
    reason = error.strerror or str(error)
    return read_error(OSError(error.errno, reason, os.fspath(file_path)), file_path)
