"""Range by range, a new index is compared with sorted files: every row, and rows that none has."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkstore import LedgerId
from bkstore.errors import CorruptionError
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.index.rocks import RocksIndex
from bkstore.offline.dump import dump
from bkstore.offline.load import load
from bkstore.offline.load.compared_ranges import compare_range, plan_comparison
from bkstore.offline.load.dump_rows import open_load_source
from bkstore.storage.read_only.bookie_dir import open_index
from tests.worlds.loads import World, fill, make_world

pytest.importorskip("pyarrow")

Kinds: dict[str, Any] = {"rocksdb": RocksIndex, "idx": HierarchicalIndex}


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, World]:
    """Return a dump of several sorted files, and what is in it."""
    top, world = tmp_path_factory.mktemp("given"), make_world(61, 14)
    fill(RocksIndex(top / "b", writable=True), world)
    dump([top / "b"], top / "dump", piece_rows=900)
    return top / "dump", world


@pytest.fixture(scope="module")
def loaded(given: tuple[Path, World], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return what the dump becomes, by layout."""
    top = tmp_path_factory.mktemp("loaded")
    tos: list[Any] = ["rocksdb", "idx"]
    for to in tos:
        load(given[0], top / to, to, compare=False)
    return {to: top / to for to in tos}


def compared(dumped: Path, to: str, data: Path, rows: int, bookie: str | None = None) -> int:
    """Return how many rows all ranges have."""
    source = open_load_source(dumped, bookie)
    with open_index(data, layout=to) as index:
        ledgers = index.ledgers() if to == "idx" else []
    ranges = list(plan_comparison(source, rows, ledgers))

    assert len(ranges) > (source.rows > rows)
    assert set(range(source.directories)) == {each.dir_index for each in ranges}
    return sum(compare_range(source, to, data, each) for each in ranges)


@pytest.mark.parametrize("rows", [1, 700, 1 << 20])
@pytest.mark.parametrize("to", ["rocksdb", "idx"])
def test_ranges_of_any_size_have_every_row(
    given: tuple[Path, World], loaded: dict[str, Path], to: Any, rows: int
) -> None:
    """Ranges follow each other without a gap, and have all rows together, once."""
    kept = sum(len(held) for held, _ in given[1].values())

    assert kept == compared(given[0], to, loaded[to], rows)


@pytest.mark.long
def test_ranges_of_several_directories(three: Path, tmp_path: Path) -> None:
    """Each ledger directory has ranges of its own, one without files too."""
    load(three, tmp_path / "out", "rocksdb", bookie="rocks3", compare=False)

    assert 9050 == compared(three, "rocksdb", tmp_path / "out", 3000, "rocks3")


def changed(index: Any, world: World) -> None:
    """Move a row of the longest ledger."""
    name = max(world, key=lambda each: len(world[each][0]))
    index.put(name, max(world[name][0]), 7)


def added(index: Any, world: World) -> None:
    """Add a row behind those of a ledger."""
    name = max(world, key=lambda each: len(world[each][0]))
    index.put(name, max(world[name][0]) + 1, 7)


def removed(index: Any, world: World) -> None:
    """Delete a ledger that has rows."""
    index.delete(max(world, key=lambda each: len(world[each][0])))


def in_front(index: Any, _: World) -> None:
    """Add a ledger before all of the dump."""
    index.put(LedgerId(0, 0), 3, 7)


def at_the_end(index: Any, _: World) -> None:
    """Add a ledger behind all of the dump."""
    index.put(LedgerId(2**64 - 1, 2**64 - 1), 3, 7)


def between(index: Any, world: World) -> None:
    """Add a ledger right behind one that the dump has."""
    scope, ledger = sorted(name for name in world if name.ledger % 2**63 < 2**63 - 1)[5]
    index.put(LedgerId(scope, ledger + 1), 3, 7)


@pytest.mark.parametrize("rows", [1, pytest.param(1 << 20, marks=pytest.mark.long)])
@pytest.mark.parametrize("to", ["rocksdb", "idx"])
@pytest.mark.parametrize("tamper", [changed, added, removed, in_front, at_the_end, between])
def test_every_difference_is_found(
    given: tuple[Path, World],
    loaded: dict[str, Path],
    tmp_path: Path,
    to: Any,
    rows: int,
    tamper: Callable[[Any, World], None],
) -> None:
    """A row that is another, one too many or too few, wherever it lies, is named."""
    shutil.copytree(loaded[to], tmp_path / "out")
    with Kinds[to](tmp_path / "out", writable=True) as index:
        tamper(index, given[1])
    with pytest.raises(CorruptionError, match=r"ledger .*, entry \d+, location .* is (here|in)"):
        compared(given[0], to, tmp_path / "out", rows)


def test_a_torn_index_file_is_damage(
    given: tuple[Path, World], loaded: dict[str, Path], tmp_path: Path
) -> None:
    """What of an index file cannot be read ends the comparison."""
    shutil.copytree(loaded["idx"], tmp_path / "out")
    name = max(given[1], key=lambda each: len(given[1][each][0]))
    with HierarchicalIndex(tmp_path / "out") as index:
        path = Path(index.path(name) or "")
    path.write_bytes(b"no index file" + path.read_bytes()[13:])
    with pytest.raises(CorruptionError, match=path.name):
        compared(given[0], "idx", tmp_path / "out", 700)
