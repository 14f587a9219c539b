"""The lock that keeps a second writer out of a bookie's directories.

While a writer has a directory open, it holds two locks of it (flock; the system lets go when the
process ends). One is on ``current/`` itself: it is the same whatever the way to it, by links, by
bind mounts or under a new name. The other is on the file `bkstore.lock` beside it, links to
``current/`` resolved: network file systems lock no directory for other machines. A real bookie
does not look at either: it holds the lock of RocksDB only.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from weakref import WeakMethod

from bkstore import forks
from bkstore.errors import DirectoryInUse, WriteFailed
from bkstore.files.lock_files import held_lock, is_locked, take_lock
from bkstore.files.opening import open_regular
from bkstore.files.os_errors import writing
from bkstore.index.api import Closing

LOCK_NAME = "bkstore.lock"

_NO_LOCK_OF_DIRECTORIES = {errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOTSUP}
"""What a file system answers that locks no directories: the lock file stands alone there."""


def _lock_path(current: Path) -> Path:
    """Return the lock file: beside the directory itself, unless only a link calls it current."""
    real = Path(os.path.realpath(current))
    return (real if real.name == "current" else current).with_name(LOCK_NAME)


def _open_directory(current: Path) -> int:
    return os.open(current, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


class WriterLock(Closing):
    """The locks of several ``current/`` directories, held until `close`; they must exist.

    Raises `DirectoryInUse` if one is taken, also by a second writer in the same process. One
    that comes twice, through links too, is locked once. Fork: the child lets go of it, so that
    the parent alone holds it, and calls what `closed_by_fork` was given.
    """

    def __init__(self, directories: Iterable[Path]) -> None:
        self._fds: list[int] = []
        self._owner: WeakMethod[Callable[[], None]] | None = None
        forks.register(self)
        try:
            distinct: dict[str, Path] = {}
            for current in directories:
                distinct.setdefault(os.path.realpath(current), current)
            files = {_lock_path(current): current for current in distinct.values()}
            for path, current in files.items():
                self._fds.append(held_lock(path, _taken(current)))
            for current in distinct.values():
                self._lock_directory(current)
        except BaseException:
            self.close()
            raise

    def _lock_directory(self, current: Path) -> None:
        with writing(current):
            fd = _open_directory(current)
        self._fds.append(fd)
        try:
            take_lock(fd, current, _taken(current))
        except WriteFailed as error:
            if error.errno not in _NO_LOCK_OF_DIRECTORIES:
                raise

    def close(self) -> None:
        """Let go. The files stay: to remove them would race with the next writer."""
        while self._fds:
            os.close(self._fds.pop())

    def closed_by_fork(self, close: Callable[[], None]) -> None:
        """Call the bound method `close` in a forked child."""
        self._owner = WeakMethod(close)

    def _forked(self) -> None:
        close = None if self._owner is None else self._owner()
        if close is not None:
            close()
        self.close()


def _taken(current: Path) -> str:
    return f"{current.parent} is open for writing in another place"


def check_not_locked(current: Path) -> None:
    """Raise `DirectoryInUse` if a writer holds a lock of a ``current/``. Creates nothing."""
    _check_free(lambda: open_regular(_lock_path(current)), current)
    _check_free(lambda: _open_directory(current), current)


def _check_free(open_lock: Callable[[], int], current: Path) -> None:
    try:
        fd = open_lock()
    except (FileNotFoundError, PermissionError):  # never written by bkstore, or not for us to see
        return
    try:
        held = is_locked(fd)
    except OSError as error:
        if error.errno not in _NO_LOCK_OF_DIRECTORIES:
            raise
        held = False
    finally:
        os.close(fd)
    if held:
        raise DirectoryInUse(
            f"{_taken(current)}: close it, copy the directory, or read it live (live=True, --live)"
        )
