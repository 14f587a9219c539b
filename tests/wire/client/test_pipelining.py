"""Many requests under way on one connection: each gets its own answer, and not too many are."""

from __future__ import annotations

import random
import threading
import time
from typing import Any

import pytest

from bkstore.availability import Availability
from bkstore.errors import (
    BookieUnavailable,
    CorruptionError,
    IllegalOperation,
    LedgerFenced,
    NoSuchEntry,
)
from bkstore.formats.entry import RecordBatch, encode_explicit_lac
from bkstore.ids import LedgerId
from bkstore.index.bulk_listing import LedgerErrors
from bkstore.wire import v3
from bkstore.wire.client import WireClient, connection
from bkstore.wire.protocol_detection import RequestDecoder
from bkstore.wire.status_codes import Status
from tests.wire.client.answering import KEY, LEDGER, answer, asked_entry, record
from tests.wire.client.scripted import Peer, Script, served

PROTOCOLS = ["v2", "v3"]


def _slowly(delay: float, most: list[int]) -> Script:
    """Return a script that answers the last request first, once none has come for a while."""

    def script(peer: Peer) -> None:
        decoder = RequestDecoder(extended=True)
        held: list[Any] = []
        lock = threading.Lock()
        done = threading.Event()

        def answering() -> None:
            while not done.wait(delay):
                with lock:
                    most.append(len(held))
                    turned, held[:] = held[::-1], []
                for request in turned:
                    peer.answer(answer(request))

        thread = threading.Thread(target=answering)
        thread.start()
        try:
            for message in peer.requests():
                with lock:
                    held.append(decoder.decode(message))
        finally:
            done.set()
            thread.join()

    return script


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_answers_in_another_order(protocol: str) -> None:
    """Records come back in the order asked for, whatever the order of the answers."""
    most: list[int] = []
    wanted = [5, 3, 9, 4, 0, 77, 12, 11, 10, 2]
    with (
        served(_slowly(0.02, most)) as server,
        WireClient(server.address, protocol, window=4) as client,
    ):
        batch = client.read_many(LEDGER, wanted)

        assert [record(entry) for entry in wanted] == batch.records()
        assert wanted == batch.entries.tolist()
        assert 2 <= max(most) <= 4
        assert 1 == server.connections


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_adds_under_way_together(protocol: str) -> None:
    """A batch is added with `window` requests under way at most, and all are answered."""
    most: list[int] = []
    batch = RecordBatch.of([record(entry) for entry in range(50)], range(50))
    with (
        served(_slowly(0.005, most)) as server,
        WireClient(server.address, protocol, window=8) as client,
    ):
        client.add_batch(batch, KEY)

        assert 2 <= max(most) <= 8
        assert 1 == server.connections


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_threads_share_a_connection(protocol: str) -> None:
    """Each thread gets what it asked for, also where several ask for the same."""
    wrong: list[object] = []
    most: list[int] = []

    def reads(client: WireClient, seed: int) -> None:
        order = random.Random(seed)
        for _ in range(25):
            entry = order.randrange(6)
            try:
                found: object = client.read_entry(LEDGER, entry)
            except BaseException as error:  # noqa: BLE001
                found = error
            if found != record(entry):
                wrong.append(found)

    with (
        served(_slowly(0.001, most)) as server,
        WireClient(server.address, protocol, window=5) as client,
    ):
        threads = [threading.Thread(target=reads, args=(client, n)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)

        assert [] == wrong
        assert 2 <= max(most) <= 5
        assert 1 == server.connections


def test_one_key_once_under_way_in_v2() -> None:
    """A fencing read and a plain one of the same entry are never under way together: an answer
    could not be told from the other's. In v3 they are."""
    together: dict[str, int] = {}
    for protocol in PROTOCOLS:
        most: list[int] = []
        with served(_slowly(0.05, most)) as server, WireClient(server.address, protocol) as client:
            threads = [
                threading.Thread(
                    target=client.read_entry,
                    args=(LEDGER, 3),
                    kwargs={"fence": fence, "master_key": KEY},
                )
                for fence in (True, False, True)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(30)
        together[protocol] = max(most)

    assert {"v2": 1, "v3": 3} == together


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_same_entry_twice_in_a_batch(protocol: str) -> None:
    """A batch may have an entry twice; the second goes when the first is answered."""
    most: list[int] = []
    batch = RecordBatch.of([record(3), record(3, 9), record(4)], [3, 3, 4])
    with served(_slowly(0.01, most)) as server, WireClient(server.address, protocol) as client:
        client.add_batch(batch, KEY)

        assert {"v2": 2, "v3": 3}[protocol] == max(most)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_refused_add(protocol: str) -> None:
    """The first error is raised with the number stored before it, when all are answered; the
    connection is as good as before."""
    answered: list[int] = []

    def fenced_from(peer: Peer) -> None:
        decoder = RequestDecoder()
        for message in peer.requests():
            request = decoder.decode(message)
            entry = asked_entry(request)
            time.sleep(0.002)
            answered.append(entry)
            peer.answer(answer(request, Status.EFENCED if entry >= 20 else Status.EOK))

    batch = RecordBatch.of([record(entry) for entry in range(60)], range(60))
    with served(fenced_from) as server, WireClient(server.address, protocol, window=16) as client:
        with pytest.raises(LedgerFenced, match=r"add of entry 20 of ledger 7") as caught:
            client.add_batch(batch, KEY)

        sent = len(answered)

        assert 20 == caught.value.stored
        assert 21 <= sent < 60
        time.sleep(0.05)
        assert sent == len(answered)  # nothing of it goes on
        assert 0 == client.add_entry(record(0), KEY)
        assert 1 == server.connections


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_read_many_raises_the_first_error(protocol: str) -> None:
    """Of the entries that are missing the first one asked for is told."""

    def some(peer: Peer) -> None:
        decoder = RequestDecoder()
        for message in peer.requests():
            request = decoder.decode(message)
            missing = asked_entry(request) in (8, 6)
            peer.answer(answer(request, Status.ENOENTRY if missing else Status.EOK))

    with served(some) as server, WireClient(server.address, protocol) as client:
        with pytest.raises(NoSuchEntry, match="read of entry 8 of ledger 7"):
            client.read_many(LEDGER, [3, 8, 6, 4])

        assert 0 == len(client.read_many(LEDGER, []))
        assert [record(1)] == client.read_many(LEDGER, range(1, 2)).records()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_bookie_that_waits_for_us(protocol: str) -> None:
    """A bookie that reads no further until its answers are taken blocks nobody."""

    def one_by_one(peer: Peer) -> None:
        decoder = RequestDecoder()
        for message in peer.requests():
            request = decoder.decode(message)
            peer.answer(answer(request, size=300_000))

    with served(one_by_one) as server, WireClient(server.address, protocol) as client:
        found = client.read_many(LEDGER, range(100))

        assert [len(record(0, 300_000))] * 100 == found.sizes.tolist()

    def echo(peer: Peer) -> None:  # large both ways: neither end may wait for the other
        decoder = RequestDecoder()
        for message in peer.requests():
            request = decoder.decode(message)
            peer.answer(answer(request))
            time.sleep(0.001)

    batch = RecordBatch.of([record(entry, 200_000) for entry in range(100)], range(100))
    with served(echo) as server, WireClient(server.address, protocol, window=64) as client:
        client.add_batch(batch, KEY)


def test_sends_while_answers_fill_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests and answers that both exceed the buffers of the system do not block each other."""
    monkeypatch.setattr(
        connection, "_MAX_BYTES_IN_FLIGHT", 64 << 20
    )  # as many threads have together
    junk = b"\xa2\x1f\xa0\x8d\x06" + bytes(100_000)  # field 500, which nobody knows

    def script(peer: Peer) -> None:
        for message in peer.requests():
            peer.answer(answer(v3.decode_request(message)), junk)

    batch = RecordBatch.of([record(entry, 100_000) for entry in range(200)], range(200))
    with served(script) as server, WireClient(server.address, "v3", window=200) as client:
        client.add_batch(batch, KEY)

        assert 1 == server.connections


def test_late_answers() -> None:
    """In v3 an answer that comes too late is nobody's, and the connection stays. In v2 it could
    be taken for that to a later request: the connection is given up."""
    connections = {}
    for protocol in PROTOCOLS:
        late = [True]

        def script(peer: Peer, late: list[bool] = late) -> None:
            decoder = RequestDecoder()
            for message in peer.requests():
                request = decoder.decode(message)
                if late.pop() if late else False:
                    time.sleep(1.3)
                    peer.answer(answer(request, Status.ENOENTRY))
                else:
                    peer.answer(answer(request))

        with (
            served(script) as server,
            WireClient(server.address, protocol, timeout=1) as client,
        ):
            with pytest.raises(BookieUnavailable, match="no answer"):
                client.read_entry(LEDGER, 3)
            time.sleep(0.6)

            assert record(3) == client.read_entry(LEDGER, 3)

            connections[protocol] = server.connections

    assert {"v2": 2, "v3": 1} == connections


def test_lost_answers_do_not_narrow_the_window() -> None:
    """In v3 a request without an answer makes room for another when its time is over: after many
    of them as many requests as before are under way, on the same connection."""
    together = []

    def every_other(peer: Peer) -> None:
        decoder = RequestDecoder()
        for message in peer.requests():
            request = decoder.decode(message)
            entry = int(v3.body_of(request).entryId)
            if entry == 100:  # both have to be there before one is answered
                other = peer.request()
                assert other is not None
                together.append(entry)
                peer.answer(answer(decoder.decode(other)))
            if entry % 2 == 0:
                peer.answer(answer(request))

    with (
        served(every_other) as server,
        WireClient(server.address, "v3", timeout=1, window=2) as client,
    ):
        for entry in range(6):
            if entry % 2 == 0:
                assert record(entry) == client.read_entry(LEDGER, entry)
                continue
            with pytest.raises(BookieUnavailable, match=f"no answer to read of entry {entry}"):
                client.read_entry(LEDGER, entry)

        assert [record(100), record(102)] == client.read_many(LEDGER, [100, 102]).records()
        assert ([100], 1) == (together, server.connections)


def test_a_bookie_that_is_silent_for_long() -> None:
    """In v3 one time-out tells nothing of the others; behind three of them without a byte the
    connection is given up, as whoever is in between may have forgotten it."""

    def silent_at_first(peer: Peer) -> None:
        decoder = RequestDecoder()
        first = server.connections == 1
        for message in peer.requests():
            if not first:
                peer.answer(answer(decoder.decode(message)))

    with (
        served(silent_at_first) as server,
        WireClient(server.address, "v3", timeout=0.2) as client,
    ):
        failed = 0
        while failed < 9:
            try:
                assert record(3) == client.read_entry(LEDGER, 3)
                break
            except BookieUnavailable:
                failed += 1

        assert 1 <= failed < 9
        assert 2 == server.connections


def test_an_answer_to_what_nobody_remembers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of requests without an answer so many are remembered; that of an older one is an answer to
    nothing, and ends the connection."""
    monkeypatch.setattr(connection, "_MAX_KEYS_TO_DROP", 1)
    held = []

    def late(peer: Peer) -> None:
        decoder = RequestDecoder()
        for message in peer.requests():
            request = decoder.decode(message)
            entry = int(v3.body_of(request).entryId)
            held.append(request)
            if entry >= 2:
                peer.answer(answer(held.pop(entry - 2)))
                peer.answer(answer(request))

    with (
        served(late) as server,
        WireClient(server.address, "v3", timeout=1) as client,
    ):
        for entry in range(2):
            with pytest.raises(BookieUnavailable):
                client.read_entry(LEDGER, entry)
        with pytest.raises(CorruptionError, match="an answer without a request"):
            client.read_entry(LEDGER, 2)


def test_a_long_poll_has_its_time() -> None:
    """A bookie may take the seconds of a LAC update on top of the time-out, others go on."""

    def script(peer: Peer) -> None:
        decoder = RequestDecoder()
        held = []
        for message in peer.requests():
            request = decoder.decode(message)
            body = v3.body_of(request)
            if body.HasField("previousLAC"):
                assert (2, -1, 4, 3000) == (
                    body.flag,
                    body.entryId,
                    body.previousLAC,
                    body.timeOut,
                )
                held.append(request)
                continue
            peer.answer(answer(request))
            time.sleep(1.4)
            fields = {"ledgerId": LEDGER, "entryId": 5, "maxLAC": 5, "body": record(5)}
            peer.answer(v3.encode(v3.new_response(held.pop(), Status.EOK, fields)))

    told = []
    with served(script) as server, WireClient(server.address, "v3", timeout=1) as client:
        thread = threading.Thread(target=lambda: told.append(client.wait_for_lac(LEDGER, 4, 3)))
        thread.start()
        while not server.connections:
            time.sleep(0.01)
        time.sleep(0.05)

        assert record(3) == client.read_entry(LEDGER, 3)

        thread.join(10)

    assert [(5, record(5))] == told


def test_an_explicit_lac_without_entries() -> None:
    """A bookie that has no entry says so, and the explicit LAC beside it: that is an answer."""
    body = encode_explicit_lac(LEDGER, 4, "CRC32C")

    def script(peer: Peer) -> None:
        for message in peer.requests():
            request = v3.decode_request(message)
            fields = {"ledgerId": LEDGER, "lacBody": body}
            peer.answer(v3.encode(v3.new_response(request, statuses.pop(0), fields)))

    statuses = [Status.ENOENTRY, Status.EIO]
    with served(script) as server, WireClient(server.address) as client:
        assert (body, None) == client.read_lac(LEDGER)
        with pytest.raises(CorruptionError, match="LAC of ledger 7: the bookie answered EIO"):
            client.read_lac(LEDGER)


def test_lists_of_many_ledgers() -> None:
    """They are asked for together; errors are told beside the others, or raised."""
    listed = Availability.from_entries([0, 1, 5])

    def script(peer: Peer) -> None:
        for message in peer.requests():
            request = v3.decode_request(message)
            ledger = v3.body_of(request).ledgerId
            fields = {"ledgerId": ledger}
            if ledger % 3:
                fields["availabilityOfEntriesOfLedger"] = listed.to_bytes()
            status = Status.EOK if ledger % 3 else Status.ENOLEDGER
            peer.answer(v3.encode(v3.new_response(request, status, fields)))

    errors: LedgerErrors = {}
    with served(script) as server, WireClient(server.address) as client:
        found = dict(client.availability_many(range(1, 6), errors))

        assert {LedgerId(0, n): listed for n in (1, 2, 4, 5)} == found
        assert [LedgerId(0, 3)] == list(errors)
        with pytest.raises(LookupError, match="list of entries of ledger 3"):
            list(client.availability_many([3, 4]))
        with pytest.raises(IllegalOperation, match="cannot list ledgers"):
            next(iter(client.availability_many()))
