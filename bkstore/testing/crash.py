"""CrashFiles: compute what a power loss leaves of everything written through a `Files`.

It is a file layer over real directories that remembers what was not synced, and builds the tree
that a power loss would leave. It does not model a process kill, which loses nothing that reached
the operating system (`tests/crash/test_killed_databases.py` tests those).

The model is the least that POSIX promises, and what file systems and disks do beyond that:

- `fsync` makes a file's bytes durable, `sync_dir` the names in a directory; neither implies the
  other. A directory whose name is not durable is lost with everything below it.
- Unsynced bytes survive or not by 512-byte sectors, each on its own. A sector holds what it held
  after one of the writes to it, so a later write to a sector never survives without the earlier
  one. A file's length may survive without its bytes, which then read as zeros. A truncation that
  does not survive takes all later changes of its file with it.
- A name change (create, mkdir, rename, link, unlink) survives whole or not at all, and only with
  all earlier ones of the same names and of the same file. A rename is one change: the file has
  its old name or its new one.
- Files that are not written through the layer (lock files, for example) count as durable.

RocksDB bypasses the layer; only its write-ahead logs are modeled. A log is truncated to its
length at the last `database_synced` for which RocksDB's statistics show a sync, or anywhere after
that, and a later log survives only if all earlier ones are whole. Everything else in a database's
directory is copied as it is: RocksDB syncs table files before its manifest names them, the
manifest at each change, and the directory (seen by tracing RocksDB 9.8.4, the version inside
rocksdict 0.3.29). So rows that it moved into a table by itself are durable, although no caller
synced them. Sectors of a log's tail do not survive one by one; bugs of RocksDB are not modeled.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import sys
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING

from bkstore import forks
from bkstore.arguments import integer
from bkstore.errors import InvalidArgument
from bkstore.files.disk_changes import Files, StrPath
from bkstore.index.rocks.files.running_copies import copy_running_database
from bkstore.testing.crash_image import (
    CrashImage,
    FileKey,
    UnsyncedBytes,
    UnsyncedState,
    key_of,
    log_lengths,
    name_key_of,
    stat_key,
)

if TYPE_CHECKING:
    from rocksdict import Options

_WAL_SYNCS = re.compile(r"^rocksdb\.wal\.synced COUNT : ([0-9]+)", re.MULTILINE)
_LAYER_MODULES = frozenset({"bkstore.files.disk_changes", "bkstore.testing.faults", __name__})


class PowerLoss(BaseException):  # so that no `except Exception` handles it
    """The power is lost; nothing reaches the disk any more."""


class CrashFiles(Files):
    """A file layer that knows what a power loss would leave. Syncs are recorded, not done.

    `calls` counts the calls that change something, syncs included. From the call set by
    `stop_after` on, each raises `PowerLoss`; `close` still works, so writers can be closed, which
    raises `PowerLoss` again. `crash` builds what is left of one directory tree in another
    directory, any number of times, also in the middle of a run. Start with directories at rest, and
    use a new `CrashFiles` after each crash: it takes everything it finds for durable.

    RocksDB flushes when it is closed: call `crash` before that, or after `PowerLoss`, which first
    copies each database to a scratch directory.

    `sync_sites` are the callers of syncs, as "module:function:call" (the call is "fsync",
    "sync_dir", "database_synced", or "write_file.fsync" and the like for syncs inside a wrapper of
    `Files`). `ignore_site` disables those of one: a crash test that still passes does not test it.

    Threads: safe. Memory: the unsynced bytes, twice where they replace durable ones; an open
    descriptor for each file that lost its last name in a directory not synced since.

    >>> import tempfile
    >>> from bkstore.index.hierarchical import HierarchicalIndex
    >>> with tempfile.TemporaryDirectory() as top:
    ...     files = CrashFiles()
    ...     index = HierarchicalIndex(f"{top}/bookie", writable=True, files=files)
    ...     index.put(7, 0, 1028)
    ...     index.flush()
    ...     index.put(7, 1, 1100)  # not flushed
    ...     files.stop_after(1)
    ...     try:
    ...         index.close()
    ...     except PowerLoss:
    ...         left = files.crash(f"{top}/bookie", f"{top}/left")
    ...     some = files.crash(f"{top}/bookie", f"{top}/some", rng=random.Random(1))
    ...     with HierarchicalIndex(left) as reopened:
    ...         reopened.entries(7).tolist(), sorted(files.sync_sites)[-1]
    ([0], 'bkstore.index.hierarchical.unsynced_changes:UnsyncedChanges.flush:sync_file.fsync')
    """

    def __init__(self) -> None:
        """Begin with no calls, no syncs, and no power loss set."""
        self.calls = 0  # that change something, including the first that raised `PowerLoss`
        self.sync_sites: set[str] = set()  # callers of syncs, ignored ones included
        self._ignored_sites: set[str] = set()
        self._stop_at_call: int | None = None
        self._lock = RLock()
        self._state = UnsyncedState()
        self._wal_syncs: dict[FileKey, tuple[Options, int]] = {}
        """By writable database: options with statistics, and the log syncs counted so far."""
        self._copies: list[str] = []  # directories with databases as they were at the power loss
        self._cleanup = weakref.finalize(self, _clean_up, self._state.nameless_fds, self._copies)
        forks.register(self)

    def _forked(self) -> None:
        self._cleanup.detach()  # the scratch directories are the parent's

    # -- when the power is lost, and which syncs count

    def stop_after(self, calls: int) -> None:
        """Make the `calls`-th changing call from now on (1: the next), and all later, fail."""
        integer(1)("calls", calls)
        with self._lock:
            self._stop_at_call = self.calls + calls

    @property
    def stopped(self) -> bool:
        """Whether the power is lost."""
        return self._stop_at_call is not None and self.calls >= self._stop_at_call

    def ignore_site(self, site: str) -> None:
        """Disable the syncs of one of `sync_sites` from now on."""
        self._ignored_sites.add(site)

    def _count_call_or_lose_power(self) -> None:
        """Count a changing call or raise `PowerLoss`; first copy the databases as they are then."""
        if self._stop_at_call is None or self.calls + 1 < self._stop_at_call:
            self.calls += 1
            return
        if not self.stopped:
            self.calls += 1
            for key, (path, synced_lengths) in self._state.databases.items():
                self._copies.append(tempfile.mkdtemp(prefix="bkstore-crash-"))
                copy_running_database(path, self._copies[-1])
                self._state.databases[key] = (self._copies[-1], synced_lengths)
        raise PowerLoss

    def _record_sync_site(self, call: str) -> str:
        """Record who calls a sync; return it."""
        site = _calling_site(call)
        self.sync_sites.add(site)
        return site

    # -- bytes

    def open(self, path: StrPath, flags: int, mode: int = 0o644) -> int:
        """Open a file, as `Files.open`, but also for reading if it is to be written: the bytes that
        a write replaces are saved. A new file's name is recorded as not yet durable."""
        if flags & os.O_ACCMODE == os.O_WRONLY:
            flags = flags & ~os.O_ACCMODE | os.O_RDWR
        with self._lock:
            exists = key_of(path) is not None
            if exists and flags & os.O_TRUNC and not flags & os.O_EXCL:
                # Truncate by a call of its own, which saves the bytes that it removes.
                fd = super().open(path, flags & ~os.O_TRUNC, mode)
                try:
                    self.truncate(fd, 0)
                except BaseException:
                    os.close(fd)
                    raise
                return fd
            if exists or not flags & os.O_CREAT:
                return super().open(path, flags, mode)
            self._count_call_or_lose_power()
            fd = super().open(path, flags, mode)
            self._record_creation(path)
            return fd

    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, offset: int) -> None:
        """As `Files.pwrite`; saves the bytes that it replaces."""
        content = bytes(data)
        with self._lock:
            self._count_call_or_lose_power()
            self._unsynced_bytes_of(fd).write(fd, offset, content)  # before it is overwritten
            super().pwrite(fd, content, offset)

    def truncate(self, fd: int, size: int) -> None:
        """As `Files.truncate`; saves the bytes that it removes."""
        with self._lock:
            self._count_call_or_lose_power()
            self._unsynced_bytes_of(fd).truncate(fd, size)
            super().truncate(fd, size)

    def fsync(self, fd: int) -> None:
        """Record that the file's bytes and length are durable."""
        with self._lock:
            self._count_call_or_lose_power()
            if self._record_sync_site("fsync") not in self._ignored_sites:
                self._state.bytes_of_file.pop(stat_key(os.fstat(fd)), None)

    def _unsynced_bytes_of(self, fd: int) -> UnsyncedBytes:
        """Return the record of a file's unsynced changes, a new one for its first change."""
        info = os.fstat(fd)
        key = stat_key(info)
        unsynced = self._state.bytes_of_file.get(key)
        if unsynced is None:
            unsynced = UnsyncedBytes(info.st_size)
            if info.st_nlink or key in self._state.nameless_fds:  # else no crash restores it
                self._state.bytes_of_file[key] = unsynced
        return unsynced

    # -- names

    def mkdir(self, path: StrPath) -> None:
        """Create a directory, as `Files.mkdir`, and record its name as not yet durable."""
        with self._lock:
            if key_of(path) is not None:
                super().mkdir(path)  # changes nothing, or raises
                return
            self._count_call_or_lose_power()
            super().mkdir(path)
            self._record_creation(path)

    def replace(self, source: StrPath, target: StrPath) -> None:
        """Rename a file, as `Files.replace`, and record the rename as one change of both names: a
        power loss keeps or loses them together."""
        with self._lock:
            self._count_call_or_lose_power()
            moved_file, replaced_file = key_of(source), key_of(target)
            with self._keep_open_if_unlinked(target):
                super().replace(source, target)
            self._state.move_databases(os.path.abspath(source), os.path.abspath(target))
            if moved_file != replaced_file:  # if both name one file, rename(2) changes nothing
                source_name, target_name = name_key_of(source), name_key_of(target)
                new_files = {target_name: moved_file, source_name: None}
                old_files = {target_name: replaced_file, source_name: moved_file}
                self._state.names.add(new_files, old_files)

    def link(self, source: StrPath, target: StrPath) -> None:
        """Give a file a second name, as `Files.link`, and record it as not yet durable."""
        with self._lock:
            self._count_call_or_lose_power()
            super().link(source, target)
            self._state.names.add({name_key_of(target): key_of(source)}, old_files={})

    def unlink(self, path: StrPath) -> None:
        """Remove a file's name, as `Files.unlink`, and record the removal as not yet durable."""
        with self._lock:
            self._count_call_or_lose_power()
            if os.path.islink(path):  # no writer makes one: its removal counts as durable
                super().unlink(path)
                return
            key = key_of(path)
            with self._keep_open_if_unlinked(path):
                super().unlink(path)
            self._state.names.add({name_key_of(path): None}, {name_key_of(path): key})

    def sync_dir(self, path: StrPath) -> None:
        """Record that the names in a directory are durable."""
        with self._lock:
            self._count_call_or_lose_power()
            directory = stat_key(os.stat(path))
            if self._record_sync_site("sync_dir") not in self._ignored_sites:
                self._state.names.make_durable(directory)
                self._release_held_files()

    def _record_creation(self, path: StrPath) -> None:
        key = key_of(path)
        if key is not None:  # forget an earlier file with the same inode number
            self._state.bytes_of_file.pop(key, None)
        self._state.names.add({name_key_of(path): key}, old_files={})

    @contextmanager
    def _keep_open_if_unlinked(self, path: StrPath) -> Iterator[None]:
        """Keep a descriptor of a file whose last name the body removes: a crash may restore it."""
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            yield
            return
        key = stat_key(os.fstat(fd))
        self._state.nameless_fds[key] = fd
        try:
            yield
        finally:
            if os.fstat(fd).st_nlink:  # it still has a name
                os.close(self._state.nameless_fds.pop(key))

    def _release_held_files(self) -> None:
        """Close the nameless files that a crash can no longer restore."""
        if self._state.nameless_fds:
            for key in set(self._state.nameless_fds) - self._state.names.referenced_files():
                os.close(self._state.nameless_fds.pop(key))
                self._state.bytes_of_file.pop(key, None)

    # -- databases

    def database_opened(self, path: StrPath, options: Options | None = None) -> None:
        """Record a database's path; what its logs hold before its first opening is durable."""
        with self._lock:
            if self.stopped:
                raise PowerLoss
            key = stat_key(os.stat(path))
            if options is not None:
                options.enable_statistics()
                self._wal_syncs[key] = (options, 0)
            # A database that is opened again keeps the lengths that were synced before.
            _, synced_lengths = self._state.databases.get(key, ("", log_lengths(path)))
            self._state.databases[key] = (os.path.abspath(path), synced_lengths)

    def database_synced(self, path: StrPath) -> None:
        """Record that the write-ahead logs are durable at their present lengths. Does nothing if
        RocksDB's statistics count no new sync of them."""
        with self._lock:
            self._count_call_or_lose_power()
            key = stat_key(os.stat(path))
            if not self._detect_wal_sync(key):
                return
            if self._record_sync_site("database_synced") not in self._ignored_sites:
                self._state.databases[key] = (os.path.abspath(path), log_lengths(path))

    def _detect_wal_sync(self, key: FileKey) -> bool:
        """Return whether RocksDB has synced a write-ahead log since the last call."""
        if key not in self._wal_syncs:  # opened without options, so without statistics
            return True
        options, previous_syncs = self._wal_syncs[key]
        match = _WAL_SYNCS.search(options.get_statistics() or "")
        syncs = 0 if match is None else int(match[1])
        self._wal_syncs[key] = (options, syncs)
        return syncs > previous_syncs

    # -- the power loss

    def crash(
        self, source_root: StrPath, target_root: StrPath, rng: random.Random | None = None
    ) -> Path:
        """Build what a power loss now would leave of `source_root`; return `target_root`.

        Without `rng` only what was synced survives: unsynced bytes and names are lost, unsynced
        removals undone. `rng` picks unsynced changes that survive, too. The source is only read,
        and its own name counts as durable. Raises `InvalidArgument` unless `target_root` is new
        or empty, and outside of the source. Cost: a copy.
        """
        target = Path(target_root)
        if target.resolve().is_relative_to(Path(source_root).resolve()):
            raise InvalidArgument(f"{target} is inside of {source_root}")
        target.mkdir(parents=True, exist_ok=True)
        if any(target.iterdir()):
            raise InvalidArgument(f"{target} is not empty")
        with self._lock:
            source = os.fspath(source_root)
            CrashImage(self._state, source, rng).build(source, target)
        return target


def _calling_site(call: str) -> str:
    """Return the first caller outside of file layers as "module:function:call"."""
    frame, calls = sys._getframe(1), [call]
    while frame.f_back is not None and frame.f_globals["__name__"] in _LAYER_MODULES:
        if frame.f_globals["__name__"] == Files.__module__:
            calls.insert(0, frame.f_code.co_name)  # a wrapper that makes the call
        frame = frame.f_back
    return f"{frame.f_globals['__name__']}:{frame.f_code.co_qualname}:{'.'.join(calls)}"


def _clean_up(held_fds: dict[FileKey, int], scratch_dirs: list[str]) -> None:
    while held_fds:
        os.close(held_fds.popitem()[1])
    for folder in scratch_dirs:
        shutil.rmtree(folder, ignore_errors=True)
