"""The rows that a query selects by its filters on bookie, scope and ledger.

Spark compares ids as signed numbers, indexes order them as unsigned ones. So bounds are signed, as
ids in rows are, and are converted to unsigned ranges of ledgers to skip parts of an index.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bkstore.ids import Int64Array, LedgerId
from bkstore.offline.dump.plan import DumpPiece

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

Interval = tuple[int, int]
"""Inclusive, signed."""

_MIN_INT64, _MAX_INT64 = -(1 << 63), (1 << 63) - 1
_EVERY_ID: tuple[Interval, ...] = ((_MIN_INT64, _MAX_INT64),)
_MAX_RANGES = 16
"""Maximum number of ranges that are looked up one by one; more are read as one and filtered."""

LedgerSpan = tuple[LedgerId, LedgerId | None]
"""Ledgers from the first to before the second (None: to the end), in unsigned order."""


@dataclass(frozen=True)
class Bounds:
    """The selected bookies (None: all), scopes and ledgers; intervals are disjoint.

    >>> wanted = Bounds().with_id_filter("ledger_id", ((-1, 3),))
    >>> wanted.mask(np.array([0, 0, 5]), np.array([2, 4, -1])).tolist()
    [True, False, True]
    """

    bookies: frozenset[str] | None = None
    scopes: tuple[Interval, ...] = _EVERY_ID
    ledgers: tuple[Interval, ...] = _EVERY_ID

    def with_filter(self, pushed_filter: Filter, has_ledger_ids: bool) -> Bounds | None:
        """Return the bounds narrowed by a filter of Spark; None if it is not supported."""
        attribute: tuple[str, ...] = getattr(pushed_filter, "attribute", ())
        value: Any = getattr(pushed_filter, "value", None)
        comparison, column = type(pushed_filter).__name__, ".".join(attribute)
        if column == "bookie" and comparison in ("EqualTo", "In"):
            return self.with_bookies(value if comparison == "In" else [value])
        if column not in ("scope_id", "ledger_id") or not has_ledger_ids:
            return None
        intervals = passing_intervals(comparison, value)
        return None if intervals is None else self.with_id_filter(column, intervals)

    def with_id_filter(self, column: str, intervals: Iterable[Interval]) -> Bounds:
        """Return the bounds with one more condition on `scope_id` or `ledger_id`."""
        if column == "scope_id":
            return replace(self, scopes=_intersect_intervals(self.scopes, intervals))
        return replace(self, ledgers=_intersect_intervals(self.ledgers, intervals))

    def with_bookies(self, bookies: Iterable[str]) -> Bounds:
        """Return the bounds with one more condition on `bookie`."""
        selected = frozenset(bookies)
        return replace(self, bookies=selected if self.bookies is None else selected & self.bookies)

    def selects_bookie(self, bookie: str) -> bool:
        """Return whether rows of the bookie are selected."""
        return self.bookies is None or bookie in self.bookies

    @property
    def selects_all(self) -> bool:
        """Whether all scopes and ledgers are selected."""
        return self.scopes == self.ledgers == _EVERY_ID

    def mask(self, scopes: Int64Array, ledgers: Int64Array) -> npt.NDArray[np.bool_]:
        """Return for each row whether its ledger is selected."""
        return _is_inside(self.scopes, scopes) & _is_inside(self.ledgers, ledgers)

    def narrow_piece(self, piece: DumpPiece) -> list[DumpPiece]:
        """Return the piece without the excluded ledgers, as far as they can be skipped.

        A piece of index files keeps the selected files; a piece of a database becomes one piece per
        range of ledgers. Pieces of entry logs are returned whole.
        """
        if self.selects_all or piece.kind == "logs":
            return [piece]
        if piece.layout == "idx":
            pairs = [ledger_id.signed for ledger_id, _ in piece.files]
            ids = np.array(pairs, np.int64).reshape(-1, 2)
            is_selected = self.mask(ids[:, 0], ids[:, 1])
            files = tuple(file for file, keep in zip(piece.files, is_selected) if keep)
            return [replace(piece, files=files)] if files else []
        spans = list(self._ledger_spans())
        if len(spans) > _MAX_RANGES:  # read all that is between the first and the last
            (first_ledger, _), (_, stop_ledger) = spans[0], spans[-1]
            spans = [(first_ledger, stop_ledger)]
        piece_span = (piece.first_ledger, piece.stop_ledger)
        overlaps = [_intersect_spans(piece_span, span) for span in spans]
        selected_spans = [
            span for span in overlaps if span is not None and not _is_elsewhere(span, piece)
        ]
        return [
            replace(piece, first_ledger=first_ledger, stop_ledger=stop_ledger)
            for first_ledger, stop_ledger in selected_spans
        ]

    def _ledger_spans(self) -> Iterator[LedgerSpan]:
        """Yield the spans of the selected ledgers, in unsigned order. Scope 0 and single scopes are
        yielded with the selected ledgers, intervals of several scopes with all ledgers."""
        if not self.ledgers:
            return
        for low_scope, high_scope in _to_unsigned(self.scopes):
            if low_scope == 0:
                for first, last in _to_unsigned(self.ledgers):
                    if first <= _MAX_INT64:  # the highest ledger id of scope 0
                        yield LedgerId(0, first), _next_ledger(0, min(last, _MAX_INT64))
                low_scope = 1  # scope 0 is done
            if low_scope == high_scope:
                for first, last in _to_unsigned(self.ledgers):
                    yield LedgerId(low_scope, first), _next_ledger(low_scope, last)
            elif low_scope < high_scope:
                yield LedgerId(low_scope, 0), _next_ledger(high_scope, (1 << 64) - 1)


def _intersect_intervals(
    intervals: Iterable[Interval], other_intervals: Iterable[Interval]
) -> tuple[Interval, ...]:
    """Return the values that are in both, as ordered intervals of inclusive ends."""
    overlaps = {
        (max(first, other_first), min(last, other_last))
        for first, last in intervals
        for other_first, other_last in other_intervals
        if max(first, other_first) <= min(last, other_last)
    }
    return tuple(sorted(overlaps))


def _is_inside(intervals: tuple[Interval, ...], values: Int64Array) -> npt.NDArray[np.bool_]:
    """Return for each value whether it is in one of the ascending intervals."""
    if not intervals:
        return np.zeros(values.shape, np.bool_)
    lows, highs = np.array(intervals, np.int64).T
    # The interval that begins last at or before the value; -1: none does.
    positions = np.searchsorted(lows, values, side="right") - 1
    inside: npt.NDArray[np.bool_] = (positions >= 0) & (values <= highs[np.maximum(positions, 0)])
    return inside


def _to_unsigned(intervals: tuple[Interval, ...]) -> Iterator[Interval]:
    """Yield signed intervals as unsigned ones, in unsigned order."""
    for low, high in intervals:
        if high >= 0:
            yield max(low, 0), high
    for low, high in intervals:
        if low < 0:
            yield low + (1 << 64), min(high, -1) + (1 << 64)


def _next_ledger(scope: int, ledger: int) -> LedgerId | None:
    """Return the next ledger id in unsigned order (below 2^63 in scope 0), None after the last."""
    max_ledger = _MAX_INT64 if scope == 0 else (1 << 64) - 1
    if ledger < max_ledger:
        return LedgerId(scope, ledger + 1)
    return LedgerId(scope + 1, 0) if scope < (1 << 64) - 1 else None


def _is_elsewhere(span: LedgerSpan, piece: DumpPiece) -> bool:
    """Return whether the range is a single ledger that belongs to another directory."""
    first, stop = span
    single = stop == _next_ledger(*first)
    return single and first.ledger % piece.directory_count != piece.dir_index


def _intersect_spans(span: LedgerSpan, other_span: LedgerSpan) -> LedgerSpan | None:
    """Return the ledgers in both half-open spans, None if there are none."""
    (first, stop), (other_first, other_stop) = span, other_span
    first = max(first, other_first)
    if stop is None or (other_stop is not None and other_stop < stop):  # None: to the last ledger
        stop = other_stop
    return None if stop is not None and stop <= first else (first, stop)


def passing_intervals(comparison: str, value: Any) -> tuple[Interval, ...] | None:
    """Return the ids that pass a comparison, or None if the comparison is not supported.

    >>> passing_intervals("LessThan", 3), passing_intervals("In", (5, 1, 5))
    (((-9223372036854775808, 2),), ((1, 1), (5, 5)))
    """
    if comparison == "In":
        numbers = {number for number in value if number is not None}
        return tuple((number, number) for number in sorted(numbers))
    if value is None:  # null: no row passes
        return ()
    bounds = {
        "EqualTo": (value, value),
        "GreaterThan": (value + 1, _MAX_INT64),
        "GreaterThanOrEqual": (value, _MAX_INT64),
        "LessThan": (_MIN_INT64, value - 1),
        "LessThanOrEqual": (_MIN_INT64, value),
    }
    if comparison not in bounds:
        return None
    low, high = bounds[comparison]
    return ((low, high),) if low <= high else ()
