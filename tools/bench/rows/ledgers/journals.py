"""Row: threads that share the fsyncs of a journal, and a replay compared with a copy of it."""

from __future__ import annotations

import os
import shutil
import statistics
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bkstore.files.disk_changes import Files
from bkstore.formats.entry import Coder, Entry
from bkstore.ids import LedgerId
from bkstore.lab.measuring.latencies_and_costs import record_wall
from bkstore.storage.bookie import Bookie
from bkstore.storage.journal import list_journal_files
from tools.bench.cases import BenchmarkRow, Case, Cases, Context, Fact, FactCase, TimedSide
from tools.bench.inputs.entry_ids import SCOPE_0, new_directory
from tools.bench.inputs.records import MASTER_KEY

_THREAD_COUNT = 8
_ADD_COUNT = 2000
"""Synced adds of eight threads in total; a single thread does a fourth of them."""

ROUNDS = 5
_REPLAY_COUNT = 500_000
_ENTRIES_PER_BATCH = 1000
_MIB = 1 << 20


class _CountingFiles(Files):
    def __init__(self) -> None:
        self.fsyncs = 0

    def fsync(self, fd: int) -> None:
        self.fsyncs += 1
        super().fsync(fd)


class _SlowSyncFiles(_CountingFiles):
    """Files whose fsync only sleeps 1 ms, to stand for a disk that takes so long."""

    def fsync(self, fd: int) -> None:
        self.fsyncs += 1
        time.sleep(0.001)


def _measure_rate(
    directory: Path, files: _CountingFiles, threads: int, adds: int
) -> tuple[float, float]:
    """Return (synced adds per second, adds per fsync) of threads with a ledger each."""
    adds_per_thread = max(adds // threads, 2)
    coder, ids, payload = Coder("CRC32C"), range(adds_per_thread), bytes(100)
    records_of_threads = [
        [coder.encode(Entry(100 + thread, entry_id, -1, 5, payload)) for entry_id in ids]
        for thread in range(threads)
    ]
    ready = threading.Barrier(threads + 1)

    def add(records: list[bytes]) -> None:
        ready.wait()
        for record in records:
            bookie.add_entry(record, MASTER_KEY)

    with Bookie.open(directory, "sorted", files=files) as bookie:
        workers = [threading.Thread(target=add, args=(records,)) for records in records_of_threads]
        for worker in workers:
            worker.start()
        fsyncs_before = files.fsyncs
        ready.wait()
        started = time.perf_counter()
        for worker in workers:
            worker.join()
        seconds = time.perf_counter() - started
        fsyncs = files.fsyncs - fsyncs_before
        bookie.close(checkpoint=False)
    shutil.rmtree(directory)
    return threads * adds_per_thread / seconds, threads * adds_per_thread / fsyncs


def _sync_facts(context: Context, files: Callable[[], _CountingFiles]) -> list[Fact]:
    adds = context.scaled(_ADD_COUNT)
    single_rates, shared_rates, adds_per_sync = [], [], []
    for _ in range(ROUNDS):
        # One thread takes longer: a fourth of the adds is enough.
        rate, _ = _measure_rate(new_directory(context), files(), threads=1, adds=adds // 4)
        single_rates.append(rate)
        rate, adds_of_sync = _measure_rate(new_directory(context), files(), _THREAD_COUNT, adds)
        shared_rates.append(rate)
        adds_per_sync.append(adds_of_sync)
    ratio = round(statistics.median(shared_rates) / statistics.median(single_rates), 2)
    return [
        Fact("adds/s of one thread", round(statistics.median(single_rates))),
        Fact(f"adds/s of {_THREAD_COUNT} threads", round(statistics.median(shared_rates))),
        Fact("times one thread's", ratio, target=">= 4", holds=ratio >= 4),
        Fact("adds an fsync", round(statistics.median(adds_per_sync), 2)),
    ]


def _make_crashed_bookie(context: Context, count: int) -> Path:
    """Return the directory of a crashed bookie, whose entries are all in its journal."""
    directory, coder = new_directory(context), Coder("CRC32C")
    payloads = [os.urandom(100) for _ in range(_ENTRIES_PER_BATCH)]
    with Bookie.open(directory, "sorted") as bookie:
        for first in range(0, count, _ENTRIES_PER_BATCH):
            entry_ids = range(first, min(first + _ENTRIES_PER_BATCH, count))
            batch = coder.encode_batch(SCOPE_0, entry_ids, payloads[: len(entry_ids)])
            bookie.add_batch(batch, MASTER_KEY)
        bookie.close(checkpoint=False)
    return directory


def _copy_file(journal: Path) -> None:
    target = journal.with_name("copy")
    with open(journal, "rb", 0) as source, open(target, "wb", 0) as target_file:
        while data := source.read(_MIB):
            target_file.write(data)
        os.fsync(target_file.fileno())


def _replay_case(context: Context) -> Case:
    count = context.scaled(_REPLAY_COUNT)
    prepared = _make_crashed_bookie(context, count)
    replay_seconds: list[float] = []
    copy_seconds: list[float] = []

    def set_up() -> Path:
        copied_dir = Path(shutil.copytree(prepared, new_directory(context) / "bookie"))
        os.sync()
        return copied_dir

    def replay(directory: Path) -> None:
        with Bookie.open(directory) as bookie:
            assert count == len(bookie.availability(LedgerId.of(SCOPE_0)))
            bookie.close(checkpoint=False)

    def copy_journal(directory: Path) -> None:
        _copy_file(list_journal_files(directory / "journal" / "current")[-1][1])

    def facts() -> list[Fact]:
        ratio = round(statistics.median(replay_seconds) / statistics.median(copy_seconds), 2)
        return [Fact("wall time, times the copy's", ratio, target="<= 2", holds=ratio <= 2)]

    timed_replay = record_wall(replay, replay_seconds)
    ours = TimedSide("Bookie.open, replay", timed_replay, set_up, shutil.rmtree)
    timed_copy = record_wall(copy_journal, copy_seconds)
    by_hand = TimedSide("a copy of the journal, fsync", timed_copy, set_up, shutil.rmtree)
    shape = f"{count} entries of 100 bytes"
    return Case("replay", count, shape, ours, (by_hand,), kind="cost", facts=facts)


def _journal_cases(context: Context) -> Cases:
    adds = context.scaled(_ADD_COUNT)
    shape = f"{adds} entries of 100 bytes, {_THREAD_COUNT} ledgers"
    kinds: tuple[tuple[str, type[_CountingFiles]], ...] = (
        ("synced adds, the disk's fsync", _CountingFiles),
        ("synced adds, an fsync that sleeps 1 ms", _SlowSyncFiles),
    )
    for name, files in kinds:
        yield FactCase(name, adds, shape, partial(_sync_facts, context, files))
    yield _replay_case(context)


ROWS = (
    BenchmarkRow(
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
        _journal_cases,
    ),
)
