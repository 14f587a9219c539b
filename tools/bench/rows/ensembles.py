"""Rows: a ledger over three bookies, on sockets and in this process: appends, and ranges read."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from bkstore.cluster import Cluster, LedgerHandle, MemoryStore
from bkstore.cluster.client.client import Client as ClusterClient
from bkstore.network import Client
from tools.bench.inputs.bookie_process import BookieProcess, bookie_process
from tools.bench.inputs.entry_ids import new_directory
from tools.bench.measure import Context, Fact, Figures, Row

BOOKIES, _APPENDED, _READ = 3, 20_000, 6000
PAYLOAD = bytes(100)
_RUNS = 5

Work = Callable[[], object]


class Cost(NamedTuple):
    """What an entry took, in microseconds: CPU of this process, CPU of the bookies', clock."""

    client: float
    bookies: float
    clock: float

    def facts(self, name: str) -> list[Fact]:
        """Return them as they stand in the table, and entries a second."""
        told = zip(("client CPU", "bookies' CPU", "clock"), self)
        return [
            Fact(f"{name}: entries a second", round(1e6 / max(self.clock, 1e-9))),
            *(Fact(f"{name}: {what}, us an entry", round(value, 2)) for what, value in told),
        ]


def _cost(bookies: list[BookieProcess], work: Work, entries: int) -> Cost:
    """Return the median of five runs, behind one that does not count."""
    work()
    runs = []
    for _ in range(_RUNS):
        before = sum(bookie.cpu_seconds() for bookie in bookies)
        clock, client = time.perf_counter(), time.process_time()
        work()
        client, clock = time.process_time() - client, time.perf_counter() - clock
        spent = sum(bookie.cpu_seconds() for bookie in bookies) - before
        runs.append((client, spent, clock))
    medians = (statistics.median(column) / entries * 1e6 for column in zip(*runs))
    return Cost(*medians)


@contextmanager
def _on_sockets(context: Context) -> Iterator[tuple[Client, list[BookieProcess]]]:
    """Yield a client of three bookies that are processes of their own."""
    store = MemoryStore()
    with ExitStack() as undo:
        processes = [
            undo.enter_context(bookie_process("db", new_directory(context))) for _ in range(BOOKIES)
        ]
        for process in processes:
            store.register_bookie(f"127.0.0.1:{process.address[1]}")
        yield undo.enter_context(Client(store)), processes


# -- appends


def _one_by_one(ledger: LedgerHandle, count: int) -> Work:
    def run() -> None:
        for _ in range(count):
            ledger.append(PAYLOAD)

    return run


def _not_waited_for(ledger: LedgerHandle, count: int) -> Work:
    def run() -> None:
        for _ in range(count):
            ledger.append_later(PAYLOAD)
        ledger.flush()

    return run


def _many(ledger: LedgerHandle, count: int) -> Work:
    return lambda: ledger.append_many([PAYLOAD] * count)


def _append_facts(client: ClusterClient, processes: list[BookieProcess], count: int) -> list[Fact]:
    few = max(count // 40, 20)
    ledger = client.create_ledger(3, 2, 2)
    many = _cost(processes, _many(ledger, count), count)
    later = _cost(processes, _not_waited_for(ledger, count), count)
    single = _cost(processes, _one_by_one(ledger, few), few)
    return [
        *many.facts("append_many"),
        *later.facts("append_later"),
        *single.facts("append, one by one"),
    ]


@contextmanager
def _appends(context: Context) -> Iterator[Iterator[Figures]]:
    yield _append_cases(context)


def _append_cases(context: Context) -> Iterator[Figures]:
    count = context.scaled(_APPENDED, 200)
    shape = f"{count} entries, payload 100 bytes, E 3, W 2, A 2, db storage"
    with _on_sockets(context) as (client, processes):
        yield Figures(
            "three processes", count, shape, lambda: _append_facts(client, processes, count)
        )
    with Cluster.open(new_directory(context), bookies=BOOKIES, storage="db") as cluster:
        yield Figures("in this process", count, shape, lambda: _append_facts(cluster, [], count))


# -- reads


def _read_facts(
    client: ClusterClient, processes: list[BookieProcess], numbers: tuple[int, int, int], count: int
) -> list[Fact]:
    ledger = client.create_ledger(*numbers)
    ledger.append_many([PAYLOAD] * count)
    few = max(count // 10, 20)

    def scan() -> None:
        if sum(1 for _ in ledger.scan(0, count - 1)) != count:
            raise RuntimeError("entries are missing")

    def singly() -> None:
        for entry in range(few):
            ledger.read_entry(entry)

    range_cost = _cost(processes, scan, count)
    single = _cost(processes, singly, few)
    ratios = {"the clock": single.clock / range_cost.clock}
    ratios["CPU of the client"] = single.client / max(range_cost.client, 1e-9)
    return [
        *(
            Fact(f"single reads / range, by {what}", round(ratio, 1))
            for what, ratio in ratios.items()
        ),
        *range_cost.facts("range"),
        *single.facts("single reads"),
    ]


@contextmanager
def _reads(context: Context) -> Iterator[Iterator[Figures]]:
    yield _read_cases(context)


def _read_cases(context: Context) -> Iterator[Figures]:
    count = context.scaled(_READ, 200)
    with _on_sockets(context) as (client, processes):
        yield from _of_both_shapes(client, processes, "three processes", count)
    with Cluster.open(new_directory(context), bookies=BOOKIES, storage="db") as cluster:
        yield from _of_both_shapes(cluster, [], "in this process", count)


def _of_both_shapes(
    client: ClusterClient, processes: list[BookieProcess], where: str, count: int
) -> Iterator[Figures]:
    for numbers in ((3, 2, 2), (3, 3, 2)):

        def facts(numbers: tuple[int, int, int] = numbers) -> list[Fact]:
            return _read_facts(client, processes, numbers, count)

        shape = f"{count} entries, payload 100 bytes, E 3, W {numbers[1]}, db storage"
        yield Figures(f"{where}, W {numbers[1]} of 3", count, shape, facts)


ROWS = (
    Row(
        "ensemble-appends",
        "appends to a ledger of three bookies",
        "Three bookies, each a process of its own on loopback, and bkstore.network.Client; beside "
        "them bkstore.cluster.Cluster with three bookies in this process. append_many: one call; "
        "append_later: a call for each, then flush; one by one: append. Every entry is "
        "acknowledged by two synced journals. CPU of the client is of all its threads; that of "
        "the bookies is of their processes, and in one process it is the client's.",
        _appends,
    ),
    Row(
        "ensemble-reads",
        "ranges of a ledger of three bookies",
        "The same clusters. Range: LedgerHandle.scan, digests verified; single reads: read_entry "
        "for each, as ranges were read before. Entries are in memory.",
        _reads,
    ),
)
