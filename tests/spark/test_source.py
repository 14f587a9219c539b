"""Spark over bookie directories as they are, and bulk loads with Spark: one local session.

What Spark says is compared with the dump of the same directories, which has families of its
own, and with plain Python over the worlds that the bookies were made of.
"""

from __future__ import annotations

import gc
import os
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bkstore import InvalidArgument, LedgerId, open_index
from bkstore.cli.main import main
from bkstore.errors import BkstoreError, CorruptionError, DirectoryInUse
from bkstore.index.api import LedgerState
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.index.rocks import RocksIndex
from bkstore.offline.dump import dump
from bkstore.offline.dump.plan import Piece
from bkstore.spark.source.filters import Bounds, interval
from bkstore.spark.source.options import parse_options
from bkstore.tables import ENTRIES
from tests.worlds.dumps import CONTENT, NAMES, WIDE, rows, three_bookies, write_log
from tests.worlds.loads import (
    World,
    entry_row,
    fill,
    jumbled,
    make_world,
    plain_dump,
    read_world,
    scanned,
    write_table,
)

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::ResourceWarning")]
pytest.importorskip("pyspark")


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    """One session for the family, in which a task has three attempts."""
    from pyspark import cloudpickle

    from bkstore.spark import register, start_session

    session = start_session("bkstore source tests", "local[2,3]")
    register(session)
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import tests
    yield session
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
    session.stop()
    with warnings.catch_warnings():  # py4j leaves sockets, and the JVM, to the interpreter's end
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="module")
def bookies(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Path], Path]:
    """Return a bookie of each layout with entry logs, and their dump with lengths."""
    top = tmp_path_factory.mktemp("bookies")
    paths = three_bookies(top)
    for path in paths:
        for current in path.glob("*/current"):
            records = iter([(LedgerId.of(3), 1, 100), (WIDE[0], 0, 70)])
            write_log(current / "7.log", records, 2)
    dump(paths, top / "dump", length=True, piece_rows=2000)
    return paths, top / "dump"


def plain(frame: Any) -> list[tuple[Any, ...]]:
    """Return a frame's rows as sorted tuples."""
    found = (
        tuple(bytes(v) if isinstance(v, bytearray) else v for v in row) for row in frame.collect()
    )
    return sorted(found, key=repr)


# -- the tables


@pytest.mark.parametrize("table", NAMES)
def test_tables_are_the_dumps(spark: Any, bookies: tuple[list[Path], Path], table: str) -> None:
    """Each table of each layout has the rows that a dump of the directories has."""
    paths, dumped = bookies
    options = {"table": table, "partitionRows": 2000, "length": True, "damage": "skip"}
    frame = spark.read.format("bookie").options(**options).load(list(map(str, paths)))
    expected = sorted((tuple(row) for row in rows(dumped, table)), key=repr)

    assert expected == plain(frame)


def test_schema_is_the_declared_one(spark: Any, bookies: tuple[list[Path], Path]) -> None:
    """Columns have the declared names, types and nullability."""
    kinds = {"int64": "bigint", "int32": "int", "string": "string"}
    frame = spark.read.format("bookie").load(str(bookies[0][0]))
    expected = [(c.name, kinds[c.kind], c.nullable) for c in ENTRIES.columns]

    assert expected == [
        (field.name, field.dataType.simpleString(), field.nullable) for field in frame.schema
    ]


CONDITIONS: dict[str, Callable[[str, LedgerId, int], bool]] = {
    "ledger_id = 2": lambda bookie, name, entry: name.signed[1] == 2,
    "ledger_id in (1, 9, 77)": lambda bookie, name, entry: name.signed[1] in (1, 9, 77),
    "ledger_id < 0": lambda bookie, name, entry: name.signed[1] < 0,
    "ledger_id >= 300": lambda bookie, name, entry: name.signed[1] >= 300,
    "ledger_id > 1 and ledger_id <= 9": lambda bookie, name, entry: 1 < name.signed[1] <= 9,
    "scope_id = 3": lambda bookie, name, entry: name.signed[0] == 3,
    "scope_id < 0": lambda bookie, name, entry: name.signed[0] < 0,
    "scope_id <> 0": lambda bookie, name, entry: name.scope != 0,
    "scope_id >= 0 and ledger_id in (4, -1, 9)": lambda bookie, name, entry: (
        name.signed[0] >= 0 and name.signed[1] in (4, -1, 9)
    ),
    "bookie = 'rocks3' and ledger_id = 9 and entry_id > 1": lambda bookie, name, entry: (
        bookie == "rocks3" and name.signed[1] == 9 and entry > 1
    ),
    "bookie in ('idx', 'rocks') and ledger_id = 1 and entry_id % 2 = 0": (
        lambda bookie, name, entry: bookie != "rocks3" and name.ledger == 1 and entry % 2 == 0
    ),
    "ledger_id <=> 9": lambda bookie, name, entry: name.signed[1] == 9,
    "ledger_id is null": lambda bookie, name, entry: False,
}


def test_filters(spark: Any, bookies: tuple[list[Path], Path]) -> None:
    """Filters give the rows that plain Python keeps, ids compared as signed numbers."""
    frame = spark.read.format("bookie").load(list(map(str, bookies[0])))
    for condition, keep in CONDITIONS.items():
        expected = sorted(
            (bookie, *name.signed, entry)
            for bookie in ("idx", "rocks", "rocks3")
            for name, entries in CONTENT.items()
            for entry in entries.tolist()
            if keep(bookie, name, entry)
        )
        found = frame.where(condition).select("bookie", "scope_id", "ledger_id", "entry_id")

        assert expected == sorted(map(tuple, found.collect())), condition


def test_filters_skip_what_is_not_wanted(spark: Any, bookies: tuple[list[Path], Path]) -> None:
    """A filter is done by the source, and takes away partitions: what it leaves out is not read."""
    reading = spark.read.format("bookie").option("partitionRows", 2000)
    frame = reading.load(list(map(str, bookies[0])))
    wanted = frame.where("scope_id = 0 and ledger_id = 9")

    assert frame.rdd.getNumPartitions() > 8
    assert 3 == wanted.rdd.getNumPartitions()
    assert 1 == wanted.where("bookie = 'rocks3'").rdd.getNumPartitions()
    assert 15 == wanted.count()
    assert 3 * 8 == reading.option("table", "ledgers").load(list(map(str, bookies[0]))).count()


def test_filters_on_other_tables(spark: Any, bookies: tuple[list[Path], Path]) -> None:
    """Tables with ledgers take the same filters; those without leave them to Spark."""
    reading = spark.read.format("bookie")
    paths = list(map(str, bookies[0]))
    ledgers = reading.option("table", "ledgers").load(paths).where("ledger_id = 9 and fenced")
    logs = reading.option("table", "log_ledgers").load(paths).where("scope_id <> 0")
    files = reading.option("table", "entry_logs").load(paths).where("log_id = 7 and ledgers = 2")

    assert [("idx", 5), ("rocks", 5), ("rocks3", 5)] == sorted(
        (row.bookie, row.entries) for row in ledgers.collect()
    )
    assert {(*WIDE[0].signed, 74)} == {tuple(row)[3:] for row in logs.collect()}
    assert 5 == files.count()


def test_names(spark: Any, bookies: tuple[list[Path], Path]) -> None:
    """NAME=DIR names a bookie; equal names are refused."""
    idx, rocks = map(str, bookies[0][:2])
    frame = spark.read.format("bookie").load([f"x:1={idx}", rocks])
    with pytest.raises(BkstoreError, match="two bookies are called 'idx'"):
        with_ours(lambda: spark.read.format("bookie").load([idx, f"idx={rocks}"]).count())

    assert {"x:1", "rocks"} == {row.bookie for row in frame.select("bookie").distinct().collect()}


def with_ours(act: Callable[[], Any]) -> Any:
    """Run a query whose errors come out as ours."""
    from bkstore.spark.errors import spark_errors

    with spark_errors("the query"):
        return act()


@pytest.fixture
def torn(bookies: tuple[list[Path], Path], tmp_path: Path) -> list[str]:
    """Return a bookie with a torn index file, and one that cannot be opened."""
    shutil.copytree(bookies[0][0], tmp_path / "torn")
    next((tmp_path / "torn").rglob("1.idx")).write_bytes(b"torn")
    return [str(tmp_path / "torn"), str(tmp_path / "nowhere")]


def test_damage_ends_a_query(spark: Any, torn: list[str]) -> None:
    """Unreadable bytes are an error that names file and reason, unless they may be passed over."""
    reading = spark.read.format("bookie")
    with pytest.raises(CorruptionError, match=r"1\.idx: offset 4: .*option damage=skip"):
        with_ours(lambda: reading.load(torn[:1]).count())
    with pytest.raises(BkstoreError, match="nowhere: no such directory"):
        with_ours(lambda: reading.load(torn[1:]).count())
    rest = reading.option("damage", "skip").load(torn)

    assert sum(ids.size for name, ids in CONTENT.items() if name != (0, 1)) == rest.count()


def test_findings_tell_of_damage(spark: Any, torn: list[str]) -> None:
    """The table `findings` names what the others lack, and never fails for it."""
    found = spark.read.format("bookie").option("table", "findings").load(torn).collect()

    assert {("torn", 1), ("nowhere", None)} == {
        (row.bookie, row.ledger_id) for row in found if row.severity == "damage"
    }


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"path": "x", "tabel": "entries"}, "unknown option 'tabel'"),
        ({"path": "x", "table": "rows"}, "no table 'rows'"),
        ({}, "which bookies"),
        ({"path": "x", "live": "maybe"}, "live is true or false"),
        ({"path": "x", "layout": "rocks"}, "unknown layout"),
        ({"path": "x", "partitionrows": "0"}, "1 or more"),
        ({"paths": "x"}, "JSON list"),
        ({"path": "x", "damage": "ignore"}, "'fail' or 'skip'"),
    ],
)
def test_options_are_checked(options: dict[str, str], reason: str) -> None:
    """An option that is none, or a value that it does not take, is refused by name."""
    with pytest.raises(InvalidArgument, match=reason):
        parse_options(options)


def test_other_schema_is_refused(spark: Any, bookies: tuple[list[Path], Path]) -> None:
    """A schema given by hand must be the table's."""
    reading = spark.read.format("bookie").schema("a int")
    with pytest.raises(InvalidArgument, match="table entries has columns"):
        with_ours(lambda: reading.load(str(bookies[0][0])).count())


TRACE = "Traceback (most recent call last):\n  File x, line 1, in y\n"
TOLD = [
    (
        TRACE + "bkstore.errors.WriteFailed: /x: cannot be written: full\n\tat a.b.C(D.scala:1)",
        BkstoreError,
        "/x: cannot be written: full",
    ),
    (
        TRACE + "bkstore.errors.DirectoryInUse: b: files changed\n SQLSTATE: 38000",
        DirectoryInUse,
        "b: files changed",
    ),
    (
        "An exception was thrown:\n" + TRACE + "ModuleNotFoundError: No module named 'bkstore'\n",
        BkstoreError,
        "it failed: ModuleNotFoundError: No module named 'bkstore'",
    ),
    (
        "Job aborted\n\tat x\nCaused by: java.io.IOException: No space left on device\n\tat y",
        BkstoreError,
        "it failed: No space left on device",
    ),
    (
        "[PATH_NOT_FOUND] Path does not exist: x. SQLSTATE: 42K03",
        BkstoreError,
        "it failed: [PATH_NOT_FOUND] Path does not exist: x. SQLSTATE: 42K03",
    ),
]


@pytest.mark.parametrize(("text", "kind", "line"), TOLD)
def test_errors_of_spark_are_one_line(text: str, kind: type[BkstoreError], line: str) -> None:
    """What a worker raised, or the last cause that the JVM names, is what is said, and no more."""
    from pyspark.errors import PySparkException

    from bkstore.spark.errors import spark_errors

    with pytest.raises(kind) as told, spark_errors("it"):
        raise PySparkException(text)

    assert line == str(told.value)
    assert text == str(told.value.__cause__)


# -- bounds, without Spark


def test_bounds_against_plain_python() -> None:
    """Any mix of comparisons keeps just the ledgers that plain Python keeps; ranges cover them."""
    rng = np.random.default_rng(7)
    edge = [-(2**63), -(2**63) + 1, -2, -1, 0, 1, 2, 5, 2**63 - 2, 2**63 - 1]
    compare: dict[str, Callable[[int, Any], bool]] = {
        "EqualTo": lambda a, b: a == b,
        "LessThan": lambda a, b: a < b,
        "LessThanOrEqual": lambda a, b: a <= b,
        "GreaterThan": lambda a, b: a > b,
        "GreaterThanOrEqual": lambda a, b: a >= b,
        "In": lambda a, b: a in b,
    }
    ids = np.array([(s, n) for s in edge for n in edge if s != 0 or n >= 0], np.int64)
    for _ in range(300):
        bounds, keep = Bounds(), np.ones(len(ids), bool)
        for _ in range(int(rng.integers(1, 4))):
            at = int(rng.integers(2))
            kind = str(rng.choice(list(compare)))
            value: Any = edge[int(rng.integers(len(edge)))]
            if kind == "In":
                value = tuple(edge[int(n)] for n in rng.integers(len(edge), size=3))
            wanted = interval(kind, value)
            assert wanted is not None
            bounds = bounds.narrowed(("scope_id", "ledger_id")[at], wanted)
            keep &= np.array([compare[kind](int(row[at]), value) for row in ids])
        piece = Piece("b", "index", 0, 0, False, False, (), "rocksdb", (Path("x"),))
        cut = bounds.cut(piece)
        held = [any(p.holds(LedgerId.from_signed(*map(int, row))) for p in cut) for row in ids]

        assert keep.tolist() == bounds.mask(ids[:, 0], ids[:, 1]).tolist()
        assert not (keep & ~np.array(held)).any()


# -- bulk loads


@pytest.fixture(scope="module")
def jumble(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, World]:
    """Return a folder of Parquet in any order, and what it means."""
    world = make_world(31, 24)
    given, expected = jumbled(world, 32)
    return plain_dump(tmp_path_factory.mktemp("jumble") / "dump", world, given), expected


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


def test_bulk_load_of_several_directories(
    spark: Any, bookies: tuple[list[Path], Path], tmp_path: Path
) -> None:
    """Each ledger goes to the directory of its unsigned id, as a bookie looks for it."""
    from bkstore.spark import load

    result = load(spark, bookies[1], tmp_path / "out", bookie="rocks3", partitions=4)
    with open_index(tmp_path / "out") as index, open_index(bookies[0][2]) as source:
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


@pytest.mark.parametrize("to", ["rocksdb", "idx"])
def test_task_that_is_retried(
    spark: Any,
    jumble: tuple[Path, World],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    to: Any,
) -> None:
    """What the first attempts of all tasks wrote does no harm: nothing is twice, nothing lacks."""
    from bkstore.spark import load
    from bkstore.spark.load import SparkEngine

    seen: list[Path] = []
    task, finish = SparkEngine.task, "bkstore.offline.load.run.build"
    real = sys.modules["bkstore.offline.load.run"].build

    def build(to: str, top: Path, *rest: Any) -> None:
        seen.extend(top.parent.glob("work/spark/attempt-*"))
        real(to, top, *rest)

    monkeypatch.setattr(SparkEngine, "task", lambda *a: FailsOnce(task(*a), "torn"))
    monkeypatch.setattr(finish, build)
    load(spark, jumble[0], tmp_path / "out", to, partitions=2)

    assert 4 == len(seen)
    assert ["out"] == [path.name for path in tmp_path.iterdir()]
    with open_index(tmp_path / "out") as index:
        assert jumble[1] == read_world(index)


def test_task_that_fails_for_good(
    spark: Any, jumble: tuple[Path, World], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk of the executors is one line, and nothing is left."""
    from bkstore.spark import load
    from bkstore.spark.load import SparkEngine

    task = SparkEngine.task
    monkeypatch.setattr(SparkEngine, "task", lambda *a: FailsAlways(task(*a)))
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
    with pytest.raises(CorruptionError, match=rf"no row of an index: .*entry_id {row[4]} ") as e:
        load(spark, tmp_path / "dump", tmp_path / "out")

    assert 1 == len(str(e.value).splitlines())
    assert ["dump"] == [path.name for path in tmp_path.iterdir()]


def test_bulk_load_compares(
    spark: Any, jumble: tuple[Path, World], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the index differs from the dump in one row, the load ends without it."""
    from bkstore.spark import load

    module = sys.modules["bkstore.offline.load.run"]
    real = module.build
    name = next(name for name, (held, _) in jumble[1].items() if held)

    def wrong(to: str, top: Path, *rest: Any) -> None:
        real(to, top, *rest)
        with HierarchicalIndex(top, writable=True) as index:
            entry = next(iter(jumble[1][name][0]))
            index.put(name, entry, 1)

    monkeypatch.setattr(module, "build", wrong)
    with pytest.raises(CorruptionError, match=r"differs from the dump: .*'found': 1"):
        load(spark, jumble[0], tmp_path / "out", "idx", partitions=2)

    assert [] == list(tmp_path.iterdir())
