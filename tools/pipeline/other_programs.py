"""The same questions about the same Parquet files, asked of other programs."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

_BATCH_ROWS = 10_000

Work = Callable[[], int]
"""Runs a step once; returns the number of rows in its answer, or of rows written."""

DUCKDB_QUESTIONS = {
    "sequences": "runs of ids in entries",
    "comparison": "ids that two tables of entries have in common",
    "violations": "stretches of entries that bookies lack, without categories",
    "fragmentation": "the same",
}
"""The questions that DuckDB answers for each step, which may be simpler than ours."""


def _write_batch_steps(directory: Path) -> Iterator[tuple[str, Work]]:
    """Yield the step that fills RocksDB plainly: batches of 10,000, keys built with numpy."""
    import pyarrow.dataset as ds
    from rocksdict import Rdict, WriteBatch

    from bkstore.ids import LedgerId, make_locations
    from bkstore.index.rocks.keys import encode_locations, entry_keys
    from bkstore.index.rocks.options import location_options

    def load() -> int:
        """Load the entries of bookie b0, as `load` does; return their number."""
        target = directory / "loaded"
        shutil.rmtree(target, ignore_errors=True)
        options, row_count = location_options(), 0
        database = Rdict(str(target), options, column_families={"default": options})
        files = sorted((directory / "dump" / "entries").glob("b0-*.parquet"))
        columns = ["scope_id", "ledger_id", "entry_id", "log_id", "position"]
        for rows in ds.dataset(list(map(str, files))).to_batches(columns=columns):
            scope, ledger, entry, log, position = (rows[name].to_numpy() for name in columns)
            # Where the ledger changes; a key is made of the ledger and the entry.
            changes = np.flatnonzero((np.diff(ledger) != 0) | (np.diff(scope) != 0)) + 1
            for first, end in pairwise([0, *changes, entry.size]):
                ledger_id = LedgerId.from_signed(int(scope[first]), int(ledger[first]))
                keys = entry_keys(ledger_id, entry[first:end])
                values = encode_locations(make_locations(log[first:end], position[first:end]))
                for start in range(0, len(keys), _BATCH_ROWS):
                    batch, in_batch = WriteBatch(raw_mode=True), slice(start, start + _BATCH_ROWS)
                    for key, value in zip(keys[in_batch], values[in_batch]):
                        batch.put(key, value)
                    database.write(batch)
            row_count += rows.num_rows
        database.close()
        return row_count

    yield "load to rocksdb", load


_SEQUENCES_SQL = """select bookie, scope_id, ledger_id, min(entry_id) a, max(entry_id) b from (
  select bookie, scope_id, ledger_id, entry_id, entry_id - row_number() over (
    partition by bookie, scope_id, ledger_id order by entry_id) r from {rows})
group by bookie, scope_id, ledger_id, r"""
_COMPARISON_SQL = """select a.bookie, a.scope_id, a.ledger_id, count(*) n
from {rows} a join {rows} b using (bookie, scope_id, ledger_id, entry_id) group by all"""

_FRAGMENTATION_SQL = """with placed as (
  select bookie, scope_id, ledger_id, entry_id, position,
    cast(dir_index as bigint) * 4294967296 + log_id as place from {rows}),
steps as (
  select bookie, scope_id, ledger_id, position, place,
    lag(place) over ledger as place_before, lag(position) over ledger as position_before
  from placed
  window ledger as (partition by bookie, scope_id, ledger_id order by entry_id, place, position))
select bookie, scope_id, ledger_id, count(*) as entries, count(distinct place) as logs,
  sum((place <> place_before)::bigint) as log_changes,
  sum((place_before is null or place <> place_before or position <= position_before)::bigint)
    as stretches
from steps group by bookie, scope_id, ledger_id"""
_VIOLATIONS_SQL = """with due as (
  select *, e - 1 - slot as shift, ((last + e - slot) // e) * w
    + greatest((last + e - slot) % e - (e - w), 0) as upto,
    ((first + e - 1 - slot) // e) * w + greatest((first + e - 1 - slot) % e - (e - w), 0) as start
  from due_places),
held as (
  select d.bookie, d.scope_id, d.ledger_id, d.first, d.start, d.upto,
    ((r.entry_id + shift) // e) * w + (r.entry_id + shift) % e - (e - w) as k
  from {rows} r join due d using (bookie, scope_id, ledger_id)
  where r.entry_id between d.first and d.last and (r.entry_id + shift) % e >= e - w),
lacking as (
  select d.* from due d left join (select bookie, scope_id, ledger_id, first, count(*) n
    from held group by all) h using (bookie, scope_id, ledger_id, first)
  where coalesce(h.n, 0) < upto - start),
seen as (
  select h.* from held h semi join lacking l using (bookie, scope_id, ledger_id, first)
  union all
  select bookie, scope_id, ledger_id, first, start, upto, upto from lacking)
select bookie, scope_id, ledger_id, coalesce(before + 1, start) as a, k - 1 as b from (
  select *, lag(k) over (partition by bookie, scope_id, ledger_id, first order by k) as before
  from seen) where k > coalesce(before + 1, start)"""
"""Each bookie's due entries in a segment are numbered `k` from `start` to before `upto`; a result
row is a gap in the numbers that it stores. Only bookies with too few entries are examined."""


_SQL_OF_STEP = {
    "sequences": _SEQUENCES_SQL,
    "comparison": _COMPARISON_SQL,
    "fragmentation": _FRAGMENTATION_SQL,
}


def _duckdb_steps(directory: Path) -> Iterator[tuple[str, Work]]:
    import duckdb

    rows = f"read_parquet('{directory}/dump/entries/*.parquet')"
    # An answer is counted, not fetched: the work is the same.
    for step, query in _SQL_OF_STEP.items():
        count_query = f"select count(*) from ({query.format(rows=rows)})"
        yield step, partial(_count_rows, duckdb, count_query)

    def count_missing() -> int:
        with duckdb.connect() as connection:
            connection.register("due_places", _due_table(directory))
            query = f"select count(*) from ({_VIOLATIONS_SQL.format(rows=rows)})"
            return _count_rows(connection, query)

    yield "violations", count_missing


def _due_table(directory: Path) -> Any:
    """Return a table of the due entries, with a row for each segment and bookie of its ensemble."""
    import pyarrow as pa

    from bkstore.offline.analyses import read_metadata
    from bkstore.offline.analyses.kernels.ledger_facts import LedgerFacts

    due_rows = []
    for row in read_metadata(directory / "metadata.json").table.to_pylist():
        metadata = LedgerFacts.from_json(row.pop("facts_json"))
        quorums = {"e": metadata.ensemble_size, "w": metadata.write_quorum}
        for first, last, ensemble in metadata.segment_ranges():
            for slot, bookie in enumerate(ensemble):
                range_of_slot = {"first": first, "last": last, "slot": slot, "bookie": bookie}
                due_rows.append({**row, **quorums, **range_of_slot})
    return pa.Table.from_pylist(due_rows)


def _count_rows(connection: Any, query: str) -> int:
    return int(connection.sql(query).fetchall()[0][0])


def _polars_steps(directory: Path) -> Iterator[tuple[str, Work]]:
    """Yield the analyses as polars runs them; the comparison is of the dump with itself."""
    from importlib import import_module

    polars = import_module("polars")
    keys = ["bookie", "scope_id", "ledger_id"]

    def scan_rows() -> Any:
        return polars.scan_parquet(f"{directory}/dump/entries/*.parquet").select(*keys, "entry_id")

    def count_sequences() -> int:
        # A sequence begins where the entry is not the next one of the same bookie and ledger; the
        # first row has no row before it, so a null.
        begins = polars.col("entry_id") != polars.col("entry_id").shift(1) + 1
        for key in keys:
            begins = begins | (polars.col(key) != polars.col(key).shift(1))
        numbered = scan_rows().with_columns(sequence=begins.fill_null(True).cum_sum())
        ends = {"first": polars.col("entry_id").min(), "last": polars.col("entry_id").max()}
        return int(numbered.group_by(*keys, "sequence").agg(**ends).collect().height)

    def count_common() -> int:
        joined = scan_rows().join(scan_rows(), on=[*keys, "entry_id"])
        return int(joined.group_by(keys).len().collect().height)

    yield "sequences", count_sequences
    yield "comparison", count_common


OTHER_STEPS = {"duckdb": _duckdb_steps, "polars": _polars_steps, "write batch": _write_batch_steps}
"""The steps of each program."""
