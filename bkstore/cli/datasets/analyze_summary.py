"""One-line summaries of the analyses of `bkstore analyze`."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from bkstore.counts import format_count
from bkstore.pulsar.leak_search import PROBLEM_CLASSES

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from bkstore.offline.analyses import Inputs

NEEDS_ALL_ROWS = frozenset({"ledger_health", "leaked_ledgers"})
"""Analyses whose finding may be in any row; the findings of others are visible in the top rows."""


_counted = partial(format_count, grouped=True)


class _Summary(NamedTuple):
    finding: bool
    text: str


class SummaryLine(NamedTuple):
    """A line of the summary; `finding` is true if something is lost, at risk or damaged."""

    analysis: str
    rows: int
    finding: bool
    text: str


def summarize(name: str, table: pa.Table, inputs: Inputs) -> SummaryLine:
    """Return the summary line of one analysis, whose `table` has all its rows. With only the top
    rows, `finding` is still right, except for `NEEDS_ALL_ROWS`."""
    return SummaryLine(name, table.num_rows, *_SUMMARIZERS[name](table, inputs))


def _sum_of(table: pa.Table, column: str) -> int:
    import pyarrow.compute as pc

    return int(pc.sum(table.column(column)).as_py() or 0)


def _count_ledgers(table: pa.Table) -> str:
    import pyarrow.compute as pc

    return _counted(pc.count_distinct(table.column("qualified_name")).as_py(), "ledger")


def _summarize_violations(table: pa.Table, _: Inputs) -> _Summary:
    """Summarize the ledgers of each category of missing replicas, and the missing replicas."""
    if not table.num_rows:
        return _Summary(finding=False, text="none")
    names, categories = (table.column(name).to_pylist() for name in ("qualified_name", "category"))
    # All rows of a ledger have the category of its worst entry: the ledger counts once.
    counts = Counter(dict(zip(names, categories)).values())
    worst_first = ("no_replica", "below_ack_quorum", "below_write_quorum")
    parts = [f"{each}: {_counted(counts[each], 'ledger')}" for each in worst_first if counts[each]]
    parts.append(f"{_counted(_sum_of(table, 'missing_entries'), 'replica')} missing")
    return _Summary(finding=True, text="; ".join(parts))


def _summarize_owner_violations(table: pa.Table, _: Inputs) -> _Summary:
    """Summarize the owner that lost most."""
    if not table.num_rows:
        return _Summary(finding=False, text="none")
    worst = _first_row_by(table, ("lost_entries", "replicas_missing"))
    lost, missing = worst["lost_entries"], worst["replicas_missing"]
    loss = f"{_counted(lost, 'entry', 'entries')} lost, " if lost else ""
    text = f"{_owner_text(worst)}: {loss}{_counted(missing, 'replica')} missing"
    if others := table.num_rows - 1:
        lack = _counted(others, "other owner lacks replicas", "other owners lack replicas")
        text += f"; {lack}"
    return _Summary(finding=True, text=text)


def _by_owner(table: pa.Table, _: Inputs) -> _Summary:
    """Summarize the bytes of all owners, and of the one that has most."""
    size = _counted(_sum_of(table, "bytes"), "byte")
    text = f"{_counted(table.num_rows, 'owner')}, {size} of records"
    if table.num_rows:
        largest = _first_row_by(table, ("bytes",))
        text += f"; most: {_owner_text(largest)}, {_counted(largest['bytes'], 'byte')}"
    return _Summary(finding=False, text=text)


def _first_row_by(table: pa.Table, columns: tuple[str, ...]) -> dict[str, Any]:
    """Return the row with the largest values in these columns, of equal ones the first."""
    import pyarrow.compute as pc

    keys = [(column, "descending") for column in columns]
    (row,) = table.take(pc.sort_indices(table, sort_keys=keys)[:1]).to_pylist()
    return dict(row)


def _owner_text(row: dict[str, Any]) -> str:
    return row["owner"] or "unknown owner"


def _summarize_homeless(table: pa.Table, _: Inputs) -> _Summary:
    ledgers = _counted(table.num_rows, "ledger")
    return _Summary(finding=table.num_rows > 0, text=f"{ledgers} of which no bookie has an entry")


def _summarize_health(table: pa.Table, _: Inputs) -> _Summary:
    """Summarize how many ledgers were judged, and why the others were not. Metadata that cannot be
    used are a finding."""
    expected_counts = table.column("replicas_due").to_pylist()
    reasons = table.column("not_judged").to_pylist()
    # A reason concerns a part of a ledger if its replicas could be counted, else all of it.
    skipped = Counter(reason for due, reason in zip(expected_counts, reasons) if due is None)
    partly = sum(
        due is not None and reason is not None for due, reason in zip(expected_counts, reasons)
    )
    # A reason is the ledger's state, or a sentence on metadata that are damaged.
    unusable = sum(skipped[reason] for reason in skipped if reason.startswith("its metadata"))
    parts = [f"{_counted(len(expected_counts) - skipped.total(), 'ledger')} judged"]
    if partly:
        parts.append(f"{partly:,} of them in part")
    states = ("open", "in_recovery", "underreplicated")
    parts += [f"{skipped[state]:,} {state}" for state in states if skipped[state]]
    if unusable:
        parts.append(f"{unusable:,} with metadata that cannot be used")
    return _Summary(finding=unusable > 0, text="; ".join(parts))


def _summarize_surplus(table: pa.Table, _: Inputs) -> _Summary:
    replicas = _counted(_sum_of(table, "surplus_entries"), "replica")
    return _Summary(finding=False, text=f"{replicas} of {_count_ledgers(table)} more than expected")


def _summarize_orphans(table: pa.Table, _: Inputs) -> _Summary:
    size = _counted(_sum_of(table, "bytes"), "byte")
    return _Summary(finding=False, text=f"{_count_ledgers(table)} unknown to the metadata, {size}")


def _summarize_leaks(table: pa.Table, inputs: Inputs) -> _Summary:
    """Summarize the classes, the worst first, and the bytes of what may be deleted. Nodes that
    cannot be read are a finding."""
    counts = Counter(table.column("class").to_pylist())
    parts = [f"{each}: {_counted(counts[each], 'ledger')}" for each in sorted(counts)]
    garbage = table.filter(_is_in(table, "class", ["leaked", "offloaded-copy"]))
    if garbage.num_rows:
        removable = _counted(_sum_of(garbage, "removable_bytes"), "byte")
        size = _counted(_sum_of(garbage, "bytes"), "byte")
        parts.append(f"{size} of leaks and offloaded copies, {removable} without compaction")
    unread = inputs.pulsar.findings if inputs.pulsar is not None else []
    if unread:
        parts.append(f"{_counted(len(unread), 'finding')} on Pulsar's metadata")
    has_problems = bool(PROBLEM_CLASSES & counts.keys())
    return _Summary(finding=has_problems or bool(unread), text="; ".join(parts) or "none")


def _is_in(table: pa.Table, column: str, values: list[str]) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.is_in(table.column(column), value_set=pa.array(values))


def _summarize_holes(table: pa.Table, inputs: Inputs) -> _Summary:
    entries = _counted(_sum_of(table, "holes"), "entry", "entries")
    text = f"{_count_ledgers(table)}, {entries} between first and last"
    # Metadata tell more than holes: with them, `violations` has the losses.
    return _Summary(finding=inputs.metadata is None and table.num_rows > 0, text=text)


def _by_bookie(table: pa.Table, inputs: Inputs) -> _Summary:
    """Summarize sizes; unread bookies and damage are findings."""
    unread, damage = len(inputs.dump.unread_bookies), _sum_of(table, "damage")
    entries = _counted(_sum_of(table, "entries"), "entry", "entries")
    parts = [f"{_counted(table.num_rows - unread, 'bookie')}, {entries}"]
    parts.append(f"{_counted(_sum_of(table, 'log_file_bytes'), 'byte')} of entry logs")
    if unread:
        parts.append(f"{_counted(unread, 'bookie')} not read")
    if damage:
        parts.append(_counted(damage, "finding") + " of damage")
    return _Summary(finding=unread + damage > 0, text="; ".join(parts))


def _by_scope(table: pa.Table, _: Inputs) -> _Summary:
    size = _counted(_sum_of(table, "bytes"), "byte")
    return _Summary(finding=False, text=f"{_counted(table.num_rows, 'scope')}, {size} of records")


def _by_ledger(table: pa.Table, _: Inputs) -> _Summary:
    """Summarize the number of ledgers, replicas and bytes."""
    counts = (
        f"{_counted(table.num_rows, 'ledger')}, {_counted(_sum_of(table, 'replicas'), 'replica')}"
    )
    size = _counted(_sum_of(table, "bytes"), "byte")
    return _Summary(finding=False, text=f"{counts}, {size} of records")


def _summarize_occupancy(table: pa.Table, inputs: Inputs) -> _Summary:
    """Summarize garbage, and logs that a few live bytes keep."""
    garbage, pinned = _counted(_sum_of(table, "garbage_bytes"), "byte"), _sum_of(table, "pinned")
    logs = _counted(table.num_rows, "entry log")
    pinned_text = f"{pinned:,} pinned by less than {inputs.options.pinned:g}"
    return _Summary(finding=False, text=f"{logs}, {garbage} of garbage; {pinned_text}")


def _summarize_fragmentation(table: pa.Table, _: Inputs) -> _Summary:
    """Summarize how many entries are in one stretch of a log."""
    entries, stretches = _sum_of(table, "entries"), _sum_of(table, "stretches")
    stretch_count = _counted(stretches, "stretch", "stretches")
    mean = f"{entries / stretches if stretches else 0:,.1f} each"
    text = f"{_counted(entries, 'entry', 'entries')} in {stretch_count}, {mean}"
    return _Summary(finding=False, text=text)


def _summarize_sequences(table: pa.Table, _: Inputs) -> _Summary:
    entries = _counted(_sum_of(table, "entries"), "entry", "entries")
    groups = _counted(_sum_of(table, "groups"), "sequence group")
    return _Summary(finding=False, text=f"{entries} in {groups}")


def _summarize_comparison(table: pa.Table, inputs: Inputs) -> _Summary:
    """Summarize the entries common to both dumps, added and removed."""
    dumps = filter(None, (inputs.dump, inputs.other))
    bookie_ids = [{bookie["id"] for bookie in dump.manifest["bookies"]} for dump in dumps]
    if not set.intersection(*bookie_ids):
        text = "nothing to compare: the two dumps have no bookie in common"
        return _Summary(finding=False, text=text)
    parts = [f"{_sum_of(table, name):,} {name}" for name in ("common", "added", "removed")]
    return _Summary(finding=False, text=f"entries: {', '.join(parts)}")


_SUMMARIZERS: dict[str, Callable[[Any, Inputs], _Summary]] = {
    "violations": _summarize_violations,
    "violations_by_owner": _summarize_owner_violations,
    "homeless": _summarize_homeless,
    "ledger_health": _summarize_health,
    "surplus": _summarize_surplus,
    "orphans": _summarize_orphans,
    "leaked_ledgers": _summarize_leaks,
    "holes": _summarize_holes,
    "bytes_by_bookie": _by_bookie,
    "bytes_by_scope": _by_scope,
    "bytes_by_owner": _by_owner,
    "bytes_by_ledger": _by_ledger,
    "log_occupancy": _summarize_occupancy,
    "fragmentation": _summarize_fragmentation,
    "sequences": _summarize_sequences,
    "comparison": _summarize_comparison,
}
