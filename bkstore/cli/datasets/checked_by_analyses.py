"""Whether the analyses that were asked for had anything to check: nothing is not a check passed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bkstore.offline.analyses import ANALYSES, Engine, Inputs

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

_JUDGING = frozenset({"violations", "homeless", "ledger_health"})
_FINDING_HOLES = frozenset({"holes"})


def has_checked(tables: Mapping[str, pa.Table], inputs: Inputs, engine: Engine) -> bool:
    """Return whether one of the analyses that look for losses has looked at an entry.

    True where none of them was asked for: the others only count. Against metadata the rule is the
    audit's: a ledger was judged, and if some of those judged have entries, entries of one were
    due at a bookie that was read. `tables` has all rows of `ledger_health`; it is run for this
    where it was not asked for.
    """
    if inputs.metadata is None:
        has_groups = any(file.rows for file in inputs.dump.files["groups"])
        return has_groups or not _FINDING_HOLES & tables.keys()
    if not _JUDGING & tables.keys():
        return True
    health = tables.get("ledger_health")
    if health is None:
        health = engine.run(ANALYSES["ledger_health"], inputs)
    due, last_entries = (health.column(n).to_pylist() for n in ("replicas_due", "last_entry_id"))
    judged = [(count, last) for count, last in zip(due, last_entries) if count is not None]
    has_entries = any(last >= 0 for _, last in judged)
    return any(count for count, _ in judged) or bool(judged and not has_entries)
