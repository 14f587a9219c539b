"""The v3 protocol: protobuf messages, each with a header of operation and transaction id.

Messages are protobuf objects of `v3_schema`, which keep unknown fields. Answers have the operation
and transaction id of their request. A scope is the upper 64 bits of a ledger id, 0 in BookKeeper;
`extended` v3 has scopes and batch reads. Source: `BookkeeperProtocol.proto`, `*ProcessorV3`
classes.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

from google.protobuf.message import DecodeError, EncodeError

from bkstore.errors import CorruptionError, IllegalOperation, InvalidArgument
from bkstore.formats.syntax.proto_messages import check_complete
from bkstore.ids import LedgerId, signed64
from bkstore.wire.status_codes import Status
from bkstore.wire.v3_schema import EXTENDED, PLAIN

VERSION = 3
"""The version in a header. BookKeeper answers EBADVERSION to others."""


class OperationType(enum.IntEnum):
    """The operation of a message. Range reads and adds were never built; batch reads are bkstore's
    own."""

    READ_ENTRY = 1
    ADD_ENTRY = 2
    RANGE_READ_ENTRY = 3
    RANGE_ADD_ENTRY = 4
    AUTH = 5
    WRITE_LAC = 6
    READ_LAC = 7
    GET_BOOKIE_INFO = 8
    START_TLS = 9
    FORCE_LEDGER = 10
    GET_LIST_OF_ENTRIES_OF_LEDGER = 11
    BATCH_READ_ENTRY = 12


_FIELD_PREFIXES = {
    OperationType.READ_ENTRY: "read",
    OperationType.ADD_ENTRY: "add",
    OperationType.AUTH: "auth",
    OperationType.WRITE_LAC: "writeLac",
    OperationType.READ_LAC: "readLac",
    OperationType.GET_BOOKIE_INFO: "getBookieInfo",
    OperationType.START_TLS: "startTLS",
    OperationType.FORCE_LEDGER: "forceLedger",
    OperationType.GET_LIST_OF_ENTRIES_OF_LEDGER: "getListOfEntriesOfLedger",
    OperationType.BATCH_READ_ENTRY: "batchRead",
}

_SCHEMAS = {False: PLAIN, True: EXTENDED}

Body = Mapping[str, Any]


def new_request(
    operation: OperationType,
    txn_id: int,
    body: Body | None = None,
    *,
    priority: int = 0,
    extended: bool = False,
) -> Any:
    """Return a `Request` message.

    `body` has the fields of the operation's message by name (`ledgerId` may be a `LedgerId`); None
    leaves that message out. Raises `IllegalOperation` for a scope or a batch read without
    `extended`, or operations without a message; `InvalidArgument` for unknown or invalid fields.

    >>> encode(new_request(OperationType.READ_LAC, 7, {"ledgerId": 4660})).hex()
    '0a06080310071807c2060308b424'
    """
    message = _SCHEMAS[extended].Request()
    _set_fields(message.header, {"version": VERSION, "operation": operation, "txnId": txn_id})
    if priority:
        _set_fields(message.header, {"priority": priority})
    if body is not None:
        _set_fields(_ensure_body(message), body)
    return message


def new_response(request: Any, status: Status, body: Body | None = None) -> Any:
    """Return the `Response` message to a request; `body` has the fields of its body by name. Sets
    the status, also in the body if that has such a field. The header has version 3 and no
    priority."""
    extended = isinstance(request, EXTENDED.Request)
    message = _SCHEMAS[extended].Response()
    header = {"operation": request.header.operation, "txnId": request.header.txnId}
    _set_fields(message.header, {"version": VERSION, **header})
    message.status = status.v3
    if body is not None:
        response_body = _ensure_body(message)
        if "status" in response_body.DESCRIPTOR.fields_by_name:
            response_body.status = status.v3
        _set_fields(response_body, body)
    return message


def encode(message: Any) -> bytes:
    """Return the bytes of a message, with fields in order of their numbers, as Java writes them.
    Raises `InvalidArgument` if a required field is missing."""
    try:
        return bytes(message.SerializeToString())
    except EncodeError as error:
        raise InvalidArgument(f"incomplete message: {error}") from None


def decode_request(data: bytes | memoryview, *, extended: bool = False) -> Any:
    """Return the `Request` in a frame's message, of any version. Raises `CorruptionError` where
    BookKeeper fails to parse: invalid protobuf, no required field, an unknown operation."""
    return _decode(_SCHEMAS[extended].Request(), data, "request")


def decode_response(data: bytes | memoryview, *, extended: bool = False) -> Any:
    """Return the `Response` in a frame's message. Raises `CorruptionError` as `decode_request`."""
    return _decode(_SCHEMAS[extended].Response(), data, "response")


def _decode(message: Any, data: bytes | memoryview, kind: str) -> Any:
    """Parse bytes into a message; return it. Raises `CorruptionError`, also for missing fields."""
    try:
        message.ParseFromString(bytes(data))
    except DecodeError as error:
        raise CorruptionError(None, 0, f"not a v3 {kind}: {error}") from None
    check_complete(message, 0, f"v3 {kind}")
    return message


def _body_field(message: Any) -> str:
    """Return the name of the field with the body, by the operation in the header."""
    operation = OperationType(message.header.operation)
    kind = "Request" if message.DESCRIPTOR.name == "Request" else "Response"
    name = f"{_FIELD_PREFIXES.get(operation, '')}{kind}"
    if name not in message.DESCRIPTOR.fields_by_name:
        raise IllegalOperation(f"this v3 schema has no {operation.name}")
    return name


def body_of(message: Any) -> Any:
    """Return the operation's own message in a request or response. A missing one reads as its
    defaults (ledger 0, entry 0), as in BookKeeper. Raises `IllegalOperation` for a range operation,
    and for a batch read unless extended."""
    return getattr(message, _body_field(message))


def _ensure_body(message: Any) -> Any:
    """Return the operation's own message, and mark it as present even if it stays empty."""
    body = body_of(message)
    body.SetInParent()
    return body


def ledger_id_of(body: Any) -> LedgerId:
    """Return the ledger id in a body, with scope 0 if it has none. Raises `InvalidArgument` for a
    negative ledger in scope 0, which bkstore does not support."""
    return LedgerId(getattr(body, "ledgerScopeId", 0), body.ledgerId)


def status_in(response: Any) -> Status:
    """Return the status of a response."""
    return Status.from_v3(response.status)


def _set_fields(message: Any, fields: Body) -> None:
    """Set fields by name. Raises `InvalidArgument` for unknown fields and invalid values."""
    for name, value in fields.items():
        if isinstance(value, LedgerId):
            _set_ledger(message, value)
            continue
        try:
            if isinstance(value, list | tuple):
                getattr(message, name).extend(value)
            else:
                setattr(message, name, value)
        except (AttributeError, TypeError, ValueError) as error:
            raise InvalidArgument(f"{name} of {message.DESCRIPTOR.name}: {error}") from None


def _set_ledger(message: Any, ledger: LedgerId) -> None:
    """Set the ledger's fields in a message; raises if it has a scope and the message cannot."""
    message.ledgerId = signed64(ledger.ledger)
    if ledger.scope:
        if "ledgerScopeId" not in message.DESCRIPTOR.fields_by_name:
            raise IllegalOperation(f"ledger {ledger}: v3 has scopes only if it is extended")
        message.ledgerScopeId = signed64(ledger.scope)
