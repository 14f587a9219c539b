"""The v3 protocol as a client speaks it: protobuf messages, matched by transaction id.

Source: `proto/PerChannelBookieClient`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple, TypeVar

from bkstore.availability import Availability
from bkstore.cluster.client.bookie_client import LastConfirmed
from bkstore.errors import CorruptionError, IllegalOperation
from bkstore.formats.entry import NO_ENTRY, RecordBatch, decode_explicit_lac
from bkstore.ids import LedgerId
from bkstore.wire import v3
from bkstore.wire.client.requests import (
    LAST_ENTRY,
    AuthToken,
    Request,
    Spoken,
    checked_batch,
    checked_record,
)
from bkstore.wire.frames import MAX_FRAME, frame
from bkstore.wire.sasl.plugins import SASL
from bkstore.wire.status import Status
from bkstore.wire.v3 import Operation

_T = TypeVar("_T")

_HIGH_PRIORITY = 100  # of fencing reads and recovery adds, as the real client has it
_FENCE, _PIGGYBACK, _RECOVERY = 1, 2, 1
_DEFERRED_SYNC = 1
_BOTH_DISK_FIGURES = 3


class DiskSpace(NamedTuple):
    """What a bookie says of its ledger directories' disks, in bytes."""

    total: int
    free: int


class LacUpdate(NamedTuple):
    """A LAC that a bookie knows of, and the record of the entry asked along, if it is there."""

    lac: int
    record: bytes | None


class V3Dialect:
    """Requests and answers of v3. With `extended` it says scopes and reads batches; without,
    they are not sent: `IllegalOperation`."""

    repeats_keys = False

    def __init__(self, extended: bool = False) -> None:
        self.batch_reads = extended
        self._extended = extended
        self._transactions = count(1)

    def check(self, name: LedgerId) -> None:
        """Raise `IllegalOperation` for a ledger that it cannot name."""
        if name.scope and not self._extended:
            raise IllegalOperation(f"ledger {name}: v3 says a scope only if it is extended")

    def _request(
        self,
        operation: Operation,
        name: LedgerId | None,
        fields: Mapping[str, Any],
        read: Callable[[Any], _T],
        about: tuple[object, ...],
        *,
        urgent: bool = False,
        patience: float = 0.0,
    ) -> Request[_T]:
        """Return a request; `read` gets the operation's own message of the answer."""
        number = next(self._transactions)
        priority = _HIGH_PRIORITY if urgent else 0
        body = fields if name is None else {"ledgerId": name, **fields}
        message = v3.new_request(
            operation, number, body, priority=priority, extended=self._extended
        )

        def checked(answer: Any) -> _T:
            ids = getattr(answer, "ledgerScopeId", 0), getattr(answer, "ledgerId", 0)
            if name is not None and ids != name.signed:
                raise CorruptionError(None, 0, f"the answer is of ledger {answer.ledgerId}")
            return read(answer)

        framed = frame(v3.encode(message), limit=MAX_FRAME)
        return Request((int(operation), number), framed, checked, about, patience)

    def auth(self, payload: bytes) -> Request[AuthToken]:
        """Return a request that is one step of an authentication."""

        def read(answer: Any) -> AuthToken:
            return AuthToken(answer.authPluginName, answer.payload)

        body = {"authPluginName": SASL, "payload": payload}
        return self._request(Operation.AUTH, None, body, read, ("authentication",))

    # -- adds and reads

    def adds(
        self,
        records: Sequence[bytes],
        ids: Sequence[tuple[LedgerId, int]],
        key: bytes,
        recovery: bool,
        sync: bool = True,
    ) -> list[Request[int]]:
        """Return requests that add records, each of the ledger and with the entry id beside it."""
        fields: dict[str, Any] = {"masterKey": key}
        if recovery:
            fields["flag"] = _RECOVERY
        if not sync:
            fields["writeFlags"] = _DEFERRED_SYNC
        return [self._add(record, *each, fields, recovery) for record, each in zip(records, ids)]

    def _add(
        self, record: bytes, name: LedgerId, entry: int, fields: Mapping[str, Any], urgent: bool
    ) -> Request[int]:
        body = {"entryId": entry, "body": record, **fields}

        def read(answer: Any) -> int:
            _same_entry(answer.entryId, entry)
            return entry

        about = ("add", name, entry)
        return self._request(Operation.ADD_ENTRY, name, body, read, about, urgent=urgent)

    def read(self, name: LedgerId, entry: int, key: bytes | None) -> Request[bytes]:
        """Return a request for one record, which fences if there is a master key."""
        fields = {"entryId": entry, **_fencing(key)}

        def read(answer: Any) -> bytes:
            _same_entry(answer.entryId, entry)
            return checked_record(answer.body, name, entry)

        about = ("read", name, entry)
        return self._request(
            Operation.READ_ENTRY, name, fields, read, about, urgent=key is not None
        )

    def read_batch(
        self, name: LedgerId, start: int, max_count: int, max_size: int, key: bytes | None
    ) -> Request[RecordBatch]:
        """Return a request for records of consecutive entries; fences if there is a key."""
        if not self._extended:
            raise IllegalOperation("v3 reads batches only if it is extended")
        limits = {"startEntryId": start, "maxCount": max_count, "maxSize": max_size}

        def read(answer: Any) -> RecordBatch:
            _same_entry(answer.startEntryId, start)
            records = list(answer.body)
            batch = RecordBatch.of(records, range(len(records)))
            return checked_batch(batch, name, start, max_count)

        about = ("batch read", name, start)
        return self._request(
            Operation.BATCH_READ_ENTRY,
            name,
            {**limits, **_fencing(key)},
            read,
            about,
            urgent=key is not None,
        )

    # -- LAC

    def read_lac(self, name: LedgerId) -> Request[LastConfirmed]:
        """Return a request for what the bookie knows of a LAC."""

        def read(answer: Any) -> LastConfirmed:
            record = answer.lastEntryBody or None
            if record is not None:
                checked_record(record, name, LAST_ENTRY)
            return LastConfirmed(answer.lacBody or None, record)

        return self._request(Operation.READ_LAC, name, {}, read, ("LAC", name))

    def write_lac(self, name: LedgerId, body: bytes, key: bytes) -> Request[None]:
        """Return a request to keep an explicit LAC."""
        fields = {"lac": decode_explicit_lac(body)[1], "masterKey": key, "body": body}
        about = ("write of the explicit LAC", name)
        return self._request(Operation.WRITE_LAC, name, fields, _nothing, about)

    def wait_for_lac(self, name: LedgerId, previous: int, seconds: float) -> Request[LacUpdate]:
        """Return a request that is answered once the LAC is above `previous`, or later."""
        fields = {
            "entryId": LAST_ENTRY,
            "flag": _PIGGYBACK,
            "previousLAC": previous,
            "timeOut": round(seconds * 1000),
        }

        def read(answer: Any) -> LacUpdate:
            lac = answer.maxLAC if answer.HasField("maxLAC") else NO_ENTRY
            record = answer.body or None
            if record is not None:
                checked_record(record, name, answer.entryId)
            return LacUpdate(lac, record)

        return self._request(
            Operation.READ_ENTRY, name, fields, read, ("LAC update", name), patience=seconds
        )

    # -- the rest

    def force(self, name: LedgerId) -> Request[None]:
        """Return a request to make durable what was added without sync."""
        return self._request(Operation.FORCE_LEDGER, name, {}, _nothing, ("force", name))

    def availability(self, name: LedgerId) -> Request[Availability]:
        """Return a request for the list of entries."""

        def read(answer: Any) -> Availability:
            return Availability.from_bytes(answer.availabilityOfEntriesOfLedger)

        return self._request(
            Operation.GET_LIST_OF_ENTRIES_OF_LEDGER, name, {}, read, ("list of entries", name)
        )

    def disk_space(self) -> Request[DiskSpace]:
        """Return a request for total and free bytes of the disks."""

        def read(answer: Any) -> DiskSpace:
            return DiskSpace(answer.totalDiskCapacity, answer.freeDiskSpace)

        fields = {"requested": _BOTH_DISK_FIGURES}
        return self._request(Operation.GET_BOOKIE_INFO, None, fields, read, ("bookie info",))

    # -- answers

    def decode(self, message: bytes) -> Spoken:
        """Return what a message says; the status is the answer's, if that is EOK its body's.

        A LAC answer without entries has the explicit LAC all the same, which is an answer.
        """
        response = v3.decode_response(message, extended=self._extended)
        operation = response.header.operation
        key = (operation, response.header.txnId)
        status = Status.from_v3(response.status)
        try:
            body = v3.body_of(response)
        except IllegalOperation as error:
            raise CorruptionError(None, None, str(error)) from None
        if operation == Operation.READ_LAC and status is Status.ENOENTRY and body.lacBody:
            return Spoken(key, Status.EOK, body)
        if status is Status.EOK and body.DESCRIPTOR.fields_by_name.get("status") is not None:
            if not body.HasField("status"):
                raise CorruptionError(None, None, f"an EOK without a body to {key}")
            status = Status.from_v3(body.status)
        return Spoken(key, status, body)


def _fencing(key: bytes | None) -> dict[str, Any]:
    return {} if key is None else {"flag": _FENCE, "masterKey": key}


def _nothing(answer: Any) -> None:
    """Return that it was done."""


def _same_entry(found: int, asked: int) -> None:
    if found != asked:
        raise CorruptionError(None, 0, f"the answer is about entry {found}")
