"""Reads that wait for a LAC: what wakes them, and what does not let them wait."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from bkstore.testing.servers import ServerFactory
from bkstore.wire import v3
from bkstore.wire.server import BookieServer
from bkstore.wire.status import Status
from tests.wire.server.peer import KEY, Peer, add, record

Operation = v3.Operation


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
    while not server.connections:
        time.sleep(0.01)
    time.sleep(0.1)
    server.close()
    thread.join(10)

    assert [(Status.EOK.v3, -1)] == [(body.status, body.maxLAC) for body in found]
