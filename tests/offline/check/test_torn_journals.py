"""Journals with a record of which a crash left a part: offline reading goes on behind it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bkstore import Bookie, BookieDir, LedgerId, open_index
from bkstore.formats.journal import encode_special
from bkstore.offline.check import Check
from bkstore.offline.rewrite import rebuild_index
from tests.worlds.torn_journals import KEY, torn_inside


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """Return a bookie with a torn record in its first journal, and a fence in its second."""
    torn_inside(tmp_path / "bookie", encode_special("fence", LedgerId(5, 7)), 8)
    with Bookie.open(tmp_path / "bookie") as bookie:
        bookie.checkpoint()
        bookie.fence(7, KEY)
        bookie.close(checkpoint=False)
    return tmp_path / "bookie"


def test_check(top: Path) -> None:
    """It is a finding of the journal, and what is before it counts."""
    with BookieDir(top) as bookie:
        check = Check(bookie)
        found = [each for each in check if each.kind == "journal"]

        assert 1 == len(found)
        assert "record is torn, its ids end in zeros" in found[0].detail
        assert 2 <= check.coverage.journal_records


def test_rebuilt_states(top: Path, tmp_path: Path) -> None:
    """States that journals tell are there, in front of it and behind it."""
    shutil.rmtree(top / "ledgers" / "current" / "0")  # the index
    result = rebuild_index(top, tmp_path / "rebuilt", "idx")
    with open_index(tmp_path / "rebuilt") as index:
        state = index.state(7)

        assert (KEY, True) == (state.master_key, state.fenced)
    assert any("record is torn" in each.detail for each in result.findings)
