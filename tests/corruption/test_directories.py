"""Which directories a path stands for, and mixed or inconsistent sets of them.

Rule of the family: the right directories in the right order, or one error that names the
directory at fault and says what to do; never a look-up in the wrong directory.

Over 500 lines because it is one family: all layouts are made by the same few helpers.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from bkstore import (
    BkstoreError,
    BookieDir,
    CorruptionError,
    InvalidArgument,
    LedgerId,
    NoSuchLedger,
    UnsupportedLayout,
)
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.index.rocks import RocksIndex
from bkstore.storage.directories.layout import order_by_residue
from bkstore.testing.crash import CrashFiles

COOKIE = '4\nbookieHost: "{id}"\njournalDir: "{journal}"\nledgerDirs: "{ledgers}"\n'


def _paths(dirs: Sequence[str]) -> str:
    return "\\t".join((str(len(dirs)), *dirs))


def _cookie(root: Path, names: Sequence[str], ledgers: Sequence[str], bookie: str = "b:1") -> None:
    """Put one cookie into the directories `names` of a root."""
    text = COOKIE.format(id=bookie, journal="/j", ledgers=_paths(ledgers))
    for name in names:
        (root / name / "current").mkdir(parents=True, exist_ok=True)
        (root / name / "current" / "VERSION").write_text(text)


def _idx(directory: Path, *ledgers: int) -> None:
    """Make a ledger directory with index files."""
    with HierarchicalIndex(directory, writable=True) as index:
        for ledger in ledgers:
            index.put_many(ledger, [0, 1], [1028, 1100])


def _rocks(directory: Path, *ledgers: int) -> None:
    """Make a ledger directory with RocksDB databases."""
    with RocksIndex(directory, writable=True) as index:
        for ledger in ledgers:
            index.put_many(ledger, [0, 1], [1028, 1100])


def _log(directory: Path, number: int) -> None:
    (directory / "current").mkdir(parents=True, exist_ok=True)
    (directory / "current" / f"{number:x}.log").write_bytes(b"BKLO")


def _names(currents: Sequence[Path]) -> list[str]:
    return [current.parent.name for current in currents]


def _refusal(path: Path, error: type[BkstoreError] = UnsupportedLayout) -> str:
    with pytest.raises(error) as caught:
        BookieDir(path)
    return str(caught.value)


# -- what a path may be


@pytest.mark.parametrize("ends", ["", "current"])
def test_one_directory(tmp_path: Path, ends: str) -> None:
    """A ledger directory and its ``current/`` say the same."""
    _idx(tmp_path, 7)
    with BookieDir(tmp_path / ends) as bookie:
        assert [tmp_path / "current"] == bookie.folders.ledger
        assert [7] == [ledger.ledger for ledger in bookie.index.ledgers()]


def test_natural_order_of_names(tmp_path: Path) -> None:
    """Without another word, directories come in the order that people number them in."""
    for number in (0, 2, 10):
        _idx(tmp_path / f"ledgers{number}", number)
    with BookieDir(tmp_path) as bookie:
        assert ["ledgers0", "ledgers2", "ledgers10"] == _names(bookie.folders.ledger)
        assert [0, 2, 10] == [ledger.ledger for ledger in bookie.index.ledgers()]


def test_roles_are_told_by_content(tmp_path: Path) -> None:
    """Index, ledger and journal directories are told apart by what they hold."""
    _idx(tmp_path / "a", 7)
    _log(tmp_path / "b", 0)
    (tmp_path / "c" / "current").mkdir(parents=True)
    (tmp_path / "c" / "current" / "17f.txn").write_bytes(b"")
    with BookieDir(tmp_path) as bookie:
        assert ["a"] == _names(bookie.folders.index)
        assert ["b"] == _names(bookie.folders.ledger)
        assert ["c"] == _names(bookie.folders.journal)
        assert [0, 0] == bookie.locate(7)[1].tolist()


def test_separate_index_directories(tmp_path: Path) -> None:
    """Index directories beside ledger directories; an empty one counts by its name."""
    for number in (0, 1):
        _log(tmp_path / f"ledgers{number}", number)
        (tmp_path / f"index{number}" / "current").mkdir(parents=True)
    _idx(tmp_path / "index1", 7)
    with BookieDir(tmp_path) as bookie:
        assert ["index0", "index1"] == _names(bookie.folders.index)
        assert ["ledgers0", "ledgers1"] == _names(bookie.folders.ledger)
        assert [0, 1] == bookie.index.entries(7).tolist()


def test_links_are_followed(tmp_path: Path) -> None:
    """A directory that is reached through links reads like the directory."""
    _idx(tmp_path / "real", 7)
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "ledgers").symlink_to(tmp_path / "real")
    (tmp_path / "link").symlink_to(tmp_path / "root")
    with BookieDir(tmp_path / "link") as bookie:
        assert [7] == [ledger.ledger for ledger in bookie.index.ledgers()]


def test_empty_bookie(tmp_path: Path) -> None:
    """A bookie that was formatted and never written to lists nothing, and has an id."""
    _cookie(tmp_path, ["ledgers"], ["/ledgers"])
    with BookieDir(tmp_path) as bookie:
        assert ([], "b:1", []) == (bookie.index.ledgers(), bookie.bookie_id, bookie.findings())


def test_emptied_bookie(tmp_path: Path) -> None:
    """The hex folders that stay after the last ledger was deleted are a bookie's."""
    _idx(tmp_path, 7)
    with HierarchicalIndex(tmp_path, writable=True) as index:
        index.delete(7)
    with BookieDir(tmp_path) as bookie:
        assert [] == bookie.index.ledgers()


def test_journals_only(tmp_path: Path) -> None:
    """A journal directory alone has no index; that is a finding, not an empty bookie."""
    (tmp_path / "current").mkdir()
    (tmp_path / "current" / "17f.txn").write_bytes(b"")
    with BookieDir(tmp_path) as bookie:
        assert ["17f.txn"] == [path.name for path in bookie.journals]
        assert any("journals only" in finding.detail for finding in bookie.findings())


# -- what is no bookie


def test_no_such_path(tmp_path: Path) -> None:
    """A path that is not there is said to be that."""
    assert "no such directory" in _refusal(tmp_path / "nothing")


def test_folder_of_others(tmp_path: Path) -> None:
    """A folder without ``current/``, and one whose ``current/`` is somebody else's, are none."""
    (tmp_path / "file.txt").write_text("x")
    assert "not a bookie directory" in _refusal(tmp_path)

    (tmp_path / "current").mkdir()
    (tmp_path / "current" / "release.tar").write_text("x")
    assert "holds nothing of a bookie's" in _refusal(tmp_path)


def test_cluster_root_names_its_bookies(tmp_path: Path) -> None:
    """A folder of several bookies is refused with the names of some to choose from."""
    for number in range(5):
        _idx(tmp_path / f"bookie-{number}" / "ledgers", number)
    message = _refusal(tmp_path)

    assert all(str(tmp_path / f"bookie-{number}") in message for number in range(3))


def test_bookies_side_by_side_are_not_one(tmp_path: Path) -> None:
    """Directories with the same log id are several bookies' (ids are one sequence in one)."""
    for number in range(2):
        _idx(tmp_path / f"bookie-{number}", number)
        _log(tmp_path / f"bookie-{number}", 0)

    assert "are these several bookies" in _refusal(tmp_path)


def test_cookies_that_differ(tmp_path: Path) -> None:
    """Directories whose cookies name two bookies are refused, both cookies named."""
    _cookie(tmp_path, ["a"], ["/a", "/b"])
    _cookie(tmp_path, ["b"], ["/a", "/b"], "b:2")
    message = _refusal(tmp_path)

    assert str(tmp_path / "a" / "current" / "VERSION") in message
    assert str(tmp_path / "b" / "current" / "VERSION") in message
    assert "'b:2'" in message


@pytest.mark.parametrize("content", [b"\x7fELF\0\0", b"x" * (1 << 20 + 1), b"hello=world\n", b""])
def test_plain_file_is_no_conf(tmp_path: Path, content: bytes) -> None:
    """A file that names no ledger directories is refused, however large, without reading it."""
    (tmp_path / "0.log").write_bytes(content)

    assert str(tmp_path / "0.log") in _refusal(tmp_path / "0.log")


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (b"", 0),
        (b"five\n", 0),
        (b"2\nb\n/j\n1\t/l\n", 0),
        (b"6\n", 0),
        (b"3\nb\n/j\n", 0),
        (b"3\nb\n/j\n2\t/l\n", 0),
        (b"4\nbookieHost: \n", 15),
        (b"4\xff", 1),
    ],
)
def test_broken_cookie(tmp_path: Path, text: bytes, where: int) -> None:
    """A cookie that does not parse names itself and the offset."""
    (tmp_path / "current").mkdir()
    (tmp_path / "current" / "VERSION").write_bytes(text)
    with pytest.raises(CorruptionError) as caught:
        BookieDir(tmp_path)

    expected = (str(tmp_path / "current" / "VERSION"), where)
    assert expected == (caught.value.file, caught.value.offset)


@pytest.mark.parametrize("version", [3, 4, 5])
def test_cookie_versions(tmp_path: Path, version: int) -> None:
    """Both text forms of the cookie give id and directories."""
    _idx(tmp_path, 7)
    text = (
        "3\nb:9\n/j\n1\t/l\n"
        if version == 3
        else COOKIE.format(id="b:9", journal="/j", ledgers="1\\t/l").replace("4", str(version), 1)
    )
    (tmp_path / "current" / "VERSION").write_text(text)
    with BookieDir(tmp_path) as bookie:
        assert "b:9" == bookie.bookie_id
        assert bookie.folders.cookie is not None
        assert (version, ("/l",)) == (
            bookie.folders.cookie.version,
            bookie.folders.cookie.ledger_dirs,
        )


# -- bk_server.conf


def _conf(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "conf" / "bk_server.conf"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize("absolute", [True, False])
def test_conf_names_directories(tmp_path: Path, absolute: bool) -> None:
    """Paths of a conf are absolute, or relative to the conf; their order is the conf's."""
    base = f"{tmp_path}/" if absolute else "../"
    for number in range(3):
        _rocks(tmp_path / f"d{number}", *((4, 7), (5, 8), (3, 6))[number])
    conf = _conf(
        tmp_path, f"# a comment\nledgerDirectories = {base}d2,{base}d0 , {base}d1\njournalTtl=1\n"
    )
    with BookieDir(conf) as bookie:
        assert ["d2", "d0", "d1"] == _names(bookie.folders.ledger)
        assert [3, 4, 5, 6, 7, 8] == [ledger.ledger for ledger in bookie.index.ledgers()]
        assert [1, 1] == bookie.locate(4)[1].tolist()


@pytest.mark.parametrize("key", ["ledgerDirectories", "indexDirectories", "journalDirectories"])
def test_conf_with_a_missing_directory(tmp_path: Path, key: str) -> None:
    """A directory that the conf names and that is not here is named, with the conf."""
    _idx(tmp_path / "here", 7)
    lines = {"ledgerDirectories": "../here", key: "../here,../gone"}
    conf = _conf(tmp_path, "".join(f"{k}={v}\n" for k, v in lines.items()))
    message = _refusal(conf)

    assert str(conf) in message
    assert "gone" in message


def test_conf_with_a_directory_twice(tmp_path: Path) -> None:
    """The same directory in two places of the order is refused."""
    _rocks(tmp_path / "d", 0)

    assert "twice" in _refusal(_conf(tmp_path, "ledgerDirectories=../d,../conf/../d\n"))


def test_conf_in_a_wrong_order(tmp_path: Path) -> None:
    """A conf whose order contradicts where the ledgers lie is refused, not "no such ledger"."""
    _rocks(tmp_path / "a", 0, 2)
    _rocks(tmp_path / "b", 1, 3)
    message = _refusal(_conf(tmp_path, "ledgerDirectories=../b,../a\n"))

    assert "b is directory 0 of 2 by the conf" in message


# -- db storage over several directories


def test_order_found_by_ledgers(tmp_path: Path) -> None:
    """Without a cookie, directories take the place that their ledgers' numbers give."""
    for name, ledgers in {"x": (2, 5), "y": (0, 3), "z": (1, 4)}.items():
        _rocks(tmp_path / name, *ledgers)
    with BookieDir(tmp_path) as bookie:
        assert ["y", "z", "x"] == _names(bookie.folders.ledger)
        assert list(range(6)) == [ledger.ledger for ledger in bookie.index.ledgers()]
        assert [1, 1] == bookie.locate(4)[1].tolist()
        assert [] == bookie.findings()


def test_order_of_the_cookie(tmp_path: Path) -> None:
    """The cookie's order counts, not that of the names."""
    for name, ledgers in {"x": (1,), "y": (0,)}.items():
        _rocks(tmp_path / name, *ledgers)
    _cookie(tmp_path, ["x", "y"], ["/mnt/y", "/mnt/x"])
    with BookieDir(tmp_path) as bookie:
        assert (["y", "x"], "cookie") == (_names(bookie.folders.ledger), bookie.folders.ordered)
        assert [0, 1] == bookie.index.entries(1).tolist()


def test_cookie_order_that_contradicts_the_ledgers(tmp_path: Path) -> None:
    """A cookie that does not fit the ledgers is refused: a look-up would go astray."""
    for name, ledgers in {"x": (1,), "y": (0,)}.items():
        _rocks(tmp_path / name, *ledgers)
    _cookie(tmp_path, ["x", "y"], ["/mnt/x", "/mnt/y"])

    assert "by the cookie" in _refusal(tmp_path)


def test_one_directory_of_three_missing(tmp_path: Path) -> None:
    """With two of three directories, ledgers would be looked for in the wrong one: refused."""
    for number in (0, 2):
        _rocks(tmp_path / f"d{number}", *range(number, 12, 3))
    message = _refusal(tmp_path)

    assert "bk_server.conf" in message
    assert str(tmp_path / "d") in message

    _cookie(tmp_path, ["d0", "d2"], ["/d0", "/d1", "/d2"])
    assert "names 3 ledger directories, 2 are here" in _refusal(tmp_path)


def test_one_directory_alone_is_partial(tmp_path: Path) -> None:
    """One directory of three answers for its ledgers; that it is one of three is a finding."""
    _rocks(tmp_path / "d1", 1, 4)
    _cookie(tmp_path, ["d1"], ["/d0", "/d1", "/d2"])
    with BookieDir(tmp_path / "d1") as bookie:
        assert [1, 4] == [ledger.ledger for ledger in bookie.index.ledgers()]
        assert ["1 of the 3"] == [finding.detail[:10] for finding in bookie.findings()]


def test_empty_directory_takes_the_free_place(tmp_path: Path) -> None:
    """A directory without ledgers takes the place that is left."""
    _rocks(tmp_path / "a", 1)
    _rocks(tmp_path / "b")
    _rocks(tmp_path / "c", 2)
    with BookieDir(tmp_path) as bookie:
        assert ["b", "a", "c"] == _names(bookie.folders.index)


def test_directory_without_databases(tmp_path: Path) -> None:
    """A ledger directory whose databases are missing is refused by name."""
    _rocks(tmp_path / "a", 0)
    _log(tmp_path / "b", 0)
    _log(tmp_path / "a", 0)
    message = _refusal(tmp_path)

    assert "b" in message


def test_stray_ledger_is_a_finding(tmp_path: Path) -> None:
    """A single ledger in the wrong directory does not hide the others; it is named."""
    _rocks(tmp_path / "a", 0, 2, 5)
    _rocks(tmp_path / "b", 1, 3)
    conf = _conf(tmp_path, "ledgerDirectories=../a,../b\n")
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
    _idx(tmp_path, 7)
    _rocks(tmp_path, 8)
    assert "interrupted conversion" in _refusal(tmp_path)

    for layout, ledger in (("idx", 7), ("rocksdb", 8)):
        with BookieDir(tmp_path, layout=layout) as bookie:  # type: ignore[arg-type]
            assert [ledger] == [name.ledger for name in bookie.index.ledgers()]


def test_mixed_directories(tmp_path: Path) -> None:
    """One directory with index files beside one with databases: refused, both named."""
    _idx(tmp_path / "a", 7)
    _rocks(tmp_path / "b", 8)
    message = _refusal(tmp_path)

    assert str(tmp_path / "a") in message
    assert str(tmp_path / "b") in message


def test_chosen_layout_must_be_there(tmp_path: Path) -> None:
    """Asking for the layout that is not there is refused, not answered with "nothing"."""
    _rocks(tmp_path / "r", 7)
    _idx(tmp_path / "i", 7)
    for name, layout in (("r", "idx"), ("i", "rocksdb")):
        with pytest.raises(UnsupportedLayout, match=f"not {layout}"):
            BookieDir(tmp_path / name, layout=layout)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="layout must be"):
        BookieDir(tmp_path / "r", layout="memtable")  # type: ignore[arg-type]


# -- odd index files


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """Return a bookie with two index directories and index files where they do not belong."""
    _idx(tmp_path / "a", 7, 8)
    _idx(tmp_path / "b", 9)
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
    _idx(tmp_path / "a", 7, 8)
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
