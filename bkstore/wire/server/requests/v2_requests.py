"""Operations from v2 requests, and the v2 frames of their answers."""

from __future__ import annotations

from functools import partial
from typing import Any

from bkstore.formats.entry import RecordBatch
from bkstore.ids import Int64Array, LedgerId
from bkstore.wire import v2
from bkstore.wire.frames import frame
from bkstore.wire.sasl.plugins import AUTH_DISABLED
from bkstore.wire.server.requests import auth_responses
from bkstore.wire.server.requests.operations import (
    AddManyOperation,
    AddOperation,
    BatchReadOperation,
    Operation,
    ReadManyOperation,
    ReadOperation,
)
from bkstore.wire.status_codes import Status

_FENCE, _RECOVERY = int(v2.Flags.DO_FENCING), int(v2.Flags.RECOVERY_ADD)
_HIGH_PRIORITY = int(v2.Flags.HIGH_PRIORITY)  # plain ints, because IntFlag operations are slow


def make_operation(message: v2.Request) -> Operation:
    """Return the operation of a request: `ImmediateOperation` if the server answers it itself."""
    if isinstance(message, v2.AuthRequest):  # authentication is not required, or is over
        return auth_responses.answer_v2(AUTH_DISABLED, b"", v2.CURRENT_VERSION)
    if isinstance(message, v2.AddRequest):
        operation = _make_add(message)
    elif isinstance(message, v2.ReadRequest):
        operation = _make_read(message)
    else:
        operation = _make_batch_read(message)
    is_known = message.version <= v2.CURRENT_VERSION
    return operation if is_known else operation.as_refusal(Status.EBADVERSION)


def make_operation_of_many(
    requests: v2.AddRequests | v2.ReadRequests,
) -> AddManyOperation | ReadManyOperation:
    """Return one operation for many requests that differ only in ids and records. `requests` has
    the ids as arrays, and the records of adds as one batch."""
    header_version = requests.version  # of the requests' packet headers; responses repeat it
    if isinstance(requests, v2.ReadRequests):
        return ReadManyOperation(
            "READ_ENTRY",
            protocol=2,
            encode_response=partial(_read_responses, header_version),
            ledger_ids=requests.ledger_ids,
            entry_ids=requests.entry_ids,
        )
    return AddManyOperation(
        "ADD_ENTRY",
        protocol=2,
        encode_response=partial(v2.encode_add_responses, header_version),
        batch=requests.batch,
        ledger_ids=requests.ledger_ids,
        **_add_fields(requests),
    )


def _make_add(message: v2.AddRequest) -> Operation:
    """Return the operation of an add, or a refusal if the record has a scope (the upper half of a
    128-bit ledger id), for which v2 has no field."""
    encode = partial(_add_response, message.version, message.ledger, message.entry)
    fields = _add_fields(message)
    add = AddOperation(
        "ADD_ENTRY", protocol=2, encode_response=encode, record=message.record, **fields
    )
    return add.as_refusal(Status.EBADREQ) if message.has_scope else add


def _add_fields(message: v2.AddRequest | v2.AddRequests) -> dict[str, Any]:
    """Return the fields of an operation that all requests in `message` share."""
    return {
        "master_key": message.master_key,
        "recovery": bool(message.flags & _RECOVERY),
        "high_priority": bool(message.flags & _HIGH_PRIORITY),
    }


def _make_read(message: v2.ReadRequest) -> Operation:
    encode = partial(_read_response, message.version, message.ledger, message.entry)
    return ReadOperation("READ_ENTRY", protocol=2, encode_response=encode, **_read_fields(message))


def _make_batch_read(message: v2.BatchReadRequest) -> Operation:
    """Return the operation of a batch read."""
    ids = message.ledger, message.entry, message.request_id
    encode = partial(_batch_response, message.version, ids)
    limits = {"max_count": message.max_count, "max_size": message.max_size}
    return BatchReadOperation(
        "BATCH_READ_ENTRY", protocol=2, encode_response=encode, **_read_fields(message) | limits
    )


def _read_fields(message: v2.ReadRequest | v2.BatchReadRequest) -> dict[str, Any]:
    return {
        "ledger_number": message.ledger,
        "entry_id": message.entry,
        "fence": bool(message.flags & _FENCE),
        "master_key": message.master_key,
    }


def _add_response(version: int, ledger: int, entry: int, status: Status) -> bytes:
    return frame(*v2.AddResponse(status, ledger, entry, version).parts())


def _read_response(
    version: int,
    ledger: int | LedgerId,
    entry: int,
    status: Status,
    record: bytes | memoryview | None = None,
    *_lac_and_more: object,
) -> bytes:
    """Return the frame that answers a read. The other results of a read are accepted and left out,
    as v2 has no fields for them; so one caller serves both protocols."""
    header = v2.ReadResponse(status, ledger, entry, b"", version).parts()[0]
    return frame(header, record if status is Status.EOK and record is not None else b"")


def _read_responses(
    version: int,
    status: Status,
    ledgers: Int64Array,
    entries: Int64Array,
    batch: RecordBatch | None,
) -> bytes:
    """Return the frames of many responses; without a batch, refusals with this status."""
    if batch is not None:
        return v2.encode_read_responses(version, ledgers, entries, batch)
    ids = zip(ledgers.tolist(), entries.tolist())
    return b"".join([_read_response(version, *pair, status) for pair in ids])


def _batch_response(
    version: int,
    ids: tuple[int | LedgerId, int, int],
    status: Status,
    batch: RecordBatch | None = None,
    *_lac: object,
) -> bytes:
    """Return the frame that answers a batch read. `ids` are those of ledger, first entry and
    request. The LAC is accepted and left out, as v2 has no field for it. In the frame each record
    follows its length, as in a framed batch."""
    header = v2.BatchReadResponse(status, *ids, (), version).parts()[0]
    return frame(header, b"" if batch is None else batch.framed().buffer)
