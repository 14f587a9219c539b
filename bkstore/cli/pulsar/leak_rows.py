"""The rows of `bkstore leaks`, and its summary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bkstore.offline.usage.ledger_bytes import StoredBytes
from bkstore.pulsar.ledger_classes import LEDGER_CLASSES, ClassifiedLedger, LedgerClass

_DAY_MILLISECONDS = 24 * 60 * 60 * 1000
_NAMES: Mapping[LedgerClass, str] = {
    "dangling": "dangling",
    "leaked": "leaked",
    "offloaded-copy": "offloaded and still here",
    "undetermined": "undetermined",
    "unknown-owner": "of unknown owner",
    "unreferenced-young": "unreferenced, but young",
    "referenced": "referenced",
}

QUIET_CLASSES: frozenset[LedgerClass] = frozenset({"referenced", "unreferenced-young"})
"""The classes of ledgers that are as they should be: shown on request only."""


def leak_row(
    ledger: ClassifiedLedger, now: int, stored_bytes: StoredBytes | None
) -> tuple[Any, ...]:
    """Return a ledger's row of the table `LEAKS`; `stored_bytes` None = not known."""
    stored = ledger.stored  # what BookKeeper has of it; None: a dangling ledger
    state = length = version = ctime = age_days = None
    if stored is not None:
        state, length = stored.state, stored.length
        version = None if stored.problem is not None else stored.version
        ctime = stored.ctime if stored.ctime >= 0 else None
    if ctime is not None:
        age_days = round(max(0.0, (now - ctime) / _DAY_MILLISECONDS), 3)
    ids = (*ledger.ledger.signed, ledger.ledger.qualified_name)
    texts = (ledger.detail or None, ledger.caution or None)
    subject = ledger.owner.subject or ledger.owner.application
    owner = (subject, *ledger.owner.columns, ledger.owner.managed_ledger)
    sizes: tuple[Any, ...] = (None, None, None)
    if stored_bytes is not None:
        by_bookie = sorted(stored_bytes.by_bookie.items())
        text = ", ".join(f"{bookie} {size}" for bookie, size in by_bookie)
        sizes = stored_bytes.total, stored_bytes.removable, text or None
    facts = (state, ctime, age_days, length, version)
    return (ledger.ledger_class, *ids, *owner, *facts, *sizes, *texts)


def describe_counts(counts: Mapping[LedgerClass, int]) -> str:
    """Return how many ledgers there are of each class, in a line.

    >>> describe_counts({"referenced": 5, "leaked": 2})
    '2 leaked, 5 referenced'
    """
    present = [each for each in LEDGER_CLASSES if counts.get(each)]
    return ", ".join(f"{counts[each]} {_NAMES[each]}" for each in present)
