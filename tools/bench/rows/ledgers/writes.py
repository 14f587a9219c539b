"""Rows: writing to a ledger storage and a journal, then replay, compaction and scans."""

from __future__ import annotations

import os
import shutil
import statistics
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from struct import Struct

from bkstore.formats.entry import RecordBatch
from bkstore.ids import LedgerId
from bkstore.lab.measuring.latencies_and_costs import record_wall
from bkstore.storage.bookie import Bookie
from bkstore.storage.entry_log.scan import scan_log
from bkstore.storage.ledger_storage import LedgerStorage
from bkstore.storage.options import StorageKind
from tools.bench.cases import BenchmarkRow, Case, Cases, Context, Fact, TimedSide
from tools.bench.inputs.entry_ids import SCOPE_0, new_directory
from tools.bench.inputs.records import (
    MASTER_KEY,
    STORAGES,
    empty_storage,
    records_of,
    remove_storage,
)

SIZES = ((100, 50_000), (1024, 10_000))
"""(bytes of payload, entries)."""

_ENTRIES_PER_BATCH = 1000
"""The entries that share one fsync of the journal."""

_DELETED_LEDGER = LedgerId(0, 8)
_PREFIX_BYTES, _HEADER_BYTES = 4, 1024
_unpack_size, _unpack_ids = Struct(">i").unpack_from, Struct(">qq").unpack_from


def _cost_case(
    name: str,
    records: list[bytes],
    payload_bytes: int,
    ours: TimedSide,
    baseline: TimedSide,
    limit: float | None = None,
) -> Case:
    """Return a case of the kind "cost", with entries and bytes per second as facts."""
    count, record_bytes = len(records), sum(map(len, records))
    seconds: list[float] = []  # of each run, before `facts` is called

    def facts() -> list[Fact]:
        median = statistics.median(seconds)
        return [
            Fact("entries/s, wall", float(f"{count / median:.4g}")),
            Fact("MB/s of records, wall", float(f"{record_bytes / median / 1e6:.4g}")),
        ]

    timed = replace(ours, run=record_wall(ours.run, seconds))
    shape = f"{count} entries of {payload_bytes} bytes"
    return Case(name, count, shape, timed, (baseline,), limit=limit, kind="cost", facts=facts)


def _write_side(
    context: Context, records: list[bytes], entries_per_sync: int | None = None
) -> TimedSide:
    """Return the baseline that writes the same bytes to a file, with one write per entry, and an
    fsync at the end or each `entries_per_sync`."""

    def run(fd: int) -> None:
        for number, record in enumerate(records, 1):
            os.write(fd, len(record).to_bytes(_PREFIX_BYTES, "big") + record)
            if entries_per_sync is not None and number % entries_per_sync == 0:
                os.fsync(fd)
        os.fsync(fd)

    def set_up() -> int:
        return os.open(new_directory(context) / "file", os.O_WRONLY | os.O_CREAT)

    name = "a write an entry, fsync" + (f" every {entries_per_sync}" if entries_per_sync else "")
    return TimedSide(name, run, set_up, os.close)


def _make_batches(records: list[bytes]) -> list[RecordBatch]:
    ids = range(len(records))
    slices = (slice(start, start + _ENTRIES_PER_BATCH) for start in ids[::_ENTRIES_PER_BATCH])
    return [RecordBatch.of(records[part], ids[part]) for part in slices]


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
    """Yield (method, side, limit of its cost) for each method that adds all records."""
    batches = _make_batches(records)

    def add_singly(ledger_storage: LedgerStorage) -> None:
        add = ledger_storage.add_entry
        for record in records:
            add(record)

    def add_in_batches(ledger_storage: LedgerStorage) -> None:
        for batch in batches:
            ledger_storage.add_batch(batch)

    for method, title, add, limit in (
        ("add_batch", f"add_batch of {_ENTRIES_PER_BATCH}", add_in_batches, 1.0),
        ("add_entries", "add_entries", lambda opened: opened.add_entries(records), 1.0),
        ("add_entry", "add_entry", add_singly, 2.0),
    ):
        yield method, _add_side(context, storage, title, add), limit


def _journal_side(context: Context, records: list[bytes]) -> TimedSide:
    batches = _make_batches(records)

    def run(bookie: Bookie) -> None:
        for batch in batches:
            bookie.add_batch(batch, MASTER_KEY)

    def close_bookie(bookie: Bookie) -> None:
        bookie.close(checkpoint=False)  # the flush is not part of the journal's work

    set_up = lambda: Bookie.open(new_directory(context), "sorted")  # noqa: E731
    return TimedSide(f"Bookie.add_batch of {_ENTRIES_PER_BATCH}, sync", run, set_up, close_bookie)


def _write_cases(context: Context) -> Cases:
    for payload_bytes, count in SIZES:
        records = records_of(context, context.scaled(count), payload_bytes)
        for storage in STORAGES:
            for method, ours, limit in _add_sides(context, storage, records):
                name = f"{method}, {storage}, {payload_bytes} bytes"
                baseline = _write_side(context, records)
                yield _cost_case(name, records, payload_bytes, ours, baseline, limit)
        name, ours = f"journal, sorted, {payload_bytes} bytes", _journal_side(context, records)
        baseline = _write_side(context, records, _ENTRIES_PER_BATCH)
        yield _cost_case(name, records, payload_bytes, ours, baseline, limit=1.0)


def _copy_synced(source: Path, target: Path) -> None:
    shutil.copyfile(source, target)
    fd = os.open(target, os.O_RDWR)
    os.fsync(fd)
    os.close(fd)


def _replay_case(context: Context, records: list[bytes], payload_bytes: int) -> Case:
    prepared = new_directory(context)
    with Bookie.open(prepared, "sorted") as bookie:
        bookie.add_entries(records, MASTER_KEY)
        bookie.close(checkpoint=False)

    def set_up() -> Path:
        return Path(shutil.copytree(prepared, new_directory(context) / "copy"))

    def run(copy: Path) -> None:
        with Bookie.open(copy) as replayed:
            assert len(records) == len(replayed.availability(SCOPE_0))
            replayed.close(checkpoint=False)

    def copy_journal(copy: Path) -> None:
        _copy_synced(next((copy / "journal" / "current").glob("*.txn")), copy / "file")

    ours = TimedSide("Bookie.open, replay", run, set_up, shutil.rmtree)
    by_hand = TimedSide("a copy of the journal, fsync", copy_journal, set_up, shutil.rmtree)
    add = _add_side(context, "sorted", "add_entries", lambda opened: opened.add_entries(records))
    name = f"replay of a journal, {payload_bytes} bytes"
    case = _cost_case(name, records, payload_bytes, ours, by_hand)
    return replace(case, baselines=(by_hand, add))


def _half_garbage(context: Context, storage: StorageKind, records: list[bytes]) -> LedgerStorage:
    """Return a storage with one closed log: the records, and as many of a deleted ledger."""
    ledger_storage = empty_storage(context, storage)
    ledger_storage.set_master_key(_DELETED_LEDGER, MASTER_KEY)
    # A record begins with its ledger id: the same records, of the other ledger.
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
        _copy_synced(logger.path(logger.log_ids[0]), logger.currents[0] / "copy")

    set_up = lambda: _half_garbage(context, storage, records)  # noqa: E731
    ours = TimedSide("collect_garbage, half is moved", run, set_up, remove_storage)
    by_hand = TimedSide("a copy of the log, fsync", copy_log, set_up, remove_storage)
    name = f"compaction, {storage}, {payload_bytes} bytes"
    return _cost_case(name, records, payload_bytes, ours, by_hand, limit=3.0)


def _list_batches(path: Path) -> object:
    return list(scan_log(path))


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


def _upkeep_cases(context: Context) -> Cases:
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
        ours = TimedSide("scan_log", partial(_list_batches, path))
        baseline = TimedSide("struct, frame by frame", partial(_scan_frames, path))
        name = f"log scan, {payload_bytes} bytes"
        yield _cost_case(name, records, payload_bytes, ours, baseline)
        remove_storage(ledger_storage)


ROWS = (
    BenchmarkRow(
        "ledger-write",
        "adding and flushing, by storage; the journal",
        "Ours: the records of one ledger in order into a new storage, then flush (checks, write "
        "cache, entry log, index, all synced): by add_batch of 1000, by add_entries of the list, "
        "by add_entry; Bookie.add_batch of 1000, each with one fsync of the journal, nothing "
        "flushed. The batches are encoded before. Baseline: the same bytes to one file with one "
        "os.write an entry, then fsync (after each group for the journal). Entries and bytes a "
        "second are by wall time, fsyncs included.",
        _write_cases,
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
        _upkeep_cases,
    ),
)
