"""Copies of files: durable ones, and hard links where the file system has them."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from bkstore.errors import DirectoryInUse
from bkstore.files.disk_changes import Files
from bkstore.files.opening import open_for_reading
from bkstore.files.os_errors import convert_read_errors, convert_sync_errors, convert_write_errors

CHUNK_BYTES = 8 << 20
"""Bytes copied at a time."""

_LINK_UNSUPPORTED_ERRNOS = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP)
"""The errors of `link` for another file system, or for one without hard links."""


def copy_file(
    source: Path, target: Path, files: Files, report: Callable[[int], None] | None = None
) -> int:
    """Copy a regular file to a new name, fsync it, and return its size; `report` gets each chunk's.

    The caller must sync the folder. Raises `DirectoryInUse` if the source's size changes meanwhile.
    """
    with ExitStack() as stack:
        with convert_read_errors(source):
            file = stack.enter_context(open_for_reading(source))
            mode = os.fstat(file.fileno()).st_mode & 0o777
            expected_bytes = os.fstat(file.fileno()).st_size
        with convert_write_errors(target):
            # The copy's owner may always read and write it, even if the source is read-only.
            fd = files.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode | 0o600)
        stack.callback(files.close, fd)
        copied_bytes = 0
        while True:
            with convert_read_errors(source):
                chunk = file.read(CHUNK_BYTES)
            if not chunk:
                break
            with convert_write_errors(target):
                files.pwrite(fd, chunk, copied_bytes)
            copied_bytes += len(chunk)
            if report is not None:
                report(len(chunk))
        with convert_sync_errors(target):
            files.fsync(fd)
    if copied_bytes != expected_bytes:
        raise DirectoryInUse(f"{source}: had {expected_bytes} bytes, but {copied_bytes} when read")
    return copied_bytes


def link_file(source: Path, target: Path, files: Files) -> bool:
    """Hard-link a file; return False if the file system does not support it."""
    with convert_write_errors(target):
        try:
            files.link(source, target)
        except OSError as error:
            if error.errno in _LINK_UNSUPPORTED_ERRNOS:
                return False
            raise
    return True
