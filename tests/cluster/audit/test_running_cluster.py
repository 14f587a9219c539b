"""Audits of a running cluster: what faults did is found, what they did not is left alone."""

from __future__ import annotations

import random
from typing import Any

import pytest

from bkstore import BookieDir
from bkstore.cluster import AuditOptions, Auditor, Client, Cluster, MetadataStore
from bkstore.cluster.audit import AvailabilitySource, DirectoryBookie
from bkstore.formats.metadata.underreplication import UnderreplicatedMark
from bkstore.ids import LedgerId
from tests.models.audit import Row, World

MIXED: Any = ["db", "sorted", "interleaved"]
SETTINGS = [(3, 2, 2), (4, 2, 1), (5, 3, 2), (3, 1, 1), (4, 4, 3)]


@pytest.fixture
def running(bkstore_cluster: Any) -> Cluster:
    """Return six bookies of all storages."""
    made: Cluster = bkstore_cluster(6, MIXED)
    return made


def _audit(running: Cluster, bookies: Any = None, **options: Any) -> Any:
    auditor = Auditor(
        running.store,
        running.bookies if bookies is None else bookies,
        options=AuditOptions(**{"rechecks": 0} | options),
        wait=lambda _: None,
    )
    return auditor.run()


def _rows(report: Any) -> set[Row]:
    return {
        (v.category, v.ledger, v.first_entry, v.bookie, tuple(v.missing or ()))
        for v in report.violations
    }


def _seen(running: Cluster) -> World:
    """What the store and each bookie's own listing say, as a world for the oracle."""
    world = World(held={name: {} for name in running.bookies})
    for ledger in running.store.ledgers():
        world.ledgers.append(running.store.read(ledger).metadata)
        for name in running.bookies:
            held = set(running.bookie(name).entries(ledger).tolist())
            world.held[name][ledger] = held
    return world


def _life(running: Cluster, seed: int) -> dict[tuple[LedgerId, str], set[int]]:
    """Write ledgers while bookies fail, close some, lose entries; return what was lost."""
    chance = random.Random(seed)
    lost: dict[tuple[LedgerId, str], set[int]] = {}
    for number, (size, quorum, ack) in enumerate(SETTINGS):
        scope = chance.choice([0, 7])
        ledger = running.create_ledger(size, quorum, ack, scope=scope)
        ledger.append_many(b"x" * 20 for _ in range(chance.randint(3, 30)))
        down = chance.choice(ledger.metadata.segments[0].ensemble)
        running.crash(down)
        if size < 5:
            ledger.append_many(b"y" * 20 for _ in range(chance.randint(1, 30)))
        running.start(down)
        if number != 3:
            ledger.close()
        if number % 2 == 0:
            name = chance.choice(sorted(ledger.metadata.bookies))
            held = running.bookie(name).entries(ledger.ledger).tolist()
            taken = chance.sample(held, min(3, len(held)))
            running.lose(name, ledger.ledger, taken)
            lost[ledger.ledger, name] = set(taken)
    return lost


@pytest.mark.parametrize("seed", range(3))
def test_what_was_lost_is_found(running: Cluster, seed: int) -> None:
    """After crashes and ensemble changes only the entries that were taken out are missing."""
    lost = _life(running, seed)
    report = _audit(running)
    expected = _seen(running).rows()
    missing: dict[tuple[LedgerId, str], set[int]] = {}
    for row in _rows(report):
        missing.setdefault((row[1], row[3]), set()).update(row[4])

    assert expected == _rows(report)
    assert missing.keys() <= lost.keys()
    for key, entries in missing.items():
        assert entries <= lost[key]  # over-replicated ones may be lost without harm
    assert 1 == report.skipped["open"]


def test_online_and_offline_say_the_same(running: Cluster) -> None:
    """The directories of closed bookies give the rows that the running ones gave."""
    _life(running, 9)
    online = _rows(_audit(running))
    paths = {name: running.path_of(name) for name in running.bookies}
    running.close()
    opened = {name: BookieDir(path) for name, path in paths.items()}
    try:
        bookies = {name: DirectoryBookie(each) for name, each in opened.items()}
        offline = _rows(_audit(running, bookies))
    finally:
        for each in opened.values():
            each.close()

    assert online
    assert online == offline


def test_recovery_leaves_nothing_to_find(running: Cluster) -> None:
    """A ledger that another client recovered after a crash has all its replicas."""
    ledger = running.create_ledger(4, 3, 2)
    ledger.append_many(b"z" * 10 for _ in range(20))
    running.crash(ledger.metadata.segments[0].ensemble[1])
    client: Client = running.client("other")
    recovered = client.open_ledger(ledger.ledger)
    running.start(ledger.metadata.segments[0].ensemble[1])
    report = _audit(running)

    assert 19 == recovered.last_add_confirmed
    assert set() == _rows(report) - _seen(running).rows()
    assert _seen(running).rows() == _rows(report)
    assert 1 == report.checked


def test_a_ledger_lost_at_one_bookie(running: Cluster) -> None:
    """A bookie that forgot a ledger holds nothing of it."""
    ledger = running.create_ledger(3, 3, 2)
    ledger.append_many(b"a" for _ in range(5))
    ledger.close()
    name = ledger.metadata.segments[0].ensemble[2]
    running.lose_ledger(name, ledger.ledger)

    assert {("below_write_quorum", ledger.ledger, 0, name, (0, 1, 2, 3, 4))} == _rows(
        _audit(running)
    )


@pytest.mark.parametrize(
    ("fault", "known", "category"),
    [
        ("partition", False, "bookie_unavailable"),
        ("crash", False, "bookie_unavailable"),
        ("crash", True, None),
    ],
)
def test_bookies_that_do_not_answer(
    running: Cluster, fault: str, known: bool, category: str | None
) -> None:
    """Cut off or down: reported, unless unregistered and known; nothing is taken for lost."""
    ledger = running.create_ledger(3, 3, 2)
    ledger.append(b"a")
    ledger.close()
    name = ledger.metadata.segments[0].ensemble[0]
    getattr(running, fault)(name)
    running.store.set_unavailable(name, known)
    found = {(row[0], row[3]) for row in _rows(_audit(running, rechecks=1))}

    assert ({(category, name)} if category else set()) == found


def test_a_bookie_that_comes_back(running: Cluster) -> None:
    """A bookie that is started between two looks is asked then, and nothing is reported."""
    ledger = running.create_ledger(3, 3, 2)
    ledger.append(b"a")
    ledger.close()
    name = ledger.metadata.segments[0].ensemble[0]
    running.crash(name)
    auditor = Auditor(running.store, running.bookies, wait=lambda _: running.start(name))
    report = auditor.run()

    assert (True, 1, 1) == (report.clean, report.rechecks, report.checked)


def test_an_ensemble_change_under_the_check(running: Cluster) -> None:
    """Replication that moves a segment while it is judged: judged as it is afterwards."""
    ledger = running.create_ledger(3, 3, 2)
    ledger.append_many(b"a" for _ in range(4))
    ledger.close()
    store: MetadataStore = running.store
    ensemble = list(ledger.metadata.segments[0].ensemble)
    spare = next(name for name in running.bookies if name not in ensemble)
    running.lose_ledger(ensemble[0], ledger.ledger)

    class Moving:
        def availability(self, name: Any) -> Any:
            metadata, version = store.read(name)
            if version == ledger_version:
                from dataclasses import replace

                segments = ((0, (spare, *ensemble[1:])),)
                store.write(replace(metadata, segments=segments), version)  # type: ignore[arg-type]
            return running.bookies[ensemble[1]].availability(name)

    ledger_version = store.read(ledger.ledger).version
    bookies: dict[str, AvailabilitySource] = {**running.bookies, ensemble[1]: Moving()}
    report = _audit(running, bookies)

    assert {("below_write_quorum", ledger.ledger, 0, spare, (0, 1, 2, 3))} == _rows(report)
    assert 1 == report.redone


def test_marks_and_deleted_ledgers(running: Cluster) -> None:
    """A ledger marked for repair is left to it; a deleted one is no loss."""
    kept, gone = running.create_ledger(3, 2, 2), running.create_ledger(3, 2, 2)
    for ledger in (kept, gone):
        ledger.append(b"a")
        ledger.close()
        for name in ledger.metadata.bookies:
            running.lose_ledger(name, ledger.ledger)
    running.store.mark_underreplicated(kept.ledger, UnderreplicatedMark(1.0))
    running.delete_ledger(gone.ledger)
    report = _audit(running, grace_period=1.0)

    assert {("overdue", kept.ledger, None, None, ())} == _rows(report)
