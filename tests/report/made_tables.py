"""Tables of a report row by row, each cell given or left to be something sound."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bkstore import tables
from bkstore.tables import Schema, Table

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMAS = {
    value.name: value for value in vars(tables.analyses).values() if isinstance(value, Schema)
} | {"findings": tables.BOOKIE_FINDINGS}


def made(schema: Schema, *cells: dict[str, Any]) -> pa.Table:
    """Return a table with a row for each dict; what is not said is 1, "x", True, or null."""
    plain = {"string": "x", "bool": True, "binary": b"x", "float64": 0.5, "rows": [[1, 1, 1, 0]]}
    return Table.from_rows(
        schema,
        [
            [cell.get(c.name, None if c.nullable else plain.get(c.kind, 1)) for c in schema.columns]
            for cell in cells
        ],
    ).to_arrow()


def health(*cells: dict[str, Any]) -> pa.Table:
    """Return `ledger_health` with ledgers 1, 2... of which nothing is missing unless said."""
    whole = {"scope_id": 0, "replicas_due": 6, "replicas_missing": 0, "state": "CLOSED"}
    return made(tables.HEALTH, *({**whole, "ledger_id": n + 1, **c} for n, c in enumerate(cells)))
