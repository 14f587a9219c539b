"""Copying files into a target, durably, or giving entry logs a second name there.

Copies are the default. A hard link is for entry logs alone: no bookie writes into a log that it
finds at its start (it begins a new one, and removes old ones by name), so what a later writer does
in the target leaves the source's file as it is. Journals and marks are always copied.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from bkstore.errors import DirectoryInUse
from bkstore.files.disk_changes import Files
from bkstore.files.opening import opened
from bkstore.files.os_errors import readable, syncing, writing

CHUNK = 8 << 20
"""Bytes copied at a time."""

_NO_LINKS = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP)
"""Another file system, or one without hard links."""


def copy_file(
    source: Path, target: Path, files: Files, report: Callable[[int], None] | None = None
) -> int:
    """Copy a regular file to a new name and sync its bytes; return how many they are.

    `report` is called with the bytes of each piece. The name is durable with its folder's sync.
    """
    with ExitStack() as stack:
        with readable(source):
            file = stack.enter_context(opened(source))
            mode = os.fstat(file.fileno()).st_mode & 0o777
            size = os.fstat(file.fileno()).st_size
        with writing(target):
            fd = files.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode | 0o600)
        stack.callback(files.close, fd)
        done = 0
        while True:
            with readable(source):
                piece = file.read(CHUNK)
            if not piece:
                break
            with writing(target):
                files.pwrite(fd, piece, done)
            done += len(piece)
            if report is not None:
                report(len(piece))
        with syncing(target):
            files.fsync(fd)
    if done != size:
        raise DirectoryInUse(f"{source}: had {size} bytes, {done} when it was read")
    return done


def link_file(source: Path, target: Path, files: Files) -> bool:
    """Give a file a second name; return False where the file systems cannot."""
    with writing(target):
        try:
            files.link(source, target)
        except OSError as error:
            if error.errno in _NO_LINKS:
                return False
            raise
    return True


def write_new(target: Path, data: bytes, files: Files) -> None:
    """Write a small file, durably."""
    with writing(target):
        files.write_file(target, data)
