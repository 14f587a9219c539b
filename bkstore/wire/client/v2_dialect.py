"""The v2 protocol as a client speaks it: adds, reads, batch reads.

There are no transaction ids: an answer is that to the request of its operation, ledger and entry
id; batch reads have a request id. Source: `proto/PerChannelBookieClient.V2CompletionKey`.
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
from bkstore.wire.client.requests import (
    LAST_ENTRY,
    AuthToken,
    Request,
    Spoken,
    checked_batch,
    checked_record,
)
from bkstore.wire.frames import MAX_FRAME, PREFIX, frame
from bkstore.wire.sasl.plugins import SASL
from bkstore.wire.status import Status

_BATCH = Struct(">Iiqqq")
_ANSWER = Struct(">Iiqq")
_READ = Struct(">iIqq")
"""A frame of most reads: size, word, ledger, entry."""

_ADD_WORD, _READ_WORD, _BATCH_WORD = (
    (v2.CURRENT << 24) | (code << 16)
    for code in (v2.Opcode.ADD_ENTRY, v2.Opcode.READ_ENTRY, v2.Opcode.BATCH_READ_ENTRY)
)
_FENCE = v2.Flags.DO_FENCING | v2.Flags.HIGH_PRIORITY
_RECOVERY = v2.Flags.RECOVERY_ADD | v2.Flags.HIGH_PRIORITY


_START_TLS = bytes.fromhex("0a0608031009")
"""How an answer to START_TLS begins, which is one of v3: its header's version and operation."""


class V2Dialect:
    """Requests and answers of v2. What it cannot say is not sent: `IllegalOperation`."""

    repeats_keys = True
    batch_reads = True

    def __init__(self) -> None:
        self._request_ids = count(1)

    # -- requests

    def adds(
        self,
        records: Sequence[bytes],
        ids: Sequence[tuple[LedgerId, int]],
        key: bytes,
        recovery: bool,
    ) -> list[Request[int]]:
        """Return requests that add records, each of the ledger and with the entry id beside it."""
        if not records:
            return []
        message = v2.AddRequest(key, records[0], _RECOVERY if recovery else 0)
        head, _ = message.parts()  # the same of all
        return [_add(head, record, *each) for record, each in zip(records, ids)]

    def read(self, name: LedgerId, entry: int, key: bytes | None) -> Request[bytes]:
        """Return a request for one record, which fences if there is a master key."""
        ledger = signed64(name.ledger)
        if key is None and LAST_ENTRY <= entry <= MAX_ENTRY_ID and not name.scope:
            framed = _READ.pack(_READ.size - PREFIX, _READ_WORD, ledger, entry)
        else:
            message = v2.ReadRequest(name, entry, 0 if key is None else _FENCE, key)
            framed = frame(*message.parts())
        return Request(
            (v2.Opcode.READ_ENTRY, ledger, entry),
            framed,
            lambda record: checked_record(record, name, entry),
            ("read", name, entry),
        )

    def read_batch(
        self, name: LedgerId, start: int, max_count: int, max_size: int, key: bytes | None
    ) -> Request[RecordBatch]:
        """Return a request for records of consecutive entries; fences if there is a key."""
        flags = 0 if key is None else _FENCE
        number = next(self._request_ids)
        message = v2.BatchReadRequest(name, start, number, max_count, max_size, flags, key)
        return Request(
            (v2.Opcode.BATCH_READ_ENTRY, signed64(name.ledger), start, number),
            frame(*message.parts()),
            lambda batch: checked_batch(batch, name, start, max_count),
            ("batch read", name, start),
        )

    def auth(self, payload: bytes) -> Request[AuthToken]:
        """Return a request that is one step of an authentication."""
        framed = frame(*v2.AuthRequest(SASL, payload).parts())
        return Request((v2.Opcode.AUTH,), framed, lambda token: token, ("authentication",))

    def check(self, name: LedgerId) -> None:
        """Raise `IllegalOperation` for a ledger that v2 cannot name."""
        if name.scope:
            raise IllegalOperation(f"ledger {name}: the v2 protocol cannot say a scope")

    # -- answers

    def decode(self, message: bytes) -> Spoken:
        """Return what a message says; a batch without a copy of its records."""
        if len(message) >= _ANSWER.size:  # the answers there are many of
            word, code, ledger, entry = _ANSWER.unpack_from(message)
            if word == _ADD_WORD:
                key = (v2.Opcode.ADD_ENTRY, ledger, entry)
                return Spoken(key, Status.from_v2(code, 4), None)
            if word == _READ_WORD:
                key = (v2.Opcode.READ_ENTRY, ledger, entry)
                return Spoken(key, Status.from_v2(code, 4), message[_ANSWER.size :])
            if word == _BATCH_WORD and len(message) >= _BATCH.size:
                return _batch(message)
        if message.startswith(_START_TLS):
            header = v3.decode_response(message).header
            return Spoken((header.operation, header.txnId), Status.EIO, None)
        response = v2.decode_response(message)
        if isinstance(response, v2.AddResponse):
            key = (v2.Opcode.ADD_ENTRY, response.ledger, response.entry)
            return Spoken(key, response.status, None)
        if isinstance(response, v2.ReadResponse):
            key = (v2.Opcode.READ_ENTRY, response.ledger, response.entry)
            return Spoken(key, response.status, response.record)
        if isinstance(response, v2.AuthResponse):
            token = AuthToken(response.plugin, response.payload)
            return Spoken((v2.Opcode.AUTH,), Status.EOK, token)
        raise CorruptionError(
            None, 0, f"an answer that nobody asked for: {type(response).__name__}"
        )


def _add(head: bytes, record: bytes, name: LedgerId, entry: int) -> Request[int]:
    key = (v2.Opcode.ADD_ENTRY, name.ledger, entry)
    framed = frame(head, record, limit=MAX_FRAME)
    return Request(key, framed, lambda _: entry, ("add", name, entry))


def _batch(message: bytes) -> Spoken:
    _, code, ledger, start, number = _BATCH.unpack_from(message)
    status = Status.from_v2(code)
    offsets, sizes, end = find_frames(np.frombuffer(message, np.uint8), _BATCH.size)
    if end != len(message):
        reason = f"batch whose record {offsets.size} does not end with its frame"
        raise CorruptionError(None, end, reason)
    batch = RecordBatch.of_frames(offsets, message, offsets, sizes)  # ids when it is checked
    return Spoken((v2.Opcode.BATCH_READ_ENTRY, ledger, start, number), status, batch)
