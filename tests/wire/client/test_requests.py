"""What the client sends: which requests, with which fields and flags, and what it refuses to."""

from __future__ import annotations

from typing import Any

import pytest

from bkstore.errors import (
    BookieUnavailable,
    CorruptionError,
    IllegalOperation,
    InvalidArgument,
)
from bkstore.formats.entry import Entry, RecordBatch, encode
from bkstore.ids import LedgerId
from bkstore.wire import v2, v3
from bkstore.wire.client import WireClient
from bkstore.wire.frames import frame
from bkstore.wire.protocol_detection import RequestDecoder
from bkstore.wire.status_codes import Status
from tests.wire.client.answering import KEY, LEDGER, answer, record
from tests.wire.client.scripted import Peer, served

PROTOCOLS = ["v2", "v3"]


def test_what_cannot_be_sent() -> None:
    """It is refused before anything is: scopes in v2 and plain v3, records above the frame limit,
    fencing without a key, records that are none, odd addresses and settings."""
    scoped = LedgerId(1, 7)
    other = encode(Entry(scoped, 0, -1, 1, b"x"), "CRC32C")
    with served(lambda peer: None) as server:
        for protocol in PROTOCOLS:
            with WireClient(server.address, protocol) as client:
                for call in (
                    lambda c: c.read_entry(scoped, 0),
                    lambda c: c.read_lac(scoped),
                    lambda c: c.force(scoped),
                    lambda c: c.availability(scoped),
                    lambda c: c.read_many(scoped, [1]),
                    lambda c: c.add_entry(other, KEY),
                    lambda c: c.add_entry(other, KEY, sync=False),
                    lambda c: c.add_batch(RecordBatch.of([record(0), other], [0, 0]), KEY),
                    lambda c: c.write_lac(scoped, other, KEY),
                ):
                    with pytest.raises(IllegalOperation, match="scope"):
                        call(client)
                with pytest.raises(InvalidArgument, match="limit of 5242880"):
                    client.add_entry(record(0, 5 << 20), KEY)
                with pytest.raises(InvalidArgument, match="needs the master key"):
                    client.read_entry(LEDGER, 0, fence=True)
                with pytest.raises(InvalidArgument, match="record 1 of the batch is not an entry"):
                    client.add_batch(RecordBatch.of([record(0), b"x"], [0, 1]), KEY)
                with pytest.raises(InvalidArgument, match="max_count"):
                    client.read_entries(LEDGER, 0, -1)
                with pytest.raises(InvalidArgument, match="previous"):
                    client.wait_for_lac(LEDGER, -2)
        for address in ("here", "here:", ":1", "h:70000", ("h", "1"), 5, "h:-1"):
            with pytest.raises(InvalidArgument, match="is not an address"):
                WireClient(address)
        for options in ({"timeout": 0}, {"window": 0}, {"tls": 5}, {"bookie_id": 7}):
            with pytest.raises(InvalidArgument):
                WireClient(server.address, **options)
        with pytest.raises(InvalidArgument, match="v2"):
            WireClient(server.address, "v4")

        assert 0 == server.connections


def test_extended_v3_says_scopes() -> None:
    """With `extended` a ledger of another scope is asked for, and only its answer is taken."""
    scoped = LedgerId(2**63 + 5, 2**63 + 7)
    other = encode(Entry(scoped, 3, 2, 1, b"x"), "CRC32C")

    def script(peer: Peer) -> None:
        for message in peer.requests():
            request = v3.decode_request(message, extended=True)
            body = v3.body_of(request)
            name = v3.ledger_id_of(body)
            fields: dict[str, Any] = {"ledgerId": LedgerId(0, 7) if lying else name}
            fields |= {"entryId": 3, "body": other} if body.HasField("entryId") else {}
            if request.header.operation == v3.OperationType.ADD_ENTRY:
                del fields["body"]
            peer.answer(v3.encode(v3.new_response(request, Status.EOK, fields)))

    lying = False
    with served(script) as server, WireClient(server.address, "v3", extended=True) as client:
        assert client.batch_reads
        assert other == client.read_entry(scoped, 3)
        assert 3 == client.add_entry(other, KEY)

        lying = True
        with pytest.raises(CorruptionError, match="is of ledger 7"):
            client.read_entry(scoped, 3)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_fencing_and_recovery_look_like(protocol: str) -> None:
    """Fencing reads and recovery adds have their flags, the key and high priority, as a
    recovering real client's; plain ones have none of it."""
    seen: list[Any] = []

    def script(peer: Peer) -> None:
        decoder = RequestDecoder()
        for message in peer.requests():
            request = decoder.decode(message)
            seen.append(request)
            peer.answer(answer(request))

    with served(script) as server, WireClient(server.address, protocol) as client:
        client.read_entry(LEDGER, 3, fence=True, master_key=KEY)
        client.read_entry(LEDGER, 3, master_key=KEY)
        client.add_entry(record(3), KEY, recovery=True)
        client.add_entry(record(3), KEY)
    if protocol == "v2":
        assert [
            v2.ReadRequest(LEDGER, 3, 5, KEY),
            v2.ReadRequest(LEDGER, 3),
            v2.AddRequest(KEY, record(3), 6),
            v2.AddRequest(KEY, record(3)),
        ] == seen
    else:
        bodies = [v3.body_of(request) for request in seen]
        assert [100, 0, 100, 0] == [request.header.priority for request in seen]
        assert [1, None, 1, None] == [
            body.flag if body.HasField("flag") else None for body in bodies
        ]
        assert [KEY, b"", KEY, KEY] == [body.masterKey for body in bodies]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_a_batch_read_asks_for(protocol: str) -> None:
    """Limits go as BP-62's int32 and as a frame holds: a count that is larger, and a size that is
    none or larger, are the most; of the last entry, one is asked for."""
    seen: list[Any] = []
    options: dict[str, Any] = {"extended": True} if protocol == "v3" else {}

    def script(peer: Peer) -> None:
        decoder = RequestDecoder(extended=protocol == "v3")
        for message in peer.requests():
            seen.append(decoder.decode(message))
            peer.hang_up()
            return

    most, frame_size = 2**31 - 1, 5 * 1024 * 1024
    cases = [
        ((3, 0, 0), (0, frame_size)),
        ((3, 5, 1000), (5, 1000)),
        ((3, most, frame_size), (most, frame_size)),
        ((3, most + 1, frame_size + 1), (most, frame_size)),
        ((3, 2**40, 2**40), (most, frame_size)),
        ((-1, 0, 0), (1, frame_size)),
        ((-1, 9, 10), (1, 10)),
    ]
    with served(script) as server:
        for given, _ in cases:
            with (
                WireClient(server.address, protocol, **options) as client,
                pytest.raises(BookieUnavailable),
            ):
                client.read_entries(LEDGER, *given)
    if protocol == "v2":
        found = [(request.max_count, request.max_size) for request in seen]
    else:
        bodies = [v3.body_of(request) for request in seen]
        found = [(body.maxCount, body.maxSize) for body in bodies]

    assert [sent for _, sent in cases] == found


def test_frames_of_a_v2_batch_are_those_of_single_adds() -> None:
    """`add_batch` sends what `add_entry` would, one behind the other."""
    heard: list[bytes] = []

    def script(peer: Peer) -> None:
        for message in peer.requests():
            heard.append(frame(message))
            peer.answer(answer(v2.decode_request(message)))

    records = [record(entry, 3 * entry) for entry in range(5)]
    with served(script) as server, WireClient(server.address) as client:
        client.add_batch(RecordBatch.of(records, range(5)), KEY)
        for each in records:
            client.add_entry(each, KEY)

    assert heard[:5] == heard[5:]
    assert [frame(*v2.AddRequest(KEY, each).parts()) for each in records] == heard[:5]


def test_a_batch_of_one_largest_record() -> None:
    """Its answer is 12 bytes longer than the request that added it, and comes through."""
    largest = record(3, (5 << 20) - 28 - 36)

    def script(peer: Peer) -> None:
        for message in peer.requests():
            request = v2.decode_request(message)
            assert isinstance(request, v2.BatchReadRequest)
            ids = (request.ledger, request.entry, request.request_id)
            peer.answer(*v2.BatchReadResponse(Status.EOK, *ids, (largest,)).parts())

    with served(script) as server, WireClient(server.address) as client:
        assert 5 << 20 == len(frame(*v2.AddRequest(KEY, largest).parts()))
        assert [largest] == client.read_entries(LEDGER, 3, 1).records()
