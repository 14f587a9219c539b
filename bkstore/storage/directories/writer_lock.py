"""The lock that keeps a second writer out of a bookie's directories.

`bkstore.lock` stands in each ledger directory, beside ``current/``, and is locked while a writer
has it open (flock; the system lets go when the process ends). A real bookie has no such file and
does not look at it: it holds the lock of RocksDB only.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from weakref import WeakMethod

from bkstore import forks
from bkstore.errors import DirectoryInUse
from bkstore.files.lock_files import held_lock
from bkstore.files.opening import open_regular
from bkstore.index.api import Closing

__all__ = ["LOCK_NAME", "WriterLock", "check_not_locked"]

LOCK_NAME = "bkstore.lock"


def _lock_path(directory: Path) -> Path:
    folder = directory.parent if directory.name == "current" else directory
    return folder / LOCK_NAME


class WriterLock(Closing):
    """The locks of several directories, held until `close`; `DirectoryInUse` if one is taken.

    Also against a second writer in the same process. Fork: the child lets go of it, so that
    the parent alone holds it, and calls what `closed_by_fork` was given.
    """

    def __init__(self, directories: Iterable[Path]) -> None:
        self._fds: list[int] = []
        self._owner: WeakMethod[Callable[[], None]] | None = None
        forks.register(self)
        try:
            for directory in dict.fromkeys(map(_lock_path, directories)):
                self._fds.append(_locked(directory))
        except BaseException:
            self.close()
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


def _locked(path: Path) -> int:
    return held_lock(path, f"{path.parent} is open for writing in another place")


def check_not_locked(directory: Path) -> None:
    """Raise `DirectoryInUse` if a writer holds the directory's lock. Creates nothing."""
    path = _lock_path(directory)
    try:
        fd = open_regular(path)
    except (FileNotFoundError, PermissionError):  # never written by bkstore, or not for us to see
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        raise DirectoryInUse(
            f"{path.parent} is open for writing in another place: "
            "close it, copy the directory, or read it live (live=True, --live)"
        ) from None
    finally:
        os.close(fd)
