"""Availability: an immutable set of entry ids, stored as sequence groups, and its queries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import numpy.typing as npt

from bkstore.arguments import check_compat, integer
from bkstore.availability import codec, from_entries, grouping, sequence_groups
from bkstore.availability.codec import Encoding, Octets
from bkstore.availability.sequence_groups import INT32_MAX, Groups
from bkstore.availability.set_operations import combine
from bkstore.availability.stripe_operations import SetOperation
from bkstore.counts import format_count
from bkstore.errors import InvalidArgument
from bkstore.ids import MAX_ENTRY_ID, MAX_IDS, Int64Array, IntArrayLike, as_entry_ids, check_integer

Compat = Literal["bookkeeper"]


class CompatClass(Protocol):
    """A class that answers as another implementation of availability does."""

    def from_insertions(self, entries: IntArrayLike) -> Availability:
        """Return what that implementation makes of ids in the given order."""

    def from_stored(self, groups: Groups) -> Availability:
        """Return that implementation's answer for decoded groups."""


class Availability:
    """An immutable set of entry ids, stored as BP-34 sequence groups.

    Memory and the cost of set operations grow with the number of sequence groups: a 2-of-3 striped
    ledger of any length is one group (88 bytes encoded). Safe to share between threads.

    Constructors: `from_entries`, `from_ranges`, `from_groups`, `from_bytes`. Conversions: `ranges`,
    `entries`, `groups`, `to_bytes`. Queries: ``len``, ``in``, `contains_many`, ``& | -``,
    `missing`, `first_entry`, `last_entry`, `range_count`; iteration is lazy. 88 bytes can encode
    2^61 sequences: calls that would list too many raise `InvalidArgument`.

    >>> here = Availability.from_entries([1, 2, 4, 5, 7, 8, 10, 11])
    >>> here.groups.tolist()  # BP-34's first example: first, last, size, period
    [[1, 10, 2, 3]]
    >>> here.missing(Availability.from_ranges([(0, 11)])).entries().tolist()
    [0, 3, 6, 9]
    """

    __slots__ = ("_groups",)
    _groups: Groups

    compat_classes: ClassVar[dict[str, CompatClass]] = {}
    """The class for each value of ``compat``; `bookkeeper_compat` registers its own."""

    def __init__(self) -> None:
        self._groups = sequence_groups.empty()

    @classmethod
    def _compat_class(cls, compat: Compat) -> CompatClass:
        check_compat("compat", compat)
        return cls.compat_classes[compat]

    @classmethod
    def from_entries(cls, entries: IntArrayLike, compat: Compat | None = None) -> Availability:
        """Return the set of `entries`, in any order, duplicates allowed. ``compat="bookkeeper"``
        adds them in the given order as `AvailabilityOfEntriesOfLedger` does, whose answers are
        wrong for unsorted input. O(n); O(1) for a `range` without compat. Raises `InvalidArgument`
        unless they are integers of 0..2^63-2 (with compat: of int64)."""
        if compat is not None:
            return cls._compat_class(compat).from_insertions(entries)
        if isinstance(entries, range):
            return cls.from_canonical(from_entries.from_range(entries))
        return cls.from_canonical(from_entries.from_ids(as_entry_ids(entries)))

    @classmethod
    def from_ranges(cls, ranges: npt.ArrayLike | Iterable[tuple[int, int]]) -> Availability:
        """Return the union of inclusive (first, last) ranges, in any order. O(n log n). Raises
        `InvalidArgument` for anything else, and for ids outside 0..2^63-2.

        >>> len(Availability.from_ranges([(0, 9), (20, 29)]))
        20
        """
        rows = _check_rows(ranges, 2, "ranges are (first, last) pairs")
        if not rows.size:
            return cls()
        pairs = as_entry_ids(rows.ravel()).reshape(-1, 2)
        if (pairs[:, 1] < pairs[:, 0]).any():
            raise InvalidArgument("a range ends before it starts")
        # Sort by start. A range that begins past the highest end so far begins a new merged range.
        pairs = pairs[np.argsort(pairs[:, 0], kind="stable")]
        ends = np.maximum.accumulate(pairs[:, 1] + 1)
        run_starts = np.flatnonzero(np.concatenate(([True], pairs[1:, 0] > ends[:-1])))
        run_ends = np.concatenate((run_starts[1:], [len(pairs)])) - 1
        return cls.from_canonical(
            grouping.from_half_open_ranges(pairs[run_starts, 0], ends[run_ends])
        )

    @classmethod
    def from_half_open_ranges(cls, starts: Int64Array, ends: Int64Array) -> Availability:
        """Return the set of these ordered, disjoint half-open ranges. O(ranges)."""
        return cls.from_canonical(grouping.from_half_open_ranges(starts.copy(), ends))

    @classmethod
    def from_canonical(cls, groups: Groups) -> Availability:
        """Return the set with these groups, which must be canonical as `grouping.canonicalize`
        returns them; not checked. Their arrays become read-only. O(1)."""
        new_set = Availability.__new__(Availability)
        new_set._groups = groups
        for column in groups:
            column.flags.writeable = False
        return new_set

    @classmethod
    def many_from_columns(cls, parts: Iterable[tuple[Int64Array, ...]]) -> list[Availability]:
        """Return a set for each part, the four columns of its groups, which must be canonical and
        read-only; not checked. The results equal those of `from_canonical`, in less than half of
        its time."""
        sets = []
        for columns in parts:
            new_set = Availability.__new__(Availability)
            new_set._groups = tuple.__new__(Groups, columns)  # quicker than `Groups(*columns)`
            sets.append(new_set)
        return sets

    @classmethod
    def from_groups(
        cls, groups: npt.ArrayLike | Iterable[Sequence[int]], compat: Compat | None = None
    ) -> Availability:
        """Return the set of (first, last, size, period) rows, as `groups` returns them; with compat
        as the `groups` of a set with the same `compat` returns them. Raises `InvalidArgument` for
        rows that are not four integers or do not fit the encoding (a row of one sequence may have
        any size), `CorruptionError` for rows that overlap or contradict themselves. O(groups)."""
        rows = _check_groups(groups)
        if compat is not None:
            return cls._compat_class(compat).from_stored(rows)
        return cls.from_canonical(grouping.canonicalize(codec.sort_and_check(rows)))

    @classmethod
    def from_bytes(cls, data: Octets, compat: Compat | None = None) -> Availability:
        """Return the set from its encoded bytes, with one group a stripe or one a sequence.
        O(groups). Raises `CorruptionError` (offset, reason) for a short header, another version,
        truncated or negative counts, sizes below 1, impossible periods and overlaps; and
        `InvalidArgument` if `data` is not bytes. With ``compat="bookkeeper"``, the bytes that
        BookKeeper's decoder accepts are accepted, and the set answers as BookKeeper does."""
        if compat is not None:
            compat_class = cls._compat_class(compat)
            return compat_class.from_stored(codec.decode_unchecked(data, any_header=True))
        # Few groups in canonical form, as usual, take a faster path.
        groups = codec.decode_if_few(data)
        if groups is None:
            groups = grouping.canonicalize(codec.decode(data))
        return cls.from_canonical(groups)

    def to_bytes(self, encoding: Encoding = "grouped") -> bytes:
        """Return the encoded set: 64 bytes and 24 for each group. "grouped" is BP-34 as designed,
        and real clients read it; "bookkeeper" writes one group per sequence, byte-identical with a
        real bookie's answer. Raises `InvalidArgument` for more than 89,478,482 groups."""
        return codec.encode(self._groups, encoding)

    @property
    def groups(self) -> Int64Array:
        """The sequence groups, int64 of shape (n, 4): first, last, size, period. A copy."""
        return np.stack(self._groups, axis=1)

    @property
    def columns(self) -> Groups:
        """The sequence groups as four read-only int64 columns, not copied. O(1)."""
        return self._groups

    @property
    def range_count(self) -> int:
        """The number of maximal runs, which is the length of `ranges`. O(groups)."""
        return sequence_groups.count_sequences(self._groups)

    def ranges(self, limit: int | None = None) -> Int64Array:
        """Return the maximal runs as inclusive (first, last) pairs, int64 of shape (n, 2). With
        `limit` the lowest ones only. O(groups + runs); `iter_ranges` is lazy. Raises
        `InvalidArgument` for a stripe of more than 2^24 runs, unless the limit is below that."""
        groups = self._groups
        if limit is not None:
            groups = sequence_groups.take_first_sequences(groups, integer()("limit", limit))
        advice = "; see ranges(limit=), iter_ranges and groups"
        starts, ends = sequence_groups.list_sequences(groups, advice)
        return np.stack((starts, ends - 1), axis=1)

    def iter_ranges(self) -> Iterator[tuple[int, int]]:
        """Yield the maximal runs as inclusive (first, last) pairs, ascending; lazy.

        >>> next(Availability.from_entries(range(0, 2**62, 3)).iter_ranges())
        (0, 0)
        """
        for start, end in sequence_groups.iterate_sequences(self._groups):
            yield start, end - 1

    def entries(self) -> Int64Array:
        """Return all entry ids, ascending, int64[len(self)]. O(entries). Raises `InvalidArgument`
        for more than 2^28 (2 GiB); iterating is lazy."""
        if len(self) > MAX_IDS:
            raise InvalidArgument(
                f"{len(self)} entry ids are too many for one array, the limit is {MAX_IDS}; "
                "iterate, or restrict the set with &"
            )
        return sequence_groups.list_entry_ids(self._groups)

    @property
    def first_entry(self) -> int | None:
        """The lowest entry id, None if empty."""
        return int(self._groups.first[0]) if self else None

    @property
    def last_entry(self) -> int | None:
        """The highest entry id, None if empty."""
        return int(self._groups.ends[-1]) - 1 if self else None

    def __len__(self) -> int:
        return sequence_groups.count_entries(self._groups)

    def __bool__(self) -> bool:
        return self._groups.first.size > 0

    def __iter__(self) -> Iterator[int]:
        for start, end in sequence_groups.iterate_sequences(self._groups):
            yield from range(start, end)

    def __contains__(self, entry: object) -> bool:
        if not isinstance(entry, (int, np.integer)) or not 0 <= entry <= MAX_ENTRY_ID:
            return False
        return bool(self.contains_many(np.array([entry], np.int64))[0])

    def contains_many(self, entries: IntArrayLike) -> npt.NDArray[np.bool_]:
        """Return bool[n]: whether each entry id is in the set. O(n log groups)."""
        return sequence_groups.contains(self._groups, as_entry_ids(entries))

    def __and__(self, other: Availability) -> Availability:
        return self._combine(other, "and")

    def __or__(self, other: Availability) -> Availability:
        return self._combine(other, "or")

    def __sub__(self, other: Availability) -> Availability:
        return self._combine(other, "sub")

    def _combine(self, other: Availability, operation: SetOperation) -> Availability:
        if not isinstance(other, Availability):
            return NotImplemented
        return self.from_canonical(combine(self._groups, other._groups, operation))

    def missing(
        self,
        expected: Availability,
        first: int | None = None,
        last: int | None = None,
        compat: Compat | None = None,
    ) -> Availability:
        """Return the expected entries that are not in this set: the true set difference. `first`
        and `last` restrict the answer to an inclusive range. O(groups) on stripes.
        ``compat="bookkeeper"`` gives the answer of `getUnavailableEntries`, which after a hole of
        two ids reports all expected entries up to the end of the range as missing. It lists the
        sequences of this set, and raises `InvalidArgument` for more than 2^24."""
        if not isinstance(expected, Availability):
            raise InvalidArgument(f"expected is an Availability, not {type(expected).__name__}")
        first, last = _check_bound(first, "first"), _check_bound(last, "last")
        if compat is not None:
            compat_class = self._compat_class(compat)
            sequence_groups.check_sequence_count(self.range_count)
            # The groups as a bookie sends them and BookKeeper decodes them.
            stored = codec.decode_unchecked(self.to_bytes("bookkeeper"))
            return compat_class.from_stored(stored).missing(expected, first, last)
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

    def __reduce__(self) -> tuple[Any, ...]:
        return Availability.from_canonical, (self._groups,)

    def __hash__(self) -> int:
        return hash(tuple(column.tobytes() for column in self._groups))

    def __repr__(self) -> str:
        if not self:
            return "<Availability: no entries>"
        entries = format_count(len(self), "entry", "entries")
        groups = format_count(self._groups.first.size, "sequence group")
        return f"<Availability: {entries} in {self.first_entry}..{self.last_entry}, {groups}>"


def _check_rows(value: Any, width: int, description: str) -> Int64Array:
    """Return a caller's value as int64[n, width]; raise `InvalidArgument` if it is not rows of
    `width` integers that fit int64. The error's text begins with `description`."""
    if isinstance(value, (str, bytes, bytearray)) or not isinstance(value, Iterable):
        raise InvalidArgument(f"{description}, not {type(value).__name__}")
    try:
        array = value if isinstance(value, np.ndarray) else np.asarray(list(value))
    except (TypeError, ValueError, OverflowError):  # ragged, or a zero-dimensional array
        raise InvalidArgument(f"{description}, all of one length") from None
    if array.size == 0 and array.ndim > 0:
        return np.empty((0, width), np.int64)
    if array.ndim != 2 or array.shape[1] != width:
        raise InvalidArgument(f"{description}, not of shape {array.shape}")
    too_big = array.dtype == np.uint64 and int(array.max()) > 2**63 - 1
    if array.dtype.kind not in "iu" or too_big:
        raise InvalidArgument(f"{description} of integers that fit int64, not {array.dtype}")
    return array.astype(np.int64)


def _check_groups(value: Any) -> Groups:
    """Return (first, last, size, period) rows as columns. Checks only that sizes and periods fit
    the 32 bits of the encoding, except the size of a single sequence, which can be encoded as
    several groups."""
    columns = Groups(*_check_rows(value, 4, "groups are (first, last, size, period) rows").T)
    has_many = columns.last != columns.first
    is_too_low = np.minimum(columns.size, columns.period) < -INT32_MAX
    is_too_high = (has_many & (columns.size > INT32_MAX)) | (columns.period > INT32_MAX)
    if (is_too_low | is_too_high).any():
        raise InvalidArgument("sequence size or period does not fit i32")
    return columns


def _check_bound(value: Any, description: str) -> int | None:
    """Return the bound of a range of entry ids, which may be any int; None is returned as is."""
    return None if value is None else check_integer(value, description)
