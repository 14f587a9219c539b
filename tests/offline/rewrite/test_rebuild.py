"""Rebuilt indexes: what the logs say, by the stated rules, and states from wherever they are."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkstore import Bookie, BookieDir, LedgerId, LedgerStorage, open_index
from bkstore.formats.entry import Entry, encode
from bkstore.index.api import LedgerState
from bkstore.offline.rewrite import rebuild_index
from bkstore.storage.options import StorageOptions
from tests.offline.rewrite.conftest import SHAPES
from tests.worlds.bookies import (
    JOURNAL,
    Made,
    bookie_answers,
    directory_answers,
    make_bookie,
    tree_bytes,
)
from tests.worlds.loads import read_world


def _without_index(root: Path, target: Path, *keep: str) -> Path:
    """Return a copy of a bookie without its index, but for databases of these names."""
    shutil.copytree(root, target)
    for path in [*target.glob("*/current/*"), *target.glob("current/*")]:
        if path.is_dir() and path.name not in keep:
            shutil.rmtree(path)
    return target


@pytest.mark.parametrize("to", ["rocksdb", "idx"])
@pytest.mark.parametrize("shape", SHAPES)
def test_equal_to_the_index(
    shape: str, to: Any, made: Callable[[str], Made], tmp_path: Path
) -> None:
    """Of known ledgers a rebuild has the index's rows and states; SRC stays as it is.

    What a journal's tail knows beyond the index may be there too: records that interleaved
    storage has in its logs already, a deleted ledger whose key the replay brings back.
    """
    root = made(shape).root
    before = tree_bytes(root)
    result = rebuild_index(root, tmp_path / "one", to)
    expected, found = directory_answers(root), directory_answers(tmp_path / "one")
    if not shape.endswith("tail"):
        assert expected == found
    for name, (state, records) in expected.items():
        assert state == found[name][0]
        assert records == {entry: found[name][1].get(entry) for entry in records}
    assert result.compared
    assert before == tree_bytes(root)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_bookie_starts(shape: str, made: Callable[[str], Made], tmp_path: Path) -> None:
    """A bookie that starts on a rebuilt directory answers as on the source, journals replayed."""
    root = made(shape).root
    with BookieDir(root) as bookie:
        rebuild_index(root, tmp_path / "one", bookie.layout)

    assert bookie_answers(root, tmp_path / "old") == bookie_answers(
        tmp_path / "one", tmp_path / "new"
    )


@pytest.mark.parametrize("shape", ["sorted", "interleaved-3", "db"])
def test_without_any_index(shape: str, made: Callable[[str], Made], tmp_path: Path) -> None:
    """Without an index every ledger in the logs is made, fenced, with the journals' keys."""
    root = made(shape).root
    bare = _without_index(root, tmp_path / "bare")
    result = rebuild_index(bare, tmp_path / "one", "idx")
    expected, found = directory_answers(root), directory_answers(tmp_path / "one")

    assert expected.keys() <= found.keys()
    assert {name: rows for name, (_, rows) in expected.items()} == {
        name: found[name][1] for name in expected
    }
    assert all(state.fenced for state, _ in found.values())
    keys = {name: state.master_key for name, (state, _) in expected.items()}
    assert keys == {name: found[name][0].master_key for name in expected}
    assert any("no index lists" in finding.detail for finding in result.findings)


def test_states_of_ledgers_alone(made: Callable[[str], Made], tmp_path: Path) -> None:
    """Without `locations`, the states and the known ledgers are those of `ledgers`."""
    root = made("db").root
    bare = _without_index(root, tmp_path / "bare", "ledgers", "ledgers-128")
    (bare / "ledgers/current/ledgers-128").exists()
    result = rebuild_index(bare, tmp_path / "one", "rocksdb")

    assert directory_answers(root) == directory_answers(tmp_path / "one")
    assert any("from `ledgers` alone" in finding.detail for finding in result.findings)


def test_damaged_headers(tmp_path: Path) -> None:
    """A ledger whose index file is damaged keeps its entries; its state is the journals'."""
    made = make_bookie(tmp_path / "b", "sorted", scopes=False)
    expected = directory_answers(made.root)
    path = sorted((tmp_path / "b").glob("ledgers/current/*/*/*.idx"))[0]
    name = LedgerId.of(int(path.stem, 16))
    path.write_bytes(b"XXXX" + path.read_bytes()[4:])
    rebuild_index(made.root, tmp_path / "one", "rocksdb")
    found = directory_answers(tmp_path / "one")

    assert expected[name][1] == found[name][1]
    assert expected[name][0]._replace(fenced=True) == found[name][0]
    del expected[name], found[name]
    assert expected == found


# -- which copy, which ledgers


def _entry(ledger: int, entry: int, text: str) -> bytes:
    return encode(Entry(ledger, entry, entry - 1, 9, text.encode().ljust(60)), "CRC32C")


def _deleted(root: Path) -> None:
    """Make a bookie whose logs hold ledger 8, which it deleted."""
    with LedgerStorage.open(root, "sorted") as storage:
        for ledger in (7, 8):
            storage.set_master_key(ledger, b"key")
            storage.add_entry(_entry(ledger, 0, "one"))
        storage.flush()
        storage.delete_ledger(8)
    assert b"two" not in (root / "current" / "0.log").read_bytes()


def test_deleted_ledgers(tmp_path: Path) -> None:
    """Records of ledgers that the bookie does not know are left out, and made if asked for.

    They are fenced then, as nobody knows whether they were.
    """
    _deleted(tmp_path / "b")
    plain = rebuild_index(tmp_path / "b", tmp_path / "one", "rocksdb")
    every = rebuild_index(tmp_path / "b", tmp_path / "two", "rocksdb", all_ledgers=True)
    with open_index(tmp_path / "one") as one, open_index(tmp_path / "two") as two:
        assert [7] == [name.ledger for name in one.ledgers()]
        assert [7, 8] == [name.ledger for name in two.ledgers()]
        assert LedgerState(b"", True, False, None) == two.state(8)
        assert LedgerState(b"key", False, False, None) == two.state(7)
    assert (1, [], 0) == (plain.left_out, plain.findings, every.left_out)
    assert any("without a master key" in finding.detail for finding in every.findings)


def test_known_only_without_index(tmp_path: Path) -> None:
    """With `all_ledgers` False nothing is made that neither index nor journals know."""
    _deleted(tmp_path / "b")
    shutil.rmtree(tmp_path / "b/current/0")
    result = rebuild_index(tmp_path / "b", tmp_path / "one", "idx", all_ledgers=False)

    assert (0, 0, 2) == (result.ledgers, result.entries, result.left_out)


@pytest.mark.parametrize("storage", ["sorted", "interleaved", "db"])
def test_last_copy_wins(storage: Any, tmp_path: Path) -> None:
    """Of entries added again, and of copies that compaction made, the last in log order wins."""
    options = StorageOptions(entry_log_size=1500)
    with LedgerStorage.open(tmp_path / "b", storage, options=options) as opened:
        for ledger in (7, 8):
            opened.set_master_key(ledger, b"key")
        for text in ("one", "two"):
            for entry in range(12):
                opened.add_entry(_entry(7, entry, text))
                opened.add_entry(_entry(8, entry, text))
            opened.flush()
        opened.delete_ledger(8)
        opened.flush()
        opened.collect_garbage()
        opened.add_entry(_entry(7, 3, "three"))
    result = rebuild_index(tmp_path / "b", tmp_path / "one", "rocksdb")
    with open_index(tmp_path / "b") as old, open_index(tmp_path / "one") as new:
        assert read_world(old) == read_world(new)
    with BookieDir(tmp_path / "one") as bookie:
        assert b"three" in bookie.read_entry(7, 3)
        assert b"two" in bookie.read_entry(7, 4)
    assert result.duplicates > 0


def test_ids_that_began_again(tmp_path: Path) -> None:
    """Behind log 2^31-1 ids begin again at 0: the copy in log 0 is the newer one."""
    for log, text in ((2**31 - 1, "old"), (0, "new")):
        with LedgerStorage.open(tmp_path / "b", "sorted") as storage:
            storage.set_master_key(7, b"key")
            storage.add_entry(_entry(7, 0, text))
        current = tmp_path / "b" / "current"
        (path,) = [p for p in current.glob("*.log") if p.stat().st_size > 1024 and len(p.stem) < 8]
        path.rename(current / f"keep-{log:x}")
        for rest in current.glob("*.log"):
            rest.unlink()
    shutil.rmtree(current / "0")
    for path in current.glob("keep-*"):
        path.rename(current / f"{path.name.removeprefix('keep-')}.log")
    rebuild_index(tmp_path / "b", tmp_path / "one", "idx")
    with BookieDir(tmp_path / "one") as bookie:
        assert 0 == bookie.index.get(7, 0) >> 32  # type: ignore[operator]
        assert b"new" in bookie.read_entry(7, 0)


def test_records_astray(tmp_path: Path) -> None:
    """In db storage a record counts in its ledger's directory only, as for a bookie."""
    made = make_bookie(tmp_path / "b", "db", directories=2, scopes=False)
    logs = sorted((tmp_path / "b/ledgers1/current").glob("*.log"))
    shutil.copy(logs[0], tmp_path / "b/ledgers0/current/7777.log")
    result = rebuild_index(made.root, tmp_path / "one", "rocksdb")

    assert directory_answers(made.root) == directory_answers(tmp_path / "one")
    assert any("where no bookie searches" in finding.detail for finding in result.findings)


def test_a_fence_in_the_journal(tmp_path: Path) -> None:
    """A ledger that only the journal's tail knows gets its key and its fence at the replay."""
    with Bookie.open(tmp_path / "b", "sorted", journal=JOURNAL) as bookie:
        bookie.add_entry(_entry(5, 0, "flushed"), b"key")
    bookie = Bookie.open(tmp_path / "b", "sorted", journal=JOURNAL)
    bookie.add_entry(_entry(6, 0, "tail"), b"other")
    bookie.fence(6, b"other")
    bookie.close(checkpoint=False)
    rebuild_index(tmp_path / "b", tmp_path / "one", "rocksdb")
    expected = bookie_answers(tmp_path / "b", tmp_path / "old")

    assert LedgerId.of(6) in expected
    assert expected == bookie_answers(tmp_path / "one", tmp_path / "new")


def test_damaged_log(tmp_path: Path) -> None:
    """Damage in a log is a finding, and the records behind it are in the index."""
    made = make_bookie(tmp_path / "b", "sorted", scopes=False)
    (path, *_) = [
        p for p in (tmp_path / "b/ledgers/current").glob("*.log") if p.stat().st_size > 4000
    ]
    data = bytearray(path.read_bytes())
    data[1024:1028] = b"\x7f\xff\xff\xff"
    path.write_bytes(data)
    result = rebuild_index(made.root, tmp_path / "one", "idx")

    assert any(finding.severity == "damage" for finding in result.findings)
    with open_index(tmp_path / "b") as old, open_index(tmp_path / "one") as new:
        before, after = read_world(old), read_world(new)
    gone = sum(len(before[name][0].keys() - after[name][0].keys()) for name in before)
    assert gone <= 1
    assert result.entries > 100
