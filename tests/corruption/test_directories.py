"""Which directories a path stands for: roots, cookies, configuration files.

Rule of the family: the right directories in the right order, or one error that names the
directory at fault and says what to do; never a look-up in the wrong directory.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from bkstore import (
    Bookie,
    BookieDir,
)
from bkstore.formats.entry import Entry, encode
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.storage.options import StorageKind
from tests.corruption.made_directories import (
    COOKIE,
    folder_names,
    make_conf,
    make_cookies,
    make_idx,
    make_log,
    make_rocks,
    refusal,
)

# -- what a path may be


@pytest.mark.parametrize("ends", ["", "current"])
def test_one_directory(tmp_path: Path, ends: str) -> None:
    """A ledger directory and its ``current/`` say the same."""
    make_idx(tmp_path, 7)
    with BookieDir(tmp_path / ends) as bookie:
        assert [tmp_path / "current"] == bookie.folders.ledger
        assert [7] == [ledger.ledger for ledger in bookie.index.ledgers()]


def test_natural_order_of_names(tmp_path: Path) -> None:
    """Without another word, directories come in the order that people number them in."""
    for number in (0, 2, 10):
        make_idx(tmp_path / f"ledgers{number}", number)
    with BookieDir(tmp_path) as bookie:
        assert ["ledgers0", "ledgers2", "ledgers10"] == folder_names(bookie.folders.ledger)
        assert [0, 2, 10] == [ledger.ledger for ledger in bookie.index.ledgers()]


def test_roles_are_told_by_content(tmp_path: Path) -> None:
    """Index, ledger and journal directories are told apart by what they hold."""
    make_idx(tmp_path / "a", 7)
    make_log(tmp_path / "b", 0)
    (tmp_path / "c" / "current").mkdir(parents=True)
    (tmp_path / "c" / "current" / "17f.txn").write_bytes(b"")
    with BookieDir(tmp_path) as bookie:
        assert ["a"] == folder_names(bookie.folders.index)
        assert ["b"] == folder_names(bookie.folders.ledger)
        assert ["c"] == folder_names(bookie.folders.journal)
        assert [0, 0] == bookie.locate(7)[1].tolist()


def test_separate_index_directories(tmp_path: Path) -> None:
    """Index directories beside ledger directories; an empty one counts by its name."""
    for number in (0, 1):
        make_log(tmp_path / f"ledgers{number}", number)
        (tmp_path / f"index{number}" / "current").mkdir(parents=True)
    make_idx(tmp_path / "index1", 7)
    with BookieDir(tmp_path) as bookie:
        assert ["index0", "index1"] == folder_names(bookie.folders.index)
        assert ["ledgers0", "ledgers1"] == folder_names(bookie.folders.ledger)
        assert [0, 1] == bookie.index.entries(7).tolist()


def test_links_are_followed(tmp_path: Path) -> None:
    """A directory that is reached through links reads like the directory."""
    make_idx(tmp_path / "real", 7)
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "ledgers").symlink_to(tmp_path / "real")
    (tmp_path / "link").symlink_to(tmp_path / "root")
    with BookieDir(tmp_path / "link") as bookie:
        assert [7] == [ledger.ledger for ledger in bookie.index.ledgers()]


def test_empty_bookie(tmp_path: Path) -> None:
    """A bookie that was formatted and never written to lists nothing, and has an id."""
    make_cookies(tmp_path, ["ledgers"], ["/ledgers"])
    with BookieDir(tmp_path) as bookie:
        assert ([], "b:1", []) == (bookie.index.ledgers(), bookie.bookie_id, bookie.findings())


def test_emptied_bookie(tmp_path: Path) -> None:
    """The hex folders that stay after the last ledger was deleted are a bookie's."""
    make_idx(tmp_path, 7)
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


@pytest.mark.parametrize("storage", ["db", "sorted"])
def test_one_directory_for_all(tmp_path: Path, storage: StorageKind) -> None:
    """A journal beside index and logs, in one directory, is no oddity."""
    with Bookie.open(ledger_dirs=[tmp_path], journal_dirs=[tmp_path], storage=storage) as bookie:
        bookie.add_entry(encode(Entry(7, 0, -1, 0, b"x"), "CRC32C"), b"k" * 20)
    with BookieDir(tmp_path) as directory:
        assert directory.folders.index == directory.folders.journal
        assert [] == directory.findings()


# -- what is no bookie


def test_no_such_path(tmp_path: Path) -> None:
    """A path that is not there is said to be that."""
    assert "no such directory" in refusal(tmp_path / "nothing")


def test_folder_of_others(tmp_path: Path) -> None:
    """A folder without ``current/``, and one whose ``current/`` is somebody else's, are none."""
    (tmp_path / "file.txt").write_text("x")
    assert "not a bookie directory" in refusal(tmp_path)

    (tmp_path / "current").mkdir()
    (tmp_path / "current" / "release.tar").write_text("x")
    assert "contains no files of a bookie" in refusal(tmp_path)


def test_cluster_root_names_its_bookies(tmp_path: Path) -> None:
    """A folder of several bookies is refused with the names of some to choose from."""
    for number in range(5):
        make_idx(tmp_path / f"bookie-{number}" / "ledgers", number)
    message = refusal(tmp_path)

    assert all(str(tmp_path / f"bookie-{number}") in message for number in range(3))


def test_bookies_side_by_side_are_not_one(tmp_path: Path) -> None:
    """Directories with the same log id are several bookies' (ids are one sequence in one)."""
    for number in range(2):
        make_idx(tmp_path / f"bookie-{number}", number)
        make_log(tmp_path / f"bookie-{number}", 0)

    assert "if these are several bookies" in refusal(tmp_path)


def test_cookies_that_differ(tmp_path: Path) -> None:
    """Directories whose cookies name two bookies are refused, both cookies named."""
    make_cookies(tmp_path, ["a"], ["/a", "/b"])
    make_cookies(tmp_path, ["b"], ["/a", "/b"], "b:2")
    message = refusal(tmp_path)

    assert str(tmp_path / "a" / "current" / "VERSION") in message
    assert str(tmp_path / "b" / "current" / "VERSION") in message
    assert "'b:2'" in message


@pytest.mark.parametrize("content", [b"\x7fELF\0\0", b"x" * (1 << 20 + 1), b"hello=world\n", b""])
def test_plain_file_is_no_conf(tmp_path: Path, content: bytes) -> None:
    """A file that names no ledger directories is refused, however large, without reading it."""
    (tmp_path / "0.log").write_bytes(content)

    assert str(tmp_path / "0.log") in refusal(tmp_path / "0.log")


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
    """A cookie that does not parse is damage with its file and offset; all else can be read."""
    make_idx(tmp_path, 7)
    (tmp_path / "current" / "VERSION").write_bytes(text)
    with BookieDir(tmp_path) as bookie:
        damage = [each for each in bookie.findings() if each.severity == "damage"]

        assert [7] == [ledger_id.ledger for ledger_id in bookie.index.ledgers()]
        assert bookie.folders.cookie is None
    expected = (str(tmp_path / "current" / "VERSION"), where)
    assert [expected] == [(each.file, each.offset) for each in damage]


@pytest.mark.parametrize("version", [3, 4, 5])
def test_cookie_versions(tmp_path: Path, version: int) -> None:
    """Both text forms of the cookie give id and directories."""
    make_idx(tmp_path, 7)
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


@pytest.mark.parametrize("absolute", [True, False])
def test_conf_names_directories(tmp_path: Path, absolute: bool) -> None:
    """Paths of a conf are absolute, or relative to the conf; their order is the conf's."""
    base = f"{tmp_path}/" if absolute else "../"
    for number in range(3):
        make_rocks(tmp_path / f"d{number}", *((4, 7), (5, 8), (3, 6))[number])
    conf = make_conf(
        tmp_path, f"# a comment\nledgerDirectories = {base}d2,{base}d0 , {base}d1\njournalTtl=1\n"
    )
    with BookieDir(conf) as bookie:
        assert ["d2", "d0", "d1"] == folder_names(bookie.folders.ledger)
        assert [3, 4, 5, 6, 7, 8] == [ledger.ledger for ledger in bookie.index.ledgers()]
        assert [1, 1] == bookie.locate(4)[1].tolist()


@pytest.mark.parametrize("key", ["ledgerDirectories", "indexDirectories", "journalDirectories"])
def test_conf_with_a_missing_directory(tmp_path: Path, key: str) -> None:
    """A directory that the conf names and that is not here is named, with the conf."""
    make_idx(tmp_path / "here", 7)
    lines = {"ledgerDirectories": "../here", key: "../here,../gone"}
    conf = make_conf(tmp_path, "".join(f"{k}={v}\n" for k, v in lines.items()))
    message = refusal(conf)

    assert str(conf) in message
    assert "gone" in message


def test_conf_with_a_directory_twice(tmp_path: Path) -> None:
    """The same directory in two places of the order is refused."""
    make_rocks(tmp_path / "d", 0)

    assert "twice" in refusal(make_conf(tmp_path, "ledgerDirectories=../d,../conf/../d\n"))


def test_conf_in_a_wrong_order(tmp_path: Path) -> None:
    """A conf whose order contradicts where the ledgers lie is refused, not "no such ledger"."""
    make_rocks(tmp_path / "a", 0, 2)
    make_rocks(tmp_path / "b", 1, 3)
    message = refusal(make_conf(tmp_path, "ledgerDirectories=../b,../a\n"))

    assert "b is directory 0 of 2 by the conf" in message
