"""The rows of a table file with keys and values of any width, one at a time, for small databases.
Each block is checked as in `block_rows`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bkstore.errors import CorruptionError, UnsupportedLayout
from bkstore.formats.rocksdb.keys import (
    MAX_SEQUENCE,
    READABLE_TYPES,
    ValueType,
    describe_type,
    split_internal_key,
)
from bkstore.formats.rocksdb.table.entries import block_entries
from bkstore.formats.rocksdb.table.rows import VersionedRows
from bkstore.index.rocks.tables.damage import Damage, report
from bkstore.index.rocks.tables.key_order import WORD_BYTES, as_words
from bkstore.index.rocks.tables.table_reader import TableReader, block_handle

Version = tuple[bytes, int, int, bytes]
"""(key, sequence number, type, value) of one row."""

_READABLE = frozenset(int(code) for code in READABLE_TYPES)


def read_versions(table: TableReader, damage: Damage = None) -> Iterator[Version]:
    """Yield all versions (key, sequence number, type, value) of all keys in a file, in order: by
    key, of one key newest first. Raises `CorruptionError` for damage, also if there are fewer rows
    than the properties say; `UnsupportedLayout` for blocks with something that is not read here,
    such as rows of other types than values and deletions. With `damage`, ranges of blocks that fail
    for either reason are appended there and passed over. Some 3 us a row.
    """
    row_count = deletion_count = 0
    is_whole = True  # whether all blocks were read, so that counts can be compared
    # Rows are in the order of (key, MAX_SEQUENCE - sequence), that is, of one key newest first.
    # `before` is that pair of the row before: it must ascend from block to block too.
    before: tuple[bytes, int] | None = None
    for block in range(len(table.index)):
        try:
            versions = block_versions(table, block)
            first_key, first_sequence = versions[0][:2]
            if before is not None and before >= (first_key, MAX_SEQUENCE - first_sequence):
                raise CorruptionError(None, None, "keys of rows are out of order")
        except UnsupportedLayout as error:
            reason = str(error).removeprefix(f"{table.path}: ")
            if damage is None:
                raise UnsupportedLayout(f"{table.path}: {reason}") from None
            report(table.unknown_block(block, CorruptionError(None, None, reason)), damage)
            is_whole = False
            continue
        except CorruptionError as error:
            report(table.unknown_block(block, error), damage)
            is_whole = False
            continue
        last_key, last_sequence, _, _ = versions[-1]
        before = last_key, MAX_SEQUENCE - last_sequence
        row_count += len(versions)
        deletion_count += sum(code != ValueType.VALUE for _, _, code, _ in versions)
        yield from versions
    # The properties count range deletes as rows and as deletions; they are in a block of their own.
    row_count += len(table.range_deletes)
    deletion_count += len(table.range_deletes)
    properties = table.properties
    if is_whole and (row_count, deletion_count) != (properties.entries, properties.deletions):
        stated = f"{properties.entries} rows and {properties.deletions} deletions"
        reason = f"has {row_count} rows and {deletion_count} deletions, its properties {stated}"
        raise CorruptionError(table.path, None, reason)


def block_versions(table: TableReader, block: int) -> list[Version]:
    """Return the rows of one data block. They are in order, within the limits that the index states
    for the block, and among the keys and sequence numbers that the manifest states for the file;
    otherwise raises `CorruptionError`, without the file. Raises `UnsupportedLayout` for rows of
    types that are not read."""
    versions: list[Version] = []
    before = (b"", -1)  # below any row
    for entry in block_entries(table.read_block(block_handle(table.index, block))):
        key, sequence, code = split_internal_key(entry.key)
        if code not in _READABLE:
            _refuse_type(table, code)
        if table.sequence_of_all is not None:  # an ingested file: one number for all rows
            if sequence:
                raise CorruptionError(None, None, "row of an ingested file has a sequence number")
            sequence = table.sequence_of_all
        order = (key, MAX_SEQUENCE - sequence)
        if order <= before:
            raise CorruptionError(None, None, "keys of rows are out of order")
        before = order
        versions.append((key, sequence, code, entry.value))
    if not versions:
        raise CorruptionError(None, None, "data block has no rows")
    sequences = [sequence for _, sequence, _, _ in versions]
    first_key, last_key = versions[0][0], versions[-1][0]
    table.check_listed((first_key, last_key), (min(sequences), max(sequences)))
    # A block's keys are above the separator before it, and at or below its own. In some files a key
    # with many versions may continue in the next block, and so equal the separator before.
    separators = table.index.separators
    low = separators[block - 1] if block else None
    is_low = low is not None and (
        first_key < low or (first_key == low and not table.index.may_continue)
    )
    if is_low or last_key > separators[block]:
        raise CorruptionError(None, None, "rows of the block are not where the index has them")
    return versions


def split_versions(versions: list[Version], words: int) -> tuple[VersionedRows, list[Version]]:
    """Return (rows of regular width, as arrays; all others). Regular are keys of `words` * 8 bytes
    with values of 8 bytes, or in deletions with an empty value."""
    kept: list[Version] = []
    odd: list[Version] = []
    for version in versions:
        key, _, code, value = version
        value_bytes = WORD_BYTES if code == ValueType.VALUE else 0
        is_odd = len(key) != WORD_BYTES * words or len(value) != value_bytes
        (odd if is_odd else kept).append(version)
    values = [int.from_bytes(value, "big", signed=True) for _, _, _, value in kept]
    rows = VersionedRows(
        as_words([key for key, _, _, _ in kept], words),
        np.array(values, np.int64),
        np.array([sequence for _, sequence, _, _ in kept], np.int64),
        np.array([code for _, _, code, _ in kept], np.uint8),
    )
    return rows, odd


def _refuse_type(table: TableReader, code: int) -> None:
    if code in set(ValueType):
        raise UnsupportedLayout(f"{table.path}: row of type {describe_type(code)}: not supported")
    raise CorruptionError(None, None, f"row has an unknown type: {code}")
