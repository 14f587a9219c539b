"""Parameters of an audit, and what it asks of a bookie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from bkstore.arguments import check_compat, check_fields, number, optional, whole
from bkstore.availability import Availability
from bkstore.errors import InvalidArgument
from bkstore.index.api import LedgerLike


@runtime_checkable
class EntriesOfLedger(Protocol):
    """All that an audit wants of a bookie; a `BookieClient`, an index, a `DirectoryBookie`.

    A `BkstoreError` other than `NoSuchLedger` means that nothing is known: the bookie did not
    answer, or could not read its index. Called from several threads.

    One that has `availability_many` (`ListsMany`) is asked by that, but a `BookieClient`: one
    that cannot be reached is not asked on after some failures in a row.
    """

    def availability(self, ledger: LedgerLike) -> Availability:
        """Return which entries are here; none, or `NoSuchLedger`, for an unknown ledger."""
        ...


_LONGEST, _SLOWEST = 86400.0, 1e-5
"""A delay in seconds, and a rate: the system cannot sleep for as long as some numbers would say."""


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """How an audit goes about it.

    `grace_period`: seconds after which an underreplicated mark is overdue (upstream
    `underreplicatedLedgerRecoveryGracePeriod`); None = marks are not judged.
    `looks`: how often ledgers with an unreachable bookie are looked at again, `look_delay`
    seconds after the look before, a day at most. `redo_limit`: how often a ledger is begun anew
    because it changed while it was judged. `concurrency`: bookies' answers waited for at a time
    (1 = the calling thread asks); `batch`: ledgers judged together. `rate`: ledgers a second at
    most, in each look; None = no limit. ``compat="bookkeeper"``: the checks as they were built,
    false alarms included (`docs/parity.md`); it has no rate.
    """

    grace_period: float | None = None
    looks: int = 2
    look_delay: float = 60.0
    redo_limit: int = 3
    concurrency: int = 8
    batch: int = 1000
    rate: float | None = None
    compat: Literal["bookkeeper"] | None = None

    def __post_init__(self) -> None:
        """Refuse what means nothing."""
        check_fields(self, _CHECKS)
        if self.rate is not None and self.compat is not None:  # counters go by whole ranges there
            raise InvalidArgument("a rate does not go with compat")


_CHECKS = {
    "grace_period": optional(number(above=True)),
    "looks": whole(0),
    "look_delay": number(0, _LONGEST),
    "redo_limit": whole(0),
    "concurrency": whole(1, 1 << 16),  # a thread each
    "batch": whole(1),
    "rate": optional(number(_SLOWEST)),
    "compat": check_compat,
}
