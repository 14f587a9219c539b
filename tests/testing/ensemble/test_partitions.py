"""A server behind a network partition: it accepts, and answers nobody until the partition ends."""

from __future__ import annotations

import threading

import pytest

from bkstore.testing.servers import ServerFactory
from bkstore.wire import v2
from bkstore.wire.frames import frame
from bkstore.wire.status_codes import Status
from tests.wire.server.peer import Peer, add

READ = frame(*v2.ReadRequest(7, 0).parts())


def _silent(peer: Peer) -> bool:
    """Return whether no byte and no end comes within a moment."""
    peer.socket.settimeout(0.3)
    try:
        peer.socket.recv(1)
    except TimeoutError:
        return True
    finally:
        peer.socket.settimeout(10)
    return False


def test_a_partition(bkstore_server: ServerFactory) -> None:
    """Requests are lost, those of new connections too, and nothing of them is stored. When it ends
    connections that lost something are closed; one that lost nothing goes on, as do new ones."""
    partitioned = threading.Event()
    server = bkstore_server(server={"is_partitioned": partitioned.is_set})
    with Peer(server.address) as idle, Peer(server.address) as peer:
        for connection in (idle, peer):
            connection.send(frame(*add(7, 0).parts()))
            assert Status.EOK == v2.decode_response(connection.frame()[4:]).status
        partitioned.set()
        with Peer(server.address) as late:
            peer.send(frame(*add(7, 1).parts()))
            late.send(frame(*add(7, 2).parts()))
            assert _silent(peer)
            assert _silent(late)
            assert [0] == server.bookie.entries(7).tolist()
            partitioned.clear()

            assert (b"", b"") == (peer.frame(), late.frame())  # closed by the server
        idle.send(READ)
        assert Status.EOK == v2.decode_response(idle.frame()[4:]).status
        with Peer(server.address) as fresh:
            fresh.send(READ)
            assert Status.EOK == v2.decode_response(fresh.frame()[4:]).status
            assert [0] == server.bookie.entries(7).tolist()


def test_an_answer_that_is_lost(
    bkstore_server: ServerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An add that arrived before the partition is stored, and its answer does not come."""
    partitioned, received, cut = threading.Event(), threading.Event(), threading.Event()
    server = bkstore_server(server={"is_partitioned": partitioned.is_set})
    store = server.bookie.add_batch

    def store_late(*arguments: object, **options: object) -> object:
        received.set()
        cut.wait(20)
        return store(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(server.bookie, "add_batch", store_late)
    with Peer(server.address) as peer:
        peer.send(frame(*add(7, 0).parts()), frame(*add(7, 1).parts()))
        assert received.wait(20)
        partitioned.set()
        cut.set()
        assert _silent(peer)
        assert [0, 1] == server.bookie.entries(7).tolist()
        partitioned.clear()
        assert b"" == peer.frame()
