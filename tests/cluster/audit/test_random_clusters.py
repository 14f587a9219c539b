"""Audits of random clusters against a per-entry oracle: in memory, and in real directories."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bkstore import BookieDir, LedgerStorage
from bkstore.availability import Availability
from bkstore.availability.sequence_groups import Groups
from bkstore.cluster import MemoryStore
from bkstore.cluster.audit import AuditOptions, Auditor, AuditReport, DirectoryBookie, GroupsBookie
from bkstore.durability.missing_entries import (
    ExpectedEntries,
    HeldEntries,
    has_expected_entries,
    missing_entries,
)
from bkstore.durability.violations import DURABILITY_CATEGORIES, find_worst_shortage
from bkstore.formats.entry import Entry, encode
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerMetadata
from tests.models.audit import (
    BOOKIES,
    HeldBookie,
    Row,
    World,
    expected_count,
    random_world,
    stores,
)

ONCE = AuditOptions(rechecks=0)
KINDS: list[Any] = ["db", "sorted", "interleaved"]


def _store(world: World) -> MemoryStore:
    store = MemoryStore()
    for metadata in world.ledgers:
        store.create(metadata)
    for bookie in BOOKIES:
        if bookie in world.silent:
            store.set_unavailable(bookie)
        else:
            store.register_bookie(bookie)
    return store


def _rows(report: AuditReport) -> set[Row]:
    rows = [
        (v.category, v.ledger, v.first_entry, v.bookie, tuple(v.missing.entries().tolist()))
        for v in report.violations
        if v.category in DURABILITY_CATEGORIES
    ]

    assert len(set(rows)) == len(rows)
    return set(rows)  # type: ignore[arg-type]


def _check(world: World, bookies: Any, options: AuditOptions = ONCE) -> AuditReport:
    report = Auditor(_store(world), bookies, options=options).run()
    closed = [each for each in world.ledgers if each.state == "CLOSED"]
    expected = world.rows()
    counts = {
        name: len({row[1] for row in expected if row[0] == name}) for name in DURABILITY_CATEGORIES
    }

    assert expected == _rows(report)
    assert counts == {name: report.counts[name] for name in DURABILITY_CATEGORIES}
    assert len(closed) == report.checked
    assert len(world.ledgers) - len(closed) == sum(report.skipped.values())
    assert sum(each.last_entry_id == -1 for each in closed) == report.empty
    return report


def _held(world: World) -> dict[str, HeldBookie]:
    return {name: HeldBookie(world, name) for name in BOOKIES}


@pytest.mark.parametrize("seed", range(60))
def test_rows_equal_the_oracle(seed: int) -> None:
    """Rows, counts and skips of a random cluster are those found entry by entry."""
    world = random_world(seed)
    bookies = _held(world)
    _check(world, bookies, AuditOptions(rechecks=0, batch=1 + seed % 7))
    asked = [(name, ledger) for name, each in bookies.items() for ledger in each.asked]

    assert len(set(asked)) == len(asked)  # once a bookie and ledger


@pytest.mark.parametrize("seed", range(20))
def test_silent_bookies_are_not_counted_as_losses(seed: int) -> None:
    """What a bookie that gives no answer holds is not judged; the others are."""
    world = random_world(1000 + seed)
    world.silent = set(random.Random(seed).sample(BOOKIES, 2))
    report = _check(world, _held(world))

    assert not report.unanswered  # not registered, and known to be unavailable
    assert set(report.excused) <= world.silent


@pytest.mark.long
@pytest.mark.parametrize("part", range(20))
def test_rows_equal_the_oracle_often(part: int) -> None:
    """The same on 4,000 more clusters, longer ones among them."""
    for seed in range(part * 200 + 10_000, part * 200 + 10_200):
        world = random_world(seed, ledgers=8, longest=30 + seed % 300)
        _check(world, _held(world))


# -- on disk


def _write(world: World, top: Path, chance: random.Random) -> dict[str, Path]:
    """Write each bookie's entries through a storage of a random kind."""
    paths = {}
    for name in BOOKIES:
        paths[name] = top / name
        with LedgerStorage.open(paths[name], chance.choice(KINDS)) as storage:
            for ledger, entries in world.held[name].items():
                storage.set_master_key(ledger, b"k" * 20)
                shuffled = sorted(entries)
                chance.shuffle(shuffled)
                for entry in shuffled:
                    storage.add_entry(encode(Entry(ledger, entry, -1, 0, b""), "DUMMY"))
    return paths


def _audit_directories(
    world: World, paths: dict[str, Path], check: Callable[[World, Any], AuditReport]
) -> AuditReport:
    with ExitStack() as stack:
        opened = {name: stack.enter_context(BookieDir(path)) for name, path in paths.items()}
        return check(world, {name: DirectoryBookie(each) for name, each in opened.items()})


@pytest.mark.parametrize("seed", range(4))
def test_directories_of_all_storages_mixed(seed: int, tmp_path: Path) -> None:
    """Bookies with db, sorted and interleaved storage, 128-bit ledgers too, equal the oracle."""
    world = random_world(2000 + seed, ledgers=8, longest=25)
    paths = _write(world, tmp_path, random.Random(seed))
    _audit_directories(world, paths, _check)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100))
def test_directories_of_all_storages_often(seed: int, tmp_path: Path) -> None:
    """The same for a hundred more clusters."""
    world = random_world(5000 + seed, ledgers=10, longest=60)
    paths = _write(world, tmp_path, random.Random(seed))
    _audit_directories(world, paths, _check)


@pytest.mark.parametrize("kind", KINDS)
def test_entries_beyond_31_bits(kind: Any, tmp_path: Path) -> None:
    """Segments over 2^31 entries: counted out by arithmetic, and looked at in a window."""
    change, last, size, quorum = 2**31 - 3, 2**31 + 40, 5, 2
    ensembles = (tuple(BOOKIES[:5]), (*BOOKIES[:4], BOOKIES[5]))
    ledger = LedgerId(0, 9)
    metadata = LedgerMetadata(
        ledger,
        size,
        quorum,
        2,
        ((0, ensembles[0]), (change, ensembles[1])),  # type: ignore[arg-type]
        state="CLOSED",
        last_entry_id=last,
        length=1,
        digest_type="DUMMY",
        password=b"",
    )
    world = World([metadata], {name: {} for name in BOOKIES})
    window = range(change - 20, last + 1)
    lost = {change - 7, change, 2**31, 2**31 + 1, last}
    for name in BOOKIES[:6]:
        world.held[name][ledger] = {entry for entry in window if entry not in lost}
    paths = _write(world, tmp_path, random.Random(kind))

    def check(world: World, bookies: Any) -> AuditReport:
        return Auditor(_store(world), bookies, options=ONCE).run()

    report = _audit_directories(world, paths, check)
    found = {(v.first_entry, v.bookie): v for v in report.violations}

    assert {(0, name) for name in ensembles[0]} <= set(found)
    for first, end, ensemble in ((0, change - 1, ensembles[0]), (change, last, ensembles[1])):
        for index, name in enumerate(ensemble):
            missing = found[first, name].missing if (first, name) in found else Availability()
            due = expected_count(first, end, index, size, quorum)
            here = [e for e in window if first <= e <= end and stores(e, index, size, quorum)]
            gone = [e for e in here if e in lost]

            assert due - (len(here) - len(gone)) == len(missing)
            assert gone == [e for e in here if e in missing]
            assert len(missing.groups) <= 8  # said in groups, whatever the number
    assert {"no_replica"} == {v.category for v in report.violations}


# -- the kernel


def _random_due(chance: random.Random) -> tuple[list[tuple[int, ...]], list[Any], dict[int, Any]]:
    """Rows of one bookie over several ledgers, its answers, and what is missing of each row."""
    rows: list[tuple[int, ...]] = []
    answers, missing = [], {}
    for number in range(chance.randint(1, 6)):
        base = chance.choice([0, 0, 2**31 - 30, 2**62 - 20, 2**63 - 200])
        starts = sorted({base + chance.randint(0, 120) for _ in range(3)})
        size = chance.randint(1, 7)
        quorum = chance.randint(1, size)
        held: set[int] = set()
        due: dict[int, set[int]] = {}
        for first, after in zip(starts, [*starts[1:], starts[-1] + chance.randint(1, 60)]):
            last, index = min(after - 1, 2**63 - 2), chance.randrange(size)
            wanted = {e for e in range(first, last + 1) if stores(e, index, size, quorum)}

            assert bool(wanted) == has_expected_entries(first, last, index, size, quorum)
            if wanted:
                due[len(rows)] = wanted
                rows.append((number, first, last, index, size, quorum))
                held |= wanted - set(chance.sample(sorted(wanted), chance.randint(0, 1)))
        held |= {base + chance.randint(0, 400) % 199 for _ in range(chance.choice([0, 9]))}
        answers.append((number, Availability.from_entries(sorted(held))))
        missing.update({row: sorted(wanted - held) for row, wanted in due.items()})
    return rows, answers, missing


@pytest.mark.parametrize("seed", range(300))
def test_many_ledgers_on_one_axis(seed: int) -> None:
    """Each row's missing entries are those of sets, whatever lies beside it on the axis."""
    rows, answers, missing = _random_due(random.Random(seed))
    due = ExpectedEntries(*np.array(rows, np.int64).reshape(-1, 6).T)
    owners = {row[0] for row in rows}
    held = HeldEntries.from_availabilities([each for each in answers if each[0] in owners])
    found = {row: gone.entries().tolist() for row, gone in missing_entries(due, held)}

    assert {row: gone for row, gone in missing.items() if gone} == found


def test_the_worst_entry_decides() -> None:
    """The shortage is the largest number of bookies that lack one and the same entry."""
    sets = [{1, 2, 9}, {2, 3}, {2, 9}, set(), {9}]
    found = find_worst_shortage(Availability.from_entries(sorted(each)) for each in sets)

    assert (3, 2) == found
    assert None is find_worst_shortage([Availability(), Availability()])


def test_groups_of_several_directories_are_one_bookie() -> None:
    """Groups that overlap, in any order of rows, are the union of their entries."""
    rows = [(1, 7, 10, 20, 1, 5), (0, 7, 3, 3, 4, 0), (0, 7, 0, 12, 2, 4), (0, 8, 5, 5, 1, 0)]
    scope, ledger, *groups = np.array(rows, np.int64).T
    bookie = GroupsBookie(scope, ledger, Groups(*groups))

    assert [0, 1, 3, 4, 5, 6, 8, 9, 12, 13] == bookie.availability(7).entries().tolist()
    assert [10, 15, 20] == bookie.availability(LedgerId(1, 7)).entries().tolist()
    assert [] == bookie.availability(9).entries().tolist()
