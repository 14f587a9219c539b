"""The worked examples of the page on the wire, made and read by the codecs."""

from __future__ import annotations

import pytest

from bkstore import LedgerId
from bkstore.formats.entry import Entry, encode, master_key
from bkstore.wire import v2, v3
from bkstore.wire.frames import MAX_FRAME_BYTES, FrameSplitter, frame
from bkstore.wire.sasl import DigestClient, DigestServer, SaslUser, SaslUsers
from bkstore.wire.status_codes import Status
from bkstore.wire.v3_schema import PLAIN
from tests.docs.format_pages import FORMATS, shown_bytes, shown_text

KEY = master_key("testPasswd")
NONCE, CNONCE = b"0123456789abcdefghijABCDEFGHIJ+/01234567", b"client" * 6 + b"1234"
CHALLENGE = DigestServer(SaslUsers({"bookkeeper": "testPasswd"}), NONCE).respond(b"")
RECORD = encode(Entry(4660, 0, -1, 5, b"hello"), "CRC32C", "testPasswd")
SCOPED = LedgerId(0x550E8400E29B41D4, 0xA716446655440000)

V2 = {
    "add-request": v2.AddRequest(KEY, RECORD),
    "add-response": v2.AddResponse(Status.EOK, 4660, 0),
    "fencing-read": v2.ReadRequest(4660, -1, v2.Flags.DO_FENCING | v2.Flags.HIGH_PRIORITY, KEY),
    "batch-request": v2.BatchReadRequest(4660, 0, 77, 500, MAX_FRAME_BYTES),
    "auth-challenge": v2.AuthRequest(b"sasl", CHALLENGE),
    "batch-response": v2.BatchReadResponse(Status.EOK, 4660, 0, 77, (RECORD,)),
}
READ = v3.new_request(v3.OperationType.READ_ENTRY, 5, {"ledgerId": 4660, "entryId": 0})
V3 = {
    "v3-read-request": READ,
    "v3-read-response": v3.new_response(READ, Status.ENOENTRY, {"ledgerId": 4660, "entryId": 0}),
    "v3-scope": v3.new_request(v3.OperationType.READ_LAC, 6, {"ledgerId": SCOPED}, extended=True),
}


def _message(name: str) -> bytes:
    splitter = FrameSplitter()
    splitter.feed(shown_bytes("wire.md", name))
    (message,) = splitter.frames()
    splitter.feed_eof()
    return message


@pytest.mark.parametrize("name", V2)
def test_v2_examples(name: str) -> None:
    """The page's v2 frames are the codec's, both ways."""
    message = V2[name]
    decode = v2.decode_response if name.endswith("response") else v2.decode_request

    assert shown_bytes("wire.md", name) == frame(*message.parts())
    assert message == decode(_message(name))


def test_sasl_example() -> None:
    """The page's messages of DIGEST-MD5 are what both sides say."""
    server = DigestServer(SaslUsers({"bookkeeper": "testPasswd"}), NONCE)
    client = DigestClient(SaslUser("bookkeeper", "testPasswd"), CNONCE)
    challenge = server.respond(b"")
    response = client.respond(challenge)

    expected = shown_text("wire.md", "auth-texts").encode().splitlines()
    assert expected == [challenge, response, server.respond(response)]


@pytest.mark.parametrize("name", V3)
def test_v3_examples(name: str) -> None:
    """The page's v3 frames are the codec's, both ways."""
    decode = v3.decode_response if name.endswith("response") else v3.decode_request

    assert shown_bytes("wire.md", name) == frame(v3.encode(V3[name]))
    assert V3[name] == decode(_message(name), extended=name == "v3-scope")


def test_operations_on_the_page() -> None:
    """The page numbers the operations that have messages, and no other."""
    text = (FORMATS / "wire.md").read_text(encoding="utf-8")
    row = next(line for line in text.splitlines() if line.startswith("| operation |"))
    numbers = [int(part.split()[0]) for part in row.split("|")[4].split(",")]
    fields = PLAIN.Request.DESCRIPTOR.fields

    assert numbers == [1, 2, *range(5, 13)]
    assert len(numbers) == sum(100 <= field.number < 200 for field in fields) + 1  # batch reads
