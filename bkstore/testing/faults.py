"""Faults on demand: calls that fail while something is written, damage to files at rest.

`FaultPlan` is a `Files` and goes wherever one is taken; over a `CrashFiles` it gives faults and
power losses together. The functions change files that nobody has open.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, NamedTuple

from bkstore.arguments import whole
from bkstore.errors import InvalidArgument, NoSuchEntry
from bkstore.files.disk_changes import OS_FILES, Files, StrPath
from bkstore.formats.idxfile import HEADER_SIZE, SLOT_SIZE, index_path
from bkstore.ids import LedgerId, check_entry_id
from bkstore.index.api import LedgerLike

if TYPE_CHECKING:
    from rocksdict import Options


class Fault(NamedTuple):
    """What a plan did.

    `what` is "fail_write", "tear_write", "disk_full" or "fail_sync"; `offset` is where the
    refused bytes were to begin, None for a sync.
    """

    what: str
    file: str
    offset: int | None


class FaultPlan(Files):
    """A file layer whose calls fail as planned; everything else goes to `files`.

    Counting begins at the call that plans: ``fail_write(1)`` is the next write. Each plan is
    good for one fault, but for a full disk, which stays full. `done` lists the faults that
    happened, so that a test can tell that there was one. What RocksDB writes goes through no
    layer; its syncs (`database_synced`) are counted among the syncs. Threads: safe.

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
        self.files = files
        self.done: list[Fault] = []
        """The faults that happened, in order."""
        self.writes = 0
        """How many writes there were, failed ones included."""
        self.syncs = 0
        """How many syncs there were, of files, directories and databases."""
        self._lock = RLock()
        self._paths: dict[int, str] = {}
        self._bad_writes: dict[int, tuple[str, int, int]] = {}  # by number: what, kept, errno
        self._bad_syncs: dict[int, int] = {}
        self._room: int | None = None

    # -- planning

    def fail_write(self, n: int = 1, error: int = errno.EIO) -> None:
        """Let the n-th write from now on fail with errno `error`; it writes nothing."""
        self._plan_write(n, "fail_write", 0, error)

    def tear_write(self, n: int, keep_bytes: int, error: int = errno.EIO) -> None:
        """Let the n-th write from now on fail behind its first `keep_bytes` bytes."""
        whole()("keep_bytes", keep_bytes)
        self._plan_write(n, "tear_write", keep_bytes, error)

    def _plan_write(self, n: int, what: str, kept: int, error: int) -> None:
        with self._lock:
            self._bad_writes[self.writes + _nth(n)] = (what, kept, error)

    def fail_sync(self, n: int = 1, error: int = errno.EIO) -> None:
        """Let the n-th sync from now on fail with errno `error`; it syncs nothing."""
        with self._lock:
            self._bad_syncs[self.syncs + _nth(n)] = error

    def disk_full(self, after_bytes: int = 0) -> None:
        """Let files grow by `after_bytes` more, then refuse with ENOSPC until `free`.

        A write that fits in part is done in part. Bytes that a file has already are written
        over at no cost; a gap that a write leaves counts as if it were allocated.
        """
        whole()("after_bytes", after_bytes)
        with self._lock:
            self._room = after_bytes

    def free(self, size: int) -> None:
        """Give the full disk room for `size` more bytes; nothing happens if it is not full."""
        whole()("size", size)
        with self._lock:
            if self._room is not None:
                self._room += size

    # -- calls that may fail

    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, offset: int) -> None:
        """As `Files.pwrite`, unless it was planned to fail."""
        with self._lock, memoryview(data) as whole, whole.cast("B") as view:
            self.writes += 1
            planned = self._bad_writes.pop(self.writes, None)
            kept = len(view) if planned is None else min(planned[1], len(view))
            room = self._fitting(fd, offset, kept)
            if room < kept:
                planned, kept = ("disk_full", room, errno.ENOSPC), room
            if kept or planned is None:
                with view[:kept] as part:
                    self.files.pwrite(fd, part, offset)
            if planned is not None:
                self._fail(planned[0], self._path(fd), offset + kept, planned[2])

    def truncate(self, fd: int, size: int) -> None:
        """As `Files.truncate`; making a file longer needs room."""
        with self._lock:
            length = os.fstat(fd).st_size
            if size > length and self._fitting(fd, length, size - length) < size - length:
                self._fail("disk_full", self._path(fd), length, errno.ENOSPC)
            self.files.truncate(fd, size)

    def _fitting(self, fd: int, offset: int, size: int) -> int:
        """Return how many of `size` bytes fit on the disk, and take their room."""
        if self._room is None or not size:
            return size
        length = os.fstat(fd).st_size
        fits = min(max(length + self._room - offset, 0), size)
        if fits:
            self._room -= max(offset + fits - length, 0)
        return fits

    def fsync(self, fd: int) -> None:
        """As `Files.fsync`, unless it was planned to fail."""
        self._sync(self._path(fd))
        self.files.fsync(fd)

    def sync_dir(self, path: StrPath) -> None:
        """As `Files.sync_dir`, unless it was planned to fail."""
        self._sync(os.fspath(path))
        self.files.sync_dir(path)

    def database_synced(self, path: StrPath) -> None:
        """As `Files.database_synced`; where it fails, the database's own sync is meant."""
        self._sync(os.fspath(path))
        self.files.database_synced(path)

    def _sync(self, path: str) -> None:
        with self._lock:
            self.syncs += 1
            error = self._bad_syncs.pop(self.syncs, None)
            if error is not None:
                self._fail("fail_sync", path, None, error)

    def _path(self, fd: int) -> str:
        return self._paths.get(fd, f"descriptor {fd}")

    def _fail(self, what: str, path: str, offset: int | None, error: int) -> None:
        self.done.append(Fault(what, path, offset))
        raise OSError(error, os.strerror(error), path)

    # -- calls that do not

    def open(self, path: StrPath, flags: int, mode: int = 0o644) -> int:
        """As `Files.open`."""
        with self._lock:
            fd = self.files.open(path, flags, mode)
            self._paths[fd] = os.fspath(path)
            return fd

    def close(self, fd: int) -> None:
        """As `Files.close`."""
        with self._lock:
            self._paths.pop(fd, None)
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


def _nth(n: int) -> int:
    found: int = whole(1)("n", n)  # the next call is number 1
    return found


# -- files at rest


def flip_byte(path: StrPath, offset: int, mask: int = 0xFF) -> int:
    """Change one byte by exclusive or with `mask` (not 0); return what it was.

    A negative offset counts from the end. `InvalidArgument` outside of the file.
    """
    if not 0 < mask <= 0xFF:
        raise InvalidArgument(f"mask {mask} changes no byte")
    with open(path, "r+b") as file:
        size = os.fstat(file.fileno()).st_size
        at = offset + size if offset < 0 else offset
        if not 0 <= at < size:
            raise InvalidArgument(f"{os.fspath(path)}: offset {offset} is outside of {size} bytes")
        file.seek(at)
        old = file.read(1)[0]
        file.seek(at)
        file.write(bytes([old ^ mask]))
    return old


def tear_tail(path: StrPath, size: int) -> int:
    """Cut the last `size` bytes off; return the length that is left.

    `InvalidArgument` where the file has fewer, or for none.
    """
    length = os.path.getsize(path)
    if not 0 < size <= length:
        raise InvalidArgument(f"{os.fspath(path)}: {size} of {length} bytes cannot be cut off")
    os.truncate(path, length - size)
    return length - size


def zero(path: StrPath, first: int, last: int) -> None:
    """Write zeros over the bytes first..last (inclusive); `InvalidArgument` outside of the file."""
    size = os.path.getsize(path)
    if not 0 <= first <= last < size:
        raise InvalidArgument(f"{os.fspath(path)}: {first}..{last} is outside of {size} bytes")
    with open(path, "r+b") as file:
        file.seek(first)
        file.write(bytes(last - first + 1))


def drop_index_row(
    directories: StrPath | Sequence[StrPath], ledger: LedgerLike, entry: int
) -> Path:
    """Remove one entry from a bookie's index, its record stays; return the file or database.

    `directories` are those with the index (each one or its ``current/``), at rest. In an index
    file the slot becomes 0, in a database the key is deleted. `NoSuchEntry` if no index there
    has the entry, `DirectoryInUse` if a database is open.
    """
    name, number = LedgerId.of(ledger), check_entry_id(entry)
    folders = [directories] if isinstance(directories, (str, os.PathLike)) else directories
    for folder in folders:
        top = Path(folder)
        current = top if top.name == "current" else top / "current"
        file = current / index_path(name)
        database = current / ("locations-128" if name.scope else "locations")
        if file.is_file() and _clear_slot(file, number):
            return file
        if database.is_dir() and _delete_row(database, name, number):
            return database
    raise NoSuchEntry(f"no index here has entry {entry} of ledger {name}")


def _clear_slot(file: Path, entry: int) -> bool:
    with file.open("r+b") as slots:
        slots.seek(HEADER_SIZE + SLOT_SIZE * entry)
        there = any(slots.read(SLOT_SIZE))
        if there:
            slots.seek(HEADER_SIZE + SLOT_SIZE * entry)
            slots.write(bytes(SLOT_SIZE))
        return there


def _delete_row(path: Path, ledger: LedgerId, entry: int) -> bool:
    # RocksDB is loaded where it is needed only.
    from bkstore.index.rocks.database import Database
    from bkstore.index.rocks.keys import entry_key
    from bkstore.index.rocks.options import database_options

    database, key = Database(path, database_options("locations")), entry_key(ledger, entry)
    try:
        there = database.get(key) is not None
        if there:
            database.delete(key)
        return there
    finally:
        database.close()
