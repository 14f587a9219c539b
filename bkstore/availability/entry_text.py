"""Sets of entries as text for people: ranges; of a stripe the first ranges, "..." and the last."""

from __future__ import annotations

from collections.abc import Iterator

from bkstore.availability.entry_set import Availability
from bkstore.counts import format_count
from bkstore.ids import LedgerId

_LISTED_RANGES = 4  # a group of more ranges is shown as its first three and its last


def format_entries(entries: Availability, max_ranges: int = 9) -> str:
    """Return a set of entries as one line: its ranges, and their number of entries if there are
    several ranges. A sequence group is shown as its first three ranges, "..." and its last. After
    `max_ranges` ranges, the highest entry id stands for the others. O(max_ranges), however many
    ranges there are.

    >>> format_entries(Availability.from_entries(range(0, 100, 3)))
    '0, 3, 6, ..., 99 (34 entries)'
    >>> format_entries(Availability.from_ranges([(0, 1), (3, 4), (9, 9)]))
    '0-1, 3-4, 9 (5 entries)'
    >>> format_entries(Availability.from_ranges([(2, 5)])), format_entries(Availability())
    ('2-5', 'none')
    >>> format_entries(Availability.from_entries([0, 2, 7, 11, 40, 41, 99]), max_ranges=3)
    '0, 2, 7 and others up to 99 (7 entries)'
    """
    if not entries:
        return "none"
    ranges: list[str] = []
    is_complete = True
    for entry_range in _iterate_ranges(entries):
        if len(ranges) >= max_ranges:
            is_complete = False
            break
        ranges.append(entry_range)
    text = ", ".join(ranges)
    if not is_complete:
        text += f" and others up to {entries.last_entry}"
    if is_complete and len(ranges) == 1:
        return text
    return f"{text} ({format_count(len(entries), 'entry', 'entries', grouped=True)})"


def _iterate_ranges(entries: Availability) -> Iterator[str]:
    """Yield the ranges as texts. Of a sequence group of many ranges, these are the first three,
    "..." and the last."""
    for first, last, size, period in zip(*(column.tolist() for column in entries.columns)):
        count = 1 if last == first else (last - first) // period + 1  # of ranges in the group
        is_shortened = count > _LISTED_RANGES
        for index in range(3 if is_shortened else count):
            yield _format_range(first + index * period, size)
        if is_shortened:
            yield "..."
            yield _format_range(last, size)


def _format_range(first: int, size: int) -> str:
    return str(first) if size == 1 else f"{first}-{first + size - 1}"


def format_entries_of(ledger: LedgerId | None, entries: Availability) -> str:
    """Return the entries of a ledger as the subject of a sentence; of any ledger if it is None.

    >>> format_entries_of(LedgerId(0, 7), Availability.from_entries([5]))
    'entry 5 of ledger 7'
    >>> format_entries_of(LedgerId(0, 7), Availability.from_entries(range(1, 300, 2)))
    'entries 1, 3, 5, ..., 299 (150 entries) of ledger 7'
    """
    noun = "entry" if len(entries) == 1 else "entries"
    of_ledger = "" if ledger is None else f" of ledger {ledger}"
    return f"{noun} {format_entries(entries)}{of_ledger}"
