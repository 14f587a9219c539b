"""Rows: appends and range reads of a ledger on three bookies, over sockets and in process."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import NamedTuple

from bkstore.cluster import Cluster, LedgerHandle, MemoryStore
from bkstore.cluster.client.client import Client as ClusterClient
from bkstore.lab.stores.bookie_process import BenchmarkBookie, bookie_process
from bkstore.network import Client
from tools.bench.cases import BenchmarkRow, Cases, Context, Fact, FactCase
from tools.bench.inputs.entry_ids import new_directory

BOOKIES, _APPEND_COUNT, _READ_COUNT = 3, 20_000, 6000
PAYLOAD = bytes(100)
_RUN_COUNT = 5

Work = Callable[[], object]


class EntryCost(NamedTuple):
    """The cost of an entry in microseconds: CPU of this process, CPU of the bookies, wall time."""

    client_cpu: float
    bookie_cpu: float
    wall: float

    def facts(self, name: str) -> list[Fact]:
        """Return entries per second and the costs, as the table shows them."""
        values = zip(("client CPU", "bookies' CPU", "clock"), self)
        return [
            Fact(f"{name}: entries a second", round(1e6 / max(self.wall, 1e-9))),
            *(Fact(f"{name}: {label}, us an entry", round(value, 2)) for label, value in values),
        ]


def _measure_cost(bookies: list[BenchmarkBookie], work: Work, entries: int) -> EntryCost:
    """Return the medians of several runs of the work, after a first one that warms up."""
    work()
    runs = []
    for _ in range(_RUN_COUNT):
        bookies_before = sum(bookie.cpu_seconds() for bookie in bookies)
        wall_before, client_before = time.perf_counter(), time.process_time()
        work()
        client_cpu, wall = time.process_time() - client_before, time.perf_counter() - wall_before
        bookie_cpu = sum(bookie.cpu_seconds() for bookie in bookies) - bookies_before
        runs.append((client_cpu, bookie_cpu, wall))
    medians = (statistics.median(column) / entries * 1e6 for column in zip(*runs))
    return EntryCost(*medians)


@contextmanager
def _socket_cluster(context: Context) -> Iterator[tuple[Client, list[BenchmarkBookie]]]:
    store = MemoryStore()
    with ExitStack() as stack:
        opened = [bookie_process("db", new_directory(context)) for _ in range(BOOKIES)]
        processes = [stack.enter_context(process) for process in opened]
        for process in processes:
            store.register_bookie(f"127.0.0.1:{process.address[1]}")
        yield stack.enter_context(Client(store)), processes


def _append_singly(ledger: LedgerHandle, count: int) -> Work:
    def run() -> None:
        for _ in range(count):
            ledger.append(PAYLOAD)

    return run


def _append_pipelined(ledger: LedgerHandle, count: int) -> Work:
    def run() -> None:
        for _ in range(count):
            ledger.append_later(PAYLOAD)
        ledger.flush()

    return run


def _append_facts(client: ClusterClient, bookies: list[BenchmarkBookie], count: int) -> list[Fact]:
    single_count = max(count // 40, 20)  # single appends take much longer
    ledger = client.create_ledger(3, 2, 2)
    batch_cost = _measure_cost(bookies, lambda: ledger.append_many([PAYLOAD] * count), count)
    pipelined_cost = _measure_cost(bookies, _append_pipelined(ledger, count), count)
    single_cost = _measure_cost(bookies, _append_singly(ledger, single_count), single_count)
    return [
        *batch_cost.facts("append_many"),
        *pipelined_cost.facts("append_later"),
        *single_cost.facts("append, one by one"),
    ]


def _append_figures(context: Context) -> Cases:
    count = context.scaled(_APPEND_COUNT, minimum=200)
    shape = f"{count} entries, payload 100 bytes, E 3, W 2, A 2, db storage"
    with _socket_cluster(context) as (client, processes):
        facts = partial(_append_facts, client, processes, count)
        yield FactCase("three processes", count, shape, facts)
    with Cluster.open(new_directory(context), bookies=BOOKIES, storage="db") as cluster:
        facts = partial(_append_facts, cluster, bookies=[], count=count)  # all CPU is the client's
        yield FactCase("in this process", count, shape, facts)


def _read_facts(
    client: ClusterClient,
    processes: list[BenchmarkBookie],
    quorums: tuple[int, int, int],
    count: int,
) -> list[Fact]:
    ledger = client.create_ledger(*quorums)
    ledger.append_many([PAYLOAD] * count)
    single_count = max(count // 10, 20)  # single reads take much longer

    def scan() -> None:
        if sum(1 for _ in ledger.scan(0, count - 1)) != count:
            raise RuntimeError("entries are missing")

    def read_singly() -> None:
        for entry in range(single_count):
            ledger.read_entry(entry)

    range_cost = _measure_cost(processes, scan, count)
    single_cost = _measure_cost(processes, read_singly, single_count)
    ratios = {"the clock": single_cost.wall / range_cost.wall}
    ratios["CPU of the client"] = single_cost.client_cpu / max(range_cost.client_cpu, 1e-9)
    return [
        *(Fact(f"single reads / range, by {by}", round(ratio, 1)) for by, ratio in ratios.items()),
        *range_cost.facts("range"),
        *single_cost.facts("single reads"),
    ]


def _read_figures(context: Context) -> Cases:
    count = context.scaled(_READ_COUNT, minimum=200)
    with _socket_cluster(context) as (client, processes):
        yield from _read_cases(client, processes, "three processes", count)
    with Cluster.open(new_directory(context), bookies=BOOKIES, storage="db") as cluster:
        yield from _read_cases(cluster, processes=[], where="in this process", count=count)


def _read_cases(
    client: ClusterClient, processes: list[BenchmarkBookie], where: str, count: int
) -> Iterator[FactCase]:
    for write_quorum in (2, 3):
        quorums = (3, write_quorum, 2)  # E, W, A
        facts = partial(_read_facts, client, processes, quorums, count)
        shape = f"{count} entries, payload 100 bytes, E 3, W {write_quorum}, db storage"
        yield FactCase(f"{where}, W {write_quorum} of 3", count, shape, facts)


ROWS = (
    BenchmarkRow(
        "ensemble-appends",
        "appends to a ledger of three bookies",
        "Three bookies, each a process of its own on loopback, and bkstore.network.Client; beside "
        "them bkstore.cluster.Cluster with three bookies in this process. append_many: one call; "
        "append_later: a call for each, then flush; one by one: append. Every entry is "
        "acknowledged by two synced journals. CPU of the client is of all its threads; that of "
        "the bookies is of their processes, and in one process it is the client's.",
        _append_figures,
    ),
    BenchmarkRow(
        "ensemble-reads",
        "ranges of a ledger of three bookies",
        "The same clusters. Range: LedgerHandle.scan, digests verified; single reads: read_entry "
        "for each, as ranges were read before. Entries are in memory.",
        _read_figures,
    ),
)
