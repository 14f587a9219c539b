"""The peak memory of this process or another one, as the system counts it and as Python does."""

from __future__ import annotations

import resource
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

MAXRSS_UNIT_BYTES = 1 if sys.platform == "darwin" else 1024
"""The unit of `ru_maxrss`."""


def peak_memory(pid: int | str = "self") -> int:
    """Return the highest resident size of a process so far, in bytes. `/proc` is preferred because
    it counts this program alone: the value of `getrusage` starts with that of the parent process,
    and is known for this process only."""
    status = Path(f"/proc/{pid}/status")
    if status.exists():
        fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return int(fields["VmHWM"].removesuffix("kB")) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * MAXRSS_UNIT_BYTES


@contextmanager
def measure_peak() -> Iterator[dict[str, float]]:
    """Measure the block; fill in its `seconds`, and the peak memory before (`start`) and after."""
    figures: dict[str, float] = {"start": peak_memory()}
    started = time.perf_counter()
    yield figures
    figures |= {"seconds": time.perf_counter() - started, "peak": peak_memory()}


def peak_allocated(work: Callable[[], object]) -> int:
    """Return the peak bytes that the work allocates, including numpy's."""
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak
