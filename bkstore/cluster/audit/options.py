"""Options of an audit, and the interface that it needs of a bookie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from bkstore.arguments import check_compat, check_fields, integer, number, optional
from bkstore.availability import Availability
from bkstore.errors import InvalidArgument
from bkstore.former_names import with_former_members
from bkstore.index.api import LedgerLike


@runtime_checkable
class AvailabilitySource(Protocol):
    """What an audit needs of a bookie: a `BookieClient`, an index, a `DirectoryBookie`.

    A `BkstoreError` other than `NoSuchLedger` means that the entries are unknown: the bookie did
    not respond, or could not read its index. If it has `availability_many` (`BulkLister`), that is
    called for a whole batch, except with a `BookieClient`: a running bookie is asked ledger by
    ledger, and no more after some failures in a row. Called from several threads.
    """

    def availability(self, ledger: LedgerLike) -> Availability:
        """Return which entries the bookie has; empty, or `NoSuchLedger`, for an unknown ledger."""


MAX_DELAY_SECONDS, _MIN_RATE = 86400.0, 1e-5
"""Limits of `recheck_delay` and `rate`: the system cannot sleep for arbitrarily long."""


@with_former_members(looks="rechecks", look_delay="recheck_delay")
@dataclass(frozen=True, slots=True)
class AuditOptions:
    """Settings of an audit; invalid ones raise `InvalidArgument`.

    `grace_period`: seconds after which an underreplicated mark is overdue (BookKeeper
    `underreplicatedLedgerRecoveryGracePeriod`); None = the age of marks is not checked. `rechecks`:
    how often ledgers with an unreachable bookie are rechecked, each time after `recheck_delay`
    seconds (at most a day). `redo_limit`: how often a check is repeated because the ledger's
    metadata changed meanwhile. `concurrency`: threads that query bookies (1 = the calling thread
    does it); `batch`: ledgers checked together. `rate`: maximum ledgers a second, in each round;
    None = no limit. ``compat="bookkeeper"``: the checks as BookKeeper implements them, false alarms
    included (`docs/parity.md`); it cannot have a rate.
    """

    grace_period: float | None = None
    rechecks: int = 2
    recheck_delay: float = 60.0
    redo_limit: int = 3
    concurrency: int = 8
    batch: int = 1000
    rate: float | None = None
    compat: Literal["bookkeeper"] | None = None

    def __post_init__(self) -> None:
        check_fields(self, _FIELD_CHECKS)
        if self.rate is not None and self.compat is not None:  # its counters are per whole range
            raise InvalidArgument("rate cannot be used with compat")


_FIELD_CHECKS = {
    "grace_period": optional(number(above=True)),
    "rechecks": integer(0),
    "recheck_delay": number(0, MAX_DELAY_SECONDS),
    "redo_limit": integer(0),
    "concurrency": integer(1, 1 << 16),  # number of threads
    "batch": integer(1),
    "rate": optional(number(_MIN_RATE)),
    "compat": check_compat,
}
