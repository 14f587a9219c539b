"""Rows: writing to a ledger storage and a journal, then replay, compaction and scans."""

from __future__ import annotations

import os
import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from struct import Struct
from typing import Any

from bkstore.formats.entry import RecordBatch
from bkstore.ids import LedgerId
from bkstore.storage.bookie import Bookie
from bkstore.storage.entry_log.scan import scan_log
from bkstore.storage.ledger_storage import LedgerStorage
from bkstore.storage.options import StorageKind
from tools.bench.inputs.entry_ids import SCOPE_0, new_directory
from tools.bench.inputs.records import (
    MASTER_KEY,
    STORAGES,
    empty_storage,
    records_of,
    remove_storage,
)
from tools.bench.measure import BenchmarkRow, Case, Context, Fact, TimedSide

SIZES = ((100, 50_000), (1024, 10_000))
"""(bytes of payload, entries)."""

_ENTRIES_PER_BATCH = 1000
"""The entries that share one fsync of the journal."""

_DELETED_LEDGER = LedgerId(0, 8)
_PREFIX_BYTES, _HEADER_BYTES = 4, 1024
_unpack_size, _unpack_ids = Struct(">i").unpack_from, Struct(">qq").unpack_from


class _WallTimes:
    """Wall times of a side's runs, reported as entries and bytes per second."""

    def __init__(self, records: Sequence[bytes]) -> None:
        self._count = len(records)
        self._bytes = sum(map(len, records))
        self._seconds: list[float] = []

    def timing(self, run: Callable[..., object]) -> Callable[..., object]:
        def timed(*arguments: object) -> object:
            started = time.perf_counter()
            result = run(*arguments)
            self._seconds.append(time.perf_counter() - started)
            return result

        return timed

    def facts(self) -> list[Fact]:
        seconds = statistics.median(self._seconds)
        return [
            Fact("entries/s, wall", float(f"{self._count / seconds:.4g}")),
            Fact("MB/s of records, wall", float(f"{self._bytes / seconds / 1e6:.4g}")),
        ]


def _cost_case(
    name: str,
    records: list[bytes],
    payload_bytes: int,
    ours: TimedSide,
    baseline: TimedSide,
    limit: float | None = None,
) -> Case:
    """Return a case of the kind "cost", with entries and bytes per second as facts."""
    clock = _WallTimes(records)
    timed = TimedSide(ours.name, clock.timing(ours.run), ours.setup, ours.teardown)
    shape = f"{len(records)} entries of {payload_bytes} bytes"
    return Case(name, len(records), shape, timed, (baseline,), limit, "cost", clock.facts)


def _write_side(
    context: Context, records: list[bytes], sync_interval: int | None = None
) -> TimedSide:
    """Return the baseline that writes the same bytes to a file, with one write per entry."""

    def run(fd: int) -> None:
        for number, record in enumerate(records, 1):
            os.write(fd, len(record).to_bytes(_PREFIX_BYTES, "big") + record)
            if sync_interval and number % sync_interval == 0:
                os.fsync(fd)
        os.fsync(fd)

    def fresh() -> int:
        return os.open(new_directory(context) / "file", os.O_WRONLY | os.O_CREAT)

    name = "a write an entry, fsync" + (f" every {sync_interval}" if sync_interval else "")
    return TimedSide(name, run, fresh, os.close)


def _make_batches(records: list[bytes]) -> list[RecordBatch]:
    entries = range(len(records))
    return [
        RecordBatch.of(
            records[start : start + _ENTRIES_PER_BATCH], entries[start : start + _ENTRIES_PER_BATCH]
        )
        for start in range(0, len(records), _ENTRIES_PER_BATCH)
    ]


def _add_side(
    context: Context, storage: StorageKind, name: str, add: Callable[[LedgerStorage], object]
) -> TimedSide:
    def run(ledger_storage: LedgerStorage) -> None:
        add(ledger_storage)
        ledger_storage.flush()

    return TimedSide(f"{name}, flush", run, lambda: empty_storage(context, storage), remove_storage)


def _add_sides(
    context: Context, storage: StorageKind, records: list[bytes]
) -> Iterator[tuple[str, TimedSide, float]]:
    batches = _make_batches(records)

    def add_singly(ledger_storage: LedgerStorage) -> None:
        add = ledger_storage.add_entry
        for record in records:
            add(record)

    def add_in_batches(ledger_storage: LedgerStorage) -> None:
        for batch in batches:
            ledger_storage.add_batch(batch)

    yield (
        "add_batch",
        _add_side(context, storage, f"add_batch of {_ENTRIES_PER_BATCH}", add_in_batches),
        1.0,
    )
    list_side = _add_side(
        context, storage, "add_entries", lambda ledger_storage: ledger_storage.add_entries(records)
    )
    yield "add_entries", list_side, 1.0
    yield "add_entry", _add_side(context, storage, "add_entry", add_singly), 2.0


def _journal_side(context: Context, storage: StorageKind, records: list[bytes]) -> TimedSide:
    batches = _make_batches(records)

    def run(bookie: Bookie) -> None:
        for batch in batches:
            bookie.add_batch(batch, MASTER_KEY)

    def close_bookie(bookie: Bookie) -> None:
        bookie.close(checkpoint=False)

    fresh = lambda: Bookie.open(new_directory(context), storage)  # noqa: E731
    return TimedSide(f"Bookie.add_batch of {_ENTRIES_PER_BATCH}, sync", run, fresh, close_bookie)


@contextmanager
def _writing(context: Context) -> Iterator[Iterator[Case]]:
    yield _write_cases(context)


def _write_cases(context: Context) -> Iterator[Case]:
    for payload_bytes, count in SIZES:
        records = records_of(context, context.scaled(count), payload_bytes)
        for storage in STORAGES:
            for method, ours, limit in _add_sides(context, storage, records):
                name = f"{method}, {storage}, {payload_bytes} bytes"
                yield _cost_case(
                    name, records, payload_bytes, ours, _write_side(context, records), limit
                )
        ours, baseline = (
            _journal_side(context, "sorted", records),
            _write_side(context, records, _ENTRIES_PER_BATCH),
        )
        yield _cost_case(
            f"journal, sorted, {payload_bytes} bytes", records, payload_bytes, ours, baseline, 1.0
        )


def _copy_directory(context: Context, prepared: Path) -> Path:
    return Path(shutil.copytree(prepared, new_directory(context) / "copy"))


def _replay_case(context: Context, records: list[bytes], payload_bytes: int) -> Case:
    prepared = new_directory(context)
    with Bookie.open(prepared, "sorted") as bookie:
        bookie.add_entries(records, MASTER_KEY)
        bookie.close(checkpoint=False)

    def remove(copy: Path) -> None:
        shutil.rmtree(copy)

    def run(copy: Path) -> None:
        with Bookie.open(copy) as replayed:
            assert len(records) == len(replayed.availability(SCOPE_0))
            replayed.close(checkpoint=False)

    def copy(directory: Path) -> None:
        journal = next((directory / "journal" / "current").glob("*.txn"))
        shutil.copyfile(journal, directory / "file")
        fd = os.open(directory / "file", os.O_RDWR)
        os.fsync(fd)
        os.close(fd)

    ours = TimedSide("Bookie.open, replay", run, lambda: _copy_directory(context, prepared), remove)
    by_hand = TimedSide(
        "a copy of the journal, fsync", copy, lambda: _copy_directory(context, prepared), remove
    )
    add = _add_side(context, "sorted", "add_entries", lambda opened: opened.add_entries(records))
    case = _cost_case(
        f"replay of a journal, {payload_bytes} bytes", records, payload_bytes, ours, by_hand
    )
    return replace(case, baselines=(by_hand, add))


def _make_half_garbage(
    context: Context, storage: StorageKind, records: list[bytes]
) -> LedgerStorage:
    """Return a storage with one closed log: the records, and as many of a deleted ledger."""
    ledger_storage = empty_storage(context, storage)
    ledger_storage.set_master_key(_DELETED_LEDGER, MASTER_KEY)
    garbage = [_DELETED_LEDGER.ledger.to_bytes(8, "big") + record[8:] for record in records]
    ledger_storage.add_entries(record for pair in zip(records, garbage) for record in pair)
    ledger_storage.flush()
    ledger_storage.write_paths[0].logger.roll()
    ledger_storage.write_paths[0].logger.flush()
    ledger_storage.delete_ledger(_DELETED_LEDGER)
    return ledger_storage


def _compaction_case(
    context: Context, storage: StorageKind, records: list[bytes], payload_bytes: int
) -> Case:
    def run(ledger_storage: LedgerStorage) -> None:
        assert len(records) == ledger_storage.collect_garbage().moved_entries

    def copy_log(ledger_storage: LedgerStorage) -> None:
        logger = ledger_storage.write_paths[0].logger
        target = logger.currents[0] / "copy"
        shutil.copyfile(logger.path(logger.log_ids[0]), target)
        fd = os.open(target, os.O_RDWR)
        os.fsync(fd)
        os.close(fd)

    fresh = lambda: _make_half_garbage(context, storage, records)  # noqa: E731
    ours = TimedSide("collect_garbage, half is moved", run, fresh, remove_storage)
    by_hand = TimedSide("a copy of the log, fsync", copy_log, fresh, remove_storage)
    name = f"compaction, {storage}, {payload_bytes} bytes"
    return _cost_case(name, records, payload_bytes, ours, by_hand, 3.0)


def _scan_frames(path: Path) -> list[tuple[int, int, int]]:
    """Return (ledger, entry, position) of each record, found by a loop over the bytes."""
    data = path.read_bytes()
    records, offset = [], _HEADER_BYTES
    while offset + _PREFIX_BYTES <= len(data):
        (size,) = _unpack_size(data, offset)
        if size <= 0:
            break
        ledger, entry_id = _unpack_ids(data, offset + _PREFIX_BYTES)
        records.append((ledger, entry_id, offset + _PREFIX_BYTES))
        offset += _PREFIX_BYTES + size
    return records


@contextmanager
def _upkeep_of_files(context: Context) -> Iterator[Iterator[Case]]:
    yield _upkeep_cases(context)


def _upkeep_cases(context: Context) -> Iterator[Case]:
    for payload_bytes, count in SIZES:
        records = records_of(context, context.scaled(count), payload_bytes)
        yield _replay_case(context, records, payload_bytes)
        for storage in STORAGES:
            yield _compaction_case(context, storage, records, payload_bytes)
        ledger_storage = empty_storage(context, "interleaved")
        ledger_storage.add_entries(records)
        ledger_storage.flush()
        path = ledger_storage.write_paths[0].logger.path(0)
        assert len(records) == sum(map(len, scan_log(path))) == len(_scan_frames(path))
        scan: Callable[[], Any] = lambda: list(scan_log(path))  # noqa: B023, E731
        baseline = TimedSide("struct, frame by frame", lambda: _scan_frames(path))  # noqa: B023
        yield _cost_case(
            f"log scan, {payload_bytes} bytes",
            records,
            payload_bytes,
            TimedSide("scan_log", scan),
            baseline,
        )
        remove_storage(ledger_storage)


ROWS = (
    BenchmarkRow(
        "ledger-write",
        "adding and flushing, by storage; the journal",
        "Ours: the records of one ledger in order into a new storage, then flush (checks, write "
        "cache, entry log, index, all synced): by add_batch of 1000, by add_entries of the list, "
        "by add_entry; Bookie.add_batch of 1000, each with one fsync of the journal, nothing "
        "flushed. The batches are encoded before. Baseline: the same bytes to "
        "one file with one os.write an entry, then fsync (after each group for the journal). "
        "Entries and bytes a second are by wall time, fsyncs included.",
        _writing,
    ),
    BenchmarkRow(
        "ledger-upkeep",
        "replay, compaction, log scan (informative)",
        "Replay: Bookie.open after a crash before any checkpoint, beside a copy of the journal "
        "file with fsync, and beside adding the same records to a new storage and flushing it; "
        "the row journal has a longer one. Compaction: collect_garbage of a closed log of which "
        "half is of a deleted ledger, beside a copy of the whole file with fsync; "
        "figures count the records moved. Log scan: scan_log (ids, positions, sizes in arrays, "
        "every frame checked) beside a loop with struct over the bytes of the file.",
        _upkeep_of_files,
    ),
)
