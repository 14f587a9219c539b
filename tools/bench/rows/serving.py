"""Row: a bookie serving 64 connections, compared with a real one if there is one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Literal, get_args

import numpy as np

from bkstore.storage.options import StorageKind
from tools.bench.inputs.bookie_process import bookie_process
from tools.bench.inputs.entry_ids import new_directory
from tools.bench.inputs.real_bookie import real_bookie, why_unavailable
from tools.bench.inputs.wire_load import (
    MeasuredProcess,
    Window,
    WireLoadResult,
    add_windows,
    read_windows,
    run_load,
)
from tools.bench.measure import BenchmarkRow, Context, Fact, FactCase

_CONNECTIONS, WINDOW, _WINDOW_COUNT, PAYLOAD = 64, 50, 40, 100
ROUNDS = 5

RequestMix = Literal["adds", "reads", "half and half"]
_STORAGES: tuple[StorageKind, ...] = ("sorted", "db")


def _windows_of_round(
    kind: RequestMix, round_number: int, connections: int, windows: int
) -> list[list[Window]]:
    """Return each connection's windows in a round: of its own ledger, with the round's entries."""
    first = round_number * WINDOW * windows
    windows_of_connection = []
    for connection in range(connections):
        is_adding = kind == "adds" or (kind == "half and half" and connection % 2 == 0)
        if is_adding:
            ledger = 1 + connection + (1000 if kind == "half and half" else 0)
            windows_of_connection.append(add_windows(ledger, first, WINDOW, windows, PAYLOAD))
        else:
            windows_of_connection.append(
                read_windows(1 + connection, first, WINDOW, windows, PAYLOAD)
            )
    return windows_of_connection


def _latency_milliseconds(share: float, load: WireLoadResult, _cpu: float) -> float:
    return load.percentile(share) * 1e3


def _bookie_facts(
    name: str, bookie: MeasuredProcess, runs: Sequence[tuple[WireLoadResult, float]]
) -> Iterator[Fact]:
    def fact(label: str, metric: Callable[[WireLoadResult, float], float], digits: int) -> Fact:
        value = float(np.median([metric(load, cpu) for load, cpu in runs]))
        return Fact(f"{name}: {label}", round(value, digits))

    yield fact("requests a second", lambda load, _: load.requests_per_second, 0)
    for share, label in ((0.5, "p50"), (0.99, "p99"), (0.999, "p99.9")):
        yield fact(f"{label}, ms", partial(_latency_milliseconds, share), 2)
    yield fact("CPU, us a request", lambda load, cpu: cpu / load.requests * 1e6, 2)
    yield Fact(f"{name}: peak memory, MiB", bookie.peak_memory() >> 20)


def _measure_bookies(
    kind: RequestMix, bookies: dict[str, MeasuredProcess], connections: int, windows: int
) -> list[Fact]:
    """Run the load on the bookies in turns, round by round; return their figures."""
    runs: dict[str, list[tuple[WireLoadResult, float]]] = {name: [] for name in bookies}
    for round_number in range(ROUNDS):
        windows_of_connection = _windows_of_round(kind, round_number, connections, windows)
        for name, bookie in bookies.items():
            cpu_before = bookie.cpu_seconds()
            load = run_load(bookie.address, windows_of_connection)
            runs[name].append((load, bookie.cpu_seconds() - cpu_before))
    facts = [
        fact for name, bookie in bookies.items() for fact in _bookie_facts(name, bookie, runs[name])
    ]
    if len(bookies) > 1:
        ours, real = (
            float(np.median([load.requests_per_second for load, _ in bookie_runs]))
            for bookie_runs in runs.values()
        )
        facts.append(Fact("requests a second, ours / the real one's", round(ours / real, 2)))
    return facts


def _serving_figures(context: Context) -> Iterator[FactCase]:
    connections = context.scaled(_CONNECTIONS, 2)
    windows = context.scaled(_WINDOW_COUNT, 2)
    for storage in _STORAGES:
        with ExitStack() as stack:
            process = bookie_process(storage, new_directory(context))
            bookies = {"ours": stack.enter_context(process).process}
            if why_unavailable() is None:
                directory = new_directory(context)
                bookies["the real one"] = stack.enter_context(real_bookie(storage, directory))
            for kind in get_args(RequestMix):
                yield FactCase(
                    f"{storage} storage: {kind}",
                    connections * WINDOW * windows,
                    f"{connections} connections, windows of {WINDOW}, payload {PAYLOAD} bytes",
                    partial(_measure_bookies, kind, bookies, connections, windows),
                )


@contextmanager
def _serving(context: Context) -> Iterator[Iterator[FactCase]]:
    yield _serving_figures(context)


ROWS = (
    BenchmarkRow(
        "serving",
        "a served bookie under many connections",
        "A bookie in a process of its own on loopback; one process has all connections, each "
        "with a window of v2 requests under way, frames made before: the next window is sent "
        "when all of the last is answered. All adds, then reads of the same entries, then adds "
        "by one half of the connections beside reads by the other. Adds are acknowledged when "
        "synced. Latency goes from the window's sending to the answer's arrival. Medians of "
        "five rounds; with BOOKKEEPER_CLASSPATH a real bookie takes turns.",
        _serving,
    ),
)
