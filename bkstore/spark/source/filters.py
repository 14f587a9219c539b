"""Which rows a query wants, as far as its filters on bookie, scope and ledger say it.

Spark compares ids as signed numbers, indexes order them as unsigned ones. So bounds are kept
signed, as rows have them, and turned into ranges of ledgers to skip what need not be read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from bkstore.ids import Int64Array, LedgerId
from bkstore.offline.dump.plan import Piece

Interval = tuple[int, int]
"""Inclusive, signed."""

_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
_ALL: tuple[Interval, ...] = ((_LEAST, _MOST),)
_MOST_RANGES = 16
"""Ranges of ledgers that are looked up one by one; more are read as one, and filtered."""

Range = tuple[LedgerId, LedgerId | None]
"""Ledgers from the first to before the second (None: to the end), in unsigned order."""


@dataclass(frozen=True)
class Bounds:
    """The bookies (None: all), scopes and ledgers that are wanted; intervals are disjoint.

    >>> wanted = Bounds().narrowed("ledger_id", ((-1, 3),))
    >>> wanted.mask(np.array([0, 0, 5]), np.array([2, 4, -1])).tolist()
    [True, False, True]
    """

    bookies: frozenset[str] | None = None
    scopes: tuple[Interval, ...] = _ALL
    ledgers: tuple[Interval, ...] = _ALL

    def narrowed(self, column: str, wanted: Iterable[Interval]) -> Bounds:
        """Return the bounds with one more condition on `scope_id` or `ledger_id`."""
        if column == "scope_id":
            return replace(self, scopes=_common(self.scopes, wanted))
        return replace(self, ledgers=_common(self.ledgers, wanted))

    def of_bookies(self, names: Iterable[str]) -> Bounds:
        """Return the bounds with one more condition on `bookie`."""
        here = frozenset(names)
        return replace(self, bookies=here if self.bookies is None else here & self.bookies)

    def wants(self, bookie: str) -> bool:
        """Whether rows of the bookie are wanted."""
        return self.bookies is None or bookie in self.bookies

    @property
    def everything(self) -> bool:
        """Whether no scope and no ledger is left out."""
        return self.scopes == self.ledgers == _ALL

    def mask(self, scopes: Int64Array, ledgers: Int64Array) -> npt.NDArray[np.bool_]:
        """Return for each row whether its ledger is wanted."""
        return _inside(self.scopes, scopes) & _inside(self.ledgers, ledgers)

    def cut(self, piece: Piece) -> list[Piece]:
        """Return the piece without ledgers that are not wanted, as far as they can be skipped.

        A piece of index files keeps the files that are wanted, one of a database becomes one
        for each range of ledgers. Entry logs are all kept.
        """
        if self.everything or piece.kind == "logs":
            return [piece]
        if piece.layout == "idx":
            names = np.array([name.signed for name, _ in piece.files], np.int64).reshape(-1, 2)
            kept = self.mask(names[:, 0], names[:, 1])
            files = tuple(file for file, keep in zip(piece.files, kept) if keep)
            return [replace(piece, files=files)] if files else []
        ranges = list(self._ranges())
        if len(ranges) > _MOST_RANGES:
            ranges = [(ranges[0][0], ranges[-1][1])]
        cut = [_overlap((piece.first, piece.stop), one) for one in ranges]
        return [
            replace(piece, first=one[0], stop=one[1])
            for one in cut
            if one is not None and not _is_elsewhere(one, piece)
        ]

    def _ranges(self) -> Iterator[Range]:
        """Yield ranges that hold every ledger that is wanted, in unsigned order."""
        if not self.ledgers:
            return
        for low, high in _unsigned(self.scopes):
            if low == 0:
                for first, last in _unsigned(self.ledgers):
                    if first <= _MOST:
                        yield LedgerId(0, first), _behind(0, min(last, _MOST))
                low = 1
            if low == high:
                for first, last in _unsigned(self.ledgers):
                    yield LedgerId(low, first), _behind(low, last)
            elif low < high:
                yield LedgerId(low, 0), _behind(high, (1 << 64) - 1)


def _common(one: Iterable[Interval], other: Iterable[Interval]) -> tuple[Interval, ...]:
    found = [(max(a, c), min(b, d)) for a, b in one for c, d in other if max(a, c) <= min(b, d)]
    return tuple(sorted(set(found)))


def _inside(intervals: tuple[Interval, ...], values: Int64Array) -> npt.NDArray[np.bool_]:
    if not intervals:
        return np.zeros(values.shape, np.bool_)
    lows, highs = np.array(intervals, np.int64).T
    at = np.searchsorted(lows, values, side="right") - 1
    inside: npt.NDArray[np.bool_] = (at >= 0) & (values <= highs[np.maximum(at, 0)])
    return inside


def _unsigned(intervals: tuple[Interval, ...]) -> Iterator[Interval]:
    """Yield signed intervals as unsigned ones, in unsigned order."""
    for low, high in intervals:
        if high >= 0:
            yield max(low, 0), high
    for low, high in intervals:
        if low < 0:
            yield low + (1 << 64), min(high, -1) + (1 << 64)


def _behind(scope: int, ledger: int) -> LedgerId | None:
    """Return the first ledger behind this one, None if there is none."""
    most = _MOST if scope == 0 else (1 << 64) - 1
    if ledger < most:
        return LedgerId(scope, ledger + 1)
    return LedgerId(scope + 1, 0) if scope < (1 << 64) - 1 else None


def _is_elsewhere(one: Range, piece: Piece) -> bool:
    """Whether the range is a single ledger, whose place is another directory."""
    first, stop = one
    single = stop == _behind(*first)
    return single and first.ledger % piece.directories != piece.dir_index


def _overlap(one: Range, other: Range) -> Range | None:
    first = max(one[0], other[0])
    stops = [stop for stop in (one[1], other[1]) if stop is not None]
    stop = min(stops) if stops else None
    return None if stop is not None and stop <= first else (first, stop)


def interval(kind: str, value: Any) -> tuple[Interval, ...] | None:
    """Return the ids that a comparison lets through, None for one that is not known.

    >>> interval("LessThan", 3), interval("In", (5, 1, 5))
    (((-9223372036854775808, 2),), ((1, 1), (5, 5)))
    """
    if kind == "In":
        return tuple((one, one) for one in sorted({one for one in value if one is not None}))
    if value is None:
        return ()
    bounds = {
        "EqualTo": (value, value),
        "GreaterThan": (value + 1, _MOST),
        "GreaterThanOrEqual": (value, _MOST),
        "LessThan": (_LEAST, value - 1),
        "LessThanOrEqual": (_LEAST, value),
    }
    if kind not in bounds:
        return None
    low, high = bounds[kind]
    return ((low, high),) if low <= high else ()
