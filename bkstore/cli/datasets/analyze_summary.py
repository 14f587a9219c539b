"""What `bkstore analyze` says of each analysis in one line: its rows added up."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from bkstore.counts import counted

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from bkstore.offline.analyses import Inputs

JUDGED_BY_ALL_ROWS = frozenset({"ledger_health"})
"""Analyses whose finding may stand in any row; that of others is seen in the top ones as well."""


class Line(NamedTuple):
    """A line of the summary; `finding`: something is lost, at risk or damaged."""

    analysis: str
    rows: int
    finding: bool
    says: str


def summarise(name: str, table: pa.Table, inputs: Inputs) -> Line:
    """Return the line of one analysis; `table` has all its rows.

    Of the top rows alone `finding` is right too, but for `JUDGED_BY_ALL_ROWS`.
    """
    finding, says = _SAYS[name](table, inputs)
    return Line(name, table.num_rows, finding, says)


def _sum(table: pa.Table, column: str) -> int:
    import pyarrow.compute as pc

    return int(pc.sum(table.column(column)).as_py() or 0)


def _distinct(table: pa.Table, column: str) -> int:
    import pyarrow.compute as pc

    return int(pc.count_distinct(table.column(column)).as_py())


_some = partial(counted, grouped=True)


def _violations(table: pa.Table, _: Inputs) -> tuple[bool, str]:
    worst = dict(
        zip(table.column("qualified_name").to_pylist(), table.column("category").to_pylist())
    )
    counts = Counter(worst.values())
    order = ("no_replica", "below_ack_quorum", "below_write_quorum")
    parts = [f"{name}: {_some(counts[name], 'ledger')}" for name in order if counts[name]]
    parts.append(f"{_some(_sum(table, 'missing_entries'), 'replica')} missing")
    return table.num_rows > 0, "; ".join(parts) if table.num_rows else "none"


def _homeless(table: pa.Table, _: Inputs) -> tuple[bool, str]:
    return table.num_rows > 0, f"{_some(table.num_rows, 'ledger')} of which no bookie has an entry"


def _health(table: pa.Table, _: Inputs) -> tuple[bool, str]:
    due = table.column("replicas_due").to_pylist()
    reasons = table.column("not_judged").to_pylist()
    skipped = Counter(why for n, why in zip(due, reasons) if n is None)
    partly = sum(why is not None for n, why in zip(due, reasons) if n is not None)
    bad = sum(count for why, count in skipped.items() if why.startswith("its metadata"))
    parts = [f"{_some(len(due) - sum(skipped.values()), 'ledger')} judged"]
    if partly:
        parts.append(f"{partly:,} of them in part")
    states = ("open", "in_recovery", "underreplicated")
    parts += [f"{skipped[why]:,} {why}" for why in states if skipped[why]]
    if bad:
        parts.append(f"{bad:,} with metadata that cannot be used")
    return bad > 0, "; ".join(parts)


def _surplus(table: pa.Table, _: Inputs) -> tuple[bool, str]:
    ledgers = _some(_distinct(table, "qualified_name"), "ledger")
    return False, f"{_some(_sum(table, 'surplus_entries'), 'replica')} of {ledgers} not asked for"


def _orphans(table: pa.Table, _: Inputs) -> tuple[bool, str]:
    ledgers = _some(_distinct(table, "qualified_name"), "ledger")
    return False, f"{ledgers} unknown to the metadata, {_some(_sum(table, 'bytes'), 'byte')}"


def _holes(table: pa.Table, inputs: Inputs) -> tuple[bool, str]:
    ledgers = _some(_distinct(table, "qualified_name"), "ledger")
    told = f"{ledgers}, {_some(_sum(table, 'holes'), 'entry', 'entries')} between first and last"
    return inputs.metadata is None and table.num_rows > 0, told


def _by_bookie(table: pa.Table, inputs: Inputs) -> tuple[bool, str]:
    unread, damage = len(inputs.dump.unread), _sum(table, "damage")
    entries = _some(_sum(table, "entries"), "entry", "entries")
    parts = [f"{_some(table.num_rows - unread, 'bookie')}, {entries}"]
    parts.append(f"{_some(_sum(table, 'log_file_bytes'), 'byte')} of entry logs")
    if unread:
        parts.append(f"{_some(unread, 'bookie')} not read")
    if damage:
        parts.append(_some(damage, "finding") + " of damage")
    return unread + damage > 0, "; ".join(parts)


def _by_scope(table: pa.Table, _: Inputs) -> tuple[bool, str]:
    size = _some(_sum(table, "bytes"), "byte")
    return False, f"{_some(table.num_rows, 'scope')}, {size} of records"


def _by_ledger(table: pa.Table, _: Inputs) -> tuple[bool, str]:
    said = f"{_some(table.num_rows, 'ledger')}, {_some(_sum(table, 'replicas'), 'replica')}"
    return False, f"{said}, {_some(_sum(table, 'bytes'), 'byte')} of records"


def _occupancy(table: pa.Table, inputs: Inputs) -> tuple[bool, str]:
    garbage, pinned = _some(_sum(table, "garbage_bytes"), "byte"), _sum(table, "pinned")
    logs = _some(table.num_rows, "entry log")
    least = f"{inputs.options.pinned:g}"
    return False, f"{logs}, {garbage} of garbage; {pinned:,} pinned by less than {least}"


def _fragmentation(table: pa.Table, _: Inputs) -> tuple[bool, str]:
    entries, stretches = _sum(table, "entries"), _sum(table, "stretches")
    mean = entries / stretches if stretches else 0
    runs = _some(stretches, "stretch", "stretches")
    return False, f"{_some(entries, 'entry', 'entries')} in {runs}, {mean:,.1f} each"


def _sequences(table: pa.Table, _: Inputs) -> tuple[bool, str]:
    entries, groups = _sum(table, "entries"), _sum(table, "groups")
    return False, f"{_some(entries, 'entry', 'entries')} in {_some(groups, 'sequence group')}"


def _comparison(table: pa.Table, inputs: Inputs) -> tuple[bool, str]:
    listed = [
        {b["id"] for b in dump.manifest["bookies"]} for dump in (inputs.dump, inputs.other) if dump
    ]
    if not set.intersection(*listed):
        return False, "nothing to compare: the two dumps have no bookie in common"
    parts = [f"{_sum(table, name):,} {name}" for name in ("common", "added", "removed")]
    return False, f"entries: {', '.join(parts)}"


_SAYS: dict[str, Callable[[Any, Inputs], tuple[bool, str]]] = {
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
