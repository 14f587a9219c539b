"""One RocksDB database: opened raw, read in arrays, every silent end checked.

What rocksdict and RocksDB leave to their caller is done here. Iterators stop *silently* at a
block that fails its checksum, so each scan ends with a look past its last row. A manifest or a
write-ahead log that lost its end is read as if it were whole, so both are checked before the
opening (`manifest_file`). Keys of other widths would be cut or padded by numpy, so widths are
checked. Errors are plain exceptions with text, so they are turned into ours.
"""

from __future__ import annotations

import re
import time
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from rocksdict import (
    AccessType,
    IngestExternalFileOptions,
    Options,
    Rdict,
    RdictIter,
    ReadOptions,
    WriteBatch,
)

from bkstore import forks
from bkstore.errors import BkstoreError, CorruptionError, SyncFailed, SystemRefused, WriteFailed
from bkstore.files.disk_changes import OS_FILES, Files
from bkstore.files.os_errors import os_error, syncing, writing
from bkstore.index.rocks import after_fork, manifest_file, scratch_links
from bkstore.index.rocks.errors import translated
from bkstore.index.rocks.options import opening_threads, reading_options

_SIDE_FILE = "rocksdict-config.json"
_TOTALS = re.compile(r"(# entries|# deletions|# range deletions|raw key size|raw value size)=(\d+)")
_LIVE_TRIES = 20
_VALUE = 8  # a location
_SEQUENCE = 8  # what RocksDB adds to each key
_JOINED = 512  # keys copied before the next are made: their memory is still in the cache

Words = npt.NDArray[Any]
"""Big-endian int64 words, a row a line: the halves of its key, or its location."""


class Database:
    """A raw-mode RocksDB database, read-only or read-write.

    Read-only goes through a scratch directory (`scratch_links.link_copy`) and is a snapshot;
    `oddities` holds what the check of its files met, as (file, offset, detail).
    Threads: reads are safe beside each other; iterators hold the interpreter lock. Fork: closed
    in the child, which may open it for reading, and for writing only where `after_fork` lets it.
    """

    def __init__(
        self,
        path: Path,
        options: Options | None = None,
        live: bool = False,
        files: Files = OS_FILES,
    ) -> None:
        """Open for writing with `options`, or for reading with None (`live`: while in use).

        The directory of a new database is made durable through `files`, which is told of each
        sync; what happens inside is RocksDB's own.
        """
        self.path = path
        self._files = files
        self._failed: SyncFailed | None = None
        self.oddities: list[tuple[Path, int | None, str]] = []
        self._scratch = ""
        self._writes = options is not None
        self._db: Rdict | None = None
        self._exact: bool | None = None
        self._stack = ExitStack()
        # Also where nobody closes: at collection, or when the interpreter ends.
        self._cleanup = weakref.finalize(self, self._stack.close)
        forks.register(self)
        try:
            with self._translated():
                if options is not None:
                    self._db = self._open_writing(options)
                else:
                    self._db = self._open_live() if live else self._open_reading()
        except BaseException:
            self._cleanup()
            raise

    # -- opening

    def _open_writing(self, options: Options) -> Rdict:
        after_fork.check_may_write(self.path)
        with writing(self.path):
            self._files.makedirs(self.path)
        scratch_links.check_not_in_use(self.path)
        scratch_links.check_files(self.path)
        self._files.database_opened(self.path, options)
        scratch_links.claim(self.path)
        self._stack.callback(scratch_links.release, self.path)
        after_fork.note_opened()
        options.set_max_file_opening_threads(opening_threads(self.path))
        return Rdict(str(self.path), options, column_families={"default": options})

    def _open_reading(self) -> Rdict:
        scratch_links.check_not_in_use(self.path)
        manifest = scratch_links.manifest_path(self.path)
        said = manifest_file.read_manifest(manifest)
        if said.torn_at is not None:
            self.oddities.append((manifest, said.torn_at, "manifest ends inside a record"))
        for table in manifest_file.check_complete(said, self.path):
            detail = "table file that no manifest names: left by a crash; RocksDB deletes it"
            self.oddities.append((table, None, detail))
        torn = manifest_file.check_logs(said, self.path)
        for log, offset in torn:
            detail = "write-ahead log ends inside a record: its last write is lost, as in a crash"
            self.oddities.append((log, offset, detail))
        if said.torn_at is not None:
            torn.append((manifest, said.torn_at))
        return self._open_links(torn)

    def _open_links(
        self, torn: Sequence[tuple[Path, int]] = (), held: ExitStack | None = None
    ) -> Rdict:
        scratch = self._stack.enter_context(scratch_links.link_copy(self.path, held))
        self._scratch = str(scratch)
        if held is not None:  # a live one was not checked yet
            said = manifest_file.read_manifest(scratch_links.manifest_path(scratch))
            torn = manifest_file.check_logs(said, scratch)
        scratch_links.cut_tails(scratch, torn)
        options = reading_options()
        options.set_max_file_opening_threads(opening_threads(scratch))
        after_fork.note_opened()
        return Rdict(self._scratch, options, {"default": options}, AccessType.read_only(False))

    def _open_live(self) -> Rdict:
        """Open while a writer goes on; begin again where it took a file away meanwhile."""
        for attempt in range(_LIVE_TRIES):
            time.sleep(0.002 * attempt)
            logs = list(self.path.glob("*.log"))
            try:
                with ExitStack() as held:
                    db = self._open_links(held=held)
            except Exception as error:
                self._stack.close()
                if isinstance(error, SystemRefused) or attempt + 1 == _LIVE_TRIES:
                    raise
                continue
            if scratch_links.CAN_HOLD or all(log.exists() for log in logs):
                return db
            db.close()  # without the rows of a log that went before it was read
            self._stack.close()
        raise scratch_links.in_use(self.path, "changes faster than it can be read")

    def _translated(self) -> AbstractContextManager[None]:
        """Turn RocksDB's textual errors into ours."""
        return translated(self.path, lambda: self._scratch)

    @property
    def _handle(self) -> Rdict:
        if self._db is None:
            raise forks.closed(f"{self.path}: the database")
        return self._db

    def _forked(self) -> None:
        """Be closed: the child has neither the parent's locks nor RocksDB's threads.

        The handle stays in memory. Destroyed, it would flush, and wait for ever for a thread; and
        the scratch directory is the parent's.
        """
        forks.leak((self._db, self._stack))
        self._cleanup.detach()
        self._db = None

    # -- reading

    def get(self, key: bytes) -> bytes | None:
        """Return one value, None if absent."""
        database = self._handle if self._db is None else self._db
        try:
            return cast(bytes | None, database.get(key))
        except Exception:  # entering `_translated` first would cost as much as the look-up
            with self._translated():
                raise

    def get_list(self, keys: list[bytes]) -> list[bytes | None]:
        """Return a value or None for each key; sorted keys are twice as fast."""
        with self._translated():
            return cast(list[bytes | None], self._handle.get(cast(Any, keys)))

    def keys(self, lo: bytes, hi: bytes, width: int) -> Words:
        """Return the keys of [lo, hi) as words, `width` // 8 a row; about 140 ns a key.

        Raises `CorruptionError` for keys of another width. Where the database's totals leave
        one possible, or rows of a write-ahead log are not in a table yet, each key is measured:
        about 200 ns a key.
        """
        with self._translated():
            walk = self._handle.iter(_bounds(hi))
            rows = self._key_iterator(lo, hi)
            if self._measures(width):
                rows = list(rows)
                self._check_widths(rows, width)
            words = _words(np.fromiter(rows, f"S{width + 8}"))
            if words[:, -1].any():
                self._check_widths(list(self._key_iterator(lo, hi)), width)
            self._check_end(walk, lo, words[-1, :-1].tobytes() if len(words) else None)
        return words[:, :-1]

    def _key_iterator(self, lo: bytes, hi: bytes) -> Iterable[bytes]:
        return cast(Iterable[bytes], self._handle.keys(from_key=lo, read_opt=_bounds(hi)))

    def key_blocks(self, lo: bytes, hi: bytes, width: int, rows: int, most: int) -> Iterator[Words]:
        """Yield what `keys` returns in arrays of `rows` rows, then of twice as many, up to `most`.

        Rows behind a damaged place are missing before the `CorruptionError` comes, at the end.
        """
        with self._translated():
            walk, last = self._handle.iter(_bounds(hi)), None
            keys, more = iter(self._key_iterator(lo, hi)), True
        while more:
            with self._translated():
                _ = self._handle  # not closed meanwhile, nor by a fork
                parts = [self._joined(keys, width) for _ in range(0, rows, _JOINED)]
                words = np.frombuffer(b"".join(parts), ">i8").reshape(-1, width // 8)
            more, rows = len(words) >= rows, min(2 * rows, most)
            if len(words):
                last = words[-1].tobytes()
                yield words
        with self._translated():
            self._check_end(walk, lo, last)

    def _joined(self, keys: Iterator[bytes], width: int) -> bytes:
        part = list(islice(keys, _JOINED))
        if self._measures(width):
            self._check_widths(part, width)
        return b"".join(part)

    def values(self, lo: bytes, hi: bytes, width: int) -> tuple[Words, bytes | None] | None:
        """Return the values of [lo, hi) without their keys, and the last key below `hi`.

        Half the price of `items`, about 160 ns a row: no pair is made for each. It is for the
        caller to tell by number and last key whether all that it expects is here; a scan that
        ended early shows in that too. None where rows of other widths are possible: only their
        keys tell which.
        """
        with self._translated():
            if self._measures(width):
                return None
            at_once = self._handle.snapshot()  # number and last key are of one state
            rows = at_once.values(from_key=lo, read_opt=_bounds(hi))
            words = _words(np.fromiter(cast(Iterable[bytes], rows), f"S{_VALUE + 8}"))
            walk = at_once.iter(_bounds(hi))
            walk.seek_to_last()
            walk.status()
            last = _key(walk) if walk.valid() else None
        return None if words[:, -1].any() else (words[:, 0], last)

    def items(self, lo: bytes, hi: bytes, width: int, batch: int) -> Iterator[tuple[Words, Words]]:
        """Yield (keys, values) of [lo, hi) in arrays of at most `batch` rows.

        All rows before a damaged place come before the `CorruptionError`.
        """
        row = np.dtype([("k", f"S{width + 8}"), ("v", f"S{_VALUE + 8}")])
        with self._translated():
            walk, last = self._handle.iter(_bounds(hi)), None
            rows = iter(self._handle.items(from_key=lo, read_opt=_bounds(hi)))
        more = True
        while more:
            with self._translated():
                _ = self._handle  # not closed meanwhile, nor by a fork
                part, odd = self._part(rows, row, width, batch)
            words = _words(part)
            keys, values = words[:, : width // 8], words[:, -2]
            more = len(part) == batch and odd is None
            if len(part):
                last = keys[-1].tobytes()
                yield keys, values
            if odd is not None:
                raise odd
        with self._translated():
            self._check_end(walk, lo, last)

    def _part(
        self, rows: Iterator[Any], row: np.dtype[Any], width: int, batch: int
    ) -> tuple[Words, CorruptionError | None]:
        """Return the next rows; where one is of another width, those before it and the error."""
        taken: Iterable[Any] = islice(rows, batch)
        if self._measures(width):
            taken = list(taken)
            lengths = np.array([(len(key), len(value)) for key, value in taken]).reshape(-1, 2)
            odd = (lengths != (width, _VALUE)).any(axis=1)
            part = np.fromiter(taken, row)
        else:
            part = np.fromiter(taken, row)
            words = _words(part)
            odd = (words[:, width // 8] | words[:, -1]) != 0
        if not odd.any():
            return part, None
        at = int(np.flatnonzero(odd)[0])
        key = part["k"][at : at + 1].tobytes().hex()
        detail = f"not a bookie's row: key or value of another width, at key {key}"
        return part[:at], CorruptionError(self.path, None, detail)

    # -- widths and ends

    def _measures(self, width: int) -> bool:
        """Whether rows of other widths are possible, judged once, by the tables' totals.

        Rows that this process writes are of the right width; rows that wait in a write-ahead
        log are in no total, so a reader measures as long as there are any.
        """
        if self._exact is None:
            text = self.property("aggregated-table-properties")
            total = {name: int(value) for name, value in _TOTALS.findall(text)}
            ranges, deletions = total.get("# range deletions", 0), total.get("# deletions", 0)
            rows = total.get("# entries", 0)
            key_bytes = rows * (width + _SEQUENCE)
            value_bytes = (rows - deletions) * _VALUE + ranges * width
            known = (total.get("raw key size", 0), total.get("raw value size", 0))
            waiting = self._handle.property_int_value("rocksdb.num-entries-active-mem-table")
            self._exact = known != (key_bytes, value_bytes) or bool(waiting and not self._writes)
        return self._exact

    def property(self, name: str) -> str:
        """Return what RocksDB says of itself by a name, "" where it has no such property."""
        with self._translated():
            return self._handle.property_value(f"rocksdb.{name}") or ""

    def _check_widths(self, keys: list[bytes], width: int) -> None:
        if set(map(len, keys)) - {width}:
            odd = next(key for key in keys if len(key) != width)
            detail = f"not a bookie's row: key of {len(odd)} bytes, not {width}: {odd[:40].hex()}"
            raise CorruptionError(self.path, None, detail)

    def _check_end(self, walk: RdictIter, lo: bytes, last: bytes | None) -> None:
        """Raise if a scan from `lo` on, whose last key was `last`, ended early.

        `walk` is older than the scan, so that rows put meanwhile do not look like lost ones; a
        row that was deleted meanwhile is asked for.
        """
        walk.seek(lo if last is None else last)
        if last is not None and walk.valid() and walk.key() == last:
            walk.next()
        walk.status()
        if walk.valid() and self._handle.get(_key(walk)) is not None:
            detail = f"scan ended before key {_key(walk).hex()}"
            raise CorruptionError(self.path, None, detail)

    def rows(self) -> list[tuple[bytes, bytes]]:
        """Return every row; for the small `ledgers` databases."""
        with self._translated():
            walk = self._handle.iter()
            found = cast(list[tuple[bytes, bytes]], list(self._handle.items()))
            self._check_end(walk, b"", found[-1][0] if found else None)
            return found

    def first_at(self, key: bytes) -> bytes | None:
        """Return the lowest key at or above `key`, None if there is none."""
        with self._translated():
            walk = self._handle.iter()
            walk.seek(key)
            walk.status()
            return _key(walk) if walk.valid() else None

    def last_below(self, key: bytes) -> bytes | None:
        """Return the greatest key at or below `key`, None if there is none."""
        with self._translated():
            walk = self._handle.iter()
            walk.seek_for_prev(key)
            walk.status()
            return _key(walk) if walk.valid() else None

    def ends(self) -> list[tuple[bytes, bytes]]:
        """Return the first and the last row, or nothing."""
        with self._translated():
            walk = self._handle.iter()
            found = []
            for seek in (walk.seek_to_first, walk.seek_to_last):
                seek()
                walk.status()
                if walk.valid():
                    found.append((_key(walk), cast(bytes, walk.value())))
            return found

    # -- writing

    @contextmanager
    def _changing(self) -> Iterator[Rdict]:
        """Yield the database to write to; RocksDB's refusals come out as `WriteFailed`."""
        self.check_writable()
        try:
            yield self._handle
        except BkstoreError:
            raise
        except Exception as error:
            if type(error) is Exception and str(error).startswith("IO error"):
                raise WriteFailed(self.path, os_error(str(error))) from error
            with self._translated():
                raise

    def check_writable(self) -> None:
        """Raise the `SyncFailed` of an earlier `sync`, if there was one."""
        if self._failed is not None:
            raise self._failed

    def put(self, key: bytes, value: bytes) -> None:
        """Store one row, without sync. Like all that write: `WriteFailed`, `SyncFailed`."""
        with self._changing() as database:
            database[key] = value

    def delete(self, key: bytes) -> None:
        """Remove one row."""
        with self._changing() as database:
            database.delete(key)

    def delete_range(self, lo: bytes, hi: bytes) -> None:
        """Remove the rows of [lo, hi)."""
        with self._changing() as database:
            batch = WriteBatch(raw_mode=True)
            batch.delete_range(lo, hi)
            database.write(batch)

    def put_list(self, keys: list[bytes], values: list[bytes], per_batch: int) -> None:
        """Store many rows, in write batches of `per_batch`, without sync."""
        with self._changing() as database:
            for at in range(0, len(keys), per_batch):
                batch = WriteBatch(raw_mode=True)
                put = batch.put
                for key, value in zip(keys[at : at + per_batch], values[at : at + per_batch]):
                    put(key, value)
                database.write(batch)

    def ingest(self, file: Path) -> None:
        """Take over a sorted table file; it is moved into the database."""
        options = IngestExternalFileOptions()
        options.set_move_files(True)
        with self._changing() as database:
            database.ingest_external_file([str(file)], options)

    def compact(self) -> None:
        """Merge the tables of all levels: rows that were deleted or put again take no room then."""
        with self._changing() as database:
            database.compact_range(None, None)

    def sync(self) -> None:
        """Make everything written durable; after `SyncFailed` the database takes no writes."""
        try:
            with self._changing() as database, syncing(self.path):
                try:
                    database.flush_wal(True)
                except Exception as error:
                    raise os_error(str(error)) from error
                self._files.database_synced(self.path)
        except SyncFailed as error:
            self._failed = error
            raise

    def close(self) -> None:
        """Close; idempotent. Removes the scratch directory, or rocksdict's side file.

        A database that was written puts its rows into table files. `WriteFailed` where it
        cannot, closed all the same: what was synced is in its write-ahead logs.
        """
        database, self._db = self._db, None
        if database is None:
            return
        try:
            database.close()
        except Exception as error:
            if type(error) is not Exception or not self._writes:
                raise
            raise WriteFailed(self.path, os_error(str(error))) from error
        finally:
            del database  # an Rdict that failed to close holds the lock until it goes
            self._cleanup()
            if self._writes:
                with writing(self.path), suppress(FileNotFoundError):
                    OS_FILES.unlink(self.path / _SIDE_FILE)


def _bounds(hi: bytes) -> ReadOptions:
    options = ReadOptions()
    options.set_iterate_upper_bound(hi)
    return options


def _words(rows: npt.NDArray[Any]) -> Words:
    return rows.view(">i8").reshape(-1, rows.itemsize // 8)


def _key(walk: RdictIter) -> bytes:
    return cast(bytes, walk.key())
