"""Metrics of stream look-ups: what is counted, under which names, and what is missing."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from bkstore.cluster import Auditor
from bkstore.errors import InvalidArgument, LoadFailed, MissingDependency
from bkstore.metrics import AuditMetrics, LookupMetrics
from bkstore.streams import ImageReader, StreamImage, StreamLookup
from bkstore.streams.lookup.stats import COUNTS, LookupTotals, QueryStats
from bkstore.testing.stream_worlds import WorldShape, random_queries, stream_image
from tests.worlds.audits import FULL, Clock, Holder, closed, store_of

prometheus = pytest.importorskip("prometheus_client")

NAMES = {
    "preloads": "preloads",
    "failed_preloads": "failed_preloads",
    "joined": "joined_loads",
    "kept": "kept_objects_used",
    "without_stream": "loads_without_stream",
    "filter_refusals": "filter_refusals",
    "filter_false_positives": "filter_false_positives",
    "index_hits": "index_hits",
    "index_misses": "index_misses",
    "dead_entries": "index_dead_entries",
    "skipped": "skipped_objects",
    "jumps": "jumps",
    "nodes": "searched_nodes",
    "listed": "listed_objects",
}


@pytest.fixture
def registry() -> Any:
    """Return a registry of its own."""
    return prometheus.CollectorRegistry()


def value(registry: Any, name: str, **labels: str) -> float | None:
    """Return a sample."""
    found: float | None = registry.get_sample_value(f"bkstore_stream_{name}", labels)
    return found


def test_all_counts_are_exported(registry: Any) -> None:
    """Each count of a look-up's stats is a counter, or in a histogram."""
    counts = {name: at + 1 for at, name in enumerate(COUNTS)}
    stats = QueryStats(**{**counts, "loads": 100})
    LookupMetrics(registry).observe("prefix", stats)

    assert set(COUNTS) == {*NAMES, "loads", "waves", "objects", "seconds"}
    for name, metric in NAMES.items():
        assert getattr(stats, name) == value(registry, f"{metric}_total"), name
    assert stats.preloads == value(registry, "loads_total", cause="preload")
    assert stats.loads - stats.preloads == value(registry, "loads_total", cause="search")
    for name, metric in (("seconds", "seconds"), ("waves", "waves"), ("objects", "objects")):
        assert getattr(stats, name) == value(registry, f"lookup_{metric}_sum")
        assert 1 == value(registry, f"lookup_{metric}_count")


def test_results(registry: Any) -> None:
    """Look-ups are counted by result, a failed one too."""
    image = stream_image(WorldShape(nodes=1, lost_share=0.3), 20)
    queries = random_queries(image, 40)
    metrics, fails = LookupMetrics(registry), [False]
    reader = ImageReader(image, failures=lambda _: fails[0])
    with StreamLookup(image, reader, observer=metrics) as lookup:
        for query in queries:
            lookup.get_objects(*query)
        lookup.get_objects(-1, 0, 1, 1)
        lookup.update(
            stream_image(
                WorldShape(nodes=1, lost_share=0.3, streams=1, stream_object_share=0), 3, seed=1
            )
        )
        fails[0] = True
        lookup.filters.clear()
        with pytest.raises(LoadFailed):
            lookup.get_objects(0, 0, 1, 1)
        totals = lookup.stats

    for result in LookupTotals.RESULTS:
        expected = totals[f"lookups_{result}"] or None

        assert expected == value(registry, "lookups_total", result=result)
    assert 42 == value(registry, "lookup_seconds_count")
    assert 1 == value(registry, "lookups_total", result="error")
    assert 1 == value(registry, "lookups_total", result="invalid")


def test_sizes(registry: Any) -> None:
    """Sizes of index and filters are those at the time of the scrape."""
    image = stream_image(WorldShape(), 30)
    metrics = LookupMetrics(registry)
    with StreamLookup(image, ImageReader(image), observer=metrics) as lookup:
        metrics.watch(lambda: lookup.stats)

        assert 0 == value(registry, "filters")
        for query in random_queries(image, 40):
            lookup.get_objects(*query)
        stats = lookup.stats

    assert 0 < stats["filters"]
    for name in ("filters", "filter_bytes", "index_items", "index_entries"):
        assert stats[name] == value(registry, name)
    for reason in ("age", "items", "entries"):
        assert 0 == value(registry, "index_evictions_total", reason=reason)
    assert 0 == value(registry, "filter_evictions_total")


def test_text_form(registry: Any) -> None:
    """The exposition is Prometheus text: every metric has its help and its type."""
    metrics = LookupMetrics(registry)
    metrics.watch(lambda: StreamLookup(StreamImage(), ImageReader(StreamImage())).stats)
    metrics.observe("complete", QueryStats())
    text = prometheus.generate_latest(registry).decode()
    samples = [line for line in text.splitlines() if not line.startswith("#")]

    assert all(line.startswith("bkstore_stream_") for line in samples)
    assert text.count("# HELP") == text.count("# TYPE")


def test_one_registry_takes_one(registry: Any) -> None:
    """Metrics that are there already are refused, and so is a second thing to watch."""
    metrics = LookupMetrics(registry)
    with pytest.raises(InvalidArgument, match="already has these metrics"):
        LookupMetrics(registry)
    metrics.watch(dict)
    with pytest.raises(InvalidArgument, match="already has these metrics"):
        metrics.watch(dict)


def test_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without prometheus_client the error names the extra."""
    monkeypatch.setitem(sys.modules, "prometheus_client", None)

    with pytest.raises(MissingDependency, match=r"pip install .*'prometheus-client>=0\.21'"):
        LookupMetrics()


# -- audits


def test_audits_have_upstream_s_names(registry: Any) -> None:
    """Gauges hold the last run, timers add up, skipped runs are counted."""
    metrics = AuditMetrics(registry)
    store = store_of(closed(), closed(8))
    Auditor(store, {"b1": FULL, "b2": FULL, "b3": Holder()}, metrics=metrics).run()
    prefix = "replication_auditor_"
    gauge = prefix + "NUM_LEDGERS_HAVING_LESS_THAN_WQ_REPLICAS_OF_AN_ENTRY"

    assert 2 == registry.get_sample_value(gauge)
    assert 0 == registry.get_sample_value(prefix + "NUM_LEDGERS_HAVING_NO_REPLICA_OF_AN_ENTRY")
    auditor = Auditor(store, dict.fromkeys(("b1", "b2", "b3"), FULL), metrics=metrics)
    auditor.run()

    assert 0 == registry.get_sample_value(gauge)
    for timer in ("REPLICAS_CHECK_TIME", "PLACEMENT_POLICY_CHECK_TIME"):
        assert 2 == registry.get_sample_value(f"{prefix}{timer}_count")
    clock = Clock(1)
    auditor.run_periodically(5.0, clock, lambda _: None, may_run=lambda: False)

    assert 1 == registry.get_sample_value(f"{prefix}NUM_SKIPPING_CHECK_TASK_TIMES_total")
    with pytest.raises(InvalidArgument, match="already has these metrics"):
        AuditMetrics(registry)
