"""Rows: entries over loopback, by batch reads, single reads, pipelined reads and adds."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Literal

import numpy as np

from bkstore.formats.entry import Coder, RecordBatch
from bkstore.lab.stores.bookie_process import BenchmarkBookie, bookie_process
from bkstore.wire.client import WireClient
from tools.bench.cases import BenchmarkRow, Case, Cases, Context, Fact, TimedSide
from tools.bench.inputs.entry_ids import new_directory
from tools.bench.inputs.records import MASTER_KEY, records_of

LEDGER = 7
_PAYLOADS = (100, 1024)
BATCH_SIZES = (100, 500)
_READ_COUNT, _ADD_COUNT = 5000, 500
"""The entries that a run reads, and those that it adds."""

_RUN_COUNT = 5
_CODER = Coder("CRC32C")

Work = Callable[[], object]


def _cost_facts(name: str, bookie: BenchmarkBookie, work: Work, entries: int) -> list[Fact]:
    """Return the cost of an entry: CPU of client and server, wall time; medians of some runs."""
    runs = []
    for _ in range(_RUN_COUNT):
        server_before = bookie.cpu_seconds()
        wall_before, client_before = time.perf_counter(), time.thread_time()
        work()
        client, wall = time.thread_time() - client_before, time.perf_counter() - wall_before
        runs.append((client, bookie.cpu_seconds() - server_before, wall))
    medians = (np.median(np.array(runs), axis=0) / entries * 1e6).tolist()
    labels = (f"{name}: {what}, us an entry" for what in ("client CPU", "server CPU", "wall"))
    return [Fact(label, round(value, 2)) for label, value in zip(labels, medians)]


def _wall_seconds(work: Work) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _batch_speedup(batch: Work, single: Work) -> Fact:
    """Return the wall-time speedup of batch over single reads, the claim of BP-62, in turns."""
    pairs = [(_wall_seconds(batch), _wall_seconds(single)) for _ in range(_RUN_COUNT)]
    batch_seconds, single_seconds = np.median(np.array(pairs), axis=0)
    ratio = float(single_seconds / batch_seconds)
    name = "entries a wall second, against single reads"
    return Fact(name, round(ratio, 1), target=">= 10", holds=ratio >= 10)


def _read_in_batches(client: WireClient, entry_count: int, size: int) -> Work:
    def run() -> None:
        for start in range(0, entry_count, size):
            batch = client.read_entries(LEDGER, start, size)
            if len(batch) != min(size, entry_count - start):
                raise RuntimeError(f"{len(batch)} entries from {start}")

    return run


def _read_singly(client: WireClient, entry_count: int) -> Work:
    def run() -> None:
        for entry_id in range(entry_count):
            client.read_entry(LEDGER, entry_id)

    return run


def _read_cases(context: Context) -> Cases:
    entry_count = context.scaled(_READ_COUNT, minimum=100)
    for payload_bytes in _PAYLOADS:
        records = records_of(context, entry_count, payload_bytes)
        with (
            bookie_process("db", new_directory(context)) as bookie,
            WireClient(bookie.address) as client,
            WireClient(bookie.address, "v3", extended=True) as v3,
        ):
            client.add_batch(RecordBatch.of(records, range(entry_count)), MASTER_KEY)
            yield from _cases_of_payload(bookie, client, v3, entry_count, payload_bytes)


def _cases_of_payload(
    bookie: BenchmarkBookie, client: WireClient, v3: WireClient, count: int, payload_bytes: int
) -> Iterator[Case]:
    shape = f"{count} consecutive entries, payload {payload_bytes} bytes, db storage"
    single = TimedSide("read_entry, one by one", _read_singly(client, count))

    def facts(batch: Work, size: int) -> list[Fact]:
        return [
            _batch_speedup(batch, single.run),
            *_cost_facts(f"batches of {size}", bookie, batch, count),
            *_cost_facts("single", bookie, single.run, count),
        ]

    for size in BATCH_SIZES:
        batch = _read_in_batches(client, count, size)
        name, ours = f"batches of {size}, {payload_bytes} bytes", f"read_entries, {size} a request"
        side, batch_facts = TimedSide(ours, batch), partial(facts, batch, size)
        yield Case(name, count, shape, side, (single,), limit=10, facts=batch_facts)

    read_many = partial(client.read_many, LEDGER, range(count))
    pipelined = TimedSide("read_many, 256 under way", read_many)
    costs = partial(_cost_facts, "pipelined", bookie, pipelined.run, count)
    yield Case(f"pipelined, {payload_bytes} bytes", count, shape, pipelined, (single,), facts=costs)

    batches = TimedSide("read_entries, v3", _read_in_batches(v3, count, 500))
    single_v3 = TimedSide("read_entry by v3, one by one", _read_singly(v3, count))
    name = "batches of 500 by v3"
    costs = partial(_cost_facts, name, bookie, batches.run, count)
    yield Case(f"{name}, {payload_bytes} bytes", count, shape, batches, (single_v3,), facts=costs)


def _batch_source(payload_bytes: int, count: int) -> Callable[[], RecordBatch]:
    """Return a function that encodes batches, each with the entries after the previous one."""
    first_entries = itertools.count(0, count)

    def next_batch() -> RecordBatch:
        first_entry = next(first_entries)
        entries = np.arange(first_entry, first_entry + count)
        return _CODER.encode_batch(LEDGER, entries, [bytes(payload_bytes)] * count, lac=entries - 1)

    return next_batch


def _add_cases(context: Context) -> Cases:
    count = context.scaled(_ADD_COUNT, minimum=60)
    protocols: tuple[Literal["v2", "v3"], ...] = ("v2", "v3")
    for protocol in protocols:
        with (
            bookie_process("db", new_directory(context)) as bookie,
            WireClient(bookie.address, protocol) as client,
        ):
            yield _add_case(bookie, client, count)


def _add_case(bookie: BenchmarkBookie, client: WireClient, count: int) -> Case:
    next_batch = _batch_source(100, count)

    def add_together(batch: RecordBatch) -> None:
        client.add_batch(batch, MASTER_KEY)

    def add_singly(batch: RecordBatch) -> None:
        for record in batch.records():
            client.add_entry(record, MASTER_KEY)

    def facts() -> list[Fact]:
        batches = [next_batch() for _ in range(2 * _RUN_COUNT)]  # a run adds new entries
        costs = _cost_facts("pipelined", bookie, lambda: add_together(batches.pop()), count)
        rate = round(1e6 / float(costs[-1].value or 1))
        single = _cost_facts("single", bookie, lambda: add_singly(batches.pop()), count)
        return [Fact("adds a second, pipelined", rate), *costs, *single]

    case_name = f"adds by {client.protocol}"
    shape = f"{count} entries, payload 100 bytes, db storage, every add acknowledged when synced"
    ours = TimedSide("add_batch, 256 under way", add_together, setup=next_batch)
    one_by_one = TimedSide("add_entry, one by one", add_singly, setup=next_batch)
    return Case(case_name, count, shape, ours, (one_by_one,), facts=facts)


ROWS = (
    BenchmarkRow(
        "wire-reads",
        "reads of a bookie over loopback",
        "A bookie served by a process of its own, and one client connection. Ours: "
        "WireClient.read_entries, one request outstanding, v2. Baseline: read_entry for each "
        "entry of the same bookie, one request outstanding too. The ratio is of the client's "
        "CPU; the headline beside it is of entries a wall second, and what an entry takes of "
        "client, server and clock follows. Pipelined: read_many, single reads under way "
        "together. Entries are in memory; digests are verified by neither.",
        _read_cases,
    ),
    BenchmarkRow(
        "wire-adds",
        "adds to a bookie over loopback",
        "The same two processes. Ours: WireClient.add_batch, records encoded before. Baseline: "
        "add_entry for each. All are acknowledged after a sync of the journal, which several "
        "adds under way share.",
        _add_cases,
    ),
)
