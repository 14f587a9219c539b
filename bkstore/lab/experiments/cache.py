"""Caches of a bookie: write cache and read-ahead cache: `bkstore lab cache`. Records are in a
real db storage. The experiment varies a read cache in front of it, which reads a batch of
consecutive entries after each miss, and the size of the storage's own write cache."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np

from bkstore.formats.entry import Coder
from bkstore.ids import Int64Array, LedgerId
from bkstore.lab.experiment import Experiment, LabRun, Panel, ResultColumn, Row, Rows
from bkstore.lab.measuring.latencies_and_costs import SideResult, run_in_turns
from bkstore.lab.measuring.timing import TimedSide
from bkstore.lab.number_format import as_text
from bkstore.lab.stores.read_cache import ReadCache, read_by_cache, read_singly
from bkstore.lab.workloads.index_loads import read_index_load
from bkstore.lab.workloads.recorded_reads import read_recording, span_entries
from bkstore.lab.workloads.traces import TRACES, Trace, make_trace
from bkstore.storage.ledger_storage import LedgerStorage
from bkstore.storage.ledgers.write_paths.write_cache import ENTRY_OVERHEAD
from bkstore.storage.options import StorageOptions
from bkstore.testing import generators

LEDGERS, _ENTRIES_PER_LEDGER, _READS, PAYLOAD = 20, 1_000, 1_000, 200
READ_AHEAD_ENTRIES = (1, 5, 20, 100, 500)
"""Entries per read: 1 is no read-ahead, 100 is a bookie's default."""

_READ_AHEAD_BYTES = (1 << 10, 4 << 10, 16 << 10, 64 << 10)
_CACHE_SHARES = (0.02, 0.1, 0.5)
"""Sizes of the read cache and of the write cache, as shares of the bytes of all records."""

_USUAL_SHARE = _CACHE_SHARES[1]

LAGS = (10, 100, 1_000, 5_000)
"""The number of entries by which tailing readers are behind the writers."""

MAX_ENTRIES = 1_000_000  # the maximal number of entries that are generated for a recording
MASTER_KEY = b"k" * 20


class FilledStorage(NamedTuple):
    """A storage, the entries of its ledgers, and the bytes of all records."""

    storage: LedgerStorage
    entries: Mapping[LedgerId, Int64Array]
    bytes: int


def _ledger_entries(run: LabRun, recorded: Trace | None) -> dict[LedgerId, Int64Array]:
    """Return each ledger's entry ids: those from the lowest to the highest that a recording of
    reads has, else those of the given dump, else generated ones."""
    if recorded is not None:
        return span_entries(recorded, MAX_ENTRIES)
    if run.dump is not None:
        max_entries = run.scaled(LEDGERS * _ENTRIES_PER_LEDGER, minimum=600)
        return read_index_load(run.dump, max_entries).expected
    count = run.scaled(_ENTRIES_PER_LEDGER, minimum=30)
    return {LedgerId(0, number): generators.contiguous(count) for number in range(LEDGERS)}


@contextmanager
def _filled_storage(run: LabRun, recorded: Trace | None) -> Iterator[FilledStorage]:
    """Yield a storage with a record for each entry to read; delete it in the end."""
    entries_of_ledger, coder, record_bytes = _ledger_entries(run, recorded), Coder("CRC32C"), 0
    payload = np.random.default_rng(run.seed).bytes(PAYLOAD)
    directory = run.directory / "storage"
    with LedgerStorage.open(directory, "db") as storage:
        for ledger_id, entries in entries_of_ledger.items():
            batch = coder.encode_batch(ledger_id, entries, [payload] * entries.size)
            storage.add_batch(batch, master_key=MASTER_KEY)
            record_bytes += int(batch.sizes.sum())
        storage.flush()
        yield FilledStorage(storage, entries_of_ledger, record_bytes)
    shutil.rmtree(directory)


def _sides(filled: FilledStorage, reads: Trace) -> Iterator[tuple[Row, TimedSide]]:
    """Yield the compared ways to read ("sides"), each with the columns that identify its row:
    without a cache, then with each size of the read cache and each amount of read-ahead. That is
    limited by a number of entries, and at the usual cache size also by a number of bytes."""
    key, queries = {"series": "no cache", "room": 0, "ahead": 1}, reads.queries
    read_uncached = partial(read_singly, queries)
    yield key, TimedSide(str(key), read_uncached, setup=lambda: filled.storage)
    for share in _CACHE_SHARES:
        # The name of the limit, its value, and the arguments of `ReadCache` that set it.
        limits = [("entries", n, {"max_count": n}) for n in READ_AHEAD_ENTRIES]
        if share == _USUAL_SHARE:
            limits += [("bytes", n, {"max_count": 0, "max_size": n}) for n in _READ_AHEAD_BYTES]
        for series, limit, arguments in limits:
            key = {"series": series, "room": share * 100, "ahead": limit}
            new_cache = partial(ReadCache, filled.storage, int(filled.bytes * share), **arguments)
            yield key, TimedSide(str(key), partial(read_by_cache, queries), setup=new_cache)


def _measure_trace(run: LabRun, filled: FilledStorage, order: str, reads: Trace) -> Iterator[Row]:
    """Yield the rows of a trace, read without a cache and with each read cache, empty at first."""
    sides = list(_sides(filled, reads))
    results = run_in_turns([side for _, side in sides], run.rounds)
    for (key, _), result in zip(sides, results):
        yield {"trace": order, **key, **_read_row(result, len(reads.entry_ids))}


def _read_row(result: SideResult, read_count: int) -> Row:
    """Return the measured columns of one side, the work of which returned `ReadCosts`."""
    work_cost, read_costs = result.cost, result.result
    bytes_read, returned_bytes = work_cost.read, read_costs.returned_bytes  # None: not known
    return {
        "reads": read_count,
        "hit_ratio": read_costs.hits / read_count,
        "fetches": read_costs.fetches,
        "amplification": read_costs.fetched_bytes / returned_bytes,
        "asked": None if bytes_read is None else bytes_read / returned_bytes,
        "us": work_cost.cpu / read_count * 1e6,
    }


def _measure_tail(run: LabRun, cache_share: float) -> Iterator[Row]:
    """Yield a row for each lag: the share of reads that the write cache answers if a reader is
    `lag` entries behind the writers. The cache has room for a share of the bytes written, in two
    halves: one is filled while the other is flushed."""
    coder, payload, directory = Coder("CRC32C"), bytes(PAYLOAD), run.directory / "tail"
    tens_per_ledger = run.scaled(_ENTRIES_PER_LEDGER // 10, minimum=6)
    # What a record takes in the write cache.
    record_bytes = len(coder.encode_many(LedgerId(0, 0), [0], [payload])[0]) + ENTRY_OVERHEAD
    written_bytes = LEDGERS * tens_per_ledger * 10 * record_bytes
    options = StorageOptions(write_cache=int(cache_share * written_bytes))
    written: list[tuple[LedgerId, int]] = []
    hits, reads = dict.fromkeys(LAGS, 0), dict.fromkeys(LAGS, 0)
    with LedgerStorage.open(directory, "db", options=options) as storage:
        # Writers take turns with ten entries each; then the ten that lie `lag` back are read.
        for first in range(0, 10 * tens_per_ledger, 10):
            for ledger_id in (LedgerId(0, number) for number in range(LEDGERS)):
                entries = np.arange(first, first + 10)
                batch = coder.encode_batch(ledger_id, entries, [payload] * 10)
                storage.add_batch(batch, master_key=MASTER_KEY)
                written += [(ledger_id, entry) for entry in entries.tolist()]
                for lag in LAGS:
                    for query in written[-10 - lag : -lag]:  # the storage has one write path
                        reads[lag] += 1
                        hits[lag] += storage.write_paths[0].get_cached(*query) is not None
    shutil.rmtree(directory)
    key = {"series": "tail", "trace": "tail", "room": cache_share * 100}
    for lag in LAGS:
        hit_ratio = hits[lag] / reads[lag] if reads[lag] else None
        yield {**key, "ahead": lag, "reads": reads[lag], "hit_ratio": hit_ratio}


def measure(run: LabRun) -> Iterator[Row]:
    """Yield a row for each trace, cache size and read-ahead, then for each write cache and lag."""
    recorded = None if run.trace is None else read_recording(run.trace)
    with _filled_storage(run, recorded) as filled:
        count = run.scaled(_READS, minimum=100)
        traces = {order: make_trace(order, filled.entries, count, run.seed) for order in TRACES}
        if recorded is not None:
            traces["recorded"] = recorded
        run.expect_steps(len(traces) + len(_CACHE_SHARES))
        for order, reads in traces.items():
            run.report_progress(order)
            yield from _measure_trace(run, filled, order, reads)
    for share in _CACHE_SHARES:
        run.report_progress(f"write cache of {share:.0%}")
        yield from _measure_tail(run, share)


def summarize(rows: Rows) -> list[str]:
    """Return the findings, one sentence each, that follow from the rows: by series, order of reads
    ("trace"), size of the cache ("room"), and entries that are read ahead, or the reader's lag."""
    row_of = {(row["series"], row["trace"], row["room"], row["ahead"]): row for row in rows}
    cache_percent = _USUAL_SHARE * 100
    sequential = row_of["entries", "sequential", cache_percent, 100]
    zipf = row_of["entries", "zipf", cache_percent, 100]
    tail_rows = [row_of["tail", "tail", cache_percent, lag] for lag in LAGS]
    nearest, farthest = tail_rows[0], [row for row in tail_rows if row["reads"]][-1]
    orders = [order for order in ("zipf", "recorded") if ("no cache", order, 0, 1) in row_of]
    return [
        f"Read ahead by 100 entries, sequential readers find {sequential['hit_ratio']:.0%} in a "
        f"cache of {cache_percent:g} % of the records; a read takes "
        f"{_relative_cpu(row_of, sequential)} the CPU of read_entry without a cache.",
        f"Reads by Zipf's law find {zipf['hit_ratio']:.0%} then, and a read takes "
        f"{_relative_cpu(row_of, zipf)} the CPU; {as_text(zipf['amplification'])} bytes are read "
        "for each that is asked for.",
        f"A write cache of {cache_percent:g} % of what is written, both halves together, answers "
        f"{nearest['hit_ratio']:.0%} of reads {LAGS[0]} entries behind the writers, "
        f"{farthest['hit_ratio']:.0%} of those {farthest['ahead']:,} behind.",
        *(_describe_cheapest(row_of, order, cache_percent) for order in orders),
    ]


def _relative_cpu(row_of: dict[Any, Row], row: Row) -> str:
    """Return the CPU of a row's reads relative to `read_entry` without a cache."""
    return f"{as_text(row['us'] / row_of['no cache', row['trace'], 0, 1]['us'])} times"


def _describe_cheapest(row_of: dict[Any, Row], order: str, cache_percent: float) -> str:
    """Return a sentence about the read-ahead with the least CPU, compared with no read-ahead."""
    rows = {count: row_of["entries", order, cache_percent, count] for count in READ_AHEAD_ENTRIES}
    without_read_ahead = rows[1]  # a read of one entry at a time
    best = min(rows.values(), key=lambda row: row["us"])
    read_kind = "reads by Zipf's law" if order == "zipf" else "the recorded reads"
    setting, comparison = "no read-ahead", ""
    if best is not without_read_ahead:
        setting = f"to read {best['ahead']} entries at a time"
        cpu = _relative_cpu(row_of, without_read_ahead)
        comparison = f"; without read-ahead {without_read_ahead['hit_ratio']:.0%}, at {cpu}"
    return (
        f"For {read_kind}, cheapest in {cache_percent:g} % is {setting}: {best['hit_ratio']:.0%} "
        f"are hits, at {_relative_cpu(row_of, best)} the CPU of read_entry without a "
        f"cache{comparison}."
    )


def _read_ahead_panel(title: str, y: str, log: Literal["x", "xy"]) -> Panel:
    selection = {"series": "entries", "room": _USUAL_SHARE * 100}
    return Panel(title, "ahead", y, "trace", selection, log=log, label="entries read at a time")


EXPERIMENT = Experiment(
    name="cache",
    question="How far should a bookie read ahead, and what does its write cache answer?",
    method=(
        "A db storage holds the records, flushed. A cache of records before it fetches the entry "
        "asked for and those behind it (read_entries; read_entry where it reads one at a time), up "
        "to a count or to so many bytes, and drops the least recently read; beside it, read_entry "
        "without a cache. Hits, fetches and bytes fetched are counted, from an empty cache on; "
        "bytes asked of the system are rchar of /proc/self/io; CPU is of the process. Both are "
        "medians of the rounds, in which all caches and none take turns. Tail: writers and a "
        "reader some entries behind; hits are reads of the storage's write cache, whose room is "
        "that of its two halves, which take turns; a record counts with what it takes beside its "
        "bytes."
    ),
    data=(
        f"{LEDGERS} ledgers of {_ENTRIES_PER_LEDGER:,} entries of {PAYLOAD} bytes at scale 1, or "
        f"a dump's; {_READS:,} reads by Zipf's law, uniform, and by four sequential readers; with "
        "--trace those of a recording as well, over ledgers that have what it spans."
    ),
    columns=(
        ResultColumn("series", "read ahead by", kind="given"),
        ResultColumn("trace", "reads", kind="given"),
        ResultColumn("room", "room", "% of the records", "given"),
        ResultColumn("ahead", "read ahead, or lag", "entries or bytes", "given"),
        ResultColumn("reads", "reads", kind="count"),
        ResultColumn("hit_ratio", "hits", "share", "count"),
        ResultColumn("fetches", "fetches", kind="count"),
        ResultColumn("amplification", "fetched", "bytes a byte served", "count"),
        ResultColumn("asked", "asked of the system", "bytes a byte served"),
        ResultColumn("us", "read, CPU", "us"),
    ),
    panels=(
        _read_ahead_panel("Room 10 %: hits", "hit_ratio", "x"),
        _read_ahead_panel("Room 10 %: bytes fetched", "amplification", "xy"),
        _read_ahead_panel("Room 10 %: CPU of a read", "us", "xy"),
        Panel(
            "Write cache: hits by lag of the reader",
            "ahead",
            "hit_ratio",
            "room",
            {"series": "tail"},
            log="x",
            label="entries behind the writers",
        ),
    ),
    measure=measure,
    summarize=summarize,
    data_sources=("dump", "trace"),
)
