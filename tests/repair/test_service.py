"""Repairs at an interval, interrupted repairs, limits, and metrics."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from bkstore.cluster import Cluster
from bkstore.errors import BkstoreError, IllegalOperation, InvalidArgument
from bkstore.repair import Repairer, RepairOptions, RepairReport, RepairService
from bkstore.repair.entry_copier import ByteRate


@pytest.fixture
def running(bkstore_cluster: Any) -> Cluster:
    """Return four bookies."""
    made: Cluster = bkstore_cluster(4)
    return made


def _written(running: Cluster, entries: int = 6) -> Any:
    with running.create_ledger(2, 2, 2) as ledger:
        ledger.append_many(b"payload %d" % number for number in range(entries))
    return ledger


def test_a_bookie_that_was_just_restarted_is_not_replaced(running: Cluster) -> None:
    """Only in the second run that does not find it registered it counts as gone."""
    gone = _written(running).metadata.segments[0].ensemble[0]
    service = RepairService(Repairer(running.context), 60)
    running.crash(gone)
    first, second, third = (service.run_once() for _ in range(3))

    assert {"impossible"} == {each.status for each in first.repairs}
    assert {"not registered" in each.detail for each in first.repairs} == {True}
    assert {("replace", "repaired")} == {(each.action, each.status) for each in second.repairs}
    assert [] == third.repairs


def test_runs_follow_each_other(running: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that fails is reported, and the next one follows; an event ends the service."""
    repairer, stop = Repairer(running.context), threading.Event()
    ledger = _written(running)
    running.lose(ledger.metadata.segments[0].ensemble[0], ledger.ledger, [1])
    results: list[RepairReport | BkstoreError] = []
    service = RepairService(repairer, 0.001)

    def add(result: RepairReport | BkstoreError) -> None:
        results.append(result)
        monkeypatch.undo()
        if len(results) == 3:
            stop.set()

    def fail(**_: object) -> RepairReport:
        raise IllegalOperation("no")

    monkeypatch.setattr(repairer, "run", fail)
    service.run(stop, add, add)
    failure, repaired, clean = results
    assert isinstance(failure, IllegalOperation)
    assert isinstance(repaired, RepairReport)
    assert isinstance(clean, RepairReport)
    assert (1, 1, 0) == (service.failed_runs, repaired.copied_entries, clean.copied_entries)


def test_a_stopped_repair_is_continued(running: Cluster) -> None:
    """What was copied before the stop stays, the rows are not called repaired, the rest follows."""
    ledgers = [_written(running, 40) for _ in range(3)]
    for ledger in ledgers:
        running.lose_ledger(ledger.metadata.segments[0].ensemble[0], ledger.ledger)
    stop = threading.Event()
    repairer = Repairer(running.context, options=RepairOptions(parallel=1))
    report = repairer.run(stop=stop, progress=lambda *_: stop.set())

    assert report.stopped
    assert {"skipped"} == {each.status for each in report.repairs}
    assert 0 < report.copied_entries < 120
    again = Repairer(running.context).run()
    assert again.is_clean
    assert 120 == report.copied_entries + again.copied_entries


def test_an_interrupt_is_raised_after_the_report(running: Cluster) -> None:
    """An interrupt ends the repair; the report has what was done."""
    for _ in range(2):
        ledger = _written(running)
        running.lose_ledger(ledger.metadata.segments[0].ensemble[0], ledger.ledger)
    repairer = Repairer(running.context, options=RepairOptions(parallel=1))

    def interrupt(*_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        repairer.run(progress=interrupt)
    assert Repairer(running.context).run().is_clean


def test_byte_rate() -> None:
    """Bytes wait for the time of those before them, and no time is saved up."""
    now, waits = [0.0], []
    rate = ByteRate(100.0, clock=lambda: now[0], wait=waits.append)
    rate.take(200)
    rate.take(50)
    now[0] = 10.0
    rate.take(100)
    rate.take(1)

    assert [2.0, 1.0] == waits
    ByteRate(None, wait=waits.append).take(10**9)
    assert 2 == len(waits)


def test_metrics(running: Cluster) -> None:
    """Counters add up over repairs, gauges are of the last one."""
    pytest.importorskip("prometheus_client")
    from bkstore.repair.metrics import RepairMetrics

    ledger = _written(running)
    running.lose_ledger(ledger.metadata.segments[0].ensemble[0], ledger.ledger)
    metrics, repairer = RepairMetrics(), Repairer(running.context)
    metrics.observe(repairer.run(), 100.0)
    metrics.observe(repairer.run(), 200.0)
    metrics.count_failure()
    lines = metrics.textfile().decode().splitlines()

    assert "bkstore_repair_copied_entries_total 6.0" in lines
    assert 'bkstore_repair_runs_total{result="clean"} 2.0' in lines
    assert 'bkstore_repair_runs_total{result="failed"} 1.0' in lines
    assert 'bkstore_repair_replicas{status="repaired"} 0.0' in lines
    assert "bkstore_repair_end_time_seconds 200.0" in lines


@pytest.mark.parametrize("interval", [0, -1, float("nan"), 1e12])
def test_intervals(running: Cluster, interval: float) -> None:
    """An interval is above 0, and at most a year."""
    with pytest.raises(InvalidArgument):
        RepairService(Repairer(running.context), interval)


@pytest.mark.parametrize(
    "options",
    [{"parallel": 0}, {"bytes_per_second": 0.5}, {"digest_type": "MD5"}, {"recover": 1}],
)
def test_options(options: Any) -> None:
    """Options that mean nothing are refused."""
    with pytest.raises(InvalidArgument):
        RepairOptions(**options)
