"""Operations: requests to a bookie independent of their protocol, and the answers to them.

An operation has the encoder of its own answer: `reply` takes the status and the results, and
returns a whole frame. `of_v2` and `of_v3` make operations of the requests of a protocol;
`bkstore.wire.server.rules` answers them.
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
from bkstore.wire.status_codes import Status


class Answer(NamedTuple):
    """The answer to an operation: its status and its frame, or all frames for many requests."""

    operation: Operation
    status: Status
    frame: bytes


@dataclass(slots=True, eq=False)
class Operation:
    """A received request, or many that are alike.

    `name` is that of `v3.Operation`, `protocol` is 2 or 3. `started` is the loop time of receipt,
    `size` the bytes of the frames, `count` the number of requests. Operations with `writes` change
    something, in the order of their connection. With `sync`, an EOK waits for a journal sync.
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
        """Return the requests in [start, stop) as an operation; `self` if those are all."""
        assert (start, stop) == (0, self.count)
        return self

    def answer(self, status: Status, *results: object) -> Answer:
        """Return the answer with this status and these arguments to `reply`."""
        return Answer(self, status, self.reply(status, *results))

    def refuse(self, status: Status) -> Answer:
        """Return the answer that refuses the operation with this status."""
        return self.answer(status)

    def as_refusal(self, status: Status) -> Ready:
        """Return an operation that is refused with this status without asking the bookie."""
        return Ready(self.name, self.protocol, self.reply, status=status)

    def answers(self, statuses: list[Status]) -> list[Answer]:
        """Return the answers in order, given the status of each request."""
        return [self.answer(*statuses)]


@dataclass(slots=True, eq=False)
class Ready(Operation):
    """A request that is answered with `status` without asking the bookie."""

    status: Status = Status.EOK


@dataclass(slots=True, eq=False)
class StartTls(Operation):
    """Begin TLS after the answer to this."""


@dataclass(slots=True, eq=False)
class _OfLedger(Operation):
    ledger_number: int = 0
    scope: int = 0

    @property
    def ledger(self) -> LedgerId:
        """The ledger id. Raises `InvalidArgument` if it is negative in scope 0."""
        if self.scope == 0 and self.ledger_number >= 0:
            return LedgerId.of(self.ledger_number)
        if self.scope == 0:
            raise InvalidArgument(f"ledger {self.ledger_number} is negative")
        return LedgerId(self.scope, self.ledger_number)


@dataclass(slots=True, eq=False)
class _ReadOfLedger(_OfLedger):
    """A read, which may fence the ledger first. With `tells_lac` the answer has the LAC."""

    entry: int = -1
    fence: bool = False
    master_key: bytes | None = None
    tells_lac: bool = False

    def __post_init__(self) -> None:
        self.writes = self.fence


@dataclass(slots=True, eq=False)
class Add(Operation):
    """Store a record unchanged, under the ids in its header. ``reply(status)``."""

    record: bytes = b""
    master_key: bytes = b""
    recovery: bool = False
    sync: bool = True
    urgent: bool = False
    writes: bool = True


@dataclass(slots=True, eq=False)
class AddMany(Operation):
    """Store the records of a batch: adds in scope 0 that differ only in ids and records.

    ``reply(status, ledgers, entries)`` returns all frames. `batch` is a view, `ledgers` int64[n].
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
        """Return the adds in [start, stop) as an operation, each with its share of the size."""
        if (start, stop) == (0, self.count):
            return self
        batch = self.batch.between(start, stop)
        overhead = (self.size - int(self.batch.sizes.sum())) // self.count
        size = overhead * len(batch) + int(batch.sizes.sum())
        return replace(self, batch=batch, ledgers=self.ledgers[start:stop], size=size)

    def refuse(self, status: Status) -> Answer:
        """Return the answer to all of the adds."""
        return self.answer(status, self.ledgers, self.batch.entries)

    def answers(self, statuses: list[Status]) -> list[Answer]:
        """Return the answers in order, one for each run of adds with the same status."""
        bounds = [i for i in range(1, len(statuses)) if statuses[i] is not statuses[i - 1]]
        runs = pairwise([0, *bounds, len(statuses)])
        return [self.part(start, stop).refuse(statuses[start]) for start, stop in runs]


@dataclass(slots=True, eq=False)
class ReadMany(Operation):
    """Read entries in scope 0, without fencing; `ledgers` and `entries` are int64[n], as sent.

    ``reply(status, ledgers, entries, batch)`` returns all frames; no batch with a refusal.
    """

    ledgers: Int64Array = field(default_factory=lambda: np.empty(0, np.int64))
    entries: Int64Array = field(default_factory=lambda: np.empty(0, np.int64))

    def __post_init__(self) -> None:
        self.count = self.entries.size

    def part(self, start: int, stop: int) -> ReadMany:
        """Return the reads in [start, stop) as an operation, each with its share of the size."""
        if (start, stop) == (0, self.count):
            return self
        size = self.size // self.count * (stop - start)
        rows = slice(start, stop)
        return replace(self, ledgers=self.ledgers[rows], entries=self.entries[rows], size=size)

    def refuse(self, status: Status) -> Answer:
        """Return the answer that refuses all of the reads."""
        return self.answer(status, self.ledgers, self.entries, None)


@dataclass(slots=True, eq=False)
class Read(_ReadOfLedger):
    """Read an entry. ``reply(status, record, lac, entry, updated)``, with None for absent fields.

    `entry` -1 is the last entry. `previous_lac` makes it a long poll: with `time_out`
    (milliseconds) it waits until the LAC exceeds that; with `piggyback` it reads the entry after
    it. `updated` is when the LAC advanced, in Unix milliseconds. `expired`: it waits no longer.
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
    """Store an explicit LAC. ``reply(status)``."""

    master_key: bytes = b""
    body: bytes = b""
    writes: bool = True
    sync: bool = True


@dataclass(slots=True, eq=False)
class Force(_OfLedger):
    """Make earlier adds without a sync durable. ``reply(status)``."""

    writes: bool = True
    sync: bool = True


@dataclass(slots=True, eq=False)
class ReadLac(_OfLedger):
    """Read the explicit LAC and the last entry. ``reply(status, lac body, last record)``."""


@dataclass(slots=True, eq=False)
class ListEntries(_OfLedger):
    """List the stored entries of a ledger. ``reply(status, availability)``, encoded as bytes."""


@dataclass(slots=True, eq=False)
class BookieInfo(Operation):
    """Report disk sizes in bytes. ``reply(status, total, free)``, None for those not requested."""

    total: bool = False
    free: bool = False
