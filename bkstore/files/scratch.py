"""Scratch directories: removed at the end of the block, or by a later process after a kill.

Each directory holds a marker file, which the process that created it keeps locked; the system
releases the lock however the process ends. A directory with such a name and marker, of this user
and not locked, is abandoned: a process that makes its first scratch directory beside it removes it.
Nothing else is touched: a folder of such a name without the marker is not bkstore's.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bkstore.errors import WriteFailed
from bkstore.files.disk_changes import StrPath
from bkstore.files.lock_files import try_lock
from bkstore.files.os_errors import convert_write_errors

MARKER_NAME = ".bkstore-scratch"
"""The file that stays locked while the process that created the directory lives."""

_NAME_PATTERN = re.compile(r"bkstore-[a-z]+-[a-z0-9_]{8}")
_swept: set[str] = set()


@contextmanager
def scratch_directory(purpose: str, parent: StrPath | None = None) -> Iterator[Path]:
    """Yield a new directory for this user only, ``bkstore-PURPOSE-...``, and remove it afterwards.

    It lies in `parent`, by default the system's directory for temporary files; the first call for a
    parent removes the abandoned ones there. In a forked child the block's end removes nothing.
    Raises `WriteFailed` if the directory cannot be created.
    """
    with convert_write_errors(tempfile.tempdir or "the directory for temporary files"):
        base_dir = os.path.abspath(tempfile.gettempdir() if parent is None else parent)
    if base_dir not in _swept:
        _swept.add(base_dir)
        _remove_abandoned(base_dir)
    maker_pid = os.getpid()
    path, lock_fd = _make_locked(purpose, base_dir)
    try:
        yield path
    finally:
        if os.getpid() == maker_pid:
            _remove_directory(path)
        os.close(lock_fd)


def _make_locked(purpose: str, base_dir: str) -> tuple[Path, int]:
    """Return a new directory and its locked marker's descriptor. Until the marker is locked another
    process's sweep may remove the directory: then make another."""
    while True:
        with convert_write_errors(base_dir):
            path = Path(tempfile.mkdtemp(prefix=f"bkstore-{purpose}-", dir=base_dir))
        lock_fd = _create_marker(path)
        if lock_fd is None:
            continue
        try:  # a sweep that was first holds the lock, or removed the marker before it was locked
            if try_lock(lock_fd) and _is_same_file(path / MARKER_NAME, lock_fd):
                return path, lock_fd
        except OSError:  # a file system without locks: no process sweeps it either
            return path, lock_fd
        os.close(lock_fd)


def _create_marker(path: Path) -> int | None:
    """Return the descriptor of a new marker, or None if the directory was removed meanwhile."""
    marker = path / MARKER_NAME
    try:
        with convert_write_errors(path):
            return os.open(marker, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except WriteFailed as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        with suppress(OSError):  # without a marker no sweep removes it
            os.rmdir(path)
        raise


def _remove_abandoned(base_dir: str) -> None:
    """Remove scratch directories of processes that ended without removing them."""
    with suppress(OSError), os.scandir(base_dir) as entries:
        names = [entry.name for entry in entries if _NAME_PATTERN.fullmatch(entry.name)]
        for name in names:
            _remove_if_abandoned(os.path.join(base_dir, name))


def _remove_if_abandoned(path: str) -> None:
    """Remove a scratch directory of this user whose maker has ended: its marker is not locked any
    more. Leaves alone what is not certainly such a directory, or cannot be removed."""
    with suppress(OSError):
        dir_info = os.lstat(path)
        if not stat.S_ISDIR(dir_info.st_mode) or dir_info.st_uid != os.geteuid():
            return
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        lock_fd = os.open(os.path.join(path, MARKER_NAME), flags)
        try:
            info = os.fstat(lock_fd)
            is_own = stat.S_ISREG(info.st_mode) and info.st_uid == os.geteuid()
            if is_own and info.st_size == 0 and try_lock(lock_fd):  # markers are empty
                _remove_directory(Path(path))
        finally:
            os.close(lock_fd)


def _remove_directory(path: Path) -> None:
    """Remove a directory, the marker last, so that a sweep can finish. Links are not followed."""
    with suppress(OSError), os.scandir(path) as entries:
        for entry in entries:
            if entry.name == MARKER_NAME:
                continue
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            else:
                os.unlink(entry.path)
    shutil.rmtree(path, ignore_errors=True)


def _is_same_file(path: Path, fd: int) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(fd), os.stat(path))
    return False
