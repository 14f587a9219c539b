"""A table of a dump is a set of rows, in whatever files they lie, and its folder is a path."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bkstore.offline import analyses
from bkstore.offline.analyses import ANALYSES, LocalEngine
from bkstore.offline.analyses.kernels.fragmentation import Fragmentation
from bkstore.offline.reading.manifest import MANIFEST
from bkstore.tables import ENTRIES, Table
from tests.models.analyses import ALONE, Expected, rows_of
from tests.worlds.random_dumps import later_dump, random_dump, repeat_files, write_dump

pytest.importorskip("duckdb")

ENGINE = LocalEngine(threads=1)


@pytest.mark.parametrize("seed", range(4))
def test_rows_that_come_twice(seed: int, tmp_path: Path) -> None:
    """A table is a set of rows: no analysis counts one again that comes twice."""
    world = random_dump(seed)
    later = later_dump(world, seed)
    dumps = [
        write_dump(each, tmp_path / str(number), repeated=True)
        for number, each in enumerate((world, later))
    ]
    inputs = analyses.open_inputs(dumps[0], world.store(), dumps[1])
    for name in ALONE:
        rows = rows_of(ENGINE.run(ANALYSES[name], inputs))

        assert getattr(Expected(world), name)() == rows, name

    rows = rows_of(ENGINE.run(ANALYSES["comparison"], inputs))

    assert Expected(world).comparison(Expected(later)) == rows


@pytest.mark.parametrize("sorted_copies", [True, False])
def test_files_that_repeat_rows_of_others(sorted_copies: bool, tmp_path: Path) -> None:
    """Nor one that comes again in another file of its bookie, whether both are sorted or not; what
    other bookies have is all there."""
    world = random_dump(1)
    dump = write_dump(world, tmp_path / "dump")
    for bookie in sorted(set(world.held) - world.lost)[:2]:
        repeat_files(dump, bookie, sorted_copies=sorted_copies)
    inputs = analyses.open_inputs(dump, world.store())
    for name in ALONE:
        rows = rows_of(ENGINE.run(ANALYSES[name], inputs))

        assert getattr(Expected(world), name)() == rows, name


def test_an_entry_whose_places_are_in_no_order(tmp_path: Path) -> None:
    """The last of several places is told by log and position, wherever its row stands."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    world = random_dump(1)
    dump = write_dump(world, tmp_path / "dump", ordered=False)
    manifest = json.loads((dump / MANIFEST).read_bytes())
    for file in manifest["tables"]["entries"]["files"]:
        rows = pq.read_table(dump / file["path"])
        columns, ones = rows.to_pydict(), [1] * rows.num_rows
        before = pa.table({**columns, "position": ones}, rows.schema)
        in_log_0 = pa.table({**columns, "log_id": [0] * rows.num_rows}, rows.schema)
        pq.write_table(pa.concat_tables([rows, before, in_log_0]), dump / file["path"])
        file["rows"] *= 3
    (dump / MANIFEST).write_text(json.dumps(manifest))
    inputs = analyses.open_inputs(dump)

    assert Expected(world).fragmentation() == rows_of(ENGINE.run(ANALYSES["fragmentation"], inputs))


def test_one_entry_of_several_ledgers_and_bookies() -> None:
    """Rows that are alike but for the entry, the ledger, its scope or the bookie are of different
    entries."""
    keys = [("b1", 0, 7, 3), ("b1", 0, 7, 4), ("b1", 0, 8, 4), ("b1", 1, 8, 4), ("b2", 1, 8, 4)]
    rows = [(key[0], 0, *key[1:], 1, 1100, None) for key in keys]
    batches = Table.from_rows(ENTRIES, rows).to_arrow().to_batches()
    made = Fragmentation(repeated=True)(iter(batches))

    assert [("b1", 0, 7, 2), ("b1", 0, 8, 1), ("b1", 1, 8, 1), ("b2", 1, 8, 1)] == [
        (row["bookie"], row["scope_id"], row["ledger_id"], row["entries"])
        for batch in made
        for row in batch.to_pylist()
    ]


@pytest.mark.parametrize("name", ["a*b", "a?b", "[ax]", "{a,b}", "it's", "v1.0.d", ".hidden"])
def test_a_dump_in_a_folder_of_any_name(name: str, tmp_path: Path) -> None:
    """A path is no pattern, whatever characters it has: other dumps beside it are not read."""
    world = random_dump(1)
    for other in ("aXb", "a", name):
        write_dump(world, tmp_path / other)
    inputs = analyses.open_inputs(tmp_path / name, world.store())
    table = ENGINE.run(ANALYSES["bytes_by_bookie"], inputs)

    assert Expected(world).bytes_by_bookie() == rows_of(table)


@pytest.mark.parametrize("size", range(1, 6))
def test_an_entry_at_two_places(size: int) -> None:
    """Of several rows of one entry the last place counts, as in a load; batches may part them."""
    places = [(0, 0, 9000), (0, 1, 1100), (1, 1, 1200), (2, 0, 5000), (2, 2, 1100)]
    rows = [("b1", 0, 0, 7, entry, log, position, None) for entry, log, position in places]
    batches = Table.from_rows(ENTRIES, rows).to_arrow().to_batches(size)
    (row,) = [
        row for made in Fragmentation(repeated=True)(iter(batches)) for row in made.to_pylist()
    ]

    assert (3, 2, 1, 2) == (row["entries"], row["logs"], row["log_changes"], row["stretches"])
