"""The lock that keeps a second writer out of a bookie's directories.

A writer holds two locks (flock; the system releases them when the process ends) of each directory.
One is on ``current/`` itself, so that links, bind mounts and renames lead to the same lock; the
other on the file `bkstore.lock` next to it (after resolving links), as network file systems do not
lock directories across machines. A real bookie checks neither: it uses RocksDB's lock only.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from weakref import WeakMethod

from bkstore import forks
from bkstore.errors import DirectoryInUse, WriteFailed
from bkstore.files.lock_files import acquire_lock, is_locked, take_lock
from bkstore.files.opening import open_regular
from bkstore.files.os_errors import convert_write_errors
from bkstore.index.api import Closeable

LOCK_NAME = "bkstore.lock"

_NO_LOCK_OF_DIRECTORIES = {errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOTSUP}
"""Errors of file systems that cannot lock directories; the lock file must suffice there."""


def _lock_path(current: Path) -> Path:
    """Return the lock file's path: next to the real directory if that is named ``current``."""
    real = Path(os.path.realpath(current))
    return (real if real.name == "current" else current).with_name(LOCK_NAME)


def _open_directory(current: Path) -> int:
    return os.open(current, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


class WriterLock(Closeable):
    """The locks of several ``current/`` directories, held until `close`; they must exist.

    Raises `DirectoryInUse` if one is held, also by another writer in this process. A directory
    given twice, even through links, is locked once. Fork: the child releases its copies of the
    locks, so that only the parent holds them, and calls the method passed to `close_on_fork`.
    """

    def __init__(self, directories: Iterable[Path]) -> None:
        """Lock the directories, all or none."""
        self._fds: list[int] = []
        self._close_owner: WeakMethod[Callable[[], None]] | None = None
        forks.register(self)
        try:
            distinct: dict[str, Path] = {}
            for current in directories:
                distinct.setdefault(os.path.realpath(current), current)
            # Lock files also hold across machines, unlike directory locks of network file systems.
            lock_files = {_lock_path(current): current for current in distinct.values()}
            for lock_path, current in lock_files.items():
                self._fds.append(acquire_lock(lock_path, _in_use(current)))
            for current in distinct.values():
                self._lock_directory(current)
        except BaseException:
            self.close()
            raise

    def _lock_directory(self, current: Path) -> None:
        """Lock ``current/`` itself, if the file system can: links may lead to other lock files."""
        with convert_write_errors(current):
            fd = _open_directory(current)
        self._fds.append(fd)
        try:
            take_lock(fd, current, _in_use(current))
        except WriteFailed as error:
            if error.errno not in _NO_LOCK_OF_DIRECTORIES:
                raise

    def close(self) -> None:
        """Release the locks. The lock files stay: removing them would race with the next writer."""
        while self._fds:
            os.close(self._fds.pop())

    def close_on_fork(self, close: Callable[[], None]) -> None:
        """Call the bound method `close` in a forked child."""
        self._close_owner = WeakMethod(close)

    def _forked(self) -> None:
        """Close the owner and the lock in a forked child."""
        close = None if self._close_owner is None else self._close_owner()
        if close is not None:
            close()
        self.close()


def _in_use(current: Path) -> str:
    return f"{current.parent} is open for writing elsewhere"


def check_not_locked(current: Path) -> None:
    """Raise `DirectoryInUse` if a writer holds a lock of a ``current/``. Creates nothing."""
    _check_unlocked(lambda: open_regular(_lock_path(current)), current)
    _check_unlocked(lambda: _open_directory(current), current)


def _check_unlocked(open_lock: Callable[[], int], current: Path) -> None:
    """Raise `DirectoryInUse` if the file or directory that `open_lock` opens is locked."""
    try:
        fd = open_lock()
    except (FileNotFoundError, PermissionError):  # never written by bkstore, or not accessible
        return
    try:
        is_held = is_locked(fd)
    except OSError as error:
        if error.errno not in _NO_LOCK_OF_DIRECTORIES:
            raise
        is_held = False
    finally:
        os.close(fd)
    if is_held:
        advice = "close it, copy the directory, or read it live (live=True, --live)"
        raise DirectoryInUse(f"{_in_use(current)}: {advice}")
