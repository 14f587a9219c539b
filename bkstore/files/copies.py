"""Copies of files: durable ones, and hard links where the file system has them."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

from bkstore.errors import DirectoryInUse
from bkstore.files.disk_changes import Files
from bkstore.files.opening import (
    data_end_offset,
    next_data_offset,
    open_for_reading,
    read_fully,
)
from bkstore.files.os_errors import convert_read_errors, convert_sync_errors, convert_write_errors

CHUNK_BYTES = 8 << 20
"""Bytes copied at a time."""

_LINK_UNSUPPORTED_ERRNOS = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP)
"""The errors of `link` for another file system, or for one without hard links."""


def copy_file(
    source: Path, target: Path, files: Files, report: Callable[[int], None] | None = None
) -> int:
    """Copy a regular file to a new name, fsync it, and return its size. Holes, as in index files of
    stripes, stay holes, and are not read. `report` gets the bytes of each chunk, a hole's included.

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
        # Copy the data, up to a chunk at a time, to where they lie; between them are holes.
        copied_bytes = 0
        for offset, chunk in _data_chunks(source, file.fileno()):
            with convert_write_errors(target):
                files.pwrite(fd, chunk, offset)
            if report is not None:
                report(offset + len(chunk) - copied_bytes)
            copied_bytes = offset + len(chunk)
        with convert_read_errors(source):
            source_bytes = os.fstat(file.fileno()).st_size
        if source_bytes > copied_bytes:  # a hole at the end
            with convert_write_errors(target):
                files.truncate(fd, source_bytes)
            if report is not None:
                report(source_bytes - copied_bytes)
        with convert_sync_errors(target):
            files.fsync(fd)
    if source_bytes != expected_bytes or copied_bytes > expected_bytes:
        raise DirectoryInUse(f"{source}: had {expected_bytes} bytes, but {source_bytes} when read")
    return source_bytes


def _data_chunks(source: Path, fd: int) -> Iterator[tuple[int, bytes]]:
    """Yield (offset, bytes) of the data of a file, in order; nothing of its holes."""
    end = 0
    while True:
        with convert_read_errors(source):
            start = next_data_offset(fd, end)
            if start is None:
                return
            chunk = read_fully(fd, min(data_end_offset(fd, start) - start, CHUNK_BYTES), start)
        if not chunk:
            return
        yield start, chunk
        end = start + len(chunk)


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
