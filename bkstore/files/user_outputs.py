"""Writing a file that a user named: completely, or not at all.

The bytes go to a temporary file beside the target, which replaces the target when it is complete;
so a command that fails, or is killed, leaves an old file unchanged.

- A link is followed, and its target replaced; the link stays. A dangling link is refused: it
  would create a file at a path that the user did not name.
- An old file keeps its mode and owner; other hard links to it keep the old content.
- Pipes, devices and the descriptors below `/dev/stdout` and `/dev/fd` are written to directly.
- If no file can be created beside an old file, or could not have its owner, the bytes are spooled
  to a temporary file and copied into the old one at the end.
"""

from __future__ import annotations

import errno
import io
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import PurePath
from typing import Any, NamedTuple

from bkstore.errors import InvalidArgument, WriteFailed
from bkstore.files.disk_changes import OS_FILES, StrPath

_NEW_FILE_FLAGS = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_STREAM_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_NOCTTY | os.O_CLOEXEC


class OutputFile(io.RawIOBase):
    """Writes to a descriptor; `WriteFailed` names the path that the user gave. Writes after
    `discard_writes` (by a writer that was abandoned, say) are discarded."""

    def __init__(self, fd: int, path: str) -> None:
        self._fd = fd
        self._path = path
        self._position = 0
        self._discards_writes = False

    def writable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the number of bytes written."""
        return self._position

    def write(self, data: Any, /) -> int:
        """Write all of `data`, or nothing after `discard_writes`; return its size either way."""
        with memoryview(data) as whole, whole.cast("B") as view:
            written = len(view) if self._discards_writes else 0
            with _name_write_errors(self._path):
                while written < len(view):
                    with view[written:] as unwritten:
                        written += os.write(self._fd, unwritten)
            self._position += written
            return written

    def discard_writes(self) -> None:
        """Discard all later writes."""
        self._discards_writes = True


class _Target(NamedTuple):
    """The path to replace, its status if it exists, and whether to write to it directly."""

    path: str
    status: os.stat_result | None
    is_stream: bool


@contextmanager
def open_output(path: StrPath, *, private: bool = False) -> Iterator[OutputFile]:
    """Yield a file that durably becomes the content of `path` when the block ends without error.

    A new file has the mode that the umask leaves, a `private` one is for its owner alone, whatever
    an old file's mode. Raises `InvalidArgument` for a dangling link, `WriteFailed` if the system
    refuses, `BrokenPipeError` for a pipe without readers.
    """
    given_path = os.fspath(path)
    target = _find_target(given_path)
    with ExitStack() as stack:
        if target.is_stream:
            with _name_write_errors(given_path):
                fd = os.open(given_path, _STREAM_FLAGS)
            stack.callback(os.close, fd)
            yield stack.enter_context(_output_over(fd, given_path))
            return
        new_file = _create_replacement(target, given_path, private, stack)
        if new_file is None:  # overwrite the old file itself, but only once all bytes are known
            spool = stack.enter_context(tempfile.TemporaryFile())
            with _output_over(spool.fileno(), given_path) as output:
                yield output
            _overwrite_target(target, spool, given_path, private)
            return
        fd, temporary = new_file
        with _output_over(fd, given_path) as output:
            yield output
        with _name_write_errors(given_path):
            OS_FILES.fsync(fd)
            _replace_target(temporary, target)


def write_output(path: StrPath, data: bytes, *, private: bool = False) -> None:
    """Write `data` to `path` as `open_output` does."""
    with open_output(path, private=private) as file:
        file.write(data)


def check_output(path: StrPath) -> None:
    """Raise what `open_output` would raise at its start; create and open nothing."""
    given_path = os.fspath(path)
    target = _find_target(given_path)
    parent = os.path.dirname(target.path)
    if target.status is None:
        with _name_write_errors(given_path):
            os.stat(parent)
        _check_writable(parent, given_path)


def refuse_inputs(target: StrPath, inputs: Iterable[StrPath]) -> None:
    """Raise `InvalidArgument` if `target` is one of the inputs, by any name, or lies in one.

    Links are followed, and folders compared by inode: a second mount, or another case of the name
    where case is ignored, is refused too. Accepts pipes, devices and descriptors.
    """
    path = os.fspath(target)
    if _is_stream(path):
        return
    real_path = os.path.realpath(path)
    # The target and every directory above it, by path and by inode.
    path_and_parents = [real_path, *map(str, PurePath(real_path).parents)]
    inodes = list(map(_device_and_inode, path_and_parents))
    for source in inputs:
        real_source = os.path.realpath(source)
        inode = _device_and_inode(real_source)
        if real_path == real_source or (inode is not None and inode == inodes[0]):
            raise InvalidArgument(f"{path}: is also an input, {os.fspath(source)}")
        if real_source in path_and_parents or (inode is not None and inode in inodes):
            raise InvalidArgument(f"{path} is inside {os.fspath(source)}, which is only read")


def _device_and_inode(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:  # whoever opens it reports the error
        return None
    return status.st_dev, status.st_ino


def _is_stream(path: str) -> bool:
    """Return whether a path exists and is neither a file nor a folder."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _find_target(path: str) -> _Target:
    """Return the target that a path leads to; raise if it is a folder or may not be written."""
    with _name_write_errors(path):
        try:
            # By the given path: the kernel's protected_symlinks may refuse another user's link.
            status = os.stat(path)
        except FileNotFoundError:
            if os.path.islink(path):
                raise InvalidArgument(f"{path}: is a link to a file that does not exist") from None
            return _Target(os.path.realpath(path), status=None, is_stream=False)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(status.st_mode) or _is_descriptor(path):
        return _Target(path, status, is_stream=True)
    _check_writable(path, path)
    return _Target(os.path.realpath(path), status, is_stream=False)


def _check_writable(path: str, given_path: str) -> None:
    if not os.access(path, os.W_OK):
        raise WriteFailed(given_path, OSError(errno.EACCES, os.strerror(errno.EACCES)))


def _is_descriptor(path: str) -> bool:
    """Return whether a path names a process's descriptor: /dev/stdout, /dev/fd/N, /proc/..."""
    for _ in range(40):  # as many links as Linux follows
        folder = os.path.realpath(os.path.dirname(os.path.abspath(path)))
        if folder in ("/dev", "/dev/fd") or folder.startswith("/proc/"):
            return True
        if not os.path.islink(path):
            return False
        path = os.path.join(folder, os.readlink(path))
    return False


def _create_replacement(
    target: _Target, given_path: str, private: bool, stack: ExitStack
) -> tuple[int, str] | None:
    """Return (descriptor, path) of a new file beside the target; None if an old target's folder
    takes no new file, or the new one cannot have the old one's owner. `stack` removes it."""
    temporary = os.path.join(os.path.dirname(target.path), f".bkstore-{os.urandom(8).hex()}.tmp")
    try:
        fd = os.open(temporary, _NEW_FILE_FLAGS, 0o600 if private else 0o666)
    except OSError as error:
        if target.status is not None and isinstance(error, PermissionError):
            return None
        raise WriteFailed(given_path, error) from error
    stack.callback(os.close, fd)
    stack.callback(_remove_temporary, temporary)
    if target.status is not None:
        new_status = os.fstat(fd)
        old_owner = (target.status.st_uid, target.status.st_gid)
        try:
            if old_owner != (new_status.st_uid, new_status.st_gid):
                os.fchown(fd, *old_owner)
            os.fchmod(fd, 0o600 if private else stat.S_IMODE(target.status.st_mode))
        except PermissionError:
            return None
    return fd, temporary


def _replace_target(temporary: str, target: _Target) -> None:
    """Rename the temporary file to the target, durably; on failure a new target is removed."""
    parent_fd = OS_FILES.open(os.path.dirname(target.path), os.O_RDONLY | os.O_DIRECTORY)
    try:
        OS_FILES.replace(temporary, target.path)
        try:
            OS_FILES.fsync(parent_fd)
        except OSError:
            if target.status is None:
                OS_FILES.unlink(target.path)
            raise
    finally:
        OS_FILES.close(parent_fd)


def _remove_temporary(temporary: str) -> None:
    if os.path.lexists(temporary):  # not renamed to the target
        OS_FILES.unlink(temporary)


def _overwrite_target(target: _Target, spool: io.BufferedRandom, path: str, private: bool) -> None:
    """Copy the spool into the existing target, unless another file has its path by now."""
    assert target.status is not None
    with _name_write_errors(path):
        fd = os.open(target.path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(fd, "wb") as file:
            if not os.path.samestat(os.fstat(fd), target.status):
                raise InvalidArgument(f"{path}: was replaced by another file")
            if private:
                os.fchmod(fd, 0o600)
            file.truncate(0)
            spool.seek(0)
            shutil.copyfileobj(spool, file)
            file.flush()
            os.fsync(fd)


@contextmanager
def _output_over(fd: int, path: str) -> Iterator[OutputFile]:
    """Yield an open file as an output; what is written after the end of the block is discarded."""
    output = OutputFile(fd, path)
    try:
        yield output
    finally:
        output.discard_writes()


@contextmanager
def _name_write_errors(path: str) -> Iterator[None]:
    """Raise `WriteFailed` for the given path instead of `OSError`, except `BrokenPipeError`."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise WriteFailed(path, error) from error
