"""Spark over bookie directories as they are: tables, filters, findings, errors.

What Spark says is compared with the dump of the same directories, which has families of its
own.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkstore import InvalidArgument, LedgerId
from bkstore.errors import BkstoreError, CorruptionError, DirectoryInUse, UnsupportedLayout
from bkstore.formats.cookie import Cookie, encode as encode_cookie
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.index.rocks import RocksIndex
from bkstore.offline.dump import dump
from bkstore.spark.source.options import parse_options
from bkstore.tables import ENTRIES
from tests.worlds.dumps import CONTENT, NAMES, WIDE, rows

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::ResourceWarning")]
pytest.importorskip("pyspark")


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


@pytest.mark.long
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
    with pytest.raises(BkstoreError, match="two bookies have the id 'idx'"):
        with_ours(lambda: spark.read.format("bookie").load([idx, f"idx={rocks}"]).count())

    assert {"x:1", "rocks"} == {row.bookie for row in frame.select("bookie").distinct().collect()}


def with_ours(act: Callable[[], Any]) -> Any:
    """Run a query whose errors come out as ours."""
    from bkstore.spark.errors import convert_spark_errors

    with convert_spark_errors("the query"):
        return act()


@pytest.fixture
def torn(bookies: tuple[list[Path], Path], tmp_path: Path) -> list[str]:
    """Return a bookie with a torn index file, and one that cannot be opened."""
    shutil.copytree(bookies[0][0], tmp_path / "torn")
    next((tmp_path / "torn").rglob("1.idx")).write_bytes(b"torn")
    return [str(tmp_path / "torn"), str(tmp_path / "nowhere")]


def test_damage_ends_a_query(spark: Any, torn: list[str]) -> None:
    """Unreadable bytes are an error that names file and reason, unless they may be skipped."""
    reading = spark.read.format("bookie")
    with pytest.raises(CorruptionError, match=r"1\.idx: offset 4: .*option damage=skip"):
        with_ours(lambda: reading.load(torn[:1]).count())
    with pytest.raises(BkstoreError, match="nowhere: no such directory"):
        with_ours(lambda: reading.load(torn[1:]).count())
    rest = reading.option("damage", "skip").load(torn)

    assert sum(ids.size for name, ids in CONTENT.items() if name != (0, 1)) == rest.count()


def test_findings_tell_of_damage(spark: Any, torn: list[str]) -> None:
    """The table `findings` names what the others lack, and never fails for it."""
    frame = spark.read.format("bookie").option("table", "findings").load(torn)

    assert {("torn", 1), ("nowhere", None)} == {
        (row.bookie, row.ledger_id) for row in frame.collect() if row.severity == "damage"
    }
    assert {"torn"} == {row.bookie for row in frame.where("bookie = 'torn'").collect()}
    assert ["nowhere"] == [row.bookie for row in frame.where("bookie = 'nowhere'").collect()]


def findings_of(paths: list[Path], *filters: Any) -> list[tuple[str, str]]:
    """Return (bookie, detail) of the table `findings`, read as Spark does, with its filters."""
    from bkstore.spark.source.data_source import BookieReader

    words = json.dumps(list(map(str, paths)))
    reader = BookieReader(parse_options({"paths": words, "table": "findings"}))
    assert [] == list(reader.pushFilters(list(filters)))
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return [(row["bookie"], row["detail"]) for batch in batches for row in batch.to_pylist()]


def test_findings_of_a_bookie_that_cannot_be_opened(tmp_path: Path) -> None:
    """A filter on `bookie` holds for findings of bookies that no reader has opened, too."""
    from pyspark.sql.datasource import EqualTo, In

    HierarchicalIndex(tmp_path / "b", writable=True).close()
    paths = [tmp_path / "b", tmp_path / "nowhere"]
    (only,) = findings_of(paths)

    assert "nowhere" == only[0]
    assert [] == findings_of(paths, EqualTo(("bookie",), "b"))
    assert [only] == findings_of(paths, EqualTo(("bookie",), "nowhere"))
    assert [only] == findings_of(paths, In(("bookie",), ("nowhere", "c")))
    assert [] == findings_of(
        paths, EqualTo(("bookie",), "nowhere"), In(("bookie",), ("b", "nowhere2"))
    )


def test_a_filter_and_a_bookie_that_cannot_be_opened(tmp_path: Path) -> None:
    """It ends a query whatever bookie is wanted, as its id is not known, unless it was named."""
    from pyspark.sql.datasource import EqualTo

    from bkstore.spark.source.data_source import BookieReader

    reader = BookieReader(parse_options({"path": str(tmp_path / "nowhere")}))
    named = BookieReader(parse_options({"path": f"n={tmp_path / 'nowhere'}"}))
    for one in (reader, named):
        assert [] == list(one.pushFilters([EqualTo(("bookie",), "b")]))
    with pytest.raises(UnsupportedLayout, match="nowhere: no such directory"):
        reader.partitions()
    (none,) = named.partitions()

    assert [] == list(named.read(none))


def test_findings_of_a_bookie_that_cannot_be_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bookie that was opened has its cookie's id in findings, in filters, and in a dump."""
    from pyspark.sql.datasource import EqualTo

    bad = tmp_path / "bad"
    with RocksIndex(bad, writable=True) as index:
        for ledger in range(3):
            index.put_many(ledger, [0], [1028])

    def fail(self: RocksIndex, scope: int | None = None) -> None:
        raise CorruptionError(bad, None, "cannot be listed")

    monkeypatch.setattr(RocksIndex, "list_readable_ledgers", fail)
    cookie = Cookie(5, "host:3181", (str(bad),), (str(bad),))
    (bad / "current" / "VERSION").write_bytes(encode_cookie(cookie))
    ((name, detail),) = findings_of([bad], EqualTo(("bookie",), "host:3181"))
    HierarchicalIndex(tmp_path / "b", writable=True).close()
    dump([bad, tmp_path / "b"], tmp_path / "dump")
    (told,) = rows(tmp_path / "dump", "findings")

    assert "host:3181" == name
    assert detail.startswith("bookie host:3181 was not read: cannot be listed")
    assert [] == findings_of([bad], EqualTo(("bookie",), "bad"))
    assert name == told[0]
    assert detail in told


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"path": "x", "tabel": "entries"}, "unknown option 'tabel'"),
        ({"path": "x", "table": "rows"}, "no table 'rows'"),
        ({}, "no bookies: give"),
        ({"path": "x", "live": "maybe"}, "live must be true or false, not .maybe."),
        ({"path": "x", "layout": "rocks"}, "unknown layout"),
        ({"path": "x", "partitionrows": "0"}, "1 or more"),
        ({"paths": "x"}, "JSON list"),
        ({"path": "x", "damage": "ignore"}, "'fail' or 'skip'"),
        ({"path": "x", "root": ""}, "option root is a directory, not ''"),
    ],
)
def test_options_are_checked(options: dict[str, str], reason: str) -> None:
    """An option that is none, or a value that it does not take, is refused by name."""
    with pytest.raises(InvalidArgument, match=reason):
        parse_options(options)


def test_a_copied_conf(spark: Any, tmp_path: Path) -> None:
    """`root` says where the directories of a conf were copied to; it goes with a conf alone."""
    for ledger in (1, 2):
        place = tmp_path / "backup" / f"d{ledger}" / "ledgers"
        with HierarchicalIndex(place, writable=True) as index:
            index.put_many(ledger, [0, 1], [1028, 1100])
    conf = tmp_path / "etc" / "bk_server.conf"
    conf.parent.mkdir()
    conf.write_text("ledgerDirectories=/nowhere/d1/ledgers,/nowhere/d2/ledgers\n")
    reading = spark.read.format("bookie")
    with pytest.raises(BkstoreError, match="which is not here"):
        with_ours(lambda: reading.load(str(conf)).count())
    reading = reading.option("root", str(tmp_path / "backup"))
    with pytest.raises(InvalidArgument, match="root requires a bk_server"):
        with_ours(lambda: reading.load(str(tmp_path / "backup")).count())
    found = reading.load(f"copied={conf}")

    assert {("copied", 1, 0), ("copied", 1, 1), ("copied", 2, 0), ("copied", 2, 1)} == {
        (row.bookie, row.ledger_id, row.entry_id) for row in found.collect()
    }


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

    from bkstore.spark.errors import convert_spark_errors

    with pytest.raises(kind) as told, convert_spark_errors("it"):
        raise PySparkException(text)

    assert line == str(told.value)
    assert text == str(told.value.__cause__)
