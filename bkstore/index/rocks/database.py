"""One RocksDB database: opened raw, read in arrays, with a check that every scan is complete.
Iterators stop *silently* at a block that fails its checksum, so each scan ends with a seek past its
last row. RocksDB accepts a truncated manifest or write-ahead log, so both are checked before the
database is opened (`manifest_file`). Numpy would cut or pad keys of other widths, so widths are
checked. RocksDB's errors are plain exceptions with text, so they are translated (`errors`)."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
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
from bkstore.files.os_errors import convert_sync_errors, convert_write_errors, parse_rocksdb_error
from bkstore.index.rocks import scratch_links
from bkstore.index.rocks.errors import translate_errors
from bkstore.index.rocks.files import after_fork, database_directory, manifest_file
from bkstore.index.rocks.keys import VALUE_BYTES, may_have_odd_widths
from bkstore.index.rocks.options import count_opening_threads, reading_options

_SIDE_FILE = "rocksdict-config.json"
_MAX_LIVE_TRIES = 20
_KEYS_PER_CHUNK = 512  # keys joined at a time, while they are in the CPU cache
_SPARE_BYTES = 8  # read with each key or value: not zeros if it is longer than it should be

Words = npt.NDArray[Any]
"""Big-endian int64 words, one line for each row: the words of its key, or its location."""

WordPair = tuple[Words, Words]
"""The keys of rows, and their values."""


class Database:
    """A raw-mode RocksDB database, read-only or read-write. Read-only goes through a scratch
    directory (`scratch_links.link_copy`) and is a snapshot; `oddities` has what the check of its
    files found, as (file, offset, detail). Threads: reads may run concurrently; iterators hold the
    interpreter lock. Fork: closed in the child, which may reopen it if `after_fork` permits."""

    def __init__(
        self,
        path: Path,
        options: Options | None = None,
        live: bool = False,
        files: Files = OS_FILES,
    ) -> None:
        """Open for writing with `options`, or for reading with None (`live`: while in use). A new
        database's directory is created durably through `files`, which is notified of each sync;
        RocksDB itself writes the files in it."""
        self.path = path
        self._files = files
        self._sync_error: SyncFailed | None = None
        self.oddities: list[tuple[Path, int | None, str]] = []
        self._scratch = ""  # the directory of links that a reader opens
        self._writable = options is not None
        self._db: Rdict | None = None
        self._odd_widths: bool | None = None
        self._resources = ExitStack()
        # Clean up even if `close` is not called: at collection, or at interpreter exit.
        self._cleanup = weakref.finalize(self, self._resources.close)
        forks.register(self)
        try:
            with self._translating_errors():
                if options is not None:
                    self._db = self._open_writing(options)
                else:
                    self._db = self._open_live() if live else self._open_reading()
        except BaseException:
            self._cleanup()
            raise

    # -- opening

    def _open_writing(self, options: Options) -> Rdict:
        """Create the directory if it is missing, then open the database in place for writing."""
        after_fork.check_may_write(self.path)
        with convert_write_errors(self.path):
            self._files.makedirs(self.path)
        database_directory.check_not_in_use(self.path)
        database_directory.check_files(self.path)
        self._files.database_opened(self.path, options)
        database_directory.register_writer(self.path)
        self._resources.callback(database_directory.unregister_writer, self.path)
        after_fork.note_opened()  # a child forked from now on lacks RocksDB's threads
        options.set_max_file_opening_threads(count_opening_threads(self.path))
        return Rdict(str(self.path), options, column_families={"default": options})

    def _open_reading(self) -> Rdict:
        """Check manifest and logs, noting oddities, then open through a directory of links."""
        database_directory.check_not_in_use(self.path)
        manifest = database_directory.find_manifest(self.path)
        contents = manifest_file.read_manifest(manifest)
        if contents.torn_offset is not None:
            self.oddities.append((manifest, contents.torn_offset, "manifest ends inside a record"))
        for table_path in manifest_file.check_tables(contents, self.path):
            detail = "table file that no manifest lists: left by a crash; RocksDB deletes it"
            self.oddities.append((table_path, None, detail))
        torn_tails = manifest_file.check_logs(contents, self.path)
        for log_path, offset in torn_tails:
            detail = "write-ahead log ends inside a record: its last write is lost, as in a crash"
            self.oddities.append((log_path, offset, detail))
        if contents.unsupported is not None:
            detail = f"missing files would go unnoticed: it has {contents.unsupported}"
            self.oddities.append((manifest, None, detail))
        if contents.torn_offset is not None:
            torn_tails.append((manifest, contents.torn_offset))
        return self._open_links(torn_tails, open_files=None)

    def _open_links(
        self, torn_tails: Sequence[tuple[Path, int]], open_files: ExitStack | None
    ) -> Rdict:
        """Open through a scratch directory of links, after cutting `torn_tails` (file, offset). For
        a database in use, `open_files` keeps its files open, and the linked logs are checked."""
        scratch = self._resources.enter_context(scratch_links.link_copy(self.path, open_files))
        self._scratch = str(scratch)
        if open_files is not None:
            contents = manifest_file.read_manifest(database_directory.find_manifest(scratch))
            torn_tails = manifest_file.check_logs(contents, scratch)
        scratch_links.truncate_torn_tails(scratch, torn_tails)
        options = reading_options()
        options.set_max_file_opening_threads(count_opening_threads(scratch))
        after_fork.note_opened()
        read_only = AccessType.read_only(error_if_log_file_exist=False)  # reads the logs
        return Rdict(self._scratch, options, {"default": options}, read_only)

    def _open_live(self) -> Rdict:
        """Open while a writer goes on; retry if it removed a file meanwhile."""
        for attempt in range(_MAX_LIVE_TRIES):
            time.sleep(0.002 * attempt)
            logs = list(self.path.glob("*.log"))
            try:
                with ExitStack() as open_files:
                    database = self._open_links((), open_files)
            except Exception as error:
                self._resources.close()
                if isinstance(error, SystemRefused) or attempt + 1 == _MAX_LIVE_TRIES:
                    raise
                continue
            if scratch_links.CAN_REOPEN_UNLINKED or all(log_path.exists() for log_path in logs):
                return database
            database.close()  # it may lack rows of a log that was removed before it was read
            self._resources.close()
        raise database_directory.in_use_error(self.path, "changes too fast to be read")

    def _translating_errors(self) -> AbstractContextManager[None]:
        """Return a context that translates RocksDB's textual errors to `BkstoreError`s."""
        return translate_errors(self.path, lambda: self._scratch)

    @property
    def _handle(self) -> Rdict:
        if self._db is None:
            raise forks.closed_error(f"{self.path}: the database")
        return self._db

    def _forked(self) -> None:
        """Become closed: the child has neither the parent's locks nor RocksDB's threads. The handle
        is leaked, as destroying it would wait forever for a thread; the scratch directory stays."""
        forks.keep_forever((self._db, self._resources))
        self._cleanup.detach()
        self._db = None

    # -- reading

    def get(self, key: bytes) -> bytes | None:
        """Return one value, None if absent."""
        database = self._handle if self._db is None else self._db  # `_handle` raises if closed
        try:
            return cast(bytes | None, database.get(key))
        except Exception:  # to enter the context before would double the cost of a look-up
            with self._translating_errors():
                raise

    def get_list(self, keys: list[bytes]) -> list[bytes | None]:
        """Return a value or None for each key; sorted keys are twice as fast."""
        with self._translating_errors():
            return cast(list[bytes | None], self._handle.get(cast(Any, keys)))

    def keys(self, start: bytes, stop: bytes, key_width: int) -> Words:
        """Return the keys of [start, stop) as words, `key_width` // 8 a row; about 140 ns a key.
        Raises `CorruptionError` for keys of another width. If the tables may have one, or rows are
        only in a write-ahead log, each key is measured: about 200 ns a key."""
        with self._translating_errors():
            end_check = self._handle.iter(_read_options(stop))
            rows = self._key_iterator(start, stop)
            if self._may_have_odd_widths(key_width):
                rows = list(rows)
                self._check_widths(rows, key_width)
            words = _to_words(np.fromiter(rows, f"S{key_width + _SPARE_BYTES}"))
            if words[:, -1].any():  # a longer key: the check finds it, and raises
                self._check_widths(list(self._key_iterator(start, stop)), key_width)
            self._check_end(end_check, start, words[-1, :-1].tobytes() if len(words) else None)
        return words[:, :-1]

    def _key_iterator(self, start: bytes, stop: bytes) -> Iterable[bytes]:
        rows = self._handle.keys(from_key=start, read_opt=_read_options(stop))
        return cast(Iterable[bytes], rows)

    def key_blocks(
        self, start: bytes, stop: bytes, key_width: int, first_rows: int, max_rows: int
    ) -> Iterator[Words]:
        """Yield the result of `keys` in arrays of `first_rows` rows, then of twice as many, up to
        `max_rows`; raises the `CorruptionError` for damage at the end, after the rows before it."""
        with self._translating_errors():
            end_check, last_key = self._handle.iter(_read_options(stop)), None
            keys, has_more = iter(self._key_iterator(start, stop)), True
        while has_more:
            with self._translating_errors():
                _ = self._handle  # not closed meanwhile, nor by a fork
                chunk_starts = range(0, first_rows, _KEYS_PER_CHUNK)
                chunks = [self._join_keys(keys, key_width) for _ in chunk_starts]
                words = np.frombuffer(b"".join(chunks), ">i8").reshape(-1, key_width // 8)
            has_more, first_rows = len(words) >= first_rows, min(2 * first_rows, max_rows)
            if len(words):
                last_key = words[-1].tobytes()
                yield words
        with self._translating_errors():
            self._check_end(end_check, start, last_key)

    def _join_keys(self, keys: Iterator[bytes], key_width: int) -> bytes:
        chunk = list(islice(keys, _KEYS_PER_CHUNK))
        if self._may_have_odd_widths(key_width):
            self._check_widths(chunk, key_width)
        return b"".join(chunk)

    def values(
        self, start: bytes, stop: bytes, key_width: int
    ) -> tuple[Words, bytes | None] | None:
        """Return the values of [start, stop) without their keys, and the last key below `stop`.
        Half the cost of `items`, about 160 ns a row, as it makes no pairs. The caller must check
        the number of values and the last key against what it expects; that also detects a scan that
        ended early. None if keys may have other widths, or if a value is too long."""
        with self._translating_errors():
            if self._may_have_odd_widths(key_width):
                return None
            snapshot = self._handle.snapshot()  # number and last key must be of the same state
            rows = snapshot.values(from_key=start, read_opt=_read_options(stop))
            value_type = f"S{VALUE_BYTES + _SPARE_BYTES}"
            words = _to_words(np.fromiter(cast(Iterable[bytes], rows), value_type))
            iterator = snapshot.iter(_read_options(stop))
            iterator.seek_to_last()
            iterator.status()
            last_key = _key_at(iterator) if iterator.valid() else None
        has_long_value = words[:, -1].any()
        return None if has_long_value else (words[:, 0], last_key)

    def items(self, start: bytes, stop: bytes, key_width: int, batch: int) -> Iterator[WordPair]:
        """Yield (keys, values) of [start, stop) in arrays of at most `batch` rows: all before any
        damage, which then raises `CorruptionError`."""
        value_width = VALUE_BYTES + _SPARE_BYTES
        row_type = np.dtype([("k", f"S{key_width + _SPARE_BYTES}"), ("v", f"S{value_width}")])
        with self._translating_errors():
            end_check, last_key = self._handle.iter(_read_options(stop)), None
            rows = iter(self._handle.items(from_key=start, read_opt=_read_options(stop)))
        has_more = True
        while has_more:
            with self._translating_errors():
                _ = self._handle  # not closed meanwhile, nor by a fork
                rows_read, width_error = self._read_rows(rows, row_type, key_width, batch)
            words = _to_words(rows_read)  # of the key, its spare word, the value, its spare word
            keys, values = words[:, : key_width // 8], words[:, -2]
            has_more = len(rows_read) == batch and width_error is None
            if len(rows_read):
                last_key = keys[-1].tobytes()
                yield keys, values
            if width_error is not None:
                raise width_error
        with self._translating_errors():
            self._check_end(end_check, start, last_key)

    def _read_rows(
        self, rows: Iterator[Any], row_type: np.dtype[Any], key_width: int, batch: int
    ) -> tuple[Words, CorruptionError | None]:
        """Return (next rows, None), or the rows before one of another width, and the error. In
        `row_type` a spare word follows the key and the value: it is not 0 if one is too long."""
        next_rows: Iterable[Any] = islice(rows, batch)
        if self._may_have_odd_widths(key_width):
            next_rows = list(next_rows)
            lengths = np.array([(len(key), len(value)) for key, value in next_rows]).reshape(-1, 2)
            is_odd = (lengths != (key_width, VALUE_BYTES)).any(axis=1)
            rows_read = np.fromiter(next_rows, row_type)
        else:
            rows_read = np.fromiter(next_rows, row_type)
            words = _to_words(rows_read)
            is_odd = (words[:, key_width // 8] | words[:, -1]) != 0  # the two spare words
        if not is_odd.any():
            return rows_read, None
        first_odd = int(np.flatnonzero(is_odd)[0])
        key = rows_read["k"][first_odd : first_odd + 1].tobytes().hex()
        detail = f"not a bookie's row: key or value has another size, at key {key}"
        return rows_read[:first_odd], CorruptionError(self.path, None, detail)

    # -- widths and ends

    def _may_have_odd_widths(self, key_width: int) -> bool:
        """Return whether rows of other widths are possible; computed once."""
        if self._odd_widths is None:  # a writer has written the rows of its log itself
            self._odd_widths = may_have_odd_widths(self.property, key_width, self._writable)
        return self._odd_widths

    def property(self, name: str) -> str:
        """Return the RocksDB property ``rocksdb.<name>``, "" if there is none."""
        with self._translating_errors():
            return self._handle.property_value(f"rocksdb.{name}") or ""

    def _check_widths(self, keys: list[bytes], key_width: int) -> None:
        if set(map(len, keys)) - {key_width}:
            odd = next(key for key in keys if len(key) != key_width)
            detail = f"key of {len(odd)} bytes, not {key_width}: {odd[:40].hex()}"
            raise CorruptionError(self.path, None, f"not a bookie's row: {detail}")

    def _check_end(self, iterator: RdictIter, start: bytes, last_key: bytes | None) -> None:
        """Raise if a scan from `start` on, whose last key was `last_key`, ended early: at damage
        RocksDB's iterators end silently. `iterator` must be older than the scan, so that rows put
        meanwhile do not count as lost; a look-up excludes a row that was deleted meanwhile."""
        iterator.seek(start if last_key is None else last_key)
        if last_key is not None and iterator.valid() and iterator.key() == last_key:
            iterator.next()
        iterator.status()
        if iterator.valid() and self._handle.get(_key_at(iterator)) is not None:
            detail = f"scan ended before key {_key_at(iterator).hex()}"
            raise CorruptionError(self.path, None, detail)

    def read_all(self) -> list[tuple[bytes, bytes]]:
        """Return every row; for the small `ledgers` databases."""
        with self._translating_errors():
            end_check = self._handle.iter()
            all_rows = cast(list[tuple[bytes, bytes]], list(self._handle.items()))
            self._check_end(end_check, b"", all_rows[-1][0] if all_rows else None)
            return all_rows

    def seek(self, key: bytes) -> bytes | None:
        """Return the lowest key at or above `key`, None if there is none."""
        return self._seek(RdictIter.seek, key)

    def seek_for_prev(self, key: bytes) -> bytes | None:
        """Return the highest key at or below `key`, None if there is none."""
        return self._seek(RdictIter.seek_for_prev, key)

    def _seek(self, seek: Callable[[RdictIter, bytes], None], key: bytes) -> bytes | None:
        with self._translating_errors():
            iterator = self._handle.iter()
            seek(iterator, key)
            iterator.status()
            return _key_at(iterator) if iterator.valid() else None

    def read_end_rows(self) -> list[tuple[bytes, bytes]]:
        """Return the first and the last row; empty if there are none."""
        with self._translating_errors():
            iterator = self._handle.iter()
            end_rows = []
            for seek in (iterator.seek_to_first, iterator.seek_to_last):
                seek()
                iterator.status()
                if iterator.valid():
                    end_rows.append((_key_at(iterator), cast(bytes, iterator.value())))
            return end_rows

    # -- writing

    @contextmanager
    def _write_handle(self) -> Iterator[Rdict]:
        """Yield the database to write to; I/O errors of RocksDB become `WriteFailed`."""
        self.check_writable()
        try:
            yield self._handle
        except BkstoreError:
            raise
        except Exception as error:
            # RocksDB's errors are plain exceptions, with a text that begins with their kind.
            if type(error) is Exception and str(error).startswith("IO error"):
                raise WriteFailed(self.path, parse_rocksdb_error(str(error))) from error
            with self._translating_errors():
                raise

    def check_writable(self) -> None:
        """Raise the `SyncFailed` of an earlier `sync`, if there was one."""
        if self._sync_error is not None:
            raise self._sync_error

    def put(self, key: bytes, value: bytes) -> None:
        """Store one row, without sync. Like every change, may raise `WriteFailed`, `SyncFailed`."""
        with self._write_handle() as database:
            database[key] = value

    def delete(self, key: bytes) -> None:
        """Remove one row."""
        with self._write_handle() as database:
            database.delete(key)

    def delete_range(self, start: bytes, stop: bytes) -> None:
        """Remove the rows of [start, stop)."""
        with self._write_handle() as database:
            batch = WriteBatch(raw_mode=True)
            batch.delete_range(start, stop)
            database.write(batch)

    def put_list(self, keys: list[bytes], values: list[bytes], per_batch: int) -> None:
        """Store many rows, in write batches of `per_batch`, without sync."""
        with self._write_handle() as database:
            for i in range(0, len(keys), per_batch):
                batch = WriteBatch(raw_mode=True)
                put = batch.put
                for key, value in zip(keys[i : i + per_batch], values[i : i + per_batch]):
                    put(key, value)
                database.write(batch)

    def ingest(self, file: Path) -> None:
        """Move a sorted table file into the database."""
        options = IngestExternalFileOptions()
        options.set_move_files(True)
        with self._write_handle() as database:
            database.ingest_external_file([str(file)], options)

    def compact(self) -> None:
        """Compact all levels, which frees the space of rows that were deleted or put again."""
        with self._write_handle() as database:
            database.compact_range(None, None)

    def sync(self) -> None:
        """Make everything written durable; after `SyncFailed` the database takes no writes."""
        try:
            with self._write_handle() as database, convert_sync_errors(self.path):
                try:
                    database.flush_wal(sync=True)
                except Exception as error:
                    raise parse_rocksdb_error(str(error)) from error
                self._files.database_synced(self.path)
        except SyncFailed as error:
            self._sync_error = error
            raise

    def close(self) -> None:
        """Close; idempotent. Removes the scratch directory, or rocksdict's side file. A writable
        database flushes its rows to table files; if that fails, it raises `WriteFailed` and is
        closed all the same: synced rows are in its write-ahead logs."""
        database, self._db = self._db, None
        if database is None:
            return
        try:
            database.close()
        except Exception as error:
            if type(error) is not Exception or not self._writable:  # not an error of RocksDB's
                raise
            raise WriteFailed(self.path, parse_rocksdb_error(str(error))) from error
        finally:
            del database  # an Rdict that failed to close holds the lock until it is destroyed
            self._cleanup()
            if self._writable:
                with convert_write_errors(self.path), suppress(FileNotFoundError):
                    OS_FILES.unlink(self.path / _SIDE_FILE)


def _read_options(stop: bytes) -> ReadOptions:
    options = ReadOptions()
    options.set_iterate_upper_bound(stop)
    return options


def _to_words(rows: npt.NDArray[Any]) -> Words:
    return rows.view(">i8").reshape(-1, rows.itemsize // 8)


def _key_at(iterator: RdictIter) -> bytes:
    return cast(bytes, iterator.key())
