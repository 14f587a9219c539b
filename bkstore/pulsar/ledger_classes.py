"""The class of a ledger: whether Pulsar refers to it, and if not, whether that makes it a leak.

A broker creates a ledger before it lists it, and takes it off the list before it deletes it. So a
ledger to which nothing refers may be too young to be listed, and one that is listed may just have
been deleted. Rules: `docs/pulsar.md`.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerOwner, State
from bkstore.ledger_metadata.owners import COMPACTED_LEDGER, PULSAR, SCHEMA
from bkstore.pulsar.references import LedgerReference, PulsarReferences, topic_key

LedgerClass = Literal[
    "dangling",
    "leaked",
    "offloaded-copy",
    "undetermined",
    "unknown-owner",
    "unreferenced-young",
    "referenced",
]
"""The classes of ledgers, the worst first: see `docs/pulsar.md`."""

LEDGER_CLASSES: tuple[LedgerClass, ...] = get_args(LedgerClass)

RECENT_MILLISECONDS = 5 * 60 * 1000
"""How long a broker may still repeat a failed deletion (three times, a minute apart)."""


class StoredLedger(NamedTuple):
    """A ledger according to BookKeeper's metadata. `ctime` is in milliseconds, -1 = unknown;
    `version` is that of its metadata; `problem` is why they cannot be read."""

    ledger: LedgerId
    owner: LedgerOwner
    state: State | None = None
    ctime: int = -1
    length: int | None = None
    version: int = 0
    problem: str | None = None


class ClassifiedLedger(NamedTuple):
    """A ledger's class. `stored` is None if BookKeeper does not have it, `reference` if nothing
    refers to it. `detail` states why; `caution` is why an operator should not delete it yet."""

    ledger: LedgerId
    ledger_class: LedgerClass
    owner: LedgerOwner
    stored: StoredLedger | None
    reference: LedgerReference | None = None
    detail: str = ""
    caution: str = ""


def classify_stored(
    stored: StoredLedger, references: PulsarReferences, now: int, grace: int
) -> ClassifiedLedger:
    """Return the class of a ledger that BookKeeper has, at the time `now`; a ledger younger than
    `grace` is no leak. Both are in milliseconds. O(1)."""
    reference = None
    if stored.ledger.scope == 0:
        reference = references.ledgers.get(stored.ledger.ledger)
    if reference is not None:
        return _classify_referenced(stored, reference, references, now)
    owner = stored.owner

    def classified(ledger_class: LedgerClass, detail: str = "") -> ClassifiedLedger:
        return ClassifiedLedger(stored.ledger, ledger_class, owner, stored, detail=detail)

    if stored.problem is not None:
        return classified("undetermined", stored.problem)
    if owner.application != PULSAR:
        return classified("unknown-owner")
    doubt = references.doubt(owner)
    if doubt is not None:
        return classified("undetermined", doubt)
    if stored.ctime < 0:
        return classified("undetermined", "when it was created is not known")
    if now - stored.ctime < grace:
        return classified("unreferenced-young")
    caution = _caution(stored, references, now)
    return classified("leaked", "nothing refers to it")._replace(caution=caution)


def _classify_referenced(
    stored: StoredLedger, reference: LedgerReference, references: PulsarReferences, now: int
) -> ClassifiedLedger:
    """Return the class of a stored ledger that Pulsar refers to: "referenced", or "offloaded-copy"
    if brokers read another copy."""
    owner = _merge_owners(stored.owner, reference.owner)
    if not reference.bookkeeper_deleted:
        return ClassifiedLedger(stored.ledger, "referenced", owner, stored, reference)
    caution = _recent_change(reference.owner, references, now)
    detail = "its topic is read from long-term storage"
    return ClassifiedLedger(
        stored.ledger, "offloaded-copy", owner, stored, reference, detail, caution
    )


def _merge_owners(stated: LedgerOwner, referring: LedgerOwner) -> LedgerOwner:
    """Return the owner stated in a ledger's custom metadata, else that of the reference."""
    is_stated = stated.application == PULSAR and (topic_key(stated) or stated.schema)
    return stated if is_stated else referring


def classify_missing(ledger_id: int, reference: LedgerReference) -> ClassifiedLedger | None:
    """Return the class of a ledger that Pulsar refers to and BookKeeper does not have; None if that
    is as it should be: its data are in long-term storage only."""
    if reference.bookkeeper_deleted:
        return None
    ledger = LedgerId(0, ledger_id)
    if reference.may_be_replaced:
        detail = "BookKeeper does not have it; the cursor's ledger may name a newer one"
        return ClassifiedLedger(ledger, "undetermined", reference.owner, None, reference, detail)
    detail = "BookKeeper does not have it"
    if reference.offloaded:
        detail += "; a copy is in long-term storage"
    return ClassifiedLedger(ledger, "dangling", reference.owner, None, reference, detail)


def _caution(stored: StoredLedger, references: PulsarReferences, now: int) -> str:
    """Return why a leak may still be needed, or be deleted by a broker; empty if it is not."""
    owner = stored.owner
    if owner.component == SCHEMA and references.lowest_versions.get(owner.schema or "", 0) > 0:
        return "older versions of the schema are not in its locator, and may be in this ledger"
    cursor = references.compacted_ledgers.get(topic_key(owner) or "")
    if owner.component == COMPACTED_LEDGER and cursor and cursor.cursor_ledger is not None:
        # Ledger ids ascend, so a higher one may be the output of a later compaction.
        named_ledger = cursor.compacted_ledger
        if named_ledger is None or stored.ledger.ledger > named_ledger:
            return f"ledger {cursor.cursor_ledger} of the compaction's cursor may name it"
    return _recent_change(owner, references, now)


def _recent_change(owner: LedgerOwner, references: PulsarReferences, now: int) -> str:
    """Return why a ledger may still be in use, if the node that may refer to it changed within
    `RECENT_MILLISECONDS`; else an empty text."""
    change = references.last_change(owner)
    if change is None or change.version == 0 or now - change.modified >= RECENT_MILLISECONDS:
        return ""
    return "Pulsar has just changed its references; a broker may be deleting the ledger"
