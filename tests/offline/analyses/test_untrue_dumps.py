"""Dumps that are not as their manifest says: refused by name, never answered."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkstore.errors import BkstoreError, CorruptionError, UnsupportedLayout
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerMetadata, Segment
from bkstore.offline import analyses
from bkstore.offline.analyses import ANALYSES, LocalEngine, metadata_tasks
from bkstore.offline.analyses.catalog import KernelJob
from bkstore.offline.reading.ledger_ranges import LedgerRange
from tests.worlds.loads import edit_manifest
from tests.worlds.random_dumps import DumpWorld, random_dump, write_dump

pytest.importorskip("duckdb")
pytest.importorskip("pyarrow")

ENGINE = LocalEngine(threads=1)
KERNELS = ("violations", "comparison", "sequences", "fragmentation")
"""They read sorted files as they lie, and have others sorted."""


def answered(name: str, dump: Path, world: DumpWorld | None = None, rows: int = 1 << 62) -> int:
    """Return how many rows tasks of about `rows` rows give."""
    inputs = analyses.open_inputs(dump, None if world is None else world.store())
    made = ANALYSES[name].sql_or_job(inputs)
    assert isinstance(made, KernelJob)
    planned = made.sorted_reader.plan(inputs.dump, None, inputs.metadata, rows)
    assert planned is not None
    assert not planned.unsorted_files
    return sum(
        each.num_rows
        for task in planned.tasks
        for each in made.sorted_reader.run_task(task, threads=False)
    )


def rewritten(dump: Path, table: str, change: Callable[[Any], Any], **options: Any) -> None:
    """Have `change` make other rows of the first file of a table."""
    import pyarrow.parquet as pq

    path = min((dump / table).iterdir())
    pq.write_table(change(pq.read_table(path)), path, **options)


def declared(dump: Path, table: str, at: int, *ledgers: LedgerId) -> None:
    """Have the manifest say another first and last ledger of a file."""

    def change(manifest: Any) -> None:
        manifest["tables"][table]["files"][at].update(LedgerRange(*ledgers).to_json())

    edit_manifest(dump, change)


def numbered(ledgers: int, scope: int = 0) -> DumpWorld:
    """Return a world of ledgers 1.., whole on two bookies."""
    world = DumpWorld(held={"b1": {}, "b2": {}})
    for number in range(1, ledgers + 1):
        ledger, segments = LedgerId(scope, number), (Segment(0, ("b1", "b2")),)
        closed = {"state": "CLOSED", "last_entry_id": 5, "length": 9}
        world.metadata.append(LedgerMetadata(ledger, 2, 2, 2, segments, **closed))
        for has in world.held.values():
            has[ledger] = dict.fromkeys(range(6), (0, 1, 99))
    return world


# -- what plans go by: order, and ranges of ledgers


@pytest.mark.parametrize("tasks", [1, 2, 4])
@pytest.mark.parametrize("name", ["sequences", "fragmentation"])
def test_files_in_signed_order(name: str, tasks: int, tmp_path: Path) -> None:
    """A file that pandas or Spark sorted by signed ids is refused, in however many tasks."""
    ids = [*range(1, 9), *range(2**63 + 1, 2**63 + 9)]
    has = {LedgerId(7, n): {e: (0, 1, 60 * e) for e in range(25)} for n in ids}
    dump = write_dump(DumpWorld(held={"b": has}), tmp_path / "dump", cut=99)

    assert 16 == answered(name, dump, rows=400 // tasks)
    order = [("ledger_id", "ascending"), ("entry_id", "ascending")]
    rewritten(dump, "entries", lambda table: table.sort_by(order), row_group_size=100)
    with pytest.raises(CorruptionError, match="says that it is sorted"):
        answered(name, dump, rows=400 // tasks)


@pytest.mark.parametrize("rows", [1 << 62, 40, 10])
@pytest.mark.parametrize("said", [(1, 20), (70, 90)])
def test_groups_of_other_ledgers_than_said(
    said: tuple[int, int], rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replicas are never missing because the manifest says that a file has other ledgers."""
    for name, value in (("_MIN_GROUPS_PER_FILE", 0), ("_LEDGER_COST", 1)):
        monkeypatch.setattr(metadata_tasks, name, value)
    world = numbered(40, scope=3)
    dump = write_dump(world, tmp_path / "dump", cut=99)

    assert 0 == answered("violations", dump, world, rows)
    declared(dump, "groups", 0, *(LedgerId(3, n) for n in said))
    for statistics in (True, False):
        rewritten(dump, "groups", lambda table: table, write_statistics=statistics)
        with pytest.raises(CorruptionError, match=r"b1-00000.*: has ledger 0{15}3"):
            answered("violations", dump, world, rows)


def test_files_that_share_a_ledger_and_say_otherwise(tmp_path: Path) -> None:
    """A ledger of two files that claim disjoint ranges is not two rows."""
    dump = write_dump(numbered(6), tmp_path / "dump", cut=3)
    assert 12 == answered("sequences", dump)

    def moved(table: Any) -> Any:
        ledgers = [[n + (n == 3) for n in table.column("ledger_id").to_pylist()]]
        return table.set_column(3, table.schema.field(3), ledgers)

    rewritten(dump, "entries", moved)
    with pytest.raises(CorruptionError, match=r"has ledger 4, .* that its ledgers are 1 to 3"):
        answered("sequences", dump)


# -- files


def test_a_file_that_is_no_parquet(tmp_path: Path) -> None:
    """Damage to a file is named before anything runs."""
    dump = write_dump(random_dump(1), tmp_path / "dump")
    path = sorted((dump / "groups").iterdir())[0]
    path.write_bytes(b"PAR1" + b"x" * 100 + b"PAR1")
    with pytest.raises(CorruptionError, match=r"groups.*cannot be read as Parquet"):
        analyses.run("holes", dump, engine=ENGINE)


def test_a_file_that_is_gone(tmp_path: Path) -> None:
    """A file that the manifest lists and that is not there is an error, not an empty table."""
    dump = write_dump(random_dump(1), tmp_path / "dump")
    path = sorted((dump / "entries").iterdir())[0]
    path.unlink()
    with pytest.raises(BkstoreError, match=path.name):
        analyses.run("sequences", dump, engine=ENGINE)


READ = [
    ("violations", "groups", "sequence_period"),
    ("violations", "ledgers", "entries"),
    ("comparison", "groups", "sequence_period"),
    ("comparison", "ledgers", "entries"),
    ("orphans", "ledgers", "entries"),
    ("orphans", "log_ledgers", "bytes"),
    ("holes", "groups", "sequence_period"),
    ("holes", "ledgers", "entries"),
    ("bytes_by_bookie", "findings", "severity"),
    ("bytes_by_ledger", "ledgers", "entries"),
    ("log_occupancy", "entry_logs", "log_id"),
    ("sequences", "entries", "entry_id"),
    ("fragmentation", "entries", "position"),
]
"""Analyses, a table that each reads, and a column of it."""

INDEX = ("entries", "groups", "ledgers")
WAYS = [(*each, way) for each in READ for way in (True, False) if way or each[0] in KERNELS]


@pytest.mark.parametrize(("name", "table", "column", "ordered"), WAYS)
def test_other_columns_and_other_rows(
    name: str, table: str, column: str, ordered: bool, tmp_path: Path
) -> None:
    """A table of other columns, of another number of rows, or with another bookie's rows is
    refused by the file's name, whichever analysis reads it, and by what way.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    world = numbered(4)
    world.logs["b1", 0, 1] = (100, True, {LedgerId.of(1): 7, LedgerId.of(2): 8})
    dump = write_dump(world, tmp_path / "dump", ordered=ordered)
    path = min((dump / table).iterdir())
    rows = pq.read_table(path)

    def refused(kind: type[BkstoreError], reason: str, changed: Any, **options: Any) -> None:
        pq.write_table(changed, path, **options)
        inputs = analyses.open_inputs(dump, world.store(), dump)
        with pytest.raises(kind, match=rf"{table}/b1-00000.parquet: .*{reason}"):
            ENGINE.run(ANALYSES[name], inputs)

    refused(CorruptionError, "the manifest says", rows.slice(0, rows.num_rows - 1))
    refused(CorruptionError, "the manifest says", pa.concat_tables([rows, rows.slice(0, 1)]))
    refused(UnsupportedLayout, f"(no column|lacks) {column}$", rows.drop_columns([column]))
    names = pa.array(["b1"] * (rows.num_rows - 1) + ["zz"])
    for said in (names, pa.array([*names.to_pylist()[:-1], None], pa.string())):
        other = rows.set_column(0, pa.field("bookie", pa.string()), said)
        for statistics in (True, False):
            reason = f"rows of bookie ({said[-1]}|null), the manifest says that all are of b1"
            refused(CorruptionError, reason, other, write_statistics=statistics)


@pytest.mark.parametrize(("name", "table"), [each[:2] for each in READ if each[1] in INDEX])
def test_files_that_are_said_to_be_empty(name: str, table: str, tmp_path: Path) -> None:
    """Rows are not lost because the manifest says that a file has none."""
    world = numbered(4)
    dump = write_dump(world, tmp_path / "dump")

    def change(manifest: Any) -> None:
        manifest["tables"][table]["files"][0]["rows"] = 0

    edit_manifest(dump, change)
    inputs = analyses.open_inputs(dump, world.store(), dump)
    with pytest.raises(CorruptionError, match=rf"{table}/b1.*, the manifest says 0$"):
        ENGINE.run(ANALYSES[name], inputs)


# -- rows that no index has


def spoiled(dump: Path, table: str, column: str, value: int | None) -> None:
    """Have another value in a row of a table's first file: in the last one, or the first if it
    is negative, so that the order holds.
    """
    import pyarrow as pa

    def change(rows: Any) -> Any:
        at = rows.schema.get_field_index(column)
        values = rows.column(at).to_pylist()
        values[0 if value is not None and value < 0 else -1] = value
        return rows.set_column(at, column, pa.array(values, rows.schema.field(at).type))

    rewritten(dump, table, change)


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("name", ["sequences", "fragmentation"])
@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("entry_id", -3),
        ("entry_id", 2**63 - 1),
        ("entry_id", None),
        ("ledger_id", None),
        ("position", None),
    ],
)
def test_entries_that_no_index_has(
    column: str, value: int | None, name: str, ordered: bool, tmp_path: Path
) -> None:
    """A null, or an id that no entry has, is damage: no row goes to another ledger."""
    dump = write_dump(numbered(4, scope=2**60 + 1), tmp_path / "dump", ordered=ordered)
    spoiled(dump, "entries", column, value)
    said = f"null in column {column}" if value is None else f"entry id {value} is outside 0..92"
    if (name, column) == ("sequences", "position"):  # which it does not read
        assert 8 == analyses.run(name, dump, engine=ENGINE).num_rows
        return
    with pytest.raises(CorruptionError, match=said) as raised:
        analyses.run(name, dump, engine=ENGINE)
    if ordered or name == "sequences":  # what DuckDB has sorted has no file
        assert raised.value.file == str(min((dump / "entries").iterdir()))


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("name", ["violations", "comparison"])
@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("first_sequence_start", -1),
        ("last_sequence_start", -1),
        ("last_sequence_start", 2**63 - 1),
        ("last_sequence_start", 1),
        ("sequence_size", 0),
        ("sequence_period", 3),
        ("sequence_period", 2**33),
        ("sequence_size", None),
        ("sequence_period", None),
    ],
)
def test_groups_that_are_none(
    column: str, value: int | None, name: str, ordered: bool, tmp_path: Path
) -> None:
    """A sequence group that has a null, or contradicts itself, is damage."""
    world = numbered(4)
    dump = write_dump(world, tmp_path / "dump", ordered=ordered)
    if column == "sequence_period" and value is not None:
        spoiled(dump, "groups", "last_sequence_start", 2**33)
    spoiled(dump, "groups", column, value)
    said = (
        f"null in column {column}" if value is None else f"not a sequence group .*{column} {value}"
    )
    inputs = analyses.open_inputs(dump, world.store(), dump)
    with pytest.raises(CorruptionError, match=said) as raised:
        ENGINE.run(ANALYSES[name], inputs)
    if ordered:
        assert raised.value.file == str(min((dump / "groups").iterdir()))


@pytest.mark.parametrize("name", ["sequences", "fragmentation", "violations", "comparison"])
def test_files_whose_columns_may_have_nulls(name: str, tmp_path: Path) -> None:
    """Files of other writers, whose columns may have nulls and have none, go with ours."""
    import pyarrow as pa

    world = random_dump(3)
    dump = write_dump(world, tmp_path / "dump")
    inputs = analyses.open_inputs(dump, world.store(), dump)
    expected = ENGINE.run(ANALYSES[name], inputs)
    for table in ("entries", "groups"):
        rewritten(
            dump, table, lambda t: t.cast(pa.schema([f.with_nullable(True) for f in t.schema]))
        )

    assert expected.num_rows
    assert expected.equals(ENGINE.run(ANALYSES[name], inputs))
