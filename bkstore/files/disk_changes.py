"""Files: the calls by which writers change the disk, as one object.

Everything that bkstore writes below a bookie's directories goes through a `Files`, except the
inside of RocksDB databases. Tests replace it by a layer that drops whatever was not synced, or one
that injects faults (a full disk, a failing n-th write); both are in `bkstore.testing`.
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
    """The file to be synced cannot be opened (too many open files, say): no sync was tried. Unlike
    after a failed sync no data can have been lost, so the same call may be repeated."""


class Files:
    """The operating system's files. Stateless, so safe between threads and across a fork.

    Raises `OSError` as the system does. To make a new file durable takes two calls: `fsync` of
    the file for its bytes, `sync_dir` of its directory for its name.
    """

    def open(self, path: StrPath, flags: int, mode: int = 0o644) -> int:
        """Return a descriptor; a file that is created gets `mode`, less the umask."""
        return os.open(path, flags | os.O_CLOEXEC, mode)

    def create_new(self, path: StrPath, mode: int = 0o644) -> int:
        """Return a descriptor of a new, empty file at a path that only this writer uses.

        Removes a file, or a link, that a crash left there. Raises `FileExistsError` if another
        process creates the path at the same moment.
        """
        if os.path.lexists(path):
            self.unlink(path)
        return self.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)

    def close(self, fd: int) -> None:
        """Close a descriptor; does not sync."""
        os.close(fd)

    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, offset: int) -> None:
        """Write all of `data` at `offset`."""
        # Release the views even if the error's frames are kept: a viewed bytearray cannot grow.
        with memoryview(data) as whole, whole.cast("B") as view:
            written = 0
            while written < len(view):
                with view[written:] as unwritten:
                    written += os.pwrite(fd, unwritten, offset + written)

    def truncate(self, fd: int, size: int) -> None:
        """Set a file's length; an extension reads as zeros."""
        os.ftruncate(fd, size)

    def fsync(self, fd: int) -> None:
        """Make the file's bytes and length durable."""
        os.fsync(fd)

    def sync_dir(self, path: StrPath) -> None:
        """Make the names in a directory durable; raises `SyncNotBegun` if it cannot be opened."""
        try:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise _sync_not_begun(error) from error
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def makedirs(self, path: StrPath) -> None:
        """Create a directory and its missing parents, durably, unless it exists. Also syncs the
        parent of the lowest existing directory: an earlier call may have created that directory and
        crashed before syncing its name."""
        missing: list[Path] = []
        directory = Path(path)
        while not directory.is_dir():
            missing.append(directory)
            directory = directory.parent
        # A parent without permission to read cannot be synced, nor was it created by bkstore.
        if os.access(directory.parent, os.R_OK | os.X_OK):
            self.sync_dir(directory.parent)
        for new_directory in reversed(missing):
            self.mkdir(new_directory)
            self.sync_dir(new_directory.parent)

    def mkdir(self, path: StrPath) -> None:
        """Create one directory, unless it exists."""
        try:
            os.mkdir(path)
        except FileExistsError:
            if not os.path.isdir(path):
                raise

    def replace(self, source: StrPath, target: StrPath) -> None:
        """Rename a file atomically, replacing `target` if it exists."""
        os.replace(source, target)

    def link(self, source: StrPath, target: StrPath) -> None:
        """Give a file a second name."""
        os.link(source, target)

    def symlink(self, target: StrPath, path: StrPath) -> None:
        """Create a symbolic link at `path` to `target`, which need not exist."""
        os.symlink(target, path)

    def unlink(self, path: StrPath) -> None:
        """Remove a name; raises `FileNotFoundError` if it does not exist."""
        os.unlink(path)

    def rmdir(self, path: StrPath) -> None:
        """Remove an empty directory."""
        os.rmdir(path)

    def remove_tree(self, path: StrPath) -> None:
        """Remove a directory and all below it; of a link only the link."""
        if os.path.islink(path):
            self.unlink(path)
        else:
            shutil.rmtree(path)

    def write_file(
        self, path: StrPath, data: bytes, durable: bool = True, mode: int = 0o644
    ) -> None:
        """Write a small file atomically: readers see the old content or the new. Its temporary file
        has `mode` from the start, so that others cannot read a secret meanwhile.

        Replaces any file of that name plus ``.tmp``, so the directory must be the writer's own.
        If not `durable`, a crash may leave the old content, the new one, or an empty file.
        """
        target = Path(path)
        temporary = target.with_name(target.name + ".tmp")
        fd = self.create_new(temporary, mode)
        try:
            self.pwrite(fd, data, 0)
            if durable:
                self.fsync(fd)
        finally:
            self.close(fd)
        self.replace(temporary, target)
        if durable:
            self.sync_dir(target.parent)

    def fsync_paths(self, paths: Sequence[StrPath]) -> None:
        """Sync files and directories by path; skips paths that do not exist."""
        for path in paths:
            if os.path.isdir(path):
                self.sync_dir(path)
            elif os.path.exists(path):
                self.sync_file(path)

    def sync_file(self, path: StrPath) -> None:
        """Sync a file by path; raises `SyncNotBegun` if it cannot be opened."""
        try:
            fd = self.open(path, os.O_RDWR)
        except OSError as error:
            raise _sync_not_begun(error) from error
        try:
            self.fsync(fd)
        finally:
            self.close(fd)

    def database_opened(self, path: StrPath, options: Options | None = None) -> None:
        """Do nothing; a simulating layer learns here that RocksDB is about to write in `path`.
        `options` are those it is opened with: a layer may make RocksDB report its syncs in them."""

    def database_synced(self, path: StrPath) -> None:
        """Do nothing; a simulating layer learns here that RocksDB has synced all its writes."""


class UnsyncedFiles(Files):
    """Files that are never synced: for output that nobody reads after a crash."""

    def fsync(self, fd: int) -> None:
        """Do nothing."""

    def sync_dir(self, path: StrPath) -> None:
        """Do nothing."""


def _sync_not_begun(error: OSError) -> SyncNotBegun:
    return SyncNotBegun(error.errno, error.strerror, error.filename)


OS_FILES = Files()
"""The default everywhere."""

check_files = instance(Files)
"""Checks the argument of functions that take a `Files`: ``check_files("files", files)``."""
