"""Compare a new index with sorted files range by range, for tasks that run in parallel.

The ranges of a ledger directory leave no gap, so index rows that are in no file are compared too.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from bkstore.errors import CorruptionError
from bkstore.formats.idxfile import index_path
from bkstore.ids import LedgerId
from bkstore.index.api import Finding, IndexBatch
from bkstore.offline.dump.index_rows import PieceIndex
from bkstore.offline.dump.plan import DumpPiece
from bkstore.offline.index_building.assembly import current_dirs
from bkstore.offline.index_building.row_comparison import compare_rows
from bkstore.offline.load.declared_order import group_by_directory, read_task_rows
from bkstore.offline.load.dump_rows import LoadSource
from bkstore.offline.reading.dump_file import row_groups
from bkstore.offline.reading.file_locations import opened_parquet
from bkstore.offline.reading.file_parts import NO_PART, locate_part
from bkstore.offline.reading.read_tasks import FileRead, ReadTask, plan_sorted_tasks

_LOWEST_LEDGER = LedgerId(0, 0)


class ComparedRange(NamedTuple):
    """What a task compares: a share of a file of the dump, `read`, with the rows of the same range
    of ledgers in the index of the ledger directory `dir_index`.

    The first share of a file begins where the file before ended, the last of all ends with the
    directory. `ledgers` are those with an index file, in the range of all shares of the file; empty
    for RocksDB. If `read` is None, the dump has no rows of the directory.
    """

    dir_index: int
    read: FileRead | None
    ledgers: tuple[LedgerId, ...]

    @property
    def rows(self) -> int:
        """The estimated number of rows of the range in the dump."""
        return 0 if self.read is None else self.read.estimated_rows


def plan_comparison(
    source: LoadSource, rows: int, ledgers: Sequence[LedgerId]
) -> Iterator[ComparedRange]:
    """Yield ranges of ledgers to compare between dump and index, each with a read of about `rows`
    rows of the dump. Together they cover all ledgers; the dump's files must be declared sorted.

    `ledgers` are the ledgers of the index, in order, if it consists of index files; else none.
    """
    for dir_index, files in enumerate(group_by_directory(source)):
        # Cut each file of the directory into shares of about `rows` rows.
        ends = {f.path: f.ledger_range.last for f in files.sorted_files if f.ledger_range}
        tasks = plan_sorted_tasks([files.sorted_files], rows)
        # As there is one dump, each task reads one share of one file.
        reads = [read for task in tasks for (read,) in task.reads_per_dump]
        # The ranges of the files, made adjacent, span all ledgers: rows too many are found as well.
        after_ledger, start = None, 0
        for path, shares in groupby(reads, key=lambda read: read.path):
            last_ledger = None if path == reads[-1].path else ends[path]
            stop = len(ledgers) if last_ledger is None else bisect_right(ledgers, last_ledger)
            for share in shares:
                read = share._replace(after_ledger=after_ledger, last_ledger=last_ledger)
                yield ComparedRange(dir_index, read, tuple(ledgers[start:stop]))
            after_ledger, start = last_ledger, stop
        if not reads:
            yield ComparedRange(dir_index, None, tuple(ledgers))


def _next_ledger(ledger: LedgerId) -> LedgerId:
    """Return the next possible ledger id; `ledger` is not the highest one."""
    max_id = 2**63 - 1 if ledger.scope == 0 else 2**64 - 1
    if ledger.ledger < max_id:
        return LedgerId(ledger.scope, ledger.ledger + 1)
    return LedgerId(ledger.scope + 1, 0)


def compare_range(source: LoadSource, layout: str, data: Path, compared: ComparedRange) -> int:
    """Return the number of rows in a range, equal in the index below `data` and in the dump.

    Raises `CorruptionError` at the first row that differs or cannot be read. Memory: two batches.
    """
    # The share has the ledgers above `after_ledger` up to `last_ledger`; None is no such bound.
    after_ledger, last_ledger = None, None
    if compared.read is not None:
        with opened_parquet(compared.read.path) as file:
            file_part = locate_part(compared.read, row_groups(file.metadata))
        if file_part == NO_PART:
            return 0  # the file can be split into fewer parts than there are shares
        after_ledger, last_ledger = file_part.after_ledger, file_part.last_ledger
    # Of index files only those of these ledgers are read.
    start = 0 if after_ledger is None else bisect_right(compared.ledgers, after_ledger)
    stop = None if last_ledger is None else bisect_right(compared.ledgers, last_ledger)
    ledger_ids = compared.ledgers[start:stop]
    # Read the same range of the index as a dump of it would, and compare it with the dump's rows.
    current = current_dirs(data, source.directories)[compared.dir_index]
    piece = DumpPiece(
        source.bookie,
        "index",
        number=0,
        weight=0,
        live=False,
        with_lengths=False,
        logs=(),
        layout="idx" if layout == "idx" else "rocksdb",
        index_dirs=(current,),
        first_ledger=_LOWEST_LEDGER if after_ledger is None else _next_ledger(after_ledger),
        stop_ledger=None if last_ledger is None else _next_ledger(last_ledger),
        files=tuple((ledger_id, str(current / index_path(ledger_id))) for ledger_id in ledger_ids),
    )
    reads: tuple[FileRead, ...] = () if compared.read is None else (compared.read,)
    with PieceIndex(piece) as index:
        expected = read_task_rows(source, compared.dir_index, ReadTask(reads_per_dump=(reads,)))
        return compare_rows(expected, _undamaged_rows(index), data)


def _undamaged_rows(index: PieceIndex) -> Iterator[IndexBatch]:
    """Yield the rows of an index; raises for the first damage."""
    findings: list[Finding] = []
    for rows in index.rows(findings):
        _raise_first(findings)
        yield rows
    _raise_first(findings)


def _raise_first(findings: Sequence[Finding]) -> None:
    for finding in findings:
        raise CorruptionError(finding.file, finding.offset, finding.detail)
