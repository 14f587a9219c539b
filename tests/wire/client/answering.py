"""What a scripted server says when it behaves: answers of both protocols, made of requests."""

from __future__ import annotations

from typing import Any

from bkstore.formats.entry import Entry, encode
from bkstore.wire import v2, v3
from bkstore.wire.status_codes import Status

__all__ = ["KEY", "LEDGER", "answer", "asked_entry", "record", "records_from"]

KEY = b"k" * 20
LEDGER = 7


def record(entry: int, size: int = 5, ledger: int = LEDGER) -> bytes:
    """Return the record of an entry with so many bytes of payload."""
    return encode(Entry(ledger, entry, entry - 1, size * (entry + 1), bytes(size)), "CRC32C")


def records_from(start: int, count: int) -> tuple[bytes, ...]:
    """Return the records of consecutive entries."""
    return tuple(record(entry) for entry in range(start, start + count))


def asked_entry(request: Any) -> int:
    """Return the entry that an add or a read is about."""
    if isinstance(request, tuple):
        return int(request.entry)
    return int(v3.body_of(request).entryId)


def answer(request: Any, status: Status = Status.EOK, size: int = 5) -> bytes:
    """Return the message that answers an add, a read or a batch read (3 records at most)."""
    fine = status is Status.EOK
    if isinstance(request, v2.AddRequest):
        return b"".join(v2.AddResponse(status, request.ledger, request.entry).parts())
    if isinstance(request, v2.ReadRequest):
        found = record(request.entry, size) if fine else b""
        return b"".join(v2.ReadResponse(status, request.ledger, request.entry, found).parts())
    if isinstance(request, v2.BatchReadRequest):
        found = records_from(request.entry, min(3, request.max_count or 3)) if fine else ()
        ids = (request.ledger, request.entry, request.request_id)
        return b"".join(v2.BatchReadResponse(status, *ids, found).parts())
    body = v3.body_of(request)
    operation = request.header.operation
    fields: dict[str, Any] = {}
    if operation != v3.OperationType.GET_BOOKIE_INFO:
        fields["ledgerId"] = body.ledgerId
    if operation in (v3.OperationType.ADD_ENTRY, v3.OperationType.READ_ENTRY):
        fields["entryId"] = body.entryId
    if operation == v3.OperationType.READ_ENTRY and fine:
        fields["body"] = record(body.entryId, size)
    if operation == v3.OperationType.BATCH_READ_ENTRY:
        fields["startEntryId"] = body.startEntryId
        fields["body"] = records_from(body.startEntryId, min(3, body.maxCount or 3))
    return v3.encode(v3.new_response(request, status, fields))
