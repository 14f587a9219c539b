"""`bkstore.repair` beside the real AutoRecovery, on one cluster with one set of locks and marks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bkstore.network import AuditedBookies
from bkstore.repair import Repairer
from bkstore.schedule import expected
from tests.interop.clusters.conftest import MakeClient, MakeCluster
from tests.interop.clusters.recovery.replication import replication
from tests.interop.clusters.recovery.worlds import PAYLOADS, World

LAST = len(PAYLOADS) - 1


@pytest.fixture
def world(new_cluster: MakeCluster, tmp_path: Path) -> Iterator[World]:
    """Yield five bookies of ours in a cluster of their own."""
    made = World(new_cluster(), tmp_path)
    yield made
    made.close()


def test_both_at_once(world: World, real_client: MakeClient) -> None:
    """A bookie goes, which both see, and another one loses entries, which the real worker does not
    see. Both work on the cluster; then every replica is there, no mark is left, and real clients
    read all."""
    ledgers = [world.written(PAYLOADS, *numbers) for numbers in [(3, 3, 2), (4, 3, 2)] * 3]
    lost = ledgers[0].metadata.segments[0].ensemble[1]
    lossy = next(name for name in sorted(world.bookies) if name != lost)
    for ledger in ledgers:
        world.bookies[lossy].bookie.delete_ledger(ledger.ledger)
    world.lose(lost)
    with (
        replication(world.cluster, "autorecovery"),
        AuditedBookies(world.store, timeout=5.0) as sources,
    ):
        repairer = Repairer(world.client.context, sources)
        # A ledger that the worker has locked is skipped: the next repairs have it.
        world.until(lambda: repairer.run().is_clean and not world.store.underreplicated())
        assert repairer.planner.plan().is_clean
    assert {} == world.marks.all()
    theirs = real_client(world.cluster)
    for ledger in ledgers:
        metadata = world.store.read(ledger.ledger).metadata
        assert lost not in metadata.bookies
        theirs.open(ledger.id, recovery=False)
        assert PAYLOADS == theirs.read(ledger.id, 0, LAST)
        for segment in metadata.segments_with_ends():
            for index, name in enumerate(segment.ensemble):
                held = world.bookies[name].bookie.availability(ledger.ledger)
                size, quorum = len(segment.ensemble), metadata.write_quorum_size
                due = expected(segment.first_entry, segment.last_entry, index, size, quorum)
                assert not due - held


def test_the_worker_does_not_see_lost_entries(world: World) -> None:
    """With every bookie registered, the real auditor finds nothing to do where entries are lost;
    the repair writes them again."""
    ledger = world.written(PAYLOADS, 3, 2, 2)
    lossy = ledger.metadata.segments[0].ensemble[0]
    held = world.bookies[lossy].bookie.availability(ledger.ledger)
    world.bookies[lossy].bookie.delete_ledger(ledger.ledger)
    with replication(world.cluster, "autorecovery"):
        world.until(lambda: world.store.underreplication.auditor() is not None)
        assert Repairer(world.client.context).run().is_clean
        assert {} == world.marks.all()
    assert held == world.bookies[lossy].bookie.availability(ledger.ledger)
