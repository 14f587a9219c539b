"""Spill files: rows that do not fit into memory, written to scratch space and read back.

bkstore wrote a spill itself, so its failures are the machine's and never findings about the data:
writing raises `WriteFailed`, reading back `ReadFailed`, also if bytes are missing.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from bkstore.errors import ReadFailed
from bkstore.files.disk_changes import Files, StrPath
from bkstore.files.opening import read_fully
from bkstore.files.os_errors import convert_scratch_read_errors, convert_write_errors


def append_spill(path: StrPath, data: bytes | memoryview, files: Files) -> None:
    """Append `data` to the spill, which is created if it does not exist; does not sync."""
    with convert_write_errors(path):
        fd = files.open(path, os.O_WRONLY | os.O_CREAT)
        try:
            files.pwrite(fd, data, os.fstat(fd).st_size)
        finally:
            files.close(fd)


class SpillReader:
    """An open spill of `size` bytes."""

    def __init__(self, path: StrPath, fd: int) -> None:
        self._path = path
        self._fd = fd
        self.size = os.fstat(fd).st_size

    def read(self, offset: int, size: int) -> bytes:
        """Return exactly `size` bytes from `offset` on; raises `ReadFailed` if there are fewer."""
        with convert_scratch_read_errors(self._path):
            data = read_fully(self._fd, size, offset)
        if len(data) < size:
            reason = f"ends at {offset + len(data)}, before the end of the written data"
            raise ReadFailed(self._path, OSError(errno.EIO, reason))
        return data


@contextmanager
def open_spill(path: StrPath) -> Iterator[SpillReader]:
    """Yield the spill at `path`, open for reading, and close it afterwards. Raises `ReadFailed` if
    it cannot be opened."""
    with convert_scratch_read_errors(path):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with convert_scratch_read_errors(path):
            reader = SpillReader(path, fd)
        yield reader
    finally:
        os.close(fd)


def read_spill(path: StrPath) -> bytes:
    """Return all bytes of a spill."""
    with open_spill(path) as spill:
        return spill.read(0, spill.size)
