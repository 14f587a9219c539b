"""Tasks: the parts of files that are read together, as ranges of ledgers and shares of files.

A task is small (paths and numbers), so that it can be sent to Spark as a row. Tasks are planned
from the manifest, without opening a file. Sorted files are cut between ledgers, others at row
groups. A long file is cut into shares, whose bounds each reader computes from the footer. If a cut
is inside a row group, both neighbors read the group, and each takes its own ledgers.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from bkstore.ids import LedgerId
from bkstore.offline.reading.dump_file import DumpFile
from bkstore.offline.reading.ledger_ranges import LedgerRange

_T = TypeVar("_T")


class FileRead(NamedTuple):
    """What to read of a file: a `share` (number, of how many), and of its ledgers those above
    `after_ledger`, up to and including `last_ledger` (None: unbounded). `rows` is the row count of
    the whole file, None if not known. `bookie` is None if the file may have several. `ledger_range`
    is the range in the manifest.
    """

    path: str
    table: str
    bookie: str | None
    rows: int | None
    is_sorted: bool
    share: tuple[int, int] = (0, 1)
    after_ledger: LedgerId | None = None
    last_ledger: LedgerId | None = None
    ledger_range: LedgerRange | None = None

    @property
    def estimated_rows(self) -> int:
        """The approximate number of rows of the share."""
        share, share_count = self.share
        rows = self.rows or 0
        return rows * (share + 1) // share_count - rows * share // share_count


class ReadTask(NamedTuple):
    """What is read together: `reads_per_dump` has the reads of a table of one dump, or of the same
    table of each of two. The rows of `excluded_ledgers`, which one could not read, are dropped."""

    reads_per_dump: tuple[tuple[FileRead, ...], ...]
    excluded_ledgers: tuple[LedgerId, ...] = ()

    @property
    def rows(self) -> int:
        """The approximate number of rows that the task reads."""
        return sum(read.estimated_rows for reads in self.reads_per_dump for read in reads)

    @property
    def bookie(self) -> str | None:
        """The bookie of all rows, None if not known or several."""
        bookies = {read.bookie for reads in self.reads_per_dump for read in reads}
        return bookies.pop() if len(bookies) == 1 else None


def plan_sorted_tasks(
    dumps: Sequence[Sequence[DumpFile]], rows: int, excluded_ledgers: Iterable[LedgerId] = ()
) -> list[ReadTask]:
    """Return tasks of about `rows` rows over sorted files of one bookie in one or more dumps.

    Each dump's files must be `split_disjoint`. All rows of a ledger, of all dumps, are in one task.
    Several dumps are cut only where files end; a single dump is also cut inside files. The tasks
    leave out `excluded_ledgers`.
    """
    sorted_dumps = [sorted(files, key=lambda file: file.ledger_range or ()) for files in dumps]
    if len(sorted_dumps) == 1 and not excluded_ledgers:
        return [
            ReadTask(((read,),))
            for file in sorted_dumps[0]
            for read in _split_into_shares(file, rows)
        ]
    # A task reads the ledgers after one border up to the next, of all dumps, and gets the excluded
    # ledgers between the two.
    all_excluded = sorted(excluded_ledgers)
    tasks, after_ledger, start = [], None, 0
    for last_ledger in [*_choose_last_ledgers(sorted_dumps, rows), None]:
        reads = [_plan_reads(files, after_ledger, last_ledger) for files in sorted_dumps]
        stop = len(all_excluded) if last_ledger is None else bisect_right(all_excluded, last_ledger)
        if any(reads):
            tasks.append(ReadTask(tuple(map(tuple, reads)), tuple(all_excluded[start:stop])))
        after_ledger, start = last_ledger, stop
    return tasks


def _split_into_shares(file: DumpFile, rows: int) -> Iterator[FileRead]:
    """Yield reads of equal shares of a file, of about `rows` rows."""
    share_count = max(-(-file.rows // rows), 1)
    for share in range(share_count):
        yield plan_read(file)._replace(share=(share, share_count))


def plan_read(
    file: DumpFile, after_ledger: LedgerId | None = None, last_ledger: LedgerId | None = None
) -> FileRead:
    """Return a read of a whole file, or of the ledgers above `after_ledger` up to `last_ledger`."""
    bookie = file.bookie if file.has_one_bookie else None
    read = FileRead(file.path, file.table, bookie, file.rows, file.ledger_range is not None)
    return read._replace(
        after_ledger=after_ledger, last_ledger=last_ledger, ledger_range=file.ledger_range
    )


def _ledger_range(file: DumpFile) -> LedgerRange:
    """Return the range of a file that is declared sorted."""
    assert file.ledger_range is not None
    return file.ledger_range


def _choose_last_ledgers(dumps: Sequence[Sequence[DumpFile]], rows: int) -> list[LedgerId]:
    """Return the last ledgers of all tasks but the last one: ends of files, `rows` rows apart."""
    # The last ledger of each file, and its rows.
    ends = sorted((_ledger_range(file).last, file.rows) for files in dumps for file in files)
    last_ledgers: list[LedgerId] = []
    rows_of_task = 0
    highest_end = max((end for end, _ in ends), default=None)
    for end, row_count in ends[:-1]:
        rows_of_task += row_count
        # Several files may end with the same ledger: after it a task ends once, or the last one.
        if rows_of_task >= rows and end not in (highest_end, *last_ledgers[-1:]):
            last_ledgers.append(end)
            rows_of_task = 0
    return last_ledgers


def _plan_reads(
    files: Sequence[DumpFile], after_ledger: LedgerId | None, last_ledger: LedgerId | None
) -> list[FileRead]:
    """Return the reads of sorted files for the ledgers above `after_ledger` up to `last_ledger`."""
    # Skip the files that end before the range, and bound a read only where its file goes on.
    reads, start = [], 0
    if after_ledger is not None:
        start = bisect_right(files, after_ledger, key=lambda file: _ledger_range(file).last)
    for file in files[start:]:
        first, last = _ledger_range(file)
        if last_ledger is not None and first > last_ledger:
            break
        lower_bound = after_ledger if after_ledger is not None and first <= after_ledger else None
        upper_bound = last_ledger if last_ledger is not None and last > last_ledger else None
        reads.append(plan_read(file, lower_bound, upper_bound))
    return reads


def plan_unsorted_tasks(files: Iterable[DumpFile], rows: int) -> list[ReadTask]:
    """Return tasks of about `rows` rows over files in any order, cut at row groups."""
    reads = (read for file in files for read in _split_into_shares(file, rows))
    return [ReadTask(((read._replace(is_sorted=False),),)) for read in reads]


def pack_tasks(tasks: Iterable[_T], rows: int, rows_of: Callable[[_T], int]) -> list[list[_T]]:
    """Return lists of tasks in order; small tasks share a list of at most `rows` rows.

    >>> pack_tasks([3, 4, 9, 1], 8, int)
    [[3, 4], [9], [1]]
    """
    lists: list[list[_T]] = []
    list_rows = 0
    for task in tasks:
        if not lists or list_rows + rows_of(task) > rows:
            lists.append([])
            list_rows = 0
        lists[-1].append(task)
        list_rows += rows_of(task)
    return lists
