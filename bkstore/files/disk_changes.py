"""Files: the few calls by which writers change the disk, as one object.

Everything that bkstore writes below a bookie's directories goes through a `Files`, except the
inside of RocksDB databases. That is what makes two things possible without touching a writer:
crash tests over a layer that drops whatever was not synced, and faults on demand (a full disk,
a failing n-th write); both live in `bkstore.testing`. Reading needs no layer.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bkstore.arguments import instance

if TYPE_CHECKING:
    from rocksdict import Options

StrPath = str | os.PathLike[str]


class SyncNotBegun(OSError):
    """What is to be synced cannot be opened (too many open files, say): no sync was tried.

    Unlike after a failed sync nothing may have been dropped, so the same call may come again.
    """


class Files:
    """The operating system's files. Stateless, so safe between threads and across a fork.

    Raises `OSError` as the system does. A path that is made durable needs two calls: `fsync` of
    the file for its bytes, `sync_dir` of its directory for its name.
    """

    def open(self, path: StrPath, flags: int, mode: int = 0o644) -> int:
        """Return a descriptor; a file that is created has `mode`, less the umask."""
        return os.open(path, flags | os.O_CLOEXEC, mode)

    def fresh(self, path: StrPath, mode: int = 0o644) -> int:
        """Return a descriptor of a new, empty file under a name that is the writer's own.

        What a crash left there goes; a link goes itself, and what it points to stays as it is.
        `FileExistsError` where another puts something there at the same moment.
        """
        if os.path.lexists(path):
            self.unlink(path)
        return self.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)

    def close(self, fd: int) -> None:
        """Close a descriptor of `open`; syncs nothing."""
        os.close(fd)

    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, offset: int) -> None:
        """Write all of `data` at `offset`."""
        # Views are let go even if the error that leaves here is kept: a bytearray of which
        # there are views cannot grow.
        with memoryview(data) as whole, whole.cast("B") as view:
            done = 0
            while done < len(view):
                with view[done:] as rest:
                    done += os.pwrite(fd, rest, offset + done)

    def truncate(self, fd: int, size: int) -> None:
        """Set a file's length; a longer one ends in zeros."""
        os.ftruncate(fd, size)

    def fsync(self, fd: int) -> None:
        """Make the file's bytes and length durable."""
        os.fsync(fd)

    def sync_dir(self, path: StrPath) -> None:
        """Make the names in a directory durable; `SyncNotBegun` if it cannot be opened."""
        try:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise _not_begun(error) from error
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def makedirs(self, path: StrPath) -> None:
        """Make a directory and those above it, durably, unless it is there.

        The lowest one that is there may have been made by a call that ended before its sync;
        those above it were not, so its name is synced too.
        """
        missing: list[Path] = []
        place = Path(path)
        while not place.is_dir():
            missing.append(place)
            place = place.parent
        # What lies in a directory that may not be read was not made by us.
        if os.access(place.parent, os.R_OK | os.X_OK):
            self.sync_dir(place.parent)
        for folder in reversed(missing):
            self.mkdir(folder)
            self.sync_dir(folder.parent)

    def mkdir(self, path: StrPath) -> None:
        """Make one directory, unless it is there."""
        try:
            os.mkdir(path)
        except FileExistsError:
            if not os.path.isdir(path):
                raise

    def replace(self, source: StrPath, target: StrPath) -> None:
        """Rename a file, over `target` if that is there; atomic."""
        os.replace(source, target)

    def link(self, source: StrPath, target: StrPath) -> None:
        """Give a file a second name."""
        os.link(source, target)

    def symlink(self, target: StrPath, path: StrPath) -> None:
        """Make a link at `path` to a name, which need not be there."""
        os.symlink(target, path)

    def unlink(self, path: StrPath) -> None:
        """Remove a name; `FileNotFoundError` if it is not there."""
        os.unlink(path)

    def rmdir(self, path: StrPath) -> None:
        """Remove an empty directory."""
        os.rmdir(path)

    def remove_tree(self, path: StrPath) -> None:
        """Remove a directory with what is below it; of a link only the link."""
        if os.path.islink(path):
            self.unlink(path)
        else:
            shutil.rmtree(path)

    def write_file(self, path: StrPath, data: bytes, durable: bool = True) -> None:
        """Write a small file at once: readers see the old content or the new.

        It grows under its name and ``.tmp``, made anew, so it is for folders of the writer's own.
        If not `durable`, a crash may leave the old one, the new one, or an empty file.
        """
        target = Path(path)
        scratch = target.with_name(target.name + ".tmp")
        fd = self.fresh(scratch)
        try:
            self.pwrite(fd, data, 0)
            if durable:
                self.fsync(fd)
        finally:
            self.close(fd)
        self.replace(scratch, target)
        if durable:
            self.sync_dir(target.parent)

    def fsync_paths(self, paths: Sequence[StrPath]) -> None:
        """Make files and directories durable that are not open here; gone ones are left out."""
        for path in paths:
            if os.path.isdir(path):
                self.sync_dir(path)
            elif os.path.exists(path):
                self.sync_file(path)

    def sync_file(self, path: StrPath) -> None:
        """Make a file durable that is not open here; `SyncNotBegun` if it cannot be opened."""
        try:
            fd = self.open(path, os.O_RDWR)
        except OSError as error:
            raise _not_begun(error) from error
        try:
            self.fsync(fd)
        finally:
            self.close(fd)

    def database_opened(self, path: StrPath, options: Options | None = None) -> None:
        """Be told that RocksDB is about to write in `path`; for layers that simulate.

        `options` are those it is opened with: a layer may have it count its own syncs.
        """

    def database_synced(self, path: StrPath) -> None:
        """Be told that RocksDB has made all it was given durable; for layers that simulate."""


def _not_begun(error: OSError) -> SyncNotBegun:
    return SyncNotBegun(error.errno, error.strerror, error.filename)


OS_FILES = Files()
"""The operating system's files, the default everywhere."""

check_files = instance(Files)
"""``check_files("files", files)``: for whatever takes a layer of files."""
