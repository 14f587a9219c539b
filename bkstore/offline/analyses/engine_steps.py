"""What engines share: checking what was asked, sorting, and bringing rows to the schema."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from bkstore.cluster.store.api import MetadataStore
from bkstore.errors import InvalidArgument
from bkstore.offline.analyses.catalog import Analysis, Inputs, Options
from bkstore.offline.analyses.metadata_table import Metadata, read_metadata
from bkstore.offline.reading.open_dump import Dump, open_dump
from bkstore.tables.dump import DUMP_TABLES

if TYPE_CHECKING:
    import pyarrow as pa

_IDS = ("scope_id", "ledger_id")
_READ = re.compile(rf"\b(?:from|join)\s+(other_)?({'|'.join(DUMP_TABLES)})\b")


class Engine(Protocol):
    """Runs analyses: `LocalEngine`, `bkstore.spark.analysis.SparkEngine`."""

    def run(self, analysis: Analysis, inputs: Inputs) -> pa.Table:
        """Return the analysis's table, of the declared schema and in the declared order."""


def open_inputs(
    dump: Dump | str | os.PathLike[str],
    metadata: Metadata | MetadataStore | str | os.PathLike[str] | None = None,
    other: Dump | str | os.PathLike[str] | None = None,
    options: Options | None = None,
) -> Inputs:
    """Return what is to be analysed, each part opened unless it is; raises as the openers do."""
    said = metadata
    if said is not None and not isinstance(said, Metadata):
        said = read_metadata(said)
    opened = dump if isinstance(dump, Dump) else open_dump(dump)
    second = other if other is None or isinstance(other, Dump) else open_dump(other)
    return Inputs(opened, said, second, options or Options())


def checked(analysis: Analysis, inputs: Inputs) -> None:
    """Raise `InvalidArgument` where the inputs lack what the analysis needs."""
    lack = analysis.lacks(inputs)
    if lack is not None:
        raise InvalidArgument(f"{analysis.name} needs {lack}")
    if inputs.options.top is not None:
        analysis.ranked_by(inputs.options)


def tables_in(text: str) -> tuple[list[str], list[str]]:
    """Return which tables of the dump, and of the other dump, a SQL text reads.

    >>> tables_in("select * from groups g anti join other_ledgers l on g.bookie = l.bookie")
    (['groups'], ['ledgers'])
    """
    found = set(_READ.findall(text))
    both = ([name for name in DUMP_TABLES if (mark, name) in found] for mark in ("", "other_"))
    mine, others = both
    return mine, others


def order_terms(names: Iterable[str]) -> list[str]:
    """Return SQL terms to sort by; ids in unsigned order."""
    return [f"bk_unsigned({name})" if name in _IDS else name for name in names]


def finish(table: pa.Table, analysis: Analysis, options: Options) -> pa.Table:
    """Return the table under the declared schema, sorted, cut to the top rows if so asked."""
    table = table.select(analysis.schema.names).cast(analysis.schema.to_arrow())
    if options.top is not None:
        return top_rows(table, analysis, options)
    return _sorted(table, [(name, "ascending") for name in analysis.order], table.num_rows)


def top_rows(table: pa.Table, analysis: Analysis, options: Options) -> pa.Table:
    """Return the `options.top` rows with the most in the column that is asked for, most first;
    of equal ones, those that come first in the declared order. Rows without a number are last.
    """
    keys = [(name, "ascending") for name in analysis.order]
    keys.insert(0, (analysis.ranked_by(options), "descending"))
    return _sorted(table, keys, table.num_rows if options.top is None else options.top)


def _sorted(table: pa.Table, keys: list[tuple[str, str]], rows: int) -> pa.Table:
    import pyarrow.compute as pc

    order = pc.sort_indices(_sortable(table, [name for name, _ in keys]), sort_keys=keys)
    return table.take(order.slice(0, rows)).combine_chunks()


def _sortable(table: pa.Table, names: list[str]) -> pa.Table:
    """Return the columns to sort by, ids as unsigned numbers."""
    import pyarrow as pa

    columns: dict[str, Any] = {name: table.column(name) for name in names}
    for name in set(names) & set(_IDS):
        columns[name] = pa.array(table.column(name).to_numpy().view(np.uint64))
    return pa.table(columns)
