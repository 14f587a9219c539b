"""Damaged worlds: what has a sound copy anywhere comes back, and exactly the rest is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from bkstore.rescue import RescueJob
from tests.rescue.rescue_runs import rescue
from tests.rescue.rescue_worlds import RescueWorld

SEEDS = [*range(5), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(5, 1000))]


def check(world: RescueWorld, tmp_path: Path) -> RescueJob:
    """Rescue a world, and compare the output with what is left of each record."""
    left = world.copies()
    job, payloads = rescue(world, tmp_path / "out")
    written = {
        (ledger_id, entry): payload
        for ledger_id, ledger in world.ledgers.items()
        for entry, payload in ledger.payloads.items()
    }
    assert payloads == {key: written[key] for key, bookies in left.items() if bookies}
    for ledger_id, ledger in world.ledgers.items():
        lost = [entry for entry in ledger.records if not left[ledger_id, entry]]
        rows = [row for row in job.account() if row.ledger == ledger_id]
        assert rows[0].kind == ("partial" if lost else "whole")
        told = [entry for row in rows if row.kind == "lost" for entry in row.entries]
        assert sorted(told) == lost
        assert {row.kind for row in rows} <= {"whole", "partial", "lost"}
    return job


@pytest.mark.parametrize("seed", SEEDS)
def test_entries_with_a_sound_copy_come_back(tmp_path: Path, seed: int) -> None:
    """Of each entry all copies but one, wherever it is, are damaged."""
    world = RescueWorld(tmp_path / "world", seed)
    for bookie in list(world.bookies):
        for loss in (world.lose_index, world.lose_journals):
            if world.random.random() < 0.3:
                loss(bookie)
    for (ledger_id, entry), bookies in world.copies().items():
        damaged = sorted(bookies)
        world.random.shuffle(damaged)
        for bookie in damaged[1:]:
            if world.random.random() < 0.6:
                record = world.ledgers[ledger_id].records[entry]
                world.random.choice((world.flip, world.erase))(bookie, record)

    check(world, tmp_path)


@pytest.mark.parametrize("seed", SEEDS)
def test_exactly_what_has_no_copy_is_lost(tmp_path: Path, seed: int) -> None:
    """Files are cut, removed and overwritten, until some entries have no copy."""
    world = RescueWorld(tmp_path / "world", 10_000 + seed)
    choices = (world.lose_index, world.lose_journals, world.lose_log, world.truncate)
    for _ in range(world.random.randint(0, 4)):
        world.random.choice(choices)(world.random.choice(world.bookies))
    if len(world.bookies) > 1 and world.random.random() < 0.4:
        world.lose_bookie(world.random.choice(world.bookies))
    for (ledger_id, entry), bookies in world.copies().items():
        for bookie in sorted(bookies):
            if world.random.random() < 0.1:
                world.flip(bookie, world.ledgers[ledger_id].records[entry])

    check(world, tmp_path)
