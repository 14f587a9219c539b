"""The answers of BookKeeper's own `AvailabilityOfEntriesOfLedger`, defects included.

What differs from `Availability` (seen by running the class; `docs/parity.md`): the encoder
never joins two sequences; ids out of order give overlapping or replaced groups; a look-up
consults only the group at or below the id; `getUnavailableEntries` stops looking after a hole
of two or more ids and reports every later expected id. Reached through ``compat="bookkeeper"``
only. Sums are 64-bit and wrap, remainders have the sign of the dividend, as in Java. Costs are
in stored groups: which ids a look-up finds, and what a walk reports, is told group by group.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from bkstore.availability import codec
from bkstore.availability.codec import Encoding
from bkstore.availability.entry_set import Availability
from bkstore.availability.grouping import fold
from bkstore.availability.patterns import Pattern, emit
from bkstore.availability.sequence_groups import Groups, empty
from bkstore.counts import counted
from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.ids import MAX_ENTRY_ID, Int64Array, IntArrayLike, as_int64

_NO_ENTRY = -1  # INVALID_ENTRYID upstream: "no current sequence"
_AT_A_TIME = 1 << 16
_LONGEST = np.int64(2**63 - 1)


class BookkeeperAvailability(Availability):
    """An availability answer with upstream's groups and upstream's look-up rule.

    `groups`, ``len`` and `to_bytes` tell what is stored; ``in``, `contains_many` and `missing`
    answer as the real class does; all else works on the ids of 0..2^63-2 for which ``in`` says
    yes. ``len`` raises `InvalidArgument` where the stored groups add up to no length.
    """

    __slots__ = ("_found", "_stored")
    _found: Groups | None
    _stored: Groups

    @classmethod
    def from_insertions(cls, entries: IntArrayLike) -> BookkeeperAvailability:
        """Return what the built encoder makes of ids in the order given (any int64 values)."""
        rows: dict[int, int] = {}
        start, size = _NO_ENTRY, 0
        for entry in _one_by_one(as_int64(entries, "entry ids")):
            if start != _NO_ENTRY:
                if start <= entry < start + size:
                    continue
                if entry == start + size:
                    size += 1
                    continue
                rows[start] = size
            start, size = entry, 1
        if start != _NO_ENTRY:
            rows[start] = size
        first, sizes = np.array(list(rows), np.int64), np.array(list(rows.values()), np.int64)
        return cls.from_stored(Groups(first, first, sizes, np.zeros_like(first)))

    @classmethod
    def from_stored(cls, groups: Groups) -> BookkeeperAvailability:
        """Return the answer for decoded groups; of equal first starts the later one wins."""
        bad = np.flatnonzero((groups.last != groups.first) & (groups.period == 0))
        if bad.size:
            at = int(groups.first[bad[0]])
            raise CorruptionError(None, None, f"group at {at}: several sequences, period 0")
        order = np.argsort(groups.first, kind="stable")
        first = groups.first[order]
        made = cls.__new__(cls)
        made._stored = groups.take(order[np.append(first[1:] != first[:-1], True)[: first.size]])
        made._found = None
        return made

    @property
    def _groups(self) -> Groups:  # type: ignore[override]
        """The canonical groups of the ids that a look-up finds; made when first asked for."""
        if self._found is None:
            stored = self._stored
            above = np.append(stored.first[1:], np.int64(MAX_ENTRY_ID + 1))[: stored.first.size]
            hi = np.minimum(_limits(stored), above - 1) + 1
            self._found = fold(_answers(stored, np.maximum(stored.first, 0), hi))
        return self._found

    @property
    def groups(self) -> Int64Array:
        """The stored groups, int64 of shape (n, 4), ascending by first sequence start."""
        return np.stack(self._stored, axis=1)

    def to_bytes(self, encoding: Encoding = "bookkeeper") -> bytes:
        """Return the stored groups encoded; "grouped" encodes the set that look-ups find."""
        if encoding == "bookkeeper":
            return codec.write_raw(self._stored)
        return codec.encode(self._groups, encoding)

    def __len__(self) -> int:
        total = self._total()
        if total < 0:
            raise InvalidArgument(
                f"the stored groups add up to {counted(total, 'entry', 'entries')}: no length"
            )
        return total

    def _total(self) -> int:
        """Return `getTotalNumOfAvailableEntries`, which is a long and may wrap."""
        total = 0
        for first, last, size, period in zip(*(column.tolist() for column in self._stored)):
            span = _long(last - first)
            steps = abs(span) // abs(period) if period else 0
            total += ((-steps if (span < 0) != (period < 0) else steps) + 1) * size
        return _long(total)

    def __reduce__(self) -> tuple[Any, ...]:
        return BookkeeperAvailability.from_stored, (self._stored,)

    def __bool__(self) -> bool:
        return self._groups.first.size > 0

    def __repr__(self) -> str:
        groups = counted(self._stored.first.size, "stored group")
        return f"<Availability as built: {counted(self._total(), 'entry', 'entries')} in {groups}>"

    def __contains__(self, entry: object) -> bool:
        if not isinstance(entry, (int, np.integer)) or not -(2**63) <= entry < 2**63:
            return False
        return bool(self.contains_many(np.array([entry], np.int64))[0])

    def contains_many(self, entries: IntArrayLike) -> npt.NDArray[np.bool_]:
        """Return bool[n]: the built look-up's answer for each id. O(n log groups)."""
        ids = as_int64(entries, "entry ids")
        if not self._stored.first.size:
            return np.zeros(ids.size, np.bool_)
        at = np.searchsorted(self._stored.first, ids, "right") - 1
        floor = self._stored.take(np.maximum(at, 0))
        into = ids - floor.first  # may wrap, as a long does
        period = np.where(floor.period == 0, 2**31, np.abs(floor.period))
        phase = np.where(floor.period == 0, into, np.fmod(into, period))
        held: npt.NDArray[np.bool_] = (at >= 0) & (ids <= _limits(floor)) & (phase < floor.size)
        return held

    def missing(
        self,
        expected: Availability,
        first: int | None = None,
        last: int | None = None,
        compat: str | None = None,
    ) -> Availability:
        """Return what `getUnavailableEntries` reports for the inclusive range first..last."""
        lo = expected.first_entry if first is None else first
        hi = expected.last_entry if last is None else last
        if lo is None or hi is None:
            return Availability()
        lo, hi = max(lo, -(2**63)), min(hi, MAX_ENTRY_ID)
        if hi < max(lo, 0):
            return Availability()
        asked = expected & Availability.from_ranges([(max(lo, 0), hi)])
        flat = np.fromiter((number for row in self._walk(lo, hi) for number in row), np.int64)
        at, begin, end = flat.reshape(-1, 3).T
        judged = fold(_answers(self._stored.take(at), np.maximum(begin, 0), end))
        return asked - Availability.from_canonical(judged)

    def _walk(self, lo: int, hi: int) -> Iterator[tuple[int, int, int]]:
        """Yield (group, start, end): which group the walk asks about the ids start..end-1.

        Of ids between two of these it reports every expected one: below the first group, and
        from the first id on that lies above the last id of the group below it.
        """
        starts, limits = self._stored.first, _limits(self._stored)
        at, entry = int(np.searchsorted(starts, lo, "right")) - 1, lo
        if at < 0 and starts.size:
            at, entry = 0, int(starts[0])
        while at >= 0 and entry <= min(hi, int(limits[at])):
            end = min(int(limits[at]), hi) + 1
            yield at, entry, end
            entry = end
            while at + 1 < starts.size and int(starts[at + 1]) <= entry:
                at += 1


def _one_by_one(ids: Int64Array) -> Iterator[int]:
    for at in range(0, ids.size, _AT_A_TIME):
        yield from ids[at : at + _AT_A_TIME].tolist()


def _long(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63


def _limits(stored: Groups) -> Int64Array:
    """Return the last id that each group is asked about: one past its last, and wrapping."""
    return stored.last + stored.size


def _answers(stored: Groups, lo: Int64Array, hi: Int64Array) -> Groups:
    """Return the ids of lo[i]..hi[i]-1 that group i says yes to; the stretches ascend."""
    some = (hi > lo) & (stored.size > 0)
    stored, lo, hi = stored.take(some), lo[some], hi[some]
    if not lo.size:
        return empty()
    alone = stored.period == 0
    # A group without a period answers for its first sequence, wherever it says the last is.
    hi = np.where(alone, np.minimum(hi, stored.first + stored.size), hi)
    keep = hi > lo
    stored, lo, hi, alone = stored.take(keep), lo[keep], hi[keep], alone[keep]
    if ((stored.first < 0) & (hi - 1 > np.minimum(stored.first, 0) + _LONGEST)).any():
        raise InvalidArgument("a group from a negative id reaches over 2^63 ids: no set of entries")
    period = np.where(alone, 2**31, np.abs(stored.period))
    solid = alone | (stored.size >= period)
    pattern = Pattern(solid, ~solid, stored.first, stored.size, period)
    return emit(pattern, lo, hi, np.ones(lo.size, np.bool_))


Availability.compat_answers["bookkeeper"] = BookkeeperAvailability
