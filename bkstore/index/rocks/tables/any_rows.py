"""The rows of a table file with keys and values of any width, one at a time: for small databases,
and for one key. Each block is checked as in `block_rows`."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from bkstore.errors import CorruptionError, UnsupportedLayout
from bkstore.formats.rocksdb.keys import (
    MAX_SEQUENCE,
    READABLE_TYPES,
    ValueType,
    describe_type,
    split_internal_key,
)
from bkstore.formats.rocksdb.table.entries import block_entries
from bkstore.index.rocks.tables.table_reader import TableReader, index_handles

Version = tuple[bytes, int, int, bytes]
"""(key, sequence number, type, value) of one row."""


def read_versions(table: TableReader) -> Iterator[Version]:
    """Yield the rows of a file in order: by key, of one key newest first. Raises `CorruptionError`
    for damage, also if there are fewer rows than the properties say; `UnsupportedLayout` for rows
    of other types than values and deletions. Some 4 us a row."""
    row_count = deletion_count = 0
    before: tuple[bytes, int] | None = None
    for block in range(len(table.index)):
        for key, sequence, code, value in _block_versions(table, block):
            if before is not None and before >= (key, MAX_SEQUENCE - sequence):
                raise _error(table, block, "keys of rows are out of order")
            before = key, MAX_SEQUENCE - sequence
            row_count += 1
            deletion_count += code != ValueType.VALUE
            yield key, sequence, code, value
    counts = row_count + len(table.range_deletes), deletion_count + len(table.range_deletes)
    properties = table.properties
    if counts != (properties.entries, properties.deletions):
        stated = f"{properties.entries} rows and {properties.deletions} deletions"
        reason = f"has {counts[0]} rows and {counts[1]} deletions, its properties {stated}"
        raise CorruptionError(table.path, None, reason)


def find_newest(table: TableReader, key: bytes) -> Version | None:
    """Return the newest row of one key in a file, None if it has none. Reads one block, or two.
    Raises as `read_versions`, for these blocks."""
    for block in range(bisect_left(table.index.separators, key), len(table.index)):
        for version in _block_versions(table, block):
            if version[0] >= key:
                return version if version[0] == key else None
    return None


def _block_versions(table: TableReader, block: int) -> Iterator[Version]:
    """Yield the rows of one data block, checked to lie where the index has them."""
    separators = table.index.separators
    low, high = separators[block - 1] if block else None, separators[block]
    try:
        entries = list(block_entries(table.read_block(index_handles(table.index)[block])))
        if not entries:
            raise CorruptionError(None, None, "data block has no rows")
        for entry in entries:
            key, sequence, code = split_internal_key(entry.key)
            if code not in READABLE_TYPES:
                _refuse_type(table, code)
            is_low = low is not None and (
                key < low or (key == low and not table.index.may_continue)
            )
            if key > high or is_low:
                reason = "rows of the block are not where the index has them"
                raise CorruptionError(None, None, reason)
            if table.sequence_of_all is not None:
                if sequence:
                    reason = "row of an ingested file has a sequence number"
                    raise CorruptionError(None, None, reason)
                sequence = table.sequence_of_all
            yield key, sequence, code, entry.value
    except CorruptionError as error:
        raise error if error.file else _error(table, block, error.reason) from None


def _refuse_type(table: TableReader, code: int) -> None:
    if code in set(ValueType):
        raise UnsupportedLayout(f"{table.path}: row of type {describe_type(code)}: not supported")
    raise CorruptionError(None, None, f"row has an unknown type: {code}")


def _error(table: TableReader, block: int, reason: str) -> CorruptionError:
    return CorruptionError(table.path, int(table.index.offsets[block]), reason)
