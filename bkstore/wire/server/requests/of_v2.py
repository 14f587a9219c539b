"""Requests of v2 as operations, and their answers as v2 says them."""

from __future__ import annotations

from functools import partial

from bkstore.formats.entry import RecordBatch
from bkstore.ids import LedgerId
from bkstore.wire import v2
from bkstore.wire.frames import frame
from bkstore.wire.sasl.plugins import AUTH_DISABLED
from bkstore.wire.server.requests.operations import Add, BatchRead, Operation, Read, Ready
from bkstore.wire.status import Status

__all__ = ["operation_of"]

_NEWEST = v2.CURRENT
_FENCE, _RECOVERY = int(v2.Flags.DO_FENCING), int(v2.Flags.RECOVERY_ADD)
_URGENT = int(v2.Flags.HIGH_PRIORITY)  # numbers: flags are slow to combine


def operation_of(message: v2.Request) -> Operation:
    """Return what a request asks; one that the server refuses by itself is `Ready`."""
    if isinstance(message, v2.AddRequest):
        return _add(message)
    if isinstance(message, v2.ReadRequest):
        return _read(message)
    if isinstance(message, v2.BatchReadRequest):
        return _batch(message)
    return Ready("AUTH", 2, _auth_reply)


def _add(message: v2.AddRequest) -> Operation:
    reply = partial(_add_reply, message.version, message.ledger, message.entry)
    if message.version > _NEWEST:
        return Ready("ADD_ENTRY", 2, reply, status=Status.EBADVERSION)
    if message.scoped:
        return Ready("ADD_ENTRY", 2, reply, status=Status.EBADREQ)
    flags = message.flags
    return Add(
        "ADD_ENTRY",
        2,
        reply,
        record=message.record,
        master_key=message.master_key,
        recovery=bool(flags & _RECOVERY),
        urgent=bool(flags & _URGENT),
    )


def _read(message: v2.ReadRequest) -> Operation:
    reply = partial(_read_reply, message.version, message.ledger, message.entry)
    if message.version > _NEWEST:
        return Ready("READ_ENTRY", 2, reply, status=Status.EBADVERSION)
    return Read(
        "READ_ENTRY",
        2,
        reply,
        ledger_number=int(message.ledger),  # type: ignore[arg-type]
        entry=message.entry,
        fence=bool(message.flags & _FENCE),
        master_key=message.master_key,
    )


def _batch(message: v2.BatchReadRequest) -> Operation:
    ids = message.ledger, message.entry, message.request_id
    reply = partial(_batch_reply, message.version, ids)
    if message.version > _NEWEST:
        return Ready("BATCH_READ_ENTRY", 2, reply, status=Status.EBADVERSION)
    return BatchRead(
        "BATCH_READ_ENTRY",
        2,
        reply,
        ledger_number=int(message.ledger),  # type: ignore[arg-type]
        entry=message.entry,
        max_count=message.max_count,
        max_size=message.max_size,
        fence=bool(message.flags & _FENCE),
        master_key=message.master_key,
    )


def _auth_reply(_status: Status) -> bytes:
    return frame(*v2.AuthResponse(AUTH_DISABLED, b"").parts())


def _add_reply(version: int, ledger: int, entry: int, status: Status) -> bytes:
    return frame(*v2.AddResponse(status, ledger, entry, version).parts())


def _read_reply(
    version: int,
    ledger: int | LedgerId,
    entry: int,
    status: Status,
    record: bytes | memoryview | None = None,
    *_told: object,
) -> bytes:
    fields = v2.ReadResponse(status, ledger, entry, b"", version).parts()[0]
    return frame(fields, record if status is Status.EOK and record is not None else b"")


def _batch_reply(
    version: int,
    ids: tuple[int | LedgerId, int, int],
    status: Status,
    batch: RecordBatch | None = None,
    *_told: object,
) -> bytes:
    """Return the answer; the frames of a batch are what the protocol has behind the fields."""
    fields = v2.BatchReadResponse(status, *ids, (), version).parts()[0]
    return frame(fields, b"" if batch is None else batch.framed().buffer)
