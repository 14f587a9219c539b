"""The analyses that are SQL, and the queries that feed kernels, in SQL for both Spark and DuckDB.

Where the two dialects differ, the texts call functions that each engine defines:
``bk_div(a, b)`` divides non-negative integers, ``bk_qualified(scope, ledger)`` is the qualified
name, ``bk_unsigned(id)`` a number whose signed order is the id order. Sums are cast because an
engine may widen them. Tables: those of a dump, ``bookies(bookie, is_read)`` from its manifest,
``metadata`` if given, and with another dump ``other_groups``, ``other_ledgers`` and
``other_bookies``. `catalog` fills in the names in braces.
"""

from __future__ import annotations

ORPHANS_SQL = """
select l.bookie, l.scope_id, l.ledger_id, l.qualified_name, l.entries,
  cast(coalesce(b.bytes, 0) as bigint) as bytes
from (select k.* from ledgers k anti join metadata m
    on k.scope_id = m.scope_id and k.ledger_id = m.ledger_id) l
left join (select bookie, scope_id, ledger_id, sum(bytes) as bytes
    from log_ledgers group by bookie, scope_id, ledger_id) b
  on l.bookie = b.bookie and l.scope_id = b.scope_id and l.ledger_id = b.ledger_id
"""

LIVE_BY_INDEX = """
select r.* from log_ledgers r semi join ledgers k
  on r.bookie = k.bookie and r.scope_id = k.scope_id and r.ledger_id = k.ledger_id
"""

LIVE_BY_METADATA = """
select r.* from log_ledgers r semi join metadata k
  on r.scope_id = k.scope_id and r.ledger_id = k.ledger_id
"""

LOG_OCCUPANCY_SQL = """
with live as ({live}),
held as (
  select bookie, dir_index, log_id, count(*) as n, cast(sum(bytes) as bigint) as bytes
  from log_ledgers group by bookie, dir_index, log_id),
kept as (
  select bookie, dir_index, log_id, count(*) as n, cast(sum(bytes) as bigint) as bytes
  from live group by bookie, dir_index, log_id),
counted as (
  select l.bookie, l.dir_index, l.log_id, l.file, l.bytes, l.closed,
    coalesce(h.n, 0) as ledgers, coalesce(k.n, 0) as live_ledgers,
    coalesce(k.bytes, 0) as live_bytes,
    coalesce(h.bytes, 0) - coalesce(k.bytes, 0) as garbage_bytes,
    case when coalesce(h.bytes, 0) > 0
      then cast(coalesce(k.bytes, 0) as double) / cast(h.bytes as double)
      else cast(0 as double) end as occupancy
  from entry_logs l
  left join held h on l.bookie = h.bookie and l.dir_index = h.dir_index and l.log_id = h.log_id
  left join kept k on l.bookie = k.bookie and l.dir_index = k.dir_index and l.log_id = k.log_id)
select counted.*, live_bytes > 0 and occupancy < cast({pinned} as double) as pinned
from counted
"""

LEDGER_BYTES_SQL = """
with here as (
  select bookie, scope_id, ledger_id, coalesce(entries, 0) as entries,
    cast(0 as bigint) as bytes from ledgers
  union all
  select bookie, scope_id, ledger_id, cast(0 as bigint), bytes from log_ledgers)
select scope_id, ledger_id, bk_qualified(scope_id, ledger_id) as qualified_name,
  count(distinct bookie) as bookies, cast(sum(entries) as bigint) as replicas,
  cast(sum(bytes) as bigint) as bytes
from here group by scope_id, ledger_id
"""

SCOPE_BYTES_SQL = f"""
select scope_id, count(*) as ledgers, cast(sum(replicas) as bigint) as replicas,
  cast(sum(bytes) as bigint) as bytes
from ({LEDGER_BYTES_SQL}) by_ledger group by scope_id
"""  # noqa: S608

BOOKIE_BYTES_SQL = """
with live as ({live}),
known as (select bookie, count(*) as n, cast(sum(entries) as bigint) as entries
  from ledgers group by bookie),
logs as (select bookie, count(*) as n, cast(sum(bytes) as bigint) as bytes
  from entry_logs group by bookie),
records as (select bookie, cast(sum(bytes) as bigint) as bytes
  from log_ledgers group by bookie),
kept as (select bookie, cast(sum(bytes) as bigint) as bytes from live group by bookie),
damaged as (select bookie, count(*) as n
  from findings where severity = 'damage' group by bookie)
select b.bookie, coalesce(k.n, 0) as ledgers, coalesce(k.entries, 0) as entries,
  coalesce(l.n, 0) as entry_logs, coalesce(l.bytes, 0) as log_file_bytes,
  coalesce(r.bytes, 0) as record_bytes, coalesce(v.bytes, 0) as live_bytes,
  coalesce(r.bytes, 0) - coalesce(v.bytes, 0) as garbage_bytes, coalesce(d.n, 0) as damage
from bookies b
left join known k on b.bookie = k.bookie
left join logs l on b.bookie = l.bookie
left join records r on b.bookie = r.bookie
left join kept v on b.bookie = v.bookie
left join damaged d on b.bookie = d.bookie
"""

# -- queries that feed kernels

READ_GROUPS = """
select g.* from groups g anti join (select * from ledgers where entries is null) u
  on g.bookie = u.bookie and g.scope_id = u.scope_id and g.ledger_id = u.ledger_id
"""
"""Only ledgers that the dump could read: what is missing from the others is not known."""

JUDGED = """
select scope_id, ledger_id, 0 as role, '' as bookie, cast(0 as bigint) as first_sequence_start,
  cast(0 as bigint) as last_sequence_start, cast(0 as bigint) as sequence_size,
  cast(0 as bigint) as sequence_period, facts_json
from metadata
union all
select scope_id, ledger_id, 1, bookie, cast(0 as bigint), cast(0 as bigint), cast(0 as bigint),
  cast(0 as bigint), cast(null as string)
from ledgers where entries is null
union all
select g.scope_id, g.ledger_id, 2, g.bookie, g.first_sequence_start, g.last_sequence_start,
  g.sequence_size, g.sequence_period, cast(null as string)
from groups g semi join metadata m on g.scope_id = m.scope_id and g.ledger_id = m.ledger_id
"""
"""Roles as in `metadata_comparison`: metadata, bookies that could not read the ledger, groups."""

COMPARED = """
with unread as (
  select bookie, scope_id, ledger_id from ledgers where entries is null
  union all
  select bookie, scope_id, ledger_id from other_ledgers where entries is null),
shared as (
  select b.bookie from bookies b join other_bookies o on b.bookie = o.bookie
  where b.is_read and o.is_read),
sides as (
  select groups.*, 0 as side from groups
  union all
  select other_groups.*, 1 as side from other_groups)
select s.* from (select sides.* from sides semi join shared on sides.bookie = shared.bookie) s
anti join unread u
  on s.bookie = u.bookie and s.scope_id = u.scope_id and s.ledger_id = u.ledger_id
"""
"""Only bookies and ledgers that both dumps have read: for the others a difference means nothing."""
