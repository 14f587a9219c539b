"""Bytes that no honest peer sends: named errors only, and memory in proportion to what came."""

from __future__ import annotations

import contextlib
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, strategies as st

from bkstore.errors import BkstoreError, CorruptionError
from bkstore.wire import v2, v3
from bkstore.wire.frames import FrameSplitter, frame
from bkstore.wire.protocol_detection import RequestDecoder
from bkstore.wire.status_codes import Status

KEY = bytes(range(20))
RECORD = bytes(range(32)) + b"hello"


def _v3(operation: v3.OperationType, **fields: Any) -> bytes:
    return v3.encode(v3.new_request(operation, 7, fields, extended=True))


def _answer(operation: v3.OperationType, **fields: Any) -> bytes:
    request = v3.new_request(operation, 7, extended=True)
    return v3.encode(v3.new_response(request, Status.EOK, fields))


O = v3.OperationType  # noqa: E741
HONEST = [
    b"".join(v2.AddRequest(KEY, RECORD).parts()),
    b"".join(v2.ReadRequest(4660, 3, v2.Flags.DO_FENCING, KEY).parts()),
    b"".join(v2.BatchReadRequest(4660, 3, 1, 2, 3, v2.Flags.DO_FENCING, KEY).parts()),
    b"".join(v2.AuthRequest(b"sasl", b"token").parts()),
    b"".join(v2.ReadResponse(Status.EOK, 4660, 3, RECORD).parts()),
    b"".join(v2.BatchReadResponse(Status.EOK, 4660, 3, 1, (RECORD, RECORD)).parts()),
    _v3(O.READ_ENTRY, ledgerId=4660, entryId=3, masterKey=KEY, flag=1),
    _v3(O.ADD_ENTRY, ledgerId=4660, entryId=3, masterKey=KEY, body=RECORD, writeFlags=1),
    _v3(O.WRITE_LAC, ledgerId=4660, lac=3, masterKey=KEY, body=RECORD),
    _v3(O.AUTH, authPluginName=b"sasl", payload=b"token"),
    _v3(O.BATCH_READ_ENTRY, ledgerId=4660, startEntryId=3, maxCount=2, maxSize=3),
    _answer(O.READ_ENTRY, ledgerId=4660, entryId=3, body=RECORD, maxLAC=2),
    _answer(O.BATCH_READ_ENTRY, ledgerId=4660, startEntryId=3, body=[RECORD, RECORD]),
]


def _request(data: bytes) -> None:
    """Decode a request as a server does, and encode it again; only errors of bkstore come."""
    for extended in (False, True):
        decoder = RequestDecoder(extended=extended)
        try:
            message = decoder.decode(data)
            if decoder.version == 2:
                b"".join(message.parts())
            else:
                v3.encode(message)
                str(v3.ledger_id_of(v3.body_of(message)) if message.header.operation == 1 else "")
        except BkstoreError:
            pass


def _response(data: bytes) -> None:
    """Decode a response as a client of either protocol does, and encode it again."""
    for extended in (False, True):
        try:
            message = v3.decode_response(data, extended=extended)
            v3.encode(message)
            v3.status_in(message)
            v3.body_of(message)
        except BkstoreError:
            pass
    with contextlib.suppress(BkstoreError):
        b"".join(v2.decode_response(data).parts())


def _v2_request(data: bytes) -> None:
    with contextlib.suppress(BkstoreError):
        b"".join(v2.decode_request(data).parts())


DECODERS: list[Callable[[bytes], None]] = [_request, _response, _v2_request]


@given(data=st.binary(max_size=200))
def test_random_bytes(data: bytes) -> None:
    """Random bytes, behind each honest first word too, give a message or a named error."""
    for decode in DECODERS:
        decode(data)
        for honest in HONEST:
            decode(honest[:4] + data)


@given(data=st.data())
def test_damaged_messages(data: st.DataObject) -> None:
    """Honest messages with a byte changed, bytes put in or cut out."""
    honest = data.draw(st.sampled_from(HONEST))
    begin = data.draw(st.integers(0, len(honest)))
    end = data.draw(st.integers(begin, min(len(honest), begin + 9)))
    damaged = honest[:begin] + data.draw(st.binary(max_size=9)) + honest[end:]
    for decode in DECODERS:
        decode(damaged)


@pytest.mark.parametrize("at", range(len(HONEST)))
def test_every_truncation_and_every_byte(at: int) -> None:
    """Each prefix of an honest message, and each byte set to 0, 127, 128 and 255."""
    honest = HONEST[at]
    for decode in DECODERS:
        for cut in range(len(honest)):
            decode(honest[:cut])
            for value in (0, 127, 128, 255):
                decode(honest[:cut] + bytes([value]) + honest[cut + 1 :])


@given(pieces=st.lists(st.binary(max_size=40)), limit=st.integers(4, 100))
def test_random_streams(pieces: list[bytes], limit: int) -> None:
    """A splitter yields what lengths say, in any pieces, and holds less than its limit."""
    stream = b"".join(pieces)
    splitter = FrameSplitter(limit)
    found: list[bytes] = []
    offset = None
    try:
        for piece in pieces:
            splitter.feed(piece)
            found += splitter.frames()

            assert splitter.pending_bytes < limit
    except CorruptionError as error:
        offset = error.offset
    whole = b"".join(map(frame, found))

    assert stream.startswith(whole)
    assert offset in (None, len(whole))
    if offset is not None:
        size = int.from_bytes(stream[offset : offset + 4], "big", signed=True)

        assert not 0 <= size + 4 <= limit or size < 0
    else:
        assert len(stream) - len(whole) == splitter.pending_bytes


def _peak(decode: Callable[[bytes], Any], data: bytes) -> int:
    tracemalloc.start()
    try:
        found = decode(data)
        del found
    except CorruptionError:
        pass
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


def test_memory_of_lying_messages() -> None:
    """Sizes that lie take no memory; the most records that fit in a frame, 16 bytes a byte."""
    head = bytes.fromhex("02070000") + bytes(28)
    lies = head + b"\x7f\xff\xff\xff"
    nested = b"\x0a\xff\xff\xff\x7f"  # a header of 256 MiB
    small = head + (b"\0\0\0\2" + b"ab") * 100_000

    assert _peak(v2.decode_response, lies) < 10_000
    assert _peak(v3.decode_request, nested) < 10_000
    assert _peak(v2.decode_response, small) < 16 * len(small)
