"""What a request asks of a bookie, whichever protocol said it; and the answers.

An operation knows how to say its answer: `reply` takes the status and what was found, and
returns a whole frame. The two protocols make operations (`of_v2`, `of_v3`), the bookie's
rules are in `bkstore.wire.server.rules`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from bkstore.errors import InvalidArgument
from bkstore.ids import LedgerId
from bkstore.wire.status import Status

__all__ = [
    "Add",
    "Answer",
    "BatchRead",
    "BookieInfo",
    "Force",
    "ListEntries",
    "Operation",
    "Read",
    "ReadLac",
    "Ready",
    "StartTls",
    "WriteLac",
]


class Answer(NamedTuple):
    """An operation's answer: its status and the whole frame."""

    operation: Operation
    status: Status
    frame: bytes


@dataclass(slots=True, eq=False)
class Operation:
    """A request that has come in.

    `name` is the one of `v3.Operation`, `protocol` 2 or 3; `started` is when it came, `size` the
    bytes of its frame.
    """

    name: str
    protocol: int
    reply: Callable[..., bytes]
    started: float = 0.0
    size: int = 0

    @property
    def writes(self) -> bool:
        """Whether it changes something: such operations of a connection keep their order."""
        return False

    def answer(self, status: Status, *found: object) -> Answer:
        """Return the answer with this status."""
        return Answer(self, status, self.reply(status, *found))


@dataclass(slots=True, eq=False)
class Ready(Operation):
    """A request that needs no bookie to be answered: `status` is the answer's."""

    status: Status = Status.EOK


@dataclass(slots=True, eq=False)
class StartTls(Operation):
    """Go on in TLS when this is answered."""


@dataclass(slots=True, eq=False)
class _OfLedger(Operation):
    ledger_number: int = 0
    scope: int = 0

    @property
    def ledger(self) -> LedgerId:
        """The ledger; `InvalidArgument` for a negative one of scope 0."""
        if self.scope == 0 and self.ledger_number >= 0:
            return LedgerId.of(self.ledger_number)
        if self.scope == 0:
            raise InvalidArgument(f"ledger {self.ledger_number} is negative")
        return LedgerId(self.scope, self.ledger_number)


@dataclass(slots=True, eq=False)
class Add(Operation):
    """Store a record as it is, under the ids that it says. ``reply(status)``."""

    record: bytes = b""
    master_key: bytes = b""
    recovery: bool = False
    sync: bool = True
    urgent: bool = False

    @property
    def writes(self) -> bool:
        """Always."""
        return True


@dataclass(slots=True, eq=False)
class Read(_OfLedger):
    """Read an entry. ``reply(status, record, lac, entry, updated)``, None for what is not told.

    `entry` -1 is the last one. With `fence` the ledger is fenced first. With `tells_lac` the
    answer has the LAC. A `previous_lac` makes it a long poll: with `time_out` (milliseconds) it
    waits until the LAC is above; with `piggyback` it reads the entry behind `previous_lac`.
    """

    entry: int = -1
    fence: bool = False
    master_key: bytes | None = None
    tells_lac: bool = False
    piggyback: bool = False
    previous_lac: int | None = None
    time_out: int | None = None
    updated: int | None = None
    expired: bool = False
    was_fenced: bool = False
    """Whether the ledger was fenced when a long poll began to wait."""

    @property
    def writes(self) -> bool:
        """Whether it fences."""
        return self.fence


@dataclass(slots=True, eq=False)
class BatchRead(_OfLedger):
    """Read entries with consecutive ids. ``reply(status, batch, lac)``."""

    entry: int = 0
    max_count: int = 0
    max_size: int = 0
    fence: bool = False
    master_key: bytes | None = None
    tells_lac: bool = False

    @property
    def writes(self) -> bool:
        """Whether it fences."""
        return self.fence


@dataclass(slots=True, eq=False)
class WriteLac(_OfLedger):
    """Keep an explicit LAC. ``reply(status)``."""

    master_key: bytes = b""
    body: bytes = b""

    @property
    def writes(self) -> bool:
        """Always."""
        return True


@dataclass(slots=True, eq=False)
class Force(_OfLedger):
    """Make durable what was added without a sync. ``reply(status)``."""

    @property
    def writes(self) -> bool:
        """Always: it is about the adds before it."""
        return True


@dataclass(slots=True, eq=False)
class ReadLac(_OfLedger):
    """Read the explicit LAC and the last entry. ``reply(status, lac body, last record)``."""


@dataclass(slots=True, eq=False)
class ListEntries(_OfLedger):
    """Say which entries are here. ``reply(status, availability)``, in bytes."""


@dataclass(slots=True, eq=False)
class BookieInfo(Operation):
    """Say how large the disks are. ``reply(status, total, free)``, None for what is not asked."""

    total: bool = False
    free: bool = False
