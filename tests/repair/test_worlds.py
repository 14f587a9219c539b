"""Random clusters with random losses: all that has a sound copy is whole again, no more is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from bkstore.cluster.audit import AuditOptions, Auditor
from bkstore.repair import Repairer, RepairOptions, ReplicaRepair
from tests.repair.lossy_worlds import PASSWORD, LossyWorld, impossible_entries, open_world


def _check_repaired(world: LossyWorld, repairs: list[ReplicaRepair]) -> None:
    """Compare what a repair made of a world, and what it says, with every copy in it."""
    assert world.to_stay_lost == impossible_entries(repairs)
    assert {"repaired", "impossible"} >= {each.status for each in repairs}
    after = dict(world.read_all())
    assert world.sound.items() <= after.items()  # no sound byte anywhere is changed
    for ledger, entry in world.finished_entries() - world.to_stay_lost:
        write_set = world.write_set(ledger, entry)
        assert not world.gone & set(write_set)
        assert all(world.holds(bookie, ledger, entry) for bookie in write_set)
        is_closed = world.cluster.store.read(ledger).metadata.closed
        if is_closed and any((ledger, entry, bookie) in after for bookie in write_set):
            opened = world.cluster.open_ledger(ledger, password=PASSWORD)
            assert world.payloads[ledger, entry] == opened.read_entry(entry).payload


def _judge(top: Path, seed: int) -> None:
    world = open_world(top, seed)
    try:
        report = Repairer(world.cluster.context).run()
        _check_repaired(world, report.repairs)
        # A second repair has nothing to do but name the same losses.
        again = Repairer(world.cluster.context).run()
        assert 0 == again.copied_entries
        assert {"impossible"} >= {each.status for each in again.repairs}
        assert world.to_stay_lost == impossible_entries(again.repairs)
        if not again.repairs:
            options = AuditOptions(rechecks=0)
            auditor = Auditor(world.cluster.store, world.cluster.bookies, options=options)
            assert [] == auditor.run().violations
    finally:
        world.cluster.close()


@pytest.mark.parametrize("seed", range(12))
def test_worlds(tmp_path: Path, seed: int) -> None:
    """Index rows, ledgers, bytes and whole bookies are lost; the repair mends what has a copy."""
    _judge(tmp_path, seed)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("block", range(10))
def test_many_worlds(tmp_path: Path, block: int) -> None:
    """The same for hundreds of worlds."""
    for seed in range(12 + 40 * block, 52 + 40 * block):
        _judge(tmp_path / str(seed), seed)


@pytest.mark.parametrize("seed", [11])
def test_recovery(tmp_path: Path, seed: int) -> None:
    """With `recover`, open ledgers that name a bookie that is gone are closed and repaired, unless
    it cannot be known whether an entry was acknowledged."""
    world = open_world(tmp_path, seed)
    try:
        report = Repairer(world.cluster.context, options=RepairOptions(recover=True)).run()
        failed = {each.ledger for each in report.repairs if each.status == "failed"}
        assert any(each.action == "recover" for each in report.repairs)
        for ledger in world.cluster.store.ledgers():
            metadata = world.cluster.store.read(ledger).metadata
            assert metadata.closed or ledger in failed or not metadata.bookies & world.gone
        assert not any(each.action == "recover" and not each.detail for each in report.repairs)
    finally:
        world.cluster.close()
