"""RepairMetrics: the results of repairs for Prometheus."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, get_args

from bkstore.errors import MissingDependency
from bkstore.repair.planning.replica_repairs import RepairStatus
from bkstore.repair.repairer import RepairReport

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


class RepairMetrics:
    """Counts repairs in a registry, a new one by default. Raises `MissingDependency`.

    ``bkstore_repair_runs`` counts runs by result (clean, unrepaired, failed),
    ``..._copied_entries`` and ``..._copied_bytes`` what bookies received, ``..._removed_marks`` the
    underreplicated marks. Of the last run, ``..._replicas`` has the replicas of entries by status,
    and ``..._end_time_seconds`` its end in unix seconds.

    >>> metrics = RepairMetrics()
    >>> metrics.observe(RepairReport(copied_entries=3), 60.0)
    >>> metrics.registry.get_sample_value("bkstore_repair_copied_entries_total")
    3.0
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        """Register the metrics."""
        try:
            import prometheus_client
        except ImportError as error:
            raise MissingDependency.of("prometheus_client", "serve", "metrics") from error
        self.registry = prometheus_client.CollectorRegistry() if registry is None else registry
        named: dict[str, Any] = {
            "namespace": "bkstore",
            "subsystem": "repair",
            "registry": self.registry,
        }
        counter, gauge = prometheus_client.Counter, prometheus_client.Gauge
        self._runs = counter("runs", "Repairs by result", ["result"], **named)
        self._entries = counter("copied_entries", "Replicas that bookies received", **named)
        self._bytes = counter("copied_bytes", "Bytes of these replicas", **named)
        self._marks = counter("removed_marks", "Underreplicated marks that were removed", **named)
        text = "Replicas of entries in the last repair, by status"
        self._replicas = gauge("replicas", text, ["status"], **named)
        self._end_time = gauge("end_time_seconds", "When the last repair ended", **named)
        self._to_text = prometheus_client.generate_latest

    def observe(self, report: RepairReport, ended_at: float) -> None:
        """Record a repair that ended at a time in unix seconds."""
        self._runs.labels("clean" if report.is_clean else "unrepaired").inc()
        self._entries.inc(report.copied_entries)
        self._bytes.inc(report.copied_bytes)
        self._marks.inc(report.removed_marks)
        replicas = Counter[str]()
        for repair in report.repairs:
            replicas[repair.status] += len(repair.missing)
        for status in get_args(RepairStatus):
            self._replicas.labels(status).set(replicas[status])
        self._end_time.set(ended_at)

    def count_failure(self) -> None:
        """Count a repair that ended by an error."""
        self._runs.labels("failed").inc()

    def textfile(self) -> bytes:
        """Return the metrics for the textfile collector of Prometheus' node exporter."""
        exposition: bytes = self._to_text(self.registry)
        return exposition
