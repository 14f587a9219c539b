"""Opening what must be a regular file: the one way by which readers do it.

A pipe, a device or a socket in an input tree would hang a reader or act on being opened, and a
small file that is not small would fill the memory; both are told by name here. Nothing is
written, and nothing is created.
"""

from __future__ import annotations

import os
import stat

from bkstore.errors import CorruptionError
from bkstore.index.files import StrPath

__all__ = ["open_regular", "read_whole"]

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def open_regular(path: StrPath) -> int:
    """Return a descriptor of a regular file, open for reading; never waits for a writer.

    Links are followed. Raises `CorruptionError` for what is no regular file, which is not
    opened; `OSError` as the system does.
    """
    _check_regular(path, os.stat(path))
    # Between the two looks it may have become another: nothing is waited for, and it is told.
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        _check_regular(path, os.fstat(fd))
    except BaseException:
        os.close(fd)
        raise
    return fd


def _check_regular(path: StrPath, info: os.stat_result) -> None:
    if not stat.S_ISREG(info.st_mode):
        kind = _KINDS.get(stat.S_IFMT(info.st_mode), "no file")
        raise CorruptionError(path, None, f"cannot be read: is {kind}, not a regular file")


def read_whole(path: StrPath, limit: int) -> bytes:
    """Return the content of a regular file that has at most `limit` bytes.

    Raises `CorruptionError` for a longer one, of which no more is read than `limit` and a byte;
    else as `open_regular`.
    """
    fd = open_regular(path)
    try:
        parts: list[bytes] = []
        left = limit + 1
        while left > 0:
            parts.append(os.read(fd, min(left, 1 << 20)))
            if not parts[-1]:
                return b"".join(parts)
            left -= len(parts[-1])
    finally:
        os.close(fd)
    raise CorruptionError(path, limit, f"is longer than the {limit} bytes that it may have")
