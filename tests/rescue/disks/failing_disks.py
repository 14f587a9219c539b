"""Disks of which some bytes cannot be read."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from pathlib import Path

import pytest


class FailingDisk:
    """Lets reads of a file fail that touch one of some ranges, as a medium does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, code: int = errno.EIO) -> None:
        self.bad: dict[str, list[tuple[int, int]]] = {}
        self.code = code
        self._pread = os.pread
        monkeypatch.setattr(os, "pread", self.pread)

    def pread(self, fd: int, count: int, offset: int) -> bytes:
        """Read, unless the range touches a bad one."""
        path = os.readlink(f"/proc/self/fd/{fd}")
        if any(start < offset + count and offset < end for start, end in self.bad.get(path, [])):
            raise OSError(self.code, os.strerror(self.code))
        return self._pread(fd, count, offset)

    def fail_at(self, paths: Iterable[Path], record: bytes) -> None:
        """Let reads fail that touch the first occurrence of a record in each file."""
        for path in paths:
            offset = path.read_bytes().find(record)
            if offset >= 0:
                self.bad[os.path.realpath(path)] = [(offset, offset + len(record))]
