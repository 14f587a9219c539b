"""Runs of an audit: interrupted and resumed, periodic, concurrent, with progress and stats."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from threading import Event, Timer
from typing import Any

import pytest

from bkstore.availability import Availability
from bkstore.cluster import MemoryStore
from bkstore.cluster.audit import AuditOptions, Auditor, AuditReport
from bkstore.errors import (
    BookieUnavailable,
    InvalidArgument,
    ReadOnlyError,
    WriteFailed,
)
from bkstore.ids import LedgerId
from bkstore.tables import VIOLATIONS
from tests.models.audit import BOOKIES, HeldBookie, World, random_world
from tests.worlds.audits import FULL, MADE, NOW, Clock, Down, Holder, closed, store_of


class Killed(BaseException):
    """The process goes down."""


def _world_store(world: World) -> MemoryStore:
    store = MemoryStore()
    for metadata in world.ledgers:
        store.create(metadata)
    return store


def _told(report: AuditReport) -> Any:
    counts = (report.counts, report.skipped, report.checked, report.empty, report.replicas)
    rest = (report.unreadable, report.unsettled, report.unanswered, report.excused)
    return [report.violations, *map(repr, counts), *map(repr, rest)]


# -- resuming


@pytest.mark.parametrize("stop_at", range(1, 9))
def test_an_interrupted_run_goes_on(stop_at: int, tmp_path: Path) -> None:
    """Killed behind any batch and begun again, a run gives the report of one that was not."""
    world = random_world(77, ledgers=16)
    world.silent = {BOOKIES[0]}
    options = AuditOptions(batch=2, rechecks=1, recheck_delay=0)
    store, kept = _world_store(world), tmp_path / "run"

    def run(progress: Any = None) -> AuditReport:
        bookies = {name: HeldBookie(world, name) for name in BOOKIES}
        auditor = Auditor(store, bookies, options=options, clock=lambda: NOW, wait=lambda _: None)
        return auditor.run(progress=progress, resume=kept)

    def kill(done: int, _: int) -> None:
        if done == 2 * stop_at:
            raise Killed

    whole = run()

    assert not kept.exists()
    with pytest.raises(Killed):
        run(kill)

    assert kept.exists()
    seen: list[int] = []
    resumed = run(lambda done, _: seen.append(done))

    assert _told(whole) == _told(resumed)
    assert 2 * stop_at == seen[0]
    assert not kept.exists()


def test_a_torn_line_is_done_again(tmp_path: Path) -> None:
    """What was being written when the process died counts as not done."""
    world = random_world(5)
    store, kept = _world_store(world), tmp_path / "run"
    bookies = {name: HeldBookie(world, name) for name in BOOKIES}
    auditor = Auditor(store, bookies, options=AuditOptions(batch=1, rechecks=0), clock=lambda: NOW)
    whole = auditor.run()

    def kill(done: int, _: int) -> None:
        if done == 6:
            raise Killed

    with pytest.raises(Killed):
        auditor.run(progress=kill, resume=kept)
    kept.write_bytes(kept.read_bytes()[:-20] + b"x" * 5000)

    def kill_again(done: int, _: int) -> None:
        if done == 7:
            raise Killed

    with pytest.raises(Killed):
        auditor.run(progress=kill_again, resume=kept)
    seen: list[int] = []
    resumed = auditor.run(progress=lambda done, _: seen.append(done), resume=kept)

    assert 7 == seen[0]
    assert _told(whole) == _told(resumed)


def test_later_looks_are_resumed(tmp_path: Path) -> None:
    """A run killed between looks does not begin with the ledgers again."""
    store, kept = store_of(closed()), tmp_path / "run"
    asked: list[int] = []

    class Silent(Holder):
        def availability(self, _: int | LedgerId) -> Availability:
            asked.append(1)
            raise BookieUnavailable("down")

    def wait(_: float) -> None:
        if len(asked) == 2:
            raise Killed

    options = AuditOptions(rechecks=3)
    bookies = {"b1": FULL, "b2": FULL, "b3": Silent()}
    auditor = Auditor(store, bookies, options=options, wait=wait)
    with pytest.raises(Killed):
        auditor.run(resume=kept)
    asked.append(1)  # the wait that killed goes by now
    report = auditor.run(resume=kept)

    assert 3 == report.rechecks
    assert 5 == len(asked)  # first round, look 1; then looks 2 and 3
    assert ["bookie_unavailable"] == [each.category for each in report.violations]


def test_another_run_s_file_is_refused(tmp_path: Path) -> None:
    """A file of a run with other parameters is not gone on with; its content stays."""
    store, kept = store_of(closed(), closed(8)), tmp_path / "run"

    def kill(done: int, _: int) -> None:
        if done:
            raise Killed

    def run(progress: Any = None, what: str = "ours", **options: Any) -> AuditReport:
        settings = AuditOptions(rechecks=0, batch=1, **options)
        auditor = Auditor(store, dict.fromkeys(("b1", "b2", "b3"), FULL), options=settings)
        return auditor.run(progress=progress, resume=kept, description=what)

    with pytest.raises(Killed):
        run(kill)
    before = kept.read_bytes()
    with pytest.raises(InvalidArgument, match="other parameters"):
        run(grace_period=5.0)
    with pytest.raises(InvalidArgument, match="other parameters"):
        run(what="another cluster")

    assert before == kept.read_bytes()
    assert 2 == run().checked


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    """A place that cannot be written to is one clear error."""
    with pytest.raises(WriteFailed, match="cannot be written"):
        Auditor(store_of(closed()), {}).run(resume=tmp_path / "none" / "run")


def _periodic(store: Any, clock: Clock, on_report: Callable[..., Any], **more: Any) -> Auditor:
    bookies = dict.fromkeys(("b1", "b2", "b3"), FULL)
    auditor = Auditor(store, bookies, clock=lambda: clock.now)
    auditor.run_periodically(100.0, clock, on_report, **more)
    return auditor


def test_runs_at_an_interval() -> None:
    """The first run comes at once, the next ones an interval after the last."""
    store, clock = store_of(closed()), Clock(3)
    reports: list[AuditReport] = []
    _periodic(store, clock, reports.append)

    assert [0.0, 100.0, 100.0, 100.0] == clock.waits
    assert [NOW, NOW + 100, NOW + 200] == [each.started_at for each in reports]
    assert NOW + 200 == store.checked_at()


@pytest.mark.parametrize("interval", [0, -1, 1e300, float("inf"), float("nan")])
def test_intervals(interval: float) -> None:
    """What cannot be waited for is refused at once."""
    auditor = Auditor(store_of(closed()), {})
    with pytest.raises(InvalidArgument, match="interval must be a number above 0"):
        auditor.run_periodically(interval, Event(), [].append)


def test_the_longest_interval() -> None:
    """A century can be waited for."""
    stop = Event()
    auditor = Auditor(store_of(closed()), dict.fromkeys(("b1", "b2", "b3"), FULL))
    auditor.run_periodically(100 * 366 * 86400, stop, lambda _: Timer(0.05, stop.set).start())

    assert stop.is_set()


def test_the_last_run_is_remembered() -> None:
    """After a restart the interval counts from the last run, however long it is ago."""
    store = store_of(closed())
    for last, delay in ((NOW - 30, 70.0), (NOW - 500, 0.0)):
        store.set_checked_at(last)
        clock = Clock(1)
        _periodic(store, clock, lambda _: None)

        assert delay == clock.waits[0]


def test_a_run_that_may_not_run_is_counted() -> None:
    """While replication is off, say, runs are left out, and their number is kept."""
    store, clock = store_of(closed()), Clock(5)
    reports: list[AuditReport] = []
    auditor = _periodic(store, clock, reports.append, may_run=lambda: clock.now >= NOW + 200)

    assert (2, 1) == (auditor.skipped_runs, len(reports))
    assert NOW + 200 == store.checked_at()


def test_a_run_that_fails_is_not_the_last_run(caplog: pytest.LogCaptureFixture) -> None:
    """An error of the store is logged, the time is not kept, and the next run comes."""
    store, clock, fails = store_of(closed()), Clock(3), [True]
    listing = store.ledgers

    def ledgers(scope: int | None = None) -> list[LedgerId]:
        if fails.pop() if fails else False:
            raise ReadOnlyError("the store is away")
        return listing(scope)

    store.ledgers = ledgers  # type: ignore[method-assign]
    reports: list[AuditReport] = []
    _periodic(store, clock, reports.append)

    assert "the audit failed" in caplog.text
    assert NOW + 100 == reports[0].started_at


def test_stop_ends_a_run(tmp_path: Path) -> None:
    """A run that is stopped gives no report and no time; its file keeps what was judged."""
    store, clock, kept = store_of(*map(closed, range(5))), Clock(9), tmp_path / "run"

    class Stopping(Holder):
        def availability(self, ledger: int | LedgerId) -> Availability:
            clock.set()
            return Availability.from_ranges([(0, 5)])

    bookies = dict.fromkeys(("b1", "b2", "b3"), Stopping())
    auditor = Auditor(store, bookies, options=AuditOptions(batch=2), clock=lambda: NOW)
    reports: list[AuditReport] = []
    auditor.run_periodically(100.0, clock, reports.append, resume=kept)
    steps = [json.loads(line) for line in kept.read_bytes().splitlines()]

    assert ([], None) == (reports, store.checked_at())
    assert [2] == [each["outcome"]["checked"] for each in steps[1:]]


@pytest.mark.parametrize(
    ("rate", "batch", "asked_at"),
    [
        (2.0, 1000, [0.0, 0.5, 1.0, 1.5, 2.0]),
        (0.5, 1000, [0.0, 2.0, 4.0, 6.0, 8.0]),
        (20.0, 1000, [0.0, 0.0, 0.1, 0.1, 0.2]),
        (40.0, 3, [0.0, 0.0, 0.0, 0.075, 0.075]),
    ],
)
def test_the_rate_is_kept(rate: float, batch: int, asked_at: list[float]) -> None:
    """Ledgers are begun a tenth of the rate, or one, at a time, each stretch when the time of
    those before it is over; no wait follows the last."""
    now = [0.0]

    def wait(seconds: float) -> None:
        now[0] += seconds

    class Noting(Holder):
        def availability(self, ledger: int | LedgerId) -> Availability:
            times.append(now[0])
            return Availability.from_ranges([(0, 5)])

    times: list[float] = []
    auditor = Auditor(
        store_of(*map(closed, range(5))),
        {"b1": FULL, "b2": FULL, "b3": Noting()},
        options=AuditOptions(rate=rate, batch=batch, concurrency=1),
        wait=wait,
        monotonic=lambda: now[0],
    )
    report = auditor.run()

    assert report.clean
    assert asked_at == pytest.approx(times)
    assert asked_at[-1] == pytest.approx(now[0])


def test_lost_time_is_not_made_up_for() -> None:
    """What bookies take counts; a run that was held up goes on at its rate, not faster. Later
    looks keep to it too."""
    now, times = [0.0], list[float]()

    def wait(seconds: float) -> None:
        now[0] += seconds

    class Slow(Down):
        def availability(self, ledger: int | LedgerId) -> Availability:
            times.append(now[0])
            now[0] += 7.0 if len(times) == 2 else 0.25
            return super().availability(ledger)

    auditor = Auditor(
        store_of(*map(closed, range(4))),
        {"b1": FULL, "b2": FULL, "b3": Slow(4)},
        options=AuditOptions(rate=1.0, rechecks=1, recheck_delay=100.0, concurrency=1),
        wait=wait,
        monotonic=lambda: now[0],
    )
    report = auditor.run()

    assert report.clean
    assert [0.0, 1.0, 8.0, 9.0] == times[:4]
    assert [109.25, 110.25, 111.25, 112.25] == times[4:]


def test_the_rate_may_change_between_runs(tmp_path: Path) -> None:
    """A run that is resumed may go faster or slower: its verdicts are the same."""
    store, kept = store_of(*map(closed, range(4))), tmp_path / "run"
    bookies = dict.fromkeys(("b1", "b2", "b3"), FULL)

    def kill(done: int, _: int) -> None:
        if done == 2:
            raise Killed

    def run(rate: float, progress: Any = None) -> AuditReport:
        options = AuditOptions(rate=rate)
        auditor = Auditor(store, bookies, options=options, wait=lambda _: None)
        return auditor.run(progress=progress, resume=kept)

    with pytest.raises(Killed):
        run(10.0, kill)

    assert 4 == run(1e6).checked


# -- threads, progress, stats


def test_concurrency_is_bounded() -> None:
    """No more bookies are asked at a time than the options allow."""
    lock, now, most = threading.Lock(), [0], [0]

    class Counting(Holder):
        def availability(self, ledger: int | LedgerId) -> Availability:
            with lock:
                now[0] += 1
                most[0] = max(most[0], now[0])
            threading.Event().wait(0.001)
            with lock:
                now[0] -= 1
            return Availability.from_ranges([(0, 5)])

    names = [f"b{number}" for number in range(8)]
    store = MemoryStore()
    for number in range(40):
        store.create(closed(number, ensemble=tuple(names)))
    bookies = {name: Counting() for name in names}
    report = Auditor(store, bookies, options=AuditOptions(concurrency=3)).run()

    assert report.clean
    assert 2 <= most[0] <= 3


def test_progress_counts_ledgers() -> None:
    """Progress tells how many ledgers were looked at, of how many."""
    store, seen = store_of(*map(closed, range(5))), list[tuple[int, int]]()
    options = AuditOptions(batch=2)
    bookies = dict.fromkeys(("b1", "b2", "b3"), FULL)
    Auditor(store, bookies, options=options).run(progress=lambda *at: seen.append(at))

    assert [(0, 5), (2, 5), (4, 5), (5, 5)] == seen


def test_stats_have_upstream_s_names() -> None:
    """Gauges and timers are called as those of the real auditor, over the whole run."""
    world = random_world(3)
    bookies = {name: HeldBookie(world, name) for name in BOOKIES}
    report = Auditor(_world_store(world), bookies, options=AuditOptions(rechecks=0)).run()
    lacking = {row[1]: row[0] for row in world.rows()}
    timers = {"REPLICAS_CHECK_TIME", "PLACEMENT_POLICY_CHECK_TIME"}

    assert lacking
    assert {
        "NUM_LEDGERS_HAVING_NO_REPLICA_OF_AN_ENTRY": [*lacking.values()].count("no_replica"),
        "NUM_LEDGERS_HAVING_LESS_THAN_AQ_REPLICAS_OF_AN_ENTRY": [*lacking.values()].count(
            "below_ack_quorum"
        ),
        "NUM_LEDGERS_HAVING_LESS_THAN_WQ_REPLICAS_OF_AN_ENTRY": [*lacking.values()].count(
            "below_write_quorum"
        ),
        "NUM_LEDGERS_NOT_ADHERING_TO_PLACEMENT_POLICY": 0,
        "NUM_LEDGERS_SOFTLY_ADHERING_TO_PLACEMENT_POLICY": 0,
        "NUM_UNDERREPLICATED_LEDGERS_ELAPSED_RECOVERY_GRACE_PERIOD": 0,
    } == {name: value for name, value in report.stats.items() if name not in timers}
    assert all(report.stats[name] > 0 for name in timers)


def test_the_table_has_every_row() -> None:
    """The `violations` table is sorted, has the declared columns, and ranges and groups agree."""
    world = random_world(11)
    bookies = {name: HeldBookie(world, name) for name in BOOKIES}
    report = Auditor(_world_store(world), bookies, options=AuditOptions(rechecks=0)).run()
    rows = [dict(zip(VIOLATIONS.names, row)) for row in report.table().rows()]
    names = [int(row["qualified_name"], 16) for row in rows]

    assert len(world.rows()) == len(rows) > 0
    assert sorted(names) == names
    for row in rows:
        ranges = Availability.from_ranges(row["missing"])

        assert row["missing_entries"] == len(ranges)
        ends = (row["missing"][0][0], row["missing"][-1][1]) if row["missing"] else (None, None)
        assert ends == (row["first_missing"], row["last_missing"])
        assert Availability.from_groups(row["missing_groups"]).to_bytes() == ranges.to_bytes()


def test_long_losses_are_said_in_groups() -> None:
    """Ranges that are too many to list are left to the groups; the count is there."""
    store = MemoryStore()
    store.create(
        MADE(7, 3, 1, 1, [(0, ("b1", "b2", "b3"))], state="CLOSED", last_entry_id=10**9, length=1)
    )
    bookies = dict.fromkeys(("b1", "b2", "b3"), Holder())
    report = Auditor(store, bookies, options=AuditOptions(rechecks=0)).run()
    rows = [dict(zip(VIOLATIONS.names, row)) for row in report.table().rows()]

    assert [None] * 3 == [row["missing"] for row in rows]
    assert [[[0, 999_999_999, 1, 3]], [[1, 10**9, 1, 3]], [[2, 999_999_998, 1, 3]]] == [
        row["missing_groups"] for row in rows
    ]
    ends = [(row["first_missing"], row["last_missing"]) for row in rows]
    assert [(0, 999_999_999), (1, 10**9), (2, 999_999_998)] == ends
    assert 10**9 + 1 == sum(row["missing_entries"] for row in rows)
