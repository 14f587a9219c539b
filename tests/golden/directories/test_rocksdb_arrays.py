"""RocksDB databases of the real BookKeeper, read as arrays: equal to what the binding reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bkstore.index.rocks.database import Database
from bkstore.index.rocks.tables import DatabaseReader


def databases(root: Path) -> list[Path]:
    """Return the `locations` and `ledgers` databases below a tree."""
    return sorted(path.parent for path in root.rglob("CURRENT"))


def test_rows_are_the_bindings(tree: Any) -> None:
    """All rows of each database, one at a time; those of `locations` in arrays too."""
    paths = databases(tree.root)
    if tree.layout == "idx":
        assert not [path for path in paths if path.name.startswith("locations")]
        pytest.skip("db storage only")
    assert paths
    for path in paths:
        database = Database(path)
        try:
            expected = database.read_all()
        finally:
            database.close()
        reader = DatabaseReader(path)

        assert expected == reader.items()
        if path.name == "locations":
            rows = [
                (batch.key_at(row), value.to_bytes(8, "big"))
                for batch in reader.rows(2)
                for row, value in enumerate(batch.values.tolist())
            ]
            assert expected == rows
