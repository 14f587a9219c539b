"""The client side of the v2 protocol: adds, reads, batch reads.

There are no transaction ids: the key of a request is its operation, ledger and entry id, which the
answer has too. Batch reads have a request id besides. A packet header has version, operation and
flags in 32 bits. A scope is the upper 64 bits of a 128-bit ledger id; BookKeeper's ledgers are in
scope 0. Source: `proto/PerChannelBookieClient.V2CompletionKey`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from struct import Struct

import numpy as np

from bkstore.errors import CorruptionError, IllegalOperation
from bkstore.formats.entry import RecordBatch
from bkstore.formats.syntax.framing import find_frames
from bkstore.ids import MAX_ENTRY_ID, LedgerId, signed64
from bkstore.wire import v2, v3
from bkstore.wire.client.dialect import (
    LAST_ENTRY,
    AuthToken,
    DecodedResponse,
    PendingRequest,
    verify_batch,
    verify_record_ids,
)
from bkstore.wire.frames import LENGTH_BYTES, MAX_FRAME_BYTES, frame
from bkstore.wire.sasl.plugins import SASL
from bkstore.wire.status_codes import Status

_BATCH_HEAD = Struct(">Iiqqq")
_ANSWER_HEAD = Struct(">Iiqq")
_STATUS_OFFSET = 4
_READ_FRAME = Struct(">iIqq")
"""The frame of a read without flags: size, packet header, ledger, entry."""

_ADD_HEADER, _READ_HEADER, _BATCH_HEADER = (
    (v2.CURRENT_VERSION << 24) | (code << 16)
    for code in (v2.Opcode.ADD_ENTRY, v2.Opcode.READ_ENTRY, v2.Opcode.BATCH_READ_ENTRY)
)
_FENCE = v2.Flags.DO_FENCING | v2.Flags.HIGH_PRIORITY
_RECOVERY = v2.Flags.RECOVERY_ADD | v2.Flags.HIGH_PRIORITY


_START_TLS_ANSWER_PREFIX = bytes.fromhex("0a0608031009")
"""The first bytes of an answer to START_TLS, a v3 message: version and operation in the header."""


class V2Dialect:
    """Requests and answers of v2. Raises `IllegalOperation` for requests that v2 does not have."""

    repeats_keys = True
    batch_reads = True

    def __init__(self) -> None:
        self._request_ids = count(1)

    def adds(
        self,
        records: Sequence[bytes],
        ids: Sequence[tuple[LedgerId, int]],
        master_key: bytes,
        recovery: bool,
    ) -> list[PendingRequest[int]]:
        """Return requests to add records; `ids` has the ledger and entry id of each. With
        `recovery`, a bookie takes them for a fenced ledger too."""
        if not records:
            return []
        message = v2.AddRequest(master_key, records[0], _RECOVERY if recovery else 0)
        head, _ = message.parts()  # packet header and master key, the same for all records
        return [_make_add(head, record, *pair) for record, pair in zip(records, ids)]

    def read(
        self, ledger_id: LedgerId, entry_id: int, master_key: bytes | None
    ) -> PendingRequest[bytes]:
        """Return a request to read one record; it fences the ledger if `master_key` is given."""
        ledger_number = signed64(ledger_id.ledger)
        # The usual read has a fixed size: it is packed at once, faster, into the same frame. Other
        # reads, and invalid ids, which raise an error, take the general way.
        if master_key is None and LAST_ENTRY <= entry_id <= MAX_ENTRY_ID and not ledger_id.scope:
            size = _READ_FRAME.size - LENGTH_BYTES
            framed = _READ_FRAME.pack(size, _READ_HEADER, ledger_number, entry_id)
        else:
            flags = 0 if master_key is None else _FENCE
            framed = frame(*v2.ReadRequest(ledger_id, entry_id, flags, master_key).parts())
        key = (v2.Opcode.READ_ENTRY, ledger_number, entry_id)
        subject = ("read", ledger_id, entry_id)
        return PendingRequest(
            key, framed, lambda record: verify_record_ids(record, ledger_id, entry_id), subject
        )

    def read_batch(
        self,
        ledger_id: LedgerId,
        start: int,
        max_count: int,
        max_size: int,
        master_key: bytes | None,
    ) -> PendingRequest[RecordBatch]:
        """Return a request to read consecutive entries; fences the ledger if given `master_key`."""
        flags = 0 if master_key is None else _FENCE
        request_id = next(self._request_ids)
        limits = (max_count, max_size)
        message = v2.BatchReadRequest(ledger_id, start, request_id, *limits, flags, master_key)
        key = (v2.Opcode.BATCH_READ_ENTRY, signed64(ledger_id.ledger), start, request_id)
        framed, subject = frame(*message.parts()), ("batch read", ledger_id, start)
        return PendingRequest(
            key, framed, lambda batch: verify_batch(batch, ledger_id, start, max_count), subject
        )

    def auth(self, payload: bytes) -> PendingRequest[AuthToken]:
        """Return a request for one step of an authentication."""
        framed = frame(*v2.AuthRequest(SASL, payload).parts())
        return PendingRequest((v2.Opcode.AUTH,), framed, lambda token: token, ("authentication",))

    def check_ledger(self, ledger_id: LedgerId) -> None:
        """Raise `IllegalOperation` for a ledger in a scope, which v2 cannot express."""
        if ledger_id.scope:
            raise IllegalOperation(f"ledger {ledger_id}: the v2 protocol has no scopes")

    def decode(self, message: bytes) -> DecodedResponse:
        """Return the decoded message; the records of a batch are not copied. Raises
        `CorruptionError` if it is invalid, or of a type that answers none of these requests."""
        if len(message) >= _ANSWER_HEAD.size:  # fast path for the frequent answers
            packet_header, status_code, ledger, entry = _ANSWER_HEAD.unpack_from(message)
            if packet_header == _ADD_HEADER:
                key = (v2.Opcode.ADD_ENTRY, ledger, entry)
                return DecodedResponse(key, Status.from_v2(status_code, _STATUS_OFFSET), None)
            if packet_header == _READ_HEADER:
                key, record = (v2.Opcode.READ_ENTRY, ledger, entry), message[_ANSWER_HEAD.size :]
                return DecodedResponse(key, Status.from_v2(status_code, _STATUS_OFFSET), record)
            if packet_header == _BATCH_HEADER and len(message) >= _BATCH_HEAD.size:
                return _decode_batch(message)
        if message.startswith(_START_TLS_ANSWER_PREFIX):  # it is a v3 message even in v2
            header = v3.decode_response(message).header
            return DecodedResponse((header.operation, header.txnId), Status.EIO, None)
        response = v2.decode_response(message)
        if isinstance(response, v2.AddResponse):
            key = (v2.Opcode.ADD_ENTRY, response.ledger, response.entry)
            return DecodedResponse(key, response.status, None)
        if isinstance(response, v2.ReadResponse):
            key = (v2.Opcode.READ_ENTRY, response.ledger, response.entry)
            return DecodedResponse(key, response.status, response.record)
        if isinstance(response, v2.AuthResponse):
            token = AuthToken(response.plugin, response.payload)
            return DecodedResponse((v2.Opcode.AUTH,), Status.EOK, token)
        raise CorruptionError(None, 0, f"an answer without a request: {type(response).__name__}")


def _make_add(
    head: bytes, record: bytes, ledger_id: LedgerId, entry_id: int
) -> PendingRequest[int]:
    """Return the request to add a record; `head` is the packet header and the master key."""
    key = (v2.Opcode.ADD_ENTRY, ledger_id.ledger, entry_id)
    framed = frame(head, record, limit=MAX_FRAME_BYTES)
    return PendingRequest(key, framed, lambda _: entry_id, ("add", ledger_id, entry_id))


def _decode_batch(message: bytes) -> DecodedResponse:
    """Return the decoded answer to a batch read: a header, then records with their lengths."""
    _, status_code, ledger, start, request_id = _BATCH_HEAD.unpack_from(message)
    status = Status.from_v2(status_code)
    offsets, sizes, end = find_frames(np.frombuffer(message, np.uint8), _BATCH_HEAD.size)
    if end != len(message):
        reason = f"record {offsets.size} of the batch does not end with the frame"
        raise CorruptionError(None, end, reason)
    # offsets stand in for the entry ids, which `verify_batch` sets
    batch = RecordBatch.of_frames(offsets, message, offsets, sizes)
    return DecodedResponse((v2.Opcode.BATCH_READ_ENTRY, ledger, start, request_id), status, batch)
