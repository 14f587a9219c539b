"""Bookies with an admin in front of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bkstore import Bookie
from bkstore.wire.admin import AdminServer
from tests.wire.admin.asking import TOKEN


@pytest.fixture(params=["sorted", "interleaved", "db"])
def storage(request: pytest.FixtureRequest) -> str:
    """Return each storage in turn."""
    name: str = request.param
    return name


@pytest.fixture
def bookie(tmp_path: Path) -> Iterator[Bookie]:
    """Return a bookie of db storage: of it most can be asked."""
    with Bookie.open(tmp_path / "b", "db", bookie_id="bookie-1") as opened:
        yield opened


@pytest.fixture
def admin(bookie: Bookie) -> Iterator[AdminServer]:
    """Return the admin of `bookie`, with a token, without a metadata store."""
    pytest.importorskip("aiohttp")
    with AdminServer(bookie, token=TOKEN) as serving:
        yield serving


@pytest.fixture
def strict_log(caplog: pytest.LogCaptureFixture) -> Iterator[Any]:
    """Fail a test in which the admin logged an exception."""
    yield caplog

    assert [] == [record.getMessage() for record in caplog.records if record.exc_info]
