"""Answers straight from files that are sorted: read by tasks, no row sorted or sent anywhere.

What a manifest declares sorted is cut into tasks in which every ledger is whole; a kernel over a
task's rows gives finished rows. The same calls run in this process and in Spark's executors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.ids import LedgerId
from bkstore.offline.analyses.kernels.index_columns import check_columns, int64
from bkstore.offline.analyses.metadata_table import Metadata
from bkstore.offline.reading.dump_file import DumpFile, check_footer, has_nulls, is_pure
from bkstore.offline.reading.ledger_ranges import SORTED_BY, run_starts
from bkstore.offline.reading.open_dump import Dump
from bkstore.offline.reading.places import opened_parquet
from bkstore.offline.reading.read_tasks import (
    Read,
    Task,
    apart,
    by_bookie,
    loose_tasks,
    sorted_tasks,
)
from bkstore.offline.reading.row_stream import BATCH_ROWS, read_rows
from bkstore.offline.reading.side_by_side import side_by_side
from bkstore.tables.dump import DUMP_TABLES, LEDGERS

if TYPE_CHECKING:
    import pyarrow as pa

_Kernel = Callable[[Iterator["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]


_BATCH = BATCH_ROWS


class Planned(NamedTuple):
    """`tasks` that are answered as they are, and files whose rows have to be sorted first."""

    tasks: list[Any]
    others: list[DumpFile]


class Answering(Protocol):
    """How files that are sorted answer; it can be pickled."""

    @property
    def table(self) -> str:
        """Which table is read."""

    def plan(
        self, dump: Dump, other: Dump | None, metadata: Metadata | None, rows: int
    ) -> Planned | None:
        """Return tasks of about `rows` rows; None where rows have to be sorted first."""

    def answers(self, task: Any, *, threads: bool = False) -> Iterator[pa.RecordBatch]:
        """Yield what comes of a task; `threads` decodes columns beside each other."""


@dataclass(frozen=True)
class Direct:
    """How a task of a table is answered: which columns are read, and the kernel for a bookie.

    With `only_read`, ledgers that could not be read are left out; it is all or nothing then, as
    the rows of files that are not sorted come from a text of their own. It can be pickled.
    """

    table: str
    columns: tuple[str, ...]
    kernel: Callable[[str | None], _Kernel]
    only_read: bool = False

    def plan(
        self, dump: Dump, other: Dump | None, _metadata: Metadata | None, rows: int
    ) -> Planned | None:
        """Return how the table is read: in tasks of about `rows` rows, where its files are sorted.

        Of two dumps it is all or nothing: None where files have to be sorted.
        """
        for each in (dump, other) if other is not None else (dump,):
            each.check_empty(self.table)
        if other is not None:
            tasks = _plan_dumps(self.table, [dump, other], rows)
            return None if tasks is None else Planned(tasks, [])
        if self.only_read:
            tasks = _plan_dumps(self.table, [dump], rows)
            return None if tasks is None else Planned(tasks, [])
        found = Planned([], [])
        for mine in by_bookie(dump.files[self.table]).values():
            alone, rest = apart(mine)
            found.tasks.extend(sorted_tasks([alone], rows))
            found.others.extend(rest)
        return found

    def answers(self, task: Task, *, threads: bool = False) -> Iterator[pa.RecordBatch]:
        """Yield what the kernel makes of a task. Memory: a batch of each side, and the kernel's."""
        sides = [
            chain.from_iterable(sound_rows(read, self.columns, threads) for read in side)
            for side in task.sides
        ]
        rows = sides[0] if len(sides) == 1 else side_by_side(sides)
        if task.leave_out:
            rows = _without(rows, task.leave_out)
        yield from self.kernel(task.bookie)(rows)


def sound_rows(
    read: Read, columns: Sequence[str], threads: bool = False
) -> Iterator[pa.RecordBatch]:
    """Yield rows of `entries` or `groups` as `read_rows` does, sound as kernels want them.

    Raises `CorruptionError` for others: here the file is known, which a kernel cannot name. All
    files' batches have one schema, whoever wrote them (Spark's columns may have nulls).
    """
    import pyarrow as pa

    sorted_by, declared = SORTED_BY[read.table], DUMP_TABLES[read.table].to_arrow()
    schema = pa.schema([declared.field(name) for name in columns])
    for batch in read_rows(read, columns, sorted_by, batch=_BATCH, threads=threads):
        try:
            check_columns(batch)
        except CorruptionError as error:
            raise error.within(read.path) from None
        arrays = [column.cast(field.type) for column, field in zip(batch.columns, schema)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _without(
    batches: Iterator[pa.RecordBatch], ledgers: Sequence[LedgerId]
) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    left_out = {ledger.signed for ledger in ledgers}
    for batch in batches:
        scope, ledger = int64(batch, "scope_id"), int64(batch, "ledger_id")
        starts = run_starts(scope, ledger)
        keep = [
            pair not in left_out for pair in zip(scope[starts].tolist(), ledger[starts].tolist())
        ]
        if all(keep):
            yield batch
            continue
        mask = np.repeat(keep, np.diff(np.append(starts, batch.num_rows)))
        yield batch.filter(pa.array(mask))


def _plan_dumps(table: str, dumps: Sequence[Dump], rows: int) -> list[Task] | None:
    """Return tasks over the bookies that all of the dumps have read, without ledgers that one of
    them could not read; None where files are not sorted.
    """
    files = [{n: by_bookie(dump.files[n]) for n in (table, "ledgers")} for dump in dumps]
    tasks: list[Task] = []
    for name in sorted(set.intersection(*(set(dump.bookies) for dump in dumps))):
        split = [apart(dump[table].get(name, [])) for dump in files]
        if any(rest for _, rest in split):
            return None
        known = [file for dump in files for file in dump["ledgers"].get(name, [])]
        unread = {ledger for file in known for ledger in unread_ledgers(file)}
        tasks += sorted_tasks([alone for alone, _ in split], rows, unread)
    return tasks


def unread_ledgers(file: DumpFile) -> Iterator[LedgerId]:
    """Yield the ledgers of a file that could not be read; statistics skip it where all were.

    Raises as `read_rows` does: a list that lacks some would make losses of what is not known.
    """
    import pyarrow.compute as pc

    columns = ("scope_id", "ledger_id", "entries")
    with opened_parquet(file.path) as opened:
        check_footer(file.path, opened, LEDGERS, ("bookie", *columns), file.rows)
        if is_pure(opened.metadata, file.bookie) and not has_nulls(opened.metadata, "entries"):
            return
    for task in loose_tasks([file], max(file.rows, 1)):
        for batch in read_rows(task.sides[0][0], columns):
            for row in batch.filter(pc.is_null(batch.column("entries"))).to_pylist():
                yield _named(file, row["scope_id"], row["ledger_id"])


def _named(file: DumpFile, scope: int | None, ledger: int | None) -> LedgerId:
    if scope is None or ledger is None:
        raise CorruptionError(file.path, None, "a ledger's id is null")
    try:
        return LedgerId.from_signed(scope, ledger)
    except InvalidArgument as error:
        raise CorruptionError(file.path, None, str(error)) from None
