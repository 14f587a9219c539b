"""Reads that wait for a LAC: what wakes them, and what does not let them wait."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from bkstore.storage.options import StorageKind
from bkstore.testing.servers import ServerFactory
from bkstore.wire import v2, v3
from bkstore.wire.frames import frame
from bkstore.wire.server import BookieServer
from bkstore.wire.status_codes import Status
from tests.wire.server.peer import KEY, Peer, add, record

Operation = v3.OperationType
STORAGES: list[StorageKind] = ["sorted", "interleaved", "db"]


def poll(server: BookieServer, ledger: int, previous: int, time_out: int) -> Any:
    """Ask for the entry behind `previous` when it is confirmed; return the answer's body."""
    asked = {"ledgerId": ledger, "entryId": -1, "flag": 2}
    with Peer(server.address) as peer:
        body = asked | {"previousLAC": previous, "timeOut": time_out}
        return v3.body_of(peer.ask_v3(Operation.READ_ENTRY, body))


@pytest.mark.parametrize("by", ["client", "bookie", "explicit"])
def test_a_long_poll_wakes(bkstore_server: ServerFactory, by: str) -> None:
    """A long poll is answered when the LAC has moved, whoever moved it."""
    server = bkstore_server()
    server.bookie.add_entries([record(7, entry) for entry in range(3)], KEY)  # LAC 1

    def move() -> None:
        if by == "bookie":
            server.bookie.add_entry(record(7, 3), KEY)
            return
        with Peer(server.address) as peer:
            if by == "client":
                peer.ask(add(7, 3))
            else:
                body = (7).to_bytes(8, "big") + (2).to_bytes(8, "big")
                lac = {"ledgerId": 7, "lac": 2, "masterKey": KEY, "body": body}
                peer.ask_v3(Operation.WRITE_LAC, lac)

    timer = threading.Timer(0.1, move)
    timer.start()
    began = time.time()
    body = poll(server, 7, 1, 30_000)
    timer.join()

    assert (record(7, 2), 2, 2) == (body.body, body.entryId, body.maxLAC)
    assert began * 1000 - 1 <= body.lacUpdateTimestamp <= time.time() * 1000 + 1


def test_long_polls_that_do_not_wait(bkstore_server: ServerFactory) -> None:
    """An unknown ledger, no time, a LAC that is above already: answered at once."""
    server = bkstore_server()
    server.bookie.add_entries([record(7, entry) for entry in range(3)], KEY)

    assert poll(server, 8, 0, 30_000).status == Status.ENOLEDGER.v3
    assert (poll(server, 7, 5, 0).maxLAC, poll(server, 7, 5, -4).body) == (1, b"")
    assert poll(server, 7, 0, 30_000).body == record(7, 1)


def test_stopping_answers_long_polls(bkstore_server: ServerFactory) -> None:
    """A server that stops answers long polls as if their time was over."""
    server = bkstore_server()
    server.bookie.add_entry(record(7, 0), KEY)
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(poll(server, 7, 5, 60_000)))
    thread.start()
    while not server.connection_count:
        time.sleep(0.01)
    time.sleep(0.1)
    server.close()
    thread.join(10)

    assert [(Status.EOK.v3, -1)] == [(body.status, body.maxLAC) for body in found]


def waiting(peer: Peer, ledger: int, previous: int, **fields: int) -> None:
    """Send a long poll of a minute, and return when it waits."""
    body = {"ledgerId": ledger, "entryId": -1, "previousLAC": previous, "timeOut": 60_000}
    peer.send(frame(v3.encode(v3.new_request(Operation.READ_ENTRY, 1, body | fields))))
    # A connection's reads are taken in turn: the poll waits when the one behind it is answered.
    peer.ask_v3(Operation.READ_ENTRY, {"ledgerId": ledger, "entryId": 0})


def woken(peer: Peer) -> Any:
    """Return the body of the answer to the long poll, which comes long before its time is over."""
    return v3.body_of(v3.decode_response(peer.frame()[4:]))


def fence_by(kind: str, server: BookieServer, ledger: int) -> None:
    """Fence a ledger with entries 0, 1, 2, as a recovery does, or beside the server."""
    if kind == "bookie":
        server.bookie.fence(ledger, KEY)
        return
    with Peer(server.address) as peer:
        if kind == "v2":
            request = v2.ReadRequest(ledger, -1, v2.Flags.DO_FENCING, KEY)
            assert [Status.EOK] == [answer.status for answer in peer.ask(request)]
        else:
            asked = {"ledgerId": ledger, "entryId": -1, "flag": 1, "masterKey": KEY}
            body = v3.body_of(peer.ask_v3(Operation.READ_ENTRY, asked))
            assert Status.EOK.v3 == body.status


@pytest.mark.parametrize("kind", ["v2", "v3", "bookie"])
@pytest.mark.parametrize("storage", STORAGES)
def test_a_fence_ends_the_wait(
    bkstore_server: ServerFactory, storage: StorageKind, kind: str
) -> None:
    """A long poll is answered when its ledger is fenced, with the LAC as it is, and no entry."""
    server = bkstore_server(storage)
    for ledger in (7, 8):
        server.bookie.add_entries([record(ledger, entry) for entry in range(3)], KEY)  # LAC 1
    with Peer(server.address) as peer, Peer(server.address) as other:
        waiting(peer, 7, 1, flag=2)
        waiting(other, 8, 1, flag=2)
        fence_by(kind, server, 7)
        body = woken(peer)

        assert (Status.EOK.v3, 1, b"") == (body.status, body.maxLAC, body.body)
        assert not body.HasField("lacUpdateTimestamp")
        fence_by(kind, server, 8)
        assert 8 == woken(other).ledgerId


def test_a_fence_ends_the_wait_for_the_last_entry(bkstore_server: ServerFactory) -> None:
    """A long poll that does not ask for the entry behind the LAC gets the last entry."""
    server = bkstore_server()
    server.bookie.add_entries([record(7, entry) for entry in range(3)], KEY)
    with Peer(server.address) as peer:
        waiting(peer, 7, 1)
        fence_by("v3", server, 7)
        body = woken(peer)

        assert (Status.EOK.v3, 1, record(7, 2)) == (body.status, body.maxLAC, body.body)


def test_a_fence_of_before_ends_no_wait(bkstore_server: ServerFactory) -> None:
    """A ledger that is fenced already is waited for: a recovery may still move its LAC."""
    server = bkstore_server()
    server.bookie.add_entries([record(7, entry) for entry in range(3)], KEY)
    server.bookie.fence(7, KEY)
    with Peer(server.address) as peer:
        waiting(peer, 7, 1, flag=2)
        server.bookie.fence(7, KEY)  # changes nothing
        server.bookie.add_entry(record(7, 3), KEY, recovery=True)
        body = woken(peer)

        assert (record(7, 2), 2, 2) == (body.body, body.entryId, body.maxLAC)


@pytest.mark.parametrize("storage", STORAGES)
def test_garbage_ends_the_wait(bkstore_server: ServerFactory, storage: StorageKind) -> None:
    """A long poll is answered when its ledger is deleted: there is none."""
    server = bkstore_server(storage)
    server.bookie.add_entries([record(7, entry) for entry in range(3)], KEY)
    with Peer(server.address) as peer:
        waiting(peer, 7, 1, flag=2)
        server.bookie.collect_garbage(list)

        assert Status.ENOLEDGER.v3 == woken(peer).status
