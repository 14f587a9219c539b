"""Loads in one process: the index is what the dump says, whatever order its rows come in."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bkstore import InvalidArgument, LedgerId, open_index
from bkstore.cli.main import main
from bkstore.errors import CorruptionError, DirectoryInUse, UnsupportedLayout
from bkstore.formats.entry import encode_explicit_lac
from bkstore.index.api import IndexBatch, LedgerState
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.index.partitioned import PartitionedIndex
from bkstore.index.rocks import RocksIndex
from bkstore.offline.dump import dump
from bkstore.offline.index_building.row_comparison import compare_rows
from bkstore.offline.index_building.row_writers import TableWriter
from bkstore.offline.load import LoadProgress, LocalLoadEngine, load
from bkstore.offline.staging_directory import StagingDirectory
from bkstore.spark.load_tasks import _last_of_each_key
from tests.worlds.dumps import CONTENT, KEY, rows
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
)

pytest.importorskip("pyarrow")

LAYOUTS = ("rocksdb", "idx")


def expected_rows(world: World) -> list[tuple[LedgerId, int, int]]:
    """Return the rows of a world in the order of keys."""
    return sorted((name, *row) for name, (held, _) in world.items() for row in held.items())


# -- round trips


@pytest.mark.parametrize("to", LAYOUTS)
@pytest.mark.parametrize("source", ["idx", "rocks"])
@pytest.mark.parametrize("seed", range(3))
def test_random_worlds(tmp_path: Path, source: str, to: Any, seed: int) -> None:
    """Bookie to dump to bookie: entries, locations, states, in unsigned order, 128 bits too."""
    world = make_world(
        seed, limbo=source == to == "rocksdb" or (source, to) == ("rocks", "rocksdb")
    )
    make = HierarchicalIndex if source == "idx" else RocksIndex
    fill(make(tmp_path / "b", writable=True), world)
    dump([tmp_path / "b"], tmp_path / "dump", piece_rows=500)
    result = load(tmp_path / "dump", tmp_path / "out", to)

    assert sum(len(entries) for entries, _ in world.values()) == result.rows
    assert (len(world), [], True) == (result.ledgers, result.findings, result.compared)
    with open_index(tmp_path / "out") as index:
        assert to == index.layout
        assert world == read_world(index)
        assert sorted(world) == index.ledgers()
        assert expected_rows(world) == scanned(index)
        assert [] == index.findings()


@pytest.mark.parametrize("to", LAYOUTS)
@pytest.mark.parametrize("run_rows", [97, 1 << 20])
def test_any_order_and_duplicates(tmp_path: Path, to: Any, run_rows: int) -> None:
    """Rows in any order, some several times: the highest location wins, whatever the runs."""
    world = make_world(11, 20)
    given, expected = jumbled(world, 12)
    plain_dump(tmp_path / "dump", world, given)
    engine = LocalLoadEngine(run_rows)
    result = load(tmp_path / "dump", tmp_path / "out", to, engine=engine)
    kept = sum(len(entries) for entries, _ in expected.values())

    assert (kept, len(given) - kept, True) == (result.rows, result.duplicates, result.compared)
    with open_index(tmp_path / "out") as index:
        assert expected == read_world(index)
        assert expected_rows(expected) == scanned(index)


def test_equal_rows_next_to_each_other(tmp_path: Path) -> None:
    """A row that comes twice, in files that are else in order, is one row."""
    name = LedgerId(2**63 + 1, 2**64 - 1)
    world: World = {name: ({1: 5, 2: 6}, LedgerState(b"k"))}
    given = [entry_row(name, *row) for row in ((1, 5), (1, 5), (2, 6))]
    plain_dump(tmp_path / "dump", world, given, 1)
    result = load(tmp_path / "dump", tmp_path / "out", "rocksdb")

    assert (2, 1) == (result.rows, result.duplicates)


@pytest.mark.parametrize("to", LAYOUTS)
@pytest.mark.parametrize("step", [1, -1])
def test_scopes_next_to_each_other(tmp_path: Path, to: Any, step: int) -> None:
    """The same ledger and entry in neighbouring scopes are rows of their own, in any order."""
    names = [LedgerId(0, 7), LedgerId(1, 7), LedgerId(2, 7), LedgerId(2**64 - 1, 7)]
    world: World = {
        name: ({4: 900 + number}, LedgerState(b"k")) for number, name in enumerate(names)
    }
    given = [entry_row(name, 4, 900 + number) for number, name in enumerate(names)][::step]
    plain_dump(tmp_path / "dump", world, given, 1)
    result = load(tmp_path / "dump", tmp_path / "out", to)

    assert (4, 0) == (result.rows, result.duplicates)
    with open_index(tmp_path / "out") as index:
        assert world == read_world(index)


def test_order_is_unsigned_across_files(tmp_path: Path) -> None:
    """Rows in unsigned order are in order: nothing is sorted for them."""
    names = [LedgerId.of(5), LedgerId(1, 2**63 - 1), LedgerId(1, 2**63), LedgerId(2**63, 0)]
    world: World = {name: ({0: 9}, LedgerState()) for name in names}
    given = [entry_row(name, 0, 9) for name in names]
    plain_dump(tmp_path / "dump", world, given, 1)
    seen: list[str] = []

    def look(at: LoadProgress) -> None:
        seen.extend(path.name for path in (tmp_path / "out.partial").rglob("local"))
        seen.extend(path.name for path in (tmp_path / "out.partial").rglob("sorted"))

    load(tmp_path / "dump", tmp_path / "out", "rocksdb", look)

    assert {"local"} == set(seen)


@pytest.mark.parametrize("bookie", ["idx", "rocks", "rocks3"])
def test_every_layout(three: Path, tmp_path: Path, bookie: str) -> None:
    """A bookie of any layout becomes one of RocksDB, directories and all."""
    result = load(three, tmp_path / "out", "rocksdb", bookie=bookie)
    folders = {path.name for path in (tmp_path / "out").iterdir()}

    assert (3 if bookie == "rocks3" else 1) == result.directories
    assert (
        {"current"} if result.directories == 1 else {f"ledgers{n}" for n in range(3)}
    ) == folders
    with open_index(tmp_path / "out") as index:
        assert isinstance(index, PartitionedIndex) == (bookie == "rocks3")
        assert sorted(CONTENT) == index.ledgers()
        for name, entries in CONTENT.items():
            places = entries * 100 + (7 << 32) + 1028
            assert (entries.tolist(), places.tolist()) == tuple(
                c.tolist() for c in index.items(name)
            )
            assert LedgerState(KEY, name.ledger == 9) == index.state(name)


def test_dump_of_the_result_is_the_dump(three: Path, tmp_path: Path) -> None:
    """Dumping what was loaded gives the same rows of every table."""
    for bookie in ("rocks", "rocks3"):
        load(three, tmp_path / bookie, "rocksdb", bookie=bookie)
        dump([tmp_path / bookie], tmp_path / f"dump-{bookie}")
        for table in ("entries", "groups", "ledgers"):
            mine = [row for row in rows(three, table) if row[0] == bookie]

            assert sorted(map(repr, mine)) == sorted(
                map(repr, rows(tmp_path / f"dump-{bookie}", table))
            )


def test_many_table_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that fill several table files are all there; a file has as many as it may."""
    monkeypatch.setattr("bkstore.offline.index_building.row_writers.MAX_TABLE_ROWS", 1000)
    writer = TableWriter(tmp_path, 1000)
    entries = np.arange(2500)
    writer.add(0, IndexBatch.of_ledger(LedgerId.of(3), entries, entries + 1))
    writer.add(0, IndexBatch.of_ledger(LedgerId(1, 3), entries[:10], entries[:10] + 1))
    made = writer.finish()

    assert [(False, 1000), (False, 1000), (False, 500), (True, 10)] == [
        (piece.has_scope, piece.rows) for piece in made
    ]


def test_empty_bookie(tmp_path: Path) -> None:
    """A bookie without ledgers gives an index without ledgers."""
    HierarchicalIndex(tmp_path / "b", writable=True).close()
    dump([tmp_path / "b"], tmp_path / "dump")
    for to in LAYOUTS:
        load(tmp_path / "dump", tmp_path / to, to)  # type: ignore[arg-type]
        with open_index(tmp_path / to, layout=to) as index:  # type: ignore[arg-type]
            assert [] == index.ledgers()


def test_rows_without_a_ledger(tmp_path: Path) -> None:
    """Entries of a ledger that `ledgers` does not list stay so in RocksDB."""
    name = LedgerId.of(4)
    plain_dump(tmp_path / "more", {LedgerId.of(5): ({}, LedgerState())}, [entry_row(name, 0, 9)], 1)
    result = load(tmp_path / "more", tmp_path / "out", "rocksdb")

    assert (1, 1) == (result.rows, result.ledgers)
    with open_index(tmp_path / "out") as index:
        assert [LedgerId.of(5)] == index.ledgers()
        assert 9 == index.get(name, 0)


# -- states


def test_states_of_several_dumps(tmp_path: Path) -> None:
    """Rows of one ledger are joined: fenced if any is, the key that is known, the higher LAC."""
    name = LedgerId(3, 2**64 - 1)
    low, high = (encode_explicit_lac(name, lac, "DUMMY") for lac in (4, 900))
    one = LedgerState(b"", True, False, high)
    other = LedgerState(b"key", False, True, low)
    from bkstore.tables import LEDGERS
    from tests.worlds.loads import ledger_row, write_table

    plain_dump(tmp_path / "dump", {name: ({0: 9}, one)}, [entry_row(name, 0, 9)], 1)
    write_table(tmp_path / "dump/ledgers/x.parquet", LEDGERS, [ledger_row(name, other)])
    load(tmp_path / "dump", tmp_path / "out", "rocksdb")
    with open_index(tmp_path / "out") as index:
        assert LedgerState(b"key", True, True, high) == index.state(name)
    write_table(tmp_path / "dump/ledgers/y.parquet", LEDGERS, [ledger_row(name, LedgerState(b"K"))])
    with pytest.raises(InvalidArgument, match="two master keys"):
        load(tmp_path / "dump", tmp_path / "out2", "rocksdb")


def test_limbo_has_no_place_in_index_files(tmp_path: Path) -> None:
    """A ledger in limbo is refused by name; nothing is made."""
    world: World = {LedgerId.of(n): ({0: 9}, LedgerState(limbo=n > 4)) for n in (3, 5, 6)}
    fill(RocksIndex(tmp_path / "b", writable=True), world)
    dump([tmp_path / "b"], tmp_path / "dump")
    with pytest.raises(UnsupportedLayout, match="ledger 5 and 1 more are in limbo"):
        load(tmp_path / "dump", tmp_path / "out", "idx")

    assert {"b", "dump"} == {path.name for path in tmp_path.iterdir()}


def test_what_the_dump_lacks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A dump with damage is loaded as it is, and said so: exit code 1."""
    fill(HierarchicalIndex(tmp_path / "b", writable=True), make_world(1, 4))
    with HierarchicalIndex(tmp_path / "b", writable=True) as index:
        index.put_many(9, [0], [1028])
        path = index.path(9)
    assert path is not None
    Path(path).write_bytes(b"torn")
    dump([tmp_path / "b"], tmp_path / "dump")
    code = main(["load", str(tmp_path / "dump"), str(tmp_path / "out"), "--to", "rocksdb"])
    told = capsys.readouterr().err

    assert 1 == code
    assert "the state of ledger 9 is not in the dump" in told
    assert "what bookie b could not read is not loaded" in told


# -- choose a bookie


def test_which_bookie(three: Path, tmp_path: Path) -> None:
    """Of several bookies one must be named, by a name that is there."""
    with pytest.raises(InvalidArgument, match=r"choose a bookie.*idx, rocks, rocks3"):
        load(three, tmp_path / "out")
    with pytest.raises(InvalidArgument, match="has no bookie 'x'; it has idx, rocks, rocks3"):
        load(three, tmp_path / "out", bookie="x")

    assert [] == list(tmp_path.iterdir())


def test_one_bookie_of_a_folder(tmp_path: Path) -> None:
    """Without a manifest, rows are of the bookie that their column says."""
    world = make_world(4, 5)
    given, expected = jumbled(world, 5)
    other = [entry_row(LedgerId.of(8), n, 77, "other") for n in range(50)]
    plain_dump(tmp_path / "dump", world, given[:200] + other + given[200:], 2)
    load(tmp_path / "dump", tmp_path / "out", "rocksdb", bookie="b")
    with pytest.raises(InvalidArgument, match=r"choose a bookie.* b, other"):
        load(tmp_path / "dump", tmp_path / "out2", "rocksdb")
    with open_index(tmp_path / "out") as index:
        assert expected == read_world(index)


def test_bookie_that_was_not_read(tmp_path: Path) -> None:
    """A bookie that the dump could not read is refused with the reason."""
    fill(HierarchicalIndex(tmp_path / "b", writable=True), make_world(1, 4))
    dump([tmp_path / "b", tmp_path / "nowhere"], tmp_path / "dump")
    with pytest.raises(InvalidArgument, match=r"bookie nowhere was not read: .*no such directory"):
        load(tmp_path / "dump", tmp_path / "out", bookie="nowhere")


def test_directories_of_a_folder(three: Path, tmp_path: Path) -> None:
    """Without a manifest, RocksDB rows of several directories need the number of these."""
    (tmp_path / "dump").mkdir()
    for table in ("entries", "ledgers"):
        (tmp_path / "dump" / table).symlink_to(three / table)
    with pytest.raises(
        CorruptionError, match=r"not a row of an index .with 1 directory.*dir_index 1"
    ):
        load(tmp_path / "dump", tmp_path / "out", bookie="rocks3")
    with pytest.raises(CorruptionError, match="with 2 directories"):
        load(tmp_path / "dump", tmp_path / "out", bookie="rocks3", directories=2)
    result = load(tmp_path / "dump", tmp_path / "out", bookie="rocks3", directories=3)
    with pytest.raises(InvalidArgument, match="the manifest states the number"):
        load(three, tmp_path / "out2", bookie="rocks3", directories=3)

    assert (9050, 3) == (result.rows, result.directories)


# -- the target


def test_target_must_be_new(three: Path, tmp_path: Path) -> None:
    """A folder with something in it, and one in the dump, are refused; an empty one is taken."""
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    (tmp_path / "empty").mkdir()
    for place in (tmp_path / "full", three / "out"):
        with pytest.raises(InvalidArgument):
            load(three, place, bookie="idx")
    with pytest.raises(InvalidArgument, match="to must be 'idx' or 'rocksdb', not 'x'"):
        load(three, tmp_path / "out", "x", bookie="idx")  # type: ignore[arg-type]
    load(three, tmp_path / "empty", bookie="idx")

    assert {"full", "empty"} == {path.name for path in tmp_path.iterdir()}
    assert (tmp_path / "empty" / "current" / "locations").is_dir()


def test_two_loads_to_one_place(three: Path, tmp_path: Path) -> None:
    """While a load grows, another one to the same place is refused."""
    with (
        StagingDirectory(tmp_path / "out", "load"),
        pytest.raises(DirectoryInUse, match="another load"),
    ):
        load(three, tmp_path / "out", bookie="idx")
    load(three, tmp_path / "out", bookie="idx")

    assert ["out"] == [path.name for path in tmp_path.iterdir()]


# -- comparing


@pytest.mark.parametrize("change", ["location", "entry", "missing", "more", "order"])
def test_compare_rows_sees_every_change(tmp_path: Path, change: str) -> None:
    """A row that differs, is missing or is one too many is an error that names it."""
    rng = np.random.default_rng(2)
    entries = np.sort(rng.choice(10_000, 500, replace=False))
    places = rng.integers(1, 2**40, 500)
    name = LedgerId(2**63, 2**64 - 5)
    ids, found = entries.copy(), places.copy()
    if change == "location":
        found[333] += 1
    elif change == "entry":
        ids[-1] += 1
    elif change == "order":
        ids[[3, 4]] = ids[[4, 3]]
    keep = slice(None, -1) if change == "missing" else slice(None)
    more = slice(None, -1) if change == "more" else slice(None)
    one = [
        IndexBatch.of_ledger(name, entries[more][at : at + 60], places[more][at : at + 60])
        for at in range(0, 500, 60)
    ]
    other = [
        IndexBatch.of_ledger(name, ids[keep][at : at + 77], found[keep][at : at + 77])
        for at in range(0, 500, 77)
    ]
    assert 500 == compare_rows(
        [IndexBatch.of_ledger(name, entries, places)],
        [
            IndexBatch.of_ledger(name, entries[:7], places[:7]),
            IndexBatch.of_ledger(name, entries[7:], places[7:]),
        ],
        tmp_path,
    )
    with pytest.raises(CorruptionError, match=name.qualified_name):
        compare_rows(one, other, tmp_path)


def test_a_result_that_differs_is_not_kept(
    three: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the index does not say what the dump says, the load ends in an error, without it."""
    real = TableWriter.add

    def wrong(self: TableWriter, directory: int, rows: IndexBatch) -> None:
        real(self, directory, rows._replace(location=rows.location + (rows.entry_id == 4)))

    monkeypatch.setattr(TableWriter, "add", wrong)
    with pytest.raises(CorruptionError, match=r"entry 4, location .* is here"):
        load(three, tmp_path / "out", "rocksdb", bookie="idx")
    assert [] == list(tmp_path.iterdir())
    load(three, tmp_path / "out", "rocksdb", bookie="idx", compare=False)


def test_manifest_that_lies(three: Path, tmp_path: Path) -> None:
    """Files that are not as the manifest says are an error, before anything is made."""
    shutil.copytree(three, tmp_path / "dump")
    lies = [
        (lambda m: m["tables"]["entries"]["files"][0].update(rows=1), "manifest says 1"),
        (lambda m: m["tables"]["ledgers"]["files"][0].update(path="x"), "x: cannot be read"),
        (lambda m: m["bookies"][0].pop("directories"), "lacks 'directories'"),
    ]
    for change, match in lies:
        edit_manifest(tmp_path / "dump", change)
        with pytest.raises(CorruptionError, match=match):
            load(tmp_path / "dump", tmp_path / "out", "rocksdb", bookie="idx")
        shutil.copy(three / "manifest.json", tmp_path / "dump")


# -- the command


def test_command(three: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line says what was loaded; exit code 0."""
    out = tmp_path / "out"
    code = main(["load", str(three), str(out), "--to", "idx", "--bookie", "rocks"])
    told = capsys.readouterr()

    assert (0, "") == (code, told.out)
    assert (
        f"{out}: 9050 entries of 8 ledgers of bookie rocks (idx); each row and state compared\n"
        == told.err
    )


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["nowhere", "out"], "nowhere: no such directory"),
        (["dump", "out"], "choose a bookie"),
        (["dump", "out", "--bookie=idx", "--directories=0"], "--directories 0: must be 1 or more"),
        (["dump", "dump/x", "--bookie=idx"], "which is only read"),
        (["dump", "out", "--bookie=rocks3", "--to=idx"], "entry logs of the same ids"),
    ],
)
def test_command_refuses_in_one_line(
    three: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    line: str,
) -> None:
    """Wrong usage and unreadable input are one line on stderr, exit code 2, nothing made."""
    (tmp_path / "dump").symlink_to(three)
    monkeypatch.chdir(tmp_path)
    code = main(["load", "--to=rocksdb", *words])
    told = capsys.readouterr().err

    assert 2 == code
    assert line in told
    assert 1 == told.count("\n")
    assert ["dump"] == [path.name for path in tmp_path.iterdir()]


@pytest.mark.parametrize("size", [1, 2, 8])
def test_executors_keep_scopes_apart(size: int) -> None:
    """Of rows of one key the last stays, wherever batches end; scopes are part of the key."""
    keys = [(0, 7, 4), (0, 7, 5), (1, 7, 5), (1, 8, 5), (2, 8, 5), (2, 8, 6)]
    given = [(0, *key, 100 * n + copy) for n, key in enumerate(keys) for copy in range(1 + n % 3)]
    columns = np.array(given, np.int64)
    parts = (IndexBatch(*columns[at : at + size].T) for at in range(0, len(given), size))
    found = [row for rows in _last_of_each_key(parts) for row in zip(*(c.tolist() for c in rows))]

    assert [(0, *key, 100 * n + n % 3) for n, key in enumerate(keys)] == found
