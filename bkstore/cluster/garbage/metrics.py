"""The stats of a garbage collector as Prometheus metrics, under BookKeeper's names.

Source: `bookie/stats/GarbageCollectorStats` (``bookie_gc_...``); others: ``bkstore_gc_...``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from bkstore.cluster.garbage.collector import BackgroundCollector
from bkstore.cluster.garbage.stats import OpStats
from bkstore.storage.ledgers.garbage_pass import CompactionKind

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

_BOOKKEEPER_PREFIX = "bookie_gc_"
_KINDS: tuple[CompactionKind, ...] = ("major", "minor")

_COUNTER_FIELDS = {
    "DELETED_LEDGER_TOTAL": ("deleted_ledgers", "Ledgers deleted by garbage collection"),
    "RECLAIMED_DELETION_SPACE_BYTES": (
        "reclaimed_by_deletion",
        "Bytes reclaimed by removing entry logs without live ledgers",
    ),
    "RECLAIMED_COMPACTION_SPACE_BYTES": (
        "reclaimed_by_compaction",
        "Bytes reclaimed by compacting entry logs",
    ),
}
_GAUGE_FIELDS = {
    "ACTIVE_LEDGER_TOTAL": ("active_ledgers", "Ledgers at the end of the last pass"),
    "ACTIVE_ENTRY_LOG_TOTAL": ("logs", "Closed entry logs"),
    "ENTRY_LOG_SPACE_BYTES": ("log_bytes", "Bytes of records in closed entry logs"),
    "ACTIVE_ENTRY_LOG_SPACE_BYTES": ("live_bytes", "Bytes of records of live ledgers"),
}
_RUNTIME_FIELDS = {
    "THREAD_RUNTIME": ("passes", "Milliseconds of passes of garbage collection"),
    "GC_LEDGER_RUNTIME": ("deletion_scans", "Milliseconds of finding and deleting deleted ledgers"),
}


class GarbageMetrics:
    """A Prometheus collector of a `BackgroundCollector`'s stats."""

    def __init__(self, collector: BackgroundCollector) -> None:
        self._collector = collector

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics with their current values."""
        from prometheus_client.metrics_core import GaugeMetricFamily, Metric

        stats = self._collector.stats
        passes = self._collector.bookie.storage.garbage_passes
        counts = {
            name: (getattr(stats, field), help_text)
            for name, (field, help_text) in _COUNTER_FIELDS.items()
        }
        for kind in _KINDS:
            name = f"{kind.upper()}_COMPACTION_TOTAL"
            counts[name] = (passes.counts[kind], f"Passes with a {kind} compaction")
        help_text = "Compactions of databases of entry locations"
        location_compactions = self._collector.location_compactions
        counts["ENTRY_LOCATION_COMPACTION_TOTAL"] = (location_compactions, help_text)
        for name, (value, help_text) in counts.items():
            # "unknown", because "counter" would add a suffix to the name.
            metric = Metric(f"{_BOOKKEEPER_PREFIX}{name}", help_text, "unknown")
            metric.add_sample(metric.name, {}, value)
            yield metric
        for name, (field, help_text) in _GAUGE_FIELDS.items():
            yield GaugeMetricFamily(f"{_BOOKKEEPER_PREFIX}{name}", help_text, getattr(stats, field))
        for bucket, log_count in enumerate(stats.usage, 1):
            name = f"{_BOOKKEEPER_PREFIX}entry_log_usage_buckets_le_{bucket * 10}"
            help_text = f"Entry logs of which {bucket * 10 - 10} to {bucket * 10} % are live"
            yield GaugeMetricFamily(name, help_text, log_count)
        for name, (field, help_text) in _RUNTIME_FIELDS.items():
            yield _make_summary(f"{_BOOKKEEPER_PREFIX}{name}", help_text, getattr(stats, field))
        yield from self._bkstore_metrics()

    def _bkstore_metrics(self) -> Iterator[Metric]:
        """Yield the metrics that BookKeeper does not have."""
        from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

        stats = self._collector.stats
        help_text = "Passes that judged no ledger because the metadata store did not answer in full"
        yield CounterMetricFamily("bkstore_gc_unjudged", help_text, stats.deletion_scans.failed)
        help_text = "Bytes of records that compactions copied"
        yield CounterMetricFamily("bkstore_gc_copied_bytes", help_text, stats.moved_bytes)
        help_text = "Whether compactions of a kind are suspended"
        suspended = GaugeMetricFamily("bkstore_gc_suspended", help_text, labels=("kind",))
        for kind in _KINDS:
            suspended.add_metric((kind,), float(self._collector.is_suspended(kind)))
        yield suspended


def _make_summary(name: str, help_text: str, runtime: OpStats) -> Metric:
    """Return a timer in milliseconds, of passes that succeeded and of those that failed."""
    from prometheus_client.metrics_core import SummaryMetricFamily

    family = SummaryMetricFamily(name, help_text, labels=("success",))
    family.add_metric(("true",), runtime.succeeded, runtime.seconds_succeeded * 1000)  # in ms
    family.add_metric(("false",), runtime.failed, runtime.seconds_failed * 1000)
    return family
