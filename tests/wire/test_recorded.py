"""Recorded conversations with real BookKeeper: every message decodes, and encodes to its bytes."""

from __future__ import annotations

from typing import Any

import pytest

from bkstore.errors import CorruptionError, IllegalOperation
from bkstore.formats.entry import master_key
from bkstore.wire import v2, v3
from bkstore.wire.frames import FrameSplitter, frame
from bkstore.wire.protocol_detection import RequestDecoder
from tests.golden.data import GOLDEN, load_json
from tests.wire.recorded import FILES, connections, conversations, needs_golden

pytestmark = needs_golden

REFUSED = {
    "wire_v2.json.gz": {
        "raw_auth_without_payload": "authentication message without name or payload",
        "raw_auth_garbage": "not an authentication message",
        "raw_opcode_0": "opcode 0 has no layout",
        "raw_opcode_4": "opcode 4 has no layout",
        "raw_opcode_5": "opcode 5 has no layout",
        "raw_opcode_6": "opcode 6 has no layout",
        "raw_opcode_8": "opcode 8 has no layout",
        "raw_opcode_9": "opcode 9 has no layout",
        "raw_opcode_255": "opcode 255 has no layout",
        "raw_short_read": "ledger and entry of 16 bytes, but 8 are left",
        "raw_short_add": "ids of a record of 16 bytes, but 0 are left",
        "raw_empty_frame": "packet header of 4 bytes, but 0 are left",
        "raw_tiny_frame": "packet header of 4 bytes, but 1 are left",
        "raw_detect_v2_then_v3": "opcode 6 has no layout",
        "raw_detect_v3_then_v2": "opcode 6 has no layout",
        "raw_batch": "fields of a batch read of 36 bytes, but 28 are left",
    },
    "wire_v3.json.gz": {
        "raw_unknown_operation": "opcode 6 has no layout",
        "raw_no_header_fields": "packet header of 4 bytes, but 2 are left",
        "raw_empty_frame": "packet header of 4 bytes, but 0 are left",
    },
    "wire_auth.json": {},
}
"""Conversations in which a real bookie dropped the connection at a request, and why we do."""

UNFRAMED = {
    "raw_too_long": (0, "frame length 16385 is above 16380"),
    "raw_longest": (16384, "frame length 16384 is above 16380"),
    "raw_negative_length": (0, "frame length -1 is negative"),
    "raw_garbage": (0, "frame length 1195725856 is above 16380"),
}
"""Likewise for lengths: the offset of the one that is refused. The bookie's limit was 16384."""


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
            if len(whole) > 16384:
                continue  # refused as a frame
            try:
                decoder.decode(whole[4:])
            except CorruptionError as error:
                refused[connection.name] = error.reason

                assert len(sent) == at + 1, connection.name

    assert REFUSED[file].keys() == refused.keys()
    assert [] == [name for name in refused if not refused[name].startswith(REFUSED[file][name])]


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("step", [1, 7, 4096])
def test_frames_in_pieces(file: str, step: int) -> None:
    """However the bytes of a client are cut, the frames that the bookie saw come out of them."""
    refused = {}
    for connection in connections(file):
        sent = [data for from_client, data in connection.frames if from_client]
        stream = b"".join(sent) + connection.rest
        splitter = FrameSplitter(16384)
        found: list[bytes] = []
        try:
            for at in range(0, len(stream), step):
                splitter.feed(stream[at : at + step])
                found += splitter.frames()
            splitter.feed_eof()
        except CorruptionError as error:
            refused[connection.name] = (error.offset, error.reason)

        assert found == [whole[4:] for whole in sent if len(whole) <= 16384], connection.name

    assert refused == (UNFRAMED if file == "wire_v2.json.gz" else {})


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


def _again(message: Any, request: Any) -> Any:
    """Return a v3 message made of the header and the fields of another."""
    operation = v3.OperationType(message.header.operation)
    body = None
    for field, value in message.ListFields():
        if field.number >= 100 and field.name != "requestContext":
            body = {each.name: content for each, content in value.ListFields()}
    if request is None:
        header = message.header
        return v3.new_request(operation, header.txnId, body, priority=header.priority)
    if body is not None and "status" in body:
        assert body.pop("status") == message.status
    return v3.new_response(request, v3.status_in(message), body)


def test_v3_messages_made_of_fields() -> None:
    """`new_request` and `new_response` give the bytes that real clients and bookies sent.

    But for what they refuse or leave out: other versions, contexts, operations never built.
    """
    other = set()
    made = 0
    for connection in connections("wire_v3.json.gz"):
        requests = {}
        for from_client, whole in connection.frames:
            try:
                decode = v3.decode_request if from_client else v3.decode_response
                message = decode(whole[4:])
            except CorruptionError:
                continue
            request = None if from_client else requests[message.header.txnId]
            requests[message.header.txnId] = message
            made += 1
            try:
                again = frame(v3.encode(_again(message, request)))
            except IllegalOperation:
                again = b""
            if again != whole:
                other.add((connection.name, from_client))

    assert made > 300
    assert other == {
        ("raw_version_one", True),
        ("raw_version_two", True),
        ("raw_context_pairs", True),
        ("raw_range_read_entry", True),
        ("raw_range_add_entry", True),
        ("raw_batch_read_entry", True),
    }


def test_add_requests_of_the_digest_vectors() -> None:
    """The add request of an encoded entry is the real client's, for each digest type."""
    vectors = load_json(GOLDEN / "bookkeeper" / "digest_vectors.json")
    checked = 0
    for vector in vectors if isinstance(vectors, list) else vectors["vectors"]:
        whole = bytes.fromhex(vector["v2_add_request_hex"])
        record = bytes.fromhex(vector["entry_hex"])
        key = master_key(vector["password"])
        message = v2.AddRequest(key, record)
        checked += 1

        assert whole == frame(*message.parts())
        assert message == v2.decode_request(whole[4:])
        assert (vector["ledger"], vector["entry"]) == (message.ledger, message.entry)

    assert checked > 3


def test_what_the_real_client_read_out_of_answers() -> None:
    """The bodies of LAC answers stand in the fields from which the real client took them."""
    compared = 0
    for conversation in conversations("wire_v3.json.gz"):
        told = [op["result"] for op in conversation.get("operations", ()) if op["op"] == "read_lac"]
        told = [result for result in told if "lac_body_hex" in result]
        answers = [
            v3.decode_response(bytes.fromhex(listed["hex"])[4:])
            for connection in conversation["connections"]
            for listed in connection["frames"]
            if told and listed["dir"] == "s2c" and "hex" in listed
        ]
        bodies = [v3.body_of(each) for each in answers if each.header.operation == 7]
        came = {(body.lacBody.hex(), body.lastEntryBody.hex()) for body in bodies}
        for result in told:
            compared += 1

            assert (result["lac_body_hex"], result["last_entry_body_hex"]) in came

    assert compared > 8
