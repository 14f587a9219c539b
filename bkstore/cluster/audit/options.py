"""Parameters of an audit, and what it asks of a bookie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from bkstore.availability import Availability
from bkstore.errors import InvalidArgument
from bkstore.index.api import LedgerLike

__all__ = ["AuditOptions", "EntriesOfLedger"]


@runtime_checkable
class EntriesOfLedger(Protocol):
    """All that an audit wants of a bookie; a `BookieClient`, an index, a `DirectoryBookie`.

    A `BkstoreError` other than `NoSuchLedger` means that nothing is known: the bookie did not
    answer, or could not read its index. Called from several threads.
    """

    def availability(self, ledger: LedgerLike) -> Availability:
        """Return which entries are here; none, or `NoSuchLedger`, for an unknown ledger."""
        ...


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """How an audit goes about it.

    `grace_period`: seconds after which an underreplicated mark is overdue (upstream
    `underreplicatedLedgerRecoveryGracePeriod`); None = marks are not judged.
    `looks`: how often ledgers with an unreachable bookie are looked at again, `look_delay`
    seconds after the look before. `redo_limit`: how often a ledger is begun anew because it
    changed while it was judged. `concurrency`: bookies' answers waited for at a time (1 = the
    calling thread asks); `batch`: ledgers judged together. ``compat="bookkeeper"``: the checks
    as they were built, false alarms included (`docs/parity.md`).
    """

    grace_period: float | None = None
    looks: int = 2
    look_delay: float = 60.0
    redo_limit: int = 3
    concurrency: int = 8
    batch: int = 1000
    compat: Literal["bookkeeper"] | None = None

    def __post_init__(self) -> None:
        """Refuse numbers that mean nothing."""
        floors = {"looks": 0, "look_delay": 0, "redo_limit": 0, "concurrency": 1, "batch": 1}
        for name, least in floors.items():
            if not getattr(self, name) >= least:
                raise InvalidArgument(f"{name} {getattr(self, name)} is below {least}")
        if self.grace_period is not None and not self.grace_period > 0:
            raise InvalidArgument(f"grace period {self.grace_period} is not above 0 seconds")
        if self.compat not in (None, "bookkeeper"):
            raise InvalidArgument(f"unknown compat {self.compat!r}: only 'bookkeeper'")
