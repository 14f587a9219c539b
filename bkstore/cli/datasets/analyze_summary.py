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


class SummaryLine(NamedTuple):
    """A line of the summary; `finding` is true if something is lost, at risk or damaged."""

    analysis: str
    rows: int
    finding: bool
    text: str


def summarize(name: str, table: pa.Table, inputs: Inputs) -> SummaryLine:
    """Return the summary line of one analysis, whose `table` has all its rows. With only the top
    rows, `finding` is still right, except for `NEEDS_ALL_ROWS`."""
    finding, says = _SUMMARIZERS[name](table, inputs)
    return SummaryLine(name, table.num_rows, finding, says)


def _sum(table: pa.Table, column: str) -> int:
    import pyarrow.compute as pc

    return int(pc.sum(table.column(column)).as_py() or 0)


def _count_distinct(table: pa.Table, column: str) -> int:
    import pyarrow.compute as pc

    return int(pc.count_distinct(table.column(column)).as_py())


_counted = partial(format_count, grouped=True)


def _violations(table: pa.Table, _: Inputs) -> tuple[bool, str]:
    worst = dict(
        zip(table.column("qualified_name").to_pylist(), table.column("category").to_pylist())
    )
    counts = Counter(worst.values())
    order = ("no_replica", "below_ack_quorum", "below_write_quorum")
    parts = [f"{name}: {_counted(counts[name], 'ledger')}" for name in order if counts[name]]
    parts.append(f"{_counted(_sum(table, 'missing_entries'), 'replica')} missing")
    return table.num_rows > 0, "; ".join(parts) if table.num_rows else "none"


def _homeless(table: pa.Table, _: Inputs) -> tuple[bool, str]:
    return (
        table.num_rows > 0,
        f"{_counted(table.num_rows, 'ledger')} of which no bookie has an entry",
    )


def _health(table: pa.Table, _: Inputs) -> tuple[bool, str]:
    replicas_due_column = table.column("replicas_due").to_pylist()
    reasons = table.column("not_judged").to_pylist()
    skipped_reasons = Counter(
        reason for replicas_due, reason in zip(replicas_due_column, reasons) if replicas_due is None
    )
    partly_judged = sum(
        reason is not None
        for replicas_due, reason in zip(replicas_due_column, reasons)
        if replicas_due is not None
    )
    unusable_metadata = sum(
        count for reason, count in skipped_reasons.items() if reason.startswith("its metadata")
    )
    parts = [
        f"{_counted(len(replicas_due_column) - sum(skipped_reasons.values()), 'ledger')} judged"
    ]
    if partly_judged:
        parts.append(f"{partly_judged:,} of them in part")
    states = ("open", "in_recovery", "underreplicated")
    parts += [
        f"{skipped_reasons[reason]:,} {reason}" for reason in states if skipped_reasons[reason]
    ]
    if unusable_metadata:
        parts.append(f"{unusable_metadata:,} with metadata that cannot be used")
    return unusable_metadata > 0, "; ".join(parts)


def _surplus(table: pa.Table, _: Inputs) -> tuple[bool, str]:
    ledgers = _counted(_count_distinct(table, "qualified_name"), "ledger")
    return (
        False,
        f"{_counted(_sum(table, 'surplus_entries'), 'replica')} of {ledgers} beyond those due",
    )


def _orphans(table: pa.Table, _: Inputs) -> tuple[bool, str]:
    ledgers = _counted(_count_distinct(table, "qualified_name"), "ledger")
    return False, f"{ledgers} unknown to the metadata, {_counted(_sum(table, 'bytes'), 'byte')}"


def _holes(table: pa.Table, inputs: Inputs) -> tuple[bool, str]:
    ledgers = _counted(_count_distinct(table, "qualified_name"), "ledger")
    summary = (
        f"{ledgers}, {_counted(_sum(table, 'holes'), 'entry', 'entries')} between first and last"
    )
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
    mean_entries = entries / stretches if stretches else 0
    stretch_count = _counted(stretches, "stretch", "stretches")
    return (
        False,
        f"{_counted(entries, 'entry', 'entries')} in {stretch_count}, {mean_entries:,.1f} each",
    )


def _sequences(table: pa.Table, _: Inputs) -> tuple[bool, str]:
    entries, groups = _sum(table, "entries"), _sum(table, "groups")
    return False, f"{_counted(entries, 'entry', 'entries')} in {_counted(groups, 'sequence group')}"


def _comparison(table: pa.Table, inputs: Inputs) -> tuple[bool, str]:
    bookie_ids = [
        {bookie["id"] for bookie in dump.manifest["bookies"]}
        for dump in (inputs.dump, inputs.other)
        if dump
    ]
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
