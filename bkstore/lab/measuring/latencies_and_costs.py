"""Measurement for experiments: latencies, CPU seconds, bytes read and written, file sizes.

A latency is wall time. Each query counts with its median over the rounds, so that another process
that took the processor in one round has no influence; p50 and p99 are then over the queries. Bytes
are those that the process read and wrote by system calls (`rchar` and `wchar` of `/proc/self/io`),
whether from the page cache or not; they are None on systems without that file.

Sides to compare are measured in turns: each round runs all of them, and starts with another one.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from bkstore.ids import Int64Array
from bkstore.lab.measuring.timing import TimedSide, rotate

INDEX_FILE_ENDINGS = (".sst", ".log", ".idx")
"""The endings of files with index rows: RocksDB tables and write-ahead logs, index files."""

Q = TypeVar("Q")


class Latency(NamedTuple):
    """The median and the 99th percentile of query times, in microseconds."""

    p50: float
    p99: float


class QuerySet(NamedTuple):
    """A function that answers a query, and the queries for it."""

    run_query: Callable[[Any], object]
    queries: Sequence[Any]


def measure_latencies(
    asks: Mapping[str, Callable[[Q], object]], queries: Sequence[Q], rounds: int
) -> dict[str, Latency]:
    """Return the latency of a query by each function, measured in turns, in rotating order."""
    query_sets = {name: QuerySet(ask, queries) for name, ask in asks.items()}
    return measure_latencies_of(query_sets, rounds)


def measure_latencies_of(query_sets: Mapping[str, QuerySet], rounds: int) -> dict[str, Latency]:
    """Return the latency of each query set. In each round every set is run once, in an order that
    rotates from round to round. A query's time is its median over the rounds; the percentiles of
    a set are over its queries."""
    query_counts = {name: len(query_set.queries) for name, query_set in query_sets.items()}
    nanoseconds = {name: np.empty((rounds, n), np.int64) for name, n in query_counts.items()}
    for round_number in range(rounds):
        for name in rotate(list(query_sets), round_number):
            _time_queries(*query_sets[name], nanoseconds[name][round_number])
    result = {}
    for name, times in nanoseconds.items():  # int64[rounds, queries]
        p50, p99 = np.percentile(np.median(times, axis=0) / 1e3, (50, 99))
        result[name] = Latency(float(p50), float(p99))
    return result


def _time_queries(ask: Callable[[Q], object], queries: Sequence[Q], times: Int64Array) -> None:
    """Fill in the nanoseconds of each query."""
    read_clock = time.perf_counter_ns
    for i, query in enumerate(queries):
        started = read_clock()
        ask(query)
        times[i] = read_clock() - started


def measure_latency(ask: Callable[[Q], object], queries: Sequence[Q], rounds: int) -> Latency:
    """Return the latency of a query; each round asks all of them, one by one."""
    return measure_latencies({"": ask}, queries, rounds)[""]


def measure_milliseconds(work: Callable[[], object], rounds: int) -> float:
    """Return the wall time of some work, the median of the rounds."""
    nanoseconds = np.empty((rounds, 1), np.int64)
    for round_nanoseconds in nanoseconds:  # one query a round, whose argument is not used
        _time_queries(lambda _: work(), [None], round_nanoseconds)
    return float(np.median(nanoseconds)) / 1e6


def record_wall(run: Callable[..., object], seconds: list[float]) -> Callable[..., object]:
    """Return a function that calls `run` and appends the wall time of each call to `seconds`."""

    def timed(*arguments: object) -> object:
        started = time.perf_counter()
        result = run(*arguments)
        seconds.append(time.perf_counter() - started)
        return result

    return timed


@dataclass(slots=True)
class WorkCost:
    """The cost of some work: CPU seconds of the process, wall seconds, bytes read and written."""

    cpu: float = 0.0
    wall: float = 0.0
    read: int | None = None
    written: int | None = None


@contextmanager
def measure_cost() -> Iterator[WorkCost]:
    """Measure the ``with`` block. The yielded cost is filled when the block ends; the work of all
    threads of the process counts."""
    cost = WorkCost()
    bytes_before = _io_bytes()
    cpu, wall = time.process_time(), time.perf_counter()
    yield cost
    cost.cpu, cost.wall = time.process_time() - cpu, time.perf_counter() - wall
    bytes_after = _io_bytes()
    if bytes_before is not None and bytes_after is not None:
        cost.read, cost.written = (
            after - before for before, after in zip(bytes_before, bytes_after)
        )


def _io_bytes() -> tuple[int, int] | None:
    """Return the bytes that the process has read and written so far; None without `/proc`."""
    try:
        text = Path("/proc/self/io").read_text()
    except OSError:
        return None
    fields = dict(line.split(": ") for line in text.splitlines())
    return int(fields["rchar"]), int(fields["wchar"])


def median_cost(costs: Sequence[WorkCost]) -> WorkCost:
    """Return the medians of the costs of the same work, measured several times. A field that the
    system does not measure stays None."""

    def median_of(field: str) -> Any:
        values = [getattr(cost, field) for cost in costs]
        return None if None in values else statistics.median(values)

    return WorkCost(median_of("cpu"), median_of("wall"), median_of("read"), median_of("written"))


class SideResult(NamedTuple):
    """The cost of a side (the medians of the rounds), and what it returned the last time."""

    cost: WorkCost
    result: Any


def run_in_turns(sides: Sequence[TimedSide], rounds: int) -> list[SideResult]:
    """Return for each side (one of several implementations of the same work) its median cost and
    what it returned last. In each round every side runs once, in an order that rotates. The work
    of all threads counts. Use it for long work and for work with threads of its own, otherwise
    `timing.run_samples`."""
    costs: dict[str, list[WorkCost]] = {side.name: [] for side in sides}
    results: dict[str, Any] = {}
    for round_number in range(rounds):
        for side in rotate(sides, round_number):
            arguments = () if side.setup is None else (side.setup(),)
            with measure_cost() as cost:
                results[side.name] = side.run(*arguments)
            costs[side.name].append(cost)
            if side.teardown is not None:
                side.teardown(*arguments)
    return [SideResult(median_cost(costs[side.name]), results[side.name]) for side in sides]


class FileSizes(NamedTuple):
    """The files below a directory: their number, sizes in bytes, and bytes allocated on disk."""

    file_count: int
    bytes: int
    on_disk: int


def measure_files(top: Path, endings: tuple[str, ...] = ("",)) -> FileSizes:
    """Return number and sizes of the files below a directory whose names have these endings. Files
    deleted between listing and `stat`, as by RocksDB's compactions, are not counted."""
    stats = []
    for directory, _, names in os.walk(top):
        for name in names:
            with suppress(FileNotFoundError):
                if name.endswith(endings):
                    stats.append(os.stat(os.path.join(directory, name)))
    on_disk = 512 * sum(stat.st_blocks for stat in stats)  # st_blocks is in units of 512 bytes
    return FileSizes(len(stats), sum(stat.st_size for stat in stats), on_disk)
