"""One-line summaries of the analyses of `bkstore analyze`."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from bkstore.counts import format_count

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from bkstore.offline.analyses import Inputs

NEEDS_ALL_ROWS = frozenset({"ledger_health"})
"""Analyses whose finding may be in any row; the findings of others are visible in the top rows."""


_counted = partial(format_count, grouped=True)


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


def _sum(table: pa.Table, column: str) -> int:
    import pyarrow.compute as pc

    return int(pc.sum(table.column(column)).as_py() or 0)


def _count_ledgers(table: pa.Table) -> str:
    import pyarrow.compute as pc

    return _counted(pc.count_distinct(table.column("qualified_name")).as_py(), "ledger")


def _violations(table: pa.Table, _: Inputs) -> tuple[bool, str]:
    names, categories = (table.column(name).to_pylist() for name in ("qualified_name", "category"))
    worst = dict(zip(names, categories))
    counts = Counter(worst.values())
    order = ("no_replica", "below_ack_quorum", "below_write_quorum")
    parts = [f"{name}: {_counted(counts[name], 'ledger')}" for name in order if counts[name]]
    parts.append(f"{_counted(_sum(table, 'missing_entries'), 'replica')} missing")
    return table.num_rows > 0, "; ".join(parts) if table.num_rows else "none"


def _homeless(table: pa.Table, _: Inputs) -> tuple[bool, str]:
    ledgers = _counted(table.num_rows, "ledger")
    return table.num_rows > 0, f"{ledgers} of which no bookie has an entry"


def _health(table: pa.Table, _: Inputs) -> tuple[bool, str]:
    due_counts, reasons = (
        table.column(name).to_pylist() for name in ("replicas_due", "not_judged")
    )
    # A reason concerns a part of a ledger if its replicas could be counted, else all of it.
    skipped = Counter(reason for due, reason in zip(due_counts, reasons) if due is None)
    partly = sum(due is not None and reason is not None for due, reason in zip(due_counts, reasons))
    unusable = sum(skipped[reason] for reason in skipped if reason.startswith("its metadata"))
    parts = [f"{_counted(len(due_counts) - skipped.total(), 'ledger')} judged"]
    if partly:
        parts.append(f"{partly:,} of them in part")
    states = ("open", "in_recovery", "underreplicated")
    parts += [f"{skipped[state]:,} {state}" for state in states if skipped[state]]
    if unusable:
        parts.append(f"{unusable:,} with metadata that cannot be used")
    return unusable > 0, "; ".join(parts)


def _surplus(table: pa.Table, _: Inputs) -> tuple[bool, str]:
    replicas = _counted(_sum(table, "surplus_entries"), "replica")
    return False, f"{replicas} of {_count_ledgers(table)} beyond those due"


def _orphans(table: pa.Table, _: Inputs) -> tuple[bool, str]:
    size = _counted(_sum(table, "bytes"), "byte")
    return False, f"{_count_ledgers(table)} unknown to the metadata, {size}"


def _holes(table: pa.Table, inputs: Inputs) -> tuple[bool, str]:
    entries = _counted(_sum(table, "holes"), "entry", "entries")
    summary = f"{_count_ledgers(table)}, {entries} between first and last"
    return inputs.metadata is None and table.num_rows > 0, summary


def _by_bookie(table: pa.Table, inputs: Inputs) -> tuple[bool, str]:
    unread, damage = len(inputs.dump.unread_bookies), _sum(table, "damage")
    entries = _counted(_sum(table, "entries"), "entry", "entries")
    parts = [f"{_counted(table.num_rows - unread, 'bookie')}, {entries}"]
    parts.append(f"{_counted(_sum(table, 'log_file_bytes'), 'byte')} of entry logs")
    if unread:
        parts.append(f"{_counted(unread, 'bookie')} not read")
    if damage:
        parts.append(_counted(damage, "finding") + " of damage")
    return unread + damage > 0, "; ".join(parts)


def _by_scope(table: pa.Table, _: Inputs) -> tuple[bool, str]:
    size = _counted(_sum(table, "bytes"), "byte")
    return False, f"{_counted(table.num_rows, 'scope')}, {size} of records"


def _by_ledger(table: pa.Table, _: Inputs) -> tuple[bool, str]:
    counts = f"{_counted(table.num_rows, 'ledger')}, {_counted(_sum(table, 'replicas'), 'replica')}"
    return False, f"{counts}, {_counted(_sum(table, 'bytes'), 'byte')} of records"


def _occupancy(table: pa.Table, inputs: Inputs) -> tuple[bool, str]:
    garbage, pinned = _counted(_sum(table, "garbage_bytes"), "byte"), _sum(table, "pinned")
    logs = _counted(table.num_rows, "entry log")
    threshold = f"{inputs.options.pinned:g}"
    return False, f"{logs}, {garbage} of garbage; {pinned:,} pinned by less than {threshold}"


def _fragmentation(table: pa.Table, _: Inputs) -> tuple[bool, str]:
    entries, stretches = _sum(table, "entries"), _sum(table, "stretches")
    stretch_count = _counted(stretches, "stretch", "stretches")
    mean = f"{entries / stretches if stretches else 0:,.1f} each"
    return False, f"{_counted(entries, 'entry', 'entries')} in {stretch_count}, {mean}"


def _sequences(table: pa.Table, _: Inputs) -> tuple[bool, str]:
    entries, groups = _sum(table, "entries"), _sum(table, "groups")
    return False, f"{_counted(entries, 'entry', 'entries')} in {_counted(groups, 'sequence group')}"


def _comparison(table: pa.Table, inputs: Inputs) -> tuple[bool, str]:
    dumps = filter(None, (inputs.dump, inputs.other))
    bookie_ids = [{bookie["id"] for bookie in dump.manifest["bookies"]} for dump in dumps]
    if not set.intersection(*bookie_ids):
        return False, "nothing to compare: the two dumps have no bookie in common"
    parts = [f"{_sum(table, name):,} {name}" for name in ("common", "added", "removed")]
    return False, f"entries: {', '.join(parts)}"


_SUMMARIZERS: dict[str, Callable[[Any, Inputs], tuple[bool, str]]] = {
    "violations": _violations,
    "homeless": _homeless,
    "ledger_health": _health,
    "surplus": _surplus,
    "orphans": _orphans,
    "holes": _holes,
    "bytes_by_bookie": _by_bookie,
    "bytes_by_scope": _by_scope,
    "bytes_by_ledger": _by_ledger,
    "log_occupancy": _occupancy,
    "fragmentation": _fragmentation,
    "sequences": _sequences,
    "comparison": _comparison,
}
