"""Sets of directories that belong together, contradict each other, or mix layouts.

Rule: as in `test_directories`; a ledger is looked up where it must be, or nothing is.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from bkstore import (
    BookieDir,
    InvalidArgument,
    LedgerId,
    NoSuchLedger,
    UnsupportedLayout,
)
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.index.rocks import RocksIndex
from bkstore.storage.directories.layout import order_by_residue
from bkstore.testing.crash import CrashFiles
from tests.corruption.made_directories import (
    folder_names,
    make_conf,
    make_cookies,
    make_idx,
    make_log,
    make_rocks,
    refusal,
)

# -- db storage over several directories


def test_order_found_by_ledgers(tmp_path: Path) -> None:
    """Without a cookie, directories take the place that their ledgers' numbers give."""
    for name, ledgers in {"x": (2, 5), "y": (0, 3), "z": (1, 4)}.items():
        make_rocks(tmp_path / name, *ledgers)
    with BookieDir(tmp_path) as bookie:
        assert ["y", "z", "x"] == folder_names(bookie.folders.ledger)
        assert list(range(6)) == [ledger.ledger for ledger in bookie.index.ledgers()]
        assert [1, 1] == bookie.locate(4)[1].tolist()
        assert [] == bookie.findings()


def test_order_of_the_cookie(tmp_path: Path) -> None:
    """The cookie's order counts, not that of the names."""
    for name, ledgers in {"x": (1,), "y": (0,)}.items():
        make_rocks(tmp_path / name, *ledgers)
    make_cookies(tmp_path, ["x", "y"], ["/mnt/y", "/mnt/x"])
    with BookieDir(tmp_path) as bookie:
        assert (["y", "x"], "cookie") == (
            folder_names(bookie.folders.ledger),
            bookie.folders.order_source,
        )
        assert [0, 1] == bookie.index.entries(1).tolist()


def test_cookie_order_that_contradicts_the_ledgers(tmp_path: Path) -> None:
    """A cookie that does not fit the ledgers is refused: a look-up would go astray."""
    for name, ledgers in {"x": (1,), "y": (0,)}.items():
        make_rocks(tmp_path / name, *ledgers)
    make_cookies(tmp_path, ["x", "y"], ["/mnt/x", "/mnt/y"])

    assert "by the cookie" in refusal(tmp_path)


def test_one_directory_of_three_missing(tmp_path: Path) -> None:
    """With two of three directories, ledgers would be looked for in the wrong one: refused."""
    for number in (0, 2):
        make_rocks(tmp_path / f"d{number}", *range(number, 12, 3))
    message = refusal(tmp_path)

    assert "bk_server.conf" in message
    assert str(tmp_path / "d") in message

    make_cookies(tmp_path, ["d0", "d2"], ["/d0", "/d1", "/d2"])
    assert "names 3 ledger directories, 2 are here" in refusal(tmp_path)


def test_one_directory_alone_is_partial(tmp_path: Path) -> None:
    """One directory of three answers for its ledgers; that it is one of three is a finding."""
    make_rocks(tmp_path / "d1", 1, 4)
    make_cookies(tmp_path, ["d1"], ["/d0", "/d1", "/d2"])
    with BookieDir(tmp_path / "d1") as bookie:
        assert [1, 4] == [ledger.ledger for ledger in bookie.index.ledgers()]
        assert ["1 of the 3"] == [finding.detail[:10] for finding in bookie.findings()]


def test_empty_directory_takes_the_free_place(tmp_path: Path) -> None:
    """A directory without ledgers takes the place that is left."""
    make_rocks(tmp_path / "a", 1)
    make_rocks(tmp_path / "b")
    make_rocks(tmp_path / "c", 2)
    with BookieDir(tmp_path) as bookie:
        assert ["b", "a", "c"] == folder_names(bookie.folders.index)


def test_directory_without_databases(tmp_path: Path) -> None:
    """A ledger directory whose databases are missing is refused by name."""
    make_rocks(tmp_path / "a", 0)
    make_log(tmp_path / "b", 0)
    make_log(tmp_path / "a", 0)
    message = refusal(tmp_path)

    assert "b" in message


def test_stray_ledger_is_a_finding(tmp_path: Path) -> None:
    """A single ledger in the wrong directory does not hide the others; it is named."""
    make_rocks(tmp_path / "a", 0, 2, 5)
    make_rocks(tmp_path / "b", 1, 3)
    conf = make_conf(tmp_path, "ledgerDirectories=../a,../b\n")
    with BookieDir(conf) as bookie:
        assert [0, 1, 2, 3] == [ledger.ledger for ledger in bookie.index.ledgers()]
        assert [5] == [f.ledger.ledger for f in bookie.findings() if f.ledger]


@pytest.mark.parametrize("ledgers", [[[0, 1], []], [[0], [2]], [[0, 3], [1, 4]]])
def test_residues_that_explain_nothing(ledgers: list[list[int]]) -> None:
    """No order is guessed where the ledgers contradict every order."""
    with pytest.raises(UnsupportedLayout, match=r"bk_server\.conf"):
        order_by_residue(["a", "b"], ledgers)


# -- mixtures


def test_half_converted(tmp_path: Path) -> None:
    """Index files and databases in one directory: refused until one is chosen."""
    make_idx(tmp_path, 7)
    make_rocks(tmp_path, 8)
    assert "interrupted conversion" in refusal(tmp_path)

    for layout, ledger in (("idx", 7), ("rocksdb", 8)):
        with BookieDir(tmp_path, layout=layout) as bookie:  # type: ignore[arg-type]
            assert [ledger] == [name.ledger for name in bookie.index.ledgers()]


def test_mixed_directories(tmp_path: Path) -> None:
    """One directory with index files beside one with databases: refused, both named."""
    make_idx(tmp_path / "a", 7)
    make_rocks(tmp_path / "b", 8)
    message = refusal(tmp_path)

    assert str(tmp_path / "a") in message
    assert str(tmp_path / "b") in message


def test_chosen_layout_must_be_there(tmp_path: Path) -> None:
    """Asking for the layout that is not there is refused, not answered with "nothing"."""
    make_rocks(tmp_path / "r", 7)
    make_idx(tmp_path / "i", 7)
    for name, layout in (("r", "idx"), ("i", "rocksdb")):
        with pytest.raises(UnsupportedLayout, match=f"not {layout}"):
            BookieDir(tmp_path / name, layout=layout)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="layout must be"):
        BookieDir(tmp_path / "r", layout="memtable")  # type: ignore[arg-type]


# -- odd index files


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """Return a bookie with two index directories and index files where they do not belong."""
    make_idx(tmp_path / "a", 7, 8)
    make_idx(tmp_path / "b", 9)
    return tmp_path


def test_leftover_of_a_move(odd: Path) -> None:
    """A `.rloc` beside its `.idx` is ignored and named; alone, it is the ledger's file."""
    b, a = (odd / name / "current" / "0" for name in "ba")
    (b / "7").mkdir()
    shutil.copy(a / "7" / "7.idx", b / "7" / "7.idx.rloc")
    os.rename(a / "8" / "8.idx", a / "8" / "8.idx.rloc")
    with BookieDir(odd) as bookie:
        assert [7, 8, 9] == [name.ledger for name in bookie.index.ledgers()]
        assert [0, 1] == bookie.index.entries(8).tolist()
        assert {str(b / "7" / "7.idx.rloc"), str(a / "8" / "8.idx.rloc")} == {
            finding.file for finding in bookie.findings()
        }


def test_two_copies(odd: Path) -> None:
    """Of two files of one ledger the first directory's is read, the other is named."""
    (odd / "b" / "current" / "0" / "7").mkdir()
    second = shutil.copy(
        odd / "a" / "current" / "0" / "7" / "7.idx", odd / "b" / "current" / "0" / "7"
    )
    with BookieDir(odd) as bookie:
        assert [7, 8, 9] == [name.ledger for name in bookie.index.ledgers()]
        assert [str(second)] == [finding.file for finding in bookie.findings()]


@pytest.mark.parametrize("second", ["b/7.idx", "a/7.idx.rloc", "b/7.idx.rloc"])
@pytest.mark.parametrize("many", [False, True])
def test_delete_takes_every_copy(tmp_path: Path, second: str, many: bool) -> None:
    """A deleted ledger's second file and its leftovers go too, durably; others stay."""
    make_idx(tmp_path / "a", 7, 8)
    folder = tmp_path / second[0] / "current" / "0" / "7"
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(tmp_path / "a/current/0/7/7.idx", folder / second[2:])
    files, tops = CrashFiles(), [tmp_path / "a", tmp_path / "b"]
    with HierarchicalIndex(tops, writable=True, files=files) as index:
        index.delete_many([7]) if many else index.delete(7)

        assert [LedgerId.of(8)] == index.ledgers()
        index.flush()
        left = files.crash(tmp_path, tmp_path.parent / f"{tmp_path.name}-left")
    for top in (tmp_path, left):
        with HierarchicalIndex([top / "a", top / "b"]) as index:
            assert [LedgerId.of(8)] == index.ledgers()
            with pytest.raises(NoSuchLedger):
                index.state(7)
        assert [top / "a/current/0/8/8.idx"] == [p for p in top.rglob("*") if p.is_file()]


@pytest.mark.parametrize(
    "place",
    ["0/8/7.idx", "0/7/07.idx", "0/7/zz.idx", "0/7/ffffffffffffffff.idx", "0/7.idx", "7.idx"],
)
def test_misplaced_file(odd: Path, place: str) -> None:
    """A file that a bookie's look-up cannot reach is no ledger, and is named."""
    target = odd / "a" / "current" / place
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(odd / "a" / "current" / "0" / "8" / "8.idx", target)
    with BookieDir(odd) as bookie:
        assert [7, 8, 9] == [name.ledger for name in bookie.index.ledgers()]
        assert [str(target)] == [finding.file for finding in bookie.findings()]


def test_pairs_are_reordered_together(tmp_path: Path) -> None:
    """Where ledgers tell the order, separate ledger and index directories move as pairs."""
    for name, ledgers in (("a", [1, 3]), ("b", [2, 4])):
        with RocksIndex(tmp_path / f"index-{name}", writable=True) as index:
            for ledger in ledgers:
                index.put_many(ledger, [0], [1028])
        logs = tmp_path / f"ledgers-{name}" / "current"
        logs.mkdir(parents=True)
        (logs / "0.log").write_bytes(bytes(1024))
    with BookieDir(tmp_path) as bookie:
        order = [current.parent.name for current in bookie.folders.ledger]

        assert ["ledgers-b", "ledgers-a"] == order
        assert [0] == bookie.locate(2)[1].tolist()


@pytest.mark.parametrize("kind", [HierarchicalIndex, RocksIndex])
def test_empty_journal_that_only_the_cookie_names(tmp_path: Path, kind: type) -> None:
    """An empty directory is what the cookie says it is, whatever its name sounds like."""
    with kind(tmp_path / "bk-data", writable=True) as index:
        index.put_many(7, [0], [1028])
    text = '5\nbookieHost: "b"\njournalDir: "/x/bk-txn"\nledgerDirs: "1\\t/x/bk-data"\n'
    for name in ("bk-data", "bk-txn"):
        (tmp_path / name / "current").mkdir(parents=True, exist_ok=True)
        (tmp_path / name / "current" / "VERSION").write_text(text)
    with BookieDir(tmp_path) as bookie:
        assert ["bk-txn"] == [current.parent.name for current in bookie.folders.journal]
        assert ["bk-data"] == [current.parent.name for current in bookie.folders.ledger]
        assert [] == bookie.findings()
