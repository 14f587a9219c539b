"""Loads of dumps of directories that the real BookKeeper wrote: the index answers as it did."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bkstore import open_index
from bkstore.errors import InvalidArgument, UnsupportedLayout
from bkstore.offline.dump import dump
from bkstore.offline.load import load

pytest.importorskip("pyarrow")


@pytest.fixture(scope="module")
def dumped(tree: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a dump of the tree, in small pieces."""
    out = tmp_path_factory.mktemp("dumped") / "out"
    dump([tree.root], out, piece_rows=700)
    return out


def test_rocksdb(tree: Any, dumped: Path, reader: Any, tmp_path: Path) -> None:
    """Loaded to RocksDB, every answer of the real bookie holds: entries, locations, states."""
    result = load(dumped, tmp_path / "out", "rocksdb")
    count = sum(answer["num_entries"] for answer in tree.known)

    assert (count, len(tree.known), 0, True) == (
        result.rows,
        result.ledgers,
        result.duplicates,
        result.compared,
    )
    with open_index(tmp_path / "out") as index:
        assert "rocksdb" == index.layout
        reader.everything(index, tree)


def test_idx(tree: Any, dumped: Path, reader: Any, tmp_path: Path) -> None:
    """Loaded to index files likewise, but for limbo, which they have no place for.

    Directories with entry logs of the same ids, ledgers in limbo, and entries so far apart that
    their file would have more than 2^30 slots, are refused.
    """
    limbo = any(answer.get("limbo") is True for answer in tree.known)
    several = tree.layout == "rocksdb" and len(list(tree.root.glob("*/current/locations"))) > 1
    sparse = any(last >= 2**30 for answer in tree.known for _, last in answer["entries"])
    if limbo or several or sparse:
        with pytest.raises((UnsupportedLayout, InvalidArgument), match="load to rocksdb"):
            load(dumped, tmp_path / "out", "idx")

        assert [] == list(tmp_path.iterdir())
        return
    load(dumped, tmp_path / "out", "idx")
    with open_index(tmp_path / "out") as index:
        assert "idx" == index.layout
        reader.everything(index, tree, limbo=False)
