"""Every backend of an index: how each is made, and reopened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from bkstore.index.api import EntryIndex
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.index.memtable import MemtableIndex
from bkstore.index.partitioned import PartitionedIndex


@dataclass(frozen=True)
class Backend:
    """How one kind of index is made and reopened, as `EntryIndexSuite` wants it."""

    name: str
    make: Callable[[Path], EntryIndex]
    reopen: Callable[[Path], EntryIndex | None]


def _rocks(path: Path, writable: bool = False) -> EntryIndex:
    from bkstore.index.rocks import RocksIndex

    return RocksIndex(path, writable=writable)


def _rocks_parts(path: Path, writable: bool = False) -> EntryIndex:
    return PartitionedIndex([_rocks(path / f"d{n}", writable) for n in range(3)])


BACKENDS = [
    Backend("memtable", lambda path: MemtableIndex(), lambda path: None),
    Backend("idx", lambda path: HierarchicalIndex(path, writable=True), HierarchicalIndex),
    Backend(
        "idx2",
        lambda path: HierarchicalIndex([path / "a", path / "b"], writable=True),
        lambda path: HierarchicalIndex([path / "a", path / "b"]),
    ),
    Backend("rocks", lambda path: _rocks(path, True), _rocks),
    Backend("rocks3", lambda path: _rocks_parts(path, True), _rocks_parts),
]


@pytest.fixture(params=BACKENDS, ids=lambda backend: backend.name)
def backend(request: pytest.FixtureRequest) -> Backend:
    """Return each backend in turn."""
    found: Backend = request.param
    return found


@pytest.fixture(scope="session")
def backends() -> list[Backend]:
    """Return all backends."""
    return BACKENDS
