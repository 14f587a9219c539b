"""What reading an index needs of its databases. There are two implementations: `Database` (RocksDB,
for writers) and those of `table_database` (the files as arrays, for readers)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bkstore.ids import Int64Array
from bkstore.index.rocks.tables.damage import Damage

KeyColumns = Int64Array
"""Keys as int64[words, n]: a line for each word, big-endian in the database."""

KeysAndValues = tuple[KeyColumns, Int64Array]
"""The keys of rows, and their values, which have one word each: int64[n]."""


@dataclass(frozen=True, slots=True)
class DatabaseSizes:
    """The sizes of one database, from the properties of its table files. `table_bytes` is the size
    of the table files in use. `table_entries` counts all entries in them, tombstones and hidden
    rows included; `tombstones` counts all tombstones, `range_tombstones` those of a range, as a
    deleted ledger leaves. `estimated_rows` is RocksDB's `estimate-num-keys`, which ignores range
    tombstones. `unflushed_entries` entries are only in the write-ahead log. `row_bytes` counts keys
    and values before compression (with the 8 bytes that RocksDB adds to a key), `index_block_bytes`
    and `filter_block_bytes` the blocks beside them."""

    path: Path
    table_bytes: int
    table_entries: int
    tombstones: int
    range_tombstones: int
    estimated_rows: int
    unflushed_entries: int
    row_bytes: int
    index_block_bytes: int
    filter_block_bytes: int


class ReadableDatabase(Protocol):
    """A database that is open. `oddities` has what the check of its files found, as (file, offset,
    detail). All calls raise `CorruptionError` for damage, `IllegalOperation` once it is closed."""

    path: Path
    oddities: list[tuple[Path, int | None, str]]

    def get(self, key: bytes) -> bytes | None:
        """Return one value, None if absent."""

    def end_rows(self, words: int | None) -> list[tuple[bytes, bytes | None]]:
        """Return the first and the last row; empty if there are none. `words` are those
        of the keys, None for any. A value that is not at hand is None; then the row may have been
        deleted."""

    def sizes(self) -> DatabaseSizes:
        """Return the sizes of the database; reads no row."""

    def close(self) -> None:
        """Close; idempotent."""


class LedgersDatabase(ReadableDatabase, Protocol):
    """A `ledgers` database: few rows, with values of any width."""

    def read_all(self, damage: Damage = None) -> list[tuple[bytes, bytes]]:
        """Return every row, in the order of keys. With `damage`, unknown ranges are appended there,
        and the rows that are certain are returned."""


class LocationsDatabase(ReadableDatabase, Protocol):
    """A `locations` database: keys of `words` * 8 bytes, values of 8. Ranges are [start, stop)."""

    def get_list(self, keys: list[bytes]) -> list[bytes | None]:
        """Return a value or None for each key; sorted keys are faster."""

    def max_scanned(self, key_count: int) -> int:
        """Return the number of rows up to which `items` reads a range faster than `key_count` keys
        are looked up one by one."""

    def keys(self, start: bytes, stop: bytes, words: int) -> KeyColumns:
        """Return the keys of a range."""

    def may_be_long(self, start: bytes, stop: bytes) -> bool:
        """Return whether a range may have more keys than should be in memory at once."""

    def key_blocks(self, start: bytes, stop: bytes, words: int) -> Iterator[KeyColumns]:
        """Yield the result of `keys` in arrays, short ones first; raises for damage after the rows
        before it."""

    def items(
        self,
        start: bytes,
        stop: bytes | None,
        words: int,
        batch: int,
        damage: Damage = None,
    ) -> Iterator[KeysAndValues]:
        """Yield (keys, values) of the rows of [start, stop) (None: to the end) in arrays of at most
        `batch` rows; keys have `words` words of 64 bits. With `damage` None, damage raises
        `CorruptionError` after the rows before it; otherwise the range of keys that it makes
        unknown is appended to `damage`, and rows of undamaged blocks follow."""

    def consecutive_values(self, start: bytes, stop: bytes, words: int) -> Int64Array:
        """Return the values of `start` and the keys that follow it without a gap."""

    def last_key(self, start: bytes, stop: bytes, words: int) -> bytes | None:
        """Return the highest key of a range, None if there is none."""

    def estimate_rows(self, prefixes: Sequence[bytes]) -> Int64Array:
        """Return about how many rows have keys with each of the `prefixes`, int64[n]: sorted keys
        without their last word. Rows in damaged files may not be counted."""

    def key_prefixes(self, words: int, damage: Damage = None) -> list[bytes]:
        """Return what the keys are without their last word, each once, in order. With `damage`,
        unknown ranges are appended there, and prefixes of keys that are certain are returned."""
