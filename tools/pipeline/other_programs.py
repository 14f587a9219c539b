"""The same questions, asked of the same Parquet files in other programs' words."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

Work = Callable[[], int]
"""Does the step once; returns rows of its answer, or rows written."""

ASKED = {
    "sequences": "runs of ids in entries",
    "comparison": "ids that two tables of entries have in common",
    "violations": "stretches of entries that bookies lack, without categories",
    "fragmentation": "the same",
}
"""What DuckDB is asked where it is asked, beside what ours answers."""


def _write_batch(top: Path) -> Iterator[tuple[str, Work]]:
    """The plain way to fill RocksDB: batches of 10,000, keys built with numpy."""
    import pyarrow.dataset as ds
    from rocksdict import Rdict, WriteBatch

    from bkstore.ids import LedgerId
    from bkstore.index.rocks.keys import entry_keys, values
    from bkstore.index.rocks.options import location_options

    def work() -> int:
        out = top / "loaded"
        shutil.rmtree(out, ignore_errors=True)
        options, rows = location_options(), 0
        database = Rdict(str(out), options, column_families={"default": options})
        files = sorted((top / "dump" / "entries").glob("b0-*.parquet"))
        columns = ["scope_id", "ledger_id", "entry_id", "log_id", "position"]
        for part in ds.dataset(list(map(str, files))).to_batches(columns=columns):
            scope, ledger, entry, log, position = (part[c].to_numpy() for c in columns)
            cuts = np.flatnonzero((np.diff(ledger) != 0) | (np.diff(scope) != 0)) + 1
            for lo, hi in zip([0, *cuts], [*cuts, entry.size]):
                name = LedgerId.from_signed(int(scope[lo]), int(ledger[lo]))
                keys = entry_keys(name, entry[lo:hi])
                stored = values((log[lo:hi] << 32) | position[lo:hi])
                for begin in range(0, len(keys), 10_000):
                    batch = WriteBatch(raw_mode=True)
                    for key, value in zip(
                        keys[begin : begin + 10_000], stored[begin : begin + 10_000]
                    ):
                        batch.put(key, value)
                    database.write(batch)
            rows += part.num_rows
        database.close()
        return rows

    yield "load to rocksdb", work


_RUNS = """select bookie, scope_id, ledger_id, min(entry_id) a, max(entry_id) b from (
  select bookie, scope_id, ledger_id, entry_id, entry_id - row_number() over (
    partition by bookie, scope_id, ledger_id order by entry_id) r from {rows})
group by bookie, scope_id, ledger_id, r"""
_COMMON = """select a.bookie, a.scope_id, a.ledger_id, count(*) n from {rows} a join {rows} b
using (bookie, scope_id, ledger_id, entry_id) group by all"""

_STRETCHES = """with placed as (
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
_MISSING = """with due as (
  select *, e - 1 - slot as shift, ((last + e - slot) // e) * w
    + greatest((last + e - slot) % e - (e - w), 0) as upto,
    ((first + e - 1 - slot) // e) * w + greatest((first + e - 1 - slot) % e - (e - w), 0) as start
  from places),
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
"""Due entries of a place are numbered from `start` to before `upto`, `k` each; a stretch of numbers
that are not held is a row. Only where the count says that some are missing."""


def _duckdb(top: Path) -> Iterator[tuple[str, Work]]:
    """Plain SQL over the Parquet files of entries."""
    import duckdb

    rows = f"read_parquet('{top}/dump/entries/*.parquet')"
    texts = {"sequences": _RUNS, "comparison": _COMMON, "fragmentation": _STRETCHES}
    for name, text in texts.items():
        asked = f"select count(*) from ({text.format(rows=rows)})"
        yield name, partial(_counted, duckdb, asked)

    def missing() -> int:
        with duckdb.connect() as con:
            con.register("places", _places(top))
            found = con.sql(f"select count(*) from ({_MISSING.format(rows=rows)})").fetchall()
        return int(found[0][0])

    yield "violations", missing


def _places(top: Path) -> Any:
    """Return which entries are due where, as a table: a row a segment and bookie of it."""
    import pyarrow as pa

    from bkstore.offline.analyses import read_metadata
    from bkstore.offline.analyses.kernels.ledger_said import LedgerSaid

    made = []
    for row in read_metadata(top / "metadata.json").table.to_pylist():
        said = LedgerSaid.from_json(row.pop("said"))
        stripe = {"e": said.ensemble_size, "w": said.write_quorum}
        for first, last, ensemble in said.ranges():
            for slot, bookie in enumerate(ensemble):
                what = {"first": first, "last": last, "slot": slot, "bookie": bookie}
                made.append({**row, **stripe, **what})
    return pa.Table.from_pylist(made)


def _counted(duckdb: Any, text: str) -> int:
    return int(duckdb.sql(text).fetchall()[0][0])


def _polars(top: Path) -> Iterator[tuple[str, Work]]:
    """The same with data frames."""
    from importlib import import_module

    pl = import_module("polars")
    keys = ["bookie", "scope_id", "ledger_id"]

    def rows() -> Any:
        return pl.scan_parquet(f"{top}/dump/entries/*.parquet").select(*keys, "entry_id")

    def runs() -> int:
        breaks = pl.col("entry_id") != pl.col("entry_id").shift(1) + 1
        for key in keys:
            breaks = breaks | (pl.col(key) != pl.col(key).shift(1))
        marked = rows().with_columns(run=breaks.fill_null(True).cum_sum())
        ends = {"a": pl.col("entry_id").min(), "b": pl.col("entry_id").max()}
        return int(marked.group_by(*keys, "run").agg(**ends).collect().height)

    def common() -> int:
        both = rows().join(rows(), on=[*keys, "entry_id"])
        return int(both.group_by(keys).len().collect().height)

    yield "sequences", runs
    yield "comparison", common


OTHERS = {"duckdb": _duckdb, "polars": _polars, "write batch": _write_batch}
"""By program: its steps."""
