"""BackgroundCollector: what its passes delete, remove, compact and tell; how it is steered."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bkstore import Bookie, LedgerId
from bkstore.cluster.garbage import BackgroundCollector, GarbageOptions
from bkstore.cluster.store.key_value_store import MemoryStore
from bkstore.errors import IllegalOperation, MetadataUnavailable
from bkstore.formats.entry import Entry, encode, master_key
from bkstore.ledger_metadata import LedgerMetadata
from bkstore.storage.ledgers.compaction_throttle import CompactionThrottle
from bkstore.storage.ledgers.garbage_pass import Compaction, GarbagePass
from bkstore.storage.options import JournalOptions, StorageOptions

KINDS: tuple[Any, ...] = ("sorted", "interleaved", "db")
KEY = master_key("pw")
LIVE, GONE, SCOPED = LedgerId(0, 1), LedgerId(0, 2), LedgerId(9, 2)
OPTIONS = GarbageOptions(
    gc_wait_time=10, minor_compaction_interval=60, major_compaction_interval=300
)


class Clock:
    """Time that passes by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def open_bookie(path: Path, kind: Any = "db", log_size: int = 1 << 20) -> Bookie:
    """Open a bookie with small files."""
    return Bookie.open(
        path,
        kind,
        options=StorageOptions(entry_log_size=log_size),
        journal=JournalOptions(preallocate=64 << 10),
        bookie_id="b1",
    )


def add(bookie: Bookie, ledger: LedgerId, entries: range) -> None:
    """Add entries of 400 bytes, whose payload begins with whose they are."""
    payload = f"<{ledger.scope}/{ledger.ledger}>".encode().ljust(400, b".")
    records = [encode(Entry(ledger, at, at - 1, at, payload), "CRC32C", "pw") for at in entries]
    bookie.add_entries(records, KEY, sync=False)


def store_of(*ledgers: LedgerId) -> MemoryStore:
    """Return a store with these ledgers."""
    store = MemoryStore()
    for ledger in ledgers:
        store.create(LedgerMetadata(ledger, 1, 1, 1, [(0, ["b1"])], digest_type="CRC32C"))
    return store


def log_bytes(bookie: Bookie) -> bytes:
    """Return the bytes of all entry logs."""
    paths = [path for place in bookie.place.ledger for path in sorted(place.glob("*.log"))]
    return b"".join(path.read_bytes() for path in paths)


def until(holds: Callable[[], object]) -> None:
    """Wait for what another thread does."""
    end = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.002)


@pytest.fixture
def bookie(tmp_path: Path) -> Iterator[Bookie]:
    """Return a bookie with closed logs in which two ledgers take turns, the second in fewer."""
    with open_bookie(tmp_path / "b", "interleaved", log_size=8192) as opened:
        for start in range(0, 40, 4):
            add(opened, LIVE, range(start, start + 4))
            add(opened, GONE, range(start, start + 4))
        opened.checkpoint()
        yield opened


# -- what goes


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_of_deleted_ledgers_go_from_a_log_that_takes_records(
    tmp_path: Path, kind: Any
) -> None:
    """A log is closed before it is full where it holds nothing that lives, or, by a pass that
    compacts, little of it; a ledger of another scope is another ledger."""
    with open_bookie(tmp_path / "b", kind) as bookie:
        clock, store = Clock(), store_of(LIVE)
        collector = BackgroundCollector(bookie, store, OPTIONS, clock=clock)
        for ledger in (GONE, SCOPED):
            add(bookie, ledger, range(20))
        bookie.checkpoint()
        report = collector.run_pass()

        assert [GONE, SCOPED] == report.deleted_ledgers
        assert b"/2>" not in log_bytes(bookie)

        other = LedgerId(9, 3)
        add(bookie, LIVE, range(6))
        add(bookie, other, range(20))
        bookie.checkpoint()
        kept = collector.run_pass()
        clock.now = 301.0
        moved = collector.run_pass()

        assert ([other], [], 0) == (kept.deleted_ledgers, kept.compacted_logs, kept.moved_entries)
        assert (1, 6) == (len(moved.compacted_logs), moved.moved_entries)
        assert (b"<9/3>" in log_bytes(bookie), list(range(6))) == (
            False,
            bookie.entries(LIVE).tolist(),
        )


def test_a_log_of_which_enough_lives_goes_on_taking_records(bookie: Bookie) -> None:
    """At a threshold of a half one that is half full of what lives stays open."""
    options = GarbageOptions(
        gc_wait_time=1, minor_compaction_interval=1, minor_compaction_threshold=0.4
    )
    clock = Clock()
    collector = BackgroundCollector(bookie, store_of(LIVE), options, clock=clock)
    add(bookie, LIVE, range(40, 43))
    add(bookie, GONE, range(40, 43))
    bookie.storage.flush()
    before = bookie.storage.paths[0].logger.active_ids
    clock.now = 2.0
    collector.run_pass()

    assert before == bookie.storage.paths[0].logger.active_ids
    assert 1 == bookie.storage.garbage_passes.counts["minor"]


def test_without_a_store_nothing_is_deleted(bookie: Bookie) -> None:
    """Logs of ledgers that the bookie itself has forgotten go."""
    collector = BackgroundCollector(bookie)
    bookie.delete_ledger(GONE)
    bookie.delete_ledger(LIVE)
    add(bookie, SCOPED, range(1))
    bookie.storage.flush()
    report = collector.run_pass()

    assert ([], [SCOPED]) == (report.deleted_ledgers, bookie.ledgers())
    assert b"<0/" not in log_bytes(bookie)


def test_transactional_compaction(bookie: Bookie) -> None:
    """Copies get logs of their own: the log that takes records has none of them."""
    options = GarbageOptions(use_transactional_compaction=True)
    logger = bookie.storage.paths[0].logger
    report = BackgroundCollector(bookie, store_of(LIVE), options).run_pass(["major"])

    assert (40, []) == (report.moved_entries, logger.active_ids)
    assert list(range(40)) == bookie.entries(LIVE).tolist()
    assert b"<0/2>" not in log_bytes(bookie)


@pytest.mark.parametrize("target", [False, True])
def test_a_small_log_counts_as_full_if_asked(tmp_path: Path, target: bool) -> None:
    """90 % of it is wanted, but a hundredth of a full one; one that is wanted as a whole stays."""
    options = GarbageOptions(use_target_entry_log_size_for_gc=target)
    with open_bookie(tmp_path / "b", "interleaved") as bookie:
        collector = BackgroundCollector(bookie, store_of(LIVE), options)
        add(bookie, GONE, range(1))
        add(bookie, LIVE, range(9))
        moved = [collector.run_pass(["major"]).moved_entries for _ in range(2)]

        assert [9 if target else 0, 0] == moved
        assert target == (b"<0/2>" not in log_bytes(bookie))


@pytest.mark.parametrize(("most", "parts"), [(None, [16]), (10, [10, 6]), (1, [5, 5, 5, 1])])
def test_an_index_is_told_of_copies_as_they_come(
    tmp_path: Path, most: int | None, parts: list[int]
) -> None:
    """After `max_outstanding` entries, of which a slice brings five here; else behind the log."""
    told: list[int] = []
    with open_bookie(tmp_path / "b", "interleaved") as bookie:
        add(bookie, LIVE, range(16))
        add(bookie, GONE, range(16))
        path = bookie.storage.paths[0]
        path.logger.roll()
        flush, moved = path.flush, [0]

        def flushed() -> None:
            flush()
            count = int((path.locations_of(LIVE, np.arange(16)) >> 32 != 0).sum())
            if count > moved[0]:
                told.append(count - moved[0])
                moved[0] = count

        path.flush = flushed  # type: ignore[method-assign]
        bookie.delete_ledger(GONE)
        throttle = CompactionThrottle(50, clock=lambda: 0.0, wait=lambda _: False)
        compaction = Compaction(max_outstanding=most, throttle=throttle)
        report = bookie.storage.run_garbage_pass(GarbagePass(compaction=compaction))

        assert (16, parts) == (report.moved_entries, told)
        assert list(range(16)) == bookie.entries(LIVE).tolist()


class Late(MemoryStore):
    """A store in which something happens as soon as it has said that ledgers are not there."""

    def __init__(self) -> None:
        super().__init__()
        self.then: Callable[[], object] = lambda: None

    def read_many(self, ledgers: Iterable[int | LedgerId]) -> Iterator[tuple[LedgerId, Any]]:
        """Say that there is nothing."""
        self.then()
        return iter(())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ledger", [GONE, SCOPED])
@pytest.mark.parametrize("way", ["single", "batch", "fence"])
def test_a_ledger_that_is_made_again_stays(
    tmp_path: Path, kind: Any, ledger: LedgerId, way: str
) -> None:
    """Between the answer of the store and the deletion somebody makes the ledger anew and adds to
    it, or fences it: that is not lost. The next pass judges it again."""
    late = Late()
    with open_bookie(tmp_path / "b", kind) as bookie:
        for one in (LIVE, ledger):
            add(bookie, one, range(1))  # of either one single adds take the short way now
            bookie.add_entry(encode(Entry(one, 1, 0, 1, b"x"), "CRC32C", "pw"), KEY)
        records = [encode(Entry(ledger, at, at - 1, at, b"new"), "CRC32C", "pw") for at in (2, 3)]
        late.then = {
            "single": lambda: bookie.add_entry(records[0], KEY),
            "batch": lambda: bookie.add_entries(records, KEY),
            "fence": lambda: bookie.fence(ledger, KEY),
        }[way]
        collector = BackgroundCollector(bookie, late)

        assert [LIVE] == collector.run_pass().deleted_ledgers
        assert {"single": 3, "batch": 4, "fence": 2}[way] == len(bookie.entries(ledger))
        assert (way == "fence") == bookie.is_fenced(ledger)

        late.then = lambda: None

        assert [ledger] == collector.run_pass().deleted_ledgers


# -- what the store does not say


class Silent(MemoryStore):
    """A store that gives no answer."""

    def ledgers(self, scope: int | None = None) -> list[LedgerId]:
        """Fail."""
        raise MetadataUnavailable("ZooKeeper gave no answer")


def test_a_store_that_gives_no_answer_judges_no_ledger(
    bookie: Bookie, caplog: pytest.LogCaptureFixture
) -> None:
    """It is said in the log, in `problem` and in the figures; the rest of the pass goes on, and
    the next pass with an answer ends the problem."""
    collector = BackgroundCollector(bookie, Silent())
    bookie.delete_ledger(GONE)
    with caplog.at_level(logging.WARNING):
        report = collector.run_pass(["major"])

    assert ([], [LIVE]) == (report.deleted_ledgers, bookie.ledgers())
    assert (40, 0, 1) == (
        report.moved_entries,
        collector.figures.judgements.succeeded,
        collector.figures.judgements.failed,
    )
    assert "no ledger is judged: ZooKeeper gave no answer" == collector.problem
    assert 1 == caplog.text.count("no ledger is judged")

    collector._store = store_of(LIVE)
    collector.run_pass()

    assert (None, 1) == (collector.problem, collector.figures.judgements.failed)


def test_what_stays_damaged_is_logged_once(
    bookie: Bookie, caplog: pytest.LogCaptureFixture
) -> None:
    """A damaged log is told of when it is met first, not with each pass."""
    first = min(bookie.place.ledger[0].glob("*.log"))
    data = bytearray(first.read_bytes())
    data[0:20] = b"BKLO" + bytes(16)  # its header tells of no ledgers map
    data[1024 + 450 : 1024 + 460] = b"\xff" * 10
    first.write_bytes(data)
    collector = BackgroundCollector(bookie, store_of(LIVE))
    with caplog.at_level(logging.WARNING):
        collector.run_pass()
        collector.run_pass()

    assert first.exists()
    assert 1 == caplog.text.count(f"{first}: offset")


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
        until(lambda: running.figures.passes.succeeded >= 3)

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
        collector.note_space(True)
        collector.resume("major")

        assert (True, True) == (collector.is_suspended("major"), collector.is_suspended("minor"))

        collector.force()
        until(lambda: not collector.is_forced)

        assert {"minor": 0, "major": 0} == counts

        collector.force(minor=True)
        until(lambda: not collector.is_forced)

        assert {"minor": 1, "major": 0} == counts

        collector.note_space(False)

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
        collector.note_space(False)

        assert not collector.is_forced

        collector.note_space(True)
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
        until(lambda: bookie.storage.garbage_passes.running == "major")
        until(lambda: slow.figures.judgements.succeeded)
        slow.suspend("major") if how == "suspend" else slow.close()
        until(lambda: not slow.is_forced)
        slow.close()

        assert b"<0/2>" in log_bytes(bookie)
        assert list(range(60)) == bookie.entries(LIVE).tolist()

        fast = GarbageOptions(
            compaction_rate_by_entries=10**6, use_transactional_compaction=transactional
        )
        report = BackgroundCollector(bookie, store_of(LIVE), fast).run_pass(["major"])

        assert 60 == slow.figures.moved_entries + report.moved_entries
        assert b"<0/2>" not in log_bytes(bookie)
        batch = bookie.read_entries(LIVE, 0)
        assert list(range(60)) == batch.entries.tolist()


def test_figures_are_what_was_done(bookie: Bookie) -> None:
    """Ledgers, entries and bytes by hand: 40 entries of 440 bytes are moved, as many are freed,
    with 4 bytes of size each."""
    collector = BackgroundCollector(bookie, store_of(LIVE))
    collector.run_pass(["major"])
    figures = collector.figures
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
        figures.judgements.succeeded,
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
