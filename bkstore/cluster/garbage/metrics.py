"""The figures of a garbage collector as metrics, by the names that upstream gives them.

Source: `bookie/stats/GarbageCollectorStats`, which a bookie shows as ``bookie_gc_...``. What has
no counterpart there is ``bkstore_gc_...``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from bkstore.cluster.garbage.collector import BackgroundCollector
from bkstore.cluster.garbage.figures import Runtime
from bkstore.storage.ledgers.garbage_pass import Kind

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

_UPSTREAM = "bookie_gc_"
_KINDS: tuple[Kind, ...] = ("major", "minor")

_COUNTS = {
    "DELETED_LEDGER_TOTAL": ("deleted_ledgers", "Ledgers deleted by garbage collection"),
    "RECLAIMED_DELETION_SPACE_BYTES": (
        "reclaimed_by_deletion",
        "Bytes reclaimed by removing entry logs in which no ledger lived",
    ),
    "RECLAIMED_COMPACTION_SPACE_BYTES": (
        "reclaimed_by_compaction",
        "Bytes reclaimed by compacting entry logs",
    ),
}
_SIZES = {
    "ACTIVE_LEDGER_TOTAL": ("active_ledgers", "Ledgers at the end of the last pass"),
    "ACTIVE_ENTRY_LOG_TOTAL": ("logs", "Closed entry logs"),
    "ENTRY_LOG_SPACE_BYTES": ("log_bytes", "Bytes of records in closed entry logs"),
    "ACTIVE_ENTRY_LOG_SPACE_BYTES": ("live_bytes", "Bytes of records of ledgers that live"),
}
_TIMES = {
    "THREAD_RUNTIME": ("passes", "Milliseconds of passes of garbage collection"),
    "GC_LEDGER_RUNTIME": ("judgements", "Milliseconds of finding and deleting deleted ledgers"),
}


class GarbageMetrics:
    """A collector of Prometheus over a `BackgroundCollector`."""

    def __init__(self, collector: BackgroundCollector) -> None:
        self._collector = collector

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics as they are now."""
        from prometheus_client.metrics_core import GaugeMetricFamily, Metric

        figures = self._collector.figures
        passes = self._collector.bookie.storage.garbage_passes
        counts = {name: (getattr(figures, of), text) for name, (of, text) in _COUNTS.items()}
        for kind in _KINDS:
            name = f"{kind.upper()}_COMPACTION_TOTAL"
            counts[name] = (passes.counts[kind], f"Passes with a {kind} compaction")
        text = "Compactions of databases of entry locations"
        counts["ENTRY_LOCATION_COMPACTION_TOTAL"] = (self._collector.location_compactions, text)
        for name, (value, text) in counts.items():
            metric = Metric(f"{_UPSTREAM}{name}", text, "unknown")  # a counter's gets a suffix
            metric.add_sample(metric.name, {}, value)
            yield metric
        for name, (of, text) in _SIZES.items():
            yield GaugeMetricFamily(f"{_UPSTREAM}{name}", text, getattr(figures, of))
        for tenth, logs in enumerate(figures.usage, 1):
            name = f"{_UPSTREAM}entry_log_usage_buckets_le_{tenth * 10}"
            text = f"Entry logs of which {tenth * 10 - 10} to {tenth * 10} % are wanted"
            yield GaugeMetricFamily(name, text, logs)
        for name, (of, text) in _TIMES.items():
            yield _summary(f"{_UPSTREAM}{name}", text, getattr(figures, of))
        yield from self._own()

    def _own(self) -> Iterator[Metric]:
        from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

        figures = self._collector.figures
        text = "Passes that judged no ledger: the metadata store gave no full answer"
        yield CounterMetricFamily("bkstore_gc_unjudged", text, figures.judgements.failed)
        text = "Records that compactions copied, bytes"
        yield CounterMetricFamily("bkstore_gc_copied_bytes", text, figures.moved_bytes)
        text = "Whether compactions of a kind are suspended"
        suspended = GaugeMetricFamily("bkstore_gc_suspended", text, labels=("kind",))
        for kind in _KINDS:
            suspended.add_metric((kind,), float(self._collector.is_suspended(kind)))
        yield suspended


def _summary(name: str, text: str, runtime: Runtime) -> Metric:
    from prometheus_client.metrics_core import SummaryMetricFamily

    family = SummaryMetricFamily(name, text, labels=("success",))
    family.add_metric(("true",), runtime.succeeded, runtime.seconds_succeeded * 1000)
    family.add_metric(("false",), runtime.failed, runtime.seconds_failed * 1000)
    return family
