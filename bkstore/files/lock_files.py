"""Lock files: held by `flock`, so that the system releases them however a process ends.

A lock file is created if it does not exist, and never written, truncated or reached through a link:
anything of its name that is no regular file is refused and left alone.

`is_locked` takes the shared lock for a moment, since `flock` has no other way to ask. So if the
exclusive lock is refused but the shared one is not, only such probes hold it: try again.
"""

from __future__ import annotations

import errno
import fcntl
import os
import random
import stat
import struct
import sys
import time

from bkstore.errors import DirectoryInUse, UnsupportedLayout
from bkstore.files.disk_changes import StrPath
from bkstore.files.opening import check_regular, open_regular
from bkstore.files.os_errors import convert_write_errors

_MAX_PROBE_SECONDS = 30.0
"""Probes that hold a lock for longer count as its holders; each takes some microseconds."""

_OPEN_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def open_lock_file(path: StrPath, flags: int = os.O_CREAT) -> int:
    """Return a descriptor of the lock file, not locked yet; `flags` are added to those of `open`.
    Raises `UnsupportedLayout` if it is no regular file, `WriteFailed` if the system refuses."""
    with convert_write_errors(path):
        try:
            fd = os.open(path, _OPEN_FLAGS | flags, 0o644)
        except OSError as error:  # a link, a socket and a folder, in this order:
            if error.errno not in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
                raise
            raise _not_a_lock_error(path) from None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise _not_a_lock_error(path)
    return fd


def _not_a_lock_error(path: StrPath) -> UnsupportedLayout:
    return UnsupportedLayout(f"{os.fspath(path)}: is not a regular file or lock file")


def acquire_lock(path: StrPath, message_if_locked: str, wait: bool = False) -> int:
    """Return the descriptor of the locked file; closing it releases the lock.

    Raises `DirectoryInUse` with the message `message_if_locked` if another process holds the lock,
    unless `wait`; otherwise what `open_lock_file` raises.
    """
    fd = open_lock_file(path)
    try:
        take_lock(fd, path, message_if_locked, wait)
    except BaseException:
        os.close(fd)
        raise
    return fd


def take_lock(fd: int, path: StrPath, message_if_locked: str, wait: bool = False) -> None:
    """Lock an open file. Raises `DirectoryInUse` with the message `message_if_locked` if another
    process holds the lock, unless `wait`. An `is_locked` elsewhere holds the shared lock for a
    moment: if the exclusive lock is refused but the shared one is free, try again."""
    with convert_write_errors(path):
        if wait:
            fcntl.flock(fd, fcntl.LOCK_EX)
            return
        deadline = time.monotonic() + _MAX_PROBE_SECONDS
        while not try_lock(fd):
            if is_locked(fd) or time.monotonic() > deadline:
                raise DirectoryInUse(message_if_locked)
            time.sleep(random.uniform(0, 0.002))  # noqa: S311 (no lockstep with another process)


def is_locked(fd: int) -> bool:
    """Return whether another holds the lock; does not make a concurrent `take_lock` fail."""
    if not try_lock(fd, fcntl.LOCK_SH):
        return True
    fcntl.flock(fd, fcntl.LOCK_UN)
    return False


def try_lock(fd: int, operation: int = fcntl.LOCK_EX) -> bool:
    """Lock an open file if nobody else holds its lock; return whether it is locked now."""
    try:
        fcntl.flock(fd, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def release_lock(fd: int) -> None:
    """Unlock and close a locked file; unlocks it for children forked meanwhile too."""
    fcntl.flock(fd, fcntl.LOCK_UN)
    os.close(fd)


# -- POSIX locks (`fcntl`), as RocksDB takes them: those of a process, not of a descriptor


def has_posix_lock(path: StrPath, *, may_be_own: bool) -> bool:
    """Return whether a process holds a POSIX write lock on a file; False if it does not exist or
    may not be read. With `may_be_own`, a file that this process has open counts as locked, and is
    not opened again: closing any descriptor of a file drops all the process's locks on it."""
    try:
        if may_be_own and _is_open_in_this_process(check_regular(path)):
            return True
        fd = open_regular(path)
    except (FileNotFoundError, PermissionError):
        return False
    try:
        return _has_write_lock(fd)
    finally:
        os.close(fd)


def _is_open_in_this_process(file_stat: os.stat_result) -> bool:
    """Return whether one of this process's descriptors is of the file with this `os.stat`
    result."""
    for descriptor in os.listdir("/dev/fd"):
        try:
            if os.path.samestat(os.fstat(int(descriptor)), file_stat):
                return True
        except OSError:  # the descriptor of the listing itself, or one closed meanwhile
            continue
    return False


def _has_write_lock(fd: int) -> bool:
    """Return whether another process holds a POSIX write lock on an open file."""
    # F_GETLK takes a struct flock that describes a lock, and sets its l_type to F_UNLCK if nobody's
    # lock forbids it. The order of the fields differs: start, length, pid, type, whence on macOS,
    # else type, whence, start, length, pid.
    if sys.platform == "darwin":
        layout = "@qqihh"
        request = struct.pack(layout, 0, 0, 0, fcntl.F_WRLCK, os.SEEK_SET)
        lock_type = struct.unpack(layout, fcntl.fcntl(fd, fcntl.F_GETLK, request))[3]
    else:
        layout = "@hhqqi4x"
        request = struct.pack(layout, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        lock_type = struct.unpack(layout, fcntl.fcntl(fd, fcntl.F_GETLK, request))[0]
    return bool(lock_type != fcntl.F_UNLCK)
