"""Turning the operating system's refusals into errors of ours, with the file they are about.

The one rule of what is damage and what is a shortage stands here. A medium that fails under an
input (EIO) and a name that is no regular file are facts about the data: `CorruptionError`, which
may become a finding. Missing space, permission, descriptors or memory are facts about the machine:
`SystemRefused`, which never does. Bytes that bkstore wrote itself, such as a spill, say nothing
about the data either, so whatever is wrong with their medium is `ReadFailed`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from bkstore.errors import (
    BkstoreError,
    CorruptionError,
    ReadFailed,
    SyncFailed,
    SystemRefused,
    WriteFailed,
)
from bkstore.files.disk_changes import SyncNotBegun

_NAMES = ("EUCLEAN", "EBADMSG", "EREMOTEIO", "ENODATA", "EILSEQ")  # not on every system
_MEDIUM = frozenset({errno.EIO, *(getattr(errno, name) for name in _NAMES if hasattr(errno, name))})
_NO_FILE = frozenset({errno.EISDIR, errno.ESPIPE, errno.ENXIO})
_FOR_NOW = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG})


def is_for_now(error: OSError | SystemRefused) -> bool:
    """Return whether the machine has no descriptor or memory at the moment: the same call may
    succeed a little later, with nothing changed by anybody."""
    return error.errno in _FOR_NOW


def is_absent(error: OSError) -> bool:
    """Return whether the system says that there is nothing by that name, or a link to nothing."""
    return error.errno in _ABSENT


def is_medium_error(error: OSError) -> bool:
    """Return whether the system says that bytes cannot be read from their medium."""
    return error.errno in _MEDIUM


def unreadable(error: OSError, path: str | os.PathLike[str]) -> BkstoreError:
    """Return the error for a file that cannot be read; `path` where the system names none.

    `CorruptionError` where the medium fails or the file is none (a folder, a pipe); `ReadFailed`
    where the machine lacks what reading takes; `BkstoreError` where it is gone.
    """
    file = os.fspath(path) if error.filename is None else error.filename
    said = str(error.strerror or error).splitlines()  # pyarrow's may have several
    reason = f"cannot be read: {said[0] if said else type(error).__name__}"
    if error.errno in _MEDIUM or error.errno in _NO_FILE:
        return CorruptionError(file, None, reason)
    if error.errno is None or error.errno in _ABSENT:
        return BkstoreError(f"{file}: {reason}")
    return ReadFailed(file, error)


@contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Let an `OSError` of a call by descriptor name the file that is open there."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = os.fspath(path)
        raise


@contextmanager
def readable(path: str | os.PathLike[str]) -> Iterator[None]:
    """Raise `BkstoreError` instead of the `OSError` of anything inside, as `unreadable`."""
    try:
        yield
    except OSError as error:
        raise unreadable(error, path) from error


@contextmanager
def reading_back(path: str | os.PathLike[str]) -> Iterator[None]:
    """Raise `ReadFailed` instead of the `OSError` of reading a file that bkstore wrote itself."""
    try:
        yield
    except OSError as error:
        raise ReadFailed(error.filename or path, error) from error


@contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[None]:
    """Raise `WriteFailed` instead of the `OSError` of a write inside."""
    try:
        yield
    except OSError as error:
        # Of calls with two names, such as a rename, the second is the one that is made.
        raise WriteFailed(error.filename2 or error.filename or path, error) from error


@contextmanager
def syncing(path: str | os.PathLike[str]) -> Iterator[None]:
    """Raise `SyncFailed` instead of the `OSError` of a sync inside; `WriteFailed` if none was
    tried, after which the same sync may come again."""
    try:
        yield
    except SyncNotBegun as error:
        raise WriteFailed(error.filename or path, error) from error
    except OSError as error:
        raise SyncFailed(error.filename or path, error) from error


def os_error(text: str) -> OSError:
    """Return the system's error that RocksDB tells in words; `OSError` of the words, else."""
    for number in errno.errorcode:
        if os.strerror(number) in text:
            return OSError(number, text)
    return OSError(text)
