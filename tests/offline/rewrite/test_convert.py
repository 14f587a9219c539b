"""Conversions: the same bookie with the other index, and nothing lost in either direction."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from bkstore import Bookie, BookieDir, LedgerId, open_index
from bkstore.errors import CorruptionError, InvalidArgument, NoSuchLedger, UnsupportedLayout
from bkstore.formats.entry import Entry, encode
from bkstore.index.api import IndexBatch, LedgerState
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.index.rocks import RocksIndex
from bkstore.index.rocks.database import Database
from bkstore.index.rocks.keys import ledger_key
from bkstore.index.rocks.options import database_options
from bkstore.offline.rewrite import OpenOptions, convert, rewrite_job
from bkstore.storage.options import StorageOptions
from tests.offline.rewrite.conftest import SHAPES
from tests.worlds.bookies import (
    Made,
    bookie_answers,
    directory_answers,
    make_bookie,
    tree_bytes,
)
from tests.worlds.loads import fill, make_world, read_world

OTHER: dict[str, Any] = {"rocksdb": "idx", "idx": "rocksdb"}


def _layout(root: Path) -> str:
    with BookieDir(root) as bookie:
        return bookie.layout


@pytest.mark.parametrize("shape", SHAPES)
def test_there_and_back(shape: str, made: Callable[[str], Made], tmp_path: Path) -> None:
    """Converted and converted back, rows, states and records are the source's; SRC stays."""
    root = made(shape).root
    before, there = tree_bytes(root), OTHER[_layout(root)]
    one = convert(root, tmp_path / "one", there)
    two = convert(tmp_path / "one", tmp_path / "two", OTHER[there])
    expected = directory_answers(root)

    assert (there, True, True) == (_layout(tmp_path / "one"), one.compared, two.compared)
    assert expected == directory_answers(tmp_path / "one")
    assert expected == directory_answers(tmp_path / "two")
    assert (len(expected), sum(len(found[1]) for found in expected.values())) == (
        one.ledgers,
        one.entries,
    )
    assert before == tree_bytes(root)
    assert ["one", "two"] == sorted(path.name for path in tmp_path.iterdir())


@pytest.mark.parametrize("shape", SHAPES)
def test_same_layout(shape: str, made: Callable[[str], Made], tmp_path: Path) -> None:
    """A conversion to the layout that is there makes a fresh index with the same locations."""
    root = made(shape).root
    convert(root, tmp_path / "one", _layout(root))  # type: ignore[arg-type]
    with open_index(root) as old, open_index(tmp_path / "one") as new:
        assert read_world(old) == read_world(new)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_bookie_starts(shape: str, made: Callable[[str], Made], tmp_path: Path) -> None:
    """A bookie of the other storage starts on it, replays the journals, and answers the same."""
    root = made(shape).root
    convert(root, tmp_path / "one", OTHER[_layout(root)])

    assert bookie_answers(root, tmp_path / "old") == bookie_answers(
        tmp_path / "one", tmp_path / "new"
    )


@pytest.mark.parametrize("shape", SHAPES)
def test_files_that_go_over(shape: str, made: Callable[[str], Made], tmp_path: Path) -> None:
    """Directories, cookies, journals and marks have the same names and bytes in the target.

    So has every entry log, where no id is given twice; then it has another name.
    """
    root = made(shape).root
    result = convert(root, tmp_path / "one", OTHER[_layout(root)])
    old, new = tree_bytes(root), tree_bytes(tmp_path / "one")
    names = [name for name in old if Path(name).parent.name == "current"]
    names = [name for name in names if Path(name).name != "BKSTORE-128"]
    if result.renamed:
        names = [name for name in names if not name.endswith((".log", "lastId"))]

    assert len(names) > 2
    assert {name: old[name] for name in names} == {name: new.get(name) for name in names}


def test_logs_of_several_directories_to_db(made: Callable[[str], Made], tmp_path: Path) -> None:
    """A log has a second name in each directory whose ledgers it holds, and takes no more room."""
    result = convert(made("interleaved-3").root, tmp_path / "one", "rocksdb")
    logs = list((tmp_path / "one").glob("ledgers*/current/*.log"))

    assert result.extra_links > 0
    assert result.logs + result.extra_links == len(logs)
    assert result.logs == len({path.stat().st_ino for path in logs})


def test_a_directory_without_logs_to_db(tmp_path: Path) -> None:
    """A ledger directory that has no log of its own, and no index, gets the logs of its ledgers.

    As with separate index directories where all logs began in the other ledger directory.
    """
    folders = {
        kind: [tmp_path / "b" / f"{kind}{number}" for number in range(2)]
        for kind in ("ledgers", "index", "journal")
    }
    with Bookie.open(
        None,
        "sorted",
        ledger_dirs=folders["ledgers"],
        index_dirs=folders["index"],
        journal_dirs=folders["journal"],
        options=StorageOptions(choose=lambda _: 0),
    ) as bookie:
        for ledger in range(4):
            bookie.add_entry(encode(Entry(ledger, 0, -1, 1, b"x"), "CRC32C"), b"k" * 20)
    expected = directory_answers(tmp_path / "b")
    before = list((tmp_path / "b" / "ledgers1" / "current").glob("*.log"))
    result = convert(tmp_path / "b", tmp_path / "one", "rocksdb")

    assert ([], 1) == (before, result.extra_links)
    assert (tmp_path / "one" / "ledgers1" / "current" / "0.log").is_file()
    assert expected == directory_answers(tmp_path / "one")


def test_logs_of_several_directories_to_idx(made: Callable[[str], Made], tmp_path: Path) -> None:
    """Logs whose id an earlier directory has get one that none has, and `lastId` the highest."""
    result = convert(made("db-3").root, tmp_path / "one", "idx")
    logs = [int(path.stem, 16) for path in (tmp_path / "one").glob("ledgers*/current/*.log")]
    last = {path.read_text() for path in (tmp_path / "one").glob("ledgers*/current/lastId")}

    assert result.renamed > 0
    assert len(set(logs)) == len(logs) == result.logs
    assert {f"{max(logs):x}\n"} == last


def test_one_index_directory_to_db(tmp_path: Path) -> None:
    """With fewer index than ledger directories, the databases stand beside the logs.

    The cookie names no index directories then, and it is said.
    """
    make_bookie(tmp_path / "b", "sorted", directories=2, indexes=1)
    result = convert(tmp_path / "b", tmp_path / "one", "rocksdb")

    assert directory_answers(tmp_path / "b") == directory_answers(tmp_path / "one")
    assert ["oddity"] == [finding.severity for finding in result.findings]
    assert (tmp_path / "one/ledgers1/current/locations").is_dir()
    with BookieDir(tmp_path / "one") as bookie:
        assert bookie.folders.cookie is not None
        assert bookie.folders.cookie.index_dirs is None
    assert bookie_answers(tmp_path / "b", tmp_path / "old") == bookie_answers(
        tmp_path / "one", tmp_path / "new"
    )


# -- what upstream's tools lose


def test_states(tmp_path: Path) -> None:
    """Explicit LACs, fences and empty ledgers go both ways, which upstream's tools lose."""
    world = make_world(5, 30)
    (tmp_path / "b" / "current").mkdir(parents=True)
    fill(HierarchicalIndex(tmp_path / "b", writable=True), world)
    convert(tmp_path / "b", tmp_path / "one", "rocksdb")
    convert(tmp_path / "one", tmp_path / "two", "idx")

    for name in ("one", "two"):
        with open_index(tmp_path / name) as index:
            assert world == read_world(index)
        assert (tmp_path / name / "current" / "BKSTORE-128").exists()


def test_limbo(tmp_path: Path) -> None:
    """Limbo is kept where there is a place for it; else the conversion is refused whole."""
    made = make_bookie(tmp_path / "b", "db", limbo=True)
    convert(made.root, tmp_path / "one", "rocksdb")
    assert directory_answers(made.root) == directory_answers(tmp_path / "one")
    with pytest.raises(UnsupportedLayout, match="in limbo"):
        convert(made.root, tmp_path / "two", "idx")
    assert ["b", "one"] == sorted(path.name for path in tmp_path.iterdir())


def test_storage_flags(tmp_path: Path) -> None:
    """Storage flags stay with RocksDB; that index files have none is said."""
    from bkstore.formats.ledgerdata import FLAGS_KEY

    with RocksIndex(tmp_path / "b", writable=True) as index:
        index.put(4, 0, 1028)
    path = tmp_path / "b" / "current" / "ledgers"
    with closing(Database(path, database_options("ledgers"))) as database:
        database.put(FLAGS_KEY, (1).to_bytes(8, "big"))
    convert(tmp_path / "b", tmp_path / "one", "rocksdb")
    result = convert(tmp_path / "b", tmp_path / "two", "idx")

    with open_index(tmp_path / "one") as index:
        assert 1 == index.storage_flags
    assert any("storage flags" in finding.detail for finding in result.findings)


def test_rows_of_unknown_ledgers(tmp_path: Path) -> None:
    """Rows that a delete cut short left are not carried over, and counted."""
    with RocksIndex(tmp_path / "b", writable=True) as index:
        for ledger in (3, 4, 5):
            index.put_many(ledger, [0, 1, 2], [1028, 1100, 1200])
    path = tmp_path / "b" / "current" / "ledgers"
    with closing(Database(path, database_options("ledgers"))) as database:
        database.delete(ledger_key(LedgerId.of(4)))
    result = convert(tmp_path / "b", tmp_path / "one", "idx")

    assert (6, 2, 3) == (result.entries, result.ledgers, result.left_out)
    assert any("not in the index" in finding.detail for finding in result.findings)
    with open_index(tmp_path / "one") as made:
        assert [3, 5] == [name.ledger for name in made.ledgers()]


# -- refusals


def test_damaged_index(tmp_path: Path) -> None:
    """A damaged index is not converted: what cannot be read would be lost in silence."""
    made = make_bookie(tmp_path / "b", "sorted", scopes=False)
    path = next((tmp_path / "b").glob("ledgers/current/*/*/*.idx"))
    path.write_bytes(b"XXXX" + path.read_bytes()[4:])
    with pytest.raises(CorruptionError, match=path.name):
        convert(made.root, tmp_path / "one", "rocksdb")
    assert not (tmp_path / "one").exists()


def test_entry_beyond_an_index_file(tmp_path: Path) -> None:
    """An entry whose index file would be too large is named; RocksDB takes it."""
    with RocksIndex(tmp_path / "b", writable=True) as index:
        index.put(7, 2**50, 1028)
    with pytest.raises(InvalidArgument, match=r"ledger 7: .*write rocksdb"):
        convert(tmp_path / "b", tmp_path / "one", "idx")
    assert 1 == convert(tmp_path / "b", tmp_path / "two", "rocksdb").entries


@pytest.mark.parametrize("place", ["b/new", "b/ledgers/new", "full", "file"])
def test_targets(place: str, made: Callable[[str], Made], tmp_path: Path) -> None:
    """A target that is there, or lies in the source, is refused, and stays as it is."""
    shutil.copytree(made("sorted").root, tmp_path / "b")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("mine")
    (tmp_path / "file").write_text("mine")
    before = tree_bytes(tmp_path)
    with pytest.raises(InvalidArgument):
        convert(tmp_path / "b", tmp_path / place, "rocksdb")

    assert before == tree_bytes(tmp_path)


def test_conf(made: Callable[[str], Made], tmp_path: Path) -> None:
    """A source named by its `bk_server.conf` keeps the paths that it says, below the target."""
    root = tmp_path / "host"
    shutil.copytree(made("interleaved-3").root, root / "data" / "bk")
    dirs = ",".join(f"/data/bk/ledgers{at}" for at in range(3))
    index = ",".join(f"/data/bk/index{at}" for at in range(3))
    conf = (
        f"ledgerDirectories={dirs}\nindexDirectories={index}\njournalDirectory=/data/bk/journal\n"
    )
    (root / "bk_server.conf").write_text(conf)
    convert(root / "bk_server.conf", tmp_path / "one", "rocksdb")

    assert (tmp_path / "one/data/bk/index2/current/locations").is_dir()
    assert directory_answers(root / "bk_server.conf") == directory_answers(
        tmp_path / "one" / "bk_server.conf"
    )


def test_links(made: Callable[[str], Made], tmp_path: Path) -> None:
    """Links are made if asked, of entry logs alone; a bookie that then writes changes no source."""
    shutil.copytree(made("sorted").root, tmp_path / "b")
    before = tree_bytes(tmp_path / "b")
    result = convert(tmp_path / "b", tmp_path / "one", "idx", link=True)
    twice = {path.name for path in (tmp_path / "one").rglob("*") if path.stat().st_nlink > 1}
    twice -= {path.name for path in (tmp_path / "one").rglob("*") if path.is_dir()}

    assert result.linked
    assert {path.name for path in (tmp_path / "one/ledgers/current").glob("*.log")} == twice
    from bkstore import Bookie

    with Bookie.open(tmp_path / "one") as bookie:
        for name in bookie.ledgers():
            bookie.delete_ledger(name)
        bookie.storage.flush()
        bookie.storage.collect_garbage()
    assert before == tree_bytes(tmp_path / "b")


def test_no_links_to_a_running_bookie(made: Callable[[str], Made], tmp_path: Path) -> None:
    """Links are refused with `live`: the bookie would go on writing into the target's log."""
    with pytest.raises(InvalidArgument, match="link"):
        convert(
            made("sorted").root, tmp_path / "one", "idx", link=True, opening=OpenOptions(live=True)
        )
    assert not (tmp_path / "one").exists()
    assert convert(
        made("sorted").root, tmp_path / "one", "idx", opening=OpenOptions(live=True)
    ).compared


def test_copies_where_not_asked(made: Callable[[str], Made], tmp_path: Path) -> None:
    """Without `link` no file of the target is one of the source's."""
    result = convert(made("sorted").root, tmp_path / "one", "idx")
    files = [path for path in (tmp_path / "one").rglob("*") if path.is_file()]

    assert not result.linked
    assert {1} == {path.stat().st_nlink for path in files}


# -- the comparison


def _changed(rows: IndexBatch, how: str) -> IndexBatch:
    if how == "less":
        return IndexBatch(*(column[1:] for column in rows))
    if how == "place":
        return rows._replace(location=rows.location + (rows.entry_id == 3))
    return rows._replace(entry_id=np.where(rows.entry_id == 8, 10_000, rows.entry_id))


@pytest.mark.parametrize("to", ["rocksdb", "idx"])
@pytest.mark.parametrize("how", ["less", "place", "entry", "state", "ledger"])
def test_a_difference_is_an_error(
    how: str, to: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An index that is not what was to be written is found out, and gets no name."""
    with RocksIndex(tmp_path / "b", writable=True) as index:
        index.put_many(7, np.arange(9), np.arange(9) + 2000)
        index.set_state(7, LedgerState(b"key", fenced=True))
        index.set_state(8, LedgerState(b"key"))
    write = rewrite_job.write_index

    def wrong(to: Any, currents: Any, rows: Any, states: Any, *rest: Any) -> int:
        if how == "state":
            states = {name: state._replace(fenced=False) for name, state in states.items()}
        elif how == "ledger":
            states = {name: state for name, state in states.items() if name.ledger != 8}
        else:
            rows = [_changed(batch, how) for batch in rows]
        return write(to, currents, rows, states, *rest)

    monkeypatch.setattr(rewrite_job, "write_index", wrong)
    with pytest.raises((CorruptionError, NoSuchLedger)):
        convert(tmp_path / "b", tmp_path / "out", to)
    assert ["b"] == [path.name for path in tmp_path.iterdir()]


# -- any index


LEDGERS = st.one_of(
    st.integers(0, 3).map(LedgerId.of),
    st.builds(LedgerId, st.integers(1, 2**64 - 1), st.integers(0, 2**64 - 1)),
)
ROWS = st.dictionaries(st.integers(0, 4000), st.integers(1, 2**62), max_size=20)
STATES = st.builds(
    LedgerState,
    st.binary(max_size=20),
    st.booleans(),
    st.just(False),
    st.none() | st.binary(min_size=16, max_size=36),
)


@settings(max_examples=20)
@given(world=st.dictionaries(LEDGERS, st.tuples(ROWS, STATES), max_size=6), first=st.booleans())
def test_any_index(
    world: dict[LedgerId, Any], first: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever an index holds, the way there and back is the identity."""
    top = tmp_path_factory.mktemp("any")
    kind = HierarchicalIndex if first else RocksIndex
    fill(kind(top / "b", writable=True), world)
    (top / "b" / "current").mkdir(parents=True, exist_ok=True)
    (top / "b" / "current" / "lastId").write_text("0\n")
    ways: list[Any] = ["rocksdb", "idx"] if first else ["idx", "rocksdb"]
    convert(top / "b", top / "one", ways[0])
    convert(top / "one", top / "two", ways[1])
    for name in ("one", "two"):
        with open_index(top / name) as index:
            assert world == read_world(index)
    shutil.rmtree(top)


def test_many_rows(tmp_path: Path) -> None:
    """A ledger of several scan batches keeps its order and its rows."""
    count = 300_000
    with RocksIndex(tmp_path / "b", writable=True) as index:
        places = np.random.default_rng(3).integers(1, 2**40, count)
        index.put_many(7, np.arange(count), places)
        index.put_many(8, [5], [9])
    result = convert(tmp_path / "b", tmp_path / "one", "idx")

    assert count + 1 == result.entries
    with open_index(tmp_path / "one") as made:
        assert places.tolist() == made.items(7)[1].tolist()
