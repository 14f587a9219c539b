"""Rows: threads that share fsyncs of a journal, and a replay beside a copy of the file."""

from __future__ import annotations

import os
import shutil
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bkstore.files.disk_changes import Files
from bkstore.formats.entry import Coder, Entry, encode
from bkstore.ids import LedgerId
from bkstore.storage.bookie import Bookie
from bkstore.storage.journal import journal_files
from tools.bench.inputs.entry_ids import SCOPE_0, new_directory
from tools.bench.inputs.records import KEY
from tools.bench.measure import Case, Context, Fact, Figures, Row, Side

_THREADS = 8
_ADDS = 2000
"""Synced adds of the eight threads together; one thread alone makes a fourth."""

ROUNDS = 5
_REPLAYED = 500_000
_GROUP = 1000
_MIB = 1 << 20


class _CountedSyncs(Files):
    """The disk's own fsync, counted."""

    def __init__(self) -> None:
        self.fsyncs = 0

    def fsync(self, fd: int) -> None:
        """Sync."""
        self.fsyncs += 1
        super().fsync(fd)


class _SlowSyncs(_CountedSyncs):
    """An fsync that makes nothing durable and sleeps 1 ms, as a disk that takes that long."""

    def fsync(self, fd: int) -> None:
        """Sleep."""
        self.fsyncs += 1
        time.sleep(0.001)


def _rate(top: Path, files: _CountedSyncs, threads: int, adds: int) -> tuple[float, float]:
    """Return (synced adds a second, adds an fsync) of threads with a ledger each."""
    each = max(adds // threads, 2)
    ledgers = [
        [encode(Entry(100 + n, at, -1, 5, bytes(100)), "CRC32C") for at in range(each)]
        for n in range(threads)
    ]
    ready = threading.Barrier(threads + 1)

    def add(records: list[bytes]) -> None:
        ready.wait()
        for record in records:
            bookie.add_entry(record, KEY)

    with Bookie.open(top, "sorted", files=files) as bookie:
        workers = [threading.Thread(target=add, args=(records,)) for records in ledgers]
        for worker in workers:
            worker.start()
        before = files.fsyncs
        ready.wait()
        begin = time.perf_counter()
        for worker in workers:
            worker.join()
        seconds = time.perf_counter() - begin
        fsyncs = files.fsyncs - before
        bookie.close(checkpoint=False)
    shutil.rmtree(top)
    return threads * each / seconds, threads * each / fsyncs


def _shared_syncs(context: Context, files: Callable[[], _CountedSyncs]) -> list[Fact]:
    adds = context.scaled(_ADDS)
    alone, together, per_sync = [], [], []
    for _ in range(ROUNDS):
        alone.append(_rate(new_directory(context), files(), 1, adds // 4)[0])
        rate, shared = _rate(new_directory(context), files(), _THREADS, adds)
        together.append(rate)
        per_sync.append(shared)
    ratio = round(statistics.median(together) / statistics.median(alone), 2)
    return [
        Fact("adds/s of one thread", round(statistics.median(alone))),
        Fact(f"adds/s of {_THREADS} threads", round(statistics.median(together))),
        Fact("times one thread's", ratio, ">= 4", ratio >= 4),
        Fact("adds an fsync", round(statistics.median(per_sync), 2)),
    ]


# -- replay


def _crashed(context: Context, count: int) -> Path:
    """Return a bookie that took entries and was not closed: all are in its journal."""
    top, coder = new_directory(context), Coder("CRC32C")
    payloads = [os.urandom(100) for _ in range(_GROUP)]
    with Bookie.open(top, "sorted") as bookie:
        for at in range(0, count, _GROUP):
            some = payloads[: count - at]
            bookie.add_batch(coder.encode_batch(SCOPE_0, range(at, at + len(some)), some), KEY)
        bookie.close(checkpoint=False)
    return top


def _copy(journal: Path) -> None:
    """Copy a file in pieces of 1 MiB, and sync."""
    target = journal.with_name("copy")
    with open(journal, "rb", 0) as read, open(target, "wb", 0) as written:
        while piece := read.read(_MIB):
            written.write(piece)
        os.fsync(written.fileno())


class _Walls:
    """Wall times of two sides, and their ratio."""

    def __init__(self) -> None:
        self.ours: list[float] = []
        self.copy: list[float] = []

    def timing(self, seconds: list[float], run: Callable[[Path], None]) -> Callable[[Path], None]:
        """Return `run`, its wall time noted each time."""

        def timed(top: Path) -> None:
            begin = time.perf_counter()
            run(top)
            seconds.append(time.perf_counter() - begin)

        return timed

    def facts(self) -> list[Fact]:
        """Return the ratio of the medians."""
        ratio = round(statistics.median(self.ours) / statistics.median(self.copy), 2)
        return [Fact("wall time, times the copy's", ratio, "<= 2", ratio <= 2)]


def _replay(context: Context) -> Case:
    count = context.scaled(_REPLAYED)
    prepared, walls = _crashed(context, count), _Walls()

    def fresh() -> Path:
        copied = Path(shutil.copytree(prepared, new_directory(context) / "bookie"))
        os.sync()
        return copied

    def replay(top: Path) -> None:
        with Bookie.open(top) as bookie:
            assert count == len(bookie.availability(LedgerId.of(SCOPE_0)))
            bookie.close(checkpoint=False)

    def copy(top: Path) -> None:
        _copy(journal_files(top / "journal" / "current")[-1][1])

    ours = Side("Bookie.open, replay", walls.timing(walls.ours, replay), fresh, shutil.rmtree)
    by_hand = Side(
        "a copy of the journal, fsync", walls.timing(walls.copy, copy), fresh, shutil.rmtree
    )
    shape = f"{count} entries of 100 bytes"
    return Case("replay", count, shape, ours, (by_hand,), None, "cost", walls.facts)


@contextmanager
def _cases(context: Context) -> Iterator[Iterator[Case | Figures]]:
    yield _in_turn(context)


def _in_turn(context: Context) -> Iterator[Case | Figures]:
    adds = context.scaled(_ADDS)
    shape = f"{adds} entries of 100 bytes, {_THREADS} ledgers"
    kinds: tuple[tuple[str, type[_CountedSyncs]], ...] = (
        ("synced adds, the disk's fsync", _CountedSyncs),
        ("synced adds, an fsync that sleeps 1 ms", _SlowSyncs),
    )
    for name, files in kinds:
        yield Figures(name, adds, shape, lambda: _shared_syncs(context, files))  # noqa: B023
    yield _replay(context)


ROWS = (
    Row(
        "journal",
        "threads that share fsyncs; replay beside a copy",
        "Synced adds: Bookie.add_entry of sorted storage, each durable when it returns, by one "
        "thread and by eight with a ledger each, in turns; medians of five by wall time. Once with "
        "the fsync of the disk that the directory is on, once with a file layer whose fsync sleeps "
        "1 ms and syncs nothing, where the disk's own is too quick to show anything. Replay: "
        "Bookie.open after a crash before any checkpoint (reading the journal, write cache, entry "
        "log, index, all synced, new journal, marks), beside reading and writing the journal file "
        "in pieces of 1 MiB, and fsync. The ratio is of CPU times, in which an fsync costs next to "
        "nothing; the one of wall times is among the figures.",
        _cases,
    ),
)
