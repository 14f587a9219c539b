"""CrashFiles: what a power loss leaves of everything written through a `Files`.

What it is: a file layer over real directories that remembers what nobody synced, and builds the
tree as it would be after a power loss. What it is not: a process kill, which loses nothing that
reached the operating system (`tests/crash/test_killed_databases.py` has those).

The model is the least that POSIX promises, and what file systems and disks do beyond it:

- Bytes are durable from the `fsync` of their file on, names from the `sync_dir` of their
  directory on; neither brings the other. A directory without a durable name is gone with all
  that is below it.
- Bytes that were not synced survive or not by sectors of 512, each on its own; a sector has what
  it had after one of the writes to it, so a later write to the same sector never survives without
  the earlier one. A file's length may survive without its bytes, which read as zeros then. A cut
  that does not survive takes all later changes of its file with it.
- A name change (create, mkdir, rename, link, unlink) survives whole or not at all, and only with
  all earlier ones of the same names and of the same file. A rename is one change: the file has
  its old name or its new one.
- What is not written through the layer (lock files, say) is taken to be durable as it is.

RocksDB writes by itself; what is modelled is its write-ahead logs. A log is cut back to its
length at the last `database_synced` before which RocksDB did sync it (its statistics say so), or
anywhere behind that, and later logs survive only behind whole ones. Everything else in a
database's directory is copied as it is: RocksDB syncs table files before its manifest names them,
the manifest at each change, and the directory (all seen by tracing RocksDB 9.8.4, the one inside
rocksdict 0.3.29). Rows that it moved into a table on its own are durable thereby, though nobody
asked for it. Sectors of a log's tail do not survive one by one, and no bug of RocksDB is looked
for.
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
from bkstore.arguments import whole
from bkstore.errors import InvalidArgument
from bkstore.files.disk_changes import Files, StrPath
from bkstore.testing.crash_image import (
    Image,
    Key,
    Remembered,
    Unsynced,
    copy_database,
    key_of,
    log_lengths,
    place_of,
    stat_key,
)

if TYPE_CHECKING:
    from rocksdict import Options

_WAL_SYNCS = re.compile(r"^rocksdb\.wal\.synced COUNT : ([0-9]+)", re.MULTILINE)
_WRAPPERS = frozenset({"bkstore.files.disk_changes", "bkstore.testing.faults", __name__})


class PowerLoss(BaseException):  # no `except Exception` may take it for an error it knows
    """The power went; nothing reaches the disk any more."""


class CrashFiles(Files):
    """A file layer that knows what a power loss would leave. Syncs are noted, not done.

    `calls` counts the calls that change something (syncs too). From the call that `stop_after`
    names, each raises `PowerLoss`; `close` still works, so writers can be closed, which raises
    `PowerLoss` again. `crash` builds what is left of one directory tree in a new place, any
    number of times, also in the middle of a run. Begin with directories at rest, and give each
    life a `CrashFiles` of its own: to the next one, everything it finds is durable.

    RocksDB flushes when it is closed: crash before that, or after `PowerLoss`, which puts a copy
    of each database aside.

    `sync_sites` are the places in the code that asked for a sync, as "module:function:call" (the
    call is "fsync", "sync_dir", "database_synced", or "write_file.fsync" and the like for the
    syncs inside a wrapper of `Files`). `ignore_site` makes the syncs of one of them do nothing:
    a crash test that still passes does not test that sync.

    Threads: safe. Memory: what is not synced, twice where it replaces durable bytes; an open
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
    ...     some = files.crash(f"{top}/bookie", f"{top}/some", keep=random.Random(1))
    ...     with HierarchicalIndex(left) as reopened:
    ...         reopened.entries(7).tolist(), sorted(files.sync_sites)[-1]
    ([0], 'bkstore.index.hierarchical.unsynced_changes:Changes.flush:sync_file.fsync')
    """

    def __init__(self) -> None:
        self.calls = 0
        """How many changing calls there were, the one that met the power loss included."""
        self.sync_sites: set[str] = set()
        """Where syncs were asked for, ignored ones included."""
        self._ignored: set[str] = set()
        self._stop_at: int | None = None
        self._lock = RLock()
        self._state = Remembered()
        self._counted: dict[Key, tuple[Options, int]] = {}
        """Of databases that write: the options that count, and syncs of logs seen so far."""
        self._scratch: list[str] = []
        self._cleanup = weakref.finalize(self, _clean_up, self._state.held, self._scratch)
        forks.register(self)

    def _forked(self) -> None:
        self._cleanup.detach()  # the scratch directories are the parent's

    # -- when the power goes, and which syncs count

    def stop_after(self, calls: int) -> None:
        """Make the changing call that is `calls` from now (1: the next), and all later, fail."""
        whole(1)("calls", calls)  # the next one is number 1
        with self._lock:
            self._stop_at = self.calls + calls

    @property
    def stopped(self) -> bool:
        """Whether the power is gone."""
        return self._stop_at is not None and self.calls >= self._stop_at

    def ignore_site(self, site: str) -> None:
        """Let the syncs of one of `sync_sites` do nothing from now on."""
        self._ignored.add(site)

    def _count(self) -> None:
        if self._stop_at is None or self.calls + 1 < self._stop_at:
            self.calls += 1
            return
        if not self.stopped:
            self.calls += 1
            for key, (path, lengths) in self._state.databases.items():
                self._scratch.append(tempfile.mkdtemp(prefix="bkstore-crash-"))
                copy_database(path, self._scratch[-1])
                self._state.databases[key] = (self._scratch[-1], lengths)
        raise PowerLoss

    def _is_ignored(self, call: str) -> bool:
        site = _site(call)
        self.sync_sites.add(site)
        return site in self._ignored

    # -- bytes

    def open(self, path: StrPath, flags: int, mode: int = 0o644) -> int:
        """As `Files.open`; also readable, for the bytes that a write replaces."""
        if flags & os.O_ACCMODE == os.O_WRONLY:
            flags = flags & ~os.O_ACCMODE | os.O_RDWR
        with self._lock:
            there = key_of(path) is not None
            if there and flags & os.O_TRUNC and not flags & os.O_EXCL:
                fd = super().open(path, flags & ~os.O_TRUNC, mode)
                try:
                    self.truncate(fd, 0)
                except BaseException:
                    os.close(fd)
                    raise
                return fd
            if there or not flags & os.O_CREAT:
                return super().open(path, flags, mode)
            self._count()
            fd = super().open(path, flags, mode)
            self._created(path)
            return fd

    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, offset: int) -> None:
        """As `Files.pwrite`."""
        content = bytes(data)
        with self._lock:
            self._count()
            self._file(fd).write(fd, offset, content)
            super().pwrite(fd, content, offset)

    def truncate(self, fd: int, size: int) -> None:
        """As `Files.truncate`."""
        with self._lock:
            self._count()
            self._file(fd).cut(fd, size)
            super().truncate(fd, size)

    def fsync(self, fd: int) -> None:
        """Note that the file's bytes and length are durable."""
        with self._lock:
            self._count()
            if not self._is_ignored("fsync"):
                self._state.unsynced.pop(stat_key(os.fstat(fd)), None)

    def _file(self, fd: int) -> Unsynced:
        """Return what is not synced of an open file, before a change of it."""
        info = os.fstat(fd)
        key = stat_key(info)
        found = self._state.unsynced.get(key)
        if found is None:
            found = Unsynced(info.st_size)
            if info.st_nlink or key in self._state.held:  # else no crash brings it back
                self._state.unsynced[key] = found
        return found

    # -- names

    def mkdir(self, path: StrPath) -> None:
        """As `Files.mkdir`."""
        with self._lock:
            there = key_of(path) is not None
            if not there:
                self._count()
            super().mkdir(path)
            if not there:
                self._created(path)

    def replace(self, source: StrPath, target: StrPath) -> None:
        """As `Files.replace`."""
        with self._lock:
            self._count()
            moved, lost = key_of(source), key_of(target)
            with self._holding(target):
                super().replace(source, target)
            self._state.move_databases(os.path.abspath(source), os.path.abspath(target))
            if moved != lost:  # two names of one file both stay
                names = {place_of(target): moved, place_of(source): None}
                self._state.names.change(names, {place_of(target): lost, place_of(source): moved})

    def link(self, source: StrPath, target: StrPath) -> None:
        """As `Files.link`."""
        with self._lock:
            self._count()
            super().link(source, target)
            self._state.names.change({place_of(target): key_of(source)}, {})

    def unlink(self, path: StrPath) -> None:
        """As `Files.unlink`."""
        with self._lock:
            self._count()
            if os.path.islink(path):  # no writer makes one: it is as durable gone as it was there
                super().unlink(path)
                return
            key = key_of(path)
            with self._holding(path):
                super().unlink(path)
            self._state.names.change({place_of(path): None}, {place_of(path): key})

    def sync_dir(self, path: StrPath) -> None:
        """Note that the names in a directory are durable."""
        with self._lock:
            self._count()
            folder = stat_key(os.stat(path))
            if not self._is_ignored("sync_dir"):
                self._state.names.settle(folder)
                self._release()

    def _created(self, path: StrPath) -> None:
        place, key = place_of(path), key_of(path)
        if key is not None:
            self._state.unsynced.pop(key, None)  # of a file that had the number before
        self._state.names.change({place: key}, {})

    @contextmanager
    def _holding(self, path: StrPath) -> Iterator[None]:
        """Keep the file open that `path` names if it is nameless afterwards."""
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            yield
            return
        key = stat_key(os.fstat(fd))
        self._state.held[key] = fd
        try:
            yield
        finally:
            if os.fstat(fd).st_nlink:
                os.close(self._state.held.pop(key))

    def _release(self) -> None:
        """Close the nameless files that no crash brings back any more."""
        if self._state.held:
            for key in set(self._state.held) - self._state.names.mentioned():
                os.close(self._state.held.pop(key))
                self._state.unsynced.pop(key, None)

    # -- databases

    def database_opened(self, path: StrPath, options: Options | None = None) -> None:
        """Note where a database is; what its logs hold before its first opening is durable."""
        with self._lock:
            if self.stopped:
                raise PowerLoss
            key = stat_key(os.stat(path))
            if options is not None:
                options.enable_statistics()
                self._counted[key] = (options, 0)
            _, lengths = self._state.databases.get(key, ("", log_lengths(path)))
            self._state.databases[key] = (os.path.abspath(path), lengths)

    def database_synced(self, path: StrPath) -> None:
        """Note that the write-ahead logs are durable as long as they are now.

        If they are: where RocksDB has counted no sync of them since, nothing is noted.
        """
        with self._lock:
            self._count()
            key = stat_key(os.stat(path))
            if self._has_synced(key) and not self._is_ignored("database_synced"):
                self._state.databases[key] = (os.path.abspath(path), log_lengths(path))

    def _has_synced(self, key: Key) -> bool:
        """Return whether RocksDB synced a write-ahead log since the last question."""
        if key not in self._counted:  # opened by somebody who shows no options
            return True
        options, before = self._counted[key]
        found = _WAL_SYNCS.search(options.get_statistics() or "")
        now = 0 if found is None else int(found[1])
        self._counted[key] = (options, now)
        return now > before

    # -- the power loss

    def crash(
        self, source_root: StrPath, target_root: StrPath, keep: random.Random | None = None
    ) -> Path:
        """Build what a power loss now would leave of `source_root`; return `target_root`.

        Without `keep` nothing survives that was not synced: unsynced bytes and names are gone,
        unsynced removals undone. With it, some of everything does, by its choice. The source
        is only read, and is taken to be there itself; `target_root` must be new or empty, and
        outside of it, else `InvalidArgument`. Cost: a copy.
        """
        target = Path(target_root)
        if target.resolve().is_relative_to(Path(source_root).resolve()):
            raise InvalidArgument(f"{target} is inside of {source_root}")
        target.mkdir(parents=True, exist_ok=True)
        if any(target.iterdir()):
            raise InvalidArgument(f"{target} is not empty")
        with self._lock:
            source = os.fspath(source_root)
            Image(self._state, source, keep).build(source, target)
        return target


def _site(call: str) -> str:
    """Return the place outside of file layers that asked for a sync."""
    frame, calls = sys._getframe(1), [call]
    while frame.f_back is not None and frame.f_globals["__name__"] in _WRAPPERS:
        if frame.f_globals["__name__"] == Files.__module__:
            calls.insert(0, frame.f_code.co_name)
        frame = frame.f_back
    return f"{frame.f_globals['__name__']}:{frame.f_code.co_qualname}:{'.'.join(calls)}"


def _clean_up(held: dict[Key, int], scratch: list[str]) -> None:
    while held:
        os.close(held.popitem()[1])
    for folder in scratch:
        shutil.rmtree(folder, ignore_errors=True)
