"""How large a batch of reads or adds should be, in process and over the socket.

One command: `python -m tools.batch`.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count

import numpy as np

from bkstore import Bookie, LedgerStorage
from bkstore.formats.entry import Coder, RecordBatch
from bkstore.storage.options import JournalOptions
from bkstore.wire.client import WireClient
from tools.bench.inputs.bookie_process import BookieProcess, bookie_process
from tools.lab import Column, Experiment, Panel, Row, Run, main
from tools.lab.experiment import Rows
from tools.lab.sides import Side, sample
from tools.lab.table import shown

_READ, _ADDED = 1_000, 200
BATCHES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
"""Sizes of a batch; those above what a ledger has would be the same call again."""

_PAYLOADS = (100, 1024)
KEY = b"k" * 20
_SINGLE = 0
"""As a batch size: a call for each entry."""

Source = LedgerStorage | Bookie | WireClient


def _records(run: Run, ledger: int, payload: int, number: int) -> RecordBatch:
    noise = np.random.default_rng(run.seed).bytes(payload)
    return Coder("CRC32C").encode_batch(ledger, np.arange(number), [noise] * number)


# -- sides: each returns how many calls it took


def _reads(source: Source, ledger: int, held: int) -> list[Side]:
    def singly() -> int:
        for entry in range(held):
            source.read_entry(ledger, entry)
        return held

    def batched(size: int) -> int:
        at = calls = 0
        while at < held:
            at += len(source.read_entries(ledger, at, size))
            calls += 1
        return calls

    sizes = [size for size in BATCHES if size <= held]
    return [Side(str(_SINGLE), singly), *(Side(str(n), partial(batched, n)) for n in sizes)]


def _adds(source: Bookie | WireClient, encode: Callable[[], RecordBatch], added: int) -> list[Side]:
    """Return what adds the records of a new ledger, made before."""

    def singly(records: RecordBatch) -> int:
        for record in records.records():
            source.add_entry(record, KEY)
        return len(records)

    def batched(size: int, records: RecordBatch) -> int:
        starts = range(0, len(records), size)
        for start in starts:
            source.add_batch(records.between(start, min(start + size, len(records))), KEY)
        return len(starts)

    sizes = [size for size in BATCHES if size <= added]
    return [
        Side(str(_SINGLE), singly, encode),
        *(Side(str(size), partial(batched, size), encode) for size in sizes),
    ]


def _once(side: Side) -> int:
    given = () if side.fresh is None else (side.fresh(),)
    return int(str(side.run(*given)))


# -- rows


def _rows(run: Run, key: Row, sides: list[Side], number: int) -> Iterator[Row]:
    calls = [_once(side) for side in sides]
    for side, called, taken in zip(sides, calls, sample(sides, run.rounds, run.shortest)):
        yield {
            **key,
            "batch": int(side.name),
            "entries": number,
            "requests": called,
            "rate": number / taken.wall_seconds / 1e3,
            "client": taken.seconds / number * 1e6,
        }


def _server_costs(
    bookie: BookieProcess, sides: list[Side], number: int, rounds: int
) -> list[float]:
    """Return the CPU microseconds that an entry takes of the bookie's process, by side."""

    def once(side: Side) -> float:
        before = bookie.cpu_seconds()
        _once(side)
        return bookie.cpu_seconds() - before

    taken = [[once(side) for side in sides] for _ in range(rounds)]
    return [statistics.median(costs) / number * 1e6 for costs in zip(*taken)]


def _works(
    run: Run, reader: LedgerStorage | WireClient, adder: Bookie | WireClient
) -> Iterator[tuple[Row, list[Side], int]]:
    """Yield what names some rows, their sides, and how many entries a side handles."""
    ledgers = count(10_000)
    held, added = run.scaled(_READ, 40), run.scaled(_ADDED, 10)
    for payload in _PAYLOADS:
        yield {"what": "reads", "payload": payload}, _reads(reader, payload, held), held
    for payload in _PAYLOADS:

        def encode(payload: int = payload) -> RecordBatch:
            return _records(run, next(ledgers), payload, added)

        yield {"what": "adds", "payload": payload}, _adds(adder, encode, added), added


def measure(run: Run) -> Iterator[Row]:
    """Yield a row for each kind of call, place, payload and batch size; size 0 is single calls."""
    held = run.scaled(_READ, 40)
    journal = JournalOptions(preallocate=1 << 20)
    with (
        LedgerStorage.open(run.directory / "storage", "db") as storage,
        Bookie.open(run.directory / "here", "db", journal=journal) as here,
    ):
        for payload in _PAYLOADS:
            storage.add_batch(_records(run, payload, payload, held), master_key=KEY)
        storage.flush()
        for key, sides, number in _works(run, storage, here):
            run.tell(f"{key['what']}, {key['payload']} bytes, in process")
            yield from _rows(run, {"where": "in process", **key}, sides, number)
    with (
        bookie_process("db", run.directory / "bookie") as bookie,
        WireClient(bookie.address) as client,
    ):
        for payload in _PAYLOADS:
            client.add_batch(_records(run, payload, payload, held), KEY)
        for key, sides, number in _works(run, client, client):
            run.tell(f"{key['what']}, {key['payload']} bytes, over the socket")
            rows = list(_rows(run, {"where": "over the socket", **key}, sides, number))
            for row, cost in zip(rows, _server_costs(bookie, sides, number, run.rounds)):
                yield {**row, "server": cost}


def found(rows: Rows) -> list[str]:
    """Return what the rows come to."""
    rates: dict[tuple[str, str, int], dict[int, float]] = {}
    for row in rows:
        key = row["what"], row["where"], row["payload"]
        rates.setdefault(key, {})[row["batch"]] = row["rate"]
    return [_finding(*key, by_size) for key, by_size in rates.items()]


def _finding(what: str, where: str, payload: int, rates: dict[int, float]) -> str:
    sizes = sorted(set(rates) - {_SINGLE})
    best = max(sizes, key=lambda size: rates[size])
    near = [str(size) for size in sizes if rates[size] >= 0.8 * rates[best] and size != best]
    others = f"within a fifth of that are batches of {', '.join(near)}"
    return (
        f"{what.capitalize()} {where}, {payload} bytes: single ones make {shown(rates[_SINGLE])}k "
        f"entries a second, batches of {best} {shown(rates[best])}k, "
        f"{shown(rates[best] / rates[_SINGLE])} times as many; "
        f"{others if near else 'no other size comes within a fifth of that'}."
    )


def _panel(title: str, y: str, what: str, payload: int) -> Panel:
    chosen = {"what": what, "payload": payload, "batch": BATCHES}
    return Panel(title, "batch", y, "where", chosen, log="xy")


EXPERIMENT = Experiment(
    name="batch",
    question="How large should a batch of reads or adds be?",
    method=(
        "Reads: all entries of a ledger, in batches of a size one after the other, one call "
        "outstanding; size 0 is read_entry for each. In process: a db storage, flushed, caches "
        "warm. Over the socket: a bookie in a process of its own, records in its write cache, by "
        "loopback, protocol v2. Adds: the records of a new ledger, encoded before, add_batch for "
        "so many, durable at return (over the socket its entries are under way together); size 0 "
        "is add_entry for each. In process: a bookie of db storage with its journal. Sizes above "
        "what the ledger has are left out. Entries a second are by wall time, costs by CPU time of "
        "the client's thread and of the bookie's process; medians of the rounds, in which sizes "
        "take turns."
    ),
    data=(
        "At scale 1 a ledger of 1,000 entries is read, 200 entries are added to a new ledger; "
        "payloads of 100 or of 1,024 bytes."
    ),
    columns=(
        Column("what", "calls", kind="given"),
        Column("where", "made", kind="given"),
        Column("payload", "payload", "bytes", "given"),
        Column("batch", "batch", "entries", "given"),
        Column("entries", "entries", kind="count"),
        Column("requests", "calls", kind="count"),
        Column("rate", "rate", "k entries a s"),
        Column("client", "client CPU", "us an entry"),
        Column("server", "server CPU", "us an entry"),
    ),
    panels=(
        _panel("Reads of 100 bytes", "rate", "reads", 100),
        _panel("Reads of 1,024 bytes", "rate", "reads", 1024),
        _panel("Adds of 100 bytes", "rate", "adds", 100),
        _panel("Reads of 100 bytes: the client's CPU", "client", "reads", 100),
        _panel("Reads of 100 bytes: the server's CPU", "server", "reads", 100),
        _panel("Adds of 100 bytes: the server's CPU", "server", "adds", 100),
    ),
    measure=measure,
    found=found,
)


if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
