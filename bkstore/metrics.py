"""Prometheus metrics of look-ups and audits.

Observers for `StreamLookup` and `Auditor`; a server comes with `prometheus_client`, extra "serve".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from bkstore.errors import InvalidArgument, MissingDependency

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

LOOKUP_PREFIX = "bkstore_stream"

_LATENCY_BUCKETS_MILLIS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 5000)
LATENCY_BUCKETS_SECONDS = tuple(millis / 1000 for millis in _LATENCY_BUCKETS_MILLIS)
_WAVE_COUNT_BUCKETS = (0, 1, 2, 3, 5, 8, 13, 21, 34, 55)
OBJECT_COUNT_BUCKETS = (0, 1, 2, 4, 8, 16, 32, 64)

# metric -> (field of a look-up's stats, help)
_COUNTERS = {
    "preloads": ("preloads", "Objects loaded ahead, before the search came to them"),
    "failed_preloads": ("failed_preloads", "Failed preloads, which do not fail a lookup"),
    "joined_loads": ("joined", "Loads that another lookup had already begun"),
    "kept_objects_used": ("kept", "Objects that were available and not loaded again"),
    "loads_without_stream": ("without_stream", "Loaded objects that did not hold the stream"),
    "filter_refusals": ("filter_refusals", "Loads avoided by filters"),
    "filter_false_positives": (
        "filter_false_positives",
        "Loads of an object that lacks a stream its filter did not refuse",
    ),
    "index_hits": ("index_hits", "Searches for which the index gave a position"),
    "index_misses": ("index_misses", "Searches that began at the first object"),
    "index_dead_entries": ("dead_entries", "Index entries dropped because their object is gone"),
    "skipped_objects": ("skipped", "Objects before the first position of a search"),
    "jumps": ("jumps", "Moves forward after another query of the index"),
    "searched_nodes": ("nodes", "Nodes whose list was searched"),
    "listed_objects": ("listed", "Objects in the lists of the nodes that were searched"),
}

# metric -> (name in the stats, help)
_SIZES = {
    "index_items": ("index_items", "Streams of nodes in the index"),
    "index_entries": ("index_entries", "Start offsets in the index"),
    "filters": ("filters", "Objects that have a filter"),
    "filter_bytes": ("filter_bytes", "Bytes of the filters' bit arrays"),
}
_INDEX_EVICTIONS = "index_evictions_"
_FILTER_EVICTIONS = "filter_evictions"


AUDIT_GAUGES = (
    "NUM_LEDGERS_HAVING_NO_REPLICA_OF_AN_ENTRY",
    "NUM_LEDGERS_HAVING_LESS_THAN_AQ_REPLICAS_OF_AN_ENTRY",
    "NUM_LEDGERS_HAVING_LESS_THAN_WQ_REPLICAS_OF_AN_ENTRY",
    "NUM_LEDGERS_NOT_ADHERING_TO_PLACEMENT_POLICY",
    "NUM_LEDGERS_SOFTLY_ADHERING_TO_PLACEMENT_POLICY",
    "NUM_UNDERREPLICATED_LEDGERS_ELAPSED_RECOVERY_GRACE_PERIOD",
)
AUDIT_TIMERS = ("REPLICAS_CHECK_TIME", "PLACEMENT_POLICY_CHECK_TIME")
_AUDIT_SKIPPED = "NUM_SKIPPING_CHECK_TASK_TIMES"


class LookupCosts(Protocol):
    """The stats of one look-up, as far as they are read as attributes; others are read by name."""

    loads: int
    preloads: int
    waves: int
    objects: int
    seconds: float


class LookupMetrics:
    """Counts look-ups into a Prometheus registry; give it to `StreamLookup` as its observer.

    `registry` None is that of `prometheus_client`. Metrics are named ``bkstore_stream_...``:
    look-ups by result, histograms of seconds, waves and objects, loads by cause, and the counts of
    `QueryStats`. Raises `MissingDependency` without `prometheus_client`, `InvalidArgument` if the
    registry has an instance already: share it among look-ups. Threads: safe, 20 us per look-up.

    >>> from types import SimpleNamespace
    >>> from prometheus_client import CollectorRegistry
    >>> registry = CollectorRegistry()
    >>> metrics = LookupMetrics(registry)
    >>> costs = dict.fromkeys([stats_field for stats_field, _ in _COUNTERS.values()], 0)
    >>> costs |= {"loads": 5, "waves": 1, "objects": 3, "seconds": 0.002}
    >>> metrics.observe("complete", SimpleNamespace(**costs))
    >>> registry.get_sample_value("bkstore_stream_loads_total", {"cause": "search"})
    5.0
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        """Register the metrics; raises `InvalidArgument` if the registry has them already."""
        prometheus = _import_prometheus()
        registry = prometheus.REGISTRY if registry is None else registry
        self._registry = registry

        def make_metric(kind: type[Any], name: str, text: str, **options: Any) -> Any:
            return kind(f"{LOOKUP_PREFIX}_{name}", text, registry=registry, **options)

        counter, histogram = prometheus.Counter, prometheus.Histogram
        try:  # if the registry has the metrics already, the first one raises
            text = "Lookups by result"
            self._lookups = make_metric(counter, "lookups", text, labelnames=["result"])
        except ValueError as error:
            raise InvalidArgument(f"the registry already has these metrics: {error}") from None
        text = "Objects loaded, by purpose"
        self._loads = make_metric(counter, "loads", text, labelnames=["cause"])
        text, buckets = "Time of a lookup", LATENCY_BUCKETS_SECONDS
        self._seconds = make_metric(histogram, "lookup_seconds", text, buckets=buckets)
        text = "Waves of loads that a lookup waited for"
        self._waves = make_metric(histogram, "lookup_waves", text, buckets=_WAVE_COUNT_BUCKETS)
        text = "Objects of an answer"
        self._objects = make_metric(histogram, "lookup_objects", text, buckets=OBJECT_COUNT_BUCKETS)
        self._counters = {
            stats_field: make_metric(counter, name, text)
            for name, (stats_field, text) in _COUNTERS.items()
        }

    def observe(self, result: str, stats: LookupCosts) -> None:
        """Record the result and the costs of one look-up."""
        self._lookups.labels(result).inc()
        self._loads.labels("search").inc(stats.loads - stats.preloads)
        self._loads.labels("preload").inc(stats.preloads)
        self._seconds.observe(stats.seconds)
        self._waves.observe(stats.waves)
        self._objects.observe(stats.objects)
        for stats_field, counter in self._counters.items():
            counter.inc(getattr(stats, stats_field))

    def watch(self, stats: Callable[[], Mapping[str, float]]) -> None:
        """Export the sizes that `stats` returns at each scrape (``lambda: lookup.stats``): gauges,
        and counters of evictions. Raises `InvalidArgument` if the registry has them."""
        try:
            self._registry.register(_SizeCollector(stats))
        except ValueError as error:
            raise InvalidArgument(f"the registry already has these metrics: {error}") from None


class _SizeCollector:
    """Gives a registry the sizes that `stats` returns, anew at each scrape."""

    def __init__(self, stats: Callable[[], Mapping[str, float]]) -> None:
        self._stats = stats

    def describe(self) -> Iterable[Metric]:
        return self._list_metrics({})

    def collect(self) -> Iterable[Metric]:
        return self._list_metrics(self._stats())

    def _list_metrics(self, sizes: Mapping[str, float]) -> Iterable[Metric]:
        """Yield a gauge for each size (0 if absent), a counter of evicted filters, and one of items
        evicted from the index, by reason."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        for name, (size_name, text) in _SIZES.items():
            yield GaugeMetricFamily(f"{LOOKUP_PREFIX}_{name}", text, value=sizes.get(size_name, 0))
        text = "Filters evicted for lack of space"
        count = sizes.get(_FILTER_EVICTIONS, 0)
        yield CounterMetricFamily(f"{LOOKUP_PREFIX}_filter_evictions", text, value=count)
        text = "Items removed from the index, by reason"
        evictions = CounterMetricFamily(f"{LOOKUP_PREFIX}_index_evictions", text, labels=["reason"])
        for size_name, value in sizes.items():
            if size_name.startswith(_INDEX_EVICTIONS):
                evictions.add_metric([size_name.removeprefix(_INDEX_EVICTIONS)], value)
        yield evictions


class AuditMetrics:
    """Exports the stats of the last audit as gauges; give it to `Auditor` as its metrics.

    Names: ``replication_auditor_`` and BookKeeper's (`AuditorStats`). A gauge for each number of
    ledgers, a summary in milliseconds for each timer, and skips. Raises `MissingDependency` without
    `prometheus_client`, `InvalidArgument` if the registry has these. Threads: safe.

    >>> from prometheus_client import CollectorRegistry
    >>> registry = CollectorRegistry()
    >>> AuditMetrics(registry, ["NUM_X"], []).observe({"NUM_X": 3.0})
    >>> registry.get_sample_value("replication_auditor_NUM_X")
    3.0
    """

    def __init__(
        self,
        registry: CollectorRegistry | None = None,
        gauges: Iterable[str] = AUDIT_GAUGES,
        timers: Iterable[str] = AUDIT_TIMERS,
    ) -> None:
        """Register the metrics; raises `InvalidArgument` if the registry has them already."""
        prometheus = _import_prometheus()
        registration = {"registry": prometheus.REGISTRY if registry is None else registry}
        prefix = "replication_auditor_"
        try:
            self._gauges = {
                name: prometheus.Gauge(prefix + name, "Ledgers of the last audit", **registration)
                for name in gauges
            }
            self._timers = {
                name: prometheus.Summary(prefix + name, "Milliseconds of an audit", **registration)
                for name in timers
            }
            text = "Due audits that were skipped"
            self._skipped = prometheus.Counter(prefix + _AUDIT_SKIPPED, text, **registration)
        except ValueError as error:
            raise InvalidArgument(f"the registry already has these metrics: {error}") from None

    def observe(self, stats: Mapping[str, float]) -> None:
        """Record the stats of a finished audit."""
        for name, gauge in self._gauges.items():
            gauge.set(stats[name])
        for name, timer in self._timers.items():
            timer.observe(stats[name])

    def count_skipped(self) -> None:
        """Count a skipped audit."""
        self._skipped.inc()


class AuditSummary(Protocol):
    """The attributes of an `AuditReport` that are read."""

    started_at: float
    ended_at: float | None

    @property
    def clean(self) -> bool:
        """Whether nothing was found and nothing skipped."""

    @property
    def stats(self) -> Mapping[str, float]:
        """Gauges and timers by BookKeeper's names."""

    @property
    def ledgers_by_outcome(self) -> Mapping[str, int]:
        """Numbers of ledgers by outcome."""


def audit_textfile(report: AuditSummary) -> bytes:
    """Return an audit's metrics for the textfile collector of Prometheus' node exporter.

    They are those of `AuditMetrics`, ``bkstore_audit_ledgers`` by outcome, ``bkstore_audit_clean``
    (1 or 0), and the audit's start and end in unix seconds. Raises `MissingDependency`.
    """
    prometheus = _import_prometheus()
    registry = prometheus.CollectorRegistry()
    AuditMetrics(registry).observe(report.stats)
    text = "Ledgers of the last audit, by outcome"
    ledgers = prometheus.Gauge("bkstore_audit_ledgers", text, ["outcome"], registry=registry)
    for outcome, count in report.ledgers_by_outcome.items():
        ledgers.labels(outcome).set(count)
    for name, text, value in (
        ("clean", "Whether the last audit found nothing and was complete", report.clean),
        ("start_time_seconds", "When the last audit began", report.started_at),
        ("end_time_seconds", "When the last audit ended", report.ended_at or 0.0),
    ):
        prometheus.Gauge(f"bkstore_audit_{name}", text, registry=registry).set(float(value))
    exposition: bytes = prometheus.generate_latest(registry)
    return exposition


def _import_prometheus() -> Any:
    try:
        import prometheus_client
    except ImportError as error:
        raise MissingDependency.of("prometheus_client", "serve", "metrics") from error
    return prometheus_client
