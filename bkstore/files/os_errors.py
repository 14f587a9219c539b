"""Turning the operating system's refusals into errors of ours, with the file they are about."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from bkstore.errors import BkstoreError, CorruptionError, SyncFailed, WriteFailed

__all__ = ["os_error", "readable", "syncing", "unreadable", "writing"]

_DAMAGE = frozenset({errno.EIO, errno.EISDIR, errno.ESPIPE, errno.ENXIO})


def unreadable(error: OSError, path: str | os.PathLike[str]) -> BkstoreError:
    """Return the error for a file that cannot be read; `path` where the system names none.

    `CorruptionError` where the medium fails or the file is none (a folder, a pipe).
    """
    file = os.fspath(path) if error.filename is None else error.filename
    said = str(error.strerror or error).splitlines()  # pyarrow's may have several
    reason = f"cannot be read: {said[0] if said else type(error).__name__}"
    if error.errno in _DAMAGE:
        return CorruptionError(file, None, reason)
    return BkstoreError(f"{file}: {reason}")


@contextmanager
def readable(path: str | os.PathLike[str]) -> Iterator[None]:
    """Raise `BkstoreError` instead of the `OSError` of anything inside."""
    try:
        yield
    except OSError as error:
        raise unreadable(error, path) from error


@contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[None]:
    """Raise `WriteFailed` instead of the `OSError` of a write inside."""
    try:
        yield
    except OSError as error:
        raise WriteFailed(error.filename or path, error) from error


@contextmanager
def syncing(path: str | os.PathLike[str]) -> Iterator[None]:
    """Raise `SyncFailed` instead of the `OSError` of a sync inside."""
    try:
        yield
    except OSError as error:
        raise SyncFailed(error.filename or path, error) from error


def os_error(text: str) -> OSError:
    """Return the system's error that RocksDB tells in words; `OSError` of the words, else."""
    for number in errno.errorcode:
        if os.strerror(number) in text:
            return OSError(number, text)
    return OSError(text)
