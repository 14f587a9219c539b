"""The real auditor and replication worker over our bookies: what one lost is copied to another."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bkstore import BookieDir
from bkstore.errors import LedgerFenced
from bkstore.repair import Repairer
from bkstore.schedule import expected
from tests.interop.clusters.conftest import MakeClient, MakeCluster
from tests.interop.clusters.recovery.replication import replication
from tests.interop.clusters.recovery.worlds import NUMBERS, PAYLOADS, World
from tests.interop.driver import RealError

SHORT = 1.5
"""Seconds in which a worker that may would have copied."""


@pytest.fixture
def world(new_cluster: MakeCluster, tmp_path: Path) -> Iterator[World]:
    """Yield five bookies of ours in a cluster of their own."""
    found = World(new_cluster(), tmp_path)
    yield found
    found.close()


def test_a_lost_bookie(world: World, real_client: MakeClient) -> None:
    """The auditor marks the ledgers of the lost bookie and no others; the worker copies
    what it had to have to another; the marks go; both clients read all, and so does the copy's
    own directory."""
    ledgers = {name: world.written(PAYLOADS, *numbers) for name, numbers in NUMBERS.items()}
    empty = world.written([], 3, 2, 2)
    lost = ledgers["striped"].metadata.segments[0].ensemble[1]
    untouched = [
        each
        for each in (*ledgers.values(), empty)
        if lost not in each.metadata.segments[0].ensemble
    ]
    concerned = {name: each for name, each in ledgers.items() if each not in untouched}
    ensembles = {name: each.metadata.segments[0].ensemble for name, each in ledgers.items()}
    world.lose(lost)
    with replication(world.cluster, "auditor"):
        world.until(lambda: len(world.store.underreplicated()) == 4 - len(untouched))
    marked = world.store.underreplicated()

    assert {lost} == {name for mark in marked.values() for name in mark.missing_bookies}
    assert {name.ledger: [lost] for name in marked} == world.marks.all()
    assert {each.ledger for each in ledgers.values()} >= {*marked} - {empty.ledger}
    assert not {each.ledger for each in untouched} & {*marked}
    with replication(world.cluster, "worker"):
        world.until(lambda: all(world.replaced(each, lost) for each in concerned.values()))
    theirs = real_client(world.cluster)
    copies = {}
    for name, each in concerned.items():
        (segment,) = world.store.read(each.ledger).metadata.segments
        place = ensembles[name].index(lost)
        (copy,) = {*segment.ensemble} - {*ensembles[name]}
        assert copy == segment.ensemble[place]
        copies[name] = (copy, expected(0, 89, place, *NUMBERS[name][:2]))
        theirs.open(each.id, recovery=False)
        assert PAYLOADS == theirs.read(each.id, 0, 89)
        reader = world.client.open_ledger(each.ledger, password=b"pw")
        assert PAYLOADS == [entry.payload for entry in reader.read(0, 89)]
    for name in list(world.bookies):
        world.lose(name)
    for name, (copy, held) in copies.items():
        with BookieDir(world.folder / copy) as found:
            copied = found.index.availability(concerned[name].ledger)
            assert 0 == len(held - copied)  # it copies others' entries between them too
            for entry in held.entries().tolist():
                assert found.read_entry(concerned[name].ledger, entry).endswith(PAYLOADS[entry])


def test_both_in_one_process(world: World) -> None:
    """`AutoRecoveryMain` over our bookies, as operators run it: two bookies lost in turn."""
    ledger = world.written(PAYLOADS, 3, 2, 2)
    with replication(world.cluster, "autorecovery"):
        world.until(lambda: world.store.underreplication.auditor() is not None)
        for _ in range(2):
            lost = world.store.read(ledger.ledger).metadata.segments[0].ensemble[0]
            world.lose(lost)
            world.until(lambda lost=lost: world.replaced(ledger, lost))  # type: ignore[misc]
    reader = world.client.open_ledger(ledger.ledger, password=b"pw")

    assert PAYLOADS == [entry.payload for entry in reader.read(0, 89)]


@pytest.mark.parametrize("writer", ["ours", "real"])
def test_open_ledger(world: World, real_client: MakeClient, writer: str) -> None:
    """An open ledger whose last ensemble has a lost bookie, and whose writer is silent: after the
    grace period the worker recovers it, and the writer is fenced by our bookies."""
    theirs = real_client(world.cluster)
    if writer == "ours":
        mine = world.written(PAYLOADS, 3, 2, 2, close=False)
        ledger = mine.ledger
    else:
        ledger = world.store.read(theirs.create(3, 2, 2)).metadata.ledger
        theirs.add(ledger.ledger, PAYLOADS)
    lost = world.store.read(ledger).metadata.segments[0].ensemble[2]
    world.lose(lost)
    with replication(world.cluster, "autorecovery"):
        world.until(lambda: world.store.read(ledger).metadata.closed)
        world.until(lambda: ledger not in world.store.underreplicated())
    if writer == "ours":
        with pytest.raises(LedgerFenced):
            mine.append(b"late")
    else:
        with pytest.raises(RealError):
            theirs.add(ledger.ledger, [b"late"])

    metadata = world.store.read(ledger).metadata
    assert 89 == metadata.last_entry_id
    assert not any(lost in members for _, members in metadata.segments)
    reader = world.client.open_ledger(ledger, password=b"pw")
    assert PAYLOADS == [entry.payload for entry in reader.read(0, 89)]


def test_our_marks_and_locks(world: World) -> None:
    """A mark of ours is copied by the real worker, but not while a lock of ours lies on it."""
    ledger = world.written(PAYLOADS, 3, 2, 2)
    lost = ledger.metadata.segments[0].ensemble[0]
    world.lose(lost)
    ours = world.store.underreplication

    assert ours.mark(ledger.ledger, [lost])
    assert {ledger.id: [lost]} == world.marks.all()
    lock = ours.lock_any()
    assert lock is not None
    assert (ledger.ledger, True) == (lock.ledger, world.marks.locked(ledger.id))
    assert -1 == world.marks.take()
    with replication(world.cluster, "worker"):
        time.sleep(SHORT)
        assert lost in world.store.read(ledger.ledger).metadata.segments[0].ensemble
        ours.release(lock)
        world.until(lambda: world.replaced(ledger, lost))


def test_real_marks_and_locks(world: World) -> None:
    """Marks and locks of the real classes are ours: read, added to, respected, and the mark that
    came again is not removed by whoever is done."""
    marks, ours, name = world.marks, world.store.underreplication, 12_345_678_901
    marks.mark(name, ["b7"])

    assert ours.mark(name, ["b7", "b8"])
    assert not ours.mark(name, ["b8"])
    assert {name: ["b7", "b8"]} == marks.all()
    (found,) = world.store.underreplicated().values()
    assert (("b7", "b8"), True) == (found.missing_bookies, found.marked_at is not None)
    assert name == marks.take()
    assert ours.lock_any() is None
    assert ours.lock(name) is None
    assert ours.holder(name)
    ours.mark(name, ["b9"])
    marks.done(name)
    assert {name: ["b7", "b8", "b9"]} == marks.all()
    lock = ours.lock_any()
    assert lock is not None
    marks.mark(name, ["b10"])
    assert not ours.mark_replicated(lock)
    assert name == marks.take()
    marks.done(name)
    assert {} == marks.all()
    assert {} == world.store.underreplicated()


@pytest.mark.parametrize("who", ["ours", "real"])
def test_disabled(world: World, who: str) -> None:
    """While replication is disabled, by us or by the real classes, the real worker copies
    nothing; both see that it is, and either enables it again."""
    ledger = world.written(PAYLOADS, 3, 2, 2)
    lost = ledger.metadata.segments[0].ensemble[0]
    world.lose(lost)
    ours = world.store.underreplication
    ours.mark(ledger.ledger, [lost])
    if who == "ours":
        ours.disable()
    else:
        world.marks.enable(False)

    assert (False, False) == (ours.enabled, world.marks.enabled())
    with replication(world.cluster, "worker"):
        time.sleep(SHORT)
        assert lost in world.store.read(ledger.ledger).metadata.segments[0].ensemble
        if who == "ours":
            world.marks.enable(True)
        else:
            ours.enable()
        world.until(lambda: world.replaced(ledger, lost))
    assert (True, True) == (ours.enabled, world.marks.enabled())


def test_read_only_bookies_are_not_lost(world: World) -> None:
    """The real auditor marks the ledgers of a bookie that is gone, and none for one of ours that
    is read-only."""
    ledger = world.written(PAYLOADS, 5, 2, 2)
    world.used["b0"] = 0.99
    world.bookies["b0"].check_disks()
    world.lose("b4")
    with replication(world.cluster, "auditor"):
        world.until(world.store.underreplicated)

    assert {"b0"} == world.store.read_only_bookies()
    assert {ledger.id: ["b4"]} == world.marks.all()


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
