"""`bkstore.repair` after the real auditor: what it marks is copied, and its marks go."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bkstore.repair import Repairer
from tests.interop.clusters.conftest import MakeClient, MakeCluster
from tests.interop.clusters.replication import replication
from tests.interop.clusters.test_auto_recovery import NUMBERS, PAYLOADS, World


@pytest.fixture
def world(new_cluster: MakeCluster, tmp_path: Path) -> Iterator[World]:
    """Yield five bookies of ours in a cluster of their own."""
    made = World(new_cluster(), tmp_path)
    yield made
    made.close()


def test_a_repair_alone_does_what_the_worker_does(world: World, real_client: MakeClient) -> None:
    """The real auditor marks the ledgers of a lost bookie; our repair copies them, and removes
    the marks as the real classes read them."""
    ledgers = [world.written(PAYLOADS, *numbers) for numbers in NUMBERS.values()]
    lost = ledgers[0].metadata.segments[0].ensemble[1]
    concerned = {each.ledger for each in ledgers if lost in each.metadata.segments[0].ensemble}
    world.lose(lost)
    with replication(world.cluster, "auditor"):
        world.until(lambda: concerned == set(world.store.underreplicated()))
    report = Repairer(world.client.context).run()

    assert report.is_clean
    assert len(concerned) == report.removed_marks
    assert {} == world.marks.all()
    theirs = real_client(world.cluster)
    for ledger in ledgers:
        assert world.replaced(ledger, lost)
        theirs.open(ledger.id, recovery=False)
        assert PAYLOADS == theirs.read(ledger.id, 0, 89)
