"""Row: a bookie serving 64 connections, compared with a real one if there is one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from itertools import chain
from typing import Literal, get_args

import numpy as np

from bkstore.lab.stores.bookie_process import bookie_process
from bkstore.storage.options import StorageKind
from tools.bench.cases import BenchmarkRow, Cases, Context, Fact, FactCase
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

_CONNECTIONS, WINDOW, _WINDOW_COUNT, PAYLOAD = 64, 50, 40, 100
ROUNDS = 5
_LEDGERS_TO_ADD = 1001
"""The first ledger of the adds among reads: beyond those of any number of connections."""

RequestMix = Literal["adds", "reads", "half and half"]
_STORAGES: tuple[StorageKind, ...] = ("sorted", "db")


def _windows_of_round(
    kind: RequestMix, round_number: int, connections: int, windows: int
) -> list[list[Window]]:
    """Return each connection's windows in a round: of its own ledger, with the round's entries."""
    first_entry = round_number * WINDOW * windows
    windows_of_connection = []
    for connection in range(connections):
        is_adding = kind == "adds" or (kind == "half and half" and connection % 2 == 0)
        # "adds" fills the ledgers that the other kinds read, so these add to others.
        first_ledger = _LEDGERS_TO_ADD if is_adding and kind == "half and half" else 1
        make_windows = add_windows if is_adding else read_windows
        ledger = first_ledger + connection
        windows_of_connection.append(make_windows(ledger, first_entry, WINDOW, windows, PAYLOAD))
    return windows_of_connection


Runs = list[tuple[WireLoadResult, float]]
"""The result of each round's load on a bookie, and the CPU seconds of the bookie's process."""


def _bookie_facts(name: str, bookie: MeasuredProcess, runs: Runs) -> Iterator[Fact]:
    def fact(label: str, values: list[float], digits: int = 2) -> Fact:
        return Fact(f"{name}: {label}", round(float(np.median(values)), digits))

    yield fact("requests a second", [load.requests_per_second for load, _ in runs], digits=0)
    for share, label in ((0.5, "p50"), (0.99, "p99"), (0.999, "p99.9")):
        yield fact(f"{label}, ms", [load.percentile(share) * 1e3 for load, _ in runs])
    yield fact("CPU, us a request", [cpu / load.requests * 1e6 for load, cpu in runs])
    yield Fact(f"{name}: peak memory, MiB", bookie.peak_memory() >> 20)


def _measure_bookies(
    kind: RequestMix, bookies: dict[str, MeasuredProcess], connections: int, windows: int
) -> list[Fact]:
    """Run the load on the bookies in turns, round by round; return their figures."""
    runs: dict[str, Runs] = {name: [] for name in bookies}
    for round_number in range(ROUNDS):
        windows_of_connection = _windows_of_round(kind, round_number, connections, windows)
        for name, bookie in bookies.items():
            cpu_before = bookie.cpu_seconds()
            load = run_load(bookie.address, windows_of_connection)
            runs[name].append((load, bookie.cpu_seconds() - cpu_before))
    facts = [list(_bookie_facts(name, bookie, runs[name])) for name, bookie in bookies.items()]
    if len(bookies) > 1:
        rates = [[load.requests_per_second for load, _ in loads] for loads in runs.values()]
        ours, real = np.median(rates, axis=1).tolist()
        facts.append([Fact("requests a second, ours / the real one's", round(ours / real, 2))])
    return [*chain.from_iterable(facts)]


def _serving_figures(context: Context) -> Cases:
    connections = context.scaled(_CONNECTIONS, minimum=2)
    windows = context.scaled(_WINDOW_COUNT, minimum=2)
    for storage in _STORAGES:
        with ExitStack() as stack:
            process = bookie_process(storage, new_directory(context))
            bookie = stack.enter_context(process)
            bookies = {"ours": MeasuredProcess(bookie.address, bookie.pid)}
            if why_unavailable() is None:
                directory = new_directory(context)
                bookies["the real one"] = stack.enter_context(real_bookie(storage, directory))
            requests = connections * WINDOW * windows
            shape = f"{connections} connections, windows of {WINDOW}, payload {PAYLOAD} bytes"
            for kind in get_args(RequestMix):
                facts = partial(_measure_bookies, kind, bookies, connections, windows)
                yield FactCase(f"{storage} storage: {kind}", requests, shape, facts)


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
        _serving_figures,
    ),
)
