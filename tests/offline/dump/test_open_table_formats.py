"""A dump as tables of Iceberg: the page's lines register its files, and every row is read."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.offline.dump import dump
from bkstore.offline.reading.open_dump import open_dump
from bkstore.tables.dump import DUMP_TABLES

pytest.importorskip("pyarrow")
PAGE = Path(__file__).parents[3] / "docs" / "formats" / "dump.md"


def _rows(table: Any) -> Counter[str]:
    return Counter(map(repr, table.to_pylist()))


def test_iceberg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables have the dump's rows, negative ids among them; a filter selects those of it."""
    pytest.importorskip("pyiceberg", reason="pyiceberg is not installed")
    pytest.importorskip("sqlalchemy", reason="pyiceberg's local catalog needs sqlalchemy")
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two"):
        with HierarchicalIndex(name, writable=True) as index:
            index.put_many(7, range(0, 60, 2), range(1028, 1058))
            index.put_many((1 << 63) - 5, [0, 1], [2000, 2100])
    dump(["one", "two", "nowhere"], "out")
    section = PAGE.read_text(encoding="utf-8").partition("## Open table formats")[2]
    block = re.search(r"```text\n(.*?)```", section, re.DOTALL)
    assert block is not None
    names: dict[str, Any] = {}
    exec(compile(block[1], str(PAGE), "exec"), names)
    opened, catalog = open_dump("out"), names["catalog"]

    for table in DUMP_TABLES:
        assert _rows(opened.read(table)) == _rows(
            catalog.load_table(f"bookies.{table}").scan().to_arrow()
        )
    entries = catalog.load_table("bookies.entries")
    assert 60 == entries.scan(row_filter="ledger_id == 7").to_arrow().num_rows
    assert 32 == entries.scan(row_filter="bookie == 'one'").to_arrow().num_rows
