"""What a task of a bulk load makes of sorted rows, without a session: expected rows by hand.

Ids here are as Spark hands them on: signed, in unsigned order.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bkstore import LedgerId
from bkstore.index.api import IndexBatch
from bkstore.index.rocks import RocksIndex
from bkstore.offline.dump import dump
from bkstore.offline.load.declared_order import plan_load_tasks
from bkstore.offline.load.dump_rows import open_load_source
from bkstore.spark.load_tasks import ShuffledRows, SortedFileRows, WritePieces

pytestmark = pytest.mark.spark
pytest.importorskip("pyspark")
pa = pytest.importorskip("pyarrow")

LEAST, MOST = -(2**63), 2**63 - 1
NAMES = ("home", "scope_id", "ledger_id", "entry_id", "location")
Row = tuple[int, int, int, int, int]

ROWS: list[Row] = [
    (0, 0, 1, 0, 1100),
    (0, 0, 1, 0, 1200),  # the same entry, put again
    (0, 0, 1, 1, 1200),
    (0, 0, 2, 1, 1200),  # another ledger
    (0, 0, MOST, 1, 1200),
    (0, 1, MOST, 1, 1200),  # another scope
    (0, 1, LEAST, 1, 1300),
    (0, 1, -1, 1, 1),
    (0, 1, -1, 1, 2),
    (0, 1, -1, 1, MOST),
    (0, -1, -1, 1, 5),
    (1, -1, -1, 2, 4),  # another directory
    (2, 0, 5, 0, 9),
    (2, 0, 5, 0, 9),  # the same row, twice
]
KEPT = [ROWS[at] for at in (1, 2, 3, 4, 5, 6, 9, 10, 11, 13)]


def batches(rows: list[Row], size: int) -> Iterator[Any]:
    """Yield rows as Arrow batches of `size`, an empty one before each."""
    for at in range(0, len(rows), size):
        for part in ([], rows[at : at + size]):
            columns = zip(*part) if part else [[]] * len(NAMES)
            arrays = [pa.array(column, pa.int64()) for column in columns]
            yield pa.RecordBatch.from_arrays(arrays, NAMES)


def rows_of(home: int, batch: IndexBatch) -> list[Row]:
    """Return a batch's rows, which all say that they are of `home`."""
    assert {home} == set(batch.dir_index.tolist())
    return list(zip(*(column.tolist() for column in batch)))


@pytest.mark.parametrize("size", range(1, len(ROWS) + 1))
def test_the_last_row_of_each_key(size: int) -> None:
    """Of rows of one key that with the highest location stays, however batches part them; each
    directory's rows come apart, in order; and all rows are counted, in each partition anew."""
    sorted_rows = ShuffledRows()
    for _ in range(2):
        made = [row for part in sorted_rows(batches(ROWS, size)) for row in rows_of(*part)]

        assert KEPT == made
        assert len(ROWS) == sorted_rows.rows_read
    assert [] == list(sorted_rows(iter([])))
    assert 0 == sorted_rows.rows_read


def test_rows_of_tasks_are_counted_in_each_partition(tmp_path: Path) -> None:
    """A worker that reads files itself gives each row once, and counts a partition's rows."""
    ledgers = {LedgerId(1, 7): 3, LedgerId(1, 2**63): 2}
    with RocksIndex(tmp_path / "b", writable=True) as index:
        for ledger, entries in ledgers.items():
            index.put_many(ledger, range(entries), range(1100, 1100 + entries))
    dump([tmp_path / "b"], tmp_path / "dump")
    source = open_load_source(tmp_path / "dump")
    tasks = pa.array([pickle.dumps(list(plan_load_tasks(source, 1000)))], pa.binary())
    reads = SortedFileRows(replace(source, files=(), ledgers=()))
    for _ in range(2):
        found = reads(iter([pa.record_batch([tasks], ["tasks"])]))
        expected = [
            (0, *ledger.signed, entry, 1100 + entry)
            for ledger, entries in ledgers.items()
            for entry in range(entries)
        ]

        assert expected == [row for part in found for row in rows_of(*part)]
        assert 5 == reads.rows_read


class Task(NamedTuple):
    """A running task, as Spark tells it."""

    partition: int
    attempt_id: int

    def partitionId(self) -> int:  # Spark's
        """Return which partition it works on."""
        return self.partition

    def taskAttemptId(self) -> int:
        """Return the number that no other attempt of any task has."""
        return self.attempt_id

    def attemptNumber(self) -> int:
        """Return how often the task was tried before."""
        return 0


@pytest.fixture
def as_task(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that says which task runs."""
    from pyspark import TaskContext

    def become(*ids: int) -> None:
        monkeypatch.setattr(TaskContext, "get", lambda: Task(*ids))

    return become


def pieces(to: str, folder: Path, rows: list[Row]) -> list[dict[str, Any]]:
    """Return what a task that writes rows says of its pieces."""
    writes = WritePieces(to, str(folder), ShuffledRows())
    return [row for batch in writes(batches(rows, 4)) for row in batch.to_pylist()]


def test_a_piece_for_each_directory_and_width(tmp_path: Path, as_task: Any) -> None:
    """Table files are of one directory and one width of keys; what was left out stands in the
    first one, once."""
    as_task(3, 17)
    made = pieces("rocksdb", tmp_path, ROWS)
    columns = ("directory", "has_scope", "rows", "duplicates")

    assert [(0, False, 4, 4), (0, True, 4, 0), (1, True, 1, 0), (2, False, 1, 0)] == [
        tuple(row[name] for name in columns) for row in made
    ]
    for row in made:
        assert row["bytes"] == Path(row["path"]).stat().st_size
    assert 4 == len({row["path"] for row in made})


@pytest.mark.parametrize("to", ["rocksdb", "idx"])
def test_no_two_attempts_share_a_folder(tmp_path: Path, as_task: Any, to: str) -> None:
    """Another partition, or another attempt of the same, writes beside what is there."""
    paths = []
    for ids in ((0, 0), (0, 1), (1, 1), (1, 11), (11, 1)):
        as_task(*ids)
        paths += [row["path"] for row in pieces(to, tmp_path, ROWS[:3])]

    assert 5 == len(set(paths))
    as_task(5, 5)
    assert [] == pieces(to, tmp_path, [])
