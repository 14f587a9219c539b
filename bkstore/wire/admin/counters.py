"""OperationCounters: Prometheus metrics of a bookie server, with BP-62's two histograms.

BookKeeper has not built BP-62's ("Observability") histograms of batch reads.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from bkstore.cluster.garbage.metrics import GarbageMetrics
from bkstore.errors import InvalidArgument, MissingDependency
from bkstore.wire.status_codes import Status

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.registry import Collector

    from bkstore.cluster.garbage.collector import BackgroundCollector

BATCH_READ = "BATCH_READ_ENTRY"
LATENCY_BUCKETS_MILLIS = (5, 10, 20, 50, 100, 200, 500, 1000, 3000)
"""BP-62's latency buckets; longer times are in a last bucket without a limit."""

RESPONSE_BYTES_BUCKETS = (128, 512, 1 << 10, 2 << 10, 4 << 10, 16 << 10, 128 << 10, 1 << 20)
"""BP-62's buckets of response sizes: 128, 512, 1k, 2k, 4k, 16k, 128k, 1 MB."""

_SHORT_LATENCIES = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005)
LATENCY_BUCKETS_SECONDS = (*_SHORT_LATENCIES, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5)


class OperationCounters:
    """Counts requests in a Prometheus registry; give it to a bookie server as its observer.

    By default it makes a registry of its own. `AdminServer` shows it at ``/metrics``. Metrics:
    ``bkstore_server_requests`` by operation, protocol and status; ``bkstore_server_seconds`` by
    operation and protocol; ``bkstore_admin_requests`` by path and status;
    ``bkstore_server_read_only``, 1 while writes are refused; ``bkstore_checkpoint_failures``; of
    batch reads ``bookkeeper_server_BATCH_READ_ENTRY_REQUEST`` in milliseconds and
    ``bookkeeper_server_BATCH_READ_ENTRY_RESPONSE_SIZE`` in bytes. Raises `MissingDependency`
    without `prometheus_client`, `InvalidArgument` if the registry has them already. Threads: safe.

    >>> counters = OperationCounters()
    >>> counters.observe("BATCH_READ_ENTRY", 2, 0.007, Status.EOK, 300)
    >>> name = "bookkeeper_server_BATCH_READ_ENTRY_REQUEST_bucket"
    >>> [counters.registry.get_sample_value(name, {"le": le}) for le in ("5.0", "10.0")]
    [0.0, 1.0]
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        """Register the metrics; see the class for their names and errors."""
        prometheus = _prometheus()
        self.registry = prometheus.CollectorRegistry() if registry is None else registry
        self._garbage_registered = False
        counter = partial(prometheus.Counter, registry=self.registry)
        gauge = partial(prometheus.Gauge, registry=self.registry)
        histogram = partial(prometheus.Histogram, registry=self.registry)
        try:
            self._request_count = counter(
                "bkstore_server_requests",
                "Requests by operation, protocol and status",
                ["operation", "protocol", "status"],
            )
        except ValueError as error:  # if another `OperationCounters` has this registry
            raise InvalidArgument(f"the registry already has these metrics: {error}") from None
        self._request_seconds = histogram(
            "bkstore_server_seconds",
            "Time from a whole request to its answer",
            ["operation", "protocol"],
            buckets=LATENCY_BUCKETS_SECONDS,
        )
        self._admin_requests = counter(
            "bkstore_admin_requests",
            "Requests of the HTTP admin by path and status",
            ["path", "status"],
        )
        self._read_only = gauge("bkstore_server_read_only", "Whether the bookie refuses writes")
        self._checkpoint_failures = counter("bkstore_checkpoint_failures", "Failed checkpoints")
        self._batch_read_millis = histogram(
            f"bookkeeper_server_{BATCH_READ}_REQUEST",
            "Milliseconds of batch reads (BP-62)",
            buckets=LATENCY_BUCKETS_MILLIS,
        )
        self._batch_read_sizes = histogram(
            f"bookkeeper_server_{BATCH_READ}_RESPONSE_SIZE",
            "Bytes of answers to batch reads (BP-62)",
            buckets=RESPONSE_BYTES_BUCKETS,
        )

    def observe(
        self,
        operation: str,
        protocol: int,
        seconds: float,
        status: Status,
        response_size: int | None = None,
    ) -> None:
        """Count one request to a bookie server, answered after `seconds`; `protocol` is 2 or 3,
        `response_size` the bytes of a batch read's answer."""
        self._request_count.labels(operation, f"v{protocol}", status.name).inc()
        self._request_seconds.labels(operation, f"v{protocol}").observe(seconds)
        if operation == BATCH_READ:
            self._batch_read_millis.observe(seconds * 1000)
            if response_size is not None:
                self._batch_read_sizes.observe(response_size)

    def observe_many(
        self, count: int, operation: str, protocol: int, seconds: float, status: Status
    ) -> None:
        """Count `count` requests with the same outcome; about 0.7 us each."""
        self._request_count.labels(operation, f"v{protocol}", status.name).inc(count)
        observe = self._request_seconds.labels(operation, f"v{protocol}").observe
        for _ in range(count):
            observe(seconds)

    def count_admin_request(self, path: str, status: int) -> None:
        """Count one request to the HTTP admin."""
        self._admin_requests.labels(path, str(status)).inc()

    def count_checkpoint_failure(self) -> None:
        """Count a failed checkpoint."""
        self._checkpoint_failures.inc()

    def watch_read_only(self, is_read_only: Callable[[], bool]) -> None:
        """Set the read-only gauge to call `is_read_only` at each scrape."""
        self._read_only.set_function(lambda: float(is_read_only()))

    def register_garbage_metrics(self, collector: BackgroundCollector) -> None:
        """Register the metrics of a garbage collector; later calls do nothing."""
        if not self._garbage_registered:
            self.registry.register(cast("Collector", GarbageMetrics(collector)))
            self._garbage_registered = True

    def exposition(self) -> bytes:
        """Return all metrics of the registry in the text format, version 0.0.4."""
        return cast(bytes, _prometheus().generate_latest(self.registry))


def _prometheus() -> Any:
    try:
        import prometheus_client
    except ImportError as error:
        raise MissingDependency.of("prometheus-client", "serve", "metrics") from error
    return prometheus_client
