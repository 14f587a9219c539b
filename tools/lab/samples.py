"""What experiments measure with: latencies, CPU seconds, bytes read and written, sizes of files.

A latency is wall time; of each query the median over the rounds counts, so that a neighbour that
took the processor in one round is not in it. Then p50 and p99 are over the queries. Bytes are
those that the process asked of the system or gave to it (`rchar` and `wchar` of
`/proc/self/io`), from the page cache or not; there are none where the system does not tell.

What is compared is measured in turns: all sides in each round, another one first in each.
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
from tools.lab.sides import Side

ROWS = (".sst", ".log", ".idx")
"""How names of files with rows of an index end: tables and write-ahead logs, index files."""

Q = TypeVar("Q")
T = TypeVar("T")


class Latency(NamedTuple):
    """Microseconds: of the middle query, and of the one that 99 of 100 are not slower than."""

    p50: float
    p99: float


class Asking(NamedTuple):
    """A way to ask, and its queries."""

    ask: Callable[[Any], object]
    queries: Sequence[Any]


def latencies(
    asks: Mapping[str, Callable[[Q], object]], queries: Sequence[Q], rounds: int
) -> dict[str, Latency]:
    """Return how long one query takes by each way to ask; ways take turns, in turning order."""
    return latencies_of({name: Asking(ask, queries) for name, ask in asks.items()}, rounds)


def latencies_of(askings: Mapping[str, Asking], rounds: int) -> dict[str, Latency]:
    """Return the same where each way to ask has queries of its own."""
    taken = {name: np.empty((rounds, len(one.queries)), np.int64) for name, one in askings.items()}
    for nth in range(rounds):
        for name in turned(list(askings), nth):
            _ask_all(*askings[name], taken[name][nth])
    found = {}
    for name, lines in taken.items():
        p50, p99 = np.percentile(np.median(lines, axis=0) / 1e3, (50, 99))
        found[name] = Latency(float(p50), float(p99))
    return found


def turned(sides: Sequence[T], nth: int) -> list[T]:
    """Return the order of a round: another side is first in each."""
    turn = nth % len(sides)
    return [*sides[turn:], *sides[:turn]]


def _ask_all(ask: Callable[[Q], object], queries: Sequence[Q], line: Int64Array) -> None:
    clock = time.perf_counter_ns
    for at, query in enumerate(queries):
        begin = clock()
        ask(query)
        line[at] = clock() - begin


def latency(ask: Callable[[Q], object], queries: Sequence[Q], rounds: int) -> Latency:
    """Return how long one query takes, asked one by one, all of them in each round."""
    return latencies({"": ask}, queries, rounds)[""]


def milliseconds(work: Callable[[], object], rounds: int) -> float:
    """Return how long some work takes by the clock, the median of the rounds."""
    taken = np.empty((rounds, 1), np.int64)
    for line in taken:
        _ask_all(lambda _: work(), [None], line)
    return float(np.median(taken)) / 1e6


@dataclass(slots=True)
class Spent:
    """What a piece of work took: CPU seconds of the process, wall seconds, bytes."""

    cpu: float = 0.0
    wall: float = 0.0
    read: int | None = None
    written: int | None = None


@contextmanager
def spending() -> Iterator[Spent]:
    """Measure what is done inside; threads of the process count too."""
    spent = Spent()
    before = _io()
    cpu, wall = time.process_time(), time.perf_counter()
    yield spent
    spent.cpu, spent.wall = time.process_time() - cpu, time.perf_counter() - wall
    after = _io()
    if before is not None and after is not None:
        spent.read, spent.written = after[0] - before[0], after[1] - before[1]


def _io() -> tuple[int, int] | None:
    try:
        text = Path("/proc/self/io").read_text()
    except OSError:
        return None
    fields = dict(line.split(": ") for line in text.splitlines())
    return int(fields["rchar"]), int(fields["wchar"])


def median_of(spent: Sequence[Spent]) -> Spent:
    """Return the medians of several times the same work."""

    def middle(name: str) -> Any:
        values = [getattr(one, name) for one in spent]
        return None if None in values else statistics.median(values)

    return Spent(middle("cpu"), middle("wall"), middle("read"), middle("written"))


class Done(NamedTuple):
    """What a side took, the medians of the rounds, and what it returned the last time."""

    spent: Spent
    result: Any


def done_in_turns(sides: Sequence[Side], rounds: int) -> list[Done]:
    """Run sides beside each other, in turning order; all threads of the process count.

    For work that has threads of its own, or is long; `tools.lab.sides.sample` is for the rest.
    """
    spent: dict[str, list[Spent]] = {side.name: [] for side in sides}
    results: dict[str, Any] = {}
    for nth in range(rounds):
        for side in turned(sides, nth):
            given = () if side.fresh is None else (side.fresh(),)
            with spending() as cost:
                results[side.name] = side.run(*given)
            spent[side.name].append(cost)
            if side.done is not None:
                side.done(*given)
    return [Done(median_of(spent[side.name]), results[side.name]) for side in sides]


class FileSizes(NamedTuple):
    """Files below a folder: how many, their bytes, and the bytes that the disk gave them."""

    number: int
    bytes: int
    on_disk: int


def files_below(top: Path, endings: tuple[str, ...] = ("",)) -> FileSizes:
    """Return how many files there are whose names end so, and how large.

    One that goes between the listing and the look at it, as table files do where RocksDB compacts,
    is not there.
    """
    found = []
    for folder, _, names in os.walk(top):
        for name in names:
            with suppress(FileNotFoundError):
                if name.endswith(endings):
                    found.append(os.stat(os.path.join(folder, name)))
    return FileSizes(
        len(found), sum(one.st_size for one in found), 512 * sum(one.st_blocks for one in found)
    )
