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
import numpy.typing as npt

from bkstore.ids import Int64Array, LedgerId, LedgerKeys, ledger_keys
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
from bkstore.offline.reading.ledger_ranges import LEDGER_COLUMNS, run_starts
from bkstore.offline.reading.open_dump import Dump
from bkstore.offline.reading.read_tasks import FileRead, plan_read
from bkstore.tables import GROUPS

if TYPE_CHECKING:
    import pyarrow as pa

_LEDGER_COST = 16  # cost of a ledger without its groups, expressed as a number of groups

_MAX_GROUPS = 1 << 20
"""Maximum number of groups in a task, and in a block of a task; some 100 bytes each."""

_MIN_GROUPS_PER_FILE = 1 << 13
"""Minimum number of groups per file in a task: it opens all files, and reads whole row groups."""

_FOOTER_THREADS = 16  # number of footers that are read concurrently
_COLUMNS = GROUPS.names[1:]
_Costs = npt.NDArray[np.float64]


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
        """Return tasks of about `rows` groups, or None if a file is not sorted. Files may share
        ledgers. Reads the footers of `ledgers` files, and those of group files that no task reads.
        Holds the metadata a second time, compressed."""
        files = [file for file in dump.files["groups"] if file.rows]
        if metadata is None or any(file.ledger_range is None for file in files):
            return None
        dump.check_empty_files("groups")
        facts = _FactTable.of(metadata, dump.files["ledgers"])
        # Files that no task will read are still checked against the manifest.
        file_ranges = _locate_files(files, facts.keys)
        unneeded_files = [file for file, first, end in file_ranges if first == end]
        with ThreadPoolExecutor(_FOOTER_THREADS) as pool:
            # Wait for all, and raise the first error.
            deque(pool.map(_verify_ledger_range, unneeded_files), maxlen=0)
        groups_per_task = max(min(rows, _MAX_GROUPS), _MIN_GROUPS_PER_FILE * len(files))
        return SortedPlan(list(_plan_tasks(facts, file_ranges, groups_per_task)), [])

    def run_task(self, task: JudgeTask, *, threads: bool = False) -> Iterator[pa.RecordBatch]:
        """Yield the kernel's rows for a task. Memory: 40 bytes per group of it, and a block."""
        import pyarrow as pa

        # Number the ledgers of the task by their order in its metadata.
        with pa.ipc.open_stream(task.facts) as stream:
            (facts,) = stream.read_all().combine_chunks().to_batches()
        scope, ledger = (int64(facts, name) for name in LEDGER_COLUMNS)
        starts = run_starts(scope, ledger)
        keys = ledger_keys(scope[starts], ledger[starts])
        # Read the groups of each bookie, with the ledger numbers as their owners.
        groups_by_bookie = {
            bookie: _read_groups(bookie_reads, keys, threads)
            for bookie, bookie_reads in groupby(task.reads, key=lambda read: str(read.bookie))
        }
        # Judge block by block, so that the arrays stay small: a block is the ledgers from number
        # `first` to `end` - 1. `fact_rows` are their metadata and unread rows, `owner` is the
        # ledger's number of each of these rows.
        bounds = np.append(starts, facts.num_rows)
        for first, end in _split_blocks(groups_by_bookie.values(), keys.size):
            fact_rows = facts.slice(bounds[first], bounds[end] - bounds[first])
            owner = np.repeat(np.arange(first, end), np.diff(bounds[first : end + 1]))
            block_groups = {
                bookie: fold_many(rows.cut(*np.searchsorted(rows.owner, [first, end]).tolist()))
                for bookie, rows in groups_by_bookie.items()
            }
            yield from self.kernel.judge(start_verdicts(fact_rows, owner), block_groups)


# -- planning


class _FactTable(NamedTuple):
    """The ledgers of the metadata, sorted and so numbered, and their `keys`. `table` has the rows
    about ledger n from row `starts[n]` to before `starts[n + 1]`: its metadata, then the bookies
    that could not read it."""

    ledgers: list[LedgerId]
    keys: LedgerKeys
    table: pa.Table
    starts: Int64Array

    @classmethod
    def of(cls, metadata: Metadata, ledger_files: Sequence[DumpFile]) -> _FactTable:
        """Return the rows about each ledger of the metadata that `Judge` needs besides groups."""
        import pyarrow as pa

        # Sort the metadata's ledgers.
        scope, ledger = (metadata.table.column(name).to_numpy() for name in LEDGER_COLUMNS)
        order = np.argsort(ledger_keys(scope, ledger))
        scope, ledger = scope[order], ledger[order]
        keys = ledger_keys(scope, ledger)
        # Find the ledgers that a bookie could not read; those without metadata are dropped.
        unread_ids: list[LedgerId] = []
        unread_bookies: list[str] = []
        with ThreadPoolExecutor(_FOOTER_THREADS) as pool:
            ids_of_files = pool.map(lambda file: list(unread_ledgers(file)), ledger_files)
            for file, ledger_ids in zip(ledger_files, ids_of_files):
                unread_ids += ledger_ids
                unread_bookies += [file.bookie] * len(ledger_ids)
        unread_keys = _ledger_keys(unread_ids)
        unread_numbers = np.searchsorted(keys, unread_keys)
        matched = [
            row
            for row, number in enumerate(unread_numbers.tolist())
            if number < keys.size and keys[number] == unread_keys[row]
        ]
        # Make the rows: first all metadata, then all unread rows, each with its ledger's number. A
        # stable sort by number puts each ledger's unread rows behind its metadata row.
        numbers = np.concatenate((np.arange(keys.size), unread_numbers[matched]))
        roles = np.repeat([METADATA_ROW, UNREAD_ROW], [keys.size, len(matched)])
        bookies = [""] * keys.size + [unread_bookies[row] for row in matched]
        json_texts = metadata.table.column("facts_json").take(pa.array(order))
        no_texts = pa.nulls(len(matched), pa.string())
        table = pa.table(
            {
                "scope_id": scope[numbers],
                "ledger_id": ledger[numbers],
                "role": roles,
                "bookie": pa.array(bookies, pa.string()),
                "facts_json": pa.concat_arrays([*json_texts.chunks, no_texts]),
            }
        ).take(pa.array(np.argsort(numbers, kind="stable")))
        metadata_rows = np.flatnonzero(table.column("role").to_numpy() == METADATA_ROW)
        starts = np.append(metadata_rows, table.num_rows)
        ids = [LedgerId.from_signed(*pair) for pair in zip(scope.tolist(), ledger.tolist())]
        return cls(ids, keys, table, starts)

    def encode_rows(self, first: int, end: int) -> bytes:
        """Return the rows about ledgers number `first` to before `end`, serialized for a task."""
        import pyarrow as pa

        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_stream(sink, self.table.schema, options=options) as stream:
            first_row, end_row = int(self.starts[first]), int(self.starts[end])
            stream.write_table(self.table.slice(first_row, end_row - first_row))
        serialized: bytes = sink.getvalue().to_pybytes()
        return serialized


class _FileRange(NamedTuple):
    """A file, and the numbers of the metadata's ledgers in its range: `first` to before `end`."""

    file: DumpFile
    first: int
    end: int

    def read(self, first: int, end: int, after: LedgerId | None, last: LedgerId) -> FileRead | None:
        """Return the read of ledgers number `first` to `end` - 1, which are those behind `after` up
        to `last`; None if the file has none."""
        if max(first, self.first) >= min(end, self.end):
            return None
        return plan_read(self.file, after, last)


def _locate_files(files: Sequence[DumpFile], keys: LedgerKeys) -> list[_FileRange]:
    """Return the files with their ranges of ledger numbers, sorted by bookie and first ledger."""
    files = sorted(files, key=lambda file: (file.bookie, file.ledger_range))
    ranges = [file.ledger_range for file in files if file.ledger_range is not None]
    first_keys = _ledger_keys([ledger_range.first for ledger_range in ranges])
    last_keys = _ledger_keys([ledger_range.last for ledger_range in ranges])
    first_numbers = np.searchsorted(keys, first_keys, "left").tolist()
    end_numbers = np.searchsorted(keys, last_keys, "right").tolist()
    return list(map(_FileRange, files, first_numbers, end_numbers))


def _verify_ledger_range(file: DumpFile) -> None:
    """Raise unless a file's ledgers are in its range in the manifest. Reads the ledgers behind that
    range: there are none, but the statistics, or else the rows, are verified on the way."""
    ledger_range = file.ledger_range
    read = plan_read(file, None if ledger_range is None else ledger_range.last)
    deque(read_validated_rows(read, _COLUMNS), 0)


def _ledger_keys(ledgers: Sequence[LedgerId]) -> LedgerKeys:
    pairs = np.array([ledger_id.signed for ledger_id in ledgers], np.int64).reshape(-1, 2)
    return ledger_keys(*pairs.T)


def _plan_tasks(
    facts: _FactTable, files: list[_FileRange], groups_per_task: int
) -> Iterator[JudgeTask]:
    """Yield tasks of about `groups_per_task` groups, cut between ledgers, of about equal cost."""
    ledgers = facts.ledgers
    if not ledgers:
        return
    costs = _LEDGER_COST + _estimate_groups(files, len(ledgers))
    running_cost = np.cumsum(costs)
    total_cost = running_cost[-1]
    task_count = max(1, -(-int(total_cost) // groups_per_task))
    # Cut where the running cost passes each task's share of the total.
    ideal_ends = total_cost * np.arange(1, task_count) / task_count
    cuts = np.searchsorted(running_cost, ideal_ends, "right")
    bounds = np.unique(np.concatenate(([0], cuts, [len(ledgers)]))).tolist()
    for first, end in pairwise(bounds):
        after = ledgers[first - 1] if first else None
        reads = (file_range.read(first, end, after, ledgers[end - 1]) for file_range in files)
        needed_reads = tuple(read for read in reads if read is not None)
        yield JudgeTask(needed_reads, facts.encode_rows(first, end), int(costs[first:end].sum()))


def _estimate_groups(file_ranges: Sequence[_FileRange], ledger_count: int) -> _Costs:
    """Return the estimated groups of each ledger: a file's rows spread evenly over its ledgers."""
    # Each file raises the estimate where its ledgers begin, and lowers it where they end.
    changes = np.zeros(ledger_count + 1)
    for file, first, end in file_ranges:
        if first < end:
            changes[first] += file.rows / (end - first)
            changes[end] -= file.rows / (end - first)
    groups_per_ledger: _Costs = np.cumsum(changes[:-1])
    return groups_per_ledger


# -- running a task


def _read_groups(reads: Iterable[FileRead], keys: LedgerKeys, threads: bool) -> GroupsByOwner:
    """Return a bookie's groups by number of the ledger in `keys`; other ledgers are skipped."""
    batches = chain.from_iterable(read_validated_rows(read, _COLUMNS, threads) for read in reads)
    rows = concatenate_groups([_number_groups(batch, keys) for batch in batches])
    if (rows.owner[1:] >= rows.owner[:-1]).all():
        return rows
    # The bookie has several files with the same ledgers.
    return rows.take(np.lexsort((rows.groups.first, rows.owner)))


def _number_groups(batch: pa.RecordBatch, keys: LedgerKeys) -> GroupsByOwner:
    """Return the groups in a batch whose ledgers are in `keys`; a group's owner is the position of
    its ledger there."""
    scope, ledger = (int64(batch, name) for name in LEDGER_COLUMNS)
    # Rows of one ledger are adjacent: look each ledger up once, -1 if `keys` lacks it.
    starts = run_starts(scope, ledger)
    batch_keys = ledger_keys(scope[starts], ledger[starts])
    positions = np.minimum(np.searchsorted(keys, batch_keys), keys.size - 1)
    ledger_numbers = np.where(keys[positions] == batch_keys, positions, -1)
    # Give each row its ledger's number, and drop those of unknown ledgers.
    owner = np.repeat(ledger_numbers, np.diff(np.append(starts, batch.num_rows)))
    rows = GroupsByOwner(owner, read_groups(batch))
    return rows if (ledger_numbers >= 0).all() else rows.take(owner >= 0)


def _split_blocks(groups: Iterable[GroupsByOwner], ledger_count: int) -> Iterator[tuple[int, int]]:
    """Yield half-open ranges of ledger numbers, of at least one ledger, with some `_MAX_GROUPS`
    groups. `groups` are those of each bookie, by ledger number; a ledger costs some groups, too."""
    costs = np.full(ledger_count, _LEDGER_COST)
    for rows in groups:
        costs += np.bincount(rows.owner, minlength=ledger_count)
    # A block ends where the cost of all ledgers so far passes a multiple of `_MAX_GROUPS`.
    block_numbers = (np.cumsum(costs) - 1) // _MAX_GROUPS
    yield from pairwise([*run_starts(block_numbers).tolist(), ledger_count])
