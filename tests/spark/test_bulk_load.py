"""Bulk loads with Spark: the index is what the dump says, whatever fails on the way.

What is loaded is compared with plain Python over the worlds that the dumps were made of.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bkstore import LedgerId, open_index
from bkstore.cli.main import main
from bkstore.errors import BkstoreError, CorruptionError, InvalidArgument
from bkstore.index.api import LedgerState
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.index.rocks import RocksIndex
from bkstore.offline.dump import dump
from bkstore.tables import ENTRIES
from tests.worlds.loads import (
    World,
    edit_manifest,
    entry_row,
    fill,
    jumbled,
    make_world,
    plain_dump,
    read_world,
    scanned,
    share_a_range,
    write_table,
)

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::ResourceWarning")]
pytest.importorskip("pyspark")


@pytest.fixture(scope="module")
def jumble(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, World]:
    """Return a folder of Parquet in any order, and what it means."""
    world = make_world(31, 24)
    given, expected = jumbled(world, 32)
    return plain_dump(tmp_path_factory.mktemp("jumble") / "dump", world, given), expected


@pytest.fixture(scope="module")
def sorted_dump(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, World]:
    """Return a dump of several files, which says how they are sorted, and what it means."""
    top, world = tmp_path_factory.mktemp("sorted"), make_world(43, 10)
    fill(RocksIndex(top / "b", writable=True), world)
    dump([top / "b"], top / "dump", piece_rows=500)
    return top / "dump", world


@pytest.mark.parametrize("to", ["rocksdb", "idx"])
def test_bulk_load(spark: Any, jumble: tuple[Path, World], tmp_path: Path, to: Any) -> None:
    """Rows in any order with duplicates: the index is what they mean, in unsigned order."""
    from bkstore.spark import load

    dumped, expected = jumble
    result = load(spark, dumped, tmp_path / "out", to, partitions=5)
    kept = sum(len(entries) for entries, _ in expected.values())
    given = sum(len(part) for part in map(read_column, (dumped / "entries").iterdir()))

    assert (kept, given - kept, len(expected)) == (result.rows, result.duplicates, result.ledgers)
    assert result.compared
    assert ["out"] == [path.name for path in tmp_path.iterdir()]
    with open_index(tmp_path / "out") as index:
        assert expected == read_world(index)
        rows_of = [(name, *row) for name, (held, _) in expected.items() for row in held.items()]
        assert sorted(rows_of) == scanned(index)


@pytest.mark.parametrize("name", ["v1.0.d", "a[1]{b,c}", "a*"])
def test_a_dump_in_a_folder_of_any_name(
    spark: Any, jumble: tuple[Path, World], tmp_path: Path, name: str
) -> None:
    """A path is no pattern, whatever characters it has: its rows are read, and no others."""
    from bkstore.offline.load.dump_rows import open_load_source
    from bkstore.spark.load import SparkLoadEngine

    for folder in (name, "aX"):
        shutil.copytree(jumble[0], tmp_path / folder)
    source = open_load_source(tmp_path / name)
    given = sum(len(part) for part in map(read_column, (jumble[0] / "entries").iterdir()))

    assert given == SparkLoadEngine(spark)._entry_rows(source).count()


def read_column(path: Path) -> list[int]:
    """Return one column of a Parquet file."""
    import pyarrow.parquet as pq

    found: list[int] = pq.read_table(path)["entry_id"].to_pylist()
    return found


@pytest.mark.parametrize("to", ["rocksdb", "idx"])
def test_bulk_load_of_a_dump(
    spark: Any, tmp_path: Path, to: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command with `--engine spark` makes the index that the bookie had."""
    world = make_world(41, 10, limbo=to == "rocksdb")
    fill(RocksIndex(tmp_path / "b", writable=True), world)
    dump([tmp_path / "b"], tmp_path / "dump", piece_rows=500)
    words = ["load", str(tmp_path / "dump"), str(tmp_path / "out"), f"--to={to}"]
    code = main([*words, "--engine=spark", "--partitions=3"])

    assert 0 == code
    assert "each row and state compared" in capsys.readouterr().err
    with open_index(tmp_path / "out") as index:
        assert world == read_world(index)


@pytest.mark.long
def test_bulk_load_of_a_uri(spark: Any, sorted_dump: tuple[Path, World], tmp_path: Path) -> None:
    """A dump of another file system is read by Python workers, and compared; an index goes to a
    path.
    """
    from bkstore.spark import load

    place = f"local://{sorted_dump[0]}"
    with pytest.raises(InvalidArgument, match="is a URI; an index can be written to a local path"):
        load(spark, place, "local:///there")
    assert load(spark, place, tmp_path / "out", "rocksdb", partitions=2).compared
    with open_index(tmp_path / "out") as index:
        assert sorted_dump[1] == read_world(index)


def test_bulk_load_of_several_directories(
    spark: Any, bookies: tuple[list[Path], Path], tmp_path: Path
) -> None:
    """Each ledger goes to the directory of its unsigned id, as a bookie looks for it."""
    _check_directories(spark, bookies[1], bookies[0][2], tmp_path / "out")


def test_bulk_load_of_files_that_share_a_ledger(
    spark: Any, bookies: tuple[list[Path], Path], tmp_path: Path
) -> None:
    """Files that may share a ledger are sorted together, beside those that are ready."""
    shutil.copytree(bookies[1], tmp_path / "dump")

    def share(manifest: Any) -> None:
        whole = manifest["tables"]["entries"]
        homes: Any = {}
        for file in (f for f in whole["files"] if f["bookie"] == "rocks3" and f["rows"]):
            homes.setdefault(int(file["first_ledger"][16:], 16) % 3, []).append(file)
        (home,) = [files for files in homes.values() if len(files) > 1][:1]
        share_a_range({"tables": {"entries": {"files": home}}})

    edit_manifest(tmp_path / "dump", share)
    _check_directories(spark, tmp_path / "dump", bookies[0][2], tmp_path / "out")


def _check_directories(spark: Any, dumped: Path, directory: Path, out: Path) -> None:
    from bkstore.spark import load

    result = load(spark, dumped, out, bookie="rocks3", partitions=4)
    with open_index(out) as index, open_index(directory) as source:
        assert (9050, 3) == (result.rows, result.directories)
        assert read_world(source) == read_world(index)
        assert [] == index.findings()


class FailsOnce:
    """Writes like `WritePieces`, but the first attempt of each task fails, or is not counted."""

    def __init__(self, inner: Any, error: str) -> None:
        self.inner = inner
        self.error = error

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Write everything, and fail after it in the first attempt."""
        from pyspark import TaskContext

        task = TaskContext.get()
        made = list(self.inner(batches))
        if task is not None and task.attemptNumber() == 0:
            raise OSError(self.error)
        yield from made


class FailsAlways:
    """Fails in the middle of its rows, as on a full disk."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Raise after the first batch."""
        from bkstore.errors import WriteFailed  # pickled by value, a worker has no tests

        yield from self.inner([next(batches)])
        raise WriteFailed("/x/00000.sst", OSError(28, os.strerror(28)))


@pytest.mark.parametrize(("to", "lies"), [("rocksdb", "in any order"), ("idx", "sorted")])
def test_task_that_is_retried(
    spark: Any,
    jumble: tuple[Path, World],
    sorted_dump: tuple[Path, World],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    to: Any,
    lies: str,
) -> None:
    """What the first attempts of all tasks wrote does no harm: nothing is twice, nothing lacks."""
    dumped, expected = sorted_dump if lies == "sorted" else jumble
    from bkstore.spark import load
    from bkstore.spark.load import SparkLoadEngine

    seen: list[Path] = []
    task, finish = SparkLoadEngine.piece_writer, "bkstore.offline.load.load_job.build_index"
    real = sys.modules["bkstore.offline.load.load_job"].build_index

    def build(to: str, currents: list[Path], *rest: Any) -> None:
        run = next(path for path in currents[0].parents if (path / "work").is_dir())
        seen.extend(run.glob("work/*/attempt-*"))
        real(to, currents, *rest)

    monkeypatch.setattr(SparkLoadEngine, "piece_writer", lambda *a: FailsOnce(task(*a), "torn"))
    monkeypatch.setattr(finish, build)
    load(spark, dumped, tmp_path / "out", to, partitions=2)

    assert {2} == set(Counter(path.name.split("-")[1] for path in seen).values())
    assert {"sorted": "ready"}.get(lies, "spark") == seen[0].parent.name
    assert ["out"] == [path.name for path in tmp_path.iterdir()]
    with open_index(tmp_path / "out") as index:
        assert expected == read_world(index)


def test_task_that_fails_for_good(
    spark: Any, jumble: tuple[Path, World], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk of the executors is one line, and nothing is left."""
    from bkstore.spark import load
    from bkstore.spark.load import SparkLoadEngine

    task = SparkLoadEngine.piece_writer
    monkeypatch.setattr(SparkLoadEngine, "piece_writer", lambda *a: FailsAlways(task(*a)))
    with pytest.raises(BkstoreError, match="cannot be written: No space left on device") as e:
        load(spark, jumble[0], tmp_path / "out", partitions=2)

    assert 1 == len(str(e.value).splitlines())
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "row",
    [
        ("b", 0, 0, -5, 0, 1, 9, None),
        ("b", 0, 1, 1, 2**63 - 1, 1, 9, None),
        ("b", 0, 1, 1, 0, -1, 9, None),
        ("b", 0, 1, 1, 0, 0, 0, None),
    ],
)
def test_bulk_load_refuses_odd_rows(spark: Any, tmp_path: Path, row: tuple[Any, ...]) -> None:
    """A row that no index has ends the load in one line that shows it."""
    from bkstore.spark import load

    name = LedgerId(2**63, 2**64 - 1)
    world: World = {name: ({0: 9}, LedgerState(b"k"))}
    plain_dump(tmp_path / "dump", world, [entry_row(name, 0, 9)], 1)
    write_table(tmp_path / "dump/entries/x.parquet", ENTRIES, [row])
    with pytest.raises(CorruptionError, match=rf"not a row of an index: .*entry_id {row[4]} ") as e:
        load(spark, tmp_path / "dump", tmp_path / "out")

    assert 1 == len(str(e.value).splitlines())
    assert ["dump"] == [path.name for path in tmp_path.iterdir()]


@pytest.mark.parametrize("to", ["rocksdb", "idx"])
def test_sorted_files_are_compared_where_they_are_read(
    spark: Any,
    sorted_dump: tuple[Path, World],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    to: Any,
) -> None:
    """Of sorted files no row is joined: a task finds the one that the index has otherwise."""
    from bkstore.spark import load
    from bkstore.spark.load import SparkLoadEngine

    dumped, world = sorted_dump
    module = sys.modules["bkstore.offline.load.load_job"]
    real = module.build_index
    name = max(world, key=lambda each: len(world[each][0]))

    def wrong(layout: str, currents: list[Path], *rest: Any) -> None:
        real(layout, currents, *rest)
        kind = {"rocksdb": RocksIndex, "idx": HierarchicalIndex}[layout]
        with kind(currents[0], writable=True) as index:
            index.put(name, max(world[name][0]), 1)

    monkeypatch.setattr(SparkLoadEngine, "_compare_by_join", None)
    assert load(spark, dumped, tmp_path / "right", to, partitions=3).compared
    monkeypatch.setattr(module, "build_index", wrong)
    with pytest.raises(CorruptionError, match=r"location 0x1 is here, ledger .* in the dump") as e:
        load(spark, dumped, tmp_path / "out", to, partitions=3)

    assert 1 == len(str(e.value).splitlines())
    assert ["right"] == [path.name for path in tmp_path.iterdir()]


def test_bulk_load_compares(
    spark: Any, jumble: tuple[Path, World], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the index differs from the dump in one row, the load ends without it."""
    from bkstore.spark import load

    module = sys.modules["bkstore.offline.load.load_job"]
    real = module.build_index
    name = next(name for name, (held, _) in jumble[1].items() if held)

    def wrong(to: str, top: Path, *rest: Any) -> None:
        real(to, top, *rest)
        with HierarchicalIndex(top, writable=True) as index:
            entry = next(iter(jumble[1][name][0]))
            index.put(name, entry, 1)

    monkeypatch.setattr(module, "build_index", wrong)
    with pytest.raises(CorruptionError, match=r"differs from the dump: .*'found': 1"):
        load(spark, jumble[0], tmp_path / "out", "idx", partitions=2)

    assert [] == list(tmp_path.iterdir())


# -- rules that Spark applies to rows

LEAST, MOST = -(2**63), 2**63 - 1
GOOD = (0, 0, 7, 0, 1, 1100)
ODD: list[tuple[int | None, ...]] = [
    (0, 0, -1, 0, 1, 1100),  # scope 0 holds ledgers up to 2^63-1
    (0, 0, LEAST, 0, 1, 1100),
    (0, 1, 7, -1, 1, 1100),
    (0, 1, 7, MOST, 1, 1100),  # entry ids go up to 2^63-2
    (0, 1, 7, 0, -1, 1100),
    (0, 1, 7, 0, 2**31, 1100),
    (0, 1, 7, 0, 1, -1),
    (0, 1, 7, 0, 1, 2**32),
    (0, 1, 7, 0, 0, 0),  # location 0 is none
    *[tuple(None if at == gone else n for at, n in enumerate(GOOD)) for gone in range(6)],
]
SOUND: list[tuple[int | None, ...]] = [
    GOOD,
    (0, 0, MOST, MOST - 1, 2**31 - 1, 2**32 - 1),
    (0, 1, -1, 0, 0, 1),
    (0, LEAST, LEAST, 0, 1, 0),
    (0, -1, MOST, 0, 0, 2**32 - 1),
]
COLUMNS = (
    "dir_index int, scope_id bigint, ledger_id bigint, entry_id bigint, log_id bigint, "
    "position bigint"
)


def test_rows_that_no_index_has(spark: Any) -> None:
    """A row is refused whose ids, log or position no index can have, or where one is null."""
    from bkstore.offline.load.dump_rows import LoadSource
    from bkstore.spark.load import _is_invalid_row

    source = LoadSource("d", "b", "rocksdb", (), (), True)
    frame = spark.createDataFrame(ODD + SOUND, COLUMNS).coalesce(1)
    told = [row[0] for row in frame.select(_is_invalid_row(frame, source)).collect()]

    assert [True] * len(ODD) + [False] * len(SOUND) == told


def test_the_directory_of_a_ledger(spark: Any) -> None:
    """A ledger's directory is its unsigned id modulo how many there are; a row that says another
    is odd where the index is of RocksDB."""
    from bkstore.offline.load.dump_rows import LoadSource
    from bkstore.spark.load import _directory_number, _is_invalid_row

    unsigned = [0, 1, 2, 5, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 2, 2**64 - 1]
    ids = np.array(unsigned, np.uint64).view(np.int64).tolist()
    counts = (1, 2, 3, 7)
    rows = [(0, 1, ledger, 0, 1, 1100) for ledger in ids]
    frame = spark.createDataFrame(rows, COLUMNS).coalesce(1)
    homes = frame.select(*(_directory_number(frame, n).alias(f"of{n}") for n in counts)).collect()
    odd = frame.select(
        *(
            _is_invalid_row(frame, LoadSource("d", "b", layout, (), (), True, 3)).alias(layout)
            for layout in ("rocksdb", "idx")
        )
    ).collect()

    assert [tuple(ledger % n for n in counts) for ledger in unsigned] == list(map(tuple, homes))
    assert [(ledger % 3 != 0, False) for ledger in unsigned] == list(map(tuple, odd))


IN_ORDER = [
    (0, 0, 1, 0, 1100),
    (0, 0, 1, 0, 1200),
    (0, 0, 1, 1, 5),
    (0, 0, MOST, 0, 5),
    (0, 1, MOST, 7, 5),
    (0, 1, LEAST, 0, 5),
    (0, 1, -1, 0, 5),
    (0, MOST, 0, 0, 5),
    (0, LEAST, 0, 0, 5),
    (0, -1, -1, 0, MOST),
    (1, 0, 0, 0, 5),
]


def test_rows_come_in_unsigned_order(spark: Any) -> None:
    """Rows are sorted by directory, unsigned scope and ledger, entry, and location at last."""
    from bkstore.spark.load import SparkLoadEngine

    columns = "home int, scope_id bigint, ledger_id bigint, entry_id bigint, location bigint"
    frame = spark.createDataFrame(IN_ORDER[::-1], columns).coalesce(1)
    ordered = frame.sortWithinPartitions(*SparkLoadEngine(spark)._sort_columns(frame)).collect()

    assert IN_ORDER == [tuple(row) for row in ordered]
