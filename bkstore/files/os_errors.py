"""Turning `OSError` into bkstore's errors, with the name of the file.

This module alone decides what is damage and what a shortage. An input's failing medium (EIO) and a
path that is no regular file are facts about the data: `CorruptionError`, which may become a
finding. Missing space, permission, descriptors or memory are facts about the machine:
`SystemRefused`, never a finding; so is a failing medium of bkstore's own files (`ReadFailed`).
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
_MEDIUM_ERRORS = frozenset(
    {errno.EIO, *(getattr(errno, name) for name in _NAMES if hasattr(errno, name))}
)
_NOT_REGULAR_ERRORS = frozenset({errno.EISDIR, errno.ESPIPE, errno.ENXIO})
_TRANSIENT_ERRORS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_ABSENCE_ERRORS = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG})


def is_transient(error: OSError | SystemRefused) -> bool:
    """Return whether descriptors or memory are short now: the same call may succeed later."""
    return error.errno in _TRANSIENT_ERRORS


def is_absent(error: OSError) -> bool:
    """Return whether the error means that the path does not exist, or is a dangling link."""
    return error.errno in _ABSENCE_ERRORS


def is_medium_error(error: OSError) -> bool:
    """Return whether the error means that the medium cannot be read."""
    return error.errno in _MEDIUM_ERRORS


def read_error(error: OSError, path: str | os.PathLike[str]) -> BkstoreError:
    """Return the error for a file that cannot be read; `path` is used if `error` names none.

    `CorruptionError` if the medium fails or it is no regular file (a folder, a pipe); `ReadFailed`
    if the machine is short of something; `BkstoreError` if the file is absent, or without an errno.
    """
    file = os.fspath(path) if error.filename is None else error.filename
    reason_lines = str(error.strerror or error).splitlines()  # pyarrow's has several
    reason = f"cannot be read: {reason_lines[0] if reason_lines else type(error).__name__}"
    if error.errno in _MEDIUM_ERRORS or error.errno in _NOT_REGULAR_ERRORS:
        return CorruptionError(file, None, reason)
    if error.errno is None or error.errno in _ABSENCE_ERRORS:
        return BkstoreError(f"{file}: {reason}")
    return ReadFailed(file, error)


@contextmanager
def add_file_name(path: str | os.PathLike[str]) -> Iterator[None]:
    """Add the file name to an `OSError` that a call by descriptor raises inside."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = os.fspath(path)
        raise


@contextmanager
def convert_read_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Raise the `BkstoreError` of `read_error` instead of any `OSError` inside."""
    try:
        yield
    except OSError as error:
        raise read_error(error, path) from error


@contextmanager
def convert_scratch_read_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Raise `ReadFailed` instead of an `OSError` on reading scratch space: bkstore wrote the files
    there itself, so the error is the machine's and no damage of a bookie's data."""
    try:
        yield
    except OSError as error:
        raise ReadFailed(error.filename or path, error) from error


@contextmanager
def convert_write_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Raise `WriteFailed` instead of an `OSError` inside."""
    try:
        yield
    except OSError as error:
        # Calls with two names, such as a rename, create the second one.
        raise WriteFailed(error.filename2 or error.filename or path, error) from error


@contextmanager
def convert_sync_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Raise `SyncFailed` instead of an `OSError` inside; `WriteFailed`, after which the sync may be
    repeated, instead of `SyncNotBegun`."""
    try:
        yield
    except SyncNotBegun as error:
        raise WriteFailed(error.filename or path, error) from error
    except OSError as error:
        raise SyncFailed(error.filename or path, error) from error


def parse_rocksdb_error(text: str) -> OSError:
    """Return RocksDB's message as `OSError`, with the error number whose text it contains."""
    for error_number in errno.errorcode:
        if os.strerror(error_number) in text:
            return OSError(error_number, text)
    return OSError(text)
