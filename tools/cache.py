"""Caches of a bookie: records that wait for a flush, records read ahead: `python -m tools.cache`.

Records lie in a real db storage. What is tried is a read cache before it, which takes a batch of
consecutive entries whenever one is missing, and the size of the storage's own write cache.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np

from bkstore import LedgerStorage
from bkstore.formats.entry import Coder
from bkstore.ids import Int64Array, LedgerId
from bkstore.storage.ledgers.write_paths.write_cache import ENTRY_OVERHEAD
from bkstore.storage.options import StorageOptions
from bkstore.testing import generators
from tools.lab import Column, Experiment, Panel, Row, Run, main
from tools.lab.experiment import Rows
from tools.lab.samples import Done, done_in_turns
from tools.lab.sides import Side
from tools.lab.stores.read_cache import ReadCache, read_by_cache, read_singly
from tools.lab.table import shown
from tools.lab.workloads.index_loads import load_of_dump
from tools.lab.workloads.recording import read_recording, spanned
from tools.lab.workloads.traces import TRACES, Trace, trace

LEDGERS, _PER_LEDGER, _READS, PAYLOAD = 20, 1_000, 1_000, 200
AHEAD = (1, 5, 20, 100, 500)
"""Entries read at a time: 1 is no read-ahead, 100 a bookie's default."""

_AHEAD_BYTES = (1 << 10, 4 << 10, 16 << 10, 64 << 10)
_SHARES = (0.02, 0.1, 0.5)
"""Rooms of the read cache, and of the write cache, as shares of all records' bytes."""

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
        return load_of_dump(run.dump, run.scaled(LEDGERS * _PER_LEDGER, 600)).expected
    count = run.scaled(_PER_LEDGER, 30)
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


def _sides(held: Held, queries: Sequence[tuple[LedgerId, int]]) -> Iterator[tuple[Row, Side]]:
    """Yield what names a row, and what it measures: no cache, then each room and read-ahead."""
    key: Row = {"series": "no cache", "room": 0, "ahead": 1}
    yield key, Side(str(key), partial(read_singly, queries), lambda: held.storage)
    for share in _SHARES:
        room = int(held.bytes * share)
        ways = [("entries", count, (count, 0)) for count in AHEAD]
        if share == _SHARES[1]:
            ways += [("bytes", size, (0, size)) for size in _AHEAD_BYTES]
        for series, ahead, limits in ways:
            key = {"series": series, "room": share * 100, "ahead": ahead}
            fresh = partial(ReadCache, held.storage, room, *limits)
            yield key, Side(str(key), partial(read_by_cache, queries), fresh)


def _reads(run: Run, held: Held, order: str, reads: Trace) -> Iterator[Row]:
    """Yield what no cache, and each read cache, from an empty one on, does with a trace."""
    sides = list(_sides(held, reads.queries))
    done = done_in_turns([side for _, side in sides], run.rounds)
    for (key, _), each in zip(sides, done):
        yield {"trace": order, **key, **_read_row(each, len(reads.entry))}


def _read_row(done: Done, reads: int) -> Row:
    spent, served = done.spent, done.result
    return {
        "reads": reads,
        "hit_ratio": served.hits / reads,
        "fetches": served.fetches,
        "amplification": served.fetched / served.bytes,
        "asked": None if spent.read is None else spent.read / served.bytes,
        "us": spent.cpu / reads * 1e6,
    }


def _tail(run: Run, share: float) -> Iterator[Row]:
    """Yield how many reads so far behind the writers are answered from the write cache.

    It has room for a share of what is written: two halves, of which one is filled while the other
    is flushed.
    """
    coder, payload, top = Coder("CRC32C"), bytes(PAYLOAD), run.directory / "tail"
    tens = run.scaled(_PER_LEDGER // 10, 6)
    each = len(coder.encode_many(LedgerId(0, 0), [0], [payload])[0]) + ENTRY_OVERHEAD
    options = StorageOptions(write_cache=int(share * LEDGERS * tens * 10 * each))
    written: list[tuple[LedgerId, int]] = []
    hits, reads = dict.fromkeys(LAGS, 0), dict.fromkeys(LAGS, 0)
    with LedgerStorage.open(top, "db", options=options) as storage:
        for step in range(0, 10 * tens, 10):
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
    key = {"series": "tail", "trace": "tail", "room": share * 100}
    for lag in LAGS:
        ratio = hits[lag] / reads[lag] if reads[lag] else None
        yield {**key, "ahead": lag, "reads": reads[lag], "hit_ratio": ratio}


def measure(run: Run) -> Iterator[Row]:
    """Yield a row for each trace, room and read-ahead; then one for each write cache and lag."""
    recorded = None if run.trace is None else read_recording(run.trace)
    with _filled(run, recorded) as held:
        traces = {
            order: trace(order, held.entries, run.scaled(_READS, 100), run.seed) for order in TRACES
        }
        if recorded is not None:
            traces["recorded"] = recorded
        for order, reads in traces.items():
            run.tell(order)
            yield from _reads(run, held, order, reads)
    for share in _SHARES:
        run.tell(f"write cache of {share:.0%}")
        yield from _tail(run, share)


def found(rows: Rows) -> list[str]:
    """Return what the rows come to."""
    by = {(row["series"], row["trace"], row["room"], row["ahead"]): row for row in rows}
    room = _SHARES[1] * 100
    straight, random = (by["entries", order, room, 100] for order in ("sequential", "zipf"))
    tail = [by["tail", "tail", room, lag] for lag in LAGS]
    near, far = tail[0], [row for row in tail if row["reads"]][-1]
    orders = [order for order in ("zipf", "recorded") if ("no cache", order, 0, 1) in by]
    return [
        f"Read ahead by 100 entries, sequential readers find {straight['hit_ratio']:.0%} in a "
        f"cache of {room:g} % of the records; a read takes {_times(by, straight)} the CPU of "
        "read_entry without a cache.",
        f"Reads by Zipf's law find {random['hit_ratio']:.0%} then, and a read takes "
        f"{_times(by, random)} the CPU; {shown(random['amplification'])} bytes are read for each "
        "that is asked for.",
        f"A write cache of {room:g} % of what is written, both halves together, answers "
        f"{near['hit_ratio']:.0%} of reads {LAGS[0]} entries behind the writers, "
        f"{far['hit_ratio']:.0%} of those {far['ahead']:,} behind.",
        *(_cheapest(by, order, room) for order in orders),
    ]


def _times(by: dict[Any, Row], row: Row) -> str:
    return f"{shown(row['us'] / by['no cache', row['trace'], 0, 1]['us'])} times"


def _cheapest(by: dict[Any, Row], order: str, room: float) -> str:
    """Say which read-ahead takes the least CPU, and what the cache takes without any."""
    ways = [by["entries", order, room, count] for count in AHEAD]
    best, alone = min(ways, key=lambda row: row["us"]), ways[0]
    name = "reads by Zipf's law" if order == "zipf" else "the recorded reads"
    how = "no read-ahead" if best is alone else f"to read {best['ahead']} entries at a time"
    without = f"without read-ahead {alone['hit_ratio']:.0%}, at {_times(by, alone)}"
    return (
        f"For {name}, cheapest in {room:g} % is {how}: {best['hit_ratio']:.0%} are hits, at "
        f"{_times(by, best)} the CPU of read_entry without a cache"
        f"{'' if best is alone else f'; {without}'}."
    )


def _ahead(title: str, y: str, log: Literal["x", "xy"]) -> Panel:
    chosen = {"series": "entries", "room": _SHARES[1] * 100}
    return Panel(title, "ahead", y, "trace", chosen, log=log, label="entries read at a time")


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
        f"{LEDGERS} ledgers of {_PER_LEDGER:,} entries of {PAYLOAD} bytes at scale 1, or a dump's; "
        f"{_READS:,} reads by Zipf's law, uniform, and by four sequential readers; with --trace "
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
