"""Questions to an index dump, asked in Spark SQL over `entries`, `groups` and `ledgers`.

Availability is asked of the `groups` table: a stripe of any length is one row, so nothing is
exploded and no entry is shuffled.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from bkstore.errors import InvalidArgument
from bkstore.offline.dump import TABLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["holes", "read_dump", "totals"]

_TOTALS = """
with rows as (
  select bookie, count(*) entry_rows, count(distinct log_id, dir_index) entry_logs
  from {entries} group by bookie),
condensed as (
  select bookie, count(*) sequence_groups,
    sum(if(sequence_period = 0, sequence_size,
      ((last_sequence_start - first_sequence_start) div sequence_period + 1) * sequence_size))
      grouped_entries
  from {groups} group by bookie),
known as (
  select bookie, count(*) ledgers, count_if(fenced) fenced_ledgers,
    count_if(scope_id <> 0) scoped_ledgers
  from {ledgers} group by bookie)
select bookie, ledgers, fenced_ledgers, scoped_ledgers, coalesce(entry_rows, 0) entries,
  coalesce(grouped_entries, 0) grouped_entries, coalesce(sequence_groups, 0) sequence_groups,
  coalesce(entry_logs, 0) entry_logs
from known left join rows using (bookie) left join condensed using (bookie)
order by bookie
"""

# A ledger's stripe is the (size, period) that covers more than half of its entries, if any.
# Entries of a stripe below x: (x div period) * size + least(x % period, size); so the count
# between the first and the last stored id is a difference of two such numbers.
_HOLES = """
with sized as (
  select *, last_sequence_start + sequence_size stop,
    if(sequence_period = 0, sequence_size,
      ((last_sequence_start - first_sequence_start) div sequence_period + 1) * sequence_size) n
  from {groups}),
spans as (
  select bookie, scope_id, ledger_id, min(first_sequence_start) lo, max(stop) hi, sum(n) stored
  from sized group by bookie, scope_id, ledger_id),
stripes as (
  select bookie, scope_id, ledger_id, sequence_size size, sequence_period period,
    sum(n) covered, max_by(first_sequence_start, n) % sequence_period - sequence_period phase
  from sized where sequence_period > 0
  group by bookie, scope_id, ledger_id, sequence_size, sequence_period),
shaped as (
  select s.*, coalesce(t.size, 1) size, coalesce(t.period, 1) period, coalesce(t.phase, 0) phase
  from spans s left join stripes t
    on s.bookie = t.bookie and s.scope_id = t.scope_id and s.ledger_id = t.ledger_id
    and t.covered * 2 > s.stored),
counted as (
  select *, ((hi - phase) div period) * size + least((hi - phase) % period, size)
    - ((lo - phase) div period) * size - least((lo - phase) % period, size) due
  from shaped)
select bookie, scope_id, ledger_id,
  lower(concat(lpad(hex(scope_id), 16, '0'), lpad(hex(ledger_id), 16, '0'))) qualified_name,
  lo first_entry, hi - 1 last_entry, stored entries,
  if(period = 1, 'all', concat(size, ' of ', period)) stripe, due - stored holes
from counted where due <> stored
order by bookie, qualified_name
"""


def read_dump(spark: SparkSession, dump: str | Path) -> dict[str, DataFrame]:
    """Return the dump's tables as DataFrames by name; reads footers only.

    Raises `InvalidArgument` where `dump` is no dump.
    """
    found = {}
    for schema in TABLES:
        folder = Path(dump).resolve() / schema.name  # the JVM has a working directory of its own
        if not folder.is_dir():
            raise InvalidArgument(f"{dump}: not a dump: it has no {schema.name}/")
        found[schema.name] = spark.read.parquet(str(folder))
    return found


def totals(spark: SparkSession, tables: dict[str, DataFrame]) -> DataFrame:
    """Return one row a bookie: ledgers, entries (by row and by group), sequence groups, logs."""
    return _ask(spark, _TOTALS, tables)


def holes(spark: SparkSession, tables: dict[str, DataFrame]) -> DataFrame:
    """Return the ledgers of which a bookie lacks entries between its first and its last.

    Judged without ledger metadata: the ids that a ledger's own regular stripe (or, without
    one, a contiguous ledger) would hold in that span, less those stored. Columns: bookie,
    scope_id, ledger_id, qualified_name (whose text order is the id order), first_entry,
    last_entry, entries, stripe ("all" or "size of period"), holes. Negative holes mean entries
    off the stripe.
    """
    return _ask(spark, _HOLES, tables)


def _ask(spark: SparkSession, query: str, tables: dict[str, DataFrame]) -> DataFrame:
    named: dict[str, Any] = dict(tables)
    return spark.sql(query, **named)
