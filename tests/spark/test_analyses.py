"""The same analyses by Spark: the oracle's rows, and the local engine's, from the same dumps."""

from __future__ import annotations

import gc
import json
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bkstore import BookieDir
from bkstore.availability import Availability
from bkstore.errors import BkstoreError, CorruptionError, InvalidArgument
from bkstore.offline import analyses
from bkstore.offline.analyses import ANALYSES, Inputs, LocalEngine, Options
from tests.models.analyses import ALONE, Expected, check_some_owners, rows_of
from tests.worlds.random_dumps import (
    DumpWorld,
    later_dump,
    overlapping,
    random_dump,
    repeat_files,
    write_dump,
)
from tools.synthesize.shape import ClusterShape
from tools.synthesize.writing import write_cluster

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::ResourceWarning")]
pytest.importorskip("pyspark")

JUDGED = ["violations", "homeless", "ledger_health", "surplus"]
BY_LEDGER = ["sequences", "fragmentation", "comparison", *JUDGED]
LOOSE = ("comparison", "overlap", "violations", "ledger_health")


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    """One session for the family."""
    from bkstore.spark import start_session

    few = {"spark.sql.shuffle.partitions": "2"}
    session = start_session("bkstore tests of analyses", config=few)
    yield session
    session.stop()
    with warnings.catch_warnings():  # py4j leaves sockets, and the JVM, to the interpreter's end
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def _engine(spark: Any, batch: int = 1 << 16) -> Any:
    from bkstore.spark.analysis import SparkEngine

    return SparkEngine(spark, batch)


@pytest.fixture(scope="module", params=[6, pytest.param(0, marks=pytest.mark.long)])
def asked(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[DumpWorld, DumpWorld, Inputs]:
    """Return a random world, the same later, and the two as inputs."""
    top = tmp_path_factory.mktemp("worlds")
    world = random_dump(request.param)
    later = later_dump(world, request.param)
    before, after = write_dump(world, top / "before"), write_dump(later, top / "after")
    return world, later, analyses.open_inputs(before, world.store(), after)


@pytest.fixture(scope="module")
def engine(spark: Any) -> Any:
    """Return one engine, whose batches are small, so that ledgers are cut."""
    return _engine(spark, 7)


@pytest.mark.parametrize("name", ALONE)
def test_rows_equal_the_oracle(
    name: str, engine: Any, asked: tuple[DumpWorld, DumpWorld, Inputs]
) -> None:
    """Spark gives the oracle's rows, of the declared schema, in the declared order."""
    world, _, inputs = asked
    table = engine.run(ANALYSES[name], inputs)

    assert ANALYSES[name].schema.to_arrow() == table.schema
    assert getattr(Expected(world), name)() == rows_of(table)
    assert table.equals(LocalEngine(threads=1).run(ANALYSES[name], inputs))


def test_ledgers_of_some_owners(engine: Any, asked: tuple[DumpWorld, DumpWorld, Inputs]) -> None:
    """A filter leaves the rows of the chosen ledgers."""
    check_some_owners(engine, asked[0], asked[2])


def test_comparison_equals_the_oracle(
    engine: Any, asked: tuple[DumpWorld, DumpWorld, Inputs]
) -> None:
    """Two dumps side by side, too."""
    world, later, inputs = asked
    expected = Expected(world).comparison(Expected(later))

    assert expected == rows_of(engine.run(ANALYSES["comparison"], inputs))


@pytest.mark.parametrize(
    "name", ["sequences", *(pytest.param(name, marks=pytest.mark.long) for name in LOOSE)]
)
def test_files_that_do_not_say_their_order(
    name: str, engine: Any, asked: tuple[DumpWorld, DumpWorld, Inputs], tmp_path: Path
) -> None:
    """Rows of dumps whose manifest says nothing of order are brought together: the same rows.

    So is a bookie of which two files share a ledger, beside others that are read as they lie.
    """
    world, later, _ = asked
    expected = Expected(world)
    if name == "overlap":
        name, rows = "fragmentation", expected.fragmentation()
        mixed = write_dump(world, tmp_path / "mixed", 2)
        overlapping(mixed, next(name for name in world.held if name not in world.lost))
        given = analyses.open_inputs(mixed)
    else:
        others = [Expected(later)] if name == "comparison" else []
        rows = getattr(expected, name)(*others)
        loose = [
            write_dump(each, tmp_path / str(n), 2, False) for n, each in enumerate((world, later))
        ]
        given = analyses.open_inputs(loose[0], world.store(), loose[1])

    assert "Exchange" in plan_of(engine, name, given)
    assert rows == rows_of(engine.run(ANALYSES[name], given))


@pytest.mark.parametrize(
    "name",
    [
        "fragmentation",
        "log_occupancy",
        *(
            pytest.param(name, marks=pytest.mark.long)
            for name in ALONE
            if name not in ("fragmentation", "log_occupancy")
        ),
    ],
)
def test_rows_that_come_twice(
    name: str, engine: Any, asked: tuple[DumpWorld, DumpWorld, Inputs], tmp_path: Path
) -> None:
    """A table is a set of rows: no analysis counts one again that comes twice."""
    world, _, _ = asked
    dump = write_dump(world, tmp_path / "dump", repeated=True)
    inputs = analyses.open_inputs(dump, world.store())

    assert getattr(Expected(world), name)() == rows_of(engine.run(ANALYSES[name], inputs))


@pytest.mark.parametrize("sorted_copies", [True, False])
def test_files_that_repeat_rows_of_others(
    sorted_copies: bool, engine: Any, asked: tuple[DumpWorld, DumpWorld, Inputs], tmp_path: Path
) -> None:
    """Nor one that comes again in another file of its bookie, whether both are sorted or not; what
    other bookies have is all there. The tables of `read_dump` are such sets, too."""
    from bkstore.spark import read_dump, totals

    world, _, _ = asked
    dump = write_dump(world, tmp_path / "dump")
    names = sorted(set(world.held) - world.lost)
    repeat_files(dump, names[0], sorted_copies=sorted_copies)
    inputs = analyses.open_inputs(dump, world.store())
    ledgers = {name: world.held[name] for name in names if world.held[name]}

    assert len(ledgers) > 1
    assert Expected(world).bytes_by_bookie() == rows_of(
        engine.run(ANALYSES["bytes_by_bookie"], inputs)
    )
    assert [
        (name, len(held), *2 * (sum(map(len, held.values())),)) for name, held in ledgers.items()
    ] == [
        (row.bookie, row.ledgers, row.entries, row.grouped_entries)
        for row in totals(engine._spark, read_dump(engine._spark, dump)).collect()
    ]


def test_a_dump_in_a_folder_of_any_name(
    spark: Any, asked: tuple[DumpWorld, DumpWorld, Inputs], tmp_path: Path
) -> None:
    """A path is no pattern, whatever characters it has: its rows are read, each once."""
    from bkstore.spark import read_dump

    for name in ("a*[b]{c,d}.e", "aX[b]{c,d}.e"):
        dump = write_dump(asked[0], tmp_path / name)
        rows = sum(file.rows for file in analyses.open_dump(dump).files["ledgers"])

        assert rows == read_dump(spark, dump)["ledgers"].count()


def plan_of(engine: Any, name: str, inputs: Inputs) -> str:
    """Return the physical plan that Spark makes of an analysis."""
    frame = engine.frame(ANALYSES[name], inputs)
    return str(frame._jdf.queryExecution().executedPlan())


def test_sorted_files_are_not_shuffled(
    engine: Any, asked: tuple[DumpWorld, DumpWorld, Inputs]
) -> None:
    """Of sorted files nothing is brought from elsewhere: no exchange, and no file read by Java.

    Tasks that are worth it are partitions; the plan does not grow with files or bookies.
    """
    plans = {name: plan_of(engine, name, asked[2]) for name in BY_LEDGER}

    assert set() == {name for name, plan in plans.items() if "Exchange" in plan}
    assert set() == {name for name, plan in plans.items() if "parquet" in plan.lower()}
    assert [1] * 7 == [plan.count("MapInArrow") for plan in plans.values()]


def test_a_dump_of_another_file_system(
    engine: Any, asked: tuple[DumpWorld, DumpWorld, Inputs]
) -> None:
    """A dump that has a URI is read by Python workers alone, also for SQL and `read_dump`: the
    same rows.
    """
    from bkstore.spark import read_dump

    place = f"local://{asked[2].dump.path}"
    inputs = Inputs(analyses.open_dump(place), asked[2].metadata)
    for name in ("bytes_by_ledger", "sequences"):
        expected = LocalEngine(threads=1).run(ANALYSES[name], asked[2])

        assert "parquet" not in plan_of(engine, name, inputs).lower()
        assert expected.equals(engine.run(ANALYSES[name], inputs))
    tables = read_dump(engine._spark, place)
    rows = {name: sum(file.rows for file in files) for name, files in inputs.dump.files.items()}

    assert rows["ledgers"] == tables["ledgers"].count()


class Sized(NamedTuple):
    """A task of so many rows."""

    rows: int


@pytest.mark.parametrize("tasks", [0, 1, 40])
@pytest.mark.parametrize("kept", ["48MB", "1KB"])
def test_a_row_of_tasks_is_a_partition(spark: Any, kept: str, tasks: int) -> None:
    """So it is for few tasks, which Spark keeps in the plan, and for those that are too many."""
    import pyarrow as pa

    from bkstore.spark.read_tasks import task_table, unpickle_tasks

    session = spark.newSession()
    session.conf.set("spark.sql.execution.arrow.localRelationThreshold", kept)
    given = [Sized(5 + at) for at in range(tasks)]
    parts = task_table(session, given, 5).rdd.glom().collect()
    rows = [row for part in parts for row in part]

    assert {1} >= {len(part) for part in parts}
    assert tasks == len(rows) == len(parts)
    batches = iter([pa.record_batch([pa.array([bytes(r[0]) for r in rows], pa.binary())], ["t"])])

    assert given == list(unpickle_tasks(batches))


SMALL = {"below_write": 3, "below_ack": 2, "no_replica": 2, "homeless": 2, "leftovers": 2}
TINY = ClusterShape(bookies=7, entries=600, ledgers=20, orphans=2, unclosed=2, **SMALL)


def test_a_synthetic_cluster(engine: Any, tmp_path: Path) -> None:
    """What is planted in a cluster is what Spark finds, and no plan grows with its bookies."""
    planted = write_cluster(TINY, tmp_path)
    given = analyses.open_inputs(tmp_path / "dump", tmp_path / "metadata.json")
    names = ("violations", "orphans")
    tables = {name: engine.run(ANALYSES[name], given).to_pylist() for name in names}
    many = Inputs(analyses.open_dump(multiplied(tmp_path / "dump", 4)), given.metadata)

    assert planted["violations"] == Counter(row["category"] for row in tables["violations"])
    assert planted["orphans"] == len(tables["orphans"])
    for name in names:
        plans = [plan_of(engine, name, inputs) for inputs in (given, many)]

        assert abs(len(plans[0]) - len(plans[1])) < 200, name
        assert plans[0].count("\n") == plans[1].count("\n"), name


def multiplied(dump: Path, times: int) -> Path:
    """Return a dump of so many times the bookies, with the same rows under other names."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    manifest = json.loads((dump / "manifest.json").read_text())
    out = dump.parent / f"{dump.name}-{times}"
    names = [f"{each['id']}-{n}" for n in range(times) for each in manifest["bookies"]]
    manifest["bookies"] = [{**manifest["bookies"][0], "id": name} for name in names]
    for table, said in manifest["tables"].items():
        (out / table).mkdir(parents=True)
        files = []
        for number in range(times):
            for file in said["files"]:
                path = f"{table}/{number}-{Path(file['path']).name}"
                bookie = f"{file['bookie']}-{number}"
                rows = pq.read_table(dump / file["path"])
                names = pa.array([bookie] * rows.num_rows, rows.schema.field("bookie").type)
                at = rows.schema.get_field_index("bookie")
                pq.write_table(rows.set_column(at, rows.schema.field(at), names), out / path)
                files.append({**file, "path": path, "bookie": bookie})
        said["files"] = files
    (out / "manifest.json").write_text(json.dumps(manifest))
    return out


@pytest.mark.long
def test_plans_do_not_grow_with_bookies(engine: Any, tmp_path: Path) -> None:
    """Of 10 bookies and of 200 every analysis has the same plan but for names of files."""
    write_cluster(ClusterShape(**{**vars(TINY), "bookies": 10}), tmp_path)
    few = analyses.open_inputs(tmp_path / "dump", tmp_path / "metadata.json", tmp_path / "dump")
    place = multiplied(tmp_path / "dump", 20)
    many = Inputs(analyses.open_dump(place), few.metadata, analyses.open_dump(place))
    for name in ANALYSES:
        plans = [plan_of(engine, name, inputs) for inputs in (few, many)]

        assert abs(len(plans[0]) - len(plans[1])) < 500, name
        assert plans[0].count("\n") == plans[1].count("\n"), name


def test_availability_is_that_of_the_entries(
    engine: Any, asked: tuple[DumpWorld, DumpWorld, Inputs]
) -> None:
    """Spark's bytes for each ledger are those of `Availability.from_entries`."""
    world, _, inputs = asked
    rows = engine.run(ANALYSES["sequences"], inputs).to_pylist()
    found = {(row["bookie"], row["qualified_name"]): row["availability"] for row in rows}
    expected = {
        (name, ledger.qualified_name): Availability.from_entries(sorted(has)).to_bytes()
        for name, ledgers in world.held.items()
        for ledger, has in ledgers.items()
        if name not in world.lost and has
    }

    assert expected == found


@pytest.mark.parametrize("name", ["bytes_by_ledger", "bytes_by_scope", "ledger_health"])
def test_top_rows_are_the_local_ones(
    name: str, engine: Any, asked: tuple[DumpWorld, DumpWorld, Inputs]
) -> None:
    """Spark's top rows are the local engine's, in the same order."""
    given = asked[2]
    inputs = Inputs(given.dump, given.metadata, options=Options(top=2))
    local = LocalEngine(threads=1).run(ANALYSES[name], inputs)

    assert 2 == local.num_rows
    assert local.equals(engine.run(ANALYSES[name], inputs))


@pytest.mark.parametrize("name", ["bytes_by_scope", "sequences", "ledger_health"])
def test_a_frame_has_the_top_rows(
    name: str, engine: Any, asked: tuple[DumpWorld, DumpWorld, Inputs]
) -> None:
    """Asked for top rows, a DataFrame has those of the local engine, in their order."""
    given = asked[2]
    by = "replicas_due" if name == "ledger_health" else None
    inputs = Inputs(given.dump, given.metadata, options=Options(top=2, by=by))
    found = engine.frame(ANALYSES[name], inputs).toArrow()
    local = LocalEngine(threads=1).run(ANALYSES[name], inputs)

    assert 2 == local.num_rows
    assert local.to_pylist() == found.to_pylist()


@pytest.mark.parametrize("few", [64, 1])
def test_what_a_frame_reads_at_once(
    few: int, engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQL looks at its files when the DataFrame is made, at many of them in a job; tasks look at
    theirs when it is asked for rows.
    """
    from bkstore.spark import read_tasks

    monkeypatch.setattr(read_tasks, "_MAX_DRIVER_FILES", few)
    world = random_dump(6)
    dump = analyses.open_dump(write_dump(world, tmp_path / "dump"))
    for table in ("ledgers", "entries"):
        Path(dump.paths(table)[0]).write_bytes(b"no Parquet")
    frame = engine.frame(ANALYSES["sequences"], Inputs(dump))
    with pytest.raises(CorruptionError):
        engine.frame(ANALYSES["bytes_by_ledger"], Inputs(dump))
    with pytest.raises(Exception, match=r"bkstore\.errors\.CorruptionError"):
        frame.count()


def test_an_error_of_a_plan_is_one_line(engine: Any, tmp_path: Path) -> None:
    """What Spark says while a DataFrame is made comes out as our error, too."""
    dump = analyses.open_dump(write_dump(random_dump(6), tmp_path / "dump"))
    dump.check("ledgers", "log_ledgers")
    Path(dump.paths("ledgers")[0]).unlink()
    with pytest.raises(BkstoreError, match="the analysis bytes_by_ledger failed") as caught:
        engine.frame(ANALYSES["bytes_by_ledger"], Inputs(dump))

    assert 1 == len(str(caught.value).splitlines())


@pytest.mark.parametrize("name", ["sequences", "ledger_health"])
def test_tasks_send_their_top_rows_only(
    name: str,
    engine: Any,
    asked: tuple[DumpWorld, DumpWorld, Inputs],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is read where it lies comes as batches of tasks; asked for one row, each has one."""
    from bkstore.spark import analysis
    from bkstore.spark.read_tasks import collect_results

    rows: list[int] = []

    def counted(*words: Any) -> Iterator[Any]:
        for batch in collect_results(*words):
            rows.append(batch.num_rows)
            yield batch

    monkeypatch.setattr(analysis, "collect_results", counted)
    given = asked[2]
    every = engine.run(ANALYSES[name], given).num_rows

    assert every == sum(rows) > len(rows)

    rows.clear()
    engine.run(ANALYSES[name], Inputs(given.dump, given.metadata, options=Options(top=1)))

    assert {1} == set(rows)


def test_the_session_keeps_its_own_views(
    spark: Any, engine: Any, asked: tuple[DumpWorld, DumpWorld, Inputs]
) -> None:
    """Views of the session that an analysis runs in stay as they are."""
    spark.sql("select 5 as five").createOrReplaceTempView("entries")
    engine.run(ANALYSES["fragmentation"], asked[2])

    assert [(5,)] == [tuple(row) for row in spark.sql("select * from entries").collect()]
    spark.catalog.dropTempView("entries")


def test_tables_of_the_catalog_are_not_the_dump(
    spark: Any, asked: tuple[DumpWorld, DumpWorld, Inputs]
) -> None:
    """A table of the user's that is called as one of the dump's is not read, and stays."""
    own = _engine(spark)
    few = own._session_for(asked[2], "from ledgers").table("ledgers").limit(1)
    few.write.saveAsTable("ledgers")
    try:
        for inputs in (asked[2], Inputs(asked[2].dump)):
            found = own.run(ANALYSES["bytes_by_ledger"], inputs)

            assert LocalEngine(threads=1).run(ANALYSES["bytes_by_ledger"], inputs).equals(found)
        assert 1 == spark.table("ledgers").count()
    finally:
        spark.sql("drop table ledgers")


def test_what_is_not_given_is_asked_for(
    engine: Any, asked: tuple[DumpWorld, DumpWorld, Inputs]
) -> None:
    """Without metadata what needs them is refused before Spark is asked."""
    with pytest.raises(InvalidArgument, match="violations needs ledger metadata"):
        engine.run(ANALYSES["violations"], Inputs(asked[2].dump))


def test_an_error_is_one_line(spark: Any, tmp_path: Path) -> None:
    """What a kernel finds in a task comes out as our error, in one line."""
    from bkstore import LedgerId

    world = DumpWorld(held={"b": {LedgerId.of(1): {-5: (0, 1, 2)}}})
    dump = analyses.open_dump(write_dump(world, tmp_path / "dump"))
    with pytest.raises(BkstoreError, match="entry id -5 is outside") as caught:
        analyses.run("sequences", dump, engine=_engine(spark))

    assert 1 == len(str(caught.value).splitlines())


def test_a_dump_of_the_golden_trees(spark: Any, unpack: Any, golden: Path, tmp_path: Path) -> None:
    """Golden bookies of every layout give Spark the bytes that their indexes give."""
    from bkstore.offline.dump import DumpSource, dump
    from tests.golden.data import golden_names

    roots = [(unpack(n)[0] / unpack(n)[1]["tree"]) for n in golden_names("tree")[:3]]
    expected = {}
    for number, root in enumerate(roots):
        with BookieDir(root) as bookie:
            for ledger in bookie.index.ledgers():
                here = bookie.index.availability(ledger)
                if here:
                    expected[f"b{number}", ledger.qualified_name] = here.to_bytes()
    dump([DumpSource(root, f"b{at}") for at, root in enumerate(roots)], tmp_path / "out")
    rows = analyses.run("sequences", tmp_path / "out", engine=_engine(spark)).to_pylist()

    assert expected == {(r["bookie"], r["qualified_name"]): r["availability"] for r in rows}
