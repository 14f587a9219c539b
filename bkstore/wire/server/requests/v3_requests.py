"""Operations from v3 requests, and the v3 frames of their answers.

A scope is the upper 64 bits of a ledger id, 0 in BookKeeper; `extended` v3 has scopes and batch
reads.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from bkstore.formats.entry import RecordBatch
from bkstore.wire import v3
from bkstore.wire.frames import frame
from bkstore.wire.sasl.plugins import AUTH_DISABLED
from bkstore.wire.server.requests import auth_responses
from bkstore.wire.server.requests.operations import (
    AddOperation,
    BatchReadOperation,
    BookieInfoOperation,
    ForceOperation,
    ImmediateOperation,
    ListEntriesOperation,
    Operation,
    ReadLacOperation,
    ReadOperation,
    StartTlsOperation,
    WriteLacOperation,
)
from bkstore.wire.status_codes import Status
from bkstore.wire.v3_schema import EXTENDED, PLAIN

_FENCE, _PIGGYBACK = 1, 2  # of `ReadFlag`
_RECOVERY = 1  # of `AddFlag`
_TOTAL_DISK, _FREE_DISK = 1, 2  # of `GetBookieInfoRequest.Flags`
_DEFERRED_SYNC = 1  # of `WriteFlag`
_HIGH_PRIORITY = 100
"""The lowest header priority that counts as high priority (`BookieProtoEncoding`)."""


def make_operation(message: Any, *, tls: bool = False) -> Operation:
    """Return the operation of a request: `ImmediateOperation` if the server answers it by itself,
    as it refuses START_TLS without `tls`."""
    operation_number = message.header.operation
    name, make = _NAME_AND_MAKER[operation_number]
    extended = isinstance(message, EXTENDED.Request)
    if (
        make is None
        or (make is _make_start_tls and not tls)
        or (make is _make_batch_read and not extended)
    ):
        return ImmediateOperation(
            name, protocol=3, encode_response=partial(_status_frame, message), status=Status.EBADREQ
        )
    operation = make(message)
    # BookKeeper checks no version of AUTH
    if message.header.version != v3.VERSION and make is not _make_auth:
        return operation.as_refusal(Status.EBADVERSION)
    return operation


def _status_frame(message: Any, status: Status) -> bytes:
    """Return the frame of a response with only a header and a status."""
    return frame(v3.encode(v3.new_response(message, status)))


def _echo_ids(message: Any, *more: str) -> dict[str, Any]:
    """Return response fields with the values of the request's: its ledger and those of `more`."""
    request = v3.body_of(message)
    fields = {"ledgerId": request.ledgerId} | {name: getattr(request, name) for name in more}
    scope = getattr(request, "ledgerScopeId", 0)
    return fields | {"ledgerScopeId": scope} if scope else fields


def _drop_none(fields: dict[str, Any]) -> dict[str, Any]:
    return {field: value for field, value in fields.items() if value is not None}


def _response_frame(message: Any, status: Status, body: dict[str, Any]) -> bytes:
    return frame(v3.encode(v3.new_response(message, status, body)))


def _start_response(message: Any, request: Any, status: Status, field: str) -> tuple[Any, Any]:
    """Return a response and its body, the message in `field`, with the request's ids filled in, as
    `v3.new_response` does at three times the cost: for adds and reads."""
    is_extended = isinstance(message, EXTENDED.Request)
    response = EXTENDED.Response() if is_extended else PLAIN.Response()
    header = response.header
    header.version = v3.VERSION
    header.operation, header.txnId = message.header.operation, message.header.txnId
    body = getattr(response, field)
    response.status = body.status = status.v3
    body.ledgerId, body.entryId = request.ledgerId, request.entryId
    if is_extended and request.ledgerScopeId:
        body.ledgerScopeId = request.ledgerScopeId
    return response, body


def _ledger_ids(request: Any) -> dict[str, Any]:
    return {"ledger_number": request.ledgerId, "scope": getattr(request, "ledgerScopeId", 0)}


def _make_add(message: Any) -> Operation:
    """Return the operation of an add, or a refusal if the record has a scope (the upper half of a
    128-bit ledger id) and the message is not of the extended protocol, which alone has scopes."""
    request = message.addRequest
    add = AddOperation(
        "ADD_ENTRY",
        protocol=3,
        encode_response=partial(_add_response, message),
        record=request.body,
        master_key=request.masterKey,
        recovery=request.HasField("flag") and request.flag == _RECOVERY,
        sync=not request.writeFlags & _DEFERRED_SYNC,
        high_priority=message.header.priority >= _HIGH_PRIORITY,
    )
    # The first byte of a record with a scope is 0x80 or more.
    is_scoped = request.body[:1] >= b"\x80"
    is_extended = isinstance(message, EXTENDED.Request)
    return add.as_refusal(Status.EBADREQ) if is_scoped and not is_extended else add


def _add_response(message: Any, status: Status) -> bytes:
    response, _ = _start_response(message, message.addRequest, status, "addResponse")
    return frame(v3.encode(response))


def _make_read(message: Any) -> Operation:
    """Return the operation of a read request: a long poll if it has a LAC and does not fence."""
    request = message.readRequest
    fields = _read_fields(request)
    is_long_poll = request.HasField("previousLAC") and not fields["fence"]
    return ReadOperation(
        "READ_ENTRY",
        protocol=3,
        encode_response=partial(_read_response, message),
        **fields,
        entry_id=request.entryId,
        piggyback=request.HasField("flag") and request.flag == _PIGGYBACK,
        previous_lac=request.previousLAC if is_long_poll else None,
        timeout_millis=request.timeOut if request.HasField("timeOut") else None,
    )


def _read_fields(request: Any) -> dict[str, Any]:
    """Return the operation's fields that a read and a batch read share."""
    fence = request.HasField("flag") and request.flag == _FENCE
    return _ledger_ids(request) | {
        "fence": fence,
        "master_key": request.masterKey if request.HasField("masterKey") else None,
        "needs_lac": not fence,  # the answer to a fencing read has none
    }


def _read_response(
    message: Any,
    status: Status,
    record: bytes | memoryview | None = None,
    lac: int | None = None,
    entry: int | None = None,
    lac_update_millis: int | None = None,
) -> bytes:
    """Return the frame that answers a read; fields without a value are left out."""
    response, body = _start_response(message, message.readRequest, status, "readResponse")
    if record is not None:
        body.body = bytes(record)
    if lac is not None:
        body.maxLAC = lac
    if entry is not None:
        body.entryId = entry
    if lac_update_millis is not None:
        body.lacUpdateTimestamp = lac_update_millis
    return frame(v3.encode(response))


def _make_batch_read(message: Any) -> Operation:
    """Return the operation of a batch read, which only the extended protocol has in v3."""
    request = v3.body_of(message)
    fields = _read_fields(request) | {"entry_id": request.startEntryId}
    limits = {"max_count": request.maxCount, "max_size": request.maxSize}
    encode = partial(_batch_response, message)
    return BatchReadOperation(
        "BATCH_READ_ENTRY", protocol=3, encode_response=encode, **fields | limits
    )


def _batch_response(
    message: Any, status: Status, batch: RecordBatch | None = None, lac: int | None = None
) -> bytes:
    body = _drop_none(_echo_ids(message, "startEntryId") | {"maxLAC": lac})
    if batch is not None:
        body["body"] = batch.records()
    return _response_frame(message, status, body)


def _write_lac(message: Any) -> Operation:
    request = v3.body_of(message)
    fields = _ledger_ids(request) | {"master_key": request.masterKey, "body": request.body}
    return WriteLacOperation(
        "WRITE_LAC", protocol=3, encode_response=partial(_ledger_response, message), **fields
    )


def _ledger_response(message: Any, status: Status) -> bytes:
    return _response_frame(message, status, _echo_ids(message))


def _read_lac(message: Any) -> Operation:
    ids = _ledger_ids(v3.body_of(message))
    return ReadLacOperation(
        "READ_LAC", protocol=3, encode_response=partial(_lac_response, message), **ids
    )


def _lac_response(
    message: Any, status: Status, lac: bytes | None = None, last_record: bytes | None = None
) -> bytes:
    body = _drop_none(_echo_ids(message) | {"lacBody": lac, "lastEntryBody": last_record})
    return _response_frame(message, status, body)


def _make_force(message: Any) -> Operation:
    ids = _ledger_ids(v3.body_of(message))
    return ForceOperation(
        "FORCE_LEDGER", protocol=3, encode_response=partial(_ledger_response, message), **ids
    )


def _make_list(message: Any) -> Operation:
    name, ids = "GET_LIST_OF_ENTRIES_OF_LEDGER", _ledger_ids(v3.body_of(message))
    return ListEntriesOperation(
        name, protocol=3, encode_response=partial(_list_response, message), **ids
    )


def _list_response(message: Any, status: Status, availability: bytes | None = None) -> bytes:
    field = {"availabilityOfEntriesOfLedger": availability}
    return _response_frame(message, status, _drop_none(_echo_ids(message) | field))


def _make_info(message: Any) -> Operation:
    requested = v3.body_of(message).requested
    encode = partial(_info_response, message)
    total, free = bool(requested & _TOTAL_DISK), bool(requested & _FREE_DISK)
    return BookieInfoOperation(
        "GET_BOOKIE_INFO", protocol=3, encode_response=encode, needs_total=total, needs_free=free
    )


def _info_response(
    message: Any, status: Status, total: int | None = None, free: int | None = None
) -> bytes:
    body = _drop_none({"totalDiskCapacity": total, "freeDiskSpace": free})
    return _response_frame(message, status, body)


def _make_auth(message: Any) -> Operation:
    return auth_responses.answer_v3(message, AUTH_DISABLED, b"")


def _make_start_tls(message: Any) -> Operation:
    return StartTlsOperation(
        "START_TLS", protocol=3, encode_response=lambda status: _response_frame(message, status, {})
    )


_MAKE_OPERATION: dict[v3.OperationType, Callable[[Any], Operation]] = {
    v3.OperationType.READ_ENTRY: _make_read,
    v3.OperationType.ADD_ENTRY: _make_add,
    v3.OperationType.AUTH: _make_auth,
    v3.OperationType.WRITE_LAC: _write_lac,
    v3.OperationType.READ_LAC: _read_lac,
    v3.OperationType.GET_BOOKIE_INFO: _make_info,
    v3.OperationType.START_TLS: _make_start_tls,
    v3.OperationType.FORCE_LEDGER: _make_force,
    v3.OperationType.GET_LIST_OF_ENTRIES_OF_LEDGER: _make_list,
    v3.OperationType.BATCH_READ_ENTRY: _make_batch_read,
}

_NAME_AND_MAKER = {int(kind): (kind.name, _MAKE_OPERATION.get(kind)) for kind in v3.OperationType}
