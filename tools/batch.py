"""How large a batch of reads should be, in process and over the socket: `python -m tools.batch`."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from bkstore import LedgerStorage
from bkstore.formats.entry import Coder, RecordBatch
from bkstore.wire.client import WireClient
from tools.bench.inputs.bookie_process import BookieProcess, bookie_process
from tools.bench.measure import Side, sample
from tools.lab import Column, Experiment, Panel, Row, Run, main
from tools.lab.experiment import Rows
from tools.lab.table import shown

__all__ = ["BATCHES", "EXPERIMENT"]

HELD = 1_000
BATCHES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
PAYLOADS = (100, 1024)
KEY = b"k" * 20
SINGLE = 0
"""As a batch size: `read_entry` for each entry."""

Read = Callable[[int, int], RecordBatch]


def _work(read: Read, single: Callable[[int], object], held: int, size: int) -> Callable[[], int]:
    """Return what reads all entries in batches of a size; it returns how many requests it took."""

    def one_by_one() -> int:
        for entry in range(held):
            single(entry)
        return held

    def in_batches() -> int:
        at = requests = 0
        while at < held:
            at += len(read(at, size))
            requests += 1
        return requests

    return one_by_one if size == SINGLE else in_batches


def _sides(read: Read, single: Callable[[int], object], held: int) -> list[Side]:
    return [Side(str(size), _work(read, single, held, size)) for size in (SINGLE, *BATCHES)]


def _rows(run: Run, where: str, payload: int, sides: list[Side], held: int) -> Iterator[Row]:
    requests = [int(str(side.run())) for side in sides]
    for side, count, taken in zip(sides, requests, sample(sides, run.rounds, run.shortest)):
        yield {
            "where": where,
            "payload": payload,
            "batch": int(side.name),
            "entries": held,
            "requests": count,
            "rate": held / statistics.median(taken.wall) / 1e3,
            "client": taken.seconds / held * 1e6,
        }


def _server_cost(bookie: BookieProcess, side: Side, held: int, rounds: int) -> float:
    """Return the CPU microseconds that an entry takes of the bookie's process."""
    costs = []
    for _ in range(rounds):
        before = bookie.cpu_seconds()
        side.run()
        costs.append(bookie.cpu_seconds() - before)
    return statistics.median(costs) / held * 1e6


def measure(run: Run) -> Iterator[Row]:
    """Yield a row for each place, payload and batch size; size 0 is single reads."""
    held = run.scaled(HELD, 40)
    records = {payload: _records(run, payload, held) for payload in PAYLOADS}
    with LedgerStorage.open(run.directory / "storage", "db") as storage:
        for payload, batch in records.items():
            run.tell(f"{payload} bytes, in process")
            storage.add_batch(batch, master_key=KEY)
            storage.flush()
            sides = _sides(
                partial(storage.read_entries, payload), partial(storage.read_entry, payload), held
            )
            yield from _rows(run, "in process", payload, sides, held)
    with (
        bookie_process("db", run.directory / "bookie") as bookie,
        WireClient(bookie.address) as client,
    ):
        for payload, batch in records.items():
            run.tell(f"{payload} bytes, over the socket")
            client.add_batch(batch, KEY)
            sides = _sides(
                partial(client.read_entries, payload), partial(client.read_entry, payload), held
            )
            for row, side in zip(_rows(run, "over the socket", payload, sides, held), sides):
                yield {**row, "server": _server_cost(bookie, side, held, run.rounds)}


def _records(run: Run, payload: int, held: int) -> RecordBatch:
    """Return the records of a ledger whose number is the size of its payloads."""
    noise = np.random.default_rng(run.seed).bytes(payload)
    return Coder("CRC32C").encode_batch(payload, np.arange(held), [noise] * held)


def found(rows: Rows) -> list[str]:
    """Return what the rows come to."""
    by = {(row["where"], row["payload"], row["batch"]): row for row in rows}
    sentences = []
    for where in ("in process", "over the socket"):
        for payload in PAYLOADS:
            rates = {size: by[where, payload, size]["rate"] for size in (SINGLE, *BATCHES)}
            best = max(BATCHES, key=lambda size: rates[size])
            enough = min(size for size in BATCHES if rates[size] >= 0.8 * rates[best])
            sentences.append(
                f"{where.capitalize()}, {payload} bytes: single reads bring "
                f"{shown(rates[SINGLE])}k entries a second, batches of {best} "
                f"{shown(rates[best])}k ({rates[best] / rates[SINGLE]:.0f} times as many); from "
                f"{enough} on it is within a fifth of that."
            )
    return sentences


EXPERIMENT = Experiment(
    name="batch",
    question="How large should a batch of reads be?",
    method=(
        "All entries of a ledger are read, in batches of a size one after the other, one request "
        "outstanding; size 0 is read_entry for each. In process: a db storage, flushed, caches "
        "warm. Over the socket: a bookie in a process of its own, records in its write cache, by "
        "loopback, protocol v2. Entries a second are by wall time, costs by CPU time of the "
        "client's thread and of the bookie's process; medians of the rounds."
    ),
    data="1,000 entries of a ledger at scale 1, with payloads of 100 or of 1,024 bytes.",
    columns=(
        Column("where", "read", kind="given"),
        Column("payload", "payload", "bytes", "given"),
        Column("batch", "batch", "entries", "given"),
        Column("entries", "entries", kind="count"),
        Column("requests", "requests", kind="count"),
        Column("rate", "read", "k entries a s"),
        Column("client", "client CPU", "us an entry"),
        Column("server", "server CPU", "us an entry"),
    ),
    panels=(
        Panel(
            "Payload of 100 bytes",
            "batch",
            "rate",
            "where",
            {"payload": 100, "batch": BATCHES},
            log="xy",
        ),
        Panel(
            "Payload of 1,024 bytes",
            "batch",
            "rate",
            "where",
            {"payload": 1024, "batch": BATCHES},
            log="xy",
        ),
        Panel(
            "100 bytes: the client's CPU",
            "batch",
            "client",
            "where",
            {"payload": 100, "batch": BATCHES},
            log="xy",
        ),
        Panel(
            "100 bytes: the server's CPU",
            "batch",
            "server",
            "where",
            {"payload": 100, "batch": BATCHES},
            log="xy",
        ),
    ),
    measure=measure,
    found=found,
)


if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
