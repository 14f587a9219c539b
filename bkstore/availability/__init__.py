"""Availability: which entries of a ledger are here, in BP-34's condensed form.

`Availability` is an immutable set of entry ids kept as sequence groups. Modules below:
`sequences` (the representation), `grouping` (its canonical form), `scanning` (from ids and
masks), `algebra` (set operations), `codec` (bytes), `built` (the answers of BookKeeper's own
class, defects included, behind ``compat="bookkeeper"``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

import numpy as np
import numpy.typing as npt

from bkstore.arguments import check_compat
from bkstore.availability import codec, grouping, scanning, sequences
from bkstore.availability.algebra import combine
from bkstore.availability.codec import Encoding
from bkstore.availability.sequences import Groups
from bkstore.errors import InvalidArgument
from bkstore.ids import MAX_ENTRY_ID, Int64Array, as_entry_ids

__all__ = ["Availability", "Compat", "Encoding"]

Compat = Literal["bookkeeper"]


class Availability:
    """An immutable set of entry ids, held as BP-34 sequence groups.

    Memory and the cost of set operations are in sequence groups: a 2-of-3 striped ledger of
    any length is one group (88 bytes encoded). Safe to share between threads.

    Ways in: `from_entries`, `from_ranges`, `from_groups`, `from_bytes`. Ways out: `entries`,
    `ranges`, `groups`, `to_bytes`. In between: ``len``, ``in``, `contains_many`, ``& | -``,
    `missing`, `first_entry`, `last_entry`.

    >>> here = Availability.from_entries([1, 2, 4, 5, 7, 8, 10, 11])
    >>> here.groups.tolist()  # BP-34's first example: first, last, size, period
    [[1, 10, 2, 3]]
    >>> here.missing(Availability.from_ranges([(0, 11)])).entries().tolist()
    [0, 3, 6, 9]
    """

    __slots__ = ("_groups",)
    _groups: Groups

    def __init__(self) -> None:
        self._groups = sequences.empty()

    @classmethod
    def _of(cls, groups: Groups) -> Availability:
        made = Availability.__new__(Availability)
        made._groups = groups
        for column in groups:
            column.flags.writeable = False
        return made

    @classmethod
    def from_entries(
        cls, entries: npt.ArrayLike | Iterable[int], compat: Compat | None = None
    ) -> Availability:
        """Return the set of `entries`, in any order, duplicates allowed.

        ``compat="bookkeeper"`` feeds them in the given order through the rule of
        `AvailabilityOfEntriesOfLedger`, whose answers go wrong on unsorted input. O(n).
        Raises `InvalidArgument` for ids outside 0..2^63-2 (not under compat).
        """
        if compat is not None:
            from bkstore.availability.built import BuiltAvailability

            check_compat("compat", compat)
            return BuiltAvailability.from_insertions(entries)
        return cls._of(scanning.from_ids(as_entry_ids(entries)))

    @classmethod
    def from_ranges(cls, ranges: npt.ArrayLike | Iterable[tuple[int, int]]) -> Availability:
        """Return the union of inclusive (first, last) ranges, in any order. O(n log n).

        >>> len(Availability.from_ranges([(0, 9), (20, 29)]))
        20
        """
        given = np.asarray(
            ranges if isinstance(ranges, np.ndarray) else list(ranges)  # type: ignore[arg-type]
        )
        if given.size == 0:
            return cls()
        if given.ndim != 2 or given.shape[1] != 2:
            raise InvalidArgument(f"ranges are (first, last) pairs, not of shape {given.shape}")
        pairs = as_entry_ids(given.ravel()).reshape(-1, 2)
        if (pairs[:, 1] < pairs[:, 0]).any():
            raise InvalidArgument("a range ends before it starts")
        pairs = pairs[np.argsort(pairs[:, 0], kind="stable")]
        ends = np.maximum.accumulate(pairs[:, 1] + 1)
        opens = np.flatnonzero(np.concatenate(([True], pairs[1:, 0] > ends[:-1])))
        closes = np.concatenate((opens[1:], [len(pairs)])) - 1
        return cls._of(grouping.from_runs(pairs[opens, 0], ends[closes]))

    @classmethod
    def from_runs(cls, starts: Int64Array, ends: Int64Array) -> Availability:
        """Return the set of ordered, disjoint half-open runs; the scanners' way in. O(runs)."""
        return cls._of(grouping.from_runs(starts.copy(), ends))

    @classmethod
    def from_canonical(cls, groups: Groups) -> Availability:
        """Return the set of groups that `grouping.fold` or `join` made; not checked. O(1)."""
        return cls._of(groups)

    @classmethod
    def from_groups(cls, groups: npt.ArrayLike) -> Availability:
        """Return the set that (first, last, size, period) rows say; checked like `from_bytes`.

        Raises `CorruptionError` for rows that overlap or contradict themselves. O(groups).
        """
        given = np.asarray(groups)
        if given.size == 0:
            return cls()
        if given.ndim != 2 or given.shape[1] != 4 or given.dtype.kind != "i":
            raise InvalidArgument(
                f"groups are rows of four int64, not {given.dtype} of shape {given.shape}"
            )
        rows = given.astype(np.int64)
        if (abs(rows[:, 2:]) > sequences.INT32_MAX).any():
            raise InvalidArgument("sequence size or period does not fit i32")
        return cls.from_bytes(codec.write_raw(Groups(*rows.T)))

    @classmethod
    def from_bytes(
        cls, data: bytes | bytearray | memoryview, compat: Compat | None = None
    ) -> Availability:
        """Return the set that encoded bytes say; both encodings are read. O(groups).

        Raises `CorruptionError` (offset, reason) for a short header, another version,
        truncated or negative counts, sizes below 1, impossible periods and overlaps.
        ``compat="bookkeeper"`` accepts what the real decoder accepts, and answers like it.
        """
        if compat is not None:
            from bkstore.availability.built import BuiltAvailability

            check_compat("compat", compat)
            return BuiltAvailability.from_stored(codec.read_raw(data, any_header=True))
        few = codec.decode_few(data)
        return cls._of(grouping.fold(codec.decode(data)) if few is None else few)

    def to_bytes(self, encoding: Encoding = "grouped") -> bytes:
        """Return the encoded set: 64 bytes and 24 for each group.

        "grouped" is BP-34 as designed, and real clients read it; "bookkeeper" writes one group
        per sequence, byte-identical with a real bookie's answer.
        """
        return codec.encode(self._groups, encoding)

    @property
    def groups(self) -> Int64Array:
        """The sequence groups, int64 of shape (n, 4): first, last, size, period. A copy."""
        return np.stack(self._groups, axis=1)

    @property
    def columns(self) -> Groups:
        """The sequence groups as four read-only int64 columns, not copied. O(1)."""
        return self._groups

    def ranges(self) -> Int64Array:
        """Return the maximal runs as inclusive (first, last) pairs, int64 of shape (n, 2).

        O(sequences): a stripe is taken apart here.
        """
        starts, ends = sequences.sequences(self._groups)
        return np.stack((starts, ends - 1), axis=1)

    def entries(self) -> Int64Array:
        """Return all entry ids, ascending, int64[len(self)]. O(entries)."""
        return sequences.expand(self._groups)

    @property
    def first_entry(self) -> int | None:
        """The lowest entry id, None if empty."""
        return int(self._groups.first[0]) if self else None

    @property
    def last_entry(self) -> int | None:
        """The highest entry id, None if empty."""
        return int(self._groups.ends[-1]) - 1 if self else None

    def __len__(self) -> int:
        return sequences.count(self._groups)

    def __bool__(self) -> bool:
        return self._groups.first.size > 0

    def __iter__(self) -> Iterator[int]:
        for first, last in zip(*sequences.sequences(self._groups)):
            yield from range(int(first), int(last))

    def __contains__(self, entry: object) -> bool:
        if not isinstance(entry, (int, np.integer)) or not 0 <= entry <= MAX_ENTRY_ID:
            return False
        return bool(self.contains_many(np.array([entry], np.int64))[0])

    def contains_many(self, entries: npt.ArrayLike | Iterable[int]) -> npt.NDArray[np.bool_]:
        """Return bool[n]: for each entry id, is it here? O(n log groups)."""
        return sequences.contains(self._groups, as_entry_ids(entries))

    def __and__(self, other: Availability) -> Availability:
        if not isinstance(other, Availability):
            return NotImplemented
        return self._of(combine(self._groups, other._groups, "and"))

    def __or__(self, other: Availability) -> Availability:
        if not isinstance(other, Availability):
            return NotImplemented
        return self._of(combine(self._groups, other._groups, "or"))

    def __sub__(self, other: Availability) -> Availability:
        if not isinstance(other, Availability):
            return NotImplemented
        return self._of(combine(self._groups, other._groups, "sub"))

    def missing(
        self,
        expected: Availability,
        first: int | None = None,
        last: int | None = None,
        compat: Compat | None = None,
    ) -> Availability:
        """Return the expected entries that are not here: the true set difference.

        `first` and `last` restrict the question to an inclusive range. O(groups) on stripes.
        ``compat="bookkeeper"`` gives the answer of `getUnavailableEntries`, which walks that
        range (default: all of `expected`) and after a hole of two ids reports the rest.
        """
        if compat is not None:
            from bkstore.availability.built import BuiltAvailability

            check_compat("compat", compat)
            built = BuiltAvailability.from_stored(codec.read_raw(self.to_bytes("bookkeeper")))
            return built.missing(expected, first, last)
        if first is not None or last is not None:
            lo, hi = 0 if first is None else first, MAX_ENTRY_ID if last is None else last
            if hi < lo:
                return Availability()
            expected = expected & Availability.from_ranges([(lo, hi)])
        return expected - self

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Availability):
            return NotImplemented
        return all(np.array_equal(a, b) for a, b in zip(self._groups, other._groups))

    def __hash__(self) -> int:
        return hash(tuple(column.tobytes() for column in self._groups))

    def __repr__(self) -> str:
        if not self:
            return "<Availability: no entries>"
        groups = self._groups.first.size
        return (
            f"<Availability: {len(self)} entries in {self.first_entry}..{self.last_entry}, "
            f"{groups} sequence group{'s' if groups != 1 else ''}>"
        )
