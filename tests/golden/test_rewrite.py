"""Rewrites of directories that the real BookKeeper wrote: the same answers from the new ones."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from bkstore import BookieDir, open_index
from bkstore.errors import InvalidArgument, UnsupportedLayout
from bkstore.offline.rewrite import convert, rebuild_index, salvage
from tests.golden.data import GoldenTree, expand_runs
from tests.worlds.bookies import bookie_answers, directory_answers, tree_bytes
from tests.worlds.damages import damage
from tests.worlds.loads import World, read_world
from tests.worlds.salvages import check_salvage, entries_of, logs_of

OTHER: dict[str, Any] = {"rocksdb": "idx", "idx": "rocksdb"}


def _index(root: Path) -> World:
    with open_index(root) as index:
        return read_world(index)


def test_there_and_back(tree: GoldenTree, reader: Any, tmp_path: Path) -> None:
    """idx to RocksDB to idx, and the other way round, is the identity: rows, states, records.

    Limbo, and entries too far apart for an index file, have no place in idx and are refused.
    """
    before = tree_bytes(tree.root)
    if tree.layout == "rocksdb" and not tree.fits_idx:
        with pytest.raises((UnsupportedLayout, InvalidArgument)):
            convert(tree.root, tmp_path / "one", "idx")
        assert [] == list(tmp_path.iterdir())
        convert(tree.root, tmp_path / "two", "rocksdb")
    else:
        convert(tree.root, tmp_path / "one", OTHER[tree.layout])
        convert(tmp_path / "one", tmp_path / "two", tree.layout)  # type: ignore[arg-type]
        with open_index(tmp_path / "one") as index:
            reader.everything(index, tree)
        assert directory_answers(tree.root) == directory_answers(tmp_path / "one")
    with open_index(tmp_path / "two") as index:
        reader.everything(index, tree)
    assert _index(tree.root) == _index(tmp_path / "two")
    assert before == tree_bytes(tree.root)


@pytest.mark.parametrize("to", ["rocksdb", "idx"])
def test_rebuild(tree: GoldenTree, to: Any, tmp_path: Path) -> None:
    """A rebuilt index has the rows and states of the real one, compacted and deleted ones too.

    Known ledgers only; of several copies the last in log order. What the logs hold beyond the
    index is named above, and was added by an operation.
    """
    if to == "idx" and not tree.fits_idx:
        pytest.skip("limbo, or entries too far apart for an index file")
    result = rebuild_index(tree.root, tmp_path / "one", to)
    expected, found = _index(tree.root), _index(tmp_path / "one")
    more = {
        name.ledger: rows.keys() - expected[name][0].keys()
        for name, (rows, _) in found.items()
        if rows != expected[name][0]
    }

    assert expected.keys() == found.keys()
    for name, (rows, state) in expected.items():
        assert state == found[name][1]
        assert rows == {entry: found[name][0].get(entry) for entry in rows}
    assert tree.unindexed == more.keys()
    for ledger, entries in more.items():
        assert entries <= _added(tree, ledger)
    assert [] == result.findings


def _added(tree: GoldenTree, ledger: int) -> set[int]:
    """Return the entries that operations added to a ledger."""
    parts = [
        part
        for operation in tree.document["operations"]
        for part in operation.get("parts", [operation])
        if part.get("ledger") == ledger and "runs" in part
    ]
    return {
        entry
        for part in parts
        for first, last, step in part["runs"]
        for entry in range(first, last + (1 if step > 0 else -1), step)
    }


def test_rebuild_without_index(tree: GoldenTree, tmp_path: Path) -> None:
    """Without the old index, the rows of every ledger that it had are found again."""
    if tree.unindexed:
        pytest.skip("the logs hold more than the index had")
    shutil.copytree(tree.root, tmp_path / "bare")
    for path in list((tmp_path / "bare").glob("*/current/*")):
        if path.is_dir():
            shutil.rmtree(path)
    rebuild_index(tmp_path / "bare", tmp_path / "one", "rocksdb")
    expected, found = _index(tree.root), _index(tmp_path / "one")
    filled = {name: rows for name, (rows, _) in expected.items() if rows}

    assert filled == {name: found[name][0] for name in filled}
    assert all(state.fenced for _, state in found.values())


def test_rebuild_of_clusters(cluster: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    """What was taken out of bookies' indexes on purpose is there again, and nothing else."""
    root, document = cluster
    for bookie in sorted(path for path in root.iterdir() if path.is_dir()):
        mine = [one for one in document["violations"] if one["bookie"].startswith(bookie.name)]
        removed = {
            one["ledger"]: set(one["entries"]) for one in mine if one["kind"] != "ledger_removed"
        }
        result = rebuild_index(bookie, tmp_path / bookie.name, "rocksdb")
        expected, found = _index(bookie), _index(tmp_path / bookie.name)
        more = {
            name.ledger: rows.keys() - expected[name][0].keys()
            for name, (rows, _) in found.items()
            if rows != expected[name][0]
        }

        assert removed == more
        assert len(mine) - len(removed) == result.left_out
        assert {name: state for name, (_, state) in expected.items()} == {
            name: state for name, (_, state) in found.items()
        }


@pytest.mark.parametrize("way", [convert, rebuild_index, salvage], ids=lambda way: way.__name__)
def test_journals(way: Any, journal: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    """A bookie that starts on a rewritten directory replays the same journals to the same end."""
    root, _ = journal
    with BookieDir(root) as bookie:
        other = OTHER[bookie.layout]
    way(root, tmp_path / "one", other)

    assert directory_answers(root) == directory_answers(tmp_path / "one")
    assert bookie_answers(root, tmp_path / "old") == bookie_answers(
        tmp_path / "one", tmp_path / "new"
    )


def test_salvage(tree: GoldenTree, tmp_path: Path) -> None:
    """Of an undamaged tree nothing is lost, and every log is the same."""
    result = salvage(tree.root, tmp_path / "one")
    expected, found = _index(tree.root), _index(tmp_path / "one")

    assert ([], 0) == (result.losses, result.rewritten_logs)
    for name, (rows, state) in expected.items():
        assert state == found[name][1]
        assert rows == {entry: found[name][0].get(entry) for entry in rows}
    logs = {path.relative_to(tree.root): path.read_bytes() for path in logs_of(tree.root)}
    assert logs == {name: (tmp_path / "one" / name).read_bytes() for name in logs}


def _damaged(tree: GoldenTree, seeds: range, top: Path) -> None:
    kept = entries_of(tree.root)
    for seed in seeds:
        shutil.copytree(tree.root, top / "b")
        shown = damage(logs_of(top / "b"), seed)
        check_salvage(top / "b", kept, top / "one", (seed, shown))
        shutil.rmtree(top)


def test_damages(tree: GoldenTree, tmp_path: Path) -> None:
    """Whatever is done to a log, the entries whose frames are whole are saved."""
    _damaged(tree, range(3), tmp_path / "top")


@pytest.mark.long
@pytest.mark.timeout(3000)
def test_many_damages(tree: GoldenTree, tmp_path: Path) -> None:
    """The same for more damages."""
    _damaged(tree, range(100, 140), tmp_path / "top")


def test_expected_counts(tree: GoldenTree, tmp_path: Path) -> None:
    """A conversion says how many ledgers and entries there are, as the real bookie counted."""
    result = convert(tree.root, tmp_path / "one", "rocksdb")
    entries = sum(len(expand_runs(answer["entries"])) for answer in tree.known)

    assert (len(tree.known), entries, True) == (result.ledgers, result.entries, result.compared)
