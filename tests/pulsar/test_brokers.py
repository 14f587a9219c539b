"""Leaks in worlds of brokers that create, roll, trim, offload, compact and end at any step."""

from __future__ import annotations

import pytest

from bkstore.cluster.store.key_value_store import MemoryStore
from bkstore.pulsar import LeakReport, LeakSearch
from bkstore.pulsar.deletion import ListedLeak, delete_leaks
from tests.models.brokers import World

_STEPS = 120


def _make_world(seed: int) -> World:
    """Return a world in which brokers have worked for some time."""
    world = World(seed)
    for _ in range(world.rng.randint(1, _STEPS)):
        if world.rng.random() < 0.08:
            world.sleep()
        world.step()
    return world


def _reported(report: LeakReport) -> tuple[set[int], set[int]]:
    leaked, offloaded = (
        {each.ledger.ledger for each in report.ledgers if each.ledger_class == name}
        for name in ("leaked", "offloaded-copy")
    )
    return leaked, offloaded


def _check_world(seed: int, *, busy: bool) -> int:
    """Search a world whose brokers stand still, or go on; return how many ledgers are reported.

    What is reported is unneeded at the end; what was unneeded at the beginning is reported.
    """
    world = _make_world(seed)
    now = world.clock
    before = world.unneeded(now)
    world.busy = busy
    search = LeakSearch(world.store, world, now=now, pause=1.0, wait=lambda _: world.finish())
    report = search.run()
    world.busy = False
    world.finish()  # what is held by an operation is then gone or left behind
    leaked, offloaded = _reported(report)
    leaked_after, offloaded_after = world.unneeded(2 * now if busy else now)
    context = f"world {seed}, busy {busy}"

    assert leaked <= leaked_after, f"{context}: no leak: {leaked - leaked_after}"
    stored = {each.ledger for each in MemoryStore.ledgers(world.store)}
    offloaded_after |= offloaded - stored  # a copy may be deleted with its topic
    if busy:  # or taken off its list
        offloaded_after |= leaked_after
    assert offloaded <= offloaded_after, f"{context}: needed: {offloaded - offloaded_after}"
    if not any("is this its Pulsar" in each.detail for each in report.findings):
        assert before[0] <= leaked, f"{context}: not reported: {before[0] - leaked}"
        missed = (before[1] & stored) - leaked - offloaded - (leaked_after if busy else set())
        assert not missed, f"{context}: not reported: {missed}"
    return len(leaked | offloaded)


def _check_deletion(seed: int) -> int:
    """Delete what is reported, while brokers go on; return how many ledgers are deleted.

    No node refers to a ledger that was deleted, and no broker was about to list it.
    """
    world = _make_world(seed)
    world.finish()
    search = LeakSearch(world.store, world, now=world.clock)
    listed = [
        ListedLeak(each.ledger, each.ledger_class, each.stored.version)
        for each in search.run().ledgers
        if each.stored is not None
    ]
    world.clock += 10 * 60 * 1000
    world.busy = True
    deletions = delete_leaks(
        world.store, LeakSearch(world.store, world, now=world.clock), listed, apply=True
    )
    deleted = set()
    for each in deletions:
        if each.outcome == "deleted":
            deleted.add(each.ledger.ledger)
    world.busy = False
    needed = set()
    for topic in world.topics.values():
        needed |= {ledger for ledger, state in topic.ledgers.items() if state != "deleted"}
        needed |= {ledger for pair in topic.cursors.values() for ledger in pair if ledger}
        needed |= set(topic.schema)

    assert set() == deleted & needed, f"world {seed}"
    return len(deleted)


@pytest.mark.parametrize("count", [150, pytest.param(2500, marks=pytest.mark.long)])
def test_leaks_of_brokers(count: int) -> None:
    """Exactly the unneeded ledgers are reported, whether brokers stand still or go on."""
    still = sum(_check_world(seed, busy=False) for seed in range(count))
    busy = sum(_check_world(seed, busy=True) for seed in range(count, 2 * count))

    assert min(still, busy) > count


@pytest.mark.parametrize("count", [50, pytest.param(1000, marks=pytest.mark.long)])
def test_deletion_among_brokers(count: int) -> None:
    """No ledger is deleted that a topic refers to, while brokers go on."""
    assert sum(map(_check_deletion, range(count))) > count
