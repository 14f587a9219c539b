"""Three bookies of one content, and their dump, made once for each family."""

from __future__ import annotations

from pathlib import Path

import pytest

from bkstore.offline.dump import dump
from tests.worlds.dumps import three_bookies


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return a bookie of each layout, all with the same content."""
    return three_bookies(tmp_path_factory.mktemp("three"))


@pytest.fixture(scope="module")
def whole(three: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a dump of the three, made in one go by one process."""
    out = tmp_path_factory.mktemp("whole") / "out"
    dump(three, out, piece_rows=2000)
    return out
