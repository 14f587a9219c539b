"""What a request asks of a bookie, whichever protocol said it; and the answers.

An operation knows how to say its answer: `reply` takes the status and what was found, and
returns a whole frame. The two protocols make operations (`of_v2`, `of_v3`), the bookie's
rules are in `bkstore.wire.server.rules`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from bkstore.errors import InvalidArgument
from bkstore.formats.entry import RecordBatch
from bkstore.ids import Int64Array, LedgerId
from bkstore.wire.status import Status


class Answer(NamedTuple):
    """An operation's answer: its status and the whole frame; of many requests, all frames."""

    operation: Operation
    status: Status
    frame: bytes


@dataclass(slots=True, eq=False)
class Operation:
    """A request that has come in, or many that are alike.

    `name` is the one of `v3.Operation`, `protocol` 2 or 3; `started` is when it came, `size` the
    bytes of its frame, `count` how many requests it is. One that `writes` changes something: such
    operations of a connection keep their order. With `sync` an EOK waits for a journal sync.
    """

    name: str
    protocol: int
    reply: Callable[..., bytes]
    started: float = 0.0
    size: int = 0
    count: int = 1
    writes: bool = False
    sync: bool = False

    def part(self, start: int, stop: int) -> Operation:
        """Return the requests start..stop (half open) of many as an operation; itself for all."""
        assert (start, stop) == (0, self.count)
        return self

    def answer(self, status: Status, *found: object) -> Answer:
        """Return the answer with this status."""
        return Answer(self, status, self.reply(status, *found))

    def refuse(self, status: Status) -> Answer:
        """Return the answer that all of it is refused with."""
        return self.answer(status)

    def as_refusal(self, status: Status) -> Ready:
        """Return the operation that no bookie is asked for: it is refused by itself."""
        return Ready(self.name, self.protocol, self.reply, status=status)

    def answers(self, statuses: list[Status]) -> list[Answer]:
        """Return the answers in order; `statuses` has one for each request."""
        return [self.answer(*statuses)]


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
class _ReadOfLedger(_OfLedger):
    """A read, which may fence the ledger first; with `tells_lac` its answer has the LAC."""

    entry: int = -1
    fence: bool = False
    master_key: bytes | None = None
    tells_lac: bool = False

    def __post_init__(self) -> None:
        self.writes = self.fence


@dataclass(slots=True, eq=False)
class Add(Operation):
    """Store a record as it is, under the ids that it says. ``reply(status)``."""

    record: bytes = b""
    master_key: bytes = b""
    recovery: bool = False
    sync: bool = True
    urgent: bool = False
    writes: bool = True


@dataclass(slots=True, eq=False)
class AddMany(Operation):
    """Store the records of a batch, as so many adds: of scope 0, alike but for their ids.

    ``reply(status, ledgers, entries)`` returns the frames of the answers to these. The records
    stand somewhere in the buffer that they were received in. `ledgers` is int64[n].
    """

    master_key: bytes = b""
    batch: RecordBatch = field(default_factory=lambda: RecordBatch.joined([]))
    ledgers: Int64Array = field(default_factory=lambda: np.empty(0, np.int64))
    recovery: bool = False
    urgent: bool = False
    writes: bool = True
    sync: bool = True

    def __post_init__(self) -> None:
        self.count = len(self.batch)

    def part(self, start: int, stop: int) -> AddMany:
        """Return some of the adds as an operation."""
        if (start, stop) == (0, self.count):
            return self
        batch = self.batch.between(start, stop)
        overhead = (self.size - int(self.batch.sizes.sum())) // self.count
        size = overhead * len(batch) + int(batch.sizes.sum())
        return replace(self, batch=batch, ledgers=self.ledgers[start:stop], size=size)

    def refuse(self, status: Status) -> Answer:
        """Return the answer that all of them are refused with."""
        return self.answer(status, self.ledgers, self.batch.entries)

    def answers(self, statuses: list[Status]) -> list[Answer]:
        """Return the answers in order, one for each stretch of adds with the same status."""
        bounds = [at for at in range(1, len(statuses)) if statuses[at] is not statuses[at - 1]]
        stretches = pairwise([0, *bounds, len(statuses)])
        return [self.part(start, stop).refuse(statuses[start]) for start, stop in stretches]


@dataclass(slots=True, eq=False)
class ReadMany(Operation):
    """Read entries of scope 0, as so many reads that do not fence; int64[n], as sent.

    ``reply(status, ledgers, entries, batch)`` returns the frames of the answers to these, whose
    records are those of the batch; None without.
    """

    ledgers: Int64Array = field(default_factory=lambda: np.empty(0, np.int64))
    entries: Int64Array = field(default_factory=lambda: np.empty(0, np.int64))

    def __post_init__(self) -> None:
        self.count = self.entries.size

    def part(self, start: int, stop: int) -> ReadMany:
        """Return some of the reads as an operation."""
        if (start, stop) == (0, self.count):
            return self
        size = self.size // self.count * (stop - start)
        ids = slice(start, stop)
        return replace(self, ledgers=self.ledgers[ids], entries=self.entries[ids], size=size)

    def refuse(self, status: Status) -> Answer:
        """Return the answer that all of them are refused with."""
        return self.answer(status, self.ledgers, self.entries, None)


@dataclass(slots=True, eq=False)
class Read(_ReadOfLedger):
    """Read an entry. ``reply(status, record, lac, entry, updated)``, None for what is not told.

    `entry` -1 is the last one. A `previous_lac` makes it a long poll: with `time_out`
    (milliseconds) it waits until the LAC is above; with `piggyback` it reads the entry behind
    `previous_lac`.
    """

    piggyback: bool = False
    previous_lac: int | None = None
    time_out: int | None = None
    updated: int | None = None
    expired: bool = False
    was_fenced: bool = False
    """Whether the ledger was fenced when a long poll began to wait."""


@dataclass(slots=True, eq=False)
class BatchRead(_ReadOfLedger):
    """Read entries with consecutive ids. ``reply(status, batch, lac)``."""

    max_count: int = 0
    max_size: int = 0


@dataclass(slots=True, eq=False)
class WriteLac(_OfLedger):
    """Keep an explicit LAC. ``reply(status)``."""

    master_key: bytes = b""
    body: bytes = b""
    writes: bool = True
    sync: bool = True


@dataclass(slots=True, eq=False)
class Force(_OfLedger):
    """Make durable what was added without a sync, by adds before it. ``reply(status)``."""

    writes: bool = True
    sync: bool = True


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
