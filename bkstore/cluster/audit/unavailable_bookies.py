"""Bookies that gave no answer to an audit: whether that is a violation.

Two questions decide: is the bookie registered, and is it known to be unavailable?
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from bkstore.cluster.audit.batch_outcome import BatchOutcome
from bkstore.cluster.audit.ledger_snapshots import CheckedLedger
from bkstore.cluster.audit.report import Absence, add_absence
from bkstore.cluster.store.api import MetadataStore
from bkstore.durability.violations import Violation


class BookieLists:
    """The registered and the unavailable bookies; each set is read once, at its first use."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    @cached_property
    def registered(self) -> frozenset[str] | None:
        """The result of `MetadataStore.registered_bookies`."""
        return self._store.registered_bookies()

    @cached_property
    def unavailable(self) -> frozenset[str] | None:
        """The result of `MetadataStore.unavailable_bookies`."""
        return self._store.unavailable_bookies()


def unavailability_violations(
    subject: CheckedLedger, lists: BookieLists, outcome: BatchOutcome
) -> Iterator[Violation]:
    """Yield a violation for each segment of the ledger with a bookie that did not answer in any
    round, if the bookie should have answered: it is registered, or is not listed as unavailable, or
    is not registered and there is no list of unavailable ones. A bookie that is not registered and
    is listed as unavailable is excused. If that cannot be decided, because the store does not list
    the registered bookies, the ledger counts as unanswered."""
    if not subject.unanswered:
        return
    ledger, registered, unavailable = subject.ledger, lists.registered, lists.unavailable
    undecided = []
    has_absent = has_violation = False
    for bookie, (reason, segments) in sorted(subject.unanswered.items()):
        problems = []
        if registered is not None and bookie in registered:
            problems.append("it is registered")
        if unavailable is not None and bookie not in unavailable:
            problems.append("it is not listed as unavailable")
        elif unavailable is None and registered is not None and not problems:
            problems += ["it is not registered", "there is no list of unavailable bookies"]
        if problems:
            detail = f"{reason}; {', and '.join(problems)}"
            if bookie in subject.absent:
                add_absence(outcome.absent, bookie, Absence(1, len(segments), detail))
                has_absent = True
                continue
            for first, _, _ in segments:
                has_violation = True
                yield Violation("bookie_unavailable", ledger, first, bookie, None, detail)
        elif registered is None or unavailable is None:
            undecided.append(bookie)
        else:
            outcome.excused[bookie] += 1
    # Absent bookies get one violation each for the whole run: count the ledgers with no other.
    outcome.without += has_absent and not has_violation
    if undecided:
        outcome.unanswered[ledger] = tuple(undecided)
