"""The answers of BookKeeper's own `AvailabilityOfEntriesOfLedger`, for ``compat="bookkeeper"``.
Differences from `Availability`, observed by running that class (`docs/parity.md`): the encoder
never joins two sequences; ids out of order give overlapping or replaced groups; a look-up consults
only the group at or below the id; `getUnavailableEntries` stops looking after a hole of two or more
ids and reports every later expected id. Sums are 64-bit and wrap, and remainders have the sign of
the dividend, as in Java. Costs are in stored groups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from bkstore.availability import codec
from bkstore.availability.codec import Encoding
from bkstore.availability.entry_set import Availability
from bkstore.availability.grouping import canonicalize
from bkstore.availability.sequence_groups import Groups, empty
from bkstore.availability.stripe_operations import Pattern, groups_of_pattern
from bkstore.counts import format_count
from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.ids import MAX_ENTRY_ID, Int64Array, IntArrayLike, as_int64

_NO_ENTRY = -1  # INVALID_ENTRYID of BookKeeper: "no current sequence"
_CHUNK = 1 << 16
_MAX_INT64 = np.int64(2**63 - 1)


class BookkeeperAvailability(Availability):
    """A set of entry ids with BookKeeper's groups and its look-up rule. `groups`, ``len``
    and `to_bytes` report what is stored; ``in``, `contains_many` and `missing` answer as the real
    class does; all else works on the ids of 0..2^63-2 that ``in`` finds. ``len`` raises
    `InvalidArgument` if the sum over the stored groups is negative."""

    __slots__ = ("_stored", "_visible")
    _visible: Groups | None  # the canonical groups of the ids that look-ups find, made on demand
    _stored: Groups

    @classmethod
    def from_insertions(cls, entries: IntArrayLike) -> BookkeeperAvailability:
        """Return the set that BookKeeper's encoder makes of ids (any int64 values) that are added
        in the given order. For ids out of order that set is wrong, as is BookKeeper's."""
        rows: dict[int, int] = {}  # the size of each complete sequence, by its start
        start, size = _NO_ENTRY, 0  # of the current sequence
        for entry_id in _iterate_ids(as_int64(entries, "entry ids")):
            if start != _NO_ENTRY:
                if start <= entry_id < start + size:  # a duplicate
                    continue
                if entry_id == start + size:
                    size += 1
                    continue
                rows[start] = size  # replaces an earlier sequence from the same start
            start, size = entry_id, 1
        if start != _NO_ENTRY:
            rows[start] = size
        starts, sizes = np.array(list(rows), np.int64), np.array(list(rows.values()), np.int64)
        return cls.from_stored(Groups(starts, starts, sizes, np.zeros_like(starts)))

    @classmethod
    def from_stored(cls, groups: Groups) -> BookkeeperAvailability:
        """Return the set of decoded groups. Of groups with equal first starts the last one counts,
        because BookKeeper keeps groups in a map by that start. Raises `CorruptionError` for a group
        of several sequences with period 0."""
        invalid = np.flatnonzero((groups.last != groups.first) & (groups.period == 0))
        if invalid.size:
            start = int(groups.first[invalid[0]])
            raise CorruptionError(None, None, f"group at {start}: several sequences, period 0")
        order = np.argsort(groups.first, kind="stable")
        first = groups.first[order]
        is_last_of_equals = np.append(first[1:] != first[:-1], True)[: first.size]
        new_set = cls.__new__(cls)
        new_set._stored = groups.take(order[is_last_of_equals])
        new_set._visible = None  # made on demand
        return new_set

    @property
    def _groups(self) -> Groups:  # type: ignore[override]
        """The canonical groups of the ids that BookKeeper's look-ups find, which are not all stored
        ones. An id is looked up in the last group that starts at or below it, up to the highest id
        for which that group is asked at all."""
        if self._visible is None:
            stored = self._stored
            next_starts = np.append(stored.first[1:], np.int64(MAX_ENTRY_ID + 1))
            ends = np.minimum(_last_lookup_ids(stored), next_starts[: stored.first.size] - 1) + 1
            self._visible = canonicalize(_find_in_spans(stored, np.maximum(stored.first, 0), ends))
        return self._visible

    @property
    def groups(self) -> Int64Array:
        """The stored groups, int64 of shape (n, 4), ascending by first sequence start."""
        return np.stack(self._stored, axis=1)

    def to_bytes(self, encoding: Encoding = "bookkeeper") -> bytes:
        """Return the stored groups encoded; "grouped" encodes the set that look-ups find."""
        if encoding == "bookkeeper":
            return codec.encode_unchecked(self._stored)
        return codec.encode(self._groups, encoding)

    def __len__(self) -> int:
        total = self._total_with_overflow()
        if total < 0:
            entries = format_count(total, "entry", "entries")
            raise InvalidArgument(f"the stored groups add up to {entries}: not a length")
        return total

    def _total_with_overflow(self) -> int:
        """Return the number of entries as `getTotalNumOfAvailableEntries` computes it: in a Java
        long, which may wrap around for invalid groups."""
        total = 0
        for first, last, size, period in zip(*(column.tolist() for column in self._stored)):
            span = _to_long(last - first)
            steps = abs(span) // abs(period) if period else 0
            if (span < 0) != (period < 0):  # Java's quotient has this sign, and rounds to zero
                steps = -steps
            total += (steps + 1) * size
        return _to_long(total)

    def __reduce__(self) -> tuple[Any, ...]:
        return BookkeeperAvailability.from_stored, (self._stored,)

    def __bool__(self) -> bool:
        return self._groups.first.size > 0

    def __repr__(self) -> str:
        groups = format_count(self._stored.first.size, "stored group")
        entries = format_count(self._total_with_overflow(), "entry", "entries")
        return f"<Availability as built: {entries} in {groups}>"

    def __contains__(self, entry: object) -> bool:
        if not isinstance(entry, (int, np.integer)) or not -(2**63) <= entry < 2**63:
            return False
        return bool(self.contains_many(np.array([entry], np.int64))[0])

    def contains_many(self, entries: IntArrayLike) -> npt.NDArray[np.bool_]:
        """Return bool[n]: whether the real look-up finds each id. O(n log groups)."""
        ids = as_int64(entries, "entry ids")
        if not self._stored.first.size:
            return np.zeros(ids.size, np.bool_)
        # The group at or below each id; -1 if there is none.
        index = np.searchsorted(self._stored.first, ids, "right") - 1
        group = self._stored.take(np.maximum(index, 0))
        offset = ids - group.first  # may wrap, as a long does
        # The offset of the id in its sequence. `fmod` has the sign of the dividend, as `%` in Java.
        is_single = group.period == 0
        period = np.where(is_single, 1, np.abs(group.period))
        phase = np.where(is_single, offset, np.fmod(offset, period))
        hits: npt.NDArray[np.bool_] = (
            (index >= 0) & (ids <= _last_lookup_ids(group)) & (phase < group.size)
        )
        return hits

    def missing(
        self,
        expected: Availability,
        first: int | None = None,
        last: int | None = None,
        compat: str | None = None,
    ) -> Availability:
        """Return the entries that BookKeeper's `getUnavailableEntries` reports as missing in the
        inclusive range first..last (default: all of `expected`), including those it reports
        falsely. The parameter `compat` is that of the base class, and not used here."""
        lo = expected.first_entry if first is None else first
        hi = expected.last_entry if last is None else last
        if lo is None or hi is None:
            return Availability()
        lo, hi = max(lo, -(2**63)), min(hi, MAX_ENTRY_ID)  # bounds may be any int; ids are int64
        if hi < max(lo, 0):
            return Availability()
        in_range = expected & Availability.from_ranges([(max(lo, 0), hi)])
        # Each span is a row: group index, start, end.
        numbers = (number for span in self._iterate_spans(lo, hi) for number in span)
        group_indexes, starts, ends = np.fromiter(numbers, np.int64).reshape(-1, 3).T
        found_groups = _find_in_spans(self._stored.take(group_indexes), np.maximum(starts, 0), ends)
        return in_range - Availability.from_canonical(canonicalize(found_groups))

    def _iterate_spans(self, lo: int, hi: int) -> Iterator[tuple[int, int, int]]:
        """Yield spans (group index, start, end): BookKeeper looks up the ids start..end-1 in that
        group. It reports all expected ids outside of the spans as missing. These are the ids below
        the first group, and, as it then stops looking, all ids from the first one on that is past
        the last id for which the group below it is asked."""
        starts, limits = self._stored.first, _last_lookup_ids(self._stored)
        index, entry_id = int(np.searchsorted(starts, lo, "right")) - 1, lo
        if index < 0 and starts.size:  # `lo` is below the first group
            index, entry_id = 0, int(starts[0])
        while index >= 0 and entry_id <= min(hi, int(limits[index])):
            end = min(int(limits[index]), hi) + 1
            yield index, entry_id, end
            entry_id = end  # goes on in the last group that starts at or below it
            while index + 1 < starts.size and int(starts[index + 1]) <= entry_id:
                index += 1


def _iterate_ids(ids: Int64Array) -> Iterator[int]:
    """Yield the ids as Python ints, a chunk at a time."""
    for offset in range(0, ids.size, _CHUNK):
        yield from ids[offset : offset + _CHUNK].tolist()


def _to_long(value: int) -> int:
    """Return the value as Java's long holds it: it wraps at 2^63."""
    return (value + 2**63) % 2**64 - 2**63


def _last_lookup_ids(stored: Groups) -> Int64Array:
    """Return the last id that is looked up in each group: one past its last id; may wrap."""
    return stored.last + stored.size


def _find_in_spans(stored: Groups, starts: Int64Array, ends: Int64Array) -> Groups:
    """Return the ids that look-ups find: of each span starts[i]..ends[i]-1 those in group i of
    `stored`. Spans ascend and do not overlap."""
    # Drop spans without ids.
    nonempty = (ends > starts) & (stored.size > 0)
    stored, starts, ends = stored.take(nonempty), starts[nonempty], ends[nonempty]
    if not starts.size:
        return empty()
    is_single = stored.period == 0
    # A look-up in a group with period 0, which is a single sequence, finds ids of that only.
    ends = np.where(is_single, np.minimum(ends, stored.first + stored.size), ends)
    keep = ends > starts
    stored, starts, ends, is_single = stored.take(keep), starts[keep], ends[keep], is_single[keep]
    # Distances from the start of a group must fit int64.
    if ((stored.first < 0) & (ends - 1 > np.minimum(stored.first, 0) + _MAX_INT64)).any():
        raise InvalidArgument(
            "a group from a negative id reaches over 2^63 ids: not a set of entries"
        )
    # In its span a group has all ids if it is one sequence or its sequences touch (solid),
    # otherwise sequences at equal distances (periodic).
    period = np.where(is_single, 1, np.abs(stored.period))  # look-ups ignore the sign
    is_solid = is_single | (stored.size >= period)
    pattern = Pattern(
        solid=is_solid, periodic=~is_solid, phase=stored.first, size=stored.size, period=period
    )
    return groups_of_pattern(pattern, starts, ends, where=np.ones(starts.size, np.bool_))


Availability.compat_classes["bookkeeper"] = BookkeeperAvailability
