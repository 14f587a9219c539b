"""What the tests of writers share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bkstore.cluster.client.workers import Workers


@pytest.fixture
def workers() -> Iterator[Workers]:
    """Yield the threads of a client."""
    with Workers() as made:
        yield made
