"""Columns of batches as arrays, refused where they hold what no index has.

Nulls would go through floats, which round ids above 2^53, and ids that are none would overflow
into other ledgers' rows. A look costs some 0.2 ns an entry, 5 ns a group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bkstore.availability.sequence_groups import INT32_MAX, Groups
from bkstore.errors import CorruptionError
from bkstore.ids import MAX_ENTRY_ID, Int64Array
from bkstore.tables import GROUPS

if TYPE_CHECKING:
    import pyarrow as pa

_GROUP = GROUPS.names[3:]


def int64(batch: pa.RecordBatch, name: str) -> Int64Array:
    """Return an integer column as int64; `CorruptionError` for nulls."""
    found: Int64Array = _whole(batch, name).to_numpy(zero_copy_only=False)
    return found.astype(np.int64, copy=False)


def codes(batch: pa.RecordBatch, name: str) -> tuple[Int64Array, list[str]]:
    """Return (number of each row's text, the texts) of a text column; `CorruptionError` for nulls.
    O(rows).
    """
    made = _whole(batch, name).dictionary_encode()
    numbers = made.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers, made.dictionary.to_pylist()


def _whole(batch: pa.RecordBatch, name: str) -> pa.Array:
    column = batch.column(name)
    if column.null_count:
        raise CorruptionError(None, None, f"null in column {name}")
    return column


def entry_ids(batch: pa.RecordBatch) -> Int64Array:
    """Return column `entry_id`; `CorruptionError` for ids that no entry has."""
    ids = int64(batch, "entry_id")
    if ids.size and int(ids.view(np.uint64).max()) > MAX_ENTRY_ID:  # negative ones are above too
        bad = ids[(ids < 0) | (ids > MAX_ENTRY_ID)][0]
        raise CorruptionError(None, None, f"entry id {bad} is outside 0..{MAX_ENTRY_ID}")
    return ids


def groups_of(batch: pa.RecordBatch, rows: Int64Array | None = None) -> Groups:
    """Return the columns of sequence groups, of these rows or all; `CorruptionError` for one that
    contradicts itself.
    """
    groups = Groups(*(int64(batch, name) for name in _GROUP))
    if rows is not None:
        groups = groups.take(rows)
    first, last, size, period = groups
    many = last != first
    bad = (first < 0) | (last < first) | (size < 1) | (last > MAX_ENTRY_ID + 1 - size)
    bad |= many & ((period <= size) | (period > INT32_MAX))
    bad |= (last - first) % np.maximum(period, 1) != 0
    if bad.any():
        at = int(np.argmax(bad))
        shown = ", ".join(f"{name} {column[at]}" for name, column in zip(_GROUP, groups))
        raise CorruptionError(None, None, f"no sequence group of entries: {shown}")
    return groups._replace(period=np.where(many, period, 0))


def check_columns(batch: pa.RecordBatch) -> None:
    """Raise `CorruptionError` for a batch of rows that kernels would refuse."""
    for name in batch.schema.names:
        _whole(batch, name)
    if "entry_id" in batch.schema.names:
        entry_ids(batch)
    if set(_GROUP) <= set(batch.schema.names):
        groups_of(batch)
