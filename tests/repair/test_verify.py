"""Copies whose bytes have changed on a disk, while the index still lists them: `verify`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bkstore.availability import Availability
from bkstore.cluster import Cluster
from bkstore.cluster.audit import AuditOptions, Auditor
from bkstore.errors import BkstoreError, BookieUnavailable, InvalidArgument
from bkstore.formats.entry import Coder
from bkstore.ids import LedgerId
from bkstore.repair import Repairer, RepairOptions, RepairPlanner
from bkstore.repair.planning.byte_rate import ByteRate
from bkstore.repair.planning.verified_bookies import VerifiedBookies
from tests.repair.lossy_worlds import PASSWORD, LossyWorld, impossible_entries, open_world

VERIFY = RepairOptions(verify=True)


@pytest.fixture
def running(bkstore_cluster: Any) -> Cluster:
    """Return four bookies of one storage."""
    made: Cluster = bkstore_cluster(4)
    return made


def _written(running: Cluster, entries: int, digest: str = "CRC32C") -> LedgerId:
    with running.create_ledger(3, 3, 2, digest_type=digest, password=PASSWORD) as ledger:
        ledger.append_many(b"payload %d" % number for number in range(entries))
    running.flush()
    return ledger.ledger


def _is_sound(running: Cluster, bookie: str, ledger: LedgerId, entry: int) -> bool:
    digest = str(running.store.read(ledger).metadata.digest_type)
    try:
        record = running.bookie(bookie).read_entry(ledger, entry)
        return Coder(digest, PASSWORD).decode(record, ledger, entry).entry_id == entry
    except BkstoreError:
        return False


@pytest.mark.parametrize("part", ["payload", "header"])
def test_a_damaged_copy(running: Cluster, part: Any) -> None:
    """It is found by reading only, and written again to the bookie that lists it."""
    ledger = _written(running, 6)
    b1, b2, b3 = running.store.read(ledger).metadata.segments[0].ensemble
    for entry in (0, 4):
        running.corrupt(b1, ledger, entry, part)
    running.lose(b1, ledger, [5])
    others = {
        (name, entry): running.bookie(name).read_entry(ledger, entry)
        for name in (b2, b3)
        for entry in range(6)
    }
    without = Repairer(running.context).planner.plan().repairs
    repairer = Repairer(running.context, options=VERIFY)
    (row,) = repairer.planner.plan().repairs

    assert [[5]] == [list(each.missing) for each in without]
    assert ("write", b1, b2, b1) == (row.action, row.bookie, row.source, row.target)
    assert ([0, 4, 5], "damaged copies: 2 of 3") == (list(row.missing), row.detail)
    assert not _is_sound(running, b1, ledger, 0)
    report = repairer.run()
    assert report.is_clean
    assert ["damaged copies: 2 of 3"] == [each.detail for each in report.repairs]
    assert all(_is_sound(running, b1, ledger, entry) for entry in range(6))
    assert others == {key: running.bookie(key[0]).read_entry(ledger, key[1]) for key in others}
    running.flush()
    running.crash(b1)
    running.start(b1)
    assert repairer.planner.plan().is_clean


@pytest.mark.parametrize("entries", [1, 5])
def test_the_last_entry_is_read(running: Cluster, entries: int) -> None:
    """Every entry up to the last one is verified, also the only one."""
    ledger = _written(running, entries)
    bookie = running.store.read(ledger).metadata.segments[0].ensemble[1]
    running.corrupt(bookie, ledger, entries - 1, "payload")
    (row,) = Repairer(running.context, options=VERIFY).planner.plan().repairs

    assert (bookie, [entries - 1]) == (row.bookie, list(row.missing))


def test_the_pace_of_reads(running: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """All bytes that are read count for `bytes_per_second`, and reads are stopped at the end."""
    ledger = _written(running, 10)
    taken: list[int] = []
    stopped: list[bool] = []
    monkeypatch.setattr(ByteRate, "take", lambda _, byte_count: taken.append(byte_count))
    monkeypatch.setattr(VerifiedBookies, "stop", lambda _: stopped.append(True))
    assert Repairer(running.context, options=VERIFY).planner.plan().is_clean
    ensemble = running.store.read(ledger).metadata.segments[0].ensemble
    records = [running.bookie(name).read_entry(ledger, n) for name in ensemble for n in range(10)]

    assert sum(map(len, records)) == sum(taken)
    assert [True] == stopped


def test_a_source_that_never_answered(running: Cluster) -> None:
    """If the plan knew that the only source may lack the entries, it is no failure of the repair
    that it does not answer: the rest of the segment is repaired."""
    with running.create_ledger(2, 2, 2) as ledger:
        ledger.append_many([b"one", b"two"])
    b1, b2 = ledger.metadata.segments[0].ensemble
    running.lose(b1, ledger.ledger, [0])
    running.partition(b2)
    report = Repairer(running.context).run()
    details = {each.bookie: each.detail for each in report.repairs}

    assert {"impossible"} == {each.status for each in report.repairs}
    assert details[b1].startswith("no sound copy: ")


def test_no_sound_copy(running: Cluster) -> None:
    """Each bookie has a row: the entry is impossible, and nothing is written."""
    ledger = _written(running, 4)
    ensemble = running.store.read(ledger).metadata.segments[0].ensemble
    for bookie in ensemble:
        running.corrupt(bookie, ledger, 2, "payload")
    report = Repairer(running.context, options=VERIFY).run()

    assert 0 == report.copied_entries
    assert {bookie: [2] for bookie in ensemble} == {
        each.bookie: list(each.missing) for each in report.repairs
    }
    assert {"impossible"} == {each.status for each in report.repairs}


def test_the_open_segment_is_not_read(running: Cluster) -> None:
    """Entries that a writer may still change are listed as they are."""
    ledger = running.create_ledger(2, 2, 2, password=PASSWORD)
    ledger.append_many([b"one", b"two"])
    running.flush()
    running.corrupt(ledger.metadata.segments[0].ensemble[0], ledger.ledger, 1, "payload")

    assert [] == Repairer(running.context, options=VERIFY).planner.plan().repairs


def test_a_digest_that_needs_a_password(running: Cluster) -> None:
    """Copies that cannot be verified are not called damaged: the plan says so instead."""
    ledger = _written(running, 3, "HMAC")
    versioned = running.store.read(ledger)
    running.store.write(replace(versioned.metadata, password=None), versioned.version)
    plan = Repairer(running.context, options=VERIFY).planner.plan()

    assert [] == plan.repairs
    assert not plan.is_clean
    assert "password" in " ".join(plan.summary())
    options = RepairOptions(verify=True, password=PASSWORD)
    assert Repairer(running.context, options=options).planner.plan().is_clean


def test_a_bookie_that_gives_no_answer(running: Cluster) -> None:
    """An error that leaves it open whether a copy is sound makes none of them damaged."""
    ledger = _written(running, 3)
    bookie = running.store.read(ledger).metadata.segments[0].ensemble[0]
    sources = VerifiedBookies(running.bookies, running.context, VERIFY)
    listed = Availability.from_entries(range(3))
    assert listed == sources[bookie].availability(ledger)
    running.partition(bookie)
    with pytest.raises(BookieUnavailable):
        sources.verify(bookie, ledger, listed)
    assert {} == sources.damaged
    running.heal(bookie)
    sources.stop()
    with pytest.raises(BookieUnavailable, match="was stopped"):
        sources.verify(bookie, ledger, listed)


def test_verify_needs_readers(running: Cluster) -> None:
    """A planner without clients cannot read copies."""
    with pytest.raises(InvalidArgument, match="readers"):
        RepairPlanner(running.store, running.bookies, options=VERIFY)


def _check_every_copy(world: LossyWorld) -> None:
    """Repair a world; then each copy of an entry is sound of which any copy was."""
    to_stay_lost = world.without_copy() & world.finished_entries()
    report = Repairer(world.cluster.context, options=VERIFY).run()
    sound = dict(world.read_all())
    assert {"repaired", "impossible"} >= {each.status for each in report.repairs}
    assert to_stay_lost == impossible_entries(report.repairs)
    assert world.sound.items() <= sound.items()
    for ledger, entry in world.finished_entries() - to_stay_lost:
        assert all((ledger, entry, name) in sound for name in world.write_set(ledger, entry))
    again = Repairer(world.cluster.context, options=VERIFY).run()
    assert 0 == again.copied_entries
    if not to_stay_lost and not report.removed_marks:
        audit = Auditor(
            world.cluster.store, world.cluster.bookies, options=AuditOptions(rechecks=0)
        ).run()
        assert [] == [each for each in audit.violations if each.missing]


@pytest.mark.parametrize("seed", [5, 9, 17])
def test_worlds(tmp_path: Path, seed: int) -> None:
    """Among rows, ledgers and bookies that are lost, all damaged copies are found too."""
    world = open_world(tmp_path, seed)
    try:
        _check_every_copy(world)
    finally:
        world.cluster.close()


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("block", range(3))
def test_many_worlds(tmp_path: Path, block: int) -> None:
    """The same for many worlds."""
    for seed in range(50 * block, 50 * block + 50):
        world = open_world(tmp_path / str(seed), seed)
        try:
            _check_every_copy(world)
        finally:
            world.cluster.close()
