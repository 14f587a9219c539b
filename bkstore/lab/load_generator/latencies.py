"""Latencies in histograms of high dynamic range (HdrHistogram), with bounded memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from bkstore.errors import MissingDependency
from bkstore.ids import Int64Array

_MAX_LATENCY = 3600 * 10**9  # nanoseconds; longer ones count as an hour
_SIGNIFICANT_BITS = 11  # as many as a histogram of three digits keeps

PERCENTILES = {"p50": 2, "p90": 10, "p99": 100, "p99.9": 1_000, "p99.99": 10_000}
"""The percentiles that are reported: of how many latencies one is longer, by name."""


def require_hdrhistogram() -> Any:
    """Return the class `HdrHistogram`, or raise `MissingDependency`."""
    try:
        from hdrh.histogram import HdrHistogram
    except ImportError as error:
        raise MissingDependency.of("hdrhistogram", "lab", "a load test") from error
    return HdrHistogram


class LatencyHistogram:
    """Latencies in nanoseconds, each kept to three significant digits; at most a megabyte.

    Not thread-safe: each client has its own, and `merge` adds them up.
    """

    def __init__(self) -> None:
        self._histogram = require_hdrhistogram()(1, _MAX_LATENCY, 3)

    def record(self, nanoseconds: Int64Array) -> None:
        """Count latencies. About 10 ms for 100,000 of them."""
        values = np.clip(nanoseconds, 1, _MAX_LATENCY)
        # The histogram takes one value a call. It keeps `_SIGNIFICANT_BITS` leading bits, so values
        # are rounded down to these first, and equal ones are then added by one call.
        exponents = np.frexp(values.astype(np.float64))[1]  # the number of bits of each value
        shifts = np.maximum(exponents - _SIGNIFICANT_BITS, 0)
        rounded = (values >> shifts) << shifts
        distinct, counts = np.unique(rounded, return_counts=True)
        for value, count in zip(distinct.tolist(), counts.tolist()):
            self._histogram.record_value(value, count)

    def merge(self, other: LatencyHistogram) -> None:
        """Add the counts of another histogram."""
        self._histogram.add(other._histogram)

    @property
    def count(self) -> int:
        """The number of latencies."""
        return int(self._histogram.get_total_count())

    def percentiles_us(self) -> dict[str, float]:
        """Return latencies in microseconds by the names of `PERCENTILES`, and the longest as "max".
        A percentile is left out if there are too few latencies for one to exceed it: p99 needs 100.
        """
        percentiles = {
            label: self._histogram.get_value_at_percentile(100 - 100 / one_in) / 1e3
            for label, one_in in PERCENTILES.items()
            if self.count >= one_in
        }
        return {**percentiles, "max": self._histogram.get_max_value() / 1e3}

    def encode(self) -> str:
        """Return the histogram in HdrHistogram's compressed form, as base64."""
        return bytes(self._histogram.encode()).decode("ascii")
