"""Tasks: which part of which files is read together, by ranges of ledgers and shares of files.

A task is small (paths and numbers): it is what Spark is given as rows, and what one process
works through. Tasks are made of what a manifest says, and open no file. Files that it declares
sorted are cut between ledgers, so that every ledger is whole in one task: a long file into shares,
which who reads it finds by its footer, the same in each task; where a cut falls into a row group,
both neighbours read it, and each takes its ledgers. Files of which nothing is known are cut at row
groups.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple, TypeVar

from bkstore.ids import LedgerId
from bkstore.offline.reading.dump_file import DumpFile
from bkstore.offline.reading.ledger_ranges import LedgerRange

_T = TypeVar("_T")

_END = LedgerId(2**64 - 1, 2**64 - 1)


class Read(NamedTuple):
    """A share of a table's file, (which, of how many), and of it the ledgers above `above` up to
    `upto` (None: no such bound). `rows` are those of the whole file, None if nothing says how
    many. `bookie` None: the rows say. `ledgers`: none is outside, the manifest says.
    """

    path: str
    table: str
    bookie: str | None
    rows: int | None
    is_sorted: bool
    share: tuple[int, int] = (0, 1)
    above: LedgerId | None = None
    upto: LedgerId | None = None
    ledgers: LedgerRange | None = None

    @property
    def about(self) -> int:
        """About how many rows it gives."""
        at, of = self.share
        rows = self.rows or 0
        return rows * (at + 1) // of - rows * at // of


class Task(NamedTuple):
    """What is read together: of each side its reads in order. `rows` is about how many.

    One side is a table; two are the same table of two dumps.
    """

    sides: tuple[tuple[Read, ...], ...]
    leave_out: tuple[LedgerId, ...] = ()

    @property
    def rows(self) -> int:
        """About how many rows it reads."""
        return sum(read.about for side in self.sides for read in side)

    @property
    def bookie(self) -> str | None:
        """Whose rows they all are, if it is known."""
        names = {read.bookie for side in self.sides for read in side}
        return names.pop() if len(names) == 1 else None


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


def by_bookie(files: Iterable[DumpFile]) -> dict[str, list[DumpFile]]:
    """Return the files of each bookie."""
    ordered = sorted(files, key=lambda file: file.bookie)
    return {name: list(mine) for name, mine in groupby(ordered, key=lambda file: file.bookie)}


def split_repeating(files: Sequence[DumpFile]) -> tuple[list[DumpFile], list[DumpFile]]:
    """Return (files whose rows come once, files that may repeat rows, their own or another's).

    The first are those that are `apart`, and files without rows. O(n log n).
    """
    repeating = [file for mine in by_bookie(files).values() for file in apart(mine)[1]]
    paths = {file.path for file in repeating}
    return [file for file in files if file.path not in paths], repeating


def sorted_tasks(
    sides: Sequence[Sequence[DumpFile]], rows: int, leave_out: Iterable[LedgerId] = ()
) -> list[Task]:
    """Return tasks of about `rows` rows over sorted files of one bookie, in order.

    Each side's files are `apart`. A ledger, of all sides, is in one task: several sides are cut
    where files of the manifest end, one side within files too.
    """
    lists = [sorted(side, key=lambda file: file.ledgers or ()) for side in sides]
    if len(lists) == 1 and not leave_out:
        return [Task(((read,),)) for file in lists[0] for read in _shares(file, rows)]
    lasts = [[_range(file)[1] for file in side] for side in lists]
    left_out = sorted(leave_out)
    found, above = [], None
    for upto in [*_cuts(lists, rows), None]:
        reads = [_reads(side, ends, above, upto) for side, ends in zip(lists, lasts)]
        here = [n for n in left_out if (above is None or above < n) and n <= (upto or _END)]
        if any(reads):
            found.append(Task(tuple(map(tuple, reads)), tuple(here)))
        above = upto
    return found


def _shares(file: DumpFile, rows: int) -> Iterator[Read]:
    of = max(-(-file.rows // rows), 1)
    for at in range(of):
        yield read_of(file)._replace(share=(at, of))


def read_of(file: DumpFile, above: LedgerId | None = None, upto: LedgerId | None = None) -> Read:
    """Return all of a file as a read, or the ledgers above `above` up to `upto`."""
    bookie = file.bookie if file.pure else None
    found = Read(file.path, file.table, bookie, file.rows, file.ledgers is not None)
    return found._replace(above=above, upto=upto, ledgers=file.ledgers)


def _range(file: DumpFile) -> tuple[LedgerId, LedgerId]:
    assert file.ledgers is not None
    return file.ledgers


def _cuts(sides: Sequence[Sequence[DumpFile]], rows: int) -> list[LedgerId]:
    """Return last ledgers of files behind which about `rows` rows have come together."""
    ends = sorted((_range(file)[1], file.rows) for side in sides for file in side)
    cuts: list[LedgerId] = []
    so_far = 0
    for last, count in ends[:-1]:
        so_far += count
        if so_far >= rows and last != ends[-1][0] and last not in cuts[-1:]:
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
        found.append(read_of(file, low, high))
    return found


def loose_tasks(files: Iterable[DumpFile], rows: int) -> list[Task]:
    """Return tasks of about `rows` rows over files in any order, cut at row groups."""
    return [
        Task(((read._replace(is_sorted=False),),)) for file in files for read in _shares(file, rows)
    ]


def packed(tasks: Iterable[_T], rows: int, rows_of: Callable[[_T], int]) -> list[list[_T]]:
    """Return tasks in order, small ones put together up to about `rows` rows.

    >>> packed([3, 4, 9, 1], 8, int)
    [[3, 4], [9], [1]]
    """
    found: list[list[_T]] = []
    so_far = 0
    for task in tasks:
        if not found or so_far + rows_of(task) > rows:
            found.append([])
            so_far = 0
        found[-1].append(task)
        so_far += rows_of(task)
    return found
