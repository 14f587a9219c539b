"""BackgroundCollector: when it runs, how it is forced, suspended and given up, what it counts."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from bkstore import Bookie, LedgerId
from bkstore.cluster.garbage import BackgroundCollector, GarbageOptions
from bkstore.cluster.store.key_value_store import MemoryStore
from bkstore.errors import IllegalOperation
from tests.cluster.garbage.bookies import (
    GONE,
    KINDS,
    LIVE,
    OPTIONS,
    Clock,
    add,
    log_bytes,
    open_bookie,
    store_of,
    until,
)

# -- schedule, steering


def test_passes_compact_by_the_schedule(bookie: Bookie) -> None:
    """None, minor and major passes, as their time comes; a forced one at once."""
    clock = Clock()
    collector = BackgroundCollector(bookie, store_of(LIVE, GONE), OPTIONS, clock=clock)
    counts = bookie.storage.garbage_passes.counts
    seen = []
    for now in (10.0, 61.0, 100.0, 301.0, 360.0, 362.0):
        clock.now = now
        collector.run_pass()
        seen.append((counts["minor"], counts["major"]))

    assert [(0, 0), (1, 0), (1, 0), (1, 1), (1, 1), (2, 1)] == seen

    collector.run_pass(["minor"])
    collector.run_pass([])

    assert {"minor": 3, "major": 1} == counts


def test_the_schedule_runs_in_a_thread(bookie: Bookie) -> None:
    """From `start` on; with a wait of 0 it never begins by itself."""
    never = BackgroundCollector(bookie, store_of(LIVE), GarbageOptions(gc_wait_time=0))
    never.start()

    assert never._thread is None

    with BackgroundCollector(bookie, store_of(LIVE), GarbageOptions(gc_wait_time=0.01)) as running:
        running.start()
        until(lambda: running.stats.passes.succeeded >= 3)

    assert [LIVE] == bookie.ledgers()
    with pytest.raises(IllegalOperation, match="closed"):
        running.force()
    with pytest.raises(IllegalOperation, match="closed"):
        running.start()


class Held(MemoryStore):
    """A store whose list waits."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.go = threading.Event(), threading.Event()

    def ledgers(self, scope: int | None = None) -> list[LedgerId]:
        """Wait to be let."""
        self.asked.set()
        assert self.go.wait(30)
        return [LIVE, GONE]


def test_one_forced_pass_at_a_time(bookie: Bookie) -> None:
    """A second one is not asked for while the first is, and may be when that has ended."""
    store = Held()
    with BackgroundCollector(bookie, store) as collector:
        assert (False, True) == (collector.is_forced, collector.force())
        assert store.asked.wait(30)
        assert (True, False) == (collector.is_forced, collector.force())
        store.go.set()
        until(lambda: not collector.is_forced)

        assert collector.force()
        until(lambda: not collector.is_forced)

    assert 2 == bookie.storage.garbage_passes.counts["major"]


def test_what_is_suspended(bookie: Bookie) -> None:
    """A suspended kind is not compacted, by the schedule or when a pass is forced, unless that
    says it is meant; two reasons have to be taken back one by one."""
    with BackgroundCollector(bookie, store_of(LIVE), OPTIONS) as collector:
        counts = bookie.storage.garbage_passes.counts
        collector.suspend("major")
        collector.set_disks_full(True)
        collector.resume("major")

        assert (True, True) == (collector.is_suspended("major"), collector.is_suspended("minor"))

        collector.force()
        until(lambda: not collector.is_forced)

        assert {"minor": 0, "major": 0} == counts

        collector.force(minor=True)
        until(lambda: not collector.is_forced)

        assert {"minor": 1, "major": 0} == counts

        collector.set_disks_full(False)

        assert (False, False) == (collector.is_suspended("major"), collector.is_suspended("minor"))

        collector.force(major=False)
        until(lambda: not collector.is_forced)
        collector.force()
        until(lambda: not collector.is_forced)

    assert {"minor": 2, "major": 1} == counts


def test_full_disks_may_force_a_pass(bookie: Bookie) -> None:
    """With `is_force_gc_allow_when_no_space` nothing is suspended: a pass is forced."""
    options = GarbageOptions(is_force_gc_allow_when_no_space=True)
    with BackgroundCollector(bookie, store_of(LIVE), options) as collector:
        collector.set_disks_full(False)

        assert not collector.is_forced

        collector.set_disks_full(True)
        until(lambda: not collector.is_forced)

        assert not collector.is_suspended("major")
    assert [LIVE] == bookie.ledgers()


@pytest.mark.parametrize("how", ["suspend", "close"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("transactional", [False, True])
def test_a_compaction_that_is_given_up(
    tmp_path: Path, kind: Any, how: str, transactional: bool
) -> None:
    """One that would take minutes ends at once; nothing is lost, and the next pass that may do it
    finishes it. What was copied before is not copied again, unless it was a transaction."""
    with open_bookie(tmp_path / "b", kind) as bookie:
        for start in range(0, 60, 15):
            add(bookie, LIVE, range(start, start + 15))
            add(bookie, GONE, range(start, start + 15))
            bookie.storage.flush()
        options = GarbageOptions(
            compaction_rate_by_entries=1, use_transactional_compaction=transactional
        )
        slow = BackgroundCollector(bookie, store_of(LIVE), options)
        slow.force()
        until(lambda: bookie.storage.garbage_passes.running_kind == "major")
        until(lambda: slow.stats.deletion_scans.succeeded)
        slow.suspend("major") if how == "suspend" else slow.close()
        until(lambda: not slow.is_forced)
        slow.close()

        assert b"<0/2>" in log_bytes(bookie)
        assert list(range(60)) == bookie.entries(LIVE).tolist()

        fast = GarbageOptions(
            compaction_rate_by_entries=10**6, use_transactional_compaction=transactional
        )
        report = BackgroundCollector(bookie, store_of(LIVE), fast).run_pass(["major"])

        assert 60 == slow.stats.moved_entries + report.moved_entries
        assert b"<0/2>" not in log_bytes(bookie)
        batch = bookie.read_entries(LIVE, 0)
        assert list(range(60)) == batch.entries.tolist()


def test_figures_are_what_was_done(bookie: Bookie) -> None:
    """Ledgers, entries and bytes by hand: 40 entries of 440 bytes are moved, as many are freed,
    with 4 bytes of size each."""
    collector = BackgroundCollector(bookie, store_of(LIVE))
    collector.run_pass(["major"])
    figures = collector.stats
    size = len(bookie.read_entry(LIVE, 0))

    assert (1, 1, 40, 40 * size) == (
        figures.deleted_ledgers,
        figures.active_ledgers,
        figures.moved_entries,
        figures.moved_bytes,
    )
    assert 40 * (size + 4) == figures.reclaimed_by_compaction + figures.reclaimed_by_deletion
    assert (1, 0, 1) == (
        figures.passes.succeeded,
        figures.passes.failed,
        figures.deletion_scans.succeeded,
    )
    assert figures.log_bytes == figures.live_bytes
    assert sum(figures.usage[4:7]) == sum(figures.usage)


def test_databases_of_locations_are_compacted_by_an_interval(tmp_path: Path) -> None:
    """Off by default; else behind a pass, when it is time."""
    clock, counts = Clock(), []
    options = GarbageOptions(gc_wait_time=10, entry_location_compaction_interval=20)
    with open_bookie(tmp_path) as bookie:
        collector = BackgroundCollector(bookie, None, options, clock=clock)
        for now in (10.0, 21.0, 30.0, 42.0):
            clock.now = now
            collector.run_pass()
            counts.append(collector.location_compactions)

    assert [0, 1, 1, 2] == counts
