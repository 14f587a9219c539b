"""Lock files: held by `flock`, so that the system lets go when a process ends, however it does.

A lock file is made where there is none, and never written, truncated or reached through a link:
what has its name and is another thing is refused as it is.

Who only asks whether a file is locked shares the lock for a moment, since `flock` has no other
way to ask. So a lock that is refused, and can be shared, is held by such probes alone: whoever
wants it tries again.
"""

from __future__ import annotations

import errno
import fcntl
import os
import random
import stat
import time

from bkstore.errors import DirectoryInUse, UnsupportedLayout
from bkstore.files.disk_changes import StrPath
from bkstore.files.os_errors import writing

_PROBE_SECONDS = 30.0
"""How long probes may keep a lock shared before they count as its holders: each needs some us."""

_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def lock_file(path: StrPath, flags: int = os.O_CREAT) -> int:
    """Return a descriptor of the lock file, not locked yet; `flags` beside those of reading it.

    Raises `UnsupportedLayout` for what is no regular file, a link too; `WriteFailed` where the
    system refuses.
    """
    with writing(path):
        try:
            fd = os.open(path, _FLAGS | flags, 0o644)
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
                raise
            raise _no_lock(path) from None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise _no_lock(path)
    return fd


def _no_lock(path: StrPath) -> UnsupportedLayout:
    return UnsupportedLayout(f"{os.fspath(path)}: is no regular file, so no lock of ours")


def held_lock(path: StrPath, taken: str, wait: bool = False) -> int:
    """Return the descriptor of the locked file; closing it lets go.

    Raises `DirectoryInUse` with the text `taken` where another holds it, unless `wait`; else as
    `lock_file`.
    """
    fd = lock_file(path)
    try:
        take_lock(fd, path, taken, wait)
    except BaseException:
        os.close(fd)
        raise
    return fd


def take_lock(fd: int, path: StrPath, taken: str, wait: bool = False) -> None:
    """Lock an open file, as `held_lock`. Probes by `is_locked` are waited for."""
    with writing(path):
        if wait:
            fcntl.flock(fd, fcntl.LOCK_EX)
            return
        deadline = time.monotonic() + _PROBE_SECONDS
        while not _try_lock(fd, fcntl.LOCK_EX):
            if is_locked(fd) or time.monotonic() > deadline:
                raise DirectoryInUse(taken)
            time.sleep(random.uniform(0, 0.002))  # noqa: S311 (two who try at once part)


def is_locked(fd: int) -> bool:
    """Return whether another holds the lock; never makes one fail who takes it meanwhile."""
    if not _try_lock(fd, fcntl.LOCK_SH):
        return True
    fcntl.flock(fd, fcntl.LOCK_UN)
    return False


def _try_lock(fd: int, kind: int) -> bool:
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def let_go(fd: int) -> None:
    """Unlock and close a locked file; a child that was forked meanwhile keeps nothing locked."""
    fcntl.flock(fd, fcntl.LOCK_UN)
    os.close(fd)
