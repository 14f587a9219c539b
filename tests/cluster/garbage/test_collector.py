"""BackgroundCollector: what its passes delete, remove and compact, and what they leave."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bkstore import Bookie, LedgerId
from bkstore.cluster.garbage import BackgroundCollector, GarbageOptions
from bkstore.cluster.store.key_value_store import MemoryStore
from bkstore.errors import MetadataUnavailable
from bkstore.formats.entry import Entry, encode
from bkstore.storage.ledgers.compaction_throttle import CompactionThrottle
from bkstore.storage.ledgers.garbage_pass import CompactionOptions, GarbagePass
from tests.cluster.garbage.bookies import (
    GONE,
    KEY,
    KINDS,
    LIVE,
    OPTIONS,
    SCOPED,
    Clock,
    add,
    log_bytes,
    open_bookie,
    store_of,
)

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
    before = bookie.storage.write_paths[0].logger.active_ids
    clock.now = 2.0
    collector.run_pass()

    assert before == bookie.storage.write_paths[0].logger.active_ids
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
    logger = bookie.storage.write_paths[0].logger
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
        path = bookie.storage.write_paths[0]
        path.logger.roll()
        flush, moved = path.flush, [0]

        def flushed() -> None:
            flush()
            count = int((path.get_locations(LIVE, np.arange(16)) >> 32 != 0).sum())
            if count > moved[0]:
                told.append(count - moved[0])
                moved[0] = count

        path.flush = flushed  # type: ignore[method-assign]
        bookie.delete_ledger(GONE)
        throttle = CompactionThrottle(50, clock=lambda: 0.0, wait=lambda _: False)
        compaction = CompactionOptions(max_outstanding=most, throttle=throttle)
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
    collector, told = BackgroundCollector(bookie, Silent()), []
    collector.on_problem_changed = told.append
    bookie.delete_ledger(GONE)
    with caplog.at_level(logging.WARNING):
        report = collector.run_pass(["major"])

    assert ([], [LIVE]) == (report.deleted_ledgers, bookie.ledgers())
    assert (40, 0, 1) == (
        report.moved_entries,
        collector.stats.deletion_scans.succeeded,
        collector.stats.deletion_scans.failed,
    )
    assert "no ledger can be judged: ZooKeeper gave no answer" == collector.problem
    assert 1 == caplog.text.count("no ledger can be judged")

    collector.run_pass()
    problem = collector.problem
    collector._store = store_of(LIVE)
    collector.run_pass()
    collector.run_pass()

    assert [problem, None] == told

    assert (None, 2) == (collector.problem, collector.stats.deletion_scans.failed)


def test_what_stays_damaged_is_logged_once(
    bookie: Bookie, caplog: pytest.LogCaptureFixture
) -> None:
    """A damaged log is told of when it is met first, not with each pass."""
    first = min(bookie.directories.ledger[0].glob("*.log"))
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
