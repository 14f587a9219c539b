"""Writing a file that a user named: whole under its name, or as it was before.

What is written grows beside the target under a name nobody else has, and takes the target's
place when it is whole; so a command that fails, or is killed, leaves an old file as it was.

- A link is followed, and what it points to is replaced; the link stays. One that points to
  nothing is refused: a file would come to be where nobody named one.
- An old file's mode and owner stay; other names of it (hard links) keep the old content.
- A pipe, a device and what `/dev/stdout` and `/dev/fd` name are written to as they are.
- Where nothing may be made beside an old file, or its owner could not stay, the bytes wait in
  a temporary file and are copied into it at the end.
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

_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_STREAM = os.O_WRONLY | os.O_APPEND | os.O_NOCTTY | os.O_CLOEXEC


class OutputFile(io.RawIOBase):
    """Bytes for a file that a user named; `WriteFailed` names it, whatever is behind it.

    What comes after the end (of a writer that was given up, say) goes nowhere.
    """

    def __init__(self, fd: int, path: str) -> None:
        self._fd = fd
        self._path = path
        self._at = 0
        self._ended = False

    def writable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return how many bytes were written."""
        return self._at

    def write(self, data: Any, /) -> int:
        """Write all of `data`."""
        with memoryview(data) as whole, whole.cast("B") as view:
            done = len(view) if self._ended else 0
            with _told(self._path):
                while done < len(view):
                    with view[done:] as rest:
                        done += os.write(self._fd, rest)
            self._at += done
            return done

    def end(self) -> None:
        """Take no more bytes."""
        self._ended = True


class _Target(NamedTuple):
    """Where a named file really lies, and what is there; `stream` = written to as it is."""

    place: str
    there: os.stat_result | None
    stream: bool


@contextmanager
def output_file(path: StrPath, *, private: bool = False) -> Iterator[OutputFile]:
    """Yield what becomes the content of `path` when the block ends well; durable then.

    A new file has the mode that the process's umask leaves; a `private` one is for its owner
    alone, an old file's mode or not. Raises `InvalidArgument` for a link to nothing,
    `WriteFailed` where the system refuses; a pipe whose reader left is a `BrokenPipeError`.
    """
    name = os.fspath(path)
    target = _target(name)
    with ExitStack() as stack:
        if target.stream:
            with _told(name):
                fd = os.open(name, _STREAM)
            stack.callback(os.close, fd)
            yield stack.enter_context(_ending(fd, name))
            return
        scratch = _beside(target, name, private, stack)
        if scratch is None:
            spool = stack.enter_context(tempfile.TemporaryFile())
            with _ending(spool.fileno(), name) as made:
                yield made
            _copy_into(target, spool, name, private)
            return
        fd, scratch_name = scratch
        with _ending(fd, name) as made:
            yield made
        with _told(name):
            OS_FILES.fsync(fd)
            _take_place(scratch_name, target)


def write_output(path: StrPath, data: bytes, *, private: bool = False) -> None:
    """Let `data` be the content of `path`: as `output_file`."""
    with output_file(path, private=private) as file:
        file.write(data)


def check_output(path: StrPath) -> None:
    """Raise what `output_file` would at its beginning; for commands that write at their end.

    Nothing is made and nothing opened.
    """
    name = os.fspath(path)
    target = _target(name)
    folder = os.path.dirname(target.place)
    if target.there is None:
        with _told(name):
            os.stat(folder)
        _check_writable(folder, name)


def refuse_inputs(target: StrPath, inputs: Iterable[StrPath]) -> None:
    """Raise `InvalidArgument` if `target` is one of the inputs, by any name, or lies in one.

    Links are followed, and folders are told by their inodes, so that a second mount of an input,
    or a name in other letters where the file system knows no case, is refused too. A pipe, a
    device and a descriptor's name are none of the inputs.
    """
    name = os.fspath(target)
    if _is_stream(name):
        return
    place = os.path.realpath(name)
    whole = [place, *map(str, PurePath(place).parents)]
    inodes = list(map(_inode, whole))
    for given in inputs:
        source = os.path.realpath(given)
        inode = _inode(source)
        if place == source or (inode is not None and inode == inodes[0]):
            raise InvalidArgument(f"{name}: is what is read, {os.fspath(given)}")
        if source in whole or (inode is not None and inode in inodes):
            raise InvalidArgument(f"{name} lies in {os.fspath(given)}: nothing is written there")


def _inode(path: str) -> tuple[int, int] | None:
    """Return what tells a file from all others, None for one that is not there."""
    try:
        found = os.stat(path)
    except OSError:  # is told by who opens it
        return None
    return found.st_dev, found.st_ino


def _is_stream(name: str) -> bool:
    """Whether a name is that of a pipe, a device or a descriptor, and of no file or folder."""
    try:
        mode = os.stat(name).st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _target(name: str) -> _Target:
    with _told(name):
        try:
            # Asked by the name that was given: a system that follows no links of others in
            # folders of all (protected_symlinks) says so here.
            there = os.stat(name)
        except FileNotFoundError:
            if os.path.islink(name):
                raise InvalidArgument(f"{name}: is a link to a file that is not there") from None
            return _Target(os.path.realpath(name), None, False)
        if stat.S_ISDIR(there.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(there.st_mode) or _is_descriptor(name):
        return _Target(name, there, True)
    _check_writable(name, name)
    return _Target(os.path.realpath(name), there, False)


def _check_writable(path: str, name: str) -> None:
    if not os.access(path, os.W_OK):
        raise WriteFailed(name, OSError(errno.EACCES, os.strerror(errno.EACCES)))


def _is_descriptor(name: str) -> bool:
    """Whether a name stands for a descriptor of a process: /dev/stdout, /dev/fd/N, /proc/..."""
    for _ in range(40):
        folder = os.path.realpath(os.path.dirname(os.path.abspath(name)))
        if folder in ("/dev", "/dev/fd") or folder.startswith("/proc/"):
            return True
        if not os.path.islink(name):
            return False
        name = os.path.join(folder, os.readlink(name))
    return False


def _beside(target: _Target, name: str, private: bool, stack: ExitStack) -> tuple[int, str] | None:
    """Return a new file beside the target; None where it could not take the target's place."""
    scratch = os.path.join(os.path.dirname(target.place), f".bkstore-{os.urandom(8).hex()}.tmp")
    try:
        fd = os.open(scratch, _NEW, 0o600 if private else 0o666)
    except OSError as error:
        if target.there is not None and isinstance(error, PermissionError):
            return None
        raise WriteFailed(name, error) from error
    stack.callback(os.close, fd)
    stack.callback(_remove, scratch)
    if target.there is not None:
        mine = os.fstat(fd)
        owners = (target.there.st_uid, target.there.st_gid)
        try:
            if owners != (mine.st_uid, mine.st_gid):
                os.fchown(fd, *owners)
            os.fchmod(fd, 0o600 if private else stat.S_IMODE(target.there.st_mode))
        except PermissionError:
            return None
    return fd, scratch


def _take_place(scratch: str, target: _Target) -> None:
    """Give the new file its name, durably; where that fails no new name is left."""
    folder = OS_FILES.open(os.path.dirname(target.place), os.O_RDONLY | os.O_DIRECTORY)
    try:
        OS_FILES.replace(scratch, target.place)
        try:
            OS_FILES.fsync(folder)
        except OSError:
            if target.there is None:
                OS_FILES.unlink(target.place)
            raise
    finally:
        OS_FILES.close(folder)


def _remove(scratch: str) -> None:
    if os.path.lexists(scratch):  # else it has its name
        OS_FILES.unlink(scratch)


def _copy_into(target: _Target, spool: io.BufferedRandom, name: str, private: bool) -> None:
    """Copy what waited into the file that is there."""
    assert target.there is not None
    with _told(name):
        fd = os.open(target.place, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(fd, "wb") as file:
            if not os.path.samestat(os.fstat(fd), target.there):
                raise InvalidArgument(f"{name}: has become another file meanwhile")
            if private:
                os.fchmod(fd, 0o600)
            file.truncate(0)
            spool.seek(0)
            shutil.copyfileobj(spool, file)
            file.flush()
            os.fsync(fd)


@contextmanager
def _ending(fd: int, name: str) -> Iterator[OutputFile]:
    made = OutputFile(fd, name)
    try:
        yield made
    finally:
        made.end()


@contextmanager
def _told(name: str) -> Iterator[None]:
    """Raise `WriteFailed` about the named file instead of the system's error."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise WriteFailed(name, error) from error
