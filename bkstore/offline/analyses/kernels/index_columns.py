"""Columns of batches as arrays, validated: no nulls, no impossible ids or groups. With nulls, numpy
would convert through floats, which round ids above 2^53; impossible entry ids would overflow into
other ledgers' rows. Validation costs some 0.2 ns per entry, 5 ns per group."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bkstore.availability.sequence_groups import INT32_MAX, Groups
from bkstore.errors import CorruptionError
from bkstore.ids import MAX_ENTRY_ID, Int64Array
from bkstore.tables import GROUPS

if TYPE_CHECKING:
    import pyarrow as pa

_GROUP_COLUMNS = GROUPS.names[3:]


def int64(batch: pa.RecordBatch, name: str) -> Int64Array:
    """Return an integer column as int64; raises `CorruptionError` for nulls."""
    values: Int64Array = _column_without_nulls(batch, name).to_numpy(zero_copy_only=False)
    return values.astype(np.int64, copy=False)


def dictionary_codes(batch: pa.RecordBatch, name: str) -> tuple[Int64Array, list[str]]:
    """Return a text column as (row codes, texts); raises `CorruptionError` for nulls. O(rows)."""
    encoded = _column_without_nulls(batch, name).dictionary_encode()
    row_codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return row_codes, encoded.dictionary.to_pylist()


def _column_without_nulls(batch: pa.RecordBatch, name: str) -> pa.Array:
    column = batch.column(name)
    if column.null_count:
        raise CorruptionError(None, None, f"null in column {name}")
    return column


def entry_ids(batch: pa.RecordBatch) -> Int64Array:
    """Return column `entry_id`; raises `CorruptionError` for an id out of range."""
    ids = int64(batch, "entry_id")
    # Negative ids are large as unsigned numbers, so one comparison covers both ends.
    if ids.size and int(ids.view(np.uint64).max()) > MAX_ENTRY_ID:
        first_bad = ids[(ids < 0) | (ids > MAX_ENTRY_ID)][0]
        raise CorruptionError(None, None, f"entry id {first_bad} is outside 0..{MAX_ENTRY_ID}")
    return ids


def read_groups(batch: pa.RecordBatch, rows: Int64Array | None = None) -> Groups:
    """Return the columns of sequence groups, of the given rows or of all. Raises `CorruptionError`
    for an inconsistent group. The period of a single sequence becomes 0."""
    groups = Groups(*(int64(batch, name) for name in _GROUP_COLUMNS))
    if rows is not None:
        groups = groups.take(rows)
    first, last, size, period = groups
    has_period = last != first
    is_invalid = (first < 0) | (last < first) | (size < 1) | (last > MAX_ENTRY_ID + 1 - size)
    is_invalid |= has_period & ((period <= size) | (period > INT32_MAX))
    is_invalid |= (last - first) % np.maximum(period, 1) != 0
    if is_invalid.any():
        row = int(np.argmax(is_invalid))
        text = ", ".join(f"{name} {column[row]}" for name, column in zip(_GROUP_COLUMNS, groups))
        raise CorruptionError(None, None, f"not a sequence group of entries: {text}")
    return groups._replace(period=np.where(has_period, period, 0))


def check_columns(batch: pa.RecordBatch) -> None:
    """Raise `CorruptionError` for a batch that kernels would refuse."""
    for name in batch.schema.names:
        _column_without_nulls(batch, name)
    if "entry_id" in batch.schema.names:
        entry_ids(batch)
    if set(_GROUP_COLUMNS) <= set(batch.schema.names):
        read_groups(batch)
