"""Sources that do not return what they should have: what is tried again, and what is given up."""

from __future__ import annotations

from typing import Any

import pytest

from bkstore.cluster import Cluster
from bkstore.cluster.in_process.bookie_client import LocalClient
from bkstore.errors import BookieUnavailable
from bkstore.repair import Repairer


@pytest.fixture
def running(bkstore_cluster: Any) -> Cluster:
    """Return three bookies."""
    made: Cluster = bkstore_cluster(3)
    return made


def _lose_a_bookie(running: Cluster) -> tuple[Any, str, str]:
    """Write a ledger of two bookies; return it, the one that stays, and the one that is gone."""
    with running.create_ledger(2, 2, 2) as ledger:
        ledger.append_many([b"one", b"two", b"three"])
    stays, gone = ledger.metadata.segments[0].ensemble
    running.flush()
    running.crash(gone)
    return ledger.ledger, stays, gone


def test_a_source_that_stops_answering(running: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its entries may come back: the rows have failed, no metadata change, the next repair copies
    them."""
    ledger, _, gone = _lose_a_bookie(running)

    def give_no_answer(*_: object, **__: object) -> object:
        raise BookieUnavailable("it has just ended")

    with monkeypatch.context() as broken:
        for name in ("read_entry", "read_entries", "read_many"):
            broken.setattr(LocalClient, name, give_no_answer)
        (row,) = Repairer(running.context).run().repairs

    assert ("failed", "replace", [0, 1, 2]) == (row.status, row.action, list(row.missing))
    assert "it has just ended" in row.detail
    assert 1 == len(running.store.read(ledger).metadata.segments)
    assert gone in running.store.read(ledger).metadata.bookies
    assert Repairer(running.context).run().is_clean
    assert gone not in running.store.read(ledger).metadata.bookies


def test_a_bookie_that_was_gone_before(running: Cluster) -> None:
    """It is not waited for: an entry whose other copy is damaged keeps it, the others do not."""
    ledger, stays, gone = _lose_a_bookie(running)
    running.corrupt(stays, ledger, 1, "payload")
    report = Repairer(running.context).run()
    segments = running.store.read(ledger).metadata.segments

    assert {("repaired", (0, 2)), ("impossible", (1,))} == {
        (each.status, tuple(each.missing)) for each in report.repairs
    }
    assert [(0, False), (1, True), (2, False)] == [
        (segment.first_entry, gone in segment.ensemble) for segment in segments
    ]
