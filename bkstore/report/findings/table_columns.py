"""Columns of the analyses' tables as arrays: numbers, and ledger ids."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bkstore.ids import Int64Array

if TYPE_CHECKING:
    import pyarrow as pa

Tables = Mapping[str, "pa.Table"]
"""Tables by the names of their schemas."""


def number_column(table: pa.Table, column: str, null_value: int = 0) -> npt.NDArray[Any]:
    """Return a numeric column as an array, with `null_value` for nulls."""
    import pyarrow.compute as pc

    chunks = table.column(column)
    values: npt.NDArray[Any] = (
        pc.fill_null(chunks, null_value).to_numpy() if chunks.null_count else chunks.to_numpy()
    )
    return values


def id_pairs(table: pa.Table) -> Int64Array:
    """Return the ledger of each row as (scope, ledger), int64[n, 2]."""
    return np.stack([number_column(table, "scope_id"), number_column(table, "ledger_id")], axis=1)


def count_ledgers(table: pa.Table) -> int:
    """Return the number of distinct ledgers in a table, ignoring rows without a ledger."""
    ids = table.select(["scope_id", "ledger_id"]).drop_null()
    return int(ids.group_by(["scope_id", "ledger_id"]).aggregate([]).num_rows)
