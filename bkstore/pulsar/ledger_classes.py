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
from bkstore.pulsar.node_values import CursorValue
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


NO_REFERENCE = "nothing refers to it"
NO_CREATION_TIME = "when it was created is not known"
IS_OFFLOADED = "its topic is read from long-term storage"
IS_MISSING = "BookKeeper does not have it"
IS_MISSING_OFFLOADED = f"{IS_MISSING}; a copy is in long-term storage"
IS_MISSING_REPLACEABLE = f"{IS_MISSING}; the cursor's ledger may name a newer one"
HAS_OLDER_SCHEMAS = "older versions of the schema are not in its locator, and may be in this ledger"
LACKS_TOPICS = "Pulsar's metadata have no topics at all, so they may be incomplete"
MAY_BE_COMPACTED = "ledger {} of the compaction's cursor may name it"
OFFLOAD_INCOMPLETE = "its offload is not complete: brokers may read the ledger from BookKeeper"
RECENT_CHANGE = "Pulsar has just changed its references; a broker may be deleting the ledger"


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
        return classified("undetermined", NO_CREATION_TIME)
    if now - stored.ctime < grace:
        return classified("unreferenced-young")
    caution = _caution(stored, references, now)
    return classified("leaked", NO_REFERENCE)._replace(caution=caution)


def _classify_referenced(
    stored: StoredLedger, reference: LedgerReference, references: PulsarReferences, now: int
) -> ClassifiedLedger:
    """Return the class of a stored ledger that Pulsar refers to: "referenced", or "offloaded-copy"
    if brokers read another copy."""
    owner = _merge_owners(stored.owner, reference.owner)
    if not reference.bookkeeper_deleted:
        return ClassifiedLedger(stored.ledger, "referenced", owner, stored, reference)
    recent_change = _recent_change(reference.owner, references, now)
    caution = recent_change if reference.offloaded else OFFLOAD_INCOMPLETE
    return ClassifiedLedger(
        stored.ledger, "offloaded-copy", owner, stored, reference, IS_OFFLOADED, caution
    )


def _merge_owners(stated: LedgerOwner, referring: LedgerOwner) -> LedgerOwner:
    """Return the owner stated in a ledger's custom metadata, else that of the reference."""
    return stated if states_topic(stated) else referring


def states_topic(owner: LedgerOwner) -> bool:
    """Return whether an owner of Pulsar is known: its topic, managed ledger or schema."""
    return owner.application == PULSAR and bool(topic_key(owner) or owner.schema)


def classify_missing(ledger_id: int, reference: LedgerReference) -> ClassifiedLedger | None:
    """Return the class of a ledger that Pulsar refers to and BookKeeper does not have; None if that
    is as it should be: its data are in long-term storage only."""
    if reference.bookkeeper_deleted and reference.offloaded:
        return None
    ledger = LedgerId(0, ledger_id)
    if reference.may_be_replaced:
        detail = IS_MISSING_REPLACEABLE
        return ClassifiedLedger(ledger, "undetermined", reference.owner, None, reference, detail)
    detail = IS_MISSING_OFFLOADED if reference.offloaded else IS_MISSING
    return ClassifiedLedger(ledger, "dangling", reference.owner, None, reference, detail)


def _caution(stored: StoredLedger, references: PulsarReferences, now: int) -> str:
    """Return why a leak may still be needed, or be deleted by a broker; empty if it is not."""
    owner = stored.owner
    if references.lacks_topics:
        return LACKS_TOPICS
    if lacks_older_schemas(owner, references):
        return HAS_OLDER_SCHEMAS
    cursor = open_compaction(owner, references)
    if cursor is not None:
        # Ledger ids ascend, so a higher one may be the output of a later compaction.
        named_ledger = cursor.compacted_ledger
        if named_ledger is None or stored.ledger.ledger > named_ledger:
            return MAY_BE_COMPACTED.format(cursor.cursor_ledger)
    return _recent_change(owner, references, now)


def lacks_older_schemas(owner: LedgerOwner, references: PulsarReferences) -> bool:
    """Return whether the locator of an owner's schema does not have its first versions."""
    return owner.component == SCHEMA and references.lowest_versions.get(owner.schema or "", 0) > 0


def open_compaction(owner: LedgerOwner, references: PulsarReferences) -> CursorValue | None:
    """Return the cursor of the compaction that writes an owner's ledgers, if it has a ledger of its
    own, which may name a newer compacted ledger."""
    cursor = references.compacted_ledgers.get(topic_key(owner) or "")
    is_open = cursor is not None and cursor.cursor_ledger is not None
    return cursor if owner.component == COMPACTED_LEDGER and is_open else None


def _recent_change(owner: LedgerOwner, references: PulsarReferences, now: int) -> str:
    """Return why a ledger may still be in use, if the node that may refer to it changed within
    `RECENT_MILLISECONDS`; else an empty text."""
    changed = last_modified(owner, references)
    is_recent = changed is not None and now - changed < RECENT_MILLISECONDS
    return RECENT_CHANGE if is_recent else ""


def last_modified(owner: LedgerOwner, references: PulsarReferences) -> int | None:
    """Return when the node that refers to an owner's ledgers was changed last, in milliseconds;
    None if it never was, or is not known."""
    change = references.last_change(owner)
    return None if change is None or change.version == 0 else change.modified
