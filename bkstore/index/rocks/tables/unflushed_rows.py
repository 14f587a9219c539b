"""The rows of a database's write-ahead logs, sorted: those that are in no table file yet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from bkstore.formats.rocksdb.keys import DELETIONS, ValueType
from bkstore.formats.rocksdb.log.write_batch import BatchRows
from bkstore.formats.rocksdb.table.entries import FoundRow
from bkstore.formats.rocksdb.table.range_deletes import RangeDelete
from bkstore.formats.rocksdb.table.rows import VersionedRows, join_rows
from bkstore.ids import Int64Array
from bkstore.index.rocks.files.log_file import FramedLogReader
from bkstore.index.rocks.tables.damage import Damage, UnknownRange, odd_row, report
from bkstore.index.rocks.tables.key_order import (
    WORD_BYTES,
    as_words,
    compare_keys,
    next_key,
    rows_between,
)

_BATCH_ROWS = 1 << 16
_VALUE_BYTES = 8

Version = tuple[bytes, int, int, bytes]
"""(key, sequence number, type, value) of one row."""


class UnflushedRows:
    """The rows of `parts`, each a batch of one log file: kept as they are in the logs until they
    are first read as arrays. `range_deletes` are the range deletes among them."""

    def __init__(self, parts: list[tuple[Path, BatchRows]]) -> None:
        """Take the batches of write-ahead logs, each with the log's path."""
        self._parts = parts
        self._sorted: dict[int, tuple[VersionedRows, list[UnknownRange]]] = {}
        self.range_deletes = [
            RangeDelete(batch.key(row), batch.value(row), int(batch.sequences[row]))
            for _, batch in parts
            for row in np.flatnonzero(batch.kinds == ValueType.RANGE_DELETION).tolist()
        ]
        self.row_count = sum(batch.sequences.size for _, batch in parts)
        is_deletion = [np.isin(batch.kinds, DELETIONS) for _, batch in parts]
        self.deletion_count = sum(int(each.sum()) for each in is_deletion)

    def versions(self) -> Iterator[Version]:
        """Yield all rows except range deletes, of any width, in no order. They are in the arrays of
        `_sorted_rows` if those were made and have them all, otherwise in the batches of the logs.
        """
        for rows, _ in self._sorted.values() if not self._parts else ():
            for row, kind in enumerate(rows.types.tolist()):
                value = int(rows.values[row]).to_bytes(_VALUE_BYTES, "big", signed=True)
                stored = value if kind == ValueType.VALUE else b""
                yield rows.key_at(row), int(rows.sequences[row]), kind, stored
        for _, batch in self._parts:
            for row in np.flatnonzero(batch.kinds != ValueType.RANGE_DELETION).tolist():
                sequence, kind = int(batch.sequences[row]), int(batch.kinds[row])
                yield batch.key(row), sequence, kind, batch.value(row)

    def end_keys(self, words: int | None = None) -> list[bytes]:
        """Return the lowest and the highest key of the rows; empty if there are none. With `words`,
        only of the rows whose keys have `words` * 8 bytes."""
        if words is None:
            keys = [key for key, _, _, _ in self.versions()]
            return [min(keys), max(keys)] if keys else []
        rows, _ = self._sorted_rows(words)
        return [rows.key_at(0), rows.key_at(-1)] if len(rows) else []

    def rows(
        self,
        words: int,
        start: bytes | None = None,
        stop: bytes | None = None,
        damage: Damage = None,
    ) -> Iterator[VersionedRows]:
        """Yield the rows in [start, stop) (None: no limit) except range deletes, in batches in
        order: by key, of one key newest first. A row whose key has another width than `words` * 8
        bytes, or whose value another than 8, counts as unknown: it is appended to `damage`, or
        raised if that is None. The first call sorts, some 200 ns a row."""
        rows, odd_rows = self._sorted_rows(words)
        for unknown in odd_rows:
            if unknown.overlaps(start, stop):
                report(unknown, damage)
        first = None if start is None else as_words([start], words)[:, 0]
        end = None if stop is None else as_words([stop], words)[:, 0]
        rows = rows_between(rows, first, end)
        for row in range(0, len(rows), _BATCH_ROWS):
            yield rows.take(slice(row, row + _BATCH_ROWS))

    def find_newest(self, key: bytes) -> list[FoundRow]:
        """Return the newest row of a key, which has 8 bytes a word, in a list; empty if there is
        none. Raises `CorruptionError` as `rows`. Some 30 us."""
        if not self.row_count:
            return []
        for rows in self.rows(len(key) // WORD_BYTES, key, next_key(key)):
            value = b""
            if rows.types[0] == ValueType.VALUE:
                value = int(rows.values[0]).to_bytes(_VALUE_BYTES, "big", signed=True)
            return [FoundRow(key, int(rows.sequences[0]), int(rows.types[0]), value)]
        return []

    def _sorted_rows(self, words: int) -> tuple[VersionedRows, list[UnknownRange]]:
        """Return all rows of this width in order, by key and newest first, and all others, each as
        the range of its one key, which is unknown."""
        if words not in self._sorted:
            if self.row_count and not self._parts:
                raise ValueError(f"keys have other widths than {WORD_BYTES * words} bytes")
            odd_rows: list[UnknownRange] = []
            decoded = [_decode(path, batch, words, odd_rows) for path, batch in self._parts]
            rows = join_rows(decoded, words)
            # Sort only if needed: rows that were written in the order of keys are in order.
            lower, equal = compare_keys(rows.keys[:, :-1], rows.keys[:, 1:])
            if not (lower | (equal & (rows.sequences[:-1] > rows.sequences[1:]))).all():
                rows = rows.take(np.lexsort([-rows.sequences, *rows.keys[::-1]]))
            self._sorted[words] = rows, odd_rows
            if not odd_rows:  # the arrays have all rows, in a third of the batches' memory
                self._parts = []
        return self._sorted[words]


def read_logs(logs: Iterable[FramedLogReader]) -> UnflushedRows:
    """Return the rows of write-ahead logs. Raises `CorruptionError` with file and offset for
    damage, `UnsupportedLayout` for what a bookie does not write."""
    return UnflushedRows([(log.path, batch) for log in logs for batch in log.rows()])


def _decode(
    path: Path, batch: BatchRows, words: int, odd_rows: list[UnknownRange]
) -> VersionedRows:
    """Return the rows of the log at `path` that have keys of `words` * 8 bytes and values of a
    location's width, in the order written, without range deletes. The others are appended to
    `odd_rows`, without deletes: these are of keys that no regular row has."""
    kept = np.flatnonzero(batch.kinds != ValueType.RANGE_DELETION)
    # Keys have the width of the database, values that of a location, and deletes have none.
    is_put = batch.kinds[kept] == ValueType.VALUE
    is_odd = batch.key_sizes[kept] != WORD_BYTES * words
    is_odd |= batch.value_sizes[kept] != np.where(is_put, _VALUE_BYTES, 0)
    if is_odd.any():
        for row in kept[is_odd & is_put].tolist():
            key_and_value = batch.key(row), batch.value(row)
            odd_rows.append(odd_row(str(path), None, key_and_value, int(batch.sequences[row])))
        kept, is_put = kept[~is_odd], is_put[~is_odd]
    kinds, key_offsets = batch.kinds[kept], batch.key_offsets[kept]
    data = np.frombuffer(batch.data, np.uint8)
    keys = [_words_at(data, key_offsets + WORD_BYTES * word) for word in range(words)]
    values = np.zeros(kept.size, np.int64)
    values[is_put] = _words_at(data, batch.value_offsets[kept[is_put]]).astype(np.int64)
    return VersionedRows(np.stack(keys), values, batch.sequences[kept], kinds)


def _words_at(data: np.ndarray[tuple[int], np.dtype[np.uint8]], offsets: Int64Array) -> np.ndarray:
    """Return the big-endian words at these offsets."""
    if not offsets.size:
        return np.empty(0, np.uint64)
    # A view of the word at each byte offset: words that overlap, one byte apart.
    count = data.size - WORD_BYTES + 1
    view = np.ndarray((count,), ">u8", data, strides=(1,))
    return view[offsets].astype(np.uint64)
