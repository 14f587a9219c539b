"""The analyses by owner, in SQL for both Spark and DuckDB (rules of the texts: `sql`).

`chosen` are the ledgers of `metadata` that the filter by owner chooses: all of them without one.
Records are summed by entry log and owner, so the number of rows is that of `log_ledgers`, and no
entry is listed.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

OWNER_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "topic": "coalesce(topic, case when namespace is not null then 'persistent://' || schema"
        " end, schema, application)",
        "namespace": "coalesce(namespace, application)",
        "tenant": "coalesce(tenant, application)",
        "component": "coalesce(component, application)",
    }
)
"""What a row of the analyses by owner stands for -> the SQL of its name. Ledgers with a schema
belong to its topic."""

_OWNER_BYTES_SQL = """
with owned as (
  select scope_id, ledger_id, {name} as owner, application, last_entry_id from chosen),
records as (
  select o.owner, o.application, r.bookie, r.dir_index, r.log_id, sum(r.bytes) as bytes,
    sum(case when o.ledger_id is null then 0 else r.bytes end) as live_bytes
  from log_ledgers r {join} owned o on r.scope_id = o.scope_id and r.ledger_id = o.ledger_id
  group by o.owner, o.application, r.bookie, r.dir_index, r.log_id),
live as ({live}),
kept as (
  select bookie, dir_index, log_id, sum(bytes) as bytes from live
  group by bookie, dir_index, log_id),
pinned as (
  select h.bookie, h.dir_index, h.log_id, l.bytes
  from (select bookie, dir_index, log_id, sum(bytes) as bytes
    from log_ledgers group by bookie, dir_index, log_id) h
  join kept k on h.bookie = k.bookie and h.dir_index = k.dir_index and h.log_id = k.log_id
  join entry_logs l on h.bookie = l.bookie and h.dir_index = l.dir_index and h.log_id = l.log_id
  where k.bytes > 0
    and cast(k.bytes as double) / cast(h.bytes as double) < cast({pinned} as double)),
located as (
  select owner, application, bookie, scope_id, ledger_id, entries from (
    select o.owner, o.application, k.bookie, k.scope_id, k.ledger_id,
      coalesce(k.entries, 0) as entries
    from ledgers k {join} owned o on k.scope_id = o.scope_id and k.ledger_id = o.ledger_id
    union all
    select o.owner, o.application, r.bookie, r.scope_id, r.ledger_id, cast(0 as bigint)
    from log_ledgers r {join} owned o on r.scope_id = o.scope_id and r.ledger_id = o.ledger_id
    union all
    select owner, application, cast(null as string), scope_id, ledger_id, cast(0 as bigint)
    from owned) p),
parts as (
  select owner, application, 1 as ledgers, 0 as bookies, sum(entries) as replicas,
    0 as bytes, 0 as live_bytes, 0 as logs, 0 as pinned_logs, 0 as pinned_bytes
  from located group by owner, application, scope_id, ledger_id
  union all
  select owner, application, 0, count(distinct bookie), 0, 0, 0, 0, 0, 0
  from located group by owner, application
  union all
  select r.owner, r.application, 0, 0, 0, sum(r.bytes), sum(r.live_bytes),
    sum(case when r.live_bytes > 0 then 1 else 0 end), count(p.log_id), sum(coalesce(p.bytes, 0))
  from records r left join pinned p on r.live_bytes > 0 and r.bookie = p.bookie
    and r.dir_index = p.dir_index and r.log_id = p.log_id
  group by r.owner, r.application),
sums as (
  select owner, application, sum(ledgers) as ledgers, sum(bookies) as bookies,
    sum(replicas) as replicas, sum(bytes) as bytes, sum(live_bytes) as live_bytes,
    sum(logs) as logs, sum(pinned_logs) as pinned_logs, sum(pinned_bytes) as pinned_bytes
  from parts group by owner, application),
lengths as (
  select owner, application, {entries} as entries from owned group by owner, application)
select s.owner, s.application, cast(s.ledgers as bigint) as ledgers,
  coalesce(e.entries, cast(0 as bigint)) as entries, cast(s.bookies as bigint) as bookies,
  cast(s.replicas as bigint) as replicas, cast(s.bytes as bigint) as bytes,
  cast(s.live_bytes as bigint) as live_bytes,
  cast(s.bytes - s.live_bytes as bigint) as garbage_bytes, cast(s.logs as bigint) as logs,
  cast(s.pinned_logs as bigint) as pinned_logs, cast(s.pinned_bytes as bigint) as pinned_bytes
from sums s left join lengths e
  on s.owner is not distinct from e.owner and s.application is not distinct from e.application
"""

_OWNER_VIOLATIONS_SQL = """
with owned as (
  select scope_id, ledger_id, {name} as owner, application from metadata)
select o.owner, o.application, count(*) as ledgers,
  cast(sum(case when h.category = 'no_replica' then 1 else 0 end) as bigint) as no_replica,
  cast(sum(case when h.category = 'below_ack_quorum' then 1 else 0 end) as bigint)
    as below_ack_quorum,
  cast(sum(case when h.category = 'below_write_quorum' then 1 else 0 end) as bigint)
    as below_write_quorum,
  {lost_entries} as lost_entries, {replicas_missing} as replicas_missing,
  {replicas_due} as replicas_due
from ledger_health h join owned o on h.scope_id = o.scope_id and h.ledger_id = o.ledger_id
where h.category is not null
group by o.owner, o.application
"""
"""`ledger_health` is the analysis of that name."""


def owner_bytes_sql(group_by: str, live: str, pinned: float, *, is_filtered: bool) -> str:
    """Return the SQL of `bytes_by_owner`: `live` selects the live records of `log_ledgers`. If the
    ledgers are filtered, those that are not in the metadata are left out."""
    return _OWNER_BYTES_SQL.format(
        name=OWNER_NAMES[group_by],
        join="join" if is_filtered else "left join",
        live=live,
        pinned=repr(pinned),
        entries=_bounded_sum("coalesce(last_entry_id, -1)", " + 1"),
    )


def owner_violations_sql(group_by: str) -> str:
    """Return the SQL of `violations_by_owner`."""
    columns = ("lost_entries", "replicas_missing", "replicas_due")
    sums = {column: _bounded_sum(f"h.{column}") for column in columns}
    return _OWNER_VIOLATIONS_SQL.format(name=OWNER_NAMES[group_by], **sums)


def _bounded_sum(column: str, change: str = "") -> str:
    """Return the SQL of a sum of numbers from metadata, which may be wrong and large."""
    number = f"cast({column} as decimal(20, 0)){change}"
    return f"cast(least(sum({number}), 9223372036854775807) as bigint)"
