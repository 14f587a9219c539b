"""Operations: requests to a bookie independent of their protocol, and the answers to them.

An operation has the encoder of its own answer: `encode_response` takes the status and the results,
and returns a whole frame. `v2_requests` and `v3_requests` make operations of a protocol's requests;
`bkstore.wire.server.rules` answers them. The classes show the results that `answer` takes. A scope
is the upper 64 bits of a 128-bit ledger id; BookKeeper's ledgers are in scope 0.
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


class EncodedResponse(NamedTuple):
    """The answer to an operation: its status and its frame, or all frames for many requests."""

    operation: Operation
    status: Status
    frame: bytes


@dataclass(slots=True, eq=False)
class Operation:
    """A received request, or many that are alike.

    `name` is that of `v3.OperationType`, `protocol` is 2 or 3. `received_at` is the loop time of
    receipt, `frame_bytes` the bytes of the frames, `request_count` the number of requests.
    Operations with `is_write` change something, in the order of their connection. With `sync`, an
    EOK waits for a journal sync.
    """

    name: str
    protocol: int
    encode_response: Callable[..., bytes]
    received_at: float = 0.0
    frame_bytes: int = 0
    request_count: int = 1
    is_write: bool = False
    sync: bool = False

    def select_range(self, start: int, stop: int) -> Operation:
        """Return the requests in [start, stop) as an operation; `self` if those are all."""
        assert (start, stop) == (0, self.request_count)  # one request cannot be split
        return self

    def answer(self, status: Status, *results: object) -> EncodedResponse:
        """Return the answer with this status and these arguments to `encode_response`."""
        return EncodedResponse(self, status, self.encode_response(status, *results))

    def refuse(self, status: Status) -> EncodedResponse:
        """Return the answer that refuses the operation with this status."""
        return self.answer(status)

    def as_refusal(self, status: Status) -> ImmediateOperation:
        """Return an operation that is refused with this status without asking the bookie."""
        return ImmediateOperation(self.name, self.protocol, self.encode_response, status=status)

    def answer_each(self, statuses: list[Status]) -> list[EncodedResponse]:
        """Return the answers in order, given the status of each request."""
        return [self.answer(*statuses)]


@dataclass(slots=True, eq=False)
class ImmediateOperation(Operation):
    """A request that is answered with `status` without asking the bookie."""

    status: Status = Status.EOK


@dataclass(slots=True, eq=False)
class StartTlsOperation(Operation):
    """Begin TLS after the answer to this."""


@dataclass(slots=True, eq=False)
class _OfLedger(Operation):
    """An operation on one ledger: its lower and upper 64 bits, both signed as in the message."""

    ledger_number: int = 0
    scope: int = 0

    @property
    def ledger_id(self) -> LedgerId:
        """The ledger id. Raises `InvalidArgument` if it is negative in scope 0."""
        if self.scope == 0 and self.ledger_number >= 0:
            return LedgerId.of(self.ledger_number)
        if self.scope == 0:
            raise InvalidArgument(f"ledger {self.ledger_number} is negative")
        return LedgerId(self.scope, self.ledger_number)


@dataclass(slots=True, eq=False)
class _ReadOfLedger(_OfLedger):
    """A read, which may fence the ledger first. With `needs_lac` the answer has the LAC."""

    entry_id: int = -1
    fence: bool = False
    master_key: bytes | None = None
    needs_lac: bool = False

    def __post_init__(self) -> None:
        self.is_write = self.fence


@dataclass(slots=True, eq=False)
class AddOperation(Operation):
    """Store a record unchanged, under the ids in its header."""

    record: bytes = b""
    master_key: bytes = b""
    recovery: bool = False
    sync: bool = True
    high_priority: bool = False
    is_write: bool = True


@dataclass(slots=True, eq=False)
class AddManyOperation(Operation):
    """Store the records of a batch: adds in scope 0 that differ only in ids and records.

    ``answer(status, ledgers, entries)`` has all frames. `batch` is a view, `ledger_ids` int64[n].
    """

    master_key: bytes = b""
    batch: RecordBatch = field(default_factory=lambda: RecordBatch.concatenate([]))
    ledger_ids: Int64Array = field(default_factory=lambda: np.empty(0, np.int64))
    recovery: bool = False
    high_priority: bool = False
    is_write: bool = True
    sync: bool = True

    def __post_init__(self) -> None:
        self.request_count = len(self.batch)

    def select_range(self, start: int, stop: int) -> AddManyOperation:
        """Return the adds in [start, stop) as an operation, with the bytes of their frames."""
        if (start, stop) == (0, self.request_count):
            return self
        batch = self.batch.between(start, stop)
        # the bytes of each frame besides its record
        overhead = (self.frame_bytes - int(self.batch.sizes.sum())) // self.request_count
        frame_bytes = overhead * len(batch) + int(batch.sizes.sum())
        ledger_ids = self.ledger_ids[start:stop]
        return replace(self, batch=batch, ledger_ids=ledger_ids, frame_bytes=frame_bytes)

    def refuse(self, status: Status) -> EncodedResponse:
        """Return the answer to all of the adds."""
        return self.answer(status, self.ledger_ids, self.batch.entries)

    def answer_each(self, statuses: list[Status]) -> list[EncodedResponse]:
        """Return the answers in order, one for each run of adds with the same status."""
        bounds = [i for i in range(1, len(statuses)) if statuses[i] is not statuses[i - 1]]
        runs = pairwise([0, *bounds, len(statuses)])
        return [self.select_range(start, stop).refuse(statuses[start]) for start, stop in runs]


@dataclass(slots=True, eq=False)
class ReadManyOperation(Operation):
    """Read entries in scope 0, without fencing; `ledger_ids` and `entry_ids` are int64[n], as sent.
    ``answer(status, ledgers, entries, batch)`` has all frames; no batch with a refusal."""

    ledger_ids: Int64Array = field(default_factory=lambda: np.empty(0, np.int64))
    entry_ids: Int64Array = field(default_factory=lambda: np.empty(0, np.int64))

    def __post_init__(self) -> None:
        self.request_count = self.entry_ids.size

    def select_range(self, start: int, stop: int) -> ReadManyOperation:
        """Return the reads in [start, stop) as an operation, with the bytes of their frames, which
        all have one size."""
        if (start, stop) == (0, self.request_count):
            return self
        frame_bytes = self.frame_bytes // self.request_count * (stop - start)
        ledger_ids, entry_ids = self.ledger_ids[start:stop], self.entry_ids[start:stop]
        return replace(self, ledger_ids=ledger_ids, entry_ids=entry_ids, frame_bytes=frame_bytes)

    def refuse(self, status: Status) -> EncodedResponse:
        """Return the answer that refuses all of the reads."""
        return self.answer(status, self.ledger_ids, self.entry_ids, None)


@dataclass(slots=True, eq=False)
class ReadOperation(_ReadOfLedger):
    """Read an entry. ``answer(status, record, lac, entry, lac_update_millis)``, None if absent.

    `entry_id` -1 is the last entry. `previous_lac` makes it a long poll: with `timeout_millis`
    (milliseconds) it waits until the LAC exceeds that; with `piggyback` it reads the entry after
    it. `lac_update_millis` is when the LAC advanced (Unix time). `expired`: it waits no longer.
    """

    piggyback: bool = False
    previous_lac: int | None = None
    timeout_millis: int | None = None
    lac_update_millis: int | None = None
    expired: bool = False
    was_fenced: bool = False
    """Whether the ledger was fenced when a long poll began to wait."""


ReadAnswer = EncodedResponse | ReadOperation
"""The answer to a read, or a long poll that has to wait."""


@dataclass(slots=True, eq=False)
class BatchReadOperation(_ReadOfLedger):
    """Read entries with consecutive ids. ``answer(status, batch, lac)``."""

    max_count: int = 0
    max_size: int = 0


@dataclass(slots=True, eq=False)
class WriteLacOperation(_OfLedger):
    """Store an explicit LAC."""

    master_key: bytes = b""
    body: bytes = b""
    is_write: bool = True
    sync: bool = True


@dataclass(slots=True, eq=False)
class ForceOperation(_OfLedger):
    """Make earlier adds without a sync durable."""

    is_write: bool = True
    sync: bool = True


@dataclass(slots=True, eq=False)
class ReadLacOperation(_OfLedger):
    """Read the explicit LAC and the last entry. ``answer(status, lac body, last record)``."""


@dataclass(slots=True, eq=False)
class ListEntriesOperation(_OfLedger):
    """List the stored entries of a ledger. ``answer(status, availability)``, encoded as bytes."""


@dataclass(slots=True, eq=False)
class BookieInfoOperation(Operation):
    """Report disk sizes in bytes. ``answer(status, total, free)``, None if not requested."""

    needs_total: bool = False
    needs_free: bool = False
