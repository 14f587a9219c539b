"""The limits of a server hold for long polls, for many frames at a time, and under TLS."""

from __future__ import annotations

import asyncio.sslproto
import errno
import logging
import os
import resource
import socket
import tracemalloc
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import pytest

from bkstore.storage.bookie import Bookie
from bkstore.storage.options import JournalOptions
from bkstore.testing.servers import ServerFactory
from bkstore.wire import v2, v3
from bkstore.wire.admin import AdminServer
from bkstore.wire.frames import frame
from bkstore.wire.server import BookieServer, ServerOptions, server_tls
from bkstore.wire.server.connection import ServedConnection
from bkstore.wire.status_codes import Status
from tests.wire.admin.asking import until
from tests.wire.server.held_syncs import HeldSyncs
from tests.wire.server.peer import KEY, SERVER, Peer, add, record, secured


def _poll(transaction: int, time_out: int) -> bytes:
    """Return a request that waits so many milliseconds for a LAC that does not come."""
    waits = {"ledgerId": 7, "entryId": -1, "previousLAC": 5, "timeOut": time_out}
    return frame(v3.encode(v3.new_request(v3.OperationType.READ_ENTRY, transaction, waits)))


def _waiting(server: BookieServer) -> int:
    """Return how many requests of its clients a server has taken and not answered."""
    assert server._server_state is not None
    return sum(
        cast(ServedConnection, each)._waiting_count
        for each in list(server._server_state.connections)
    )


def _is_let_go(peer: Peer) -> bool:
    try:
        return not peer.socket.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def test_frames_that_come_together(bkstore_server: ServerFactory) -> None:
    """No more requests are taken than may wait, however many frames come in one piece; the
    others are taken when there is room, and each is answered."""
    server = bkstore_server(server={"options": ServerOptions(max_waiting=10)})
    server.bookie.add_entry(record(7, 0), KEY)
    with Peer(server.address) as peer:
        peer.send(*(_poll(number, 60_000) for number in range(300)))
        until(lambda: _waiting(server) >= 10)

        assert 10 == _waiting(server)
        with Peer(server.address) as other:
            (answer,) = other.ask(v2.ReadRequest(7, 0))

            assert record(7, 0) == answer.record
        assert 10 == _waiting(server)
    with Peer(server.address) as peer:
        peer.send(*(_poll(number, 1) for number in range(300)))
        peer.socket.shutdown(socket.SHUT_WR)
        seen = {v3.decode_response(peer.frame()[4:]).header.txnId for _ in range(300)}

        assert {*range(300)} == seen
        assert peer.ends()


@pytest.mark.parametrize("sizes", [(7, 7), (3, 9)], ids=["one size", "two sizes"])
def test_windows_that_come_together(
    bkstore_server: ServerFactory, tmp_path: Path, sizes: tuple[int, int]
) -> None:
    """Each of many requests alike counts: no more than `max_waiting` are taken at a time, until
    they are answered; in the end none waits."""
    files = HeldSyncs()
    options = ServerOptions(max_waiting=100, max_group=30)
    journal = JournalOptions(preallocate=64 << 10)
    with (
        Bookie.open(tmp_path / "held", "sorted", journal=journal, files=files) as bookie,
        BookieServer(bookie, options=options) as server,
        Peer(server.address) as peer,
    ):
        assert [Status.EOK] == [answer.status for answer in peer.ask(add(7, 0))]
        files.gate.clear()
        peer.send(*(frame(*add(7, n, b"x" * sizes[n % 2]).parts()) for n in range(1, 1000)))
        until(lambda: _waiting(server) == 100)

        assert files.waiting.wait(30)
        assert 100 == _waiting(server)
        files.gate.set()
        assert {Status.EOK} == {v2.decode_response(peer.frame()[4:]).status for _ in range(999)}
        until(lambda: _waiting(server) == 0)
        reads = [v2.ReadRequest(7, n) for n in range(1000)]
        assert [*range(1000)] == [answer.entry for answer in peer.ask(*reads)]
        until(lambda: _waiting(server) == 0)


def test_what_long_polls_cost(bkstore_server: ServerFactory) -> None:
    """`held_bytes` has the memory that waiting requests take, not the bytes of their frames
    alone."""
    server = bkstore_server(server={"options": ServerOptions(max_waiting=5000)})
    server.bookie.add_entry(record(7, 0), KEY)
    with Peer(server.address) as peer:
        peer.send(_poll(0, 60_000))
        until(lambda: _waiting(server) == 1)
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            peer.send(*(_poll(number, 60_000) for number in range(1, 2001)))
            until(lambda: _waiting(server) == 2001)
            taken = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()

        until(lambda: server.held_bytes > taken)  # what protobuf takes is not traced

        assert server.held_bytes < 2001 * 2048


def test_waiting_long_polls_fill_the_memory(bkstore_server: ServerFactory) -> None:
    """Clients whose long polls take more than there is memory for are let go, and others are
    served."""
    options = ServerOptions(memory=1 << 20, max_waiting=500)
    server = bkstore_server(server={"options": options})
    server.bookie.add_entry(record(7, 0), KEY)
    with ExitStack() as stack:
        peers = [stack.enter_context(Peer(server.address)) for _ in range(5)]
        for peer in peers:
            peer.send(*(_poll(number, 60_000) for number in range(500)))
            peer.socket.setblocking(False)
        until(lambda: any(_is_let_go(peer) for peer in peers) and server.held_bytes <= 1 << 20)
        other = stack.enter_context(Peer(server.address))

        assert Status.EOK is other.ask(v2.ReadRequest(7, 0))[0].status


def test_clients_of_tls_that_take_no_answers(bkstore_server: ServerFactory) -> None:
    """Under TLS, too, what a client does not take is counted, and who takes nothing is let go."""
    options = ServerOptions(stall_timeout=0.5)
    server = bkstore_server(server={"options": options, "tls": server_tls(*SERVER)})
    server.bookie.add_entry(record(7, 0, bytes(4_800_000)), KEY)
    with Peer(server.address) as idle, ExitStack() as stack:
        for count in (1, 1, 20):  # one answer passes TLS as a whole
            deaf = stack.enter_context(Peer(server.address))
            deaf.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
            secured(deaf).send(frame(*v2.ReadRequest(7, 0).parts()) * count)
        held: list[int] = []

        def record_held_bytes() -> bool:
            held.append(server.held_bytes)
            return server.connection_count == 1

        until(record_held_bytes)

        assert 2 << 20 < max(held) < 40 << 20
        assert Status.ENOENTRY is idle.ask(v2.ReadRequest(7, 1))[0].status
    until(lambda: server.held_bytes == 0)


def test_a_slow_client_of_tls(bkstore_server: ServerFactory) -> None:
    """A client of TLS that takes its answers late has all of them."""
    server = bkstore_server(server={"tls": server_tls(*SERVER)})
    server.bookie.add_entry(record(7, 0, bytes(4 << 20)), KEY)
    with Peer(server.address) as peer:
        secured(peer).send(frame(*v2.ReadRequest(7, 0).parts()) * 10)
        until(lambda: server.held_bytes > 1 << 18)
        for _ in range(10):
            answer = v2.decode_response(peer.frame()[4:])

            assert isinstance(answer, v2.ReadResponse)
            assert record(7, 0, bytes(4 << 20)) == answer.record


def test_tls_is_given_pieces(
    bkstore_server: ServerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TLS is given no more than 256 KiB at once: its buffers keep the size of the largest piece
    as long as the connection lives."""
    write = asyncio.sslproto._SSLProtocolTransport.write  # type: ignore[attr-defined]
    sizes: list[int] = []

    def watch(transport: object, data: bytes) -> None:
        sizes.append(len(data))
        write(transport, data)

    monkeypatch.setattr("asyncio.sslproto._SSLProtocolTransport.write", watch)
    server = bkstore_server(server={"tls": server_tls(*SERVER)})
    server.bookie.add_entry(record(7, 0, bytes(1_000_000)), KEY)
    with Peer(server.address) as peer:
        (answer,) = secured(peer).ask(v2.ReadRequest(7, 0))

        assert record(7, 0, bytes(1_000_000)) == answer.record
    assert sum(sizes) > 1_000_000
    assert max(sizes) <= 256 << 10


def test_half_closed_tls(bkstore_server: ServerFactory) -> None:
    """A client of TLS that ends its side of the socket has the answers to what it sent."""
    server = bkstore_server(
        server={"options": ServerOptions(max_waiting=10), "tls": server_tls(*SERVER)}
    )
    server.bookie.add_entry(record(7, 0, bytes(100_000)), KEY)
    body = {"ledgerId": 7, "entryId": 0}
    reads = [v3.new_request(v3.OperationType.READ_ENTRY, number, body) for number in range(200)]
    with Peer(server.address) as peer:
        secured(peer).send(*(frame(v3.encode(read)) for read in reads), _poll(200, 100))
        socket.socket.shutdown(peer.socket, socket.SHUT_WR)  # not by TLS, which it would end, too
        answers = [v3.decode_response(peer.frame()[4:]) for _ in range(201)]

        assert {*range(201)} == {answer.header.txnId for answer in answers}
        assert {Status.EOK} == {v3.status_in(answer) for answer in answers}
        assert peer.ends()
    until(lambda: server.connection_count == 0)


def _no_descriptors(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let every accept fail for lack of descriptors; return a list of what failed, growing."""
    failed: list[int] = []

    def accept(listening: socket.socket) -> Any:
        failed.append(listening.fileno())
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(socket.socket, "accept", accept)
    return failed


def _messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]


_RESTS = "no client can be accepted: Too many open files; they wait"


def test_no_descriptors_for_clients(
    bkstore_server: ServerFactory,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Where no descriptor is left for a client it waits, accepts are tried again now and then,
    one line says so, and the client is served when there are descriptors again."""
    server = bkstore_server()
    with Peer(server.address) as before:
        assert Status.ENOLEDGER is before.ask(v2.ReadRequest(7, 0))[0].status
        with monkeypatch.context() as patch:
            failed = _no_descriptors(patch)
            with Peer(server.address) as peer:
                peer.send(frame(*v2.ReadRequest(7, 0).parts()))
                until(lambda: len(failed) >= 2)

                assert Status.ENOLEDGER is before.ask(v2.ReadRequest(7, 0))[0].status
                assert [_RESTS] == _messages(caplog)
                assert len(failed) < 20
                patch.undo()

                assert Status.ENOLEDGER is v2.decode_response(peer.frame()[4:]).status
    assert [_RESTS, "clients are accepted again"] == _messages(caplog)


def test_no_descriptors_for_clients_of_the_admin(
    bkstore_bookie: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Likewise; and an admin that is closed meanwhile closes."""
    bookie: Bookie = bkstore_bookie()
    for frees in (True, False):
        with monkeypatch.context() as patch, AdminServer(bookie) as admin:
            caplog.clear()
            failed = _no_descriptors(patch)
            host, port = admin.url.removeprefix("http://").split(":")
            with socket.create_connection((host, int(port)), timeout=10) as waiting:
                until(lambda: len(failed) >= 2)  # noqa: B023

                assert [_RESTS] == _messages(caplog)
                if frees:
                    patch.undo()
                    waiting.sendall(b"GET /heartbeat HTTP/1.1\r\nHost: localhost\r\n\r\n")

                    assert waiting.recv(12) == b"HTTP/1.1 200"
                    with urllib.request.urlopen(f"{admin.url}/heartbeat") as answer:
                        assert answer.read() == b"OK\n"


def test_fewer_descriptors_than_connections(
    bkstore_server: ServerFactory,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """So many clients are taken as the limit of open files leaves room for, beside what is open
    and a quarter for the storage; that is said at the start, and others are refused."""
    listdir = os.listdir

    def opened(path: Any = ".") -> list[str]:
        return ["0"] * 27 if path == "/dev/fd" else listdir(path)

    monkeypatch.setattr(os, "listdir", opened)
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (40, 1000))  # 40 - 10 - 27
    server = bkstore_server()

    assert 3 == server.max_connections
    assert [
        "at most 3 clients can connect, not 4096: raise the limit of open files (ulimit -n)"
    ] == _messages(caplog)
    with ExitStack() as stack:
        for _ in range(3):
            peer = stack.enter_context(Peer(server.address))
            peer.ask(v2.ReadRequest(7, 0))
        with Peer(server.address) as fourth:
            assert fourth.ends()
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (resource.RLIM_INFINITY,) * 2)

    assert 4096 == bkstore_server().max_connections
