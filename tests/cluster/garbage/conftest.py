"""A bookie with garbage."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bkstore import Bookie
from tests.cluster.garbage.bookies import GONE, LIVE, add, open_bookie


@pytest.fixture
def bookie(tmp_path: Path) -> Iterator[Bookie]:
    """Return a bookie with closed logs in which two ledgers take turns, the second in fewer."""
    with open_bookie(tmp_path / "b", "interleaved", log_size=8192) as opened:
        for start in range(0, 40, 4):
            add(opened, LIVE, range(start, start + 4))
            add(opened, GONE, range(start, start + 4))
        opened.checkpoint()
        yield opened
