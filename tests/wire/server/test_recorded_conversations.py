"""Conversations of real clients with real bookies, played against a server over a real socket.

Each file is played from its beginning to its end on one bookie: later conversations build on the
ledgers of earlier ones. What was set up between two of them is set up here too, and compared
with the recorded state; then every request is sent, and what comes back is compared with what
the real bookie answered. `DIFFERENT` has all that differs on purpose.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from bkstore.availability import Availability
from bkstore.errors import CorruptionError
from bkstore.storage.bookie import Bookie
from bkstore.storage.options import StorageKind, StorageOptions
from bkstore.wire import v2, v3
from bkstore.wire.server import BookieServer, ServerOptions
from tests.wire.recorded import conversations, needs_golden
from tests.wire.replayed_states import JOURNAL, KEY, prepare, record_of, states_differing
from tests.wire.server.peer import Peer

pytestmark = needs_golden

LIMITS = ServerOptions(max_frame=16384)

DIFFERENT = {
    "raw_add_ids_only": [
        ("ENOENTRY", "ENOLEDGER"),  # an add that is refused makes no ledger here
        ("ENOENTRY", "ENOLEDGER"),
        ("ENOENTRY", "ENOLEDGER"),
        ("after", {"exists": True}, {"exists": False}),
    ],
    "raw_negative_ids": [  # there are none here
        ("EOK", "EBADREQ"),
        ("EOK", "EBADREQ"),
        ("EOK", "EBADREQ"),
    ],
    "db_list_of_entries": ["EOK, [[0, 8], [20, 20]]"],  # a real bookie gives no answer
}
"""What is answered otherwise, by conversation: (status there, status here)."""


def comparable(whole: bytes) -> bytes:
    """Return an answer without what is not to be compared: disk figures and times."""
    try:
        message = v3.decode_response(whole[4:])
    except CorruptionError:
        return whole
    for name, fields in {
        "getBookieInfoResponse": ("totalDiskCapacity", "freeDiskSpace"),
        "readResponse": ("lacUpdateTimestamp",),
    }.items():
        body = getattr(message, name)
        for field in fields:
            if body.HasField(field):
                setattr(body, field, 1)
    return v3.encode(message)


def status_of(whole: bytes) -> str:
    """Return the name of an answer's status."""
    try:
        return v3.status_in(v3.decode_response(whole[4:])).name
    except CorruptionError:
        message = v2.decode_response(whole[4:])
        assert not isinstance(message, v2.AuthResponse)
        return message.status.name


def differing(recorded: list[bytes], here: list[bytes]) -> list[Any]:
    """Return what differs in answers, in any order: statuses, or the answers themselves."""
    old, new = sorted(map(comparable, recorded)), sorted(map(comparable, here))
    if old == new:
        return []
    statuses = zip(map(status_of, recorded), map(status_of, here))
    return [pair if pair[0] != pair[1] else (old, new) for pair in statuses]


def connection_played(server: BookieServer, listed: list[dict[str, str]]) -> list[Any]:
    """Send what a client sent; return where the answers are not those that it got."""
    different: list[Any] = []
    peer = Peer(server.address)
    at = 0
    while at < len(listed):
        frame, end = listed[at], at + 1
        if "event" in frame:
            if frame["dir"] == "s2c" and (peer.exactly(1) or peer.open):
                different.append("still open")
            break  # the client's end follows
        if frame["dir"] == "c2s":
            peer.send(bytes.fromhex(frame.get("hex") or frame["incomplete_hex"]))
        else:
            while end < len(listed) and listed[end]["dir"] == "s2c" and "hex" in listed[end]:
                end += 1
            recorded = [bytes.fromhex(each["hex"]) for each in listed[at:end]]
            different += differing(recorded, [peer.frame() for _ in recorded])
        at = end
    if listed and listed[-1]["dir"] == "c2s" and "hex" in listed[-1]:  # no answer was recorded
        message = v3.decode_response(peer.frame()[4:])
        found = Availability.from_bytes(v3.body_of(message).availabilityOfEntriesOfLedger)
        different.append(f"{v3.status_in(message).name}, {found.ranges().tolist()}")
    peer.close()
    return different


def played(bookie: Bookie, server: BookieServer, conversation: dict[str, Any]) -> list[Any]:
    """Play one conversation from its state; return what differs."""
    before = conversation.get("state_before", [])
    for wanted in before:
        prepare(bookie, wanted)
    different = states_differing(bookie, "before", before)
    server.read_only = conversation["name"].endswith("read_only_bookie")
    other = None
    if conversation["name"].endswith("long_poll_wakes"):
        record = record_of(before[0]["ledger"], 3)
        other = threading.Timer(0.1, bookie.add_entry, (record, KEY))
        other.start()
    for connection in conversation["connections"]:
        different += connection_played(server, connection["frames"])
    if other is not None:
        other.join()
    return different + states_differing(bookie, "after", conversation.get("state_after", []))


PLAYED = {
    "v2": ("wire_v2.json.gz", "bookie-sorted"),
    "v3": ("wire_v3.json.gz", "bookie-sorted"),
    "v2 db": ("wire_v2.json.gz", "bookie-db"),
    "v3 db": ("wire_v3.json.gz", "bookie-db"),
    "auth": ("wire_auth.json", "bookie-plain"),
}


@pytest.mark.parametrize("storage", ["sorted", "interleaved", "db"])
@pytest.mark.parametrize("recording", PLAYED)
def test_a_recorded_bookie(recording: str, storage: StorageKind, tmp_path: Path) -> None:
    """Every recorded request gets the recorded answer and leaves the recorded state, whatever
    the storage; what differs is listed. Limbo is db storage's alone."""
    file, name = PLAYED[recording]
    options = StorageOptions(max_batch_size=500) if name == "bookie-db" else None
    different = {}
    answered = 0
    with (
        Bookie.open(tmp_path / "bookie", storage, options=options, journal=JOURNAL) as bookie,
        BookieServer(bookie, options=LIMITS) as server,
    ):
        for conversation in conversations(file):
            limbo = conversation["name"] == "db_limbo_ledger" and storage != "db"
            if conversation["bookie"] == name and not limbo:
                answered += 1
                found = played(bookie, server, conversation)
                if found:
                    different[conversation["name"]] = found
    expected = {
        each["name"]: DIFFERENT[each["name"]]
        for each in conversations(file)
        if each["bookie"] == name and each["name"] in DIFFERENT
    }

    assert answered > 1
    assert expected == different
