"""Ledger metadata held against sorted group files: tasks by ranges of ledgers, over all bookies.

A task has the metadata of a range of ledgers, and the files that may hold groups of them; which row
groups these are it finds where it opens them. It brings the bookies of a ledger together by looking
its groups' ledgers up in that metadata: nothing is sorted or shuffled, and each ledger's metadata
go to one task only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, groupby, pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bkstore.availability.sequence_groups import Groups
from bkstore.ids import Int64Array, LedgerId
from bkstore.offline.analyses.kernels.index_columns import groups_of, int64
from bkstore.offline.analyses.kernels.judge import METADATA_ROW, UNREAD_ROW, Judge, subjects_of
from bkstore.offline.analyses.kernels.ledgers_side_by_side import Owned, fold_many
from bkstore.offline.analyses.metadata_table import Metadata
from bkstore.offline.analyses.sorted_files import Planned, sound_rows, unread_ledgers
from bkstore.offline.reading.dump_file import DumpFile
from bkstore.offline.reading.ledger_ranges import LedgerKeys, ledger_keys, run_starts
from bkstore.offline.reading.open_dump import Dump
from bkstore.offline.reading.read_tasks import Read, read_of
from bkstore.tables import GROUPS

if TYPE_CHECKING:
    import pyarrow as pa

_LEDGER_ROWS = 16
"""What a ledger costs beside its groups, in groups."""

_MOST = 1 << 20
"""Groups of a task and of a block in it; some 100 bytes each."""

_LEAST_OF_A_FILE = 1 << 13
"""Groups of each file that a task should have: it opens all of them, and reads row groups."""

_THREADS = 16
"""Footers that are read at once."""

_IDS = ("scope_id", "ledger_id")
_COLUMNS = GROUPS.names[1:]


class JudgedTask(NamedTuple):
    """A range of ledgers: `said` of them (Arrow's stream format, zstd), and where groups lie.

    `said` has rows as `Judge` takes them, without groups. `rows` is about how many groups, and
    what counts as such.
    """

    reads: tuple[Read, ...]
    said: bytes
    rows: int


@dataclass(frozen=True)
class JudgedFiles:
    """How sorted files of `groups` answer what `kernel` is asked. It can be pickled."""

    kernel: Judge
    table: str = "groups"

    def plan(
        self, dump: Dump, _other: Dump | None, metadata: Metadata | None, rows: int
    ) -> Planned | None:
        """Return tasks of about `rows` groups; None where a file is not sorted.

        A file may share ledgers with another. Costs the footers of `ledgers`, and of files that
        no task reads, as the metadata have none of their ledgers; and the metadata once more,
        compressed.
        """
        files = [file for file in dump.files["groups"] if file.rows]
        if metadata is None or any(file.ledgers is None for file in files):
            return None
        dump.check_empty("groups")
        facts = _Facts.of(metadata, dump.files["ledgers"])
        least = _LEAST_OF_A_FILE * len(files)
        placed = _placed(files, facts.keys)
        with ThreadPoolExecutor(_THREADS) as pool:
            deque(pool.map(_hold, (each.file for each in placed if each.lo == each.hi)), 0)
        return Planned(list(_tasks(facts, placed, max(min(rows, _MOST), least))), [])

    def answers(self, task: JudgedTask, *, threads: bool = False) -> Iterator[pa.RecordBatch]:
        """Yield what is told of a task's ledgers. Memory: 40 bytes a group of it, and a block."""
        import pyarrow as pa

        with pa.ipc.open_stream(task.said) as stream:
            (said,) = stream.read_all().combine_chunks().to_batches()
        scope, ledger = (int64(said, name) for name in _IDS)
        starts = run_starts(scope, ledger)
        keys = ledger_keys(scope[starts], ledger[starts])
        held = {
            bookie: _groups_of(reads, keys, threads)
            for bookie, reads in groupby(task.reads, key=lambda read: str(read.bookie))
        }
        bounds = np.append(starts, said.num_rows)
        for lo, hi in _blocks(held.values(), keys.size):
            part = said.slice(bounds[lo], bounds[hi] - bounds[lo])
            owner = np.repeat(np.arange(lo, hi), np.diff(bounds[lo : hi + 1]))
            here = {bookie: fold_many(_between(rows, lo, hi)) for bookie, rows in held.items()}
            yield from self.kernel.judged(subjects_of(part, owner), here)


# -- planning


class _Facts(NamedTuple):
    """The metadata's ledgers in order, and what is said of them and of who could not read them."""

    ledgers: list[LedgerId]
    keys: LedgerKeys
    said: pa.Table
    starts: Int64Array

    @classmethod
    def of(cls, metadata: Metadata, ledgers: Sequence[DumpFile]) -> _Facts:
        """Return them sorted."""
        import pyarrow as pa

        scope, ledger = (metadata.table.column(name).to_numpy() for name in _IDS)
        order = np.argsort(ledger_keys(scope, ledger))
        scope, ledger = scope[order], ledger[order]
        keys = ledger_keys(scope, ledger)
        with ThreadPoolExecutor(_THREADS) as pool:
            found = zip(ledgers, pool.map(lambda file: list(unread_ledgers(file)), ledgers))
            unread = [(*name.signed, file.bookie) for file, names in found for name in names]
        lost = [np.array([row[at] for row in unread], np.int64) for at in (0, 1)]
        whose = ledger_keys(*lost)
        at = np.searchsorted(keys, whose)
        known = [n for n in range(len(unread)) if at[n] < keys.size and keys[at[n]] == whose[n]]
        place = np.argsort(np.concatenate((np.arange(keys.size), at[known])), kind="stable")
        roles = np.repeat([METADATA_ROW, UNREAD_ROW], [keys.size, len(known)])
        names = [""] * keys.size + [unread[n][2] for n in known]
        texts = metadata.table.column("said").take(pa.array(order))
        table = pa.table(
            {
                "scope_id": np.concatenate((scope, lost[0][known])),
                "ledger_id": np.concatenate((ledger, lost[1][known])),
                "role": roles,
                "bookie": pa.array(names, pa.string()),
                "said": pa.concat_arrays([*texts.chunks, pa.nulls(len(known), pa.string())]),
            }
        ).take(pa.array(place))
        starts = np.append(np.flatnonzero(table.column("role").to_numpy() == 0), table.num_rows)
        ids = [LedgerId.from_signed(*pair) for pair in zip(scope.tolist(), ledger.tolist())]
        return cls(ids, keys, table, starts)

    def sent(self, lo: int, hi: int) -> bytes:
        """Return what is said of some ledgers, to be sent."""
        import pyarrow as pa

        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_stream(sink, self.said.schema, options=options) as stream:
            begin, end = (int(self.starts[at]) for at in (lo, hi))
            stream.write_table(self.said.slice(begin, end - begin))
        found: bytes = sink.getvalue().to_pybytes()
        return found


class _Placed(NamedTuple):
    """A file, and which of the metadata's ledgers lie in its range: `lo` to before `hi`."""

    file: DumpFile
    lo: int
    hi: int

    def read(self, lo: int, hi: int, above: LedgerId | None, upto: LedgerId) -> Read | None:
        """Return what the file may have of ledgers number `lo` to before `hi`."""
        if max(lo, self.lo) >= min(hi, self.hi):
            return None
        return read_of(self.file, above, upto)


def _placed(files: Sequence[DumpFile], keys: LedgerKeys) -> list[_Placed]:
    """Return sorted files by bookie, in order."""
    files = sorted(files, key=lambda file: (file.bookie, file.ledgers))
    ends = [file.ledgers for file in files if file.ledgers is not None]
    lo = np.searchsorted(keys, _keys_of([end.first for end in ends]), "left").tolist()
    hi = np.searchsorted(keys, _keys_of([end.last for end in ends]), "right").tolist()
    return list(map(_Placed, files, lo, hi))


def _hold(file: DumpFile) -> None:
    """Raise unless a file has the ledgers that the manifest says; rows are read only where its
    footer cannot tell.
    """
    said = file.ledgers
    read = read_of(file, None if said is None else said.last)
    deque(sound_rows(read, _COLUMNS), 0)


def _keys_of(ledgers: Sequence[LedgerId]) -> LedgerKeys:
    return ledger_keys(*np.array([each.signed for each in ledgers], np.int64).reshape(-1, 2).T)


def _tasks(facts: _Facts, files: list[_Placed], rows: int) -> Iterator[JudgedTask]:
    """Yield tasks of about `rows` groups."""
    size = facts.keys.size
    if not size:
        return
    weight = _LEDGER_ROWS + _spread(files, size)
    so_far = np.cumsum(weight)
    parts = max(1, -(-int(so_far[-1]) // rows))
    cuts = np.searchsorted(so_far, so_far[-1] * np.arange(1, parts) / parts, "right")
    bounds = np.unique(np.concatenate(([0], cuts, [size]))).tolist()
    for lo, hi in pairwise(bounds):
        above = facts.ledgers[lo - 1] if lo else None
        found = (placed.read(lo, hi, above, facts.ledgers[hi - 1]) for placed in files)
        reads = tuple(read for read in found if read is not None)
        yield JudgedTask(reads, facts.sent(lo, hi), int(weight[lo:hi].sum()))


def _spread(placed: Sequence[_Placed], size: int) -> np.typing.NDArray[np.float64]:
    """Return how many groups are about each ledger, a file's evenly about those of its range."""
    step = np.zeros(size + 1)
    for file, lo, hi in placed:
        if lo < hi:
            step[lo] += file.rows / (hi - lo)
            step[hi] -= file.rows / (hi - lo)
    found: np.typing.NDArray[np.float64] = np.cumsum(step[:-1])
    return found


# -- answering


def _groups_of(reads: Iterable[Read], keys: LedgerKeys, threads: bool) -> Owned:
    """Return a bookie's groups by number of the ledger in `keys`; others are passed over."""
    batches = chain.from_iterable(sound_rows(read, _COLUMNS, threads) for read in reads)
    parts = [_looked_up(batch, keys) for batch in batches]
    if not parts:
        return Owned.none()
    owner = np.concatenate([part.owner for part in parts])
    groups = Groups(*map(np.concatenate, zip(*(part.groups for part in parts))))
    if (owner[1:] >= owner[:-1]).all():
        return Owned(owner, groups)
    return Owned(owner, groups).take(np.lexsort((groups.first, owner)))


def _looked_up(batch: pa.RecordBatch, keys: LedgerKeys) -> Owned:
    scope, ledger = (int64(batch, name) for name in _IDS)
    starts = run_starts(scope, ledger)
    mine = ledger_keys(scope[starts], ledger[starts])
    at = np.minimum(np.searchsorted(keys, mine), keys.size - 1)
    number = np.where(keys[at] == mine, at, -1)
    owner = np.repeat(number, np.diff(np.append(starts, batch.num_rows)))
    rows = Owned(owner, groups_of(batch))
    return rows if (number >= 0).all() else rows.take(owner >= 0)


def _blocks(held: Iterable[Owned], ledgers: int) -> Iterator[tuple[int, int]]:
    """Yield stretches of ledgers that have about `_MOST` groups together, or are one ledger."""
    counts = np.full(ledgers, _LEDGER_ROWS)
    for rows in held:
        counts += np.bincount(rows.owner, minlength=ledgers)
    number = (np.cumsum(counts) - 1) // _MOST
    bounds = [*run_starts(number).tolist(), ledgers]
    yield from pairwise(bounds)


def _between(rows: Owned, lo: int, hi: int) -> Owned:
    first, stop = np.searchsorted(rows.owner, [lo, hi]).tolist()
    return Owned(rows.owner[first:stop], Groups(*(column[first:stop] for column in rows.groups)))
