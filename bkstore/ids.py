"""Ledger ids (128 bits: scope and ledger), entry ids and locations: checks, arithmetic, text forms.

Ledger ids are unsigned and in unsigned order everywhere, as in RocksDB keys and file names. In
numpy and Arrow they are int64 in two's complement, so sorting such columns needs `unsigned_order`.
Scope 0 is BookKeeper's own id space (proposal BP-35 adds the scope).
"""

from __future__ import annotations

import operator
import re
import uuid
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from bkstore.arguments import describe_value
from bkstore.errors import InvalidArgument

Int64Array = npt.NDArray[np.int64]

EntryLocations = tuple[Int64Array, Int64Array]
"""Entry ids in ascending order, and the location of each: int64[n]."""

IntArrayLike = npt.ArrayLike | Iterable[int]
"""Integers as callers pass them: an array, a value that numpy converts to one, or an iterable."""

LedgerKeys = npt.NDArray[Any]
"""Ledgers as 16 big-endian bytes each, made by `ledger_keys`."""

MAX_ENTRY_ID = 2**63 - 2
"""The highest entry id: range deletes and floor searches of BookKeeper do not reach 2^63-1."""

MAX_LOG_ID = 2**31 - 1
"""Entry log ids are 31 bits; the log id is the upper half of a location."""

MAX_IDS = 2**28
"""The most ids that a range or a set is expanded to in one array (2 GiB)."""

_get_scope, _get_number = operator.itemgetter(0), operator.itemgetter(1)
_TWO_64 = 2**64
_TWO_63 = 2**63
_HEX = re.compile(r"0[xX][0-9a-fA-F]{1,16}")
_QUALIFIED = re.compile(r"(?:0[xX])?[0-9a-fA-F]{32}")
_DECIMAL = re.compile(r"[+-]?[0-9]{1,20}")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def signed64(value: int) -> int:
    """Return an unsigned 64-bit value as a signed one (two's complement), as in tables.

    >>> signed64(2**64 - 1)
    -1
    """
    return value - _TWO_64 if value >= _TWO_63 else value


def unsigned64(value: int, name: str = "value") -> int:
    """Return `value` modulo 2^64; raises `InvalidArgument` outside -2^63 .. 2^64-1.

    >>> unsigned64(-1) == 2**64 - 1
    True
    """
    if not -_TWO_63 <= value < _TWO_64:
        raise InvalidArgument(f"{name} {value} does not fit 64 bits")
    return value % _TWO_64


def check_integer(value: int, name: str) -> int:
    """Return the int of an integer: an int, a numpy integer, anything with ``__index__``. Raises
    `InvalidArgument` for anything else, including floats (even 1.0), text and bools."""
    try:
        if not isinstance(value, bool):
            return operator.index(value)
    except TypeError:
        pass
    raise InvalidArgument(f"{name} {describe_value(value)} is not an integer") from None


def check_scope(scope: int | None) -> int | None:
    """Return a scope as 0 .. 2^64-1, None (all scopes) unchanged; else raise `InvalidArgument`."""
    if scope is None or (type(scope) is int and 0 <= scope < _TWO_64):
        return scope
    return unsigned64(check_integer(scope, "ledger scope id"), "ledger scope id")


class _Halves(NamedTuple):
    scope: int
    ledger: int


class LedgerId(_Halves):
    """A 128-bit ledger id: two unsigned 64-bit integers, ordered by scope, then ledger.

    Negative integers, Java's form of ids with the top bit set, are taken modulo 2^64. Scope 0 has
    ledgers 0 .. 2^63-1 only: a real bookie refuses to start on others, and the row of storage flags
    in the `ledgers` database has such an id.

    >>> LedgerId(ledger=7)
    LedgerId(scope=0, ledger=7)
    >>> LedgerId.parse("0x10").ledger
    16
    >>> LedgerId(1, -1).qualified_name
    '0000000000000001ffffffffffffffff'
    """

    __slots__ = ()

    def __new__(cls, scope: int = 0, ledger: int | None = None) -> LedgerId:
        """Check both halves; raises `InvalidArgument` for a ledger above 2^63-1 in scope 0."""
        # The usual case, two ints within the limits, needs no conversion.
        is_plain = type(scope) is int and type(ledger) is int and 0 <= scope < _TWO_64
        if is_plain and 0 <= ledger < (_TWO_64 if scope else _TWO_63):  # type: ignore[operator]
            return super().__new__(cls, scope, ledger)  # type: ignore[arg-type]
        if ledger is None:  # LedgerId(7) would be scope 7
            what = "scope and ledger; for scope 0 use LedgerId(ledger=N)"
            raise InvalidArgument(f"LedgerId takes {what}")
        scope = unsigned64(check_integer(scope, "ledger scope id"), "ledger scope id")
        number = unsigned64(check_integer(ledger, "ledger id"), "ledger id")
        if scope == 0 and number >= _TWO_63:
            bounds = f"0..{_TWO_63 - 1}, the range of scope 0"
            raise InvalidArgument(f"ledger id {ledger} is outside {bounds}")
        return super().__new__(cls, scope, number)

    @classmethod
    def _make(cls, iterable: Iterable[int]) -> LedgerId:  # type: ignore[override]
        # `_replace` calls this, and must check as the constructor does.
        return cls(*iterable)

    @classmethod
    def of(cls, value: int | LedgerId) -> LedgerId:
        """Return `value` as a LedgerId; an int is a ledger of scope 0. O(1)."""
        if type(value) is int and 0 <= value < _TWO_63:  # the common case, four times as fast
            return _scope_0_id(value)
        if isinstance(value, cls):
            return value
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            text = describe_value(value)
            raise InvalidArgument(f"not a ledger id: {text} (pass an int or a LedgerId)")
        return cls(0, check_integer(cast(Any, value), "ledger id"))

    @classmethod
    def parse(cls, text: str, scope: int = 0) -> LedgerId:
        """Return the id in `text`: decimal or 0x hex (of `scope`), 32-digit qualified name or UUID.
        Raises `InvalidArgument` for any other text.

        >>> LedgerId.parse("00000000-0000-0001-0000-00000000000a")
        LedgerId(scope=1, ledger=10)
        """
        if not isinstance(text, str):
            raise InvalidArgument(
                f"a ledger id's text must be a string, not {describe_value(text)}; LedgerId.of "
                "takes ints"
            )
        text = text.strip()
        if _UUID.fullmatch(text) or _QUALIFIED.fullmatch(text):
            hex_digits = text.replace("-", "")[-32:]  # without 0x
            return cls.from_uuid(uuid.UUID(hex=hex_digits))
        if _HEX.fullmatch(text):
            return cls(scope, int(text, 16))
        if _DECIMAL.fullmatch(text):
            return cls(scope, int(text))
        forms = "decimal, 0x hex, 32 hex digits or a UUID"
        raise InvalidArgument(f"not a ledger id: {text!r} ({forms})")

    @classmethod
    def from_uuid(cls, value: uuid.UUID) -> LedgerId:
        """Return the id whose 128 bits are the UUID's."""
        return cls(value.int >> 64, value.int % _TWO_64)

    @classmethod
    def from_signed(cls, scope: int, ledger: int) -> LedgerId:
        """Return the id of two int64 values of a table (two's complement)."""
        return cls(scope % _TWO_64, ledger % _TWO_64)

    @property
    def qualified_name(self) -> str:
        """32 lower-case hex digits: scope, then ledger; their text order is the id order."""
        return f"{self.scope:016x}{self.ledger:016x}"

    @property
    def uuid(self) -> uuid.UUID:
        """The id as a UUID."""
        return uuid.UUID(int=self.scope << 64 | self.ledger)

    @property
    def signed(self) -> tuple[int, int]:
        """Scope and ledger as int64 values (two's complement), as in tables."""
        return signed64(self.scope), signed64(self.ledger)

    def __str__(self) -> str:
        return str(self.ledger) if self.scope == 0 else self.qualified_name

    def __repr__(self) -> str:
        return f"LedgerId(scope={self.scope}, ledger={self.ledger})"


@lru_cache(1024)
def _scope_0_id(value: int) -> LedgerId:
    """Return a ledger of scope 0, unchecked; a cached one takes a third of the time."""
    return tuple.__new__(LedgerId, (0, value))


def sort_ledgers(ledger_ids: list[LedgerId]) -> None:
    """Sort ids in place, in a third of the time of `sorted`."""
    ledger_ids.sort(key=_get_number)  # two sorts of ints are faster than one of tuples
    ledger_ids.sort(key=_get_scope)


def unsigned_order(scope_ids: Int64Array, ledger_ids: Int64Array) -> npt.NDArray[np.intp]:
    """Return the stable permutation that sorts int64 id columns as unsigned ids. O(n log n).

    >>> unsigned_order(np.array([0, -1, 1]), np.array([5, 0, 9])).tolist()
    [0, 2, 1]
    """
    sign_bit = np.int64(-_TWO_63)  # flipped, it makes signed order the unsigned one
    return np.lexsort((ledger_ids ^ sign_bit, scope_ids ^ sign_bit))


def ledger_keys(scope_ids: Int64Array, ledger_ids: Int64Array) -> LedgerKeys:
    """Return ledgers as 16 bytes each, which sort as ledgers do.

    Only to compare and to search: numpy drops trailing zeros from an item that is taken out.

    >>> keys = ledger_keys(np.array([0, 0, -1]), np.array([7, 8, -(2**63)]))
    >>> np.searchsorted(keys, keys).tolist(), bool(keys[1] < keys[2])
    ([0, 1, 2], True)
    """
    words = np.stack((scope_ids, ledger_ids), axis=-1).astype(">i8")
    return words.view("S16").ravel()


def keys_of_ledgers(ledgers: Iterable[LedgerId]) -> LedgerKeys:
    """Return the sorted keys of some ledgers. O(n log n)."""
    pairs = np.array([ledger_id.signed for ledger_id in ledgers], np.int64).reshape(-1, 2)
    return np.sort(ledger_keys(pairs[:, 0], pairs[:, 1]))


def find_keys(sorted_keys: LedgerKeys, keys: LedgerKeys) -> Int64Array:
    """Return int64[n]: the index in `sorted_keys` of each of n keys, -1 if it is not there.

    >>> keys = ledger_keys(np.array([0, 0]), np.array([7, 8]))
    >>> find_keys(keys, ledger_keys(np.array([0, 1, 0]), np.array([8, 8, 9]))).tolist()
    [1, -1, -1]
    """
    if not sorted_keys.size:
        return np.full(keys.size, -1, np.int64)
    indexes = np.minimum(np.searchsorted(sorted_keys, keys), sorted_keys.size - 1)
    return np.where(sorted_keys[indexes] == keys, indexes, -1)


def check_bounds(first: int, last: int | None) -> tuple[int, int]:
    """Return the bounds of a range of entries, integers of any size, clamped to int64: `first` to
    0 .. 2^63-1, `last` to -1 .. 2^63-1 (None: 2^63-1). Raises `InvalidArgument` for other values.

    >>> check_bounds(-5, 5), check_bounds(2**70, -5) == (2**63 - 1, -1)
    ((0, 5), True)
    """
    highest = _TWO_63 - 1
    if type(first) is not int:
        first = check_integer(first, "first entry")
    if last is None:
        last = highest
    elif type(last) is not int:
        last = check_integer(last, "last entry")
    return min(max(first, 0), highest), min(max(last, -1), highest)


def check_entry_id(entry_id: int) -> int:
    """Return `entry_id` if it is 0 .. 2^63-2, else raise `InvalidArgument`."""
    number = check_integer(entry_id, "entry id")
    if not 0 <= number <= MAX_ENTRY_ID:
        raise InvalidArgument(f"entry id {entry_id} is outside 0..{MAX_ENTRY_ID}")
    return number


def as_int64(values: IntArrayLike, name: str) -> Int64Array:
    """Return integers as a one-dimensional int64 array; raises `InvalidArgument` for other values.
    O(n); an int64 array is returned without a copy. A `range` of over `MAX_IDS` is refused."""
    if isinstance(values, range):
        return _expand_range(values, name)
    array = values if isinstance(values, np.ndarray) else _to_array(values, name)
    if array.ndim != 1:
        raise InvalidArgument(f"{name} must be one-dimensional, not of shape {array.shape}")
    if array.size == 0:
        return np.empty(0, np.int64)
    if array.dtype.kind == "O":  # Python objects, such as integers of any size
        array = _check_each(array.tolist(), name)
    if array.dtype.kind not in "iu" or (array.dtype == np.uint64 and int(array.max()) >= _TWO_63):
        raise InvalidArgument(f"{name} must be integers that fit int64, not {array.dtype}")
    return np.ascontiguousarray(array, dtype=np.int64)


def _to_array(values: IntArrayLike, name: str) -> npt.NDArray[Any]:
    """Return what a caller passed as integers as an array of any shape and type, for `as_int64` to
    check, except where numpy would silently make integers of other values."""
    if isinstance(values, (str, bytes, bytearray)):
        raise InvalidArgument(f"{name} must be integers, not {type(values).__name__}")
    if isinstance(values, Iterable) and not hasattr(values, "__array__"):
        items = values if isinstance(values, (list, tuple)) else list(values)
        types = set(map(type, items))
        if types - {int}:  # numpy would convert True to 1, and some mixed integers to floats
            if any(hasattr(type_, "__len__") for type_ in types - {str, bytes}):
                return np.empty((len(items), 0))  # nested: `as_int64` refuses two dimensions
            return _check_each(items, name)
        return np.asarray(items)
    return np.asarray(values)


def _check_each(values: Iterable[Any], name: str) -> Int64Array:
    """Return the values as int64; raises for the first that is not an integer, or does not fit."""
    numbers = [check_integer(value, name) for value in values]
    if numbers and not -_TWO_63 <= min(numbers) <= max(numbers) < _TWO_63:
        raise InvalidArgument(f"{name} must be integers that fit int64")
    return np.array(numbers, np.int64)


def _expand_range(values: range, name: str) -> Int64Array:
    """Return the integers of a range; raises if they do not fit int64, or are over `MAX_IDS`."""
    if not values:
        return np.empty(0, np.int64)
    if not all(-_TWO_63 <= value < _TWO_63 for value in (values[0], values[-1])):
        raise InvalidArgument(f"{name} of {values} do not fit int64")
    if values[MAX_IDS:]:  # its len() may overflow
        raise InvalidArgument(f"{name} of {values} are too many for an array (limit {MAX_IDS})")
    # Not np.arange(start, stop, step): the stop may be beyond int64.
    return np.arange(len(values), dtype=np.int64) * values.step + values.start


def ledger_runs(scopes: Int64Array, ledgers: Int64Array) -> Iterator[tuple[LedgerId, int, int]]:
    """Yield (ledger, start, stop) of each run of rows with the same signed ids."""
    if not ledgers.size:
        return
    changes = (scopes[1:] != scopes[:-1]) | (ledgers[1:] != ledgers[:-1])
    starts = np.concatenate(([0], np.flatnonzero(changes) + 1))
    ledger_ids = map(LedgerId.from_signed, scopes[starts].tolist(), ledgers[starts].tolist())
    for ledger_id, (start, stop) in zip(ledger_ids, pairwise([*starts.tolist(), ledgers.size])):
        yield ledger_id, start, stop


def is_ascending(values: Int64Array) -> bool:
    """Return whether each value is above the previous one."""
    return bool((values[1:] > values[:-1]).all())


def as_entry_ids(entries: IntArrayLike) -> Int64Array:
    """Return entry ids of 0..2^63-2 as an int64 array; O(n), without a copy of an int64 array."""
    ids = as_int64(entries, "entry ids")
    if ids.size and int(ids.view(np.uint64).max()) > MAX_ENTRY_ID:  # true for negative ids too
        invalid = ids[(ids < 0) | (ids > MAX_ENTRY_ID)][0]
        raise InvalidArgument(f"entry id {invalid} is outside 0..{MAX_ENTRY_ID}")
    return ids


def count_consecutive(entries: Int64Array, start: int) -> int:
    """Return how many of the sorted `entries` are start, start + 1, and so on.

    >>> count_consecutive(np.array([5, 6, 8]), 5), count_consecutive(np.array([6]), 5)
    (2, 0)
    """
    gaps = entries != start + np.arange(entries.size)
    return int(np.argmax(gaps)) if gaps.any() else int(entries.size)


def check_location(location: int) -> int:
    """Return `location` if it is a positive int64, else raise `InvalidArgument`."""
    number = check_integer(location, "location")
    if not 0 < number < _TWO_63:
        raise InvalidArgument(f"location {location} is not positive (0 means absent)")
    return number


def as_locations(locations: IntArrayLike) -> Int64Array:
    """Return locations as a one-dimensional int64 array, all > 0 (0 means absent on disk)."""
    array = as_int64(locations, "locations")
    if array.size and int(array.min()) <= 0:
        invalid = int(array[array <= 0][0])
        raise InvalidArgument(f"location {invalid} is not positive (0 means absent)")
    return array


def make_location(log_id: int, position: int) -> int:
    """Return ``log_id << 32 | position``. The position is the offset of the entry's bytes, after
    the 4 of its length prefix (`DefaultEntryLogger`).

    >>> hex(make_location(2, 1028))
    '0x200000404'
    """
    if type(log_id) is not int or type(position) is not int:
        log_id, position = check_integer(log_id, "log id"), check_integer(position, "position")
    if not 0 <= log_id <= MAX_LOG_ID or not 0 <= position < 2**32:
        raise InvalidArgument(f"no location for log id {log_id}, position {position}")
    return log_id << 32 | position


def split_location(location: int) -> tuple[int, int]:
    """Return (log id, position) of one location.

    >>> split_location(0x200000404)
    (2, 1028)
    """
    return location >> 32, location & 0xFFFFFFFF


def make_locations(log_id: int | Int64Array, position: int | Int64Array) -> Int64Array:
    """Return locations for arrays (or one value and one array) of log ids and positions. Raises
    `InvalidArgument` outside 31-bit log ids and 32-bit positions."""
    logs, offsets = np.asarray(log_id, np.int64), np.asarray(position, np.int64)
    if ((logs < 0) | (logs > MAX_LOG_ID)).any() or ((offsets < 0) | (offsets >= 1 << 32)).any():
        raise InvalidArgument("not locations: log ids have 31 bits, positions 32")
    return np.atleast_1d(logs << np.int64(32) | offsets)


def log_ids_of(locations: Int64Array) -> Int64Array:
    """Return the log id of each location (arithmetic shift, as BookKeeper does)."""
    return locations >> np.int64(32)


def positions_of(locations: Int64Array) -> Int64Array:
    """Return the position (offset of the entry's bytes in its log) of each location."""
    return locations & np.int64(0xFFFFFFFF)
