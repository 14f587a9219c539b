"""Rows: entries over loopback, by batch reads, single reads, pipelined reads and adds."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

import numpy as np

from bkstore.formats.entry import Coder, RecordBatch
from bkstore.wire.client import WireClient
from tools.bench.inputs.bookie_process import BookieProcess, bookie_process
from tools.bench.inputs.entry_ids import new_directory
from tools.bench.inputs.records import KEY, records_of
from tools.bench.measure import Case, Context, Fact, Row, Side

LEDGER = 7
_PAYLOADS = (100, 1024)
BATCHES = (100, 500)
_HELD, _ADDED = 5000, 500
"""Entries that a run reads, and that it adds."""

_CODER = Coder("CRC32C")

Work = Callable[[], object]


def _cost(name: str, bookie: BookieProcess, work: Work, entries: int) -> list[Fact]:
    """Return what an entry takes of client, server and clock: the median of five runs."""
    runs = []
    for _ in range(5):
        server, wall, client = bookie.cpu_seconds(), time.perf_counter(), time.thread_time()
        work()
        client = time.thread_time() - client
        wall = time.perf_counter() - wall
        runs.append((client, bookie.cpu_seconds() - server, wall))
    medians = np.median(np.array(runs), axis=0) / entries * 1e6
    told = ("client CPU", "server CPU", "wall")
    return [
        Fact(f"{name}: {what}, us an entry", round(float(value), 2))
        for what, value in zip(told, medians)
    ]


def _wall(work: Work) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def _headline(batch: Work, single: Work) -> Fact:
    """Return BP-62's headline: entries a second by batches against single reads, five rounds."""
    pairs = [(_wall(batch), _wall(single)) for _ in range(5)]
    ours, theirs = np.median(np.array(pairs), axis=0)
    ratio = float(theirs / ours)
    return Fact(
        "entries a wall second, against single reads", round(ratio, 1), ">= 10", ratio >= 10
    )


def _in_batches(client: WireClient, held: int, size: int) -> Work:
    def run() -> None:
        for start in range(0, held, size):
            batch = client.read_entries(LEDGER, start, size)
            if len(batch) != min(size, held - start):
                raise RuntimeError(f"{len(batch)} entries from {start}")

    return run


def _one_by_one(client: WireClient, held: int) -> Work:
    def run() -> None:
        for entry in range(held):
            client.read_entry(LEDGER, entry)

    return run


def _read_cases(context: Context) -> Iterator[Case]:
    held = context.scaled(_HELD, 100)
    for payload in _PAYLOADS:
        records = records_of(context, held, payload)
        with (
            bookie_process("db", new_directory(context)) as bookie,
            WireClient(bookie.address) as client,
            WireClient(bookie.address, "v3", extended=True) as v3,
        ):
            client.add_batch(RecordBatch.of(records, range(held)), KEY)
            yield from _cases_of(bookie, client, v3, held, payload)


def _cases_of(
    bookie: BookieProcess, client: WireClient, v3: WireClient, held: int, payload: int
) -> Iterator[Case]:
    shape = f"{held} consecutive entries, payload {payload} bytes, db storage"
    single = Side("read_entry, one by one", _one_by_one(client, held))
    for size in BATCHES:
        batch = _in_batches(client, held, size)

        def facts(batch: Work = batch, size: int = size) -> list[Fact]:
            return [
                _headline(batch, single.run),
                *_cost(f"batches of {size}", bookie, batch, held),
                *_cost("single", bookie, single.run, held),
            ]

        ours = Side(f"read_entries, {size} a request", batch)
        yield Case(
            f"batches of {size}, {payload} bytes", held, shape, ours, (single,), 10, facts=facts
        )

    def pipelined() -> object:
        return client.read_many(LEDGER, range(held))

    ours = Side("read_many, 256 under way", pipelined)
    yield Case(
        f"pipelined, {payload} bytes",
        held,
        shape,
        ours,
        (single,),
        facts=lambda: _cost("pipelined", bookie, pipelined, held),
    )
    batch = _in_batches(v3, held, 500)
    yield Case(
        f"batches of 500 by v3, {payload} bytes",
        held,
        shape,
        Side("read_entries, v3", batch),
        (Side("read_entry by v3, one by one", _one_by_one(v3, held)),),
        facts=lambda: _cost("batches of 500 by v3", bookie, batch, held),
    )


@contextmanager
def _reads(context: Context) -> Iterator[Iterator[Case]]:
    yield _read_cases(context)


# -- adds


def _batches(payload: int, count: int) -> Callable[[], RecordBatch]:
    """Return a maker of batches, each with the entries behind those of the one before."""
    first = itertools.count(0, count)

    def fresh() -> RecordBatch:
        start = next(first)
        entries = np.arange(start, start + count)
        return _CODER.encode_batch(LEDGER, entries, [bytes(payload)] * count, lac=entries - 1)

    return fresh


@contextmanager
def _adds(context: Context) -> Iterator[Iterator[Case]]:
    yield _add_cases(context)


def _add_cases(context: Context) -> Iterator[Case]:
    count = context.scaled(_ADDED, 60)
    protocols: tuple[Literal["v2", "v3"], ...] = ("v2", "v3")
    for protocol in protocols:
        with (
            bookie_process("db", new_directory(context)) as bookie,
            WireClient(bookie.address, protocol) as client,
        ):
            yield _add_case(bookie, client, count)


def _add_case(bookie: BookieProcess, client: WireClient, count: int) -> Case:
    fresh = _batches(100, count)

    def together(batch: RecordBatch) -> None:
        client.add_batch(batch, KEY)

    def singly(batch: RecordBatch) -> None:
        for record in batch.records():
            client.add_entry(record, KEY)

    def facts() -> list[Fact]:
        many = [fresh() for _ in range(10)]
        costs = _cost("pipelined", bookie, lambda: together(many.pop()), count)
        rate = round(1e6 / float(costs[-1].value or 1))
        single = _cost("single", bookie, lambda: singly(many.pop()), count)
        return [Fact("adds a second, pipelined", rate), *costs, *single]

    return Case(
        f"adds by {client.protocol}",
        count,
        f"{count} entries, payload 100 bytes, db storage, every add acknowledged when synced",
        Side("add_batch, 256 under way", together, fresh),
        (Side("add_entry, one by one", singly, fresh),),
        facts=facts,
    )


ROWS = (
    Row(
        "wire-reads",
        "reads of a bookie over loopback",
        "A bookie served by a process of its own, and one client connection. Ours: "
        "WireClient.read_entries, one request outstanding, v2. Baseline: read_entry for each "
        "entry of the same bookie, one request outstanding too. The ratio is of the client's "
        "CPU; the headline beside it is of entries a wall second, and what an entry takes of "
        "client, server and clock follows. Pipelined: read_many, single reads under way "
        "together. Entries are in memory; digests are verified by neither.",
        _reads,
    ),
    Row(
        "wire-adds",
        "adds to a bookie over loopback",
        "The same two processes. Ours: WireClient.add_batch, records encoded before. Baseline: "
        "add_entry for each. All are acknowledged after a sync of the journal, which several "
        "adds under way share.",
        _adds,
    ),
)
