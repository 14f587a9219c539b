"""Faults on demand: planned failures of writes and syncs, and damage to files at rest.

`FaultPlan` is a `Files` layer, usable wherever one is accepted; over a `CrashFiles` it combines
faults with power losses. The functions damage files that must not be open.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, NamedTuple

from bkstore.arguments import integer
from bkstore.errors import InvalidArgument, NoSuchEntry
from bkstore.files.disk_changes import OS_FILES, Files, StrPath
from bkstore.formats.idxfile import HEADER_SIZE, SLOT_SIZE, index_path
from bkstore.ids import LedgerId, check_entry_id
from bkstore.index.api import LedgerLike

if TYPE_CHECKING:
    from rocksdict import Options


class Fault(NamedTuple):
    """A fault that happened. `what` is "fail_write", "tear_write", "disk_full" or "fail_sync";
    `offset` is that of the first byte that was not written, None for a sync."""

    what: str
    file: str
    offset: int | None


class FaultPlan(Files):
    """A file layer whose calls fail as planned; everything else goes to `files`.

    Counting starts at the planning call: ``fail_write(1)`` is the next write. Each plan causes
    one fault, except a full disk, which stays full. `done` lists the faults that happened, so a
    test can check that there was one. RocksDB's own writes bypass the layer; its syncs
    (`database_synced`) count as syncs. Threads: safe.

    >>> import tempfile
    >>> from bkstore.errors import WriteFailed
    >>> from bkstore.index.hierarchical import HierarchicalIndex
    >>> plan = FaultPlan()
    >>> with (
    ...     tempfile.TemporaryDirectory() as top,
    ...     HierarchicalIndex(top, writable=True, files=plan) as index,
    ... ):
    ...     index.put(7, 0, 1028)
    ...     plan.fail_write(1)
    ...     try:
    ...         index.put(7, 1, 1100)
    ...     except WriteFailed as error:
    ...         print(error.errno == errno.EIO, plan.done[0].what, plan.done[0].offset)
    ...     index.entries(7).tolist()
    True fail_write 1024
    [0]
    """

    def __init__(self, files: Files = OS_FILES) -> None:
        """Make a layer over `files` with nothing planned."""
        self.files = files
        self.done: list[Fault] = []
        self.writes = 0  # failed ones included
        self.syncs = 0  # of files, directories and databases, failed ones included
        self._lock = RLock()
        self._path_of_fd: dict[int, str] = {}
        self._planned_writes: dict[int, tuple[str, int, int]] = {}  # kind, kept bytes, errno
        self._planned_sync_errors: dict[int, int] = {}  # errno by number, as `syncs` counts
        self._free_bytes: int | None = None  # by which files may grow; None: no limit

    def fail_write(self, n: int = 1, error: int = errno.EIO) -> None:
        """Make the n-th write from now on fail with errno `error`, writing nothing."""
        self._plan_write(n, "fail_write", 0, error)

    def tear_write(self, n: int, keep_bytes: int, error: int = errno.EIO) -> None:
        """Make the n-th write from now on fail after its first `keep_bytes` bytes."""
        integer()("keep_bytes", keep_bytes)
        self._plan_write(n, "tear_write", keep_bytes, error)

    def _plan_write(self, n: int, what: str, keep_bytes: int, error: int) -> None:
        integer(1)("n", n)
        with self._lock:
            self._planned_writes[self.writes + n] = (what, keep_bytes, error)

    def fail_sync(self, n: int = 1, error: int = errno.EIO) -> None:
        """Make the n-th sync from now on fail with errno `error`, syncing nothing."""
        integer(1)("n", n)
        with self._lock:
            self._planned_sync_errors[self.syncs + n] = error

    def disk_full(self, after_bytes: int = 0) -> None:
        """Let files grow by `after_bytes` more, then fail with ENOSPC until `free` is called.

        A write that fits in part is done in part. Overwriting a file's bytes needs no space; a
        hole that a write leaves counts as allocated.
        """
        integer()("after_bytes", after_bytes)
        with self._lock:
            self._free_bytes = after_bytes

    def free(self, size: int) -> None:
        """Free `size` bytes of the full disk; does nothing if no full disk is planned."""
        integer()("size", size)
        with self._lock:
            if self._free_bytes is not None:
                self._free_bytes += size

    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, offset: int) -> None:
        """Write, as `Files.pwrite` does, unless this write is planned to fail or the disk is full;
        then write only a part of the bytes, and raise."""
        with self._lock, memoryview(data) as buffer, buffer.cast("B") as view:
            self.writes += 1
            # What is planned: the kind of failure, the bytes written in spite of it, the errno.
            planned = self._planned_writes.pop(self.writes, None)
            failure, keep_bytes, error = planned or (None, len(view), 0)
            size = min(keep_bytes, len(view))
            fitting_size = self._take_free_bytes(fd, offset, size)
            if fitting_size < size:
                failure, size, error = "disk_full", fitting_size, errno.ENOSPC
            if size or failure is None:  # an empty write is passed on unless it is to fail
                with view[:size] as head:
                    self.files.pwrite(fd, head, offset)
            if failure is not None:
                self._raise_fault(failure, self._path_of(fd), offset + size, error)

    def truncate(self, fd: int, size: int) -> None:
        """Set a file's length, as `Files.truncate` does; extending it needs free bytes."""
        with self._lock:
            length = os.fstat(fd).st_size
            added = size - length
            if added > 0 and self._take_free_bytes(fd, offset=length, size=added) < added:
                self._raise_fault("disk_full", self._path_of(fd), length, errno.ENOSPC)
            self.files.truncate(fd, size)

    def _take_free_bytes(self, fd: int, offset: int, size: int) -> int:
        """Return how many of `size` bytes fit on the disk; count those beyond the end as used."""
        if self._free_bytes is None or not size:
            return size
        length = os.fstat(fd).st_size
        fitting_size = min(max(length + self._free_bytes - offset, 0), size)
        if fitting_size:
            self._free_bytes -= max(offset + fitting_size - length, 0)
        return fitting_size

    def fsync(self, fd: int) -> None:
        """As `Files.fsync`, unless planned to fail."""
        self._count_sync(self._path_of(fd))
        self.files.fsync(fd)

    def sync_dir(self, path: StrPath) -> None:
        """As `Files.sync_dir`, unless planned to fail."""
        self._count_sync(os.fspath(path))
        self.files.sync_dir(path)

    def database_synced(self, path: StrPath) -> None:
        """As `Files.database_synced`; a planned failure stands for one of RocksDB's sync."""
        self._count_sync(os.fspath(path))
        self.files.database_synced(path)

    def _count_sync(self, path: str) -> None:
        with self._lock:
            self.syncs += 1
            error = self._planned_sync_errors.pop(self.syncs, None)
            if error is not None:
                self._raise_fault("fail_sync", path, None, error)

    def _path_of(self, fd: int) -> str:
        return self._path_of_fd.get(fd, f"descriptor {fd}")

    def _raise_fault(self, what: str, path: str, offset: int | None, error: int) -> None:
        self.done.append(Fault(what, path, offset))
        raise OSError(error, os.strerror(error), path)

    def open(self, path: StrPath, flags: int, mode: int = 0o644) -> int:
        """Inherited."""
        with self._lock:
            fd = self.files.open(path, flags, mode)
            self._path_of_fd[fd] = os.fspath(path)
            return fd

    def close(self, fd: int) -> None:
        """Inherited."""
        with self._lock:
            self._path_of_fd.pop(fd, None)
            self.files.close(fd)

    def mkdir(self, path: StrPath) -> None:
        """Inherited."""
        self.files.mkdir(path)

    def replace(self, source: StrPath, target: StrPath) -> None:
        """Inherited."""
        self.files.replace(source, target)

    def link(self, source: StrPath, target: StrPath) -> None:
        """Inherited."""
        self.files.link(source, target)

    def symlink(self, target: StrPath, path: StrPath) -> None:
        """Inherited."""
        self.files.symlink(target, path)

    def unlink(self, path: StrPath) -> None:
        """Inherited."""
        self.files.unlink(path)

    def database_opened(self, path: StrPath, options: Options | None = None) -> None:
        """Inherited."""
        self.files.database_opened(path, options)


def flip_byte(path: StrPath, offset: int, mask: int = 0xFF) -> int:
    """XOR one byte with `mask` (not 0); return its old value. A negative offset counts from the
    end. Raises `InvalidArgument` for one outside of the file."""
    if not 0 < mask <= 0xFF:
        raise InvalidArgument(f"mask {mask} changes no byte")
    with open(path, "r+b") as file:
        size = os.fstat(file.fileno()).st_size
        position = offset + size if offset < 0 else offset
        if not 0 <= position < size:
            raise InvalidArgument(f"{os.fspath(path)}: offset {offset} is outside of {size} bytes")
        file.seek(position)
        old = file.read(1)[0]
        file.seek(position)
        file.write(bytes([old ^ mask]))
    return old


def tear_tail(path: StrPath, size: int) -> int:
    """Truncate the file by `size` bytes; return its new length. Raises `InvalidArgument` if `size`
    is 0 or more than the file has."""
    length = os.path.getsize(path)
    if not 0 < size <= length:
        raise InvalidArgument(f"{os.fspath(path)}: {size} of {length} bytes cannot be cut off")
    os.truncate(path, length - size)
    return length - size


def zero(path: StrPath, first: int, last: int) -> None:
    """Zero the bytes first..last (inclusive). Raises `InvalidArgument` outside of the file."""
    size = os.path.getsize(path)
    if not 0 <= first <= last < size:
        raise InvalidArgument(f"{os.fspath(path)}: {first}..{last} is outside of {size} bytes")
    with open(path, "r+b") as file:
        file.seek(first)
        file.write(bytes(last - first + 1))


def drop_index_row(
    directories: StrPath | Sequence[StrPath], ledger: LedgerLike, entry: int
) -> Path:
    """Remove one entry from a bookie's index, not its record; return the index file or database.

    `directories` are the index directories (or their ``current/``), at rest. In an index file the
    slot becomes 0, in a database the key is deleted. Raises `NoSuchEntry` if no index has the
    entry, `DirectoryInUse` if a database is open.
    """
    ledger_id, entry_id = LedgerId.of(ledger), check_entry_id(entry)
    folders = [directories] if isinstance(directories, (str, os.PathLike)) else directories
    for folder in folders:
        path = Path(folder)
        current = path if path.name == "current" else path / "current"
        file = current / index_path(ledger_id)
        database = current / ("locations-128" if ledger_id.scope else "locations")
        if file.is_file() and _clear_slot(file, entry_id):
            return file
        if database.is_dir() and _delete_row(database, ledger_id, entry_id):
            return database
    raise NoSuchEntry(f"no index here has entry {entry} of ledger {ledger_id}")


def _clear_slot(file: Path, entry: int) -> bool:
    """Zero an entry's slot in an index file; return whether it had a location."""
    with file.open("r+b") as slots:
        slots.seek(HEADER_SIZE + SLOT_SIZE * entry)
        was_set = any(slots.read(SLOT_SIZE))
        if was_set:
            slots.seek(-SLOT_SIZE, os.SEEK_CUR)
            slots.write(bytes(SLOT_SIZE))
        return was_set


def _delete_row(path: Path, ledger: LedgerId, entry: int) -> bool:
    """Delete an entry's key from a database of locations; return whether it existed."""
    # Imported here, so that RocksDB is loaded only when needed.
    from bkstore.index.rocks.database import Database
    from bkstore.index.rocks.keys import entry_key
    from bkstore.index.rocks.options import database_options

    database, key = Database(path, database_options("locations")), entry_key(ledger, entry)
    try:
        exists = database.get(key) is not None
        if exists:
            database.delete(key)
        return exists
    finally:
        database.close()
