"""Analyses of a dump: each a function from tables to a table, written once, run by two engines.

`catalog` lists them: read it first. `sql` has the analyses that are SQL texts (`owner_sql` those by
owner, `leak_sql` that of leaked ledgers), `kernels` those that work on Arrow batches;
`sorted_files` and `metadata_tasks` read sorted files without sorting them again. `metadata_table`
has ledger metadata as a table, `pulsar_tables` what Pulsar refers to, `engine_steps`
what the engines share, `local_engine` the engine for a single machine (DuckDB and numpy); Spark's
is `bkstore.spark.analysis`. `duckdb_tables` reads a dump's files in DuckDB, `sql_connection` has
`connect`, for queries of a user's own. Rules, columns and costs: `docs/analyses.md`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from bkstore.cluster.store.api import MetadataStore
from bkstore.former_names import former_exports
from bkstore.offline.analyses.catalog import ANALYSES, Analysis, Inputs, Options, find_analysis
from bkstore.offline.analyses.engine_steps import Engine, open_inputs
from bkstore.offline.analyses.local_engine import LocalEngine
from bkstore.offline.analyses.metadata_table import Metadata, read_metadata
from bkstore.offline.analyses.pulsar_tables import PulsarMetadata
from bkstore.offline.reading.open_dump import Dump, open_dump

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "ANALYSES",
    "Analysis",
    "Dump",
    "Engine",
    "Inputs",
    "LocalEngine",
    "Metadata",
    "Options",
    "PulsarMetadata",
    "find_analysis",
    "open_dump",
    "open_inputs",
    "read_metadata",
    "run",
]

__getattr__ = former_exports(__name__, find="find_analysis")


def run(
    name: str,
    dump: Dump | str | os.PathLike[str],
    metadata: Metadata | MetadataStore | str | os.PathLike[str] | None = None,
    other: Dump | str | os.PathLike[str] | None = None,
    *,
    engine: Engine | None = None,
    options: Options | None = None,
    pulsar: PulsarMetadata | str | os.PathLike[str] | None = None,
) -> pa.Table:
    """Return the table of one analysis, with the schema and in the order that it declares.

    `metadata` is a store, a path that `open_metadata` takes, or a `Metadata`; `other` is the later
    of two dumps; `pulsar` is a copy of Pulsar's metadata, or its path, for `leaked_ledgers`.
    `engine` defaults to `LocalEngine()`. Raises `InvalidArgument` for an unknown name or a missing
    input, `BkstoreError` if the engine fails, and as `open_dump`, `read_metadata` and
    `PulsarMetadata` do.

    >>> import tempfile
    >>> from bkstore.index.hierarchical import HierarchicalIndex
    >>> from bkstore.offline.dump import dump
    >>> with tempfile.TemporaryDirectory() as top:
    ...     with HierarchicalIndex(f"{top}/b", writable=True) as index:
    ...         index.put_many(7, [0, 1, 3], [1028, 1100, 1200])
    ...     made = dump([f"{top}/b"], f"{top}/out")
    ...     run("holes", f"{top}/out").select(["ledger_id", "entries", "holes"]).to_pylist()
    [{'ledger_id': 7, 'entries': 3, 'holes': 1}]
    """
    inputs = open_inputs(dump, metadata, other, options, pulsar)
    return (engine or LocalEngine()).run(find_analysis(name), inputs)
