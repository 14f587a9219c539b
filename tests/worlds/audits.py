"""What tests of the auditor are made of: ledgers, bookies that answer or not, one run."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from bkstore.availability import Availability
from bkstore.cluster import MemoryStore
from bkstore.cluster.audit import AuditOptions, Auditor, AuditReport
from bkstore.errors import (
    BookieUnavailable,
)
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerMetadata

NOW = 1_000_000.0
B3 = ("b1", "b2", "b3")


MADE: Any = LedgerMetadata


def closed(ledger: int = 7, last: int = 5, ensemble: Any = B3, **fields: Any) -> LedgerMetadata:
    """A closed ledger with E = W = 3 (or all of the ensemble), A = 2 and one segment."""
    given = {
        "segments": [(0, ensemble)],
        "state": "CLOSED",
        "last_entry_id": last,
        "length": 10 * (last + 1),
        "digest_type": "CRC32C",
        "password": b"",
    }
    size = len(ensemble)
    made: LedgerMetadata = MADE(ledger, size, size, min(2, size), **given | fields)
    return made


class Holder:
    """A bookie that holds what it is told, and does something when it is asked."""

    def __init__(self, *entries: int, then: Callable[[], Any] = lambda: None) -> None:
        """Take the entries of every ledger, and what happens at each question."""
        self.entries, self.then, self.asked = entries, then, 0

    def availability(self, _: int | LedgerId) -> Availability:
        """Let it happen, then answer."""
        self.asked += 1
        self.then()
        return Availability.from_entries(self.entries)


class Down:
    """A bookie that gives no answer so many times, then holds all."""

    def __init__(self, times: int = 10**9) -> None:
        """Take how often it fails."""
        self.left, self.asked = times, 0

    def availability(self, _: int | LedgerId) -> Availability:
        """Fail, or answer."""
        self.asked += 1
        if self.left > 0:
            self.left -= 1
            raise BookieUnavailable("connection refused")
        return Availability.from_ranges([(0, 5)])


FULL = Holder(*range(6))


def store_of(*ledgers: LedgerMetadata) -> MemoryStore:
    """A store with these ledgers, in which b1 to b3 are registered."""
    store = MemoryStore()
    for each in ledgers:
        store.create(each)
    for bookie in B3:
        store.register_bookie(bookie)
    return store


def audit(
    store: Any, third: Any = FULL, waits: list[float] | None = None, **options: Any
) -> AuditReport:
    """Run an audit in which the third bookie is the one in question."""
    settings = AuditOptions(
        **{"rechecks": 2, "recheck_delay": 30.0, "grace_period": 100.0} | options
    )
    wait = (waits if waits is not None else []).append
    bookies = {"b1": FULL, "b2": FULL, "b3": third}
    return Auditor(store, bookies, options=settings, clock=lambda: NOW, wait=wait).run()


def categories(report: AuditReport) -> list[tuple[str, int]]:
    """(category, ledger) of each row; rows about no ledger are not for this."""
    assert all(each.ledger is not None for each in report.violations)
    return [(each.category, each.ledger.ledger) for each in report.violations if each.ledger]


class Clock(threading.Event):
    """A stop event whose waits pass at once, on a clock of their own."""

    def __init__(self, runs: int) -> None:
        """Take the number of waits after which it is set."""
        super().__init__()
        self.now, self.waits, self._left = NOW, list[float](), runs

    def wait(self, timeout: float | None = None) -> bool:
        """Let the time pass; say whether it is over."""
        self.waits.append(timeout or 0.0)
        self.now += timeout or 0.0
        self._left -= 1
        if self._left < 0:
            self.set()
        return self.is_set()
