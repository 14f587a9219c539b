"""Opening what must be a regular file: the one way by which readers do it.

A pipe, a device or a socket in an input tree would hang a reader or act on being opened, and a
small file that is not small would fill the memory; both are told by name here. So is a link that
leads nowhere: what has a name is not absent.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from bkstore.errors import CorruptionError
from bkstore.files.disk_changes import StrPath
from bkstore.files.os_errors import naming

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
_CHUNK = 1 << 20


def check_regular(path: StrPath) -> os.stat_result:
    """Return what `os.stat` says of a regular file; opens nothing. Raises as `open_regular`.

    For files that another library opens by their path.
    """
    try:
        info = os.stat(path)
    except FileNotFoundError:
        if os.path.islink(path):
            raise _none(path, "a link to nothing") from None
        raise
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _none(path, "a link that leads back to itself") from None
        raise
    return _checked(path, info)


def _checked(path: StrPath, info: os.stat_result) -> os.stat_result:
    if not stat.S_ISREG(info.st_mode):
        raise _none(path, _KINDS.get(stat.S_IFMT(info.st_mode), "no file"))
    return info


def _none(path: StrPath, kind: str) -> CorruptionError:
    return CorruptionError(path, None, f"cannot be read: is {kind}, not a regular file")


def open_regular(path: StrPath, flags: int = os.O_RDONLY) -> int:
    """Return a descriptor of a regular file, open for reading; never waits for a writer.

    Links are followed. Raises `CorruptionError` for what is no regular file, which is not
    opened, and for a link that leads nowhere; `OSError` as the system does. `flags` are for
    lock files: with `O_CREAT`, one that is not there is made.
    """
    try:
        check_regular(path)
    except FileNotFoundError:
        if not flags & os.O_CREAT:
            raise
    # Between the two looks it may have become another: nothing is waited for, and it is told.
    fd = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, 0o644)
    try:
        _checked(path, os.fstat(fd))
    except BaseException:
        os.close(fd)
        raise
    return fd


@contextmanager
def opened(path: StrPath) -> Iterator[BinaryIO]:
    """Give a regular file, open for reading; raises as `open_regular`."""
    with open(open_regular(path), "rb") as file:
        yield file


def read_whole(path: StrPath, limit: int, *, text: bool = False) -> bytes:
    """Return the content of a regular file that has at most `limit` bytes.

    Raises `CorruptionError` for a longer one, however it grows meanwhile, and for `text` that
    has a NUL byte (a sparse file would fill the memory with them); else as `open_regular`.
    """
    fd = open_regular(path)
    try:
        with naming(path):
            return _read_all(fd, path, limit, text)
    finally:
        os.close(fd)


def _read_all(fd: int, path: StrPath, limit: int, text: bool) -> bytes:
    if os.fstat(fd).st_size > limit:
        raise _too_long(path, limit)
    parts: list[bytes] = []
    got = 0
    while got <= limit:
        parts.append(os.read(fd, min(limit + 1 - got, _CHUNK)))
        if not parts[-1]:
            return b"".join(parts)
        if text and (at := parts[-1].find(b"\0")) >= 0:
            raise CorruptionError(path, got + at, "has a NUL byte, which no text has")
        got += len(parts[-1])
    raise _too_long(path, limit)


def _too_long(path: StrPath, limit: int) -> CorruptionError:
    return CorruptionError(path, limit, f"is longer than the {limit} bytes that it may have")


def read_fully(fd: int, size: int, offset: int) -> bytes:
    """Return `size` bytes from `offset` on; fewer only where the file ends."""
    parts = [os.pread(fd, size, offset)]
    got = len(parts[0])
    while got < size and parts[-1]:
        parts.append(os.pread(fd, size - got, offset + got))
        got += len(parts[-1])
    return parts[0] if got == len(parts[0]) else b"".join(parts)


def past_hole(fd: int, offset: int) -> int | None:
    """Return where data begin at or after `offset`, holes passed over; None if none follow.

    `offset` itself where the file system does not tell holes. The descriptor's position stays:
    a file object above it counts on it.
    """
    before = os.lseek(fd, 0, os.SEEK_CUR)
    try:
        return os.lseek(fd, offset, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return None
        if error.errno == errno.EINVAL:
            return offset
        raise
    finally:
        os.lseek(fd, before, os.SEEK_SET)


def files_below(folder: StrPath) -> Iterator[Path]:
    """Yield what lies below a folder and is no folder, in no order; links are not followed.

    Raises `OSError` where the system refuses to list one: the globbing of pathlib passes over a
    folder without permission in silence.
    """
    for place, _, names in os.walk(folder, onerror=_raise):
        yield from (Path(place, name) for name in names)


def _raise(error: OSError) -> None:
    raise error


def is_folder(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry of a folder is one, through links; never raises for a link."""
    return entry.is_dir(follow_symlinks=False) or (entry.is_symlink() and os.path.isdir(entry.path))
