"""The v3 protocol: protobuf messages, each with a header that says operation and transaction.

Messages are those of `schema`, so that fields which nobody here knows stay in them. An answer
has the operation and the transaction id of its request. Source: `BookkeeperProtocol.proto`, the
`*ProcessorV3` classes.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

from google.protobuf.message import DecodeError, EncodeError

from bkstore.errors import CorruptionError, IllegalOperation, InvalidArgument
from bkstore.formats.syntax.proto_messages import check_complete
from bkstore.ids import LedgerId, signed64
from bkstore.wire.schema import EXTENDED, PLAIN
from bkstore.wire.status import Status

VERSION = 3
"""The version of a header; a real bookie answers others with EBADVERSION."""


class Operation(enum.IntEnum):
    """What a message is about. The two ranges were never built, batch reads are bkstore's own."""

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


_NAMES = {
    Operation.READ_ENTRY: "read",
    Operation.ADD_ENTRY: "add",
    Operation.AUTH: "auth",
    Operation.WRITE_LAC: "writeLac",
    Operation.READ_LAC: "readLac",
    Operation.GET_BOOKIE_INFO: "getBookieInfo",
    Operation.START_TLS: "startTLS",
    Operation.FORCE_LEDGER: "forceLedger",
    Operation.GET_LIST_OF_ENTRIES_OF_LEDGER: "getListOfEntriesOfLedger",
    Operation.BATCH_READ_ENTRY: "batchRead",
}

_SCHEMAS = {False: PLAIN, True: EXTENDED}

Body = Mapping[str, Any]


def new_request(
    operation: Operation,
    txn_id: int,
    body: Body | None = None,
    *,
    priority: int = 0,
    extended: bool = False,
) -> Any:
    """Return a `Request` message.

    `body` has the fields of the operation's own message by their names (`ledgerId` takes a
    `LedgerId` too); None leaves that message out. Raises `IllegalOperation` for a scope other
    than 0 or a batch read without `extended`, and for operations without a message;
    `InvalidArgument` for fields that the message has not or cannot hold.

    >>> encode(new_request(Operation.READ_LAC, 7, {"ledgerId": 4660})).hex()
    '0a06080310071807c2060308b424'
    """
    message = _SCHEMAS[extended].Request()
    _fill(message.header, {"version": VERSION, "operation": operation, "txnId": txn_id})
    if priority:
        _fill(message.header, {"priority": priority})
    if body is not None:
        _fill(_set(message), body)
    return message


def new_response(request: Any, status: Status, body: Body | None = None) -> Any:
    """Return the `Response` message to a request; `body` as in `new_request`.

    The status stands in the response and, if there is a body with a status, in that too. The
    header is always of version 3, and has no priority.
    """
    extended = isinstance(request, EXTENDED.Request)
    message = _SCHEMAS[extended].Response()
    header = {"operation": request.header.operation, "txnId": request.header.txnId}
    _fill(message.header, {"version": VERSION, **header})
    message.status = status.v3
    if body is not None:
        mine = _set(message)
        if "status" in mine.DESCRIPTOR.fields_by_name:
            mine.status = status.v3
        _fill(mine, body)
    return message


def new_echo(request: Any, status: Status, body: Body | None = None) -> Any:
    """Return the `Response` that has the header of its request as it came, priority and all.

    So a real bookie answers AUTH, and whatever comes before it knows who asks; else as
    `new_response`.
    """
    message = new_response(request, status, body)
    message.header.CopyFrom(request.header)
    return message


def encode(message: Any) -> bytes:
    """Return the bytes of a message, fields in order of their numbers, as Java writes them.

    `InvalidArgument` if a required field is missing.
    """
    try:
        return bytes(message.SerializeToString())
    except EncodeError as error:
        raise InvalidArgument(f"incomplete message: {error}") from None


def decode_request(data: bytes | memoryview, *, extended: bool = False) -> Any:
    """Return the `Request` in a frame's message.

    Raises `CorruptionError` where a real bookie fails to parse it: no protobuf, a required field
    missing, an operation that the schema has not. The version of the header is not looked at.
    """
    return _decode(_SCHEMAS[extended].Request(), data, "request")


def decode_response(data: bytes | memoryview, *, extended: bool = False) -> Any:
    """Return the `Response` in a frame's message; `CorruptionError` as for requests."""
    return _decode(_SCHEMAS[extended].Response(), data, "response")


def _decode(message: Any, data: bytes | memoryview, what: str) -> Any:
    try:
        message.ParseFromString(bytes(data))
    except DecodeError as error:
        raise CorruptionError(None, 0, f"no v3 {what}: {error}") from None
    check_complete(message, 0, f"v3 {what}")
    return message


def _field(message: Any) -> str:
    """Return the name of the field that a message of its operation has its body in."""
    operation = Operation(message.header.operation)
    kind = "Request" if message.DESCRIPTOR.name == "Request" else "Response"
    name = f"{_NAMES.get(operation, '')}{kind}"
    if name not in message.DESCRIPTOR.fields_by_name:
        raise IllegalOperation(f"v3 has no {operation.name} here")
    return name


def body_of(message: Any) -> Any:
    """Return the operation's own message in a request or response.

    One that is not there reads as its defaults (ledger 0, entry 0), as a real bookie serves it.
    `IllegalOperation` for an operation that has none: a range, or a batch read that is not
    extended.
    """
    return getattr(message, _field(message))


def _set(message: Any) -> Any:
    """Return the operation's own message, there from now on, if only empty."""
    body = body_of(message)
    body.SetInParent()
    return body


def ledger_of(body: Any) -> LedgerId:
    """Return the ledger that a body names, scope 0 where it says none.

    `InvalidArgument` for a negative ledger of scope 0, which bkstore does not keep.
    """
    return LedgerId(getattr(body, "ledgerScopeId", 0), body.ledgerId)


def status_in(response: Any) -> Status:
    """Return the status of a response."""
    return Status.from_v3(response.status)


def _fill(message: Any, fields: Body) -> None:
    for name, value in fields.items():
        if isinstance(value, LedgerId):
            _name_ledger(message, value)
            continue
        try:
            if isinstance(value, list | tuple):
                getattr(message, name).extend(value)
            else:
                setattr(message, name, value)
        except (AttributeError, TypeError, ValueError) as error:
            raise InvalidArgument(f"{name} of {message.DESCRIPTOR.name}: {error}") from None


def _name_ledger(message: Any, ledger: LedgerId) -> None:
    message.ledgerId = signed64(ledger.ledger)
    if ledger.scope:
        if "ledgerScopeId" not in message.DESCRIPTOR.fields_by_name:
            raise IllegalOperation(f"ledger {ledger}: v3 says a scope only if it is extended")
        message.ledgerScopeId = signed64(ledger.scope)
