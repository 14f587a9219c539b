"""Recorded conversations with a real bookie that asks for SASL, byte for byte, in both roles.

Nonces are those of the recording; so are passwords, which it was made with. Transaction ids of v3
are a client's own: they are compared as if all were 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from bkstore.errors import BkstoreError, BookieUnavailable, CorruptionError, UnauthorizedAccess
from bkstore.storage.bookie import Bookie
from bkstore.wire import v3
from bkstore.wire.client import SaslUser, WireClient
from bkstore.wire.sasl import SaslUsers, digest_md5
from bkstore.wire.server import BookieServer
from tests.wire.client.scripted import Peer as ServerEnd, served
from tests.wire.recorded import conversations, needs_golden
from tests.wire.replayed_states import JOURNAL, KEY, prepare, record_of, states_differing
from tests.wire.server.peer import Peer

pytestmark = needs_golden

USERS = SaslUsers({"hd": "testpwd"}, allowed_ids=".*")
NAMES = [
    f"{protocol}_{what}"
    for protocol in ("v2", "v3")
    for what in ("both_sides", "wrong_password", "bookie_only")
] + [
    "raw_v3_wrong_plugin",
    "raw_v2_wrong_plugin",
    "raw_v3_garbage_token",
    "raw_v3_start_tls",
]
READ_V3 = bytes.fromhex("0000000f0a06080310011802a2060408321000")
REFUSED_V3 = bytes.fromhex("0000000b0a0608031001180210f603")
READ_V2 = bytes.fromhex("000000140202000000000000000000320000000000000000")
REFUSED_V2 = bytes.fromhex("00000018020200000000006600000000000000320000000000000000")
"""A read of entry 0 of ledger 50, and what the recorded bookie answered before authentication."""


def sent_by(frames: list[dict[str, str]], side: str) -> list[bytes]:
    """Return the whole frames of one side, in order."""
    return [bytes.fromhex(f["hex"]) for f in frames if f["dir"] == side and "hex" in f]


def nonces(frames: list[bytes], name: bytes) -> Iterator[bytes]:
    """Yield the values of a nonce in frames."""
    return (found for each in frames for found in re.findall(name + rb'="([^"]*)"', each))


def conversation_of(name: str) -> dict[str, Any]:
    """Return a conversation."""
    (found,) = (each for each in conversations("wire_auth.json") if each["name"] == name)
    return found


def test_every_conversation_is_here() -> None:
    """The bookie of the recording that asks for SASL has no other conversations."""
    recorded = [c["name"] for c in conversations("wire_auth.json") if c["bookie"] == "bookie-sasl"]

    assert sorted(NAMES) == sorted(recorded)


@pytest.fixture
def bookie(tmp_path: Path) -> Iterator[Bookie]:
    """Yield a bookie."""
    with Bookie.open(tmp_path / "bookie", "sorted", journal=JOURNAL) as opened:
        yield opened


@pytest.mark.parametrize("name", NAMES)
def test_a_bookie_that_asks_for_sasl(
    name: str, bookie: Bookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our server says what the real one said to each recorded frame, and leaves its state; where
    that said nothing, neither does ours: a refused read is what comes next."""
    conversation = conversation_of(name)
    for state in conversation["state_before"]:
        prepare(bookie, state)
    for connection in conversation["connections"]:
        frames = connection["frames"]
        said = sent_by(frames, "s2c")
        given = nonces(said, b",nonce")
        monkeypatch.setattr(digest_md5, "new_nonce", lambda given=given: next(given, b"another"))
        with BookieServer(bookie, sasl=USERS) as server, Peer(server.address) as peer:
            for whole in (each for each in frames if "hex" in each):
                if whole["dir"] == "c2s":
                    peer.send(bytes.fromhex(whole["hex"]))
                else:
                    assert whole["hex"] == peer.frame().hex()
            if any(frame.get("event") and frame["dir"] == "s2c" for frame in frames):
                assert peer.ends()
            elif "both_sides" not in name:
                asked, refused = (READ_V3, REFUSED_V3) if "v3" in name else (READ_V2, REFUSED_V2)
                peer.send(asked)

                assert refused == peer.frame()
    assert [] == states_differing(bookie, "after", conversation["state_after"])


def without_transaction(frame: bytes) -> bytes:
    """Return a frame as it is, one of v3 with transaction id 0."""
    try:
        message = v3.decode_request(frame[4:])
    except CorruptionError:
        return frame
    message.header.txnId = 0
    return v3.encode(message)


def recorded_bookie(end: ServerEnd, frames: list[dict[str, str]], heard: list[bytes]) -> None:
    """Answer as the recorded bookie did, and note what comes in."""
    transactions: dict[int, int] = {}
    for each in frames:
        if "hex" not in each:
            continue
        whole = bytes.fromhex(each["hex"])
        if each["dir"] == "s2c":
            try:
                answer = v3.decode_response(whole[4:])
            except CorruptionError:
                end.send(whole)
            else:
                answer.header.txnId = transactions[answer.header.txnId]
                end.answer(v3.encode(answer))
            continue
        message = end.request()
        if message is None:
            return
        heard.append(len(message).to_bytes(4, "big") + message)
        try:
            recorded = v3.decode_request(whole[4:]).header.txnId
            transactions[recorded] = v3.decode_request(message).header.txnId
        except CorruptionError:
            continue
    while end.request() is not None:
        continue


def asked(client: WireClient, operation: dict[str, Any]) -> object:
    """Do what the recorded client did; return what comes of it."""
    try:
        if operation["op"] == "add_entry":
            record = record_of(operation["ledger"], operation["entry"])
            return client.add_entry(record, KEY)
        return client.read_entry(operation["ledger"], operation["entry"])
    except BkstoreError as error:
        return type(error)


@pytest.mark.parametrize("protocol", ["v2", "v3"])
@pytest.mark.parametrize("what", ["both_sides", "client_only", "wrong_password", "bookie_only"])
def test_a_client_that_authenticates(
    what: str, protocol: Literal["v2", "v3"], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our client says what the real one said, to bookies that ask for SASL and that do not, and
    hears what that heard."""
    conversation = conversation_of(f"{protocol}_{what}")
    frames = conversation["connections"][0]["frames"]
    said = sent_by(frames, "c2s")
    cnonces = nonces(said, b"cnonce")
    monkeypatch.setattr(digest_md5, "new_nonce", lambda: next(cnonces))
    wrong = what == "wrong_password"
    user = SaslUser("hd", "nope" if wrong else "testpwd")
    operations = [
        op for op in conversation["operations"] if op["op"] in ("add_entry", "read_entry")
    ]
    expected = {
        "both_sides": [0, record_of(operations[0]["ledger"], 0)],
        "client_only": [0, record_of(operations[0]["ledger"], 0)],
        "wrong_password": [BookieUnavailable],
        "bookie_only": [UnauthorizedAccess, UnauthorizedAccess],
    }[what]
    heard: list[bytes] = []

    with (
        served(lambda end: recorded_bookie(end, frames, heard)) as server,
        WireClient(
            server.address,
            protocol,
            timeout=0.3 if wrong else 20,
            sasl=None if what == "bookie_only" else user,
        ) as client,
    ):
        assert expected == [asked(client, operation) for operation in operations]

    same = slice(0, len(heard))
    assert len(heard) >= min(len(said), 2)
    assert list(map(without_transaction, said[same])) == list(map(without_transaction, heard))
