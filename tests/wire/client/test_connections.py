"""Connections: made when wanted, made again when lost, ended, inherited by no child; TLS."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from bkstore.cluster.client.bookie_client import BatchAdder, BookieClient
from bkstore.errors import (
    BookieUnavailable,
    CorruptionError,
    IllegalOperation,
    UnauthorizedAccess,
)
from bkstore.formats.entry import RecordBatch
from bkstore.wire import v2, v3
from bkstore.wire.client import WireClient
from bkstore.wire.protocol_detection import RequestDecoder
from bkstore.wire.status_codes import Status
from tests.wire.certificates import (
    client_context,
    made_certificate,
    needs_openssl,
    server_context,
)
from tests.wire.client.answering import KEY, LEDGER, answer, asked_entry, record
from tests.wire.client.scripted import Peer, served

PROTOCOLS = ["v2", "v3"]


def _fine(peer: Peer) -> None:
    decoder = RequestDecoder(extended=True)
    for message in peer.requests():
        peer.answer(answer(decoder.decode(message)))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_client(protocol: str) -> None:
    """It keeps to the contract of bookies' clients, connects at the first call, and stays so."""
    with served(_fine) as server, WireClient(server.address, protocol) as client:
        assert isinstance(client, BookieClient)
        assert isinstance(client, BatchAdder)
        assert 0 == server.connections
        assert f"{server.address[0]}:{server.address[1]}" == client.bookie_id
        assert f"<WireClient {client.bookie_id} {protocol}>" == repr(client)

        for entry in range(3):
            assert record(entry) == client.read_entry(LEDGER, entry)

        assert 1 == server.connections
    with WireClient("localhost:1", bookie_id="bookie-9") as client:
        assert "bookie-9" == client.bookie_id
        assert client.batch_reads
    assert not WireClient("localhost:1", "v3").batch_reads
    assert WireClient("localhost:1", "v3", extended=True).batch_reads


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_idle_connection_that_the_bookie_ended(protocol: str) -> None:
    """With nothing under way a lost connection is replaced, and no call fails for it."""

    def one_answer(peer: Peer) -> None:
        decoder = RequestDecoder()
        message = peer.request()
        assert message is not None
        peer.answer(answer(decoder.decode(message)))

    with served(one_answer) as server, WireClient(server.address, protocol) as client:
        for entry in range(4):
            assert record(entry) == client.read_entry(LEDGER, entry)

            server.wait()

        assert 4 == server.connections


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_connection_lost_while_adds_are_under_way(protocol: str) -> None:
    """Only what was answered counts as stored; nothing is sent again; the next call connects."""
    seen: list[int] = []

    def three_answers(peer: Peer) -> None:
        decoder = RequestDecoder()
        first = server.connections == 1
        for message in peer.requests():
            request = decoder.decode(message)
            seen.append(asked_entry(request))
            if first and len(seen) > 3:
                return
            peer.answer(answer(request))

    batch = RecordBatch.of([record(entry) for entry in range(20)], range(20))
    with served(three_answers) as server, WireClient(server.address, protocol) as client:
        with pytest.raises(BookieUnavailable, match="may have been executed") as caught:
            client.add_batch(batch, KEY)

        assert caught.value.stored is not None
        assert caught.value.stored <= 3
        assert [0, 1, 2, 3] == seen

        client.add_batch(batch, KEY)

        assert [*range(4), *range(20)] == seen
        assert 2 == server.connections


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_request_under_way_ends_with_the_connection(protocol: str) -> None:
    """Requests of several threads end with an error at once, not each with its time-out."""

    def until_all_are_here(peer: Peer) -> None:
        for _ in range(6):
            peer.request()

    ends: list[object] = []

    def read(client: WireClient, entry: int) -> None:
        try:
            ends.append(client.read_entry(LEDGER, entry))
        except BookieUnavailable as error:
            ends.append(type(error))

    with (
        served(until_all_are_here) as server,
        WireClient(server.address, protocol, timeout=30) as client,
    ):
        client_threads = [threading.Thread(target=read, args=(client, n)) for n in range(6)]
        begin = time.monotonic()
        for thread in client_threads:
            thread.start()
        for thread in client_threads:
            thread.join(20)

        assert time.monotonic() - begin < 10
        assert [BookieUnavailable] * 6 == ends


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_close(protocol: str) -> None:
    """It ends what other threads wait for, and every later call; twice is once."""

    def silent(peer: Peer) -> None:
        for _ in peer.requests():
            continue

    told: list[str] = []

    def read(client: WireClient) -> None:
        try:
            client.read_entry(LEDGER, 0)
        except BookieUnavailable as error:
            told.append(str(error))

    with served(silent) as server:
        client = WireClient(server.address, protocol, timeout=30)
        threads = [threading.Thread(target=read, args=(client,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        while not server.connections:
            time.sleep(0.01)
        time.sleep(0.05)
        begin = time.monotonic()
        client.close()
        client.close()

        assert time.monotonic() - begin < 10

        for thread in threads:
            thread.join(10)

        assert [f"{client.bookie_id}: the client was closed"] * 3 == told
        for call in (
            lambda: client.read_entry(LEDGER, 0),
            lambda: client.read_lac(LEDGER),
            lambda: client.add_batch(RecordBatch.of([record(0)], [0]), KEY),
        ):
            with pytest.raises(IllegalOperation, match=r"<WireClient .*> is closed"):
                call()


def test_v2_has_a_second_connection_for_what_it_cannot_say() -> None:
    """LAC, force, adds without sync, disks and lists are v3 messages; the rest stays v2."""
    versions: dict[int, set[object]] = {}

    def script(peer: Peer) -> None:
        number = server.connections
        decoder = RequestDecoder()
        for message in peer.requests():
            request = decoder.decode(message)
            kind = type(request) if decoder.version == 2 else request.header.operation
            versions.setdefault(number, set()).add(kind)
            peer.answer(answer(request))

    body = (7).to_bytes(8, "big") + (3).to_bytes(8, "big")
    with served(script) as server, WireClient(server.address) as client:
        client.read_entry(LEDGER, 0)
        client.add_entry(record(0), KEY)
        client.read_entries(LEDGER, 0, 3)
        client.add_entry(record(0), KEY, sync=False)
        client.force(LEDGER)
        client.write_lac(LEDGER, body, KEY)
        client.read_lac(LEDGER)
        client.disk_space()
        client.read_entry(LEDGER, 1)

    operations = {
        v3.OperationType.ADD_ENTRY,
        v3.OperationType.FORCE_LEDGER,
        v3.OperationType.WRITE_LAC,
        v3.OperationType.READ_LAC,
        v3.OperationType.GET_BOOKIE_INFO,
    }
    assert {1: {v2.ReadRequest, v2.AddRequest, v2.BatchReadRequest}, 2: operations} == versions


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_forked_child_connects_anew(protocol: str) -> None:
    """Parent and child have connections of their own; neither disturbs the other's."""
    with served(_fine) as server, WireClient(server.address, protocol) as client:
        client.read_entry(LEDGER, 0)
        reading, writing = os.pipe()
        child = os.fork()
        if not child:  # pragma: no cover (another process)
            try:
                good = client.read_entry(LEDGER, 1) == record(1)
                os.write(writing, b"yes" if good else b"no")
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        os.close(writing)
        with os.fdopen(reading, "rb") as end:
            assert b"yes" == end.read()

        assert record(2) == client.read_entry(LEDGER, 2)
        assert 2 == server.connections


def test_no_threads_are_left() -> None:
    """A client has no thread of its own, and closed no descriptor."""
    with served(_fine) as server:
        open_before = len(os.listdir("/dev/fd"))
        threads = threading.active_count()
        with WireClient(server.address) as client:
            client.read_entry(LEDGER, 0)
            client.force(LEDGER)

            assert threading.active_count() <= threads + 2  # those of the server
        time.sleep(0.1)

        assert len(os.listdir("/dev/fd")) <= open_before


# -- TLS


def _tls(pem: Path, status: Status = Status.EOK) -> Any:
    """Return a script that answers START_TLS, shakes hands and then answers."""

    def script(peer: Peer) -> None:
        message = peer.request()
        assert message is not None
        request = v3.decode_request(message)
        assert request.header.operation == v3.OperationType.START_TLS

        peer.answer(v3.encode(v3.new_response(request, status, {} if status.v3 == 0 else None)))
        if status is not Status.EOK:
            return
        try:
            peer.socket = server_context(pem).wrap_socket(peer.socket, server_side=True)
        except OSError:  # a client that does not trust us
            return
        with peer.socket:
            _fine(peer)

    return script


@needs_openssl
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_tls(protocol: str, tmp_path: Path) -> None:
    """After START_TLS all is encrypted, large answers and many at once too."""
    pem = made_certificate(tmp_path)
    batch = RecordBatch.of([record(entry, 50_000) for entry in range(100)], range(100))
    with (
        served(_tls(pem)) as server,
        WireClient(server.address, protocol, tls=client_context(pem)) as client,
    ):
        assert record(3) == client.read_entry(LEDGER, 3)

        client.add_batch(batch, KEY)
        found = client.read_many(LEDGER, range(300))

        assert [record(entry) for entry in range(300)] == found.records()

        wrong: list[object] = []

        def reads(first: int) -> None:
            entries = range(first, first + 20)
            wrong.extend(e for e in entries if client.read_entry(LEDGER, e) != record(e))

        threads = [threading.Thread(target=reads, args=(100 * n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)

        assert [] == wrong
        assert 1 == server.connections


@needs_openssl
def test_tls_that_cannot_be(tmp_path: Path) -> None:
    """A certificate nobody vouches for, a bookie without TLS, an answer that is none: an error
    with the reason, and nothing is sent in plain text."""
    pem = made_certificate(tmp_path)
    with (
        served(_tls(pem)) as server,
        WireClient(server.address, tls=client_context(None)) as client,
        pytest.raises(BookieUnavailable, match=r"no TLS connection: .*CERTIFICATE_VERIFY_FAILED"),
    ):
        client.read_entry(LEDGER, 0)
    with (
        served(_tls(pem, Status.EUA)) as server,
        WireClient(server.address, tls=client_context(pem)) as client,
        pytest.raises(UnauthorizedAccess, match="START_TLS: the bookie answered EUA"),
    ):
        client.read_entry(LEDGER, 0)
    for data, error in [
        (b"\x7f\xff\xff\xff", CorruptionError),
        (b"\0\0\0\x04abcd", CorruptionError),
        (b"", BookieUnavailable),
        (b"\0\0\0\x08" + bytes.fromhex("0a06080310011800") + b"\x10\0", CorruptionError),
        (b"\0\0\0\x0a" + bytes.fromhex("0a06080310011800") + b"\x10\0", CorruptionError),
    ]:

        def script(peer: Peer, data: bytes = data) -> None:
            peer.request()
            peer.send(data)

        with (
            served(script) as server,
            WireClient(server.address, tls=client_context(pem)) as client,
            pytest.raises(error, match=f":{server.address[1]}: "),
        ):
            client.read_entry(LEDGER, 0)


@needs_openssl
def test_tls_takes_no_longer_than_the_time_out(tmp_path: Path) -> None:
    """Neither the answer to START_TLS nor the handshake can hold a call."""
    context = client_context(made_certificate(tmp_path))

    def silent(peer: Peer) -> None:
        for _ in peer.requests():
            continue

    ended = threading.Event()
    waited_for: list[bool] = []

    def no_handshake(peer: Peer) -> None:
        message = peer.request()
        assert message is not None
        peer.answer(v3.encode(v3.new_response(v3.decode_request(message), Status.EOK, {})))
        waited_for.append(not ended.wait(60))

    for script in (silent, no_handshake):
        with (
            served(script) as server,
            WireClient(server.address, tls=context, timeout=0.3) as client,
        ):
            with pytest.raises(BookieUnavailable, match="no TLS connection"):
                client.read_entry(LEDGER, 0)
            if script is no_handshake:
                ended.set()
    assert [False] == waited_for
