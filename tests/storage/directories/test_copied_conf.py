"""A `bk_server.conf` that was copied: where its directories are, and what is not guessed."""

from __future__ import annotations

import csv
import json
import os
import re
from pathlib import Path

import pytest

from bkstore import BookieDir, InvalidArgument, LedgerId, UnsupportedLayout, open_index
from bkstore.cli.main import main
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.index.rocks import RocksIndex
from bkstore.storage.directories.conf_directories import locate_directories

CONF = "ledgerDirectories=/nowhere/d1/bk/ledgers,/nowhere/d2/bk/ledgers\n"


def _index(folder: Path, ledger: int) -> None:
    with HierarchicalIndex(folder, writable=True) as index:
        index.put_many(ledger, [0, 1], [1028, 1100])


def _copy(top: Path, *places: str, conf: str = CONF) -> Path:
    """Make directories that hold ledgers 1, 2, ... and a conf beside them; return the conf."""
    for number, place in enumerate(places, 1):
        _index(top / place, number)
    top.mkdir(exist_ok=True)
    (top / "bk_server.conf").write_text(conf)
    return top / "bk_server.conf"


@pytest.mark.parametrize(
    "places",
    [
        ("nowhere/d1/bk/ledgers", "nowhere/d2/bk/ledgers"),
        ("d1/bk/ledgers", "d2/bk/ledgers"),
        ("host/mnt/d1/bk/ledgers", "host/mnt/d2/bk/ledgers"),
    ],
    ids=["whole paths", "last components", "deeper"],
)
def test_found_beside(tmp_path: Path, places: tuple[str, str]) -> None:
    """Directories of a copied conf are told by the last components of their paths, in its order."""
    conf = _copy(tmp_path / "copy", *places)
    with BookieDir(conf) as bookie:
        named = {c.parent: str(path) for c, path in bookie.folders.configured.items()}

        assert [conf.parent / place / "current" for place in places] == bookie.folders.ledger
        assert [1, 2] == [ledger.ledger for ledger in bookie.index.ledgers()]
    assert {
        conf.parent / places[0]: "/nowhere/d1/bk/ledgers",
        conf.parent / places[1]: "/nowhere/d2/bk/ledgers",
    } == named


def test_order_of_the_conf_counts(tmp_path: Path) -> None:
    """With RocksDB, directory `L mod n` of the conf's order has ledger L, in the copy too."""
    conf = _copy(tmp_path, conf="ledgerDirectories=/nowhere/zz,/nowhere/aa\n")
    for name, ledgers in (("zz", (2, 4)), ("aa", (1, 3))):
        with RocksIndex(tmp_path / name, writable=True) as index:
            for ledger in ledgers:
                index.put_many(ledger, [0], [1028])
    with open_index(conf) as index:
        assert [1, 2, 3, 4] == [ledger.ledger for ledger in index.ledgers()]
        assert [0] == index.entries(LedgerId.of(3)).tolist()


def test_root(tmp_path: Path) -> None:
    """`root` is where they are, whatever lies beside the conf or where the conf says."""
    places = ("nowhere/d1/bk/ledgers", "nowhere/d2/bk/ledgers")
    conf = _copy(tmp_path / "copy", *places)
    _index(tmp_path / "backup" / "d1" / "bk" / "ledgers", 7)
    _index(tmp_path / "backup" / "d2" / "bk" / "ledgers", 8)
    with open_index(conf, root=tmp_path / "backup") as index:
        assert [7, 8] == [ledger.ledger for ledger in index.ledgers()]
    original = _copy(
        tmp_path / "live", conf=f"ledgerDirectories={conf.parent}/nowhere/d1/bk/ledgers\n"
    )
    with open_index(original) as index:
        assert [1] == [ledger.ledger for ledger in index.ledgers()]
    with open_index(original, root=tmp_path / "backup") as index:
        assert [7] == [ledger.ledger for ledger in index.ledgers()]
    with pytest.raises(InvalidArgument, match="root requires a bk_server"):
        BookieDir(tmp_path / "copy" / "nowhere" / "d1", root=tmp_path)


@pytest.mark.parametrize(
    ("places", "conf", "said"),
    [
        (("a/ledgers", "b/ledgers"), CONF, "/nowhere/d1/bk/ledgers, which matches "),
        (("d1/bk/ledgers",), CONF, "only {top}/d1/bk/ledgers was found for both"),
        (("d1/bk/ledgers", "d2/bk/other"), CONF, "only {top}/d1/bk/ledgers was found for both"),
        (
            ("x",),
            CONF,
            "/nowhere/d1/bk/ledgers, which is not here; {top} has no folder 'ledgers' with a ",
        ),
        (("l1",), "ledgerDirectories={top}/l1,{top}/l2\n", "names {top}/l2, which has no current/"),
    ],
    ids=["ambiguous", "one of two", "one renamed", "none", "one missing in place"],
)
def test_never_guessed(tmp_path: Path, places: tuple[str, ...], conf: str, said: str) -> None:
    """Where a directory fits several places, none, or two fit one, that is named and refused."""
    path = _copy(tmp_path, *places, conf=conf.format(top=tmp_path))
    with pytest.raises(UnsupportedLayout, match=re.escape(said.format(top=tmp_path))):
        BookieDir(path)


def test_originals_and_copies_are_not_mixed(tmp_path: Path) -> None:
    """If one directory is where the conf says, a folder beside it stands for none of the others."""
    _index(tmp_path / "real" / "l1", 1)
    _index(tmp_path / "copy" / "l2", 2)
    conf = _copy(tmp_path / "copy", conf=f"ledgerDirectories={tmp_path}/real/l1,/nowhere/l2\n")
    with pytest.raises(UnsupportedLayout, match="names /nowhere/l2, which has no current/ here"):
        BookieDir(conf)


def test_bookies_are_not_looked_into(tmp_path: Path) -> None:
    """What lies inside a directory with a `current/` is that directory's own."""
    _index(tmp_path / "ledgers", 1)
    (tmp_path / "ledgers" / "ledgers" / "current").mkdir(parents=True)
    conf = tmp_path / "bk_server.conf"

    assert {Path("/nowhere/ledgers"): tmp_path / "ledgers"} == locate_directories(
        conf, [Path("/nowhere/ledgers")], None
    )


def test_inspect_says_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`inspect` says of each directory of a copy where it is and what the conf calls it."""
    conf = _copy(tmp_path, "d1/bk/ledgers", "d2/bk/ledgers")

    assert 0 == main(["inspect", str(conf), "--format", "json"])
    said = json.loads(capsys.readouterr().out)
    second = f"{tmp_path}/d2/bk/ledgers/current"
    assert second == said["directories"]["ledger"][1]
    assert "/nowhere/d2/bk/ledgers" == said["configured"][second]
    assert "conf" == said["directory_order_from"]

    assert 0 == main(["inspect", str(conf), "--format", "csv"])
    rows = dict(csv.reader(capsys.readouterr().out.splitlines()))
    assert second == rows["ledger directory 1"]
    assert "/nowhere/d2/bk/ledgers" == rows["ledger directory 1 in the conf"]


def test_commands_take_root(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--root goes through all ways in which commands open a bookie (3: no ledger to audit)."""
    conf = str(_copy(tmp_path / "etc"))
    root = tmp_path / "backup"
    for number in (1, 2):
        _index(root / f"d{number}" / "bk" / "ledgers", number)
    metadata = tmp_path / "m.json"
    metadata.write_text('{"ledgers": []}')
    given = ["--root", str(root)]

    assert 2 == main(["ledgers", conf])
    assert 0 == main(["ledgers", conf, *given, "--format", "csv"])
    assert 3 == main(["audit", str(metadata), f"b={conf}", *given])
    pytest.importorskip("pyarrow")
    assert 0 == main(["dump", conf, str(tmp_path / "out"), *given])
    assert "4 entries" in capsys.readouterr().err
    assert [] == [name for name in os.listdir(tmp_path / "etc") if name != "bk_server.conf"]
