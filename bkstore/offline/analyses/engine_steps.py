"""Steps that all engines share: checking the inputs, sorting, and casting rows to the schema."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from bkstore.cluster.store.api import MetadataStore
from bkstore.errors import InvalidArgument
from bkstore.ids import ledger_keys
from bkstore.offline.analyses.catalog import ANALYSES, Analysis, Inputs, Options
from bkstore.offline.analyses.metadata_table import Metadata, read_metadata
from bkstore.offline.analyses.pulsar_tables import PulsarMetadata
from bkstore.offline.reading.ledger_ranges import LEDGER_COLUMNS
from bkstore.offline.reading.open_dump import Dump, open_dump
from bkstore.tables.dump import DUMP_TABLES

if TYPE_CHECKING:
    import pyarrow as pa

_ANALYSIS_PATTERN = re.compile(rf"\b(?:from|join)\s+({'|'.join(ANALYSES)})\b")
_TABLE_PATTERN = re.compile(rf"\b(?:from|join)\s+(other_)?({'|'.join(DUMP_TABLES)})\b")
_INPUT_PATTERN = re.compile(r"\b(metadata|chosen|pulsar_ledgers)\b")

_INPUT_OPTIONS = {
    "ledger metadata": "--metadata",
    "a second dump": "--other",
    "Pulsar's metadata": "--pulsar",
}


class Engine(Protocol):
    """Runs analyses: `LocalEngine`, `bkstore.spark.analysis.SparkEngine`."""

    def run(self, analysis: Analysis, inputs: Inputs) -> pa.Table:
        """Return the analysis's table, of the declared schema and in the declared order."""


def open_inputs(
    dump: Dump | str | os.PathLike[str],
    metadata: Metadata | MetadataStore | str | os.PathLike[str] | None = None,
    other: Dump | str | os.PathLike[str] | None = None,
    options: Options | None = None,
    pulsar: PulsarMetadata | str | os.PathLike[str] | None = None,
) -> Inputs:
    """Return the inputs of an analysis, opening those that are paths; raises as the openers do."""
    opened_metadata = metadata
    if opened_metadata is not None and not isinstance(opened_metadata, Metadata):
        opened_metadata = read_metadata(opened_metadata)
    opened_dump = dump if isinstance(dump, Dump) else open_dump(dump)
    opened_other = other if other is None or isinstance(other, Dump) else open_dump(other)
    opened_pulsar = pulsar
    if opened_pulsar is not None and not isinstance(opened_pulsar, PulsarMetadata):
        opened_pulsar = PulsarMetadata.open(opened_pulsar)
    return Inputs(opened_dump, opened_metadata, opened_other, options or Options(), opened_pulsar)


def check_inputs(analysis: Analysis, inputs: Inputs) -> None:
    """Raise `InvalidArgument` if an input that the analysis needs is missing, or if it cannot be
    limited to the ledgers of some owners, as the options ask."""
    if inputs.options.owners and analysis.chooses_by is None:
        raise InvalidArgument(f"{analysis.name} cannot be limited to the ledgers of some owners")
    missing_input = analysis.missing_input(inputs)
    if missing_input is not None:
        option = _INPUT_OPTIONS[missing_input]
        raise InvalidArgument(f"{analysis.name} needs {missing_input} ({option})")
    if inputs.options.top is not None:
        analysis.rank_column(inputs.options)


def tables_of_query(text: str) -> tuple[list[str], list[str]]:
    """Return the tables of the dump and of the other dump that a SQL text reads.

    >>> tables_of_query("select * from groups g anti join other_ledgers l on g.bookie = l.bookie")
    (['groups'], ['ledgers'])
    """
    matches = set(_TABLE_PATTERN.findall(text))
    own_tables = [name for name in DUMP_TABLES if ("", name) in matches]
    return own_tables, [name for name in DUMP_TABLES if ("other_", name) in matches]


def analyses_of_query(text: str) -> list[Analysis]:
    """Return the analyses whose tables a SQL text reads.

    >>> [each.name for each in analyses_of_query("select count(*) from ledger_health h")]
    ['ledger_health']
    """
    return [ANALYSES[name] for name in sorted(set(_ANALYSIS_PATTERN.findall(text)))]


def tables_of_inputs(inputs: Inputs, text: str) -> dict[str, pa.Table]:
    """Return the tables of ledger metadata and of Pulsar's that a SQL text reads, by name."""
    names = set(_INPUT_PATTERN.findall(text))
    tables = {}
    if "metadata" in names and inputs.metadata is not None:
        tables["metadata"] = inputs.metadata.table
    if "chosen" in names and inputs.chosen_metadata is not None:
        tables["chosen"] = inputs.chosen_metadata.table
    of_pulsar = inputs.pulsar_tables if "pulsar_ledgers" in names else None
    if of_pulsar is not None:
        tables["pulsar_ledgers"] = of_pulsar.ledgers
        tables["pulsar_references"] = of_pulsar.references
        tables["pulsar_owners"] = of_pulsar.choose(inputs.options.owners)
    return tables


def limit_to_owners(analysis: Analysis, inputs: Inputs) -> Inputs:
    """Return the inputs. If the analysis is limited to chosen ledgers by its metadata, these are
    the metadata of the chosen ledgers alone."""
    if analysis.chooses_by != "metadata" or not inputs.options.owners:
        return inputs
    return replace(inputs, metadata=inputs.chosen_metadata)


def without_top(inputs: Inputs) -> Inputs:
    """Return the inputs for an analysis of which another one needs all rows."""
    return replace(inputs, options=replace(inputs.options, top=None, by=None))


def filters_rows(analysis: Analysis, options: Options) -> bool:
    """Return whether only those rows of the analysis count whose ledgers are chosen."""
    return analysis.chooses_by == "rows" and bool(options.owners)


def order_terms(names: Iterable[str]) -> list[str]:
    """Return the SQL terms to sort by, with ids in unsigned order."""
    return [f"bk_unsigned({name})" if name in LEDGER_COLUMNS else name for name in names]


def finish_table(table: pa.Table, analysis: Analysis, inputs: Inputs) -> pa.Table:
    """Return the table with the declared schema, with the rows of the chosen ledgers, sorted, and
    cut to the top rows if requested."""
    options = inputs.options
    table = table.select(analysis.schema.names).cast(analysis.schema.to_arrow())
    if filters_rows(analysis, options) and inputs.chosen_metadata is not None:
        table = rows_of_ledgers(table, inputs.chosen_metadata.table)
    if options.top is not None:
        return top_rows(table, analysis, options)
    return _sort_rows(table, declared_order(analysis), table.num_rows)


def rows_of_ledgers(table: pa.Table, ledgers: pa.Table) -> pa.Table:
    """Return the rows of a table whose ledgers are among the rows of `ledgers`."""
    import pyarrow as pa

    pairs = ([each.column(name).to_numpy() for name in LEDGER_COLUMNS] for each in (table, ledgers))
    row_keys, chosen_keys = (ledger_keys(*columns) for columns in pairs)
    return table.filter(pa.array(np.isin(row_keys, chosen_keys)))


def declared_order(analysis: Analysis) -> list[tuple[str, str]]:
    """Return the columns by which rows are sorted, with "ascending" or "descending"."""
    return [
        (column.lstrip("-"), "descending" if column.startswith("-") else "ascending")
        for column in analysis.order
    ]


def top_rows(table: pa.Table, analysis: Analysis, options: Options) -> pa.Table:
    """Return the `options.top` rows with the largest values in the rank column, largest first. Ties
    are broken by the declared order. Rows with a null in that column come last."""
    rank_column = analysis.rank_column(options)
    keys = [(rank_column, "descending")]
    keys += [key for key in declared_order(analysis) if key[0] != rank_column]
    return _sort_rows(table, keys, table.num_rows if options.top is None else options.top)


def _sort_rows(table: pa.Table, keys: list[tuple[str, str]], rows: int) -> pa.Table:
    """Return the first `rows` rows of the table in this order."""
    import pyarrow.compute as pc

    order = pc.sort_indices(_sort_columns(table, [name for name, _ in keys]), sort_keys=keys)
    return table.take(order.slice(0, rows)).combine_chunks()


def _sort_columns(table: pa.Table, names: list[str]) -> pa.Table:
    """Return columns to sort by; those of ledger ids as unsigned integers."""
    import pyarrow as pa

    columns: dict[str, Any] = {name: table.column(name) for name in names}
    for name in set(names) & set(LEDGER_COLUMNS):
        columns[name] = pa.array(table.column(name).to_numpy().view(np.uint64))
    return pa.table(columns)
