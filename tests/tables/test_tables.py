"""Tables: declared schemas, plain rows, and Arrow export."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from bkstore import InvalidArgument, MissingDependency, tables
from bkstore.ids import LedgerId
from bkstore.index.api import Finding
from bkstore.report.sections import SECTIONS
from bkstore.storage.read_only.ledgers_table import finding_table
from bkstore.tables import (
    ENTRIES,
    FINDINGS,
    GROUPS,
    INSPECT,
    LEDGERS,
    VIOLATIONS,
    ConstantColumn,
    Schema,
    Table,
)
from bkstore.tables.columns import COLUMNS

DESIGNED = {
    "entries": "bookie dir_index scope_id ledger_id entry_id log_id position length",
    "groups": "bookie scope_id ledger_id first_sequence_start last_sequence_start "
    "sequence_size sequence_period",
    "ledgers": "bookie scope_id ledger_id qualified_name entries first_entry last_entry fenced "
    "limbo explicit_lac master_key layout",
}


@pytest.mark.parametrize("schema", [ENTRIES, GROUPS, LEDGERS], ids=lambda s: s.name)
def test_columns_are_the_designed_ones(schema: object) -> None:
    """The names and their order are a promise to whoever reads dumps."""
    assert DESIGNED[schema.name].split() == schema.names  # type: ignore[attr-defined]


def _groups(size: int) -> Table:
    columns = [ConstantColumn("b:1", size), *(np.arange(size) + n for n in range(6))]
    return Table(GROUPS, dict(zip(GROUPS.names, columns)))


def test_rows_are_plain_values() -> None:
    """Rows come without any extra package, as Python values."""
    rows = list(_groups(2).rows())

    assert [("b:1", 0, 1, 2, 3, 4, 5), ("b:1", 1, 2, 3, 4, 5, 6)] == rows
    assert all(type(value) in (str, int) for row in rows for value in row)


def test_arrow_stream() -> None:
    """Any Arrow consumer takes a table through its stream, types and nullability kept."""
    pa = pytest.importorskip("pyarrow")
    table = pa.table(_groups(3))

    assert GROUPS.to_arrow() == table.schema
    assert ["b:1"] * 3 == table["bookie"].to_pylist()
    assert [1, 2, 3] == table["ledger_id"].to_pylist()
    assert not table.schema.field("ledger_id").nullable
    assert LEDGERS.to_arrow().field("fenced").nullable


def test_empty_table() -> None:
    """No rows is a table too, with its schema."""
    pa = pytest.importorskip("pyarrow")
    table = Table.from_rows(LEDGERS, [])

    assert 0 == len(table) == pa.table(table).num_rows
    assert [] == list(table.rows())


def test_repeated_column() -> None:
    """A repeated value behaves like the list it stands for."""
    column = ConstantColumn(None, 3)

    assert [None, None, None] == list(column) == column[0:5]
    assert 3 == len(column)


@pytest.mark.parametrize(
    "columns",
    [{"property": ["a"]}, {"value": ["b"], "property": ["a"]}, {"property": ["a"], "value": []}],
)
def test_shape_is_checked(columns: dict[str, list[str]]) -> None:
    """Missing, swapped or uneven columns are refused."""
    with pytest.raises(InvalidArgument):
        Table(INSPECT, columns)


def test_findings_table() -> None:
    """Findings are rows: severity, detail, place, ledger, and which entries of it."""
    torn = Finding("damage", "torn", "/f", 7)
    lost = Finding("damage", "lost", "/f", 7, LedgerId.of(9), 3, 8, 4)
    names = ["severity", "detail", "file", "offset", "scope_id", "ledger_id"]

    assert [
        ("damage", "torn", "/f", 7, None, None, None, None, None),
        ("damage", "lost", "/f", 7, 0, 9, 3, 8, 4),
    ] == list(finding_table([torn, lost]).rows())
    assert "/f: offset 7: torn" == str(torn)
    assert [*names, "first_entry", "last_entry", "entries"] == FINDINGS.names


def test_arrow_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without pyarrow the error names what to install."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingDependency, match="pip install 'pyarrow>=18'"):
        _groups(1).to_arrow()


def test_arrays_as_cells() -> None:
    """A cell of ranges or groups may be an array; rows and Arrow are those of lists."""
    pa = pytest.importorskip("pyarrow")
    lists = [[[1, 2], [3, 4]], None, [], [[5, 6]]]
    arrays = [None if cell is None else np.array(cell, np.int64).reshape(-1, 2) for cell in lists]
    columns: dict[str, Any] = {name: [None] * 4 for name in VIOLATIONS.names}
    columns |= {"category": ["underreplicated"] * 4, "detail": [""] * 4}
    plain, made = (Table(VIOLATIONS, columns | {"missing": cells}) for cells in (lists, arrays))

    assert list(plain.rows()) == list(made.rows())
    assert pa.table(plain) == pa.table(made)
    assert lists == pa.table(made)["missing"].to_pylist()


def test_every_column_is_used_and_means_something() -> None:
    """A described column is in a table, or on the page of a report, and has a meaning."""
    schemas = [each for name in tables.__all__ if isinstance(each := getattr(tables, name), Schema)]
    on_page = {column.table_column for section in SECTIONS.values() for column in section.columns}
    used = {name for each in schemas for name in each.names} | on_page | {"analysis", "finding"}

    assert set() == COLUMNS.keys() - used - {"result"}
    assert [] == [name for name, column in COLUMNS.items() if not column.meaning]


def test_a_column_is_of_its_described_kind() -> None:
    """Few names are of another kind in one table than in the others."""
    schemas = [each for name in tables.__all__ if isinstance(each := getattr(tables, name), Schema)]
    others = {c.name for s in schemas for c in s.columns if c.kind != COLUMNS[c.name].kind}

    assert {"bookies", "bytes", "groups", "value", "version"} == others
