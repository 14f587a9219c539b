"""Clients that send rubbish, half of something, too much or nothing: the server stays up.

After each of them a good client on another connection has its answers, what was acknowledged is
there, and little memory is held.
"""

from __future__ import annotations

import random
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest

from bkstore.storage.bookie import Bookie
from bkstore.testing.servers import ServerFactory
from bkstore.wire import v2, v3
from bkstore.wire.frames import frame
from bkstore.wire.server import BookieServer, ServerOptions
from bkstore.wire.status_codes import Status
from tests.wire.admin.asking import until
from tests.wire.server.peer import KEY, Peer, add, record

GOOD = [
    frame(*add(7, 1).parts()),
    frame(*v2.ReadRequest(7, 0).parts()),
    frame(*v2.ReadRequest(7, -1, 1, KEY).parts()),
    frame(*v2.BatchReadRequest(7, 0, 5, 10, 1 << 20).parts()),
    frame(*v2.AuthRequest(b"some", b"thing").parts()),
    *(
        frame(v3.encode(v3.new_request(operation, 9, body)))
        for operation, body in {
            v3.OperationType.READ_ENTRY: {
                "ledgerId": 7,
                "entryId": 0,
                "previousLAC": 0,
                "timeOut": 9,
            },
            v3.OperationType.ADD_ENTRY: {
                "ledgerId": 7,
                "entryId": 2,
                "masterKey": KEY,
                "body": record(7, 2),
            },
            v3.OperationType.WRITE_LAC: {
                "ledgerId": 7,
                "lac": 0,
                "masterKey": KEY,
                "body": struct.pack(">qqi", 7, 0, 1),
            },
            v3.OperationType.READ_LAC: {"ledgerId": 7},
            v3.OperationType.FORCE_LEDGER: {"ledgerId": 7},
            v3.OperationType.GET_BOOKIE_INFO: {"requested": 3},
            v3.OperationType.GET_LIST_OF_ENTRIES_OF_LEDGER: {"ledgerId": 7},
            v3.OperationType.START_TLS: {},
            v3.OperationType.AUTH: {"authPluginName": b"sasl", "payload": b"\0"},
        }.items()
    ),
]
"""A request of each kind."""


@pytest.fixture
def server(bkstore_server: ServerFactory) -> Iterator[BookieServer]:
    """Yield a server, and see that it is as well as before when the test is over."""
    server = bkstore_server(server={"options": ServerOptions(stall_timeout=60)})
    with Peer(server.address) as peer:
        peer.ask(add(5, 0))
    yield server
    with Peer(server.address) as peer:
        assert peer.ask(add(5, 1))[0].status is Status.EOK
        answers = peer.ask(v2.ReadRequest(5, 0), v2.ReadRequest(5, 1))

        assert [record(5, 0), record(5, 1)] == [answer.record for answer in answers]
    deadline = time.monotonic() + 10
    while server.connection_count and time.monotonic() < deadline:
        time.sleep(0.01)

    assert (0, 0) == (server.connection_count, server.held_bytes)


def rubbish(server: BookieServer, data: bytes) -> None:
    """Send bytes, hang up half, and take what comes until the bookie hangs up."""
    with Peer(server.address) as peer:
        peer.send(data)
        with suppress(OSError):
            peer.socket.shutdown(socket.SHUT_WR)
        while peer.exactly(1 << 16):
            pass

        assert not peer.open


def mutations(count: int) -> Iterator[bytes]:
    """Yield streams of requests with something wrong: flipped, cut, doubled, lengths that lie."""
    chance = random.Random(16)
    for _ in range(count):
        data = bytearray(b"".join(chance.choices(GOOD, k=chance.randrange(1, 6))))
        for _ in range(chance.randrange(1, 4)):
            kind = chance.randrange(5)
            at = chance.randrange(len(data))
            if kind == 0:
                data[at] = chance.randrange(256)
            elif kind == 1:
                del data[at : at + chance.randrange(1, 9)]
            elif kind == 2:
                data[at:at] = chance.randbytes(chance.randrange(1, 9))
            elif kind == 3:
                data[:4] = struct.pack(">i", chance.choice([-1, 0, 1, 3, 2**31 - 1, len(data)]))
            else:
                data += data[at:]
            if not data:
                data = bytearray(4)
        yield bytes(data)


def test_random_bytes(server: BookieServer) -> None:
    """Bytes that mean nothing end their connection, and no other."""
    chance = random.Random(1)
    for _ in range(100):
        rubbish(server, chance.randbytes(chance.randrange(1, 3000)))
    for _ in range(100):
        rubbish(server, frame(chance.randbytes(chance.randrange(60))))


def test_mutated_requests(server: BookieServer) -> None:
    """Requests with something wrong in them are answered or end their connection."""
    for data in mutations(300):
        rubbish(server, data)


@pytest.mark.long
def test_many_mutated_requests(server: BookieServer) -> None:
    """Likewise, longer."""
    for data in mutations(10_000):
        rubbish(server, data)


def test_truncated_requests(server: BookieServer) -> None:
    """However a request is cut, what came before it is answered and the end is taken for one."""
    for whole in GOOD:
        for cut in {0, 1, 3, 4, 5, len(whole) // 2, len(whole) - 1}:
            with Peer(server.address) as peer:
                peer.send(frame(*v2.ReadRequest(5, 0).parts()) + GOOD[1] + whole[:cut])
                peer.socket.shutdown(socket.SHUT_WR)
                first = v2.decode_response(peer.frame()[4:])

                assert isinstance(first, v2.ReadResponse)
                assert record(5, 0) == first.record
                assert peer.frame()
                assert peer.ends()


def test_good_requests_before_damage_are_answered(server: BookieServer) -> None:
    """A request that cannot be decoded takes no answers of those before it away."""
    with Peer(server.address) as peer:
        adds = [frame(*add(7, entry).parts()) for entry in range(200)]
        peer.send(*adds, frame(b"\x02\x09\0\0"), *adds)
        answers = [v2.decode_response(peer.frame()[4:]) for _ in adds]

        assert [*range(200)] == [a.entry for a in answers if isinstance(a, v2.AddResponse)]
        assert peer.ends()
    assert [*range(200)] == server.bookie.entries(7).tolist()


def test_lengths_that_lie(server: BookieServer) -> None:
    """A length above the limit or below zero ends the connection at its fourth byte; one that is
    never filled costs what was sent, not what was said."""
    for length in (-1, -(2**31), (5 << 20) - 3, 2**31 - 1):
        with Peer(server.address) as peer:
            peer.send(struct.pack(">i", length))

            assert peer.ends()
    with ExitStack() as peers:
        for _ in range(50):
            peer = peers.enter_context(Peer(server.address))
            peer.send(struct.pack(">i", (5 << 20) - 4) + b"\x02\x01" + bytes(1000))
        wait_for(lambda: server.held_bytes > 50_000)

        assert server.held_bytes < 100_000


def test_the_longest_frame(server: BookieServer) -> None:
    """A frame of 5 MiB is taken whole, one byte more ends the connection."""
    body = bytes((5 << 20) - 4 - 4 - 20 - 36)
    with Peer(server.address) as peer:
        assert peer.ask(add(7, 0, body))[0].status is Status.EOK
        (answer,) = peer.ask(v2.ReadRequest(7, 0))

        assert record(7, 0, body) == answer.record
        peer.send(struct.pack(">i", (5 << 20) - 3))

        assert peer.ends()


def test_slow_senders(server: BookieServer) -> None:
    """Requests that come byte by byte are answered like others, beside each other."""
    data = frame(*v2.ReadRequest(5, 0).parts())
    with ExitStack() as stack:
        peers = [stack.enter_context(Peer(server.address)) for _ in range(20)]
        for at in range(len(data)):
            for peer in peers:
                peer.send(data[at : at + 1])
        for peer in peers:
            answer = v2.decode_response(peer.frame()[4:])

            assert isinstance(answer, v2.ReadResponse)
            assert record(5, 0) == answer.record


def test_half_closed(server: BookieServer) -> None:
    """A client that has said all it will has its answers, adds included, and then the end."""
    with Peer(server.address) as peer:
        peer.send(*(frame(*add(7, entry).parts()) for entry in range(500)))
        peer.socket.shutdown(socket.SHUT_WR)
        answers = [v2.decode_response(peer.frame()[4:]) for _ in range(500)]

        assert {Status.EOK} == {a.status for a in answers if isinstance(a, v2.AddResponse)}
        assert peer.ends()


def test_gone_without_a_word(server: BookieServer) -> None:
    """Clients that reset their connections with requests under way hurt nobody."""
    server.bookie.add_entries([record(9, e, bytes(10_000)) for e in range(200)], KEY)
    for at in range(30):
        peer = Peer(server.address)
        peer.send(*(frame(*add(7, 100 * at + entry).parts()) for entry in range(100)))
        peer.send(frame(*v2.BatchReadRequest(9, 0, 1, 0, 5 << 20).parts()) * 5)
        linger = struct.pack("ii", 1, 0)
        peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        peer.close()


def test_stalled_clients_are_let_go(bkstore_server: ServerFactory) -> None:
    """Who stops inside a frame, or does not take answers, is let go after a time; who is silent
    between two frames is not."""
    server = bkstore_server(server={"options": ServerOptions(stall_timeout=0.5)})
    server.bookie.add_entry(record(7, 0, bytes(4 << 20)), KEY)
    with Peer(server.address) as idle, Peer(server.address) as half, Peer(server.address) as deaf:
        half.send(frame(*v2.ReadRequest(7, 0).parts())[:9])
        deaf.send(frame(*v2.ReadRequest(7, 0).parts()) * 10)
        wait_for(lambda: server.connection_count == 1)

        assert half.ends()
        assert idle.ask(v2.ReadRequest(7, 1))[0].status is Status.ENOENTRY


def test_answers_on_their_way_are_counted(
    bkstore_server: ServerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read and has not reached its connection counts as held: where reading is faster
    than sending, no more is read than there is memory for, and an answer of each thread."""
    begin, go_on, reads = threading.Event(), threading.Event(), list[int]()

    class Slow:
        def observe(self, *_told: object) -> None:
            go_on.wait(10)

    def read_entry(bookie: Bookie, ledger: Any, entry: int = -1) -> bytes:
        begin.wait(10)
        reads.append(entry)
        return bookie.storage.read_entry(ledger, entry)

    options = ServerOptions(memory=2 << 20, read_threads=2)
    server = bkstore_server(server={"options": options, "observer": Slow()})
    server.bookie.add_entry(record(7, 0, bytes(1 << 20)), KEY)
    monkeypatch.setattr(Bookie, "read_entry", read_entry)
    peers = [Peer(server.address) for _ in range(20)]
    for peer in peers:
        peer.send(frame(*v2.ReadRequest(7, 0).parts()))
    until(lambda: server.held_bytes >= 20 * 24)
    begin.set()
    until(lambda: len(reads) >= 2)
    time.sleep(0.3)

    assert 2 <= len(reads) <= 4
    go_on.set()
    for peer in peers:
        peer.close()


def test_who_was_not_read_from_has_not_stalled(bkstore_server: ServerFactory) -> None:
    """A client that is in the middle of a frame when nothing more is read from it has the whole
    time to go on, once something is."""
    options = ServerOptions(max_waiting=1, stall_timeout=1)
    server = bkstore_server(server={"options": options})
    server.bookie.add_entry(record(7, 0), KEY)
    waits = {"ledgerId": 7, "entryId": -1, "previousLAC": 5, "timeOut": 2000}
    poll = v3.new_request(v3.OperationType.READ_ENTRY, 8, waits)
    body = {"ledgerId": 7, "entryId": 1, "body": record(7, 1), "masterKey": KEY}
    late = frame(v3.encode(v3.new_request(v3.OperationType.ADD_ENTRY, 9, body)))
    with Peer(server.address) as peer:
        peer.send(frame(v3.encode(poll)), late[:20])

        assert peer.frame()
        time.sleep(0.4)
        peer.send(late[20:])
        answer = v3.decode_response(peer.frame()[4:])
        assert (9, Status.EOK) == (answer.header.txnId, v3.status_in(answer))


def test_a_stop_after_a_reset(bkstore_server: ServerFactory) -> None:
    """A client that resets its connection while it is not read from does not hinder a stop:
    that ends in order, and others have their answers."""
    server = bkstore_server(server={"options": ServerOptions(memory=4000)})
    server.bookie.add_entry(record(7, 0), KEY)
    waits = {"ledgerId": 7, "entryId": -1, "previousLAC": 5, "timeOut": 60_000}
    with Peer(server.address) as waiting:
        waiting.send(frame(v3.encode(v3.new_request(v3.OperationType.READ_ENTRY, 8, waits))))
        until(lambda: server.held_bytes > 0)
        peers = [Peer(server.address) for _ in range(8)]
        for peer in peers:
            peer.send(frame(*add(7, 1, bytes(5000)).parts())[:2000])
        until(lambda: server.held_bytes > 5000)
        for peer in peers:
            peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            peer.close()
        server.close()

        assert Status.EOK is v3.status_in(v3.decode_response(waiting.frame()[4:]))


def test_memory_is_bounded(bkstore_server: ServerFactory) -> None:
    """Unfinished frames and answers that nobody takes fill the memory that was given, and then
    clients that hold it are let go, so that others are served."""
    options = ServerOptions(memory=4 << 20, stall_timeout=60)
    server = bkstore_server(server={"options": options})
    server.bookie.add_entry(record(7, 0, bytes(1 << 20)), KEY)
    held: list[int] = []
    with ExitStack() as stack:
        for at in range(40):
            peer = stack.enter_context(Peer(server.address))
            peer.socket.settimeout(0.05)
            with suppress(TimeoutError):
                if at % 2:
                    peer.send(struct.pack(">i", 5_000_000), bytes(1 << 20))
                else:
                    peer.send(frame(*v2.ReadRequest(7, 0).parts()) * 30)
            held.append(server.held_bytes)
        wait_for(lambda: held.append(server.held_bytes) or max(held) > 4 << 20 >= held[-1])  # type: ignore[func-returns-value]
        other = stack.enter_context(Peer(server.address))

        assert other.ask(v2.ReadRequest(7, 1))[0].status is Status.ENOENTRY
    assert max(held) < 24 << 20  # what is in the pools, and a read from each socket


def test_too_many_clients(bkstore_server: ServerFactory) -> None:
    """Clients above the limit are refused, and get in when others have left."""
    server = bkstore_server(server={"options": ServerOptions(max_connections=3)})
    with ExitStack() as stack:
        peers = [stack.enter_context(Peer(server.address)) for _ in range(3)]
        for peer in peers:
            peer.ask(v2.ReadRequest(7, 0))
        with Peer(server.address) as fourth:
            assert fourth.ends()
        peers[0].close()
        wait_for(lambda: server.connection_count == 2)
        late = stack.enter_context(Peer(server.address))

        assert late.ask(v2.ReadRequest(7, 0))[0].status is Status.ENOLEDGER


@pytest.mark.parametrize("count", [200, pytest.param(1000, marks=pytest.mark.long)])
def test_idle_connections(server: BookieServer, count: int) -> None:
    """Many connections that say nothing cost nearly nothing, and each is served when it speaks."""
    with ExitStack() as stack:
        peers = [stack.enter_context(Peer(server.address)) for _ in range(count)]
        wait_for(lambda: server.connection_count == count)

        assert server.held_bytes == 0
        for peer in peers:
            assert peer.ask(v2.ReadRequest(5, 0))[0].status is Status.EOK


def wait_for(condition: object) -> None:
    """Wait until something is so, ten seconds at most."""
    deadline = time.monotonic() + 10
    assert callable(condition)
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)

    assert condition()
