"""The answers of BookKeeper's own `AvailabilityOfEntriesOfLedger`, defects included.

What differs from `Availability` (seen by running the class; `docs/parity.md`): the encoder
never joins two sequences; ids out of order give overlapping or replaced groups; a look-up
consults only the group at or below the id; `getUnavailableEntries` stops looking after a hole
of two or more ids and reports every later expected id. Reached through ``compat="bookkeeper"``
only; sequential on purpose, as the rule is.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from bkstore.availability import Availability, Encoding, codec, scanning
from bkstore.availability.grouping import fold
from bkstore.availability.sequences import Groups
from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.ids import Int64Array

__all__ = ["BuiltAvailability"]

_MOST_LOOKED_UP = 10_000_000
_NO_ENTRY = -1  # INVALID_ENTRYID upstream: "no current sequence"


class BuiltAvailability(Availability):
    """An availability answer with upstream's groups and upstream's look-up rule.

    `groups`, ``len`` and `to_bytes` tell what is stored; ``in`` and `missing` answer as the
    real class does; the set operations work on the ids for which ``in`` says yes.
    """

    __slots__ = ("_found", "_rows", "_starts")
    _found: Groups | None
    _rows: dict[int, tuple[int, int, int]]
    _starts: list[int]

    @classmethod
    def from_insertions(cls, entries: npt.ArrayLike | Iterable[int]) -> BuiltAvailability:
        """Return what the built encoder makes of ids in the order given (any int64 values)."""
        rows: dict[int, tuple[int, int, int]] = {}
        start, size = _NO_ENTRY, 0
        for entry in np.asarray(
            entries if isinstance(entries, np.ndarray) else list(entries),  # type: ignore[arg-type]
            np.int64,
        ).tolist():
            if start != _NO_ENTRY:
                if start <= entry < start + size:
                    continue
                if entry == start + size:
                    size += 1
                    continue
                rows[start] = (start, size, 0)
            start, size = entry, 1
        if start != _NO_ENTRY:
            rows[start] = (start, size, 0)
        return cls._made(rows)

    @classmethod
    def from_stored(cls, groups: Groups) -> BuiltAvailability:
        """Return the answer for decoded groups; of equal first starts the later one wins."""
        rows = {}
        for first, last, size, period in zip(*(column.tolist() for column in groups)):
            if last != first and period == 0:
                raise CorruptionError(None, None, f"group at {first}: several sequences, period 0")
            rows[first] = (last, size, period)
        return cls._made(rows)

    @classmethod
    def _made(cls, rows: dict[int, tuple[int, int, int]]) -> BuiltAvailability:
        made = cls.__new__(cls)
        made._rows = rows
        made._starts = sorted(rows)
        made._found = None
        return made

    @property
    def _groups(self) -> Groups:  # type: ignore[override]
        """The canonical groups of the ids that a look-up finds; made when first asked for."""
        if self._found is None:
            self._found = self._as_set()
        return self._found

    def _as_set(self) -> Groups:
        try:
            return fold(codec.decode(self.to_bytes()))
        except CorruptionError:  # groups that contradict themselves: each id must be looked up
            return self._by_look_up()

    def _by_look_up(self) -> Groups:
        if len(self) > _MOST_LOOKED_UP:
            raise InvalidArgument(
                f"{len(self)} entries in groups that overlap or contradict themselves: up to "
                f"{_MOST_LOOKED_UP} are looked up one by one"
            )
        found: set[int] = set()
        for first in self._starts:
            last, size, period = self._rows[first]
            for start in range(first, last + 1, max(period, 1)):
                found.update(e for e in range(start, start + size) if e in self)
        return scanning.from_ids(np.array(sorted(found), np.int64))

    @property
    def groups(self) -> Int64Array:
        """The stored groups, int64 of shape (n, 4), ascending by first sequence start."""
        return np.array([(s, *self._rows[s]) for s in self._starts], np.int64).reshape(-1, 4)

    def to_bytes(self, encoding: Encoding = "bookkeeper") -> bytes:
        """Return the stored groups encoded; "grouped" encodes the set that look-ups find."""
        if encoding == "grouped":
            return codec.encode(self._groups, encoding)
        return codec.write_raw(Groups(*self.groups.T))

    def __len__(self) -> int:
        return sum(
            size if start == last else ((last - start) // period + 1) * size
            for start, (last, size, period) in self._rows.items()
        )

    def _floor(self, entry: int) -> int | None:
        at = bisect.bisect_right(self._starts, entry) - 1
        return None if at < 0 else self._starts[at]

    def _holds(self, start: int, entry: int) -> bool:
        last, size, period = self._rows[start]
        if entry > last + size:
            return False
        return (entry - start if period == 0 else (entry - start) % period) < size

    def __contains__(self, entry: object) -> bool:
        if not isinstance(entry, (int, np.integer)):
            return False
        start = self._floor(int(entry))
        return start is not None and self._holds(start, int(entry))

    def contains_many(self, entries: npt.ArrayLike | Iterable[int]) -> npt.NDArray[np.bool_]:
        """Return bool[n]: the built look-up's answer for each id."""
        ids = np.asarray(
            entries if isinstance(entries, np.ndarray) else list(entries),  # type: ignore[arg-type]
            np.int64,
        )
        return np.fromiter((e in self for e in ids.tolist()), np.bool_, ids.size)

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
        return Availability.from_entries(self._walk(expected, lo, hi))

    def _walk(self, expected: Availability, lo: int, hi: int) -> list[int]:
        reported: list[int] = []
        current: int | None = None
        exhausted = False
        asked = (
            set((expected & Availability.from_ranges([(lo, hi)])).entries().tolist())
            if (hi >= lo)
            else set()
        )
        for entry in range(lo, hi + 1):
            wanted = entry in asked
            if not exhausted and (current is None or entry > self._limit(current)):
                current = self._floor(entry)
                if current is None:
                    exhausted = not self._starts
                elif entry > self._limit(current):
                    exhausted = True
            if wanted and (exhausted or current is None or not self._holds(current, entry)):
                reported.append(entry)
        return reported

    def _limit(self, start: int) -> int:
        last, size, _ = self._rows[start]
        return last + size
