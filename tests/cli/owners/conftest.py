"""Two bookies with ledgers of several owners, for the commands that read both."""

from __future__ import annotations

import pytest

from tests.cli.owners.owned_bookies import Copies, make_bookies, make_metadata


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Copies:
    """Return two bookies that nothing changes."""
    top = tmp_path_factory.mktemp("owned")
    return Copies(*make_bookies(top), make_metadata(top / "metadata.json"))
