"""Servers that lie, break off or say nothing: a clear error, never a hang, never a wrong answer."""

from __future__ import annotations

import resource
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from bkstore.errors import BkstoreError, BookieUnavailable, CorruptionError
from bkstore.formats.entry import RecordBatch
from bkstore.wire import v2, v3
from bkstore.wire.client import WireClient
from bkstore.wire.frames import frame
from bkstore.wire.protocol_detection import RequestDecoder
from bkstore.wire.status_codes import Status
from tests.wire.client.answering import KEY, LEDGER, answer, record, records_from
from tests.wire.client.scripted import Peer, Script, served

PROTOCOLS = ["v2", "v3"]
Call = Callable[[WireClient], object]


def _read(client: WireClient) -> object:
    return client.read_entry(LEDGER, 3)


def _batch(client: WireClient) -> object:
    return client.read_entries(LEDGER, 3, 2)


def _says(data: bytes) -> Script:
    """Return a script that answers the first request by these bytes, and then listens on."""

    def script(peer: Peer) -> None:
        for _ in peer.requests():
            peer.send(data)

    return script


def _answers(make: Callable[[Any], bytes]) -> Script:
    """Return a script that answers each request by the message that `make` makes of it."""

    def script(peer: Peer) -> None:
        decoder = RequestDecoder(extended=True)
        for message in peer.requests():
            peer.answer(make(decoder.decode(message)))

    return script


def _fails(script: Script, protocol: str, call: Call = _read, **options: Any) -> BkstoreError:
    """Return the error of a call; the next call must come to a new connection."""
    with served(script) as server:
        with WireClient(server.address, protocol, **{"timeout": 5.0, **options}) as client:
            begin = time.monotonic()
            with pytest.raises(BkstoreError) as caught:
                call(client)

            assert time.monotonic() - begin < 8
            assert f"{server.address[0]}:{server.address[1]}" in str(caught.value)

            seen = server.connections
            with pytest.raises(BkstoreError):
                call(client)

            assert seen + 1 == server.connections or not isinstance(caught.value, CorruptionError)
        return caught.value


STREAMS = {
    "negative length": (b"\xff\xff\xff\xff", "offset 0: frame length -1 is negative"),
    "too long": (b"\x7f\xff\xff\xff", "frame length 2147483647 is above"),
    "text": (b"HTTP/1.1 400 Bad Request\r\n\r\n", "frame length 1213486160 is above"),
    "second frame": (
        frame(b"".join(v2.ReadResponse(Status.EOK, LEDGER, 3, record(3)).parts())) + b"\xff" * 4,
        "frame length -1 is negative",
    ),
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("name", ["negative length", "too long", "text"])
def test_no_frames(name: str, protocol: str) -> None:
    """A length that cannot be ends the connection at once, with its offset and the reason."""
    data, reason = STREAMS[name]
    error = _fails(_says(data), protocol)

    assert isinstance(error, CorruptionError)
    assert reason in str(error)


@pytest.mark.parametrize(
    ("protocol", "message", "reason"),
    [
        ("v2", b"", "packet header of 4 bytes"),
        ("v2", b"\x02\x02\x00\x00", "fields of an answer"),
        ("v2", bytes.fromhex("02020000 000003e7") + bytes(16), "999 is not a status code of v2"),
        ("v2", bytes.fromhex("02090000") + bytes(40), "opcode 9 has no layout"),
        ("v2", bytes.fromhex("02030000 0a0161 1200"), "an answer without a request"),
        ("v3", b"", "lacks header"),
        ("v3", b"\xff" * 9, "not a v3 response: "),
    ],
    ids=["empty", "short", "status", "opcode", "auth", "v3 empty", "v3 garbage"],
)
def test_no_messages(protocol: str, message: bytes, reason: str) -> None:
    """A frame that holds no answer of the protocol."""
    error = _fails(_says(frame(message)), protocol)

    assert isinstance(error, CorruptionError)
    assert 0 == error.offset
    assert reason in str(error)


def _v3(request: Any, status: Status = Status.EOK, **fields: Any) -> bytes:
    return v3.encode(v3.new_response(request, status, fields))


def _other_transaction(request: Any) -> bytes:
    request.header.txnId += 1
    return answer(request)


def _other_operation(request: Any) -> bytes:
    request.header.operation = v3.OperationType.ADD_ENTRY
    return _v3(request, ledgerId=LEDGER, entryId=3)


def _read_answer(ledger: int, entry: int, found: bytes) -> bytes:
    return b"".join(v2.ReadResponse(Status.EOK, ledger, entry, found).parts())


ANSWERS: dict[str, tuple[str, Callable[[Any], bytes], str]] = {
    "other entry": (
        "v2",
        lambda _: _read_answer(LEDGER, 4, record(4)),
        "an answer without a request",
    ),
    "other ledger": ("v2", lambda _: _read_answer(8, 3, record(3)), "an answer without a request"),
    "to an add": (
        "v2",
        lambda _: b"".join(v2.AddResponse(Status.EOK, LEDGER, 3).parts()),
        "an answer without a request",
    ),
    "record of another": (
        "v2",
        lambda _: _read_answer(LEDGER, 3, record(4)),
        "read of entry 3 of ledger 7: offset 0: the received record is entry 4 of ledger 7",
    ),
    "record of another ledger": (
        "v2",
        lambda _: _read_answer(LEDGER, 3, record(3, ledger=9)),
        "the received record is entry 3 of ledger 9",
    ),
    "no record": ("v2", lambda _: _read_answer(LEDGER, 3, b""), "entry of 0 bytes"),
    "v3 transaction": ("v3", _other_transaction, "an answer without a request"),
    "v3 operation": ("v3", _other_operation, "an answer without a request"),
    "v3 no body": ("v3", lambda r: v3.encode(v3.new_response(r, Status.EOK)), "without a body"),
    "v3 other ledger": (
        "v3",
        lambda r: _v3(r, ledgerId=8, entryId=3, body=record(3)),
        "the answer is of ledger 8",
    ),
    "v3 other entry": (
        "v3",
        lambda r: _v3(r, ledgerId=LEDGER, entryId=4, body=record(4)),
        "the answer is about entry 4",
    ),
    "v3 record of another": (
        "v3",
        lambda r: _v3(r, ledgerId=LEDGER, entryId=3, body=record(4)),
        "the received record is entry 4",
    ),
    "v3 no record": ("v3", lambda r: _v3(r, ledgerId=LEDGER, entryId=3), "entry of 0 bytes"),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_answers_to_something_else(name: str) -> None:
    """An answer that is not to what was asked for is no answer."""
    protocol, make, reason = ANSWERS[name]
    with served(_answers(make)) as server, WireClient(server.address, protocol) as client:
        with pytest.raises(CorruptionError) as caught:
            client.read_entry(LEDGER, 3)

        assert f"{server.address[0]}:{server.address[1]}" in str(caught.value)
        assert reason in str(caught.value)
        with pytest.raises(CorruptionError):
            client.read_entry(LEDGER, 3)
        assert 2 == server.connections  # one that lies is not asked again


def _batch_answer(*records: bytes, tail: bytes = b"") -> Callable[[Any], bytes]:
    def make(request: Any) -> bytes:
        ids = (request.ledger, request.entry, request.request_id)
        return b"".join(v2.BatchReadResponse(Status.EOK, *ids, records).parts()) + tail

    return make


def _v3_batch(*records: bytes) -> Callable[[Any], bytes]:
    return lambda request: _v3(request, ledgerId=LEDGER, startEntryId=3, body=records)


BATCHES: dict[str, tuple[str, Callable[[Any], bytes], str]] = {
    "empty": ("v2", _batch_answer(), "0 records"),
    "too many": ("v2", _batch_answer(*records_from(3, 3)), "3 records, 2 were requested"),
    "a gap": ("v2", _batch_answer(record(3), record(5)), "record 1 of the batch is entry 5"),
    "another start": (
        "v2",
        _batch_answer(record(4), record(5)),
        "record 0 of the batch is entry 4",
    ),
    "another ledger": ("v2", _batch_answer(record(3, ledger=9)), "is entry 3 of ledger 9"),
    "no entry": ("v2", _batch_answer(record(3), b"short"), "record 1 of the batch is not an entry"),
    "size beyond": (
        "v2",
        _batch_answer(record(3), tail=b"\0\0\0\x09ab"),
        "record 1 of the batch does not end",
    ),
    "size negative": (
        "v2",
        _batch_answer(record(3), tail=b"\xff" * 4),
        "record 1 of the batch does not end",
    ),
    "half a size": (
        "v2",
        _batch_answer(record(3), tail=b"\0\0"),
        "record 1 of the batch does not end",
    ),
    "v3 empty": ("v3", _v3_batch(), "0 records"),
    "v3 a gap": ("v3", _v3_batch(record(3), record(5)), "record 1 of the batch is entry 5"),
    "v3 too many": ("v3", _v3_batch(*records_from(3, 3)), "3 records, 2 were requested"),
}


@pytest.mark.parametrize("name", BATCHES)
def test_batches_that_cannot_be(name: str) -> None:
    """A batch has at least one record, not more than asked for, and consecutive ids."""
    protocol, make, reason = BATCHES[name]
    with (
        served(_answers(make)) as server,
        WireClient(server.address, protocol, extended=True) as client,
    ):
        with pytest.raises(CorruptionError) as caught:
            client.read_entries(LEDGER, 3, 2)

        assert f"{server.address[0]}:{server.address[1]}" in str(caught.value)
        assert reason in str(caught.value)


def test_lists_and_bodies_that_cannot_be() -> None:
    """Lists of entries, LAC answers and records in them are checked as well."""

    def make(request: Any) -> bytes:
        if request.header.operation == v3.OperationType.READ_LAC:
            return _v3(request, ledgerId=LEDGER, lastEntryBody=record(3, ledger=9))
        return _v3(request, ledgerId=LEDGER, availabilityOfEntriesOfLedger=b"\0\0\0\x07" * 20)

    with served(_answers(make)) as server, WireClient(server.address, "v3") as client:
        with pytest.raises(CorruptionError, match="list of entries of ledger 7"):
            client.availability(LEDGER)
        with pytest.raises(CorruptionError, match="is entry 3 of ledger 9"):
            client.read_lac(LEDGER)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_broken_off(protocol: str) -> None:
    """A connection that ends before or within an answer: no answer came, and the text says so."""

    def within(peer: Peer) -> None:
        decoder = RequestDecoder()
        message = peer.request()
        assert message is not None
        peer.send(frame(answer(decoder.decode(message)))[:-3])

    def before(peer: Peer) -> None:
        peer.request()

    inside = _fails(within, protocol)
    at_once = _fails(before, protocol)

    assert isinstance(inside, BookieUnavailable)
    assert isinstance(at_once, BookieUnavailable)
    assert "bytes into an answer); pending requests may have been executed" in str(inside)
    assert "(the bookie closed it); pending requests may have been executed" in str(at_once)


def test_nobody_listens() -> None:
    """A port without a bookie: `BookieUnavailable` with the system's reason."""
    with served(lambda peer: None) as server:
        address = server.address
    with (
        WireClient(address) as client,
        pytest.raises(BookieUnavailable, match=rf"{address[1]}: no connection: .*refused"),
    ):
        client.read_entry(LEDGER, 0)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_silence(protocol: str) -> None:
    """No answer in time: `BookieUnavailable` that says to what, and after how long."""

    def silent(peer: Peer) -> None:
        for _ in peer.requests():
            continue

    error = _fails(silent, protocol, timeout=0.2)

    assert isinstance(error, BookieUnavailable)
    assert "no answer to read of entry 3 of ledger 7 in 0.2 s" in str(error)


def test_drops_of_an_answer() -> None:
    """An answer that trickles in does not hold a call longer than the time-out."""

    def trickle(peer: Peer) -> None:
        peer.request()
        for byte in frame(bytes(100)):
            peer.send(bytes([byte]))
            time.sleep(0.02)

    error = _fails(trickle, "v2", timeout=0.3)

    assert isinstance(error, BookieUnavailable)


def test_a_bookie_that_does_not_read() -> None:
    """Requests that cannot be sent end with an error as well."""

    ended = threading.Event()
    waited_for: list[bool] = []

    def deaf(peer: Peer) -> None:
        waited_for.append(not ended.wait(60))

    batch = RecordBatch.of([record(entry, 1 << 20) for entry in range(16)], range(16))
    with served(deaf) as server, WireClient(server.address, timeout=0.3) as client:
        with pytest.raises(BookieUnavailable) as caught:
            client.add_batch(batch, KEY)
        ended.set()

        assert 0 == caught.value.stored
    assert [False] == waited_for


def test_memory_is_bounded() -> None:
    """A length within the limit of which nothing comes takes no memory; one above is refused."""

    def promise(peer: Peer) -> None:
        for _ in peer.requests():
            peer.send((5 << 20).to_bytes(4, "big") + bytes(100))

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    _fails(promise, "v2", timeout=0.2)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    assert after - before < 3 << 10


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_unasked_answers(protocol: str) -> None:
    """What comes before anything was asked ends the connection, and is taken for no answer."""

    def script(peer: Peer) -> None:
        if server.connections == 1:
            peer.answer(_read_answer(LEDGER, 99, record(99)))
        decoder = RequestDecoder()
        for message in peer.requests():
            peer.answer(answer(decoder.decode(message)))

    with served(script) as server, WireClient(server.address, protocol) as client:
        found = []
        for _ in range(3):
            try:
                found.append(client.read_entry(LEDGER, 3))
            except CorruptionError:
                continue

        assert {record(3)} == set(found)
        assert len(found) >= 2
        assert 2 == server.connections


def test_statuses_are_errors() -> None:
    """Every status raises its error, with address, operation and what was asked about."""
    told: list[Status] = []

    def refuse(request: Any) -> bytes:
        return answer(request, told[-1])

    for protocol in PROTOCOLS:
        with served(_answers(refuse)) as server, WireClient(server.address, protocol) as client:
            for status in Status:
                if status.error is None:
                    continue
                told.append(status)
                with pytest.raises(status.error) as caught:
                    client.read_entry(LEDGER, 3)

                assert (
                    f"{client.bookie_id}: read of entry 3 of ledger 7: "
                    f"the bookie answered {status.name}"
                ) == str(caught.value)

            assert 1 == server.connections
