"""Rows: filling a ledger storage and a journal, and what is done with their files later."""

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
from bkstore.storage.options import Storage
from tools.bench.inputs.entry_ids import SCOPE_0, new_directory
from tools.bench.inputs.records import KEY, STORAGES, empty_storage, records_of, remove_storage
from tools.bench.measure import Case, Context, Fact, Row, Side

SIZES = ((100, 50_000), (1024, 10_000))
"""(bytes of payload, entries)."""

_GROUP = 1000
"""Entries that share one fsync of the journal."""

_OTHER = LedgerId(0, 8)
_PREFIX, _HEADER = 4, 1024
_SIZE, _IDS = Struct(">i").unpack_from, Struct(">qq").unpack_from


class _Clock:
    """Wall times of one side's runs, from which entries and bytes a second come."""

    def __init__(self, records: Sequence[bytes]) -> None:
        self._count = len(records)
        self._bytes = sum(map(len, records))
        self._seconds: list[float] = []

    def timing(self, run: Callable[..., object]) -> Callable[..., object]:
        """Return `run`, its wall time noted each time."""

        def timed(*given: object) -> object:
            begin = time.perf_counter()
            result = run(*given)
            self._seconds.append(time.perf_counter() - begin)
            return result

        return timed

    def facts(self) -> list[Fact]:
        """Return entries and bytes of records a second, by the median of all runs."""
        seconds = statistics.median(self._seconds)
        return [
            Fact("entries/s, wall", float(f"{self._count / seconds:.4g}")),
            Fact("MB/s of records, wall", float(f"{self._bytes / seconds / 1e6:.4g}")),
        ]


def _case(
    name: str,
    records: list[bytes],
    payload: int,
    ours: Side,
    baseline: Side,
    limit: float | None = None,
) -> Case:
    """Return a case of the kind "cost", with entries and bytes a second."""
    clock = _Clock(records)
    timed = Side(ours.name, clock.timing(ours.run), ours.fresh, ours.done)
    shape = f"{len(records)} entries of {payload} bytes"
    return Case(name, len(records), shape, timed, (baseline,), limit, "cost", clock.facts)


# -- adding


def _by_write(context: Context, records: list[bytes], group: int | None = None) -> Side:
    """Return the side that writes the same bytes to a file, one write an entry."""

    def run(fd: int) -> None:
        for at, record in enumerate(records, 1):
            os.write(fd, len(record).to_bytes(_PREFIX, "big") + record)
            if group and at % group == 0:
                os.fsync(fd)
        os.fsync(fd)

    def fresh() -> int:
        return os.open(new_directory(context) / "file", os.O_WRONLY | os.O_CREAT)

    name = "a write an entry, fsync" + (f" every {group}" if group else "")
    return Side(name, run, fresh, os.close)


def _batches(records: list[bytes]) -> list[RecordBatch]:
    """Return records as framed batches of `GROUP`, as `Coder.encode_batch` makes them."""
    entries = range(len(records))
    return [
        RecordBatch.of(records[at : at + _GROUP], entries[at : at + _GROUP])
        for at in range(0, len(records), _GROUP)
    ]


def _adding(
    context: Context, storage: Storage, name: str, add: Callable[[LedgerStorage], object]
) -> Side:
    def run(opened: LedgerStorage) -> None:
        add(opened)
        opened.flush()

    return Side(f"{name}, flush", run, lambda: empty_storage(context, storage), remove_storage)


def _ways_of_adding(
    context: Context, storage: Storage, records: list[bytes]
) -> Iterator[tuple[str, Side, float]]:
    """Yield (name, side, limit) of the three ways in."""
    batches = _batches(records)

    def single(opened: LedgerStorage) -> None:
        add = opened.add_entry
        for record in records:
            add(record)

    def in_batches(opened: LedgerStorage) -> None:
        for batch in batches:
            opened.add_batch(batch)

    yield "add_batch", _adding(context, storage, f"add_batch of {_GROUP}", in_batches), 1.0
    listed = _adding(context, storage, "add_entries", lambda opened: opened.add_entries(records))
    yield "add_entries", listed, 1.0
    yield "add_entry", _adding(context, storage, "add_entry", single), 2.0


def _journal(context: Context, storage: Storage, records: list[bytes]) -> Side:
    batches = _batches(records)

    def run(bookie: Bookie) -> None:
        for batch in batches:
            bookie.add_batch(batch, KEY)

    def done(bookie: Bookie) -> None:
        bookie.close(checkpoint=False)

    fresh = lambda: Bookie.open(new_directory(context), storage)  # noqa: E731
    return Side(f"Bookie.add_batch of {_GROUP}, sync", run, fresh, done)


@contextmanager
def _writes(context: Context) -> Iterator[Iterator[Case]]:
    yield _write_cases(context)


def _write_cases(context: Context) -> Iterator[Case]:
    for payload, count in SIZES:
        records = records_of(context, context.scaled(count), payload)
        for storage in STORAGES:
            for way, ours, limit in _ways_of_adding(context, storage, records):
                name = f"{way}, {storage}, {payload} bytes"
                yield _case(name, records, payload, ours, _by_write(context, records), limit)
        ours, by_hand = _journal(context, "sorted", records), _by_write(context, records, _GROUP)
        yield _case(f"journal, sorted, {payload} bytes", records, payload, ours, by_hand, 1.0)


# -- what comes later


def _copied(context: Context, prepared: Path) -> Path:
    return Path(shutil.copytree(prepared, new_directory(context) / "copy"))


def _replay_case(context: Context, records: list[bytes], payload: int) -> Case:
    prepared = new_directory(context)
    with Bookie.open(prepared, "sorted") as bookie:
        bookie.add_entries(records, KEY)
        bookie.close(checkpoint=False)

    def done(copy: Path) -> None:
        shutil.rmtree(copy)

    def run(copy: Path) -> None:
        with Bookie.open(copy) as found:
            assert len(records) == len(found.availability(SCOPE_0))
            found.close(checkpoint=False)

    def copy(copied: Path) -> None:
        journal = next((copied / "journal" / "current").glob("*.txn"))
        shutil.copyfile(journal, copied / "file")
        fd = os.open(copied / "file", os.O_RDWR)
        os.fsync(fd)
        os.close(fd)

    ours = Side("Bookie.open, replay", run, lambda: _copied(context, prepared), done)
    by_hand = Side("a copy of the journal, fsync", copy, lambda: _copied(context, prepared), done)
    add = _adding(context, "sorted", "add_entries", lambda opened: opened.add_entries(records))
    case = _case(f"replay of a journal, {payload} bytes", records, payload, ours, by_hand)
    return replace(case, baselines=(by_hand, add))


def _half_garbage(context: Context, storage: Storage, records: list[bytes]) -> LedgerStorage:
    """Return a storage whose one closed log holds the records, and as many of a deleted ledger."""
    opened = empty_storage(context, storage)
    opened.set_master_key(_OTHER, KEY)
    other = [_OTHER.ledger.to_bytes(8, "big") + record[8:] for record in records]
    opened.add_entries(record for pair in zip(records, other) for record in pair)
    opened.flush()
    opened.paths[0].logger.roll()
    opened.paths[0].logger.flush()
    opened.delete_ledger(_OTHER)
    return opened


def _compaction_case(
    context: Context, storage: Storage, records: list[bytes], payload: int
) -> Case:
    def run(opened: LedgerStorage) -> None:
        assert len(records) == opened.collect_garbage().moved_entries

    def copy(opened: LedgerStorage) -> None:
        logger = opened.paths[0].logger
        target = logger.currents[0] / "copy"
        shutil.copyfile(logger.path(logger.log_ids[0]), target)
        fd = os.open(target, os.O_RDWR)
        os.fsync(fd)
        os.close(fd)

    fresh = lambda: _half_garbage(context, storage, records)  # noqa: E731
    ours = Side("collect_garbage, half is moved", run, fresh, remove_storage)
    by_hand = Side("a copy of the log, fsync", copy, fresh, remove_storage)
    name = f"compaction, {storage}, {payload} bytes"
    return _case(name, records, payload, ours, by_hand, 3.0)


def _by_frames(path: Path) -> list[tuple[int, int, int]]:
    """Return (ledger, entry, position) of each record, by a loop over the bytes of the file."""
    data = path.read_bytes()
    found, at = [], _HEADER
    while at + _PREFIX <= len(data):
        (size,) = _SIZE(data, at)
        if size <= 0:
            break
        ledger, entry = _IDS(data, at + _PREFIX)
        found.append((ledger, entry, at + _PREFIX))
        at += _PREFIX + size
    return found


@contextmanager
def _upkeep(context: Context) -> Iterator[Iterator[Case]]:
    yield _upkeep_cases(context)


def _upkeep_cases(context: Context) -> Iterator[Case]:
    for payload, count in SIZES:
        records = records_of(context, context.scaled(count), payload)
        yield _replay_case(context, records, payload)
        for storage in STORAGES:
            yield _compaction_case(context, storage, records, payload)
        opened = empty_storage(context, "interleaved")
        opened.add_entries(records)
        opened.flush()
        path = opened.paths[0].logger.path(0)
        assert len(records) == sum(map(len, scan_log(path))) == len(_by_frames(path))
        scan: Callable[[], Any] = lambda: list(scan_log(path))  # noqa: B023, E731
        by_hand = Side("struct, frame by frame", lambda: _by_frames(path))  # noqa: B023
        yield _case(f"log scan, {payload} bytes", records, payload, Side("scan_log", scan), by_hand)
        remove_storage(opened)


ROWS = (
    Row(
        "ledger-write",
        "adding and flushing, by storage; the journal",
        "Ours: the records of one ledger in order into a new storage, then flush (checks, write "
        "cache, entry log, index, all synced): by add_batch of 1000, by add_entries of the list, "
        "by add_entry; Bookie.add_batch of 1000, each with one fsync of the journal, nothing "
        "flushed. The batches are encoded before. Baseline: the same bytes to "
        "one file with one os.write an entry, then fsync (after each group for the journal). "
        "Entries and bytes a second are by wall time, fsyncs included.",
        _writes,
    ),
    Row(
        "ledger-upkeep",
        "replay, compaction, log scan (informative)",
        "Replay: Bookie.open after a crash before any checkpoint, beside a copy of the journal "
        "file with fsync, and beside adding the same records to a new storage and flushing it; "
        "the row journal has a longer one. Compaction: collect_garbage of a closed log of which "
        "half is of a deleted ledger, beside a copy of the whole file with fsync; "
        "figures count the records moved. Log scan: scan_log (ids, positions, sizes in arrays, "
        "every frame checked) beside a loop with struct over the bytes of the file.",
        _upkeep,
    ),
)
