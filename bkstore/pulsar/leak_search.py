"""LeakSearch: the classes of all ledgers of a cluster, while brokers keep working.

Order of reading: BookKeeper's ledgers first, Pulsar's references second, so that a new ledger
whose reference was written in between is not taken for a leak. Both change meanwhile: each ledger
that would be reported is read again, in both, and reported only if it still has that class.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

from bkstore.cluster.store.api import MetadataStore, Versioned
from bkstore.errors import CorruptionError
from bkstore.ids import LedgerId
from bkstore.index.api import Finding
from bkstore.ledger_metadata import LedgerOwner, read_owner
from bkstore.ledger_metadata.owners import UNKNOWN_OWNER
from bkstore.ledger_metadata.topic_names import TopicName, parse_topic_url
from bkstore.pulsar.cluster_references import check_root, read_cluster_references
from bkstore.pulsar.ledger_classes import (
    LEDGER_CLASSES,
    RECENT_MILLISECONDS,
    ClassifiedLedger,
    LedgerClass,
    StoredLedger,
    classify_missing,
    classify_stored,
)
from bkstore.pulsar.reading import read_references
from bkstore.pulsar.references import LedgerReference, PulsarReferences
from bkstore.pulsar.sources.nodes import PulsarNodes

DAY_MILLISECONDS = 24 * 60 * 60 * 1000
PROBLEM_CLASSES: frozenset[LedgerClass] = frozenset({"dangling", "leaked", "offloaded-copy"})
"""The classes that are reported as problems. Ledgers of these are read twice."""


@dataclass
class LeakReport:
    """The ledgers with their classes, the worst first, then by id; findings on nodes and metadata
    that cannot be read; the number of ledgers of each class; `now`, in milliseconds, is the time to
    which the ages of ledgers are computed."""

    ledgers: list[ClassifiedLedger] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    counts: Counter[LedgerClass] = field(default_factory=Counter)
    now: int = 0

    @property
    def is_clean(self) -> bool:
        """Whether no ledger is dangling, leaked or an offloaded copy, and everything was read."""
        return not self.findings and not any(self.counts[each] for each in PROBLEM_CLASSES)


class LeakSearch:
    """Classifies the ledgers of `store` by the references in `nodes`.

    `now` and `grace` are in milliseconds: ledgers created less than `grace` before `now` are no
    leaks. By default `now` is when the search begins, or when a copy of the nodes was made. `pause`
    is how many seconds pass before ledgers are read again, if brokers may be deleting some of them
    just now. `store_is_copy`: the ledgers may be older than the nodes. Memory: some 600 bytes a
    ledger.
    """

    def __init__(
        self,
        store: MetadataStore,
        nodes: PulsarNodes,
        *,
        now: int | None = None,
        grace: int = DAY_MILLISECONDS,
        pause: float = 0.0,
        wait: Callable[[float], object] = time.sleep,
        store_is_copy: bool = False,
    ) -> None:
        self._store = store
        self._nodes = nodes
        self._as_of = now
        self._now = int(time.time() * 1000) if now is None else now
        self._grace = grace
        self._pause = pause
        self._wait = wait
        # A copy does not have the ledgers that are made after it, and that running brokers list.
        self._may_miss_new = store_is_copy and nodes.is_live
        self._lacks_topics = False  # by the first look, which reads all of them
        self._owners: dict[tuple[tuple[str, bytes], ...], LedgerOwner] = {}
        self.findings: list[Finding] = []
        self._later_findings: list[Finding] = []  # of nodes that were read again

    def run(self) -> LeakReport:
        """Read BookKeeper's and Pulsar's metadata, read the suspects again, and return the classes.
        `findings` are then the report's. Raises `UnsupportedLayout` if the nodes have no topics at
        all, so that they may not be Pulsar's, and what the stores raise if they do not answer."""
        # BookKeeper's ledgers first, then Pulsar's references.
        check_root(self._nodes)
        stored = {ledger.ledger: ledger for ledger in self._read_stored(self._store.ledgers())}
        owners = self._owners.values()
        references = read_cluster_references(self._nodes, owners, partial(_has_any, stored))
        self._lacks_topics = references.lacks_topics
        if self._as_of is None and self._nodes.read_at is not None:
            self._now = min(self._now, self._nodes.read_at)
        # Classify all ledgers, and read those that look wrong again.
        first_results = list(self._classify(stored, references))
        suspects = [each for each in first_results if each.ledger_class in PROBLEM_CLASSES]
        settled = [each for each in first_results if each.ledger_class not in PROBLEM_CLASSES]
        confirmed = list(self._classify_again(suspects, references)) if suspects else []
        ledgers = sorted([*settled, *confirmed], key=_severity)
        findings = list(dict.fromkeys([*references.findings, *self._later_findings]))
        findings += [
            Finding("damage", ledger.problem, ledger=ledger.ledger)
            for ledger in stored.values()
            if ledger.problem is not None
        ]
        self.findings = findings
        counts = Counter(each.ledger_class for each in ledgers)
        return LeakReport(ledgers, findings, counts, self._now)

    def check_again(self, ledgers: Iterable[ClassifiedLedger]) -> list[ClassifiedLedger]:
        """Read some ledgers in BookKeeper's and Pulsar's metadata again, without a pause, and
        return their classes now; those that do not exist, or no longer, are left out."""
        suspects = list(ledgers)
        return list(self._classify_again(suspects, None)) if suspects else []

    def _read_stored(self, ledger_ids: Iterable[LedgerId]) -> Iterator[StoredLedger]:
        for ledger_id, versioned in self._store.read_many(ledger_ids):
            if isinstance(versioned, CorruptionError):
                problem = f"its metadata cannot be read: {versioned}"
                yield StoredLedger(ledger_id, UNKNOWN_OWNER, problem=problem)
            else:
                yield self._stored_ledger(ledger_id, versioned)

    def _stored_ledger(self, ledger_id: LedgerId, versioned: Versioned) -> StoredLedger:
        metadata = versioned.metadata
        # All ledgers of a topic state the same owner: keep one object for them.
        stated = tuple(metadata.custom_metadata.items())
        owner = self._owners.get(stated)
        if owner is None:
            owner = self._owners[stated] = read_owner(metadata.custom_metadata)
        length = metadata.length if metadata.closed else None
        return StoredLedger(
            ledger_id, owner, metadata.state, metadata.ctime, length, versioned.version
        )

    def _classify(
        self, stored: dict[LedgerId, StoredLedger], references: PulsarReferences
    ) -> Iterator[ClassifiedLedger]:
        """Yield the class of each stored ledger, then of each that is referred to and not
        stored."""
        for ledger in stored.values():
            yield classify_stored(ledger, references, self._now, self._grace)
        for ledger_id, reference in references.ledgers.items():
            if LedgerId(0, ledger_id) not in stored:
                missing = self._classify_missing(ledger_id, reference)
                if missing is not None:
                    yield missing

    def _classify_missing(
        self, ledger_id: int, reference: LedgerReference
    ) -> ClassifiedLedger | None:
        """Return the class of a missing ledger; undetermined if the copy may be too old."""
        missing = classify_missing(ledger_id, reference)
        if missing is None or not self._may_miss_new:
            return missing
        detail = "BookKeeper's metadata are a copy, which may be older than the ledger"
        return missing._replace(ledger_class="undetermined", detail=detail)

    def _classify_again(
        self, suspects: list[ClassifiedLedger], references: PulsarReferences | None
    ) -> Iterator[ClassifiedLedger]:
        """Yield the classes of suspects that are still there, or are missing and still referred to.

        BookKeeper is read before Pulsar, again: a ledger that a broker has taken off its list and
        deleted in between is gone by now, or no longer listed.
        """
        if references is not None and self._must_wait(suspects, references):
            self._wait(self._pause)
        ledger_ids = sorted({each.ledger for each in suspects})
        stored = {ledger.ledger: ledger for ledger in self._read_stored(ledger_ids)}
        current = self._read_references_of(suspects)
        current.lacks_topics = self._lacks_topics
        self._later_findings += current.findings
        for each in suspects:
            if each.ledger in stored:
                yield classify_stored(stored[each.ledger], current, self._now, self._grace)
            elif each.ledger.ledger in current.ledgers and each.ledger.scope == 0:
                reference = current.ledgers[each.ledger.ledger]
                missing = self._classify_missing(each.ledger.ledger, reference)
                if missing is not None:
                    yield missing

    def _read_references_of(self, suspects: list[ClassifiedLedger]) -> PulsarReferences:
        """Read what refers to ledgers of these owners."""
        owners = {each.owner for each in suspects}
        owners |= {each.reference.owner for each in suspects if each.reference is not None}
        managed_ledgers = {each for owner in owners for each in _managed_ledgers_of(owner)}
        schemas = {owner.schema for owner in owners if owner.schema is not None}
        return read_references(self._nodes, sorted(managed_ledgers), sorted(schemas))

    def _must_wait(self, suspects: list[ClassifiedLedger], references: PulsarReferences) -> bool:
        """Return whether to pause before suspects are read again: a broker may be deleting one."""
        return (
            self._nodes.is_live
            and self._pause > 0
            and any(self._may_be_changing(each.owner, references) for each in suspects)
        )

    def _may_be_changing(self, owner: LedgerOwner, references: PulsarReferences) -> bool:
        """Return whether brokers may just have changed what refers to an owner's ledgers: a node
        was changed recently, or there is none any more."""
        change = references.last_change(owner)
        if change is None:
            return True
        return change.version != 0 and self._now - change.modified < RECENT_MILLISECONDS


def _has_any(stored: dict[LedgerId, StoredLedger], ledger_ids: Iterable[int]) -> bool:
    """Return whether one of these ledgers of scope 0 is stored, or nothing is stored at all."""
    return not stored or any(LedgerId(0, each) in stored for each in ledger_ids)


def _managed_ledgers_of(owner: LedgerOwner) -> Iterator[str]:
    """Yield the names that the managed ledger of an owner may have: in a topic's URL the old form,
    with a cluster, looks like a local name with a slash."""
    if owner.managed_ledger is not None:
        yield owner.managed_ledger
    topic = None if owner.topic is None else parse_topic_url(owner.topic)
    if topic is not None and "/" in topic.local_name:
        namespace, _, local_name = topic.local_name.partition("/")
        yield TopicName(f"{topic.namespace}/{namespace}", local_name).managed_ledger


def _severity(ledger: ClassifiedLedger) -> tuple[int, LedgerId]:
    return LEDGER_CLASSES.index(ledger.ledger_class), ledger.ledger
