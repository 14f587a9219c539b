"""One database, read and written by RocksDB, in arrays, with a check that every scan is complete.
Iterators stop *silently* at a block that fails its checksum, so each scan ends with a seek past its
last row. Numpy would cut or pad keys of other widths, so widths are checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from rocksdict import (
    IngestExternalFileOptions,
    Rdict,
    RdictIter,
    ReadOptions,
    WriteBatch,
)

from bkstore.errors import BkstoreError, CorruptionError, SyncFailed, WriteFailed
from bkstore.files.os_errors import convert_sync_errors, parse_rocksdb_error
from bkstore.formats.rocksdb.keys import MAX_SEQUENCE
from bkstore.ids import Int64Array, count_consecutive
from bkstore.index.rocks.keys import (
    UNFLUSHED_ENTRIES,
    VALUE_BYTES,
    key_bytes,
    may_have_unexpected_widths,
    name_ledgers,
    read_table_totals,
)
from bkstore.index.rocks.open_database import OpenDatabase
from bkstore.index.rocks.readable_database import DatabaseSizes, KeyColumns, KeysAndValues
from bkstore.index.rocks.tables.damage import Damage, UnknownRange, report

_SCANNED_PER_KEY = 3
_KEYS_PER_CHUNK = 512  # keys joined at a time, while they are in the CPU cache
_SPARE_BYTES = 8  # read with each key or value: not zeros if it is longer than it should be

_FIRST_BLOCK_ROWS = 1 << 9
"""Rows of the first block of keys after a seek: reading them costs about as much as the seek."""

_MAX_BLOCK_ROWS = 1 << 16
_WORD_BYTES = 8

_Lines = npt.NDArray[Any]
"""Big-endian int64 words, one line for each row: the words of its key, or its location."""


class Database(OpenDatabase):
    """A database, read in arrays and written: `LedgersDatabase` and `LocationsDatabase` in one.
    Threads: reads may run concurrently; iterators hold the interpreter lock."""

    # -- reading

    def get(self, key: bytes) -> bytes | None:
        """Return one value, None if absent."""
        database = self._handle if self._db is None else self._db  # `_handle` raises if closed
        try:
            return cast(bytes | None, database.get(key))
        except Exception:  # entering the context for each look-up would double its cost
            with self._translating_errors():
                raise

    def get_list(self, keys: list[bytes]) -> list[bytes | None]:
        """Return a value or None for each key; sorted keys are twice as fast."""
        with self._translating_errors():
            return cast(list[bytes | None], self._handle.get(cast(Any, keys)))

    def max_scanned(self, key_count: int) -> int:
        """Return the number of rows up to which `items` reads a range faster than `key_count` keys
        are looked up one by one."""
        return _SCANNED_PER_KEY * key_count

    def keys(self, start: bytes, stop: bytes, words: int) -> KeyColumns:
        """Return the keys of [start, stop) as columns of 64-bit words, int64[words, n]; about 140
        ns a key. Raises `CorruptionError` for keys of another width. If the tables may have such
        keys, or rows are only in a write-ahead log, each key is measured: about 200 ns a key."""
        key_width = _WORD_BYTES * words
        with self._translating_errors():
            end_check = self._handle.iter(_read_options(stop))  # before the scan that it checks
            rows = self._iterate_keys(start, stop)
            if self._may_have_unexpected_widths(key_width):
                rows = list(rows)
                self._check_widths(rows, key_width)
            # Each key is copied into a field with a spare word, which is not 0 if a key is longer.
            lines = _to_words(np.fromiter(rows, f"S{key_width + _SPARE_BYTES}"))
            if lines[:, -1].any():  # a longer key: the check finds it, and raises
                self._check_widths(list(self._iterate_keys(start, stop)), key_width)
            self._check_end(end_check, start, lines[-1, :-1].tobytes() if len(lines) else None)
        return _columns(lines[:, :-1])

    def _iterate_keys(self, start: bytes, stop: bytes) -> Iterable[bytes]:
        rows = self._handle.keys(from_key=start, read_opt=_read_options(stop))
        return cast(Iterable[bytes], rows)

    def may_be_long(self, start: bytes, stop: bytes) -> bool:
        """Return whether there may be more than 65,536 keys in [start, stop), judged by the entry
        id of the highest one. One seek."""
        try:
            last = self.last_key(start, stop, len(start) // _WORD_BYTES)
        except CorruptionError:  # reading the keys reports what is wrong, and where
            return False
        first = int.from_bytes(start[-_WORD_BYTES:], "big")
        return last is not None and int.from_bytes(last[-_WORD_BYTES:], "big") - first >= 1 << 16

    def key_blocks(self, start: bytes, stop: bytes, words: int) -> Iterator[KeyColumns]:
        """Yield the result of `keys` in blocks: the first has some hundred keys, each later one
        twice as many, up to 65,536. At damage the keys before it are yielded, then
        `CorruptionError` is raised."""
        key_width, block_rows = _WORD_BYTES * words, _FIRST_BLOCK_ROWS
        with self._translating_errors():
            # `end_check` is made before the scan, whose end it checks (`_check_end`).
            end_check, last_key = self._handle.iter(_read_options(stop)), None
            keys, has_more = iter(self._iterate_keys(start, stop)), True
        while has_more:
            # Errors are translated inside this loop, not around a `yield`: the caller's own errors
            # would pass through the context.
            with self._translating_errors():
                _ = self._handle  # raises if closed meanwhile, or by a fork
                chunk_starts = range(0, block_rows, _KEYS_PER_CHUNK)
                chunks = [self._read_key_chunk(keys, key_width) for _ in chunk_starts]
                lines = np.frombuffer(b"".join(chunks), ">i8").reshape(-1, words)
            has_more, block_rows = len(lines) >= block_rows, min(2 * block_rows, _MAX_BLOCK_ROWS)
            if len(lines):
                last_key = lines[-1].tobytes()
                yield _columns(lines)
        with self._translating_errors():
            self._check_end(end_check, start, last_key)

    def _read_key_chunk(self, keys: Iterator[bytes], key_width: int) -> bytes:
        """Return the next keys of an iterator, at most `_KEYS_PER_CHUNK`, joined; b"" at its end.
        Raises `CorruptionError` for a key of another width."""
        chunk = list(islice(keys, _KEYS_PER_CHUNK))
        if self._may_have_unexpected_widths(key_width):
            self._check_widths(chunk, key_width)
        return b"".join(chunk)

    def consecutive_values(self, start: bytes, stop: bytes, words: int) -> Int64Array:
        """Return the values of the keys `start`, `start` + 1, ... up to the first key that is
        missing; keys have `words` words of 64 bits. If none is missing in [start, stop), this reads
        no keys and so costs half of `items`, about 160 ns a row."""
        values = self._values_without_gap(start, stop, _WORD_BYTES * words)
        if values is not None:
            return values
        blocks = list(self.items(start, stop, words, batch=1 << 62))  # all rows in one block
        if not blocks:
            return np.empty(0, np.int64)
        keys, values = blocks[0]
        first = int.from_bytes(start[-_WORD_BYTES:], "big")  # the last word of `start`, as of keys
        return values[: count_consecutive(keys[-1], first)]

    def _values_without_gap(self, start: bytes, stop: bytes, key_width: int) -> Int64Array | None:
        """Return the values of the keys start, start + 1, ... below stop. Return None if one of
        them is missing in between, if there are none, or if a key or value may have another width.
        This also detects a scan that ended early."""
        with self._translating_errors():
            if self._may_have_unexpected_widths(key_width):
                return None
            snapshot = self._handle.snapshot()  # for the number of values and the last key
            rows = snapshot.values(from_key=start, read_opt=_read_options(stop))
            value_type = f"S{VALUE_BYTES + _SPARE_BYTES}"
            # Each value with one spare word, which is zero unless the value is too long.
            value_words = _to_words(np.fromiter(cast(Iterable[bytes], rows), value_type))
            # The highest key in the range.
            iterator = snapshot.iter(_read_options(stop))
            iterator.seek_to_last()
            iterator.status()
            last_key = _key_at(iterator) if iterator.valid() else None
        if not len(value_words) or value_words[:, -1].any():
            return None
        # If n distinct keys begin at `first` or later, and the last is first + n - 1, none is
        # missing.
        first = int.from_bytes(start[-_WORD_BYTES:], "big")
        last = first + len(value_words) - 1
        values: Int64Array = value_words[:, 0].astype(np.int64)
        has_no_gap = last_key == start[:-_WORD_BYTES] + last.to_bytes(_WORD_BYTES, "big")
        return values if has_no_gap else None

    def items(
        self,
        start: bytes,
        stop: bytes | None,
        words: int,
        batch: int,
        damage: Damage = None,
    ) -> Iterator[KeysAndValues]:
        """Yield (keys, values) of [start, stop) (None: to the end) in arrays of at most `batch`
        rows; keys have `words` words of 64 bits. RocksDB's iterator cannot pass damage, so the rows
        before it are yielded, and all keys after it are one range of unknown rows: it is appended
        to `damage`, or raised as `CorruptionError` if that is None."""
        last_key: bytes | None = None
        try:
            for keys, values in self._items(start, stop, words, batch):
                last_key = key_bytes(keys, -1)
                yield keys, values
        except CorruptionError as error:
            first = start if last_key is None else last_key + b"\0"  # the next possible key
            report(self._unknown_from(first, stop, error), damage)

    def _unknown_from(
        self, start: bytes, stop: bytes | None, error: CorruptionError
    ) -> UnknownRange:
        """Return [start, stop) as unknown: iterators cannot pass damage."""
        file = error.file or str(self.path)
        return UnknownRange(file, error.offset, error.reason, start, stop, MAX_SEQUENCE)

    def _items(
        self, start: bytes, stop: bytes | None, words: int, batch: int
    ) -> Iterator[KeysAndValues]:
        """Yield the rows of `items`. At damage raise `CorruptionError`, after the rows before."""
        key_width, value_width = _WORD_BYTES * words, VALUE_BYTES + _SPARE_BYTES
        row_type = np.dtype([("k", f"S{key_width + _SPARE_BYTES}"), ("v", f"S{value_width}")])
        with self._translating_errors():
            # `end_check` is made before the scan, whose end it checks (`_check_end`).
            end_check, last_key = self._handle.iter(_read_options(stop)), None
            rows = iter(self._handle.items(from_key=start, read_opt=_read_options(stop)))
        has_more = True
        while has_more:
            with self._translating_errors():
                _ = self._handle  # raises if closed meanwhile, or by a fork
                rows_read, width_error = self._read_rows(rows, row_type, key_width, batch)
            lines = _to_words(rows_read)  # of the key, its spare word, the value, its spare word
            has_more = len(rows_read) == batch and width_error is None
            if len(rows_read):
                last_key = lines[-1, :words].tobytes()
                yield _columns(lines[:, :words]), lines[:, -2].astype(np.int64)
            if width_error is not None:
                raise width_error
        with self._translating_errors():
            self._check_end(end_check, start, last_key)

    def _read_rows(
        self, rows: Iterator[Any], row_type: np.dtype[Any], key_width: int, batch: int
    ) -> tuple[_Lines, CorruptionError | None]:
        """Return (next rows, None), at most `batch`. If a key or value has another width than a
        bookie's, return the rows before it, and the error. In `row_type` a spare word of 8 bytes
        follows the key, and one the value: it is not 0 if that is too long."""
        next_rows: Iterable[Any] = islice(rows, batch)
        if self._may_have_unexpected_widths(key_width):  # measure each, as some may be too short
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

    def _may_have_unexpected_widths(self, key_width: int) -> bool:
        """Return whether the database may have keys or values of unexpected widths, from its
        tables' totals; computed once."""
        if self._unexpected_widths is None:  # a writer has written the rows of its log itself
            self._unexpected_widths = may_have_unexpected_widths(
                self.property, key_width, self._writable
            )
        return self._unexpected_widths

    def property(self, name: str) -> str:
        """Return the RocksDB property ``rocksdb.<name>``, "" if there is none."""
        with self._translating_errors():
            return self._handle.property_value(f"rocksdb.{name}") or ""

    def _check_widths(self, keys: list[bytes], key_width: int) -> None:
        """Raise `CorruptionError` for the first key that is not `key_width` bytes long."""
        if set(map(len, keys)) - {key_width}:
            odd = next(key for key in keys if len(key) != key_width)
            detail = f"key of {len(odd)} bytes, not {key_width}: {odd[:40].hex()}"
            raise CorruptionError(self.path, None, f"not a bookie's row: {detail}")

    def _check_end(self, iterator: RdictIter, start: bytes, last_key: bytes | None) -> None:
        """Raise `CorruptionError` if a scan from `start` on, whose last key was `last_key` (None:
        it had none), ended early: at damage RocksDB's iterators end silently. `iterator`, made
        before the scan, must have no further row. It sees the state of that time, so rows put
        meanwhile do not count as lost; a look-up excludes a row that was deleted meanwhile."""
        iterator.seek(start if last_key is None else last_key)
        if last_key is not None and iterator.valid() and iterator.key() == last_key:
            iterator.next()
        iterator.status()
        if iterator.valid() and self._handle.get(_key_at(iterator)) is not None:
            detail = f"scan ended before key {_key_at(iterator).hex()}"
            raise CorruptionError(self.path, None, detail)

    def read_all(self, damage: Damage = None) -> list[tuple[bytes, bytes]]:
        """Return every row; for the small `ledgers` databases. At damage return the rows before it,
        and append all keys after them as unknown to `damage`, or raise if that is None."""
        with self._translating_errors():
            end_check = self._handle.iter()
            all_rows = cast(list[tuple[bytes, bytes]], list(self._handle.items()))
        last_key = all_rows[-1][0] if all_rows else None
        try:
            with self._translating_errors():
                self._check_end(end_check, b"", last_key)
        except CorruptionError as error:
            first = b"" if last_key is None else last_key + b"\0"
            unknown = self._unknown_from(first, stop=None, error=error)
            report(name_ledgers(unknown, self.path), damage)
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

    def last_key(self, start: bytes, stop: bytes, words: int) -> bytes | None:
        """Return the highest key of [start, stop), None if there is none; raise `CorruptionError`
        if it does not have `words` words of 64 bits. One seek."""
        with self._translating_errors():
            iterator = self._handle.iter(_read_options(stop))
            iterator.seek_to_last()
            iterator.status()
            key = _key_at(iterator) if iterator.valid() else None
        if key is None or key < start:
            return None
        self._check_widths([key], _WORD_BYTES * words)
        return key

    def key_prefixes(self, words: int, damage: Damage = None) -> list[bytes]:
        """Return the distinct prefixes of keys, which are all words but the last: of `locations`
        the ledger ids. They are in order; each takes one seek. With `damage`, all keys from the
        first seek that fails are appended there as unknown."""
        prefixes: list[bytes] = []
        prefix_bytes = _WORD_BYTES * (words - 1)
        next_number = 0  # the lowest prefix that may follow, as a number
        while not next_number >> 8 * prefix_bytes:  # until all prefixes of this length are tried
            prefix = next_number.to_bytes(prefix_bytes, "big")
            try:
                key = self.seek(prefix)
            except CorruptionError as error:
                report(self._unknown_from(prefix, stop=None, error=error), damage)
                break
            if key is None:
                break
            self._check_widths([key], _WORD_BYTES * words)
            prefixes.append(key[:prefix_bytes])
            next_number = int.from_bytes(prefixes[-1], "big") + 1
        return prefixes

    def end_rows(self, words: int | None) -> list[tuple[bytes, bytes | None]]:
        """Return the first and the last row as (key, value); empty if there are none. `words`, the
        width of keys, is for implementations that need it."""
        with self._translating_errors():
            iterator = self._handle.iter()
            end_rows: list[tuple[bytes, bytes | None]] = []
            for seek in (iterator.seek_to_first, iterator.seek_to_last):
                seek()
                iterator.status()
                if iterator.valid():
                    end_rows.append((_key_at(iterator), cast(bytes, iterator.value())))
            return end_rows

    def estimate_rows(self, prefixes: Sequence[bytes]) -> Int64Array:
        """Inherited. By the highest entry id of each: if there are gaps, that is too much, and all
        are scaled down to the rows that RocksDB takes the database to have."""
        rows = np.zeros(len(prefixes), np.int64)
        for number, prefix in enumerate(prefixes):
            stop = prefix + b"\xff" * _WORD_BYTES
            try:
                key = self.last_key(prefix + bytes(_WORD_BYTES), stop, len(stop) // _WORD_BYTES)
            except CorruptionError:  # reading the rows reports it
                continue
            rows[number] = 0 if key is None else int.from_bytes(key[-_WORD_BYTES:], "big") + 1
        total, max_rows = float(rows.sum(dtype=np.float64)), self.sizes().estimated_rows
        return rows if total <= max_rows else (rows * (max_rows / total)).astype(np.int64)

    def sizes(self) -> DatabaseSizes:
        """Return the sizes of the database, from RocksDB's properties."""
        totals = read_table_totals(self.property)
        return DatabaseSizes(
            self.path,
            table_bytes=int(self.property("live-sst-files-size") or 0),
            table_entries=totals.get("# entries", 0),
            tombstones=totals.get("# deletions", 0),
            range_tombstones=totals.get("# range deletions", 0),
            estimated_rows=int(self.property("estimate-num-keys") or 0),
            unflushed_entries=int(self.property(UNFLUSHED_ENTRIES) or 0),
            row_bytes=totals.get("raw key size", 0) + totals.get("raw value size", 0),
            index_block_bytes=totals.get("index block size", 0),
            filter_block_bytes=totals.get("filter block size", 0),
        )

    # -- writing

    @contextmanager
    def _write_handle(self) -> Iterator[Rdict]:
        """Yield the database to write to; I/O errors of RocksDB become `WriteFailed`, others what
        they become in reads."""
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


def _read_options(stop: bytes | None) -> ReadOptions:
    options = ReadOptions()
    if stop is not None:
        options.set_iterate_upper_bound(stop)
    return options


def _to_words(rows: npt.NDArray[Any]) -> _Lines:
    return rows.view(">i8").reshape(-1, rows.itemsize // 8)


def _columns(lines: _Lines) -> KeyColumns:
    """Return big-endian words, a line for each row, as a line for each word."""
    return np.ascontiguousarray(lines.T, np.int64)


def _key_at(iterator: RdictIter) -> bytes:
    return cast(bytes, iterator.key())
