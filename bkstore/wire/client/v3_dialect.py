"""The client side of the v3 protocol: protobuf messages, matched by transaction id.

A scope is the upper 64 bits of a ledger id, 0 in BookKeeper; `extended` v3 has scopes and batch
reads. Source: `proto/PerChannelBookieClient`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, NamedTuple, TypeVar

from bkstore.availability import Availability
from bkstore.cluster.client.bookie_client import LacResponse
from bkstore.errors import CorruptionError, IllegalOperation
from bkstore.formats.entry import NO_ENTRY, RecordBatch, decode_explicit_lac
from bkstore.ids import LedgerId
from bkstore.wire import v3
from bkstore.wire.client.dialect import (
    LAST_ENTRY,
    AuthToken,
    DecodedResponse,
    PendingRequest,
    Subject,
    verify_batch,
    verify_record_ids,
)
from bkstore.wire.frames import MAX_FRAME_BYTES, frame
from bkstore.wire.sasl.plugins import SASL
from bkstore.wire.status_codes import Status
from bkstore.wire.v3 import OperationType

_T = TypeVar("_T")

_HIGH_PRIORITY = 100  # of fencing reads and recovery adds, as in BookKeeper's client
_FENCE, _PIGGYBACK, _RECOVERY = 1, 2, 1  # the first two are flags of reads, the third of adds
_DEFERRED_SYNC = 1
_BOTH_DISK_FIGURES = 3  # 1, the total, and 2, the free bytes


class DiskSpace(NamedTuple):
    """The total and free bytes that a bookie reports for the disks of its ledger directories."""

    total: int
    free: int


class LacUpdate(NamedTuple):
    """A LAC that a bookie knows, and the record of the entry after the previous LAC, or None."""

    lac: int
    record: bytes | None


class V3Dialect:
    """Requests and answers of v3. With `extended` it has scopes and batch reads; without, those
    raise `IllegalOperation`."""

    repeats_keys = False

    def __init__(self, extended: bool = False) -> None:
        self.batch_reads = extended
        self._extended = extended
        self._transaction_ids = count(1)

    def check_ledger(self, ledger_id: LedgerId) -> None:
        """Raise `IllegalOperation` for a ledger in a scope unless v3 is extended."""
        if ledger_id.scope and not self._extended:
            raise IllegalOperation(f"ledger {ledger_id}: v3 has scopes only if it is extended")

    def _make_request(
        self,
        operation: OperationType,
        subject: Subject,
        fields: v3.Body,
        decode_body: Callable[[Any], _T],
        *,
        high_priority: bool = False,
        extra_seconds: float = 0.0,
    ) -> PendingRequest[_T]:
        """Return a request with these `fields` and the ledger of the `subject`. `decode_body`
        returns the result from the body of the answer, after its ledger is checked."""
        # A subject is (kind,), (kind, ledger) or (kind, ledger, entry).
        ledger_id = subject[1] if len(subject) > 1 else None
        txn_id, extended = next(self._transaction_ids), self._extended
        priority = _HIGH_PRIORITY if high_priority else 0
        body = fields if ledger_id is None else {"ledgerId": ledger_id, **fields}
        message = v3.new_request(operation, txn_id, body, priority=priority, extended=extended)

        def check_and_decode(answer: Any) -> _T:
            """Decode an answer; raises `CorruptionError` if it is of another ledger."""
            ids = (getattr(answer, "ledgerScopeId", 0), getattr(answer, "ledgerId", 0))
            if ledger_id is not None and ids != ledger_id.signed:
                raise CorruptionError(None, 0, f"the answer is of ledger {answer.ledgerId}")
            return decode_body(answer)

        key, framed = (int(operation), txn_id), frame(v3.encode(message), limit=MAX_FRAME_BYTES)
        return PendingRequest(key, framed, check_and_decode, subject, extra_seconds)

    def auth(self, payload: bytes) -> PendingRequest[AuthToken]:
        """Return a request for one step of an authentication."""

        def decode_body(body: Any) -> AuthToken:
            return AuthToken(body.authPluginName, body.payload)

        fields = {"authPluginName": SASL, "payload": payload}
        return self._make_request(OperationType.AUTH, ("authentication",), fields, decode_body)

    def adds(
        self,
        records: Sequence[bytes],
        ids: Sequence[tuple[LedgerId, int]],
        master_key: bytes,
        recovery: bool,
        sync: bool = True,
    ) -> list[PendingRequest[int]]:
        """Return requests to add records; `ids` has the ledger and entry id of each."""
        common: dict[str, Any] = {"masterKey": master_key}
        if recovery:
            common["flag"] = _RECOVERY
        if not sync:
            common["writeFlags"] = _DEFERRED_SYNC
        return [
            self._make_add(record, *pair, common, recovery) for record, pair in zip(records, ids)
        ]

    def _make_add(
        self, record: bytes, ledger_id: LedgerId, entry_id: int, common: v3.Body, recovery: bool
    ) -> PendingRequest[int]:
        """Return a request to add a record; `common` has the fields of all adds of a call."""
        fields = {"entryId": entry_id, "body": record, **common}

        def decode_body(body: Any) -> int:
            _check_entry(body.entryId, entry_id)
            return entry_id

        kind, subject = OperationType.ADD_ENTRY, ("add", ledger_id, entry_id)
        return self._make_request(kind, subject, fields, decode_body, high_priority=recovery)

    def read(
        self, ledger_id: LedgerId, entry_id: int, master_key: bytes | None
    ) -> PendingRequest[bytes]:
        """Return a request to read one record; it fences the ledger if `master_key` is given."""
        fields = {"entryId": entry_id, **_fencing_fields(master_key)}

        def decode_body(body: Any) -> bytes:
            _check_entry(body.entryId, entry_id)
            return verify_record_ids(body.body, ledger_id, entry_id)

        kind, subject = OperationType.READ_ENTRY, ("read", ledger_id, entry_id)
        fences = master_key is not None
        return self._make_request(kind, subject, fields, decode_body, high_priority=fences)

    def read_batch(
        self,
        ledger_id: LedgerId,
        start: int,
        max_count: int,
        max_size: int,
        master_key: bytes | None,
    ) -> PendingRequest[RecordBatch]:
        """Return a request to read consecutive entries; fences the ledger if given `master_key`."""
        if not self._extended:
            raise IllegalOperation("v3 reads batches only if it is extended")
        fields = {"startEntryId": start, "maxCount": max_count, "maxSize": max_size}
        fields |= _fencing_fields(master_key)

        def decode_body(body: Any) -> RecordBatch:
            _check_entry(body.startEntryId, start)
            records = list(body.body)
            batch = RecordBatch.of(records, range(len(records)))  # `verify_batch` sets the ids
            return verify_batch(batch, ledger_id, start, max_count)

        kind, subject = OperationType.BATCH_READ_ENTRY, ("batch read", ledger_id, start)
        fences = master_key is not None
        return self._make_request(kind, subject, fields, decode_body, high_priority=fences)

    def read_lac(self, ledger_id: LedgerId) -> PendingRequest[LacResponse]:
        """Return a request for the explicit LAC and the record of the last entry."""

        def decode_body(body: Any) -> LacResponse:
            record = body.lastEntryBody or None
            if record is not None:
                verify_record_ids(record, ledger_id, LAST_ENTRY)
            return LacResponse(body.lacBody or None, record)

        return self._make_request(OperationType.READ_LAC, ("LAC", ledger_id), {}, decode_body)

    def write_lac(self, ledger_id: LedgerId, body: bytes, key: bytes) -> PendingRequest[None]:
        """Return a request to store an explicit LAC; `key` is the ledger's master key."""
        fields = {"lac": decode_explicit_lac(body)[1], "masterKey": key, "body": body}
        subject = ("write of the explicit LAC", ledger_id)
        return self._make_request(OperationType.WRITE_LAC, subject, fields, _ignore_body)

    def wait_for_lac(
        self, ledger_id: LedgerId, previous_lac: int, seconds: float
    ) -> PendingRequest[LacUpdate]:
        """Return a request answered when the LAC exceeds `previous_lac`, or after `seconds`, with
        the LAC and a record piggybacked: that of the entry after `previous_lac`."""
        millis = round(seconds * 1000)
        fields = {"entryId": LAST_ENTRY, "flag": _PIGGYBACK}
        fields |= {"previousLAC": previous_lac, "timeOut": millis}

        def decode_body(body: Any) -> LacUpdate:
            lac = body.maxLAC if body.HasField("maxLAC") else NO_ENTRY
            record = body.body or None
            if record is not None:
                verify_record_ids(record, ledger_id, body.entryId)
            return LacUpdate(lac, record)

        kind, subject = OperationType.READ_ENTRY, ("LAC update", ledger_id)
        return self._make_request(kind, subject, fields, decode_body, extra_seconds=seconds)

    def force(self, ledger_id: LedgerId) -> PendingRequest[None]:
        """Return a request to make adds without sync durable."""
        return self._make_request(
            OperationType.FORCE_LEDGER, ("force", ledger_id), {}, _ignore_body
        )

    def availability(self, ledger_id: LedgerId) -> PendingRequest[Availability]:
        """Return a request for the list of entries that the bookie has."""

        def decode_body(body: Any) -> Availability:
            return Availability.from_bytes(body.availabilityOfEntriesOfLedger)

        kind, subject = OperationType.GET_LIST_OF_ENTRIES_OF_LEDGER, ("list of entries", ledger_id)
        return self._make_request(kind, subject, {}, decode_body)

    def disk_space(self) -> PendingRequest[DiskSpace]:
        """Return a request for total and free bytes of the disks."""

        def decode_body(body: Any) -> DiskSpace:
            return DiskSpace(body.totalDiskCapacity, body.freeDiskSpace)

        fields = {"requested": _BOTH_DISK_FIGURES}
        return self._make_request(
            OperationType.GET_BOOKIE_INFO, ("bookie info",), fields, decode_body
        )

    def decode(self, message: bytes) -> DecodedResponse:
        """Return the decoded message, with the status of its body if that of the response is EOK.

        ENOENTRY to a READ_LAC counts as EOK if there is an explicit LAC: then only the last entry
        is missing. Raises `CorruptionError` if the message is invalid.
        """
        response = v3.decode_response(message, extended=self._extended)
        operation = response.header.operation
        key = (operation, response.header.txnId)
        status = Status.from_v3(response.status)
        try:
            body = v3.body_of(response)
        except IllegalOperation as error:
            raise CorruptionError(None, None, str(error)) from None
        if operation == OperationType.READ_LAC and status is Status.ENOENTRY and body.lacBody:
            return DecodedResponse(key, Status.EOK, body)
        if status is Status.EOK and body.DESCRIPTOR.fields_by_name.get("status") is not None:
            if not body.HasField("status"):
                raise CorruptionError(None, None, f"an EOK without a body for {key}")
            status = Status.from_v3(body.status)
        return DecodedResponse(key, status, body)


def _fencing_fields(master_key: bytes | None) -> dict[str, Any]:
    return {} if master_key is None else {"flag": _FENCE, "masterKey": master_key}


def _ignore_body(body: Any) -> None:
    """Return None: the answer has no content."""


def _check_entry(answered_entry: int, requested_entry: int) -> None:
    if answered_entry != requested_entry:
        raise CorruptionError(None, 0, f"the answer is about entry {answered_entry}")
