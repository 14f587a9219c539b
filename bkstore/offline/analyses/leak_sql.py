"""The analysis `leaked_ledgers`, in SQL for both Spark and DuckDB (rules of the texts: `sql`).

It reads the tables of `pulsar_tables`. The rules are those of `bkstore.pulsar.ledger_classes`, for
all ledgers at once: `classified` has a row for each ledger that is stored or referred to.
"""

from __future__ import annotations

from bkstore.pulsar import ledger_classes as classes
from bkstore.pulsar.ledger_classes import RECENT_MILLISECONDS

_CLASSIFIED_SQL = """
stored as (
  select l.scope_id, l.ledger_id, l.state, l.ctime, l.length, l.version, true as is_stored,
    case when r.ledger_id is not null and not o.states_topic then r.owner_number
      else l.owner_number end as owner_number,
    case when r.ledger_id is not null and r.bookkeeper_deleted then 'offloaded-copy'
      when r.ledger_id is not null then 'referenced'
      when l.problem is not null then 'undetermined'
      when not o.is_pulsar then 'unknown-owner'
      when o.doubt is not null or l.ctime is null then 'undetermined'
      when {now} - l.ctime < {grace} then 'unreferenced-young'
      else 'leaked' end as class,
    case when r.ledger_id is not null then {is_offloaded}
      when l.problem is not null then l.problem
      when not o.is_pulsar then cast(null as string)
      when o.doubt is not null then o.doubt
      when l.ctime is null then {no_creation_time}
      else {no_reference} end as detail,
    case when r.ledger_id is not null and not r.offloaded then {offload_incomplete}
      when r.ledger_id is not null
        then case when {now} - p.changed_at < {recent} then {recent_change} end
      when o.lacks_topics then {lacks_topics}
      when o.lacks_schemas then {has_older_schemas}
      when o.cursor_ledger is not null and (o.named_ledger is null
          or bk_unsigned(l.ledger_id) > bk_unsigned(o.named_ledger))
        then concat({may_be_compacted})
      when {now} - o.changed_at < {recent} then {recent_change} end as caution
  from pulsar_ledgers l join pulsar_owners o on l.owner_number = o.owner_number
  left join pulsar_references r on l.scope_id = 0 and l.ledger_id = r.ledger_id
  left join pulsar_owners p on r.owner_number = p.owner_number),
missing as (
  select cast(0 as bigint) as scope_id, r.ledger_id, cast(null as string) as state,
    cast(null as bigint) as ctime, cast(null as bigint) as length,
    cast(null as bigint) as version, false as is_stored, r.owner_number,
    case when r.may_be_replaced then 'undetermined' else 'dangling' end as class,
    case when r.may_be_replaced then {is_missing_replaceable}
      when r.offloaded then {is_missing_offloaded} else {is_missing} end as detail,
    cast(null as string) as caution
  from pulsar_references r
  anti join (select ledger_id from pulsar_ledgers where scope_id = 0) l
    on r.ledger_id = l.ledger_id
  where not (r.bookkeeper_deleted and r.offloaded)),
classified as (
  select k.*, o.is_chosen and k.class not in ('referenced', 'unreferenced-young') as is_shown,
    k.is_stored and not (o.is_chosen and k.class in ('leaked', 'offloaded-copy')) as is_needed
  from (select * from stored union all select * from missing) k
  join pulsar_owners o on k.owner_number = o.owner_number)
"""

_LEAKED_LEDGERS_SQL = """
with {classified},
needed_logs as (
  select r.bookie, r.dir_index, r.log_id
  from log_ledgers r join classified c on r.scope_id = c.scope_id and r.ledger_id = c.ledger_id
  where c.is_needed group by r.bookie, r.dir_index, r.log_id),
sizes as (
  select r.scope_id, r.ledger_id, count(distinct r.bookie) as bookies, sum(r.bytes) as bytes,
    sum(case when n.log_id is null then r.bytes else 0 end) as removable_bytes
  from log_ledgers r join classified c on r.scope_id = c.scope_id and r.ledger_id = c.ledger_id
  left join needed_logs n
    on r.bookie = n.bookie and r.dir_index = n.dir_index and r.log_id = n.log_id
  where c.is_shown group by r.scope_id, r.ledger_id)
select c.class, c.scope_id, c.ledger_id, bk_qualified(c.scope_id, c.ledger_id) as qualified_name,
  o.owner, o.application, o.component, o.tenant, o.namespace, o.topic, o.partition, o.cursor,
  o.schema, o.managed_ledger, c.state, c.ctime, c.length, c.version,
  coalesce(s.bookies, cast(0 as bigint)) as bookies,
  cast(coalesce(s.bytes, 0) as bigint) as bytes,
  cast(coalesce(s.removable_bytes, 0) as bigint) as removable_bytes,
  case when c.class <> 'unknown-owner' then c.detail end as detail,
  case when c.class in ('leaked', 'offloaded-copy') then c.caution end as caution
from classified c join pulsar_owners o on c.owner_number = o.owner_number
left join sizes s on c.scope_id = s.scope_id and c.ledger_id = s.ledger_id
where c.is_shown
"""


def leaked_ledgers_sql(now: int, grace: int) -> str:
    """Return the SQL of `leaked_ledgers` at the time `now`; ledgers younger than `grace` are no
    leaks. Both are in milliseconds."""
    before, after = classes.MAY_BE_COMPACTED.split("{}")
    classified = _CLASSIFIED_SQL.format(
        now=f"cast({now} as bigint)",
        grace=grace,
        recent=RECENT_MILLISECONDS,
        is_offloaded=_quoted(classes.IS_OFFLOADED),
        no_creation_time=_quoted(classes.NO_CREATION_TIME),
        no_reference=_quoted(classes.NO_REFERENCE),
        offload_incomplete=_quoted(classes.OFFLOAD_INCOMPLETE),
        recent_change=_quoted(classes.RECENT_CHANGE),
        lacks_topics=_quoted(classes.LACKS_TOPICS),
        has_older_schemas=_quoted(classes.HAS_OLDER_SCHEMAS),
        may_be_compacted=f"{_quoted(before)}, cast(o.cursor_ledger as string), {_quoted(after)}",
        is_missing=_quoted(classes.IS_MISSING),
        is_missing_offloaded=_quoted(classes.IS_MISSING_OFFLOADED),
        is_missing_replaceable=_quoted(classes.IS_MISSING_REPLACEABLE),
    )
    return _LEAKED_LEDGERS_SQL.format(classified=classified.strip())


def _quoted(text: str) -> str:
    """Return a SQL literal. Spark takes only the backslash as an escape of quotes, DuckDB only
    another quote; so a quote is a character of its own."""
    parts = [f"'{part}'" for part in text.split("'")]
    return parts[0] if len(parts) == 1 else f"concat({', chr(39), '.join(parts)})"
