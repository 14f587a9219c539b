"""Rows: reading entries of a ledger storage, many at once and one at a time."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from struct import Struct
from typing import Any, cast

from bkstore.formats.entry import RecordBatch
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.index.rocks import RocksIndex
from bkstore.index.rocks.database import Database
from bkstore.storage.ledger_storage import LedgerStorage
from tools.bench.cases import BenchmarkRow, Case, Cases, Context, TimedSide
from tools.bench.inputs.entry_ids import SCOPE_0
from tools.bench.inputs.records import STORAGES, records_of, storage_with

LEDGER = SCOPE_0.ledger
_ENTRY_COUNT, BATCH_ENTRIES = 20_000, 1000
"""The entries of the ledger, and those of a batch."""

_PAYLOADS = (100, 1024)
_IDX_HEADER_BYTES, _SLOT_BYTES, _PREFIX_BYTES = 1024, 8, 4
_unpack_word, _unpack_size = Struct(">q").unpack, Struct(">i").unpack_from
_pack_key = Struct(">QQ").pack

ReadEntry = Callable[[int, int], bytes]
"""(ledger, entry) -> record."""

ReadRecord = Callable[[int], bytes]
"""location -> record."""


def _entries_to_read(entry_count: int) -> range:
    count = min(BATCH_ENTRIES, entry_count // 2)
    return range(entry_count // 4, entry_count // 4 + count)


def _read_singly(read: ReadEntry, entry_ids: range) -> Callable[[], list[bytes]]:
    return lambda: [read(LEDGER, entry_id) for entry_id in entry_ids]


def _describe_entries(entry_ids: range, payload_bytes: int) -> str:
    return f"{len(entry_ids)} consecutive entries, payload {payload_bytes} bytes, in one log"


def _batch_case(source: str, storage: LedgerStorage, payload_bytes: int, entry_ids: range) -> Case:
    def read_batch() -> RecordBatch:
        return storage.read_entries(LEDGER, entry_ids.start, len(entry_ids))

    read_singly = _read_singly(storage.read_entry, entry_ids)
    assert read_batch().records() == read_singly()
    case_name = f"{storage.storage}, {source}, {payload_bytes} bytes"
    shape = _describe_entries(entry_ids, payload_bytes)
    ours = TimedSide("read_entries", read_batch)
    one_by_one = TimedSide("read_entry, one by one", read_singly)
    limit = 10 if source == "from disk" else 3
    return Case(case_name, len(entry_ids), shape, ours, (one_by_one,), limit=limit)


def _batch_cases(context: Context) -> Cases:
    entry_count = context.scaled(_ENTRY_COUNT)
    entry_ids = _entries_to_read(entry_count)
    for payload_bytes in _PAYLOADS:
        records = records_of(context, entry_count, payload_bytes)
        for kind in STORAGES:
            with storage_with(context, kind, records, flushed=True) as storage:
                yield _batch_case("from disk", storage, payload_bytes, entry_ids)
            if kind != "interleaved":  # which keeps no record in memory
                with storage_with(context, kind, records, flushed=False) as storage:
                    yield _batch_case("from cache", storage, payload_bytes, entry_ids)


# -- the baseline: a read written by hand


def _record_reader(fd_of_log: dict[int, int], read_bytes: int) -> ReadRecord:
    """Return a function that reads the record at a location: one pread of `read_bytes`, with the
    size checked, and another one for a longer record."""
    pread = os.pread

    def read_record(location: int) -> bytes:
        fd, position = fd_of_log[location >> 32], location & 0xFFFFFFFF
        data = pread(fd, read_bytes, position - _PREFIX_BYTES)
        size: int = _unpack_size(data)[0]
        if 0 < size <= len(data) - _PREFIX_BYTES:
            return data[_PREFIX_BYTES : _PREFIX_BYTES + size]
        if size <= 0:
            raise ValueError(f"size {size} at {position}")
        return pread(fd, size, position)

    return read_record


def _index_file_reader(fd_of_ledger: dict[int, int], read_record: ReadRecord) -> ReadEntry:
    pread = os.pread

    def read(ledger: int, entry: int) -> bytes:
        offset = _IDX_HEADER_BYTES + _SLOT_BYTES * entry
        location: int = _unpack_word(pread(fd_of_ledger[ledger], _SLOT_BYTES, offset))[0]
        if location <= 0:
            raise KeyError(entry)
        return read_record(location)

    return read


def _database_reader(get: Callable[[bytes], Any], read_record: ReadRecord) -> ReadEntry:
    def read(ledger: int, entry: int) -> bytes:
        value = get(_pack_key(ledger, entry))
        if value is None:
            raise KeyError(entry)
        return read_record(_unpack_word(value)[0])

    return read


def _handwritten_reader(storage: LedgerStorage, read_bytes: int, stack: ExitStack) -> ReadEntry:
    """Return a function that looks an entry up in the storage's own files, and reads its record."""
    path = storage.write_paths[0]
    logger = path.logger
    fd_of_log = {log_id: _open_file(logger.path(log_id), stack) for log_id in logger.log_ids}
    read_record = _record_reader(fd_of_log, read_bytes)
    if isinstance(path.index, RocksIndex):
        database = cast(Database, path.index._databases["locations", False])
        return _database_reader(database._handle.get, read_record)
    index_file = cast(HierarchicalIndex, path.index).path(SCOPE_0)
    assert index_file is not None
    return _index_file_reader({LEDGER: _open_file(index_file, stack)}, read_record)


def _open_file(path: str | os.PathLike[str], stack: ExitStack) -> int:
    fd = os.open(path, os.O_RDONLY)
    stack.callback(os.close, fd)
    return fd


def _single_cases(context: Context) -> Cases:
    entry_count = context.scaled(_ENTRY_COUNT)
    entry_ids = _entries_to_read(entry_count)
    for payload_bytes, read_bytes in zip(_PAYLOADS, (512, 2048)):  # one read gets any record
        records = records_of(context, entry_count, payload_bytes)
        shape = _describe_entries(entry_ids, payload_bytes)
        for kind in STORAGES:
            with ExitStack() as stack:
                storage = stack.enter_context(storage_with(context, kind, records, flushed=True))
                read_singly = _read_singly(storage.read_entry, entry_ids)
                read_entry = _handwritten_reader(storage, read_bytes, stack)
                read_by_hand = _read_singly(read_entry, entry_ids)
                assert read_singly() == read_by_hand()
                ours = TimedSide("read_entry", read_singly)
                by_hand = TimedSide("index get and pread by hand", read_by_hand)
                case_name = f"{kind}, {payload_bytes} bytes"
                yield Case(case_name, len(entry_ids), shape, ours, (by_hand,), limit=2, kind="cost")


ROWS = (
    BenchmarkRow(
        "batch-read",
        "batch read of a ledger storage, as buffer and offsets",
        "Ours: LedgerStorage.read_entries of consecutive entries: one index scan, one read of "
        "the log, every size and id checked, the answer one buffer with offsets. Baseline: "
        "read_entry of the same storage for each of them, the records collected in a list. From "
        "disk: flushed, warm page cache, index and logs open. From cache: in the write cache. "
        "A record is its payload and 36 bytes of header and digest.",
        _batch_cases,
    ),
    BenchmarkRow(
        "single-read",
        "single read of a ledger storage",
        "Ours: LedgerStorage.read_entry, flushed, warm. Baseline: a function of (ledger, entry) "
        "that does no more than it must: an 8-byte pread of the index file, or a get of the "
        "open database; one pread of the log that brings size and record; the size checked "
        "against what came. Its descriptors are open and known by ledger and log, the bytes it "
        "reads at once suit the records. It does not check ids, nor whether the ledger is known, "
        "looks into no cache, and knows one storage.",
        _single_cases,
    ),
)
