"""Leaks in worlds of brokers that create, roll, trim, offload, compact and end at any step."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from bkstore.cluster.store.key_value_store import MemoryStore
from bkstore.errors import MetadataUnavailable
from bkstore.ids import LedgerId
from bkstore.pulsar import LeakReport, LeakSearch
from bkstore.pulsar.deletion import LedgerDeletion, ListedLeak, delete_leaks
from tests.models.brokers import World

_STEPS = 120
_LONG = [pytest.mark.long, pytest.mark.timeout(1800)]


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


class _FaultyStore:
    """The store of a world whose sessions are lost, and whose ledgers change, while it deletes."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.deleted: set[int] = set()
        self.changed: set[int] = set()
        self.has_faults = True

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._world.store, attribute)

    def delete(self, ledger: int | LedgerId, version: int | None = None) -> None:
        """Delete a ledger, unless its metadata change or the session ends before; or let it end
        when the ledger is deleted already."""
        fault = self._world.rng.choice([None, "changed", "before", "after"])
        if self.has_faults and fault == "changed":
            current = self._world.store.read(ledger)
            self._world.store.write(current.metadata, current.version)
            self.changed.add(LedgerId.of(ledger).ledger)
        if self.has_faults and fault == "before":
            raise MetadataUnavailable("the session is lost")
        self._world.store.delete(ledger, version)
        self.deleted.add(LedgerId.of(ledger).ledger)
        if self.has_faults and fault == "after":
            raise MetadataUnavailable("the session is lost")


def _check_deletion(seed: int) -> int:
    """Delete what is reported, while brokers go on, sessions are lost and ledgers change, until the
    list is through; return how many ledgers are deleted.

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
    store = _FaultyStore(world)
    outcomes: list[LedgerDeletion] = []
    for attempt in range(3):
        store.has_faults = attempt < 2
        search = LeakSearch(store, world, now=world.clock)  # type: ignore[arg-type]
        with suppress(MetadataUnavailable):
            outcomes = list(delete_leaks(store, search, listed, apply=True))  # type: ignore[arg-type]
    world.busy = False
    needed = set()
    for topic in world.topics.values():
        needed |= {ledger for ledger, state in topic.ledgers.items() if state != "deleted"}
        needed |= {ledger for pair in topic.cursors.values() for ledger in pair if ledger}
        needed |= set(topic.schema)

    assert set() == store.deleted & needed, f"world {seed}"
    assert set() == store.deleted & store.changed, f"world {seed}"
    assert [each.ledger for each in listed] == [each.ledger for each in outcomes], f"world {seed}"
    stored = {each.ledger for each in MemoryStore.ledgers(world.store)}
    gone = {each.ledger.ledger for each in outcomes if each.outcome in ("deleted", "gone")}
    assert set() == gone & stored, f"world {seed}: not deleted: {gone & stored}"
    return len(store.deleted)


@pytest.mark.parametrize("count", [150, pytest.param(10_000, marks=_LONG)])
def test_leaks_of_brokers(count: int) -> None:
    """Exactly the unneeded ledgers are reported, whether brokers stand still or go on."""
    still = sum(_check_world(seed, busy=False) for seed in range(count))
    busy = sum(_check_world(seed, busy=True) for seed in range(count, 2 * count))

    assert min(still, busy) > count


@pytest.mark.parametrize("count", [30, pytest.param(10_000, marks=_LONG)])
def test_deletion_among_brokers(count: int) -> None:
    """No ledger is deleted that a topic refers to, while brokers go on, sessions are lost and the
    metadata of ledgers change; a list can be taken up again."""
    assert sum(map(_check_deletion, range(count))) > count // 2
