"""Sets of entries as text for people: runs, with a stripe as its first runs, "..." and its last."""

from __future__ import annotations

from collections.abc import Iterator

from bkstore.availability.entry_set import Availability
from bkstore.counts import format_count
from bkstore.ids import LedgerId

_LISTED_RUNS = 4  # a group of more runs is shown as its first three and its last


def format_entries(entries: Availability, max_runs: int = 9) -> str:
    """Return a set of entries as one line: its runs, and their number of entries if there are
    several runs. A sequence group is shown as its first three runs, "..." and its last. After
    `max_runs` runs, the highest entry id stands for the others. O(max_runs), however many runs
    there are.

    >>> format_entries(Availability.from_entries(range(0, 100, 3)))
    '0, 3, 6, ..., 99 (34 entries)'
    >>> format_entries(Availability.from_ranges([(0, 1), (3, 4), (9, 9)]))
    '0-1, 3-4, 9 (5 entries)'
    >>> format_entries(Availability.from_ranges([(2, 5)])), format_entries(Availability())
    ('2-5', 'none')
    >>> format_entries(Availability.from_entries([0, 2, 7, 11, 40, 41, 99]), max_runs=3)
    '0, 2, 7 and others up to 99 (7 entries)'
    """
    if not entries:
        return "none"
    runs: list[str] = []
    is_complete = True
    for run in _iterate_runs(entries):
        if len(runs) >= max_runs:
            is_complete = False
            break
        runs.append(run)
    text = ", ".join(runs)
    if not is_complete:
        text += f" and others up to {entries.last_entry}"
    if is_complete and len(runs) == 1:
        return text
    return f"{text} ({format_count(len(entries), 'entry', 'entries', grouped=True)})"


def _iterate_runs(entries: Availability) -> Iterator[str]:
    """Yield the runs as texts. Of a sequence group of many runs, these are the first three, "..."
    and the last."""
    for first, last, size, period in zip(*(column.tolist() for column in entries.columns)):
        count = 1 if last == first else (last - first) // period + 1  # of runs in the group
        is_shortened = count > _LISTED_RUNS
        for index in range(3 if is_shortened else count):
            yield _format_run(first + index * period, size)
        if is_shortened:
            yield "..."
            yield _format_run(last, size)


def _format_run(first: int, size: int) -> str:
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
