"""Long polls at real bookies and at ours: what a fence answers them, on all storages."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from bkstore.storage.options import StorageKind
from bkstore.testing.servers import ServerFactory
from bkstore.wire import v2, v3
from bkstore.wire.frames import frame
from bkstore.wire.status_codes import Status
from tests.interop.bookies import Cluster, Place
from tests.wire.server.peer import KEY, Peer, add

READ = v3.OperationType.READ_ENTRY
SETTLED = 0.2
"""Seconds in which a real bookie has a long poll waiting, in a thread of its own."""


def _answer(peer: Peer) -> tuple[object, ...]:
    body = v3.body_of(v3.decode_response(peer.frame()[4:]))
    lac = body.maxLAC if body.HasField("maxLAC") else None
    return body.status, body.ledgerId, lac, body.body, body.HasField("lacUpdateTimestamp")


def _fenced(address: Any, ledger: int) -> None:
    with Peer(address) as peer:
        (answer,) = peer.ask(v2.ReadRequest(ledger, -1, v2.Flags.DO_FENCING, KEY))

    assert answer.status is Status.EOK


def conversation(address: tuple[str, int]) -> list[tuple[object, ...]]:
    """Return the answers to long polls: of a fence, of one of before with a later LAC."""
    found = []
    with Peer(address, 60) as peer, Peer(address) as other:
        for ledger, fields in ((7, {"flag": 2}), (8, {})):
            other.ask(*(add(ledger, entry) for entry in range(3)))  # LAC 1
            polled = {"ledgerId": ledger, "entryId": -1, "previousLAC": 1, "timeOut": 600_000}
            peer.send(frame(v3.encode(v3.new_request(READ, 1, polled | fields))))
            time.sleep(SETTLED)
            _fenced(address, ledger)
            found.append(_answer(peer))
        polled = {"ledgerId": 7, "entryId": -1, "previousLAC": 1, "timeOut": 600_000, "flag": 2}
        peer.send(frame(v3.encode(v3.new_request(READ, 1, polled))))
        time.sleep(SETTLED)
        _fenced(address, 7)  # it is fenced already: nobody is told
        other.ask(add(7, 3, flags=v2.Flags.RECOVERY_ADD))
        found.append(_answer(peer))
    return found


@pytest.mark.parametrize("storage", ["sorted", "interleaved", "db"])
def test_a_fence_answers_alike(
    real_cluster: Cluster, bkstore_server: ServerFactory, tmp_path: Path, storage: StorageKind
) -> None:
    """A fence ends a long poll at once, with the LAC as it is; one of before does not."""
    place = Place(real_cluster.new_id(), [tmp_path / "ledgers"], [tmp_path / "journal"])
    bookie = real_cluster.start(place, real_cluster.settings(place, storage))
    try:
        real = conversation(("127.0.0.1", bookie.port))
    finally:
        bookie.stop()
    ours = conversation(bkstore_server(storage).address)

    assert ours == real
    assert [1, 1, 2] == [lac for _, _, lac, _, _ in ours]
    assert [False, False, True] == [told for *_, told in ours]
