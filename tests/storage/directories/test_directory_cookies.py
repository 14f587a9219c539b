"""The cookie of the directories that a bookie writes to: whose they are, of which cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from bkstore import Bookie, BookieDir, UnsupportedLayout
from bkstore.formats import cookie as cookie_format
from tests.worlds.bookies import tree_bytes

CLUSTER = "0f1e2d3c-4b5a-4978-8695-a4b3c2d1e0ff"


def _cookies(top: Path) -> list[cookie_format.Cookie]:
    paths = sorted(top.glob("*/current/VERSION"))
    return [cookie_format.decode(path.read_bytes()) for path in paths]


def test_a_new_bookie_of_a_cluster(tmp_path: Path) -> None:
    """The cluster's instance id stands in every cookie, and stays when nobody asks for it."""
    for _ in range(2):
        Bookie.open(tmp_path / "b", bookie_id="b:3181", instance_id=CLUSTER).close()
    Bookie.open(tmp_path / "b").close()
    Bookie.open(tmp_path / "alone", bookie_id="a:3181").close()

    assert [("b:3181", CLUSTER)] * 2 == [
        (each.bookie_id, each.instance_id) for each in _cookies(tmp_path / "b")
    ]
    assert [None, None] == [each.instance_id for each in _cookies(tmp_path / "alone")]
    assert f'instanceId: "{CLUSTER}"' in (tmp_path / "b/ledgers/current/VERSION").read_text()


@pytest.mark.parametrize(
    ("made", "said"),
    [("another", "of cluster another, not"), (None, "of no cluster, not")],
)
def test_another_cluster(made: str | None, said: str, tmp_path: Path) -> None:
    """Directories of another cluster, or of none, are refused as they are; nothing changes."""
    Bookie.open(tmp_path / "b", bookie_id="b:3181", instance_id=made).close()
    before = tree_bytes(tmp_path / "b")
    with pytest.raises(UnsupportedLayout, match=f"{said} of cluster {CLUSTER}"):
        Bookie.open(tmp_path / "b", instance_id=CLUSTER)

    assert before == tree_bytes(tmp_path / "b")


def test_another_bookie(tmp_path: Path) -> None:
    """A bookie with another id is refused; the id of the cookie holds where none is given."""
    Bookie.open(tmp_path / "b", bookie_id="b:3181").close()
    with pytest.raises(UnsupportedLayout, match="of bookie 'b:3181', not of 'c:3181'"):
        Bookie.open(tmp_path / "b", bookie_id="c:3181")
    with Bookie.open(tmp_path / "b") as bookie, BookieDir(tmp_path / "b", live=True) as read:
        assert "b:3181" == bookie.bookie_id == read.bookie_id


def test_a_disk_that_is_not_mounted(tmp_path: Path) -> None:
    """A directory without the cookie that the others have is refused once anything is stored."""
    ledgers = [tmp_path / "one", tmp_path / "two"]
    journals = [tmp_path / "journal"]
    Bookie.open(ledger_dirs=ledgers, journal_dirs=journals).close()
    (ledgers[1] / "current" / "VERSION").unlink()
    with pytest.raises(UnsupportedLayout, match="no cookie here"):
        Bookie.open(ledger_dirs=ledgers, journal_dirs=journals)


@pytest.mark.parametrize(
    ("names", "said"),
    [(["one"], "names 2 ledger directories, 1 are given"), (["two", "one"], "in another order")],
)
def test_other_directories(names: list[str], said: str, tmp_path: Path) -> None:
    """Number and order of the directories are those of the cookie: they place ledgers."""
    journals = [tmp_path / "journal"]
    ledgers = [tmp_path / name for name in ("one", "two")]
    Bookie.open(ledger_dirs=ledgers, journal_dirs=journals).close()
    with pytest.raises(UnsupportedLayout, match=said):
        Bookie.open(ledger_dirs=[tmp_path / name for name in names], journal_dirs=journals)
