"""Bookies that the tests of rewrites share, made once: they are only read."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from tests.worlds.bookies import Made, make_bookie

SHAPES: dict[str, dict[str, object]] = {
    "sorted": {"storage": "sorted"},
    "interleaved-tail": {"storage": "interleaved", "journals": 2, "checkpoint": False},
    "interleaved-3": {"storage": "interleaved", "directories": 3, "indexes": 3},
    "sorted-2-tail": {"storage": "sorted", "directories": 2, "checkpoint": False},
    "db": {"storage": "db"},
    "db-2-tail": {"storage": "db", "directories": 2, "checkpoint": False, "indexes": 2},
    "db-3": {"storage": "db", "directories": 3, "journals": 2},
}


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Made]:
    """Return a function from the name of a shape to a bookie of that shape."""
    top = tmp_path_factory.mktemp("bookies")

    @cache
    def bookie(name: str) -> Made:
        return make_bookie(top / name, seed=len(name), **SHAPES[name])  # type: ignore[arg-type]

    return bookie
