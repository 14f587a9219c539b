"""Keys of the RocksDB databases, as bytes and arrays, and their widths: `docs/formats/rocksdb.md`.

    locations        i64 ledger, i64 entry                 -> i64 location
    locations-128    u64 scope, i64 ledger, i64 entry      -> i64 location   (ours)
    ledgers          i64 ledger                            -> LedgerData
    ledgers-128      u64 scope, u64 ledger                 -> LedgerData     (ours)

Big-endian, so that RocksDB's bytewise order is unsigned numeric order. Persisted: do not
renumber. Source: `bookie/storage/ldb/EntryLocationIndex`, `LongPairWrapper`.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from bkstore.ids import MAX_ENTRY_ID, Int64Array, LedgerId
from bkstore.index.rocks.tables.damage import UnknownRange

_NARROW = struct.Struct(">QQ")
_WIDE = struct.Struct(">QQQ")

VALUE_BYTES = 8  # a location
_SEQUENCE_BYTES = 8  # sequence number and type, which RocksDB adds to each key
UNFLUSHED_ENTRIES = "num-entries-active-mem-table"
_TABLE_TOTAL = re.compile(r"([a-z#][a-z #]*?)(?: \([^)]*\))?=(\d+)(?:;|$)")

ReadProperty = Callable[[str], str]
"""Returns the RocksDB property ``rocksdb.<name>``, "" if there is none."""

KeyRange = tuple[bytes, bytes | None]
"""The first key, and the one after the last (None: to the end)."""

MAX_UNSCOPED_LEDGER = 2**63 - 1
"""The highest ledger of scope 0."""

_LAST_LEDGERS = {LedgerId(0, MAX_UNSCOPED_LEDGER), LedgerId(2**64 - 1, 2**64 - 1)}
"""The highest ledgers of the databases."""

NARROW_WORDS, WIDE_WORDS = 2, 3  # of 8 bytes, of a location's key: scope 0, others


def key_words(ledger: LedgerId) -> int:
    """Return the words of the ledger's location keys: 2 for scope 0, else 3."""
    return WIDE_WORDS if ledger.scope else NARROW_WORDS


def ledger_key(ledger: LedgerId) -> bytes:
    """Return the ledger's row key: 8 bytes for scope 0, else 16."""
    number_bytes = ledger.ledger.to_bytes(8, "big")
    return ledger.scope.to_bytes(8, "big") + number_bytes if ledger.scope else number_bytes


def entry_key(ledger: LedgerId, entry_id: int) -> bytes:
    """Return the location key of one entry.

    >>> entry_key(LedgerId(ledger=5), 7).hex()
    '00000000000000050000000000000007'
    """
    scope, number = ledger
    return _WIDE.pack(scope, number, entry_id) if scope else _NARROW.pack(number, entry_id)


def key_bytes(keys: Int64Array, row: int) -> bytes:
    """Return one of the keys in int64[words, n] as bytes.

    >>> key_bytes(np.array([[5], [7]]), 0).hex()
    '00000000000000050000000000000007'
    """
    return keys[:, row].astype(">i8").tobytes()


def ledger_range(ledger: LedgerId, first: int = 0, last: int | None = None) -> tuple[bytes, bytes]:
    """Return (from, to) keys of first..last; `to` is exclusive."""
    stop = MAX_ENTRY_ID if last is None else min(last, MAX_ENTRY_ID)
    first = min(max(first, 0), MAX_ENTRY_ID + 1)
    return entry_key(ledger, first), entry_key(ledger, max(stop + 1, 0))


def ledgers_between(
    ledger_ids: Sequence[LedgerId], start: bytes, stop: bytes | None
) -> Sequence[LedgerId]:
    """Return those of `ledger_ids` whose range of location keys overlaps [start, stop) (None: to
    the end). They must be sorted, and all in scope 0 or all in other scopes.

    >>> ledger_ids = [LedgerId(0, number) for number in range(5)]
    >>> start, stop = entry_key(ledger_ids[1], 9), entry_key(ledger_ids[3], 0)
    >>> [ledger_id.ledger for ledger_id in ledgers_between(ledger_ids, start, stop)]
    [1, 2]
    """

    def first_key(ledger_id: LedgerId) -> bytes:
        return ledger_range(ledger_id)[0]

    def end_key(ledger_id: LedgerId) -> bytes:
        return ledger_range(ledger_id)[1]

    first = bisect_right(ledger_ids, start, key=end_key)
    end = len(ledger_ids) if stop is None else bisect_left(ledger_ids, stop, key=first_key)
    return ledger_ids[first:end]


def ledgers_of_keys(
    start: bytes, stop: bytes | None, is_scoped: bool
) -> tuple[LedgerId, LedgerId] | None:
    """Return the first and the last ledger that may have a row of `ledgers` with a key in
    [start, stop) (None: to the end), or None if there are none: negative ids are no ledgers.
    `is_scoped`: keys are of scopes other than 0. Those of scope 0 may have eight zeros at the end.

    >>> first, last = ledgers_of_keys(bytes(7) + bytes([5, 0]), bytes(7) + bytes([9]), False)
    >>> first.ledger, last.ledger
    (5, 8)
    """
    width, zeros = (16, b"") if is_scoped else (8, bytes(8))
    lowest, highest = (1 << 64, (1 << 128) - 1) if is_scoped else (0, MAX_UNSCOPED_LEDGER)
    first = int.from_bytes(start[:width].ljust(width, b"\0"), "big")
    first += first.to_bytes(width, "big") + zeros < start  # all of its keys are below
    last = highest
    if stop is not None:
        last = int.from_bytes(stop[:width].ljust(width, b"\0"), "big")
        last -= last.to_bytes(width, "big") >= stop
    first, last = max(first, lowest), min(last, highest)
    if first > last:
        return None
    return LedgerId(*divmod(first, 1 << 64)), LedgerId(*divmod(last, 1 << 64))


def name_ledgers(unknown: UnknownRange, path: Path) -> UnknownRange:
    """Return an unknown range of the `ledgers` database at `path` with the ledgers as its subject,
    if it has some.

    >>> unknown = UnknownRange("9.sst", 0, "damaged", bytes(7) + b"\\5", bytes(7) + b"\\7", 9)
    >>> print(name_ledgers(unknown, Path("ledgers")).error())
    9.sst: offset 0: damaged: rows of ledgers 5 to 6 are unknown
    """
    bounds = ledgers_of_keys(unknown.start, unknown.stop, is_scoped_path(path))
    if bounds is None:
        return unknown
    first, last = bounds
    if first == last:
        subject = f"rows of ledger {first}"
    elif last in _LAST_LEDGERS:
        subject = f"rows of ledgers from {first} on"
    else:
        subject = f"rows of ledgers {first} to {last}"
    return replace(unknown, subject=subject)


def is_scoped_path(path: Path) -> bool:
    """Return whether a database is of scopes other than 0, by its name."""
    return path.name.endswith("-128")


def entry_keys(ledger: LedgerId, entry_ids: Int64Array) -> list[bytes]:
    """Return the location keys of many entries. They are made as one array, viewed as void items of
    a key's width: items of numpy's bytes type "S" would lose zeros at their end."""
    prefix = np.frombuffer(ledger_key(ledger), ">i8")
    columns = np.empty((entry_ids.size, prefix.size + 1), ">i8")
    columns[:, :-1] = prefix
    columns[:, -1] = entry_ids
    keys: list[bytes] = columns.view(f"V{columns.shape[1] * 8}").ravel().tolist()
    return keys


def encode_locations(locations: Int64Array) -> list[bytes]:
    """Return the row values of many locations."""
    row_values: list[bytes] = locations.astype(">i8").view("V8").tolist()
    return row_values


# -- whether a database has keys of other widths


def read_table_totals(read_property: ReadProperty) -> dict[str, int]:
    """Return the sums of properties over all tables, such as "# entries"; none without tables."""
    text = read_property("aggregated-table-properties")
    return {name.strip(): int(value) for name, value in _TABLE_TOTAL.findall(text)}


def may_have_unexpected_widths(
    read_property: ReadProperty, key_width: int, is_written: bool
) -> bool:
    """Return whether rows may have keys of another width than `key_width`, or values of another
    than a location's, so that each must be measured. RocksDB's totals of its table files show that:
    they have the number of rows and the bytes of all keys and values. They do not include rows that
    are only in a write-ahead log, so these may have any width, unless this process wrote them
    (`is_written`)."""
    totals = read_table_totals(read_property)
    rows, deletions = totals.get("# entries", 0), totals.get("# deletions", 0)
    key_bytes = rows * (key_width + _SEQUENCE_BYTES)
    # A deletion has no value, except one of a range: its value is the key where the range ends.
    value_bytes = (rows - deletions) * VALUE_BYTES + totals.get("# range deletions", 0) * key_width
    actual_sizes = (totals.get("raw key size", 0), totals.get("raw value size", 0))
    has_unflushed = int(read_property(UNFLUSHED_ENTRIES) or 0) > 0
    return actual_sizes != (key_bytes, value_bytes) or (has_unflushed and not is_written)
