"""Requests of v3 as operations, and their answers as v3 says them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from bkstore.formats.entry import RecordBatch
from bkstore.wire import v3
from bkstore.wire.frames import frame
from bkstore.wire.sasl.plugins import AUTH_DISABLED
from bkstore.wire.schema import EXTENDED, PLAIN
from bkstore.wire.server.requests.operations import (
    Add,
    BatchRead,
    BookieInfo,
    Force,
    ListEntries,
    Operation,
    Read,
    ReadLac,
    Ready,
    StartTls,
    WriteLac,
)
from bkstore.wire.status import Status

_FENCE, _PIGGYBACK = 1, 2  # of `ReadFlag`
_RECOVERY = 1  # of `AddFlag`
_TOTAL, _FREE = 1, 2
_DEFERRED_SYNC = 1  # of `WriteFlag`
_URGENT = 100
"""Priority from which on a request is of high priority (`BookieProtoEncoding`)."""


def operation_of(message: Any, *, tls: bool = False) -> Operation:
    """Return what a request asks; one that the server refuses by itself is `Ready`.

    Without `tls` that is START_TLS too.
    """
    number = message.header.operation
    name, make = _KINDS[number]
    extended = isinstance(message, EXTENDED.Request)
    if make is None or (make is _start_tls and not tls) or (make is _batch and not extended):
        return Ready(name, 3, partial(_bare, message), status=Status.EBADREQ)
    operation = make(message)
    if message.header.version != v3.VERSION and make is not _auth:
        return operation.as_refusal(Status.EBADVERSION)
    return operation


def _bare(message: Any, status: Status) -> bytes:
    """Return an answer that is only a header and a status."""
    return frame(v3.encode(v3.new_response(message, status)))


def _body(message: Any, *more: str) -> dict[str, Any]:
    """Return the fields of an answer that repeat the request's."""
    asked = v3.body_of(message)
    fields = {"ledgerId": asked.ledgerId} | {name: getattr(asked, name) for name in more}
    scope = getattr(asked, "ledgerScopeId", 0)
    return fields | {"ledgerScopeId": scope} if scope else fields


def _told(fields: dict[str, Any], **found: Any) -> dict[str, Any]:
    return fields | {name: value for name, value in found.items() if value is not None}


def _encoded(message: Any, status: Status, body: dict[str, Any]) -> bytes:
    return frame(v3.encode(v3.new_response(message, status, body)))


def _begun(message: Any, asked: Any, status: Status, field: str) -> tuple[Any, Any]:
    """Return an answer and the message in one of its fields, filled as `_body` fills them.

    What `v3.new_response` makes, at a third of its cost: for adds and reads.
    """
    extended = isinstance(message, EXTENDED.Request)
    answer = EXTENDED.Response() if extended else PLAIN.Response()
    header = answer.header
    header.version = v3.VERSION
    header.operation, header.txnId = message.header.operation, message.header.txnId
    body = getattr(answer, field)
    answer.status = body.status = status.v3
    body.ledgerId, body.entryId = asked.ledgerId, asked.entryId
    if extended and asked.ledgerScopeId:
        body.ledgerScopeId = asked.ledgerScopeId
    return answer, body


def _of_ledger(asked: Any) -> dict[str, Any]:
    return {"ledger_number": asked.ledgerId, "scope": getattr(asked, "ledgerScopeId", 0)}


def _add(message: Any) -> Operation:
    asked = message.addRequest
    add = Add(
        "ADD_ENTRY",
        3,
        partial(_add_reply, message),
        record=asked.body,
        master_key=asked.masterKey,
        recovery=asked.HasField("flag") and asked.flag == _RECOVERY,
        sync=not asked.writeFlags & _DEFERRED_SYNC,
        urgent=message.header.priority >= _URGENT,
    )
    scoped = asked.body[:1] >= b"\x80" and not isinstance(message, EXTENDED.Request)
    return add.as_refusal(Status.EBADREQ) if scoped else add


def _add_reply(message: Any, status: Status) -> bytes:
    answer, _ = _begun(message, message.addRequest, status, "addResponse")
    return frame(v3.encode(answer))


def _read(message: Any) -> Operation:
    asked = message.readRequest
    fields = _read_fields(asked)
    waits = asked.HasField("previousLAC") and not fields["fence"]
    return Read(
        "READ_ENTRY",
        3,
        partial(_read_reply, message),
        **fields,
        entry=asked.entryId,
        piggyback=asked.HasField("flag") and asked.flag == _PIGGYBACK,
        previous_lac=asked.previousLAC if waits else None,
        time_out=asked.timeOut if asked.HasField("timeOut") else None,
    )


def _read_fields(asked: Any) -> dict[str, Any]:
    fence = asked.HasField("flag") and asked.flag == _FENCE
    return _of_ledger(asked) | {
        "fence": fence,
        "master_key": asked.masterKey if asked.HasField("masterKey") else None,
        "tells_lac": not fence,
    }


def _read_reply(
    message: Any,
    status: Status,
    record: bytes | memoryview | None = None,
    lac: int | None = None,
    entry: int | None = None,
    updated: int | None = None,
) -> bytes:
    answer, body = _begun(message, message.readRequest, status, "readResponse")
    if record is not None:
        body.body = bytes(record)
    if lac is not None:
        body.maxLAC = lac
    if entry is not None:
        body.entryId = entry
    if updated is not None:
        body.lacUpdateTimestamp = updated
    return frame(v3.encode(answer))


def _batch(message: Any) -> Operation:
    asked = v3.body_of(message)
    return BatchRead(
        "BATCH_READ_ENTRY",
        3,
        partial(_batch_reply, message),
        **_read_fields(asked),
        entry=asked.startEntryId,
        max_count=asked.maxCount,
        max_size=asked.maxSize,
    )


def _batch_reply(
    message: Any, status: Status, batch: RecordBatch | None = None, lac: int | None = None
) -> bytes:
    body = _told(_body(message, "startEntryId"), maxLAC=lac)
    if batch is not None:
        body["body"] = batch.records()
    return _encoded(message, status, body)


def _write_lac(message: Any) -> Operation:
    asked = v3.body_of(message)
    key, body = asked.masterKey, asked.body
    reply = partial(_ledger_reply, message)
    return WriteLac("WRITE_LAC", 3, reply, **_of_ledger(asked), master_key=key, body=body)


def _ledger_reply(message: Any, status: Status) -> bytes:
    return _encoded(message, status, _body(message))


def _read_lac(message: Any) -> Operation:
    return ReadLac("READ_LAC", 3, partial(_lac_reply, message), **_of_ledger(v3.body_of(message)))


def _lac_reply(
    message: Any, status: Status, lac_body: bytes | None = None, last: bytes | None = None
) -> bytes:
    return _encoded(message, status, _told(_body(message), lacBody=lac_body, lastEntryBody=last))


def _force(message: Any) -> Operation:
    return Force(
        "FORCE_LEDGER", 3, partial(_ledger_reply, message), **_of_ledger(v3.body_of(message))
    )


def _list(message: Any) -> Operation:
    name = "GET_LIST_OF_ENTRIES_OF_LEDGER"
    return ListEntries(name, 3, partial(_list_reply, message), **_of_ledger(v3.body_of(message)))


def _list_reply(message: Any, status: Status, availability: bytes | None = None) -> bytes:
    body = _told(_body(message), availabilityOfEntriesOfLedger=availability)
    return _encoded(message, status, body)


def _info(message: Any) -> Operation:
    asked = v3.body_of(message).requested
    reply = partial(_info_reply, message)
    total, free = bool(asked & _TOTAL), bool(asked & _FREE)
    return BookieInfo("GET_BOOKIE_INFO", 3, reply, total=total, free=free)


def _info_reply(
    message: Any, status: Status, total: int | None = None, free: int | None = None
) -> bytes:
    return _encoded(message, status, _told({}, totalDiskCapacity=total, freeDiskSpace=free))


def _auth(message: Any) -> Operation:
    body = {"authPluginName": AUTH_DISABLED, "payload": b""}
    return Ready("AUTH", 3, lambda status: frame(v3.encode(v3.new_echo(message, status, body))))


def _start_tls(message: Any) -> Operation:
    return StartTls("START_TLS", 3, lambda status: _encoded(message, status, {}))


_MAKERS: dict[v3.Operation, Callable[[Any], Operation]] = {
    v3.Operation.READ_ENTRY: _read,
    v3.Operation.ADD_ENTRY: _add,
    v3.Operation.AUTH: _auth,
    v3.Operation.WRITE_LAC: _write_lac,
    v3.Operation.READ_LAC: _read_lac,
    v3.Operation.GET_BOOKIE_INFO: _info,
    v3.Operation.START_TLS: _start_tls,
    v3.Operation.FORCE_LEDGER: _force,
    v3.Operation.GET_LIST_OF_ENTRIES_OF_LEDGER: _list,
    v3.Operation.BATCH_READ_ENTRY: _batch,
}

_KINDS = {int(kind): (kind.name, _MAKERS.get(kind)) for kind in v3.Operation}
