"""Tasks: which part of which files is read together, by row groups and ranges of ledgers.

A task is small (paths and numbers): it is what Spark is given as rows, and what one process
works through. Files that a manifest declares sorted are cut between ledgers, so that every
ledger is whole in one task; where the cut falls into a row group, both neighbours read it, and
each takes its ledgers. Files of which nothing is known are cut at row groups.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from bkstore.ids import LedgerId
from bkstore.offline.reading.dump_file import DumpFile

__all__ = ["Read", "Task", "apart", "loose_tasks", "packed", "sorted_tasks"]

T = TypeVar("T")

_END = LedgerId(2**64 - 1, 2**64 - 1)


class Read(NamedTuple):
    """Row groups `first` to before `stop` of a file, and of them the ledgers above `above`
    up to `upto` (None: no such bound). `rows` is about how many. `bookie` None: the rows say.
    `sorted_by` are the columns that the file is declared to be sorted by, none if it is not.
    """

    path: str
    bookie: str | None
    first: int
    stop: int
    above: LedgerId | None
    upto: LedgerId | None
    rows: int
    is_sorted: bool


class Task(NamedTuple):
    """What is read together: of each side its reads in order. `rows` is about how many.

    One side is a table; two are the same table of two dumps.
    """

    sides: tuple[tuple[Read, ...], ...]
    leave_out: tuple[LedgerId, ...] = ()

    @property
    def rows(self) -> int:
        """About how many rows it reads."""
        return sum(read.rows for side in self.sides for read in side)

    @property
    def bookie(self) -> str | None:
        """Whose rows they all are, if it is known."""
        names = {read.bookie for side in self.sides for read in side}
        return names.pop() if len(names) == 1 else None

    def to_json(self) -> str:
        """Return it as text, by which it travels."""
        return json.dumps(self, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Task:
        """Return what `to_json` wrote."""
        sides, left_out = json.loads(text)
        reads = (tuple(_read(*each) for each in side) for side in sides)
        return cls(tuple(reads), tuple(LedgerId(*each) for each in left_out))


def _read(
    path: str,
    bookie: str | None,
    first: int,
    stop: int,
    above: list[int] | None,
    upto: list[int] | None,
    rows: int,
    is_sorted: bool,
) -> Read:
    low, high = (None if each is None else LedgerId(*each) for each in (above, upto))
    return Read(path, bookie, first, stop, low, high, rows, is_sorted)


def apart(files: Iterable[DumpFile]) -> tuple[list[DumpFile], list[DumpFile]]:
    """Return (files that are sorted and share no ledger with another, all others), of a bookie.

    Where one file is not declared sorted it may hold any ledger: then all are others. Files
    without rows are left out. O(n log n).
    """
    held = [file for file in files if file.rows]
    ranged = [(file.ledgers, file) for file in held if file.ledgers is not None and file.pure]
    if len(ranged) < len(held):
        return [], held
    ranged.sort(key=lambda pair: pair[0])
    alone: list[DumpFile] = []
    others: list[DumpFile] = []
    joined: list[DumpFile] = []
    end: LedgerId | None = None
    for ledgers, file in ranged:
        if end is None or ledgers.first > end:
            (others if len(joined) > 1 else alone).extend(joined)
            joined = []
        joined.append(file)
        end = ledgers.last if end is None else max(end, ledgers.last)
    (others if len(joined) > 1 else alone).extend(joined)
    return alone, others


def sorted_tasks(
    sides: Sequence[Sequence[DumpFile]], rows: int, leave_out: Iterable[LedgerId] = ()
) -> list[Task]:
    """Return tasks of about `rows` rows over sorted files of one bookie, in order.

    Each side's files are `apart`. A ledger, of all sides, is in one task.
    """
    cuts = _cuts(sides, rows)
    lists = [sorted(side, key=lambda file: file.ledgers or ()) for side in sides]
    lasts = [[_range(file)[1] for file in side] for side in lists]
    left_out = sorted(leave_out)
    found, above = [], None
    for upto in [*cuts, None]:
        reads = [_reads(side, ends, above, upto) for side, ends in zip(lists, lasts)]
        here = [n for n in left_out if (above is None or above < n) and n <= (upto or _END)]
        if any(reads):
            found.append(Task(tuple(map(tuple, reads)), tuple(here)))
        above = upto
    return found


def _range(file: DumpFile) -> tuple[LedgerId, LedgerId]:
    assert file.ledgers is not None
    return file.ledgers


def _cuts(sides: Sequence[Sequence[DumpFile]], rows: int) -> list[LedgerId]:
    """Return ledgers behind which to cut, wherever about `rows` rows have come together."""
    ends = []
    for file in (file for side in sides for file in side):
        groups = file.row_groups
        for at, group in enumerate(groups):
            # The end of a row group, or the beginning of the next, if statistics tell one.
            last = _range(file)[1] if at == len(groups) - 1 else group.last or groups[at + 1].first
            ends.append((last, group.rows))
    known = sorted((last, count) for last, count in ends if last is not None)
    unknown = sum(count for last, count in ends if last is None)
    cuts: list[LedgerId] = []
    so_far = unknown / max(len(known), 1)
    for last, count in known[:-1]:
        so_far += count
        if so_far >= rows and last != known[-1][0] and last not in cuts[-1:]:
            cuts.append(last)
            so_far = 0
    return cuts


def _reads(
    files: Sequence[DumpFile],
    lasts: Sequence[LedgerId],
    above: LedgerId | None,
    upto: LedgerId | None,
) -> list[Read]:
    found = []
    for file in files[0 if above is None else bisect_right(lasts, above) :]:
        first, last = _range(file)
        if upto is not None and first > upto:
            break
        low = above if above is not None and first <= above else None
        high = upto if upto is not None and last > upto else None
        found.append(_part(file, low, high))
    return found


def _part(file: DumpFile, above: LedgerId | None, upto: LedgerId | None) -> Read:
    """Return the row groups that may have ledgers of the range: statistics skip the others."""
    groups = file.row_groups
    first, stop = 0, len(groups)
    if above is not None:
        done = [at for at, g in enumerate(groups) if g.last is not None and g.last <= above]
        # Of the first row group that begins above it, the one before may still have some.
        first = max(done, default=-1) + 1
    if upto is not None:
        later = [at for at, g in enumerate(groups) if g.first is not None and g.first > upto]
        stop = min(later, default=stop)
    count = sum(group.rows for group in groups[first:stop])
    return Read(file.path, file.bookie, first, stop, above, upto, count, True)


def loose_tasks(files: Iterable[DumpFile], rows: int) -> list[Task]:
    """Return tasks of about `rows` rows over files in any order, cut at row groups."""
    found = []
    for file in files:
        first, so_far = 0, 0
        for at, group in enumerate(file.row_groups):
            so_far += group.rows
            if so_far >= rows or at == len(file.row_groups) - 1:
                bookie = file.bookie if file.pure else None
                read = Read(file.path, bookie, first, at + 1, None, None, so_far, False)
                found.append(Task(((read,),)))
                first, so_far = at + 1, 0
    return found


def packed(tasks: Iterable[T], rows: int, rows_of: Callable[[T], int]) -> list[list[T]]:
    """Return tasks in order, small ones put together up to about `rows` rows.

    >>> packed([3, 4, 9, 1], 8, int)
    [[3, 4], [9], [1]]
    """
    found: list[list[T]] = []
    so_far = 0
    for task in tasks:
        if not found or so_far + rows_of(task) > rows:
            found.append([])
            so_far = 0
        found[-1].append(task)
        so_far += rows_of(task)
    return found
