"""The batch size of reads or adds, in process and over a socket: `bkstore lab batch`."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count

import numpy as np

from bkstore.formats.entry import Coder, RecordBatch
from bkstore.lab.experiment import Experiment, LabRun, Panel, ResultColumn, Row, Rows
from bkstore.lab.measuring.timing import TimedSide, run_samples
from bkstore.lab.number_format import as_text, compare
from bkstore.lab.stores.bookie_process import BenchmarkBookie, bookie_process
from bkstore.storage.bookie import Bookie
from bkstore.storage.ledger_storage import LedgerStorage
from bkstore.storage.options import JournalOptions
from bkstore.wire.client import WireClient

_ENTRIES_READ, _ENTRIES_ADDED = 1_000, 200
BATCH_SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
"""Batch sizes; those above the size of the ledger are left out, as they would all do the same."""

_PAYLOADS = (100, 1024)
MASTER_KEY = b"k" * 20
_SINGLE_CALLS = 0  # the batch size that stands for one call per entry
Source = LedgerStorage | Bookie | WireClient


def _encode_records(run: LabRun, ledger_id: int, payload_bytes: int, count: int) -> RecordBatch:
    noise = np.random.default_rng(run.seed).bytes(payload_bytes)
    return Coder("CRC32C").encode_batch(ledger_id, np.arange(count), [noise] * count)


# -- sides: each returns the number of its calls


def _read_sides(source: Source, ledger_id: int, entry_count: int) -> list[TimedSide]:
    """Return the ways to read a ledger that are compared: by single calls, and in batches of each
    size that is not larger than the ledger. Each is named by its batch size, 0 for single calls,
    and returns the number of its calls."""

    def read_singly() -> int:
        for entry_id in range(entry_count):
            source.read_entry(ledger_id, entry_id)
        return entry_count

    def read_in_batches(batch_size: int) -> int:
        next_entry = calls = 0
        while next_entry < entry_count:
            next_entry += len(source.read_entries(ledger_id, next_entry, batch_size))
            calls += 1
        return calls

    sizes = [batch_size for batch_size in BATCH_SIZES if batch_size <= entry_count]
    return [
        TimedSide(str(_SINGLE_CALLS), read_singly),
        *(TimedSide(str(batch_size), partial(read_in_batches, batch_size)) for batch_size in sizes),
    ]


def _add_sides(
    source: Bookie | WireClient, encode: Callable[[], RecordBatch], entry_count: int
) -> list[TimedSide]:
    """Return the ways to add the records of a new ledger that are compared: by single calls, and in
    batches of each size that is not larger than the ledger. `encode` makes the records, untimed,
    for each run. Names and results are those of `_read_sides`."""

    def add_singly(records: RecordBatch) -> int:
        for record in records.records():
            source.add_entry(record, MASTER_KEY)
        return len(records)

    def add_in_batches(size: int, records: RecordBatch) -> int:
        starts = range(0, len(records), size)
        for start in starts:
            source.add_batch(records.between(start, min(start + size, len(records))), MASTER_KEY)
        return len(starts)

    sizes = [size for size in BATCH_SIZES if size <= entry_count]
    return [
        TimedSide(str(_SINGLE_CALLS), add_singly, encode),
        *(TimedSide(str(size), partial(add_in_batches, size), encode) for size in sizes),
    ]


def _run_once(side: TimedSide) -> int:
    arguments = () if side.setup is None else (side.setup(),)
    return int(str(side.run(*arguments)))


def _rows(run: LabRun, key: Row, sides: list[TimedSide], entry_count: int) -> Iterator[Row]:
    """Yield the row of each side; the name of a side is its batch size, 0 for single calls."""
    call_counts = [_run_once(side) for side in sides]
    all_samples = run_samples(sides, run.rounds, run.min_sample_seconds)
    for call_count, samples in zip(call_counts, all_samples):
        yield {
            **key,
            "batch": int(samples.side.name),
            "entries": entry_count,
            "requests": call_count,
            "rate": entry_count / samples.wall_seconds / 1e3,
            "client": samples.seconds / entry_count * 1e6,
        }


def _measure_server_microseconds(
    bookie: BenchmarkBookie, sides: list[TimedSide], entry_count: int, rounds: int
) -> list[float]:
    """Return the CPU microseconds per entry that the bookie's process takes, for each side: the
    time of the client is not part of them. A side's value is its median over the rounds."""

    def measure_cpu_seconds(side: TimedSide) -> float:
        seconds_before = bookie.cpu_seconds()
        _run_once(side)
        return bookie.cpu_seconds() - seconds_before

    seconds_of_rounds = [[measure_cpu_seconds(side) for side in sides] for _ in range(rounds)]
    return [statistics.median(seconds) / entry_count * 1e6 for seconds in zip(*seconds_of_rounds)]


def _workloads(
    run: LabRun, reader: LedgerStorage | WireClient, adder: Bookie | WireClient
) -> Iterator[tuple[Row, list[TimedSide], int]]:
    """Yield for each operation and payload size: the columns that its rows share, the compared ways
    to do it ("sides"), and the number of entries that a side reads or adds in one run. The caller
    has written one ledger to read for each payload size, with the size as its id."""
    ledger_ids = count(10_000)  # of the ledgers that are added to: above those to read
    read_count = run.scaled(_ENTRIES_READ, minimum=40)
    add_count = run.scaled(_ENTRIES_ADDED, minimum=10)
    for payload_bytes in _PAYLOADS:
        sides = _read_sides(reader, payload_bytes, read_count)
        yield {"what": "reads", "payload": payload_bytes}, sides, read_count
    for payload_bytes in _PAYLOADS:

        def encode(payload_bytes: int = payload_bytes) -> RecordBatch:  # bound in this iteration
            return _encode_records(run, next(ledger_ids), payload_bytes, add_count)

        sides = _add_sides(adder, encode, add_count)
        yield {"what": "adds", "payload": payload_bytes}, sides, add_count


def measure(run: LabRun) -> Iterator[Row]:
    """Yield a row for each operation (reads, adds), location (in process, over a socket), payload
    and batch size; size 0 is single calls."""
    read_count = run.scaled(_ENTRIES_READ, minimum=40)
    ledgers = [
        _encode_records(run, ledger_id=payload_bytes, payload_bytes=payload_bytes, count=read_count)
        for payload_bytes in _PAYLOADS
    ]
    journal = JournalOptions(preallocate=1 << 20)
    run.expect_steps(2 * 2 * len(_PAYLOADS))  # reads and adds, here and over the socket
    with (
        LedgerStorage.open(run.directory / "storage", "db") as storage,
        Bookie.open(run.directory / "here", "db", journal=journal) as local_bookie,
    ):
        for records in ledgers:
            storage.add_batch(records, master_key=MASTER_KEY)
        storage.flush()
        for key, sides, entry_count in _workloads(run, storage, local_bookie):
            run.report_progress(f"{key['what']}, {key['payload']} bytes, in process")
            yield from _rows(run, {"where": "in process", **key}, sides, entry_count)
    with (
        bookie_process("db", run.directory / "bookie") as bookie,
        WireClient(bookie.address) as client,
    ):
        for records in ledgers:
            client.add_batch(records, MASTER_KEY)
        for key, sides, entry_count in _workloads(run, client, client):
            run.report_progress(f"{key['what']}, {key['payload']} bytes, over the socket")
            rows = list(_rows(run, {"where": "over the socket", **key}, sides, entry_count))
            costs = _measure_server_microseconds(bookie, sides, entry_count, run.rounds)
            for row, cost in zip(rows, costs):
                yield {**row, "server": cost}


def summarize(rows: Rows) -> list[str]:
    """Return the findings, one sentence each, that follow from the rows."""
    rates: dict[tuple[str, str, int], dict[int, float]] = {}
    for row in rows:
        key = row["what"], row["where"], row["payload"]
        rates.setdefault(key, {})[row["batch"]] = row["rate"]
    return [_finding(*key, by_size) for key, by_size in rates.items()]


def _finding(what: str, where: str, payload: int, rates: dict[int, float]) -> str:
    """Return a sentence on the best batch size, from entries a second by batch size."""
    sizes = sorted(set(rates) - {_SINGLE_CALLS})
    best = max(sizes, key=lambda size: rates[size])
    nearly_best = [str(size) for size in sizes if rates[size] >= 0.8 * rates[best] and size != best]
    others = f"within a fifth of that are batches of {', '.join(nearly_best)}"
    return (
        f"{what.capitalize()} {where}, {payload:,} bytes: "
        f"{as_text(rates[_SINGLE_CALLS])}k entries a second one at a time, "
        f"{as_text(rates[best])}k in batches of {best}, "
        f"{compare(rates[best] / rates[_SINGLE_CALLS], 'many')}; "
        f"{others if nearly_best else 'no other size comes within a fifth of that'}."
    )


def _batch_panel(title: str, y: str, what: str, payload: int) -> Panel:
    chosen = {"what": what, "payload": payload, "batch": BATCH_SIZES}
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
        ResultColumn("what", "calls", kind="given"),
        ResultColumn("where", "made", kind="given"),
        ResultColumn("payload", "payload", "bytes", "given"),
        ResultColumn("batch", "batch", "entries", "given"),
        ResultColumn("entries", "entries", kind="count"),
        ResultColumn("requests", "calls", kind="count"),
        ResultColumn("rate", "rate", "k entries/s"),
        ResultColumn("client", "client CPU", "us an entry"),
        ResultColumn("server", "server CPU", "us an entry"),
    ),
    panels=(
        _batch_panel("Reads of 100 bytes", "rate", "reads", 100),
        _batch_panel("Reads of 1,024 bytes", "rate", "reads", 1024),
        _batch_panel("Adds of 100 bytes", "rate", "adds", 100),
        _batch_panel("Reads of 100 bytes: the client's CPU", "client", "reads", 100),
        _batch_panel("Reads of 100 bytes: the server's CPU", "server", "reads", 100),
        _batch_panel("Adds of 100 bytes: the server's CPU", "server", "adds", 100),
    ),
    measure=measure,
    summarize=summarize,
)
