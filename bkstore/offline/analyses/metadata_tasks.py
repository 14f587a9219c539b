"""Ledger metadata compared with sorted group files: tasks by range of ledgers, over all bookies.

A task has the metadata of a range of ledgers, and the files that may hold groups of them; it finds
the row groups when it opens the files. It looks up each group's ledger in that metadata: nothing is
sorted or shuffled, and each ledger's metadata go to one task only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, groupby, pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bkstore.ids import Int64Array, LedgerId
from bkstore.offline.analyses.kernels.groups_by_owner import (
    GroupsByOwner,
    concatenate_groups,
    fold_many,
)
from bkstore.offline.analyses.kernels.index_columns import int64, read_groups
from bkstore.offline.analyses.kernels.metadata_comparison import (
    METADATA_ROW,
    UNREAD_ROW,
    Judge,
    start_verdicts,
)
from bkstore.offline.analyses.metadata_table import Metadata
from bkstore.offline.analyses.sorted_files import SortedPlan, read_validated_rows, unread_ledgers
from bkstore.offline.reading.dump_file import DumpFile
from bkstore.offline.reading.ledger_ranges import (
    LEDGER_COLUMNS,
    LedgerKeys,
    ledger_keys,
    run_starts,
)
from bkstore.offline.reading.open_dump import Dump
from bkstore.offline.reading.read_tasks import FileRead, plan_read
from bkstore.tables import GROUPS

if TYPE_CHECKING:
    import pyarrow as pa

_LEDGER_COST = 16
"""Cost of a ledger without its groups, expressed as a number of groups."""

_MAX_GROUPS = 1 << 20
"""Maximum number of groups in a task, and in a block of a task; some 100 bytes each."""

_MIN_GROUPS_PER_FILE = 1 << 13
"""Minimum number of groups per file in a task: it opens all files, and reads whole row groups."""

_FOOTER_THREADS = 16
"""Number of footers that are read concurrently."""

_COLUMNS = GROUPS.names[1:]


class JudgeTask(NamedTuple):
    """A range of ledgers, what to read of the group files, and the approximate cost in groups.

    `facts` has the metadata and unread rows for `Judge`, as an Arrow stream compressed with zstd.
    """

    reads: tuple[FileRead, ...]
    facts: bytes
    rows: int


@dataclass(frozen=True)
class SortedGroupScan:
    """How `kernel` is run over sorted files of `groups`. It can be pickled."""

    kernel: Judge
    table: str = "groups"

    def plan(
        self, dump: Dump, _other: Dump | None, metadata: Metadata | None, rows: int
    ) -> SortedPlan | None:
        """Return tasks of about `rows` groups, or None if a file is not sorted.

        Files may share ledgers. Reads the footers of `ledgers` files, and those of group files that
        no task reads. Holds the metadata a second time, compressed.
        """
        files = [file for file in dump.files["groups"] if file.rows]
        if metadata is None or any(file.ledger_range is None for file in files):
            return None
        dump.check_empty_files("groups")
        facts = _Facts.of(metadata, dump.files["ledgers"])
        min_rows = _MIN_GROUPS_PER_FILE * len(files)
        # Files that no task will read are still checked against the manifest.
        file_ranges = _locate_files(files, facts.keys)
        unneeded = [file_range.file for file_range in file_ranges if file_range.lo == file_range.hi]
        with ThreadPoolExecutor(_FOOTER_THREADS) as pool:
            deque(pool.map(_verify_ledger_range, unneeded), 0)
        task_rows = max(min(rows, _MAX_GROUPS), min_rows)
        return SortedPlan(list(_plan_tasks(facts, file_ranges, task_rows)), [])

    def run_task(self, task: JudgeTask, *, threads: bool = False) -> Iterator[pa.RecordBatch]:
        """Yield the kernel's rows for a task. Memory: 40 bytes per group of it, and a block."""
        import pyarrow as pa

        # Number the ledgers of the task by their order in its metadata.
        with pa.ipc.open_stream(task.facts) as stream:
            (facts,) = stream.read_all().combine_chunks().to_batches()
        scope, ledger = (int64(facts, name) for name in LEDGER_COLUMNS)
        starts = run_starts(scope, ledger)
        keys = ledger_keys(scope[starts], ledger[starts])
        # Read the groups of each bookie, owned by ledger number.
        groups_by_bookie = {
            bookie: _read_groups(bookie_reads, keys, threads)
            for bookie, bookie_reads in groupby(task.reads, key=lambda read: str(read.bookie))
        }
        # Judge blocks of ledgers, so that the kernel's arrays stay small.
        bounds = np.append(starts, facts.num_rows)
        for lo, hi in _split_blocks(groups_by_bookie.values(), keys.size):
            block_rows = facts.slice(bounds[lo], bounds[hi] - bounds[lo])
            owner = np.repeat(np.arange(lo, hi), np.diff(bounds[lo : hi + 1]))
            block_groups = {
                bookie: fold_many(rows.cut(*np.searchsorted(rows.owner, [lo, hi]).tolist()))
                for bookie, rows in groups_by_bookie.items()
            }
            yield from self.kernel.judge(start_verdicts(block_rows, owner), block_groups)


# -- planning


class _Facts(NamedTuple):
    """Sorted ledgers of the metadata, and in `facts` the rows on ledger n, from `starts[n]` on."""

    ledgers: list[LedgerId]
    keys: LedgerKeys
    facts: pa.Table
    starts: Int64Array

    @classmethod
    def of(cls, metadata: Metadata, ledgers: Sequence[DumpFile]) -> _Facts:
        """Return the facts from the metadata and the files of table `ledgers`."""
        import pyarrow as pa

        # Sort the metadata's ledgers.
        scope, ledger = (metadata.table.column(name).to_numpy() for name in LEDGER_COLUMNS)
        order = np.argsort(ledger_keys(scope, ledger))
        scope, ledger = scope[order], ledger[order]
        keys = ledger_keys(scope, ledger)
        # Ledgers that a bookie could not read; those without metadata are dropped.
        with ThreadPoolExecutor(_FOOTER_THREADS) as pool:
            ids_by_file = zip(ledgers, pool.map(lambda file: list(unread_ledgers(file)), ledgers))
            unread = [(*n.signed, file.bookie) for file, ids in ids_by_file for n in ids]
        unread_columns = [np.array([row[column] for row in unread], np.int64) for column in (0, 1)]
        unread_keys = ledger_keys(*unread_columns)
        positions = np.searchsorted(keys, unread_keys)
        matched = [
            row
            for row in range(len(unread))
            if positions[row] < keys.size and keys[positions[row]] == unread_keys[row]
        ]
        # Put each ledger's unread rows behind its metadata row: the sort is stable.
        numbers = np.concatenate((np.arange(keys.size), positions[matched]))
        row_order = np.argsort(numbers, kind="stable")
        roles = np.repeat([METADATA_ROW, UNREAD_ROW], [keys.size, len(matched)])
        bookies = [""] * keys.size + [unread[row][2] for row in matched]
        json_texts = metadata.table.column("said").take(pa.array(order))
        table = pa.table(
            {
                "scope_id": np.concatenate((scope, unread_columns[0][matched])),
                "ledger_id": np.concatenate((ledger, unread_columns[1][matched])),
                "role": roles,
                "bookie": pa.array(bookies, pa.string()),
                "said": pa.concat_arrays([*json_texts.chunks, pa.nulls(len(matched), pa.string())]),
            }
        ).take(pa.array(row_order))
        starts = np.append(np.flatnonzero(table.column("role").to_numpy() == 0), table.num_rows)
        ids = [LedgerId.from_signed(*pair) for pair in zip(scope.tolist(), ledger.tolist())]
        return cls(ids, keys, table, starts)

    def encode_rows(self, lo: int, hi: int) -> bytes:
        """Return the rows about ledgers number `lo` to before `hi`, serialized for a task."""
        import pyarrow as pa

        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_stream(sink, self.facts.schema, options=options) as stream:
            begin, end = (int(self.starts[number]) for number in (lo, hi))
            stream.write_table(self.facts.slice(begin, end - begin))
        serialized: bytes = sink.getvalue().to_pybytes()
        return serialized


class _FileRange(NamedTuple):
    """A file, and the numbers of the metadata's ledgers in its range: `lo` to before `hi`."""

    file: DumpFile
    lo: int
    hi: int

    def read(self, lo: int, hi: int, after: LedgerId | None, last: LedgerId) -> FileRead | None:
        """Return the read for ledgers number `lo` to before `hi`, or None if the file has none."""
        if max(lo, self.lo) >= min(hi, self.hi):
            return None
        return plan_read(self.file, after, last)


def _locate_files(files: Sequence[DumpFile], keys: LedgerKeys) -> list[_FileRange]:
    """Return the files with their ranges of ledger numbers, sorted by bookie and first ledger."""
    files = sorted(files, key=lambda file: (file.bookie, file.ledger_range))
    ranges = [file.ledger_range for file in files if file.ledger_range is not None]
    first_keys = _ledger_keys([ledger_range.first for ledger_range in ranges])
    last_keys = _ledger_keys([ledger_range.last for ledger_range in ranges])
    lo = np.searchsorted(keys, first_keys, "left").tolist()
    hi = np.searchsorted(keys, last_keys, "right").tolist()
    return list(map(_FileRange, files, lo, hi))


def _verify_ledger_range(file: DumpFile) -> None:
    """Raise unless a file's ledgers are those in the manifest; may have to read the rows."""
    ledger_range = file.ledger_range
    read = plan_read(file, None if ledger_range is None else ledger_range.last)
    deque(read_validated_rows(read, _COLUMNS), 0)


def _ledger_keys(ledgers: Sequence[LedgerId]) -> LedgerKeys:
    pairs = np.array([ledger_id.signed for ledger_id in ledgers], np.int64).reshape(-1, 2)
    return ledger_keys(*pairs.T)


def _plan_tasks(facts: _Facts, files: list[_FileRange], rows: int) -> Iterator[JudgeTask]:
    """Yield tasks of about `rows` groups, cut between ledgers."""
    size = facts.keys.size
    if not size:
        return
    costs = _LEDGER_COST + _estimate_groups(files, size)
    cost = np.cumsum(costs)
    task_count = max(1, -(-int(cost[-1]) // rows))
    cuts = np.searchsorted(cost, cost[-1] * np.arange(1, task_count) / task_count, "right")
    bounds = np.unique(np.concatenate(([0], cuts, [size]))).tolist()
    for lo, hi in pairwise(bounds):
        above = facts.ledgers[lo - 1] if lo else None
        reads = (file_range.read(lo, hi, above, facts.ledgers[hi - 1]) for file_range in files)
        needed_reads = tuple(read for read in reads if read is not None)
        yield JudgeTask(needed_reads, facts.encode_rows(lo, hi), int(costs[lo:hi].sum()))


def _estimate_groups(file_ranges: Sequence[_FileRange], size: int) -> np.typing.NDArray[np.float64]:
    """Return the estimated groups of each ledger: a file's rows spread evenly over its ledgers."""
    step = np.zeros(size + 1)
    for file, lo, hi in file_ranges:
        if lo < hi:
            step[lo] += file.rows / (hi - lo)
            step[hi] -= file.rows / (hi - lo)
    groups_per_ledger: np.typing.NDArray[np.float64] = np.cumsum(step[:-1])
    return groups_per_ledger


# -- running a task


def _read_groups(reads: Iterable[FileRead], keys: LedgerKeys, threads: bool) -> GroupsByOwner:
    """Return a bookie's groups by number of the ledger in `keys`; other ledgers are skipped."""
    batches = chain.from_iterable(read_validated_rows(read, _COLUMNS, threads) for read in reads)
    parts = [_number_groups(batch, keys) for batch in batches]
    rows = concatenate_groups(parts)
    if (rows.owner[1:] >= rows.owner[:-1]).all():
        return rows
    return rows.take(np.lexsort((rows.groups.first, rows.owner)))


def _number_groups(batch: pa.RecordBatch, keys: LedgerKeys) -> GroupsByOwner:
    scope, ledger = (int64(batch, name) for name in LEDGER_COLUMNS)
    starts = run_starts(scope, ledger)
    batch_keys = ledger_keys(scope[starts], ledger[starts])
    positions = np.minimum(np.searchsorted(keys, batch_keys), keys.size - 1)
    number = np.where(keys[positions] == batch_keys, positions, -1)
    owner = np.repeat(number, np.diff(np.append(starts, batch.num_rows)))
    rows = GroupsByOwner(owner, read_groups(batch))
    return rows if (number >= 0).all() else rows.take(owner >= 0)


def _split_blocks(groups: Iterable[GroupsByOwner], ledger_count: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of ledger numbers with about `_MAX_GROUPS` groups together, or of one ledger."""
    counts = np.full(ledger_count, _LEDGER_COST)
    for rows in groups:
        counts += np.bincount(rows.owner, minlength=ledger_count)
    block_number = (np.cumsum(counts) - 1) // _MAX_GROUPS
    bounds = [*run_starts(block_number).tolist(), ledger_count]
    yield from pairwise(bounds)
