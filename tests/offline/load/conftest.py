"""What several tests of loads load."""

from __future__ import annotations

from pathlib import Path

import pytest

from bkstore.offline.dump import dump
from tests.worlds.dumps import three_bookies


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a dump of a bookie of each layout, all with CONTENT."""
    top = tmp_path_factory.mktemp("three")
    dump(three_bookies(top), top / "dump", piece_rows=2000)
    return top / "dump"
