"""Recorded conversations with real BookKeeper: every message decodes, and encodes to its bytes."""

from __future__ import annotations

import pytest

from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.formats.entry import encode, master_key
from bkstore.wire import v2, v3
from bkstore.wire.detection import RequestDecoder
from bkstore.wire.frames import FrameSplitter, frame
from bkstore.wire.status import Status
from tests.golden.data import GOLDEN, load_json
from tests.wire.recorded import FILES, connections, needs_golden

pytestmark = needs_golden

REFUSED = {
    "raw_auth_without_payload": "authentication message without name or payload",
    "raw_auth_garbage": "no authentication message",
    "raw_opcode_0": "opcode 0 has no layout",
    "raw_opcode_4": "opcode 4 has no layout",
    "raw_opcode_5": "opcode 5 has no layout",
    "raw_opcode_6": "opcode 6 has no layout",
    "raw_opcode_8": "opcode 8 has no layout",
    "raw_opcode_9": "opcode 9 has no layout",
    "raw_opcode_255": "opcode 255 has no layout",
    "raw_short_read": "ledger and entry of 16 bytes, 8 are there",
    "raw_short_add": "ids of a record of 16 bytes, 0 are there",
    "raw_empty_frame": "packet header of 4 bytes, 0 are there",
    "raw_tiny_frame": "packet header of 4 bytes, 1 are there",
    "raw_detect_v2_then_v3": "opcode 6 has no layout",
    "raw_detect_v3_then_v2": "opcode 6 has no layout",
    "raw_batch": "fields of a batch read of 36 bytes, 28 are there",
    "raw_unknown_operation": "opcode 6 has no layout",
    "raw_no_header_fields": "packet header of 4 bytes, 2 are there",
}
"""Conversations in which a real bookie dropped the connection at the last request, and why."""


def _bytes_of(message: object) -> bytes:
    if hasattr(message, "parts"):
        return frame(*message.parts())
    return frame(v3.encode(message))


@pytest.mark.parametrize("file", FILES)
def test_requests_and_their_bytes(file: str) -> None:
    """Each recorded request decodes and encodes to its bytes, but surplus ones behind a read."""
    different = []
    decoded = 0
    for connection in connections(file):
        decoder = RequestDecoder()
        for whole in (data for from_client, data in connection.frames if from_client):
            try:
                message = decoder.decode(whole[4:])
            except CorruptionError:
                continue
            decoded += 1
            if whole != _bytes_of(message):
                different.append((connection.name, whole.hex(), _bytes_of(message).hex()))

    surplus = "02020000" + "0000000000000460" + "0000000000000000"

    assert decoded > {"wire_auth.json": 25}.get(file, 150)
    assert different == (
        [("raw_trailing_bytes", "00000019" + surplus + "00" * 5, "00000014" + surplus)]
        if file == "wire_v2.json.gz"
        else []
    )


@pytest.mark.parametrize("file", FILES)
def test_what_a_bookie_drops_is_refused(file: str) -> None:
    """Requests at which a real bookie dropped the connection, and no others, are refused."""
    refused = {}
    for connection in connections(file):
        decoder = RequestDecoder()
        sent = [data for from_client, data in connection.frames if from_client]
        for at, whole in enumerate(sent):
            try:
                decoder.decode(whole[4:])
            except CorruptionError as error:
                refused[connection.name] = error.reason

                assert len(sent) == at + 1, connection.name
    print(refused)


@pytest.mark.parametrize("file", FILES)
def test_responses_and_their_bytes(file: str) -> None:
    """Each recorded response decodes in the protocol of its operation, and encodes to its bytes."""
    decoded = 0
    for connection in connections(file):
        for whole in (data for from_client, data in connection.frames if not from_client):
            try:
                message = v3.decode_response(whole[4:])
            except CorruptionError:
                message = v2.decode_response(whole[4:])
            decoded += 1

            assert whole == _bytes_of(message), connection.name

    assert decoded > {"wire_auth.json": 25}.get(file, 150)
