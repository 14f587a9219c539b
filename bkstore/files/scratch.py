"""Scratch directories that do not outlive their maker: removed on leaving, else by the next.

Whoever is killed removes nothing. So each directory holds a marker file, locked by the process
that made it for as long as that lives; the system lets the lock go, whatever ended the process.
A directory that has our name, our marker, our user, and nobody's lock is rubbish, and the first
scratch directory that a process makes beside it removes it. Nothing else is touched: a folder
of a like name without the marker is somebody's own.
"""

from __future__ import annotations

import fcntl
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
from bkstore.files.os_errors import writing

MARKER = ".bkstore-scratch"
"""The file whose lock says that the maker lives."""

_NAME = re.compile(r"bkstore-[a-z]+-[a-z0-9_]{8}")
_swept: set[str] = set()


@contextmanager
def scratch_directory(purpose: str, parent: StrPath | None = None) -> Iterator[Path]:
    """Yield a new directory for this user only, ``bkstore-PURPOSE-...``, and remove it afterwards.

    It lies in `parent`, else where the system has temporary files; those that killed processes
    left there are removed first, once a process. A forked child that leaves removes nothing.
    Raises `WriteFailed` where the system refuses to make one.
    """
    with writing(tempfile.tempdir or "the directory for temporary files"):
        place = os.path.abspath(tempfile.gettempdir() if parent is None else parent)
    if place not in _swept:
        _swept.add(place)
        _sweep(place)
    maker = os.getpid()
    path, lock = _made(purpose, place)
    try:
        yield path
    finally:
        if os.getpid() == maker:
            _remove(path)
        os.close(lock)


def _made(purpose: str, place: str) -> tuple[Path, int]:
    """Return a new directory, and the descriptor whose lock keeps it."""
    while True:
        with writing(place):
            path = Path(tempfile.mkdtemp(prefix=f"bkstore-{purpose}-", dir=place))
        lock = _marker_of(path)
        if lock is None:
            continue
        try:
            if _taken(lock) and _is_there(path / MARKER, lock):
                return path, lock
        except OSError:  # a file system without locks, where nobody sweeps either
            return path, lock
        os.close(lock)  # another swept it, between the marker and its lock


def _marker_of(path: Path) -> int | None:
    """Return the descriptor of a new marker, None where the directory was swept meanwhile."""
    try:
        with writing(path):
            return os.open(path / MARKER, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except WriteFailed as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        with suppress(OSError):  # nobody sweeps a directory without a marker
            os.rmdir(path)
        raise


def _sweep(place: str) -> None:
    """Remove the directories there whose makers are gone."""
    with suppress(OSError), os.scandir(place) as entries:
        names = [entry.name for entry in entries if _NAME.fullmatch(entry.name)]
        for name in names:
            _remove_if_left(os.path.join(place, name))


def _remove_if_left(path: str) -> None:
    with suppress(OSError):
        info = os.lstat(path)
        if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid():
            return
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        lock = os.open(os.path.join(path, MARKER), flags)
        try:
            said = os.fstat(lock)
            ours = stat.S_ISREG(said.st_mode) and said.st_uid == os.geteuid() and not said.st_size
            if ours and _taken(lock):
                _remove(Path(path))
        finally:
            os.close(lock)


def _remove(path: Path) -> None:
    """Remove a directory, the marker last, so that a sweep goes on where this is cut off.

    Links are removed, and never followed.
    """
    with suppress(OSError), os.scandir(path) as entries:
        for entry in entries:
            if entry.name == MARKER:
                continue
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            else:
                os.unlink(entry.path)
    shutil.rmtree(path, ignore_errors=True)


def _taken(lock: int) -> bool:
    """Take the lock; return whether that was possible."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_there(path: Path, fd: int) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(fd), os.stat(path))
    return False
