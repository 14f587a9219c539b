"""Deleting the ledgers of a reviewed list, each after BookKeeper's and Pulsar's metadata were read
again.

The list states what an operator wants to delete. Whether it may be deleted is decided again: a
ledger that is referred to, that changed since it was listed, or that a broker may be deleting is
kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from bkstore.cluster.store.api import MetadataStore
from bkstore.errors import BadVersion, NoSuchLedger
from bkstore.ids import LedgerId
from bkstore.pulsar.leak_search import LeakSearch
from bkstore.pulsar.ledger_classes import ClassifiedLedger, LedgerClass

DELETABLE: frozenset[LedgerClass] = frozenset({"leaked", "offloaded-copy"})
"""The classes of ledgers that may be deleted."""

DeletionOutcome = Literal["deleted", "would be deleted", "gone", "kept"]


class ListedLeak(NamedTuple):
    """A ledger of a reviewed list: its class and the version of its metadata when it was listed,
    None if it is not stated."""

    ledger: LedgerId
    ledger_class: str
    version: int | None


class LedgerDeletion(NamedTuple):
    """The outcome for a listed ledger; `reason` is why it was kept, `current` is its class now."""

    ledger: LedgerId
    outcome: DeletionOutcome
    reason: str = ""
    current: ClassifiedLedger | None = None


def delete_leaks(
    store: MetadataStore, search: LeakSearch, listed: Iterable[ListedLeak], *, apply: bool
) -> Iterator[LedgerDeletion]:
    """Yield the outcome for each listed ledger, in order; without `apply` nothing is deleted.

    BookKeeper's and Pulsar's metadata are read first. With `apply` each ledger is then read again,
    in both, and deleted at the version that was read. A repeated call continues where an earlier
    one ended: ledgers that are already deleted are "gone". Raises what the store raises if it does
    not answer; then it is unknown whether the last ledger was deleted."""
    report = search.run()
    ledgers_now = {each.ledger: each for each in report.ledgers if each.stored is not None}
    for item in listed:
        current = ledgers_now.get(item.ledger)
        reason = _why_kept(item, current)
        if current is None:
            yield LedgerDeletion(item.ledger, "gone")
        elif reason:
            yield LedgerDeletion(item.ledger, "kept", reason, current)
        elif not apply:
            yield LedgerDeletion(item.ledger, "would be deleted", current=current)
        else:
            yield _delete_one(store, search, item, current)


def _delete_one(
    store: MetadataStore,
    search: LeakSearch,
    item: ListedLeak,
    current: ClassifiedLedger,
) -> LedgerDeletion:
    """Classify a ledger again, and delete it if its class and version are still those of the
    list."""
    checked = next(iter(search.check_again([current])), None)
    if checked is None or checked.stored is None:
        return LedgerDeletion(item.ledger, "gone", current=current)
    reason = _why_kept(item, checked)
    if reason:
        return LedgerDeletion(item.ledger, "kept", reason, checked)
    try:
        store.delete(item.ledger, checked.stored.version)
    except NoSuchLedger:
        return LedgerDeletion(item.ledger, "gone", current=checked)
    except BadVersion:
        reason = "its metadata changed while it was looked at"
        return LedgerDeletion(item.ledger, "kept", reason, checked)
    return LedgerDeletion(item.ledger, "deleted", current=checked)


def _why_kept(item: ListedLeak, current: ClassifiedLedger | None) -> str:
    """Return why a ledger is not deleted; empty if it may be, or does not exist any more."""
    if current is None or current.stored is None:
        return ""
    if item.ledger_class not in DELETABLE:
        return f"it is listed as {item.ledger_class}"
    if current.ledger_class not in DELETABLE:
        detail = f": {current.detail}" if current.detail else ""
        return f"it is {current.ledger_class}{detail}"
    if current.caution:
        return current.caution
    if item.version is None:
        return "the list does not state the version of its metadata"
    if item.version != current.stored.version:
        return "its metadata changed since it was listed"
    return ""
