"""Opening regular files: all readers do it here.

A pipe, a device or a socket in an input could block a reader or react to being opened, and a
supposedly small file fill the memory: they are refused. So is a dangling link: it is not absent.
"""

from __future__ import annotations

import errno
import io
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from bkstore.errors import CorruptionError
from bkstore.files.disk_changes import StrPath
from bkstore.files.os_errors import add_file_name

_DESCRIPTIONS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
_CHUNK_BYTES = 1 << 20
_MAX_FILE_OFFSET = (1 << 63) - 1


def check_regular(path: StrPath) -> os.stat_result:
    """Return the `os.stat` result of a regular file; does not open it. For files that another
    library opens by their path. Raises what `open_regular` raises."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        if os.path.islink(path):
            raise _not_regular_error(path, "a link to nothing") from None
        raise
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _not_regular_error(path, "a link that leads back to itself") from None
        raise
    return _require_regular(path, status)


def _require_regular(path: StrPath, status: os.stat_result) -> os.stat_result:
    if not stat.S_ISREG(status.st_mode):
        raise _not_regular_error(path, _DESCRIPTIONS.get(stat.S_IFMT(status.st_mode), "no file"))
    return status


def _not_regular_error(path: StrPath, description: str) -> CorruptionError:
    return CorruptionError(path, None, f"cannot be read: is {description}, not a regular file")


def open_regular(path: StrPath, flags: int = os.O_RDONLY) -> int:
    """Return a descriptor of a regular file, open for reading; never waits for a writer.

    Links are followed. Raises `CorruptionError` for a dangling link and for what is no regular
    file, without opening it; `OSError` as the system does. `flags` are for lock files (`O_CREAT`).
    """
    try:
        check_regular(path)
    except FileNotFoundError:
        if not flags & os.O_CREAT:
            raise
    # The file may have been replaced since the check: open without blocking, and check again.
    fd = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, 0o644)
    try:
        _require_regular(path, os.fstat(fd))
    except BaseException:
        os.close(fd)
        raise
    return fd


@contextmanager
def open_for_reading(path: StrPath) -> Iterator[BinaryIO]:
    """Yield a regular file, open for reading; raises what `open_regular` raises."""
    with open(open_regular(path), "rb") as file:
        yield file


def read_file(path: StrPath, max_bytes: int, *, text: bool = False) -> bytes:
    """Return the content of a regular file that has at most `max_bytes` bytes.

    Raises `CorruptionError` for a longer one, even if it grows meanwhile, and with `text` for a
    NUL byte (of which a sparse file could fill the memory); also what `open_regular` raises.
    """
    content = io.BytesIO()
    for part in _read_parts(path, max_bytes, text):
        content.write(part)
    return content.getvalue()  # without a copy, unlike parts that are joined


def read_text_file(path: StrPath, max_bytes: int) -> str | bytes:
    """Return the content of a text file: as `str` if all of it is ASCII, since that is never in
    memory twice, else as bytes, for the caller to decode. Raises what `read_file` raises with
    `text`."""
    content = ""
    for part in _read_parts(path, max_bytes, text=True):
        if not part.isascii():
            return read_file(path, max_bytes, text=True)
        content += part.decode("ascii")  # grows in place, as nothing else refers to it
    return content


def _read_parts(path: StrPath, limit: int, text: bool) -> Iterator[bytes]:
    """Yield the parts of a file; raises if it is longer than `limit`, or not text but should be."""
    fd = open_regular(path)
    try:
        with add_file_name(path):
            yield from _read_open_file(fd, path, limit, text)
    finally:
        os.close(fd)


def _read_open_file(fd: int, path: StrPath, limit: int, text: bool) -> Iterator[bytes]:
    """Yield the parts of an open file; raises what `_read_parts` raises. The length is also checked
    while the file is read, as it may grow."""
    if os.fstat(fd).st_size > limit:
        raise _too_long_error(path, limit)
    bytes_read = 0
    while bytes_read <= limit:
        part = os.read(fd, min(limit + 1 - bytes_read, _CHUNK_BYTES))
        if not part:
            return
        if text and (nul_index := part.find(b"\0")) >= 0:
            raise CorruptionError(path, bytes_read + nul_index, "has a NUL byte, so it is not text")
        bytes_read += len(part)
        yield part
    raise _too_long_error(path, limit)


def _too_long_error(path: StrPath, limit: int) -> CorruptionError:
    return CorruptionError(path, limit, f"is longer than the limit of {limit} bytes")


def read_fully(fd: int, size: int, offset: int) -> bytes:
    """Return `size` bytes from `offset` on; fewer only at the end of the file."""
    parts = [os.pread(fd, size, offset)]
    bytes_read = len(parts[0])
    while bytes_read < size and parts[-1]:
        parts.append(os.pread(fd, size - bytes_read, offset + bytes_read))
        bytes_read += len(parts[-1])
    return parts[0] if bytes_read == len(parts[0]) else b"".join(parts)


def next_data_offset(fd: int, offset: int) -> int | None:
    """Return the offset of the first data at or after `offset`, behind a hole; None if none follow.
    Returns `offset` if the file system cannot report holes. Keeps the descriptor's position."""
    return _seek_without_moving(fd, offset, os.SEEK_DATA, unsupported=offset)


def data_end_offset(fd: int, offset: int) -> int:
    """Return where the data at `offset` end: at a hole, or at the end of the file. Returns 2^63 - 1
    if the file system cannot report holes, and `offset` if the file ends before it. Keeps the
    descriptor's position."""
    end = _seek_without_moving(fd, offset, os.SEEK_HOLE, unsupported=_MAX_FILE_OFFSET)
    return offset if end is None else end


def _seek_without_moving(fd: int, offset: int, whence: int, unsupported: int) -> int | None:
    """Return the offset that a seek to data or to a hole reaches, None if there is none, and
    `unsupported` if the file system has no such seeks."""
    saved_position = os.lseek(fd, 0, os.SEEK_CUR)
    try:
        return os.lseek(fd, offset, whence)
    except OSError as error:
        if error.errno == errno.ENXIO:  # no data after the offset
            return None
        if error.errno == errno.EINVAL:  # no such seeks
            return unsupported
        raise
    finally:
        os.lseek(fd, saved_position, os.SEEK_SET)


def list_files(folder: StrPath) -> Iterator[Path]:
    """Yield the paths of everything below a folder that is no folder, in no order; links are not
    followed. Raises `OSError` if a folder cannot be listed, which pathlib would silently skip."""
    for directory, _, names in os.walk(folder, onerror=_raise_error):
        yield from (Path(directory, name) for name in names)


def _raise_error(error: OSError) -> None:
    raise error


def is_folder(entry: os.DirEntry[str]) -> bool:
    """Return whether a directory entry is a folder or a link to one; never raises for a link."""
    return entry.is_dir(follow_symlinks=False) or (entry.is_symlink() and os.path.isdir(entry.path))


def is_regular_file(entry: os.DirEntry[str]) -> bool:
    """Return whether a directory entry is a regular file or a link to one; never raises for a
    link."""
    is_file = entry.is_file(follow_symlinks=False)
    return is_file or (entry.is_symlink() and os.path.isfile(entry.path))
