"""Caches of a bookie: records that wait for a flush, records read ahead: `python -m tools.cache`.

Records lie in a real db storage. What is tried is a read cache before it, which takes a batch of
consecutive entries whenever one is missing, and the size of the storage's own write cache.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import numpy as np

from bkstore import LedgerStorage
from bkstore.formats.entry import Coder
from bkstore.ids import Int64Array, LedgerId
from bkstore.storage.options import StorageOptions
from bkstore.testing import generators
from tools.lab import Column, Experiment, Panel, Row, Run, main
from tools.lab.experiment import Rows
from tools.lab.samples import spending
from tools.lab.stores.read_cache import ReadCache
from tools.lab.table import shown
from tools.lab.workloads.index_loads import load_of_dump
from tools.lab.workloads.recording import read_recording, spanned
from tools.lab.workloads.traces import TRACES, Trace, trace

__all__ = ["EXPERIMENT"]

LEDGERS, PER_LEDGER, READS, PAYLOAD = 20, 1_000, 2_000, 200
AHEAD = (1, 5, 20, 100, 500)
"""Entries read at a time; 100 is a bookie's default."""

AHEAD_BYTES = (1 << 10, 4 << 10, 16 << 10, 64 << 10)
SHARES = (0.02, 0.1, 0.5)
"""Rooms of the read cache, as shares of all records' bytes."""

LAGS = (10, 100, 1_000, 5_000)
"""How many entries readers of the tail are behind the writers."""

MOST = 1_000_000
"""Entries that are made for a recording, at most."""

KEY = b"k" * 20


class Held(NamedTuple):
    """A storage, and which entries its ledgers have."""

    storage: LedgerStorage
    entries: Mapping[LedgerId, Int64Array]
    bytes: int


def _ids(run: Run, recorded: Trace | None) -> dict[LedgerId, Int64Array]:
    """Return what the ledgers have: what a recording spans, else a dump's, else as many each."""
    if recorded is not None:
        return spanned(recorded, MOST)
    if run.dump is not None:
        return load_of_dump(run.dump, run.scaled(LEDGERS * PER_LEDGER, 600)).expected
    count = run.scaled(PER_LEDGER, 30)
    return {LedgerId(0, at): generators.contiguous(count) for at in range(LEDGERS)}


@contextmanager
def _filled(run: Run, recorded: Trace | None) -> Iterator[Held]:
    """Yield a storage whose records are in entry logs."""
    ids, coder, size = _ids(run, recorded), Coder("CRC32C"), 0
    payload = np.random.default_rng(run.seed).bytes(PAYLOAD)
    top = run.directory / "storage"
    with LedgerStorage.open(top, "db") as storage:
        for ledger, entries in ids.items():
            batch = coder.encode_batch(ledger, entries, [payload] * entries.size)
            storage.add_batch(batch, master_key=KEY)
            size += int(batch.sizes.sum())
        storage.flush()
        yield Held(storage, ids, size)
    shutil.rmtree(top)


def _read(held: Held, reads: Trace, share: float, count: int, size: int) -> Row:
    """Return what a read cache does with a trace, from an empty one on."""
    cache = ReadCache(held.storage, int(held.bytes * share), count, size)
    with spending() as spent:
        for query in reads.queries:
            cache.read(*query)
    return {
        "reads": len(reads.entry),
        "hit_ratio": cache.hits / len(reads.entry),
        "fetches": cache.fetches,
        "amplification": cache.fetched / cache.served,
        "asked": None if spent.read is None else spent.read / cache.served,
        "us": spent.cpu / len(reads.entry) * 1e6,
    }


def _tail(run: Run, write_cache: int) -> Iterator[Row]:
    """Yield how many reads so far behind the writers are answered from the write cache."""
    coder, payload, top = Coder("CRC32C"), bytes(PAYLOAD), run.directory / "tail"
    written: list[tuple[LedgerId, int]] = []
    hits, reads = dict.fromkeys(LAGS, 0), dict.fromkeys(LAGS, 0)
    with LedgerStorage.open(top, "db", options=StorageOptions(write_cache=write_cache)) as storage:
        for step in range(0, run.scaled(PER_LEDGER, 60), 10):
            for ledger in (LedgerId(0, at) for at in range(LEDGERS)):
                entries = np.arange(step, step + 10)
                batch = coder.encode_batch(ledger, entries, [payload] * 10)
                storage.add_batch(batch, master_key=KEY)
                written += [(ledger, entry) for entry in entries.tolist()]
                for lag in LAGS:
                    for query in written[-10 - lag : -lag]:
                        reads[lag] += 1
                        hits[lag] += storage.paths[0].cached(*query) is not None
    shutil.rmtree(top)
    for lag in LAGS:
        ratio = hits[lag] / reads[lag] if reads[lag] else None
        yield {"ahead": lag, "reads": reads[lag], "hit_ratio": ratio}


def measure(run: Run) -> Iterator[Row]:
    """Yield a row for each trace, room and read-ahead; then one for each write cache and lag."""
    recorded = None if run.trace is None else read_recording(run.trace)
    with _filled(run, recorded) as held:
        traces = {
            order: trace(order, held.entries, run.scaled(READS, 100), run.seed) for order in TRACES
        }
        if recorded is not None:
            traces["recorded"] = recorded
        for order, reads in traces.items():
            for share in SHARES:
                run.tell(f"{order}, room {share:.0%}")
                key = {"trace": order, "room": share * 100}
                for count in AHEAD:
                    row = _read(held, reads, share, count, 0)
                    yield {"series": "entries", **key, "ahead": count, **row}
                for size in AHEAD_BYTES if share == SHARES[1] else ():
                    row = _read(held, reads, share, 0, size)
                    yield {"series": "bytes", **key, "ahead": size, **row}
    each = PAYLOAD + 36 + 150  # a record, and what it counts beside it in the write cache
    whole = LEDGERS * run.scaled(PER_LEDGER, 60) * each
    for share in (0.02, 0.1, 0.5):
        run.tell(f"write cache of {share:.0%}")
        for row in _tail(run, 2 * int(share * whole)):
            yield {"series": "tail", "trace": "tail", "room": share * 100, **row}


def found(rows: Rows) -> list[str]:
    """Return what the rows come to."""
    by = {(row["series"], row["trace"], row["room"], row["ahead"]): row for row in rows}
    room = SHARES[1] * 100

    def at(order: str, count: int) -> Row:
        return by["entries", order, room, count]

    straight, alone = at("sequential", 100), at("sequential", 1)
    random, single = at("zipf", 100), at("zipf", 1)
    best = min((at("zipf", count) for count in AHEAD), key=lambda row: row["us"])
    tail = [by["tail", "tail", room, lag] for lag in LAGS]
    recorded = [_recorded(by, room)] if ("entries", "recorded", room, 1) in by else []
    near, far = tail[0], [row for row in tail if row["reads"]][-1]
    return [
        f"Read ahead by 100 entries, sequential readers find {straight['hit_ratio']:.0%} in a "
        f"cache of {room:g} % of the records, and a read takes "
        f"{alone['us'] / straight['us']:.1f} times less CPU than without.",
        f"Reads by Zipf's law find {random['hit_ratio']:.0%} then, against "
        f"{single['hit_ratio']:.0%} without read-ahead, and {shown(random['amplification'])} bytes "
        f"are read for each that is asked for; cheapest is a read-ahead of {best['ahead']}.",
        f"A write cache of {room:g} % of what is written answers {near['hit_ratio']:.0%} of "
        f"reads {LAGS[0]} entries behind the writers, {far['hit_ratio']:.0%} of those "
        f"{far['ahead']:,} behind.",
        *recorded,
    ]


def _recorded(by: dict[Any, Row], room: float) -> str:
    ways = {count: by["entries", "recorded", room, count] for count in AHEAD}
    best = min(ways, key=lambda count: ways[count]["us"])
    return (
        f"The recorded reads find {ways[best]['hit_ratio']:.0%} in {room:g} % with the cheapest "
        f"read-ahead, {best} entries, {ways[1]['hit_ratio']:.0%} without any."
    )


def _ahead(title: str, y: str, log: Literal["x", "xy"]) -> Panel:
    chosen = {"series": "entries", "room": SHARES[1] * 100}
    return Panel(title, "ahead", y, "trace", chosen, log=log, label="entries read at a time")


EXPERIMENT = Experiment(
    name="cache",
    question="How far should a bookie read ahead, and what does its write cache answer?",
    method=(
        "A db storage holds the records, flushed. A cache of records before it fetches the entry "
        "asked for and those behind it (read_entries), up to a count or to so many bytes, and "
        "drops the least recently read. Hits, fetches and bytes fetched are counted, from an empty "
        "cache on; bytes asked of the system are rchar of /proc/self/io; CPU is of the process, "
        "of one run. Tail: writers and a reader some entries behind; hits are reads of the "
        "storage's write cache (two halves that take turns)."
    ),
    data=(
        f"{LEDGERS} ledgers of {PER_LEDGER:,} entries of {PAYLOAD} bytes at scale 1, or a dump's; "
        f"{READS:,} reads by Zipf's law, uniform, and by four sequential readers; with --trace "
        "those of a recording as well, over ledgers that have what it spans."
    ),
    columns=(
        Column("series", "read ahead by", kind="given"),
        Column("trace", "reads", kind="given"),
        Column("room", "room", "% of the records", "given"),
        Column("ahead", "read ahead, or lag", "entries or bytes", "given"),
        Column("reads", "reads", kind="count"),
        Column("hit_ratio", "hits", "share", "count"),
        Column("fetches", "fetches", kind="count"),
        Column("amplification", "fetched", "bytes a byte served", "count"),
        Column("asked", "asked of the system", "bytes a byte served"),
        Column("us", "read, CPU", "us"),
    ),
    panels=(
        _ahead("Room 10 %: hits", "hit_ratio", "x"),
        _ahead("Room 10 %: bytes fetched", "amplification", "xy"),
        _ahead("Room 10 %: CPU of a read", "us", "xy"),
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
    found=found,
    takes=("dump", "trace"),
)


if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
