"""Rows: reading entries of a ledger storage, many at once and one at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from struct import Struct
from typing import Any, cast

from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.index.rocks import RocksIndex
from bkstore.storage.ledger_storage import LedgerStorage
from tools.bench.inputs.entry_ids import SCOPE_0
from tools.bench.inputs.records import STORAGES, records_of, storage_with
from tools.bench.measure import Case, Context, Row, Side

LEDGER = SCOPE_0.ledger
_HELD, ASKED = 20_000, 1000
"""Entries of the ledger, and of one batch."""

_PAYLOADS = (100, 1024)
_IDX_HEADER, _SLOT, _PREFIX = 1024, 8, 4
_WORD, _SIZE, _KEY = Struct(">q").unpack, Struct(">i").unpack_from, Struct(">QQ").pack

Read = Callable[[int, int], bytes]
"""(ledger, entry) -> record."""


def _asked(held: int) -> range:
    count = min(ASKED, held // 2)
    return range(held // 4, held // 4 + count)


def _one_by_one(read: Read, asked: range) -> Callable[[], list[bytes]]:
    return lambda: [read(LEDGER, entry) for entry in asked]


def _batch_case(where: str, storage: LedgerStorage, payload: int, asked: range) -> Case:
    def batch() -> object:
        return storage.read_entries(LEDGER, asked.start, len(asked))

    single = _one_by_one(storage.read_entry, asked)
    assert storage.read_entries(LEDGER, asked.start, len(asked)).records() == single()
    return Case(
        f"{storage.storage}, {where}, {payload} bytes",
        len(asked),
        f"{len(asked)} consecutive entries, payload {payload} bytes, in one log",
        Side("read_entries", batch),
        (Side("read_entry, one by one", single),),
        10 if where == "from disk" else 3,
    )


@contextmanager
def _batches(context: Context) -> Iterator[Iterator[Case]]:
    yield _batch_cases(context)


def _batch_cases(context: Context) -> Iterator[Case]:
    held = context.scaled(_HELD)
    for payload in _PAYLOADS:
        records = records_of(context, held, payload)
        for name in STORAGES:
            with storage_with(context, name, records, flushed=True) as storage:
                yield _batch_case("from disk", storage, payload, _asked(held))
            if name != "interleaved":  # which keeps no record in memory
                with storage_with(context, name, records, flushed=False) as storage:
                    yield _batch_case("from cache", storage, payload, _asked(held))


# -- what one would write by hand


def _record_reader(logs: dict[int, int], guess: int) -> Callable[[int], bytes]:
    """Return the read of a record by its location: one pread, and the size checked."""
    pread = os.pread

    def record(location: int) -> bytes:
        fd, position = logs[location >> 32], location & 0xFFFFFFFF
        data = pread(fd, guess, position - _PREFIX)
        size: int = _SIZE(data)[0]
        if 0 < size <= len(data) - _PREFIX:
            return data[_PREFIX : _PREFIX + size]
        if size <= 0:
            raise ValueError(f"size {size} at {position}")
        return pread(fd, size, position)

    return record


def _by_slot(files: dict[int, int], record: Callable[[int], bytes]) -> Read:
    pread = os.pread

    def read(ledger: int, entry: int) -> bytes:
        location: int = _WORD(pread(files[ledger], _SLOT, _IDX_HEADER + _SLOT * entry))[0]
        if location <= 0:
            raise KeyError(entry)
        return record(location)

    return read


def _by_row(get: Callable[[bytes], Any], record: Callable[[int], bytes]) -> Read:
    def read(ledger: int, entry: int) -> bytes:
        value = get(_KEY(ledger, entry))
        if value is None:
            raise KeyError(entry)
        return record(_WORD(value)[0])

    return read


def _by_hand(storage: LedgerStorage, guess: int, stack: ExitStack) -> Read:
    """Return the hand-written read over the same files, its descriptors open already."""
    path = storage.paths[0]
    logs = {number: _opened(path.logger.path(number), stack) for number in path.logger.log_ids}
    record = _record_reader(logs, guess)
    if isinstance(path.index, RocksIndex):
        database = path.index._open["locations", False]
        return _by_row(database._handle.get, record)
    file = cast(HierarchicalIndex, path.index).path(SCOPE_0)
    assert file is not None
    return _by_slot({LEDGER: _opened(file, stack)}, record)


def _opened(path: str | os.PathLike[str], stack: ExitStack) -> int:
    fd = os.open(path, os.O_RDONLY)
    stack.callback(os.close, fd)
    return fd


@contextmanager
def _singles(context: Context) -> Iterator[Iterator[Case]]:
    yield _single_cases(context)


def _single_cases(context: Context) -> Iterator[Case]:
    held = context.scaled(_HELD)
    for payload, guess in zip(_PAYLOADS, (512, 2048)):
        records = records_of(context, held, payload)
        for name in STORAGES:
            with ExitStack() as stack:
                storage = stack.enter_context(storage_with(context, name, records, flushed=True))
                asked = _asked(held)
                single = _one_by_one(storage.read_entry, asked)
                hand = _one_by_one(_by_hand(storage, guess, stack), asked)
                assert single() == hand()
                yield Case(
                    f"{name}, {payload} bytes",
                    len(asked),
                    f"{len(asked)} consecutive entries, payload {payload} bytes, in one log",
                    Side("read_entry", single),
                    (Side("index get and pread by hand", hand),),
                    2,
                    "cost",
                )


ROWS = (
    Row(
        "batch-read",
        "batch read of a ledger storage, as buffer and offsets",
        "Ours: LedgerStorage.read_entries of consecutive entries: one index scan, one read of "
        "the log, every size and id checked, the answer one buffer with offsets. Baseline: "
        "read_entry of the same storage for each of them, the records collected in a list. From "
        "disk: flushed, warm page cache, index and logs open. From cache: in the write cache. "
        "A record is its payload and 36 bytes of header and digest.",
        _batches,
    ),
    Row(
        "single-read",
        "single read of a ledger storage",
        "Ours: LedgerStorage.read_entry, flushed, warm. Baseline: a function of (ledger, entry) "
        "that does no more than it must: an 8-byte pread of the index file, or a get of the "
        "open database; one pread of the log that brings size and record; the size checked "
        "against what came. Its descriptors are open and known by ledger and log, the bytes it "
        "reads at once suit the records. It does not check ids, nor whether the ledger is known, "
        "looks into no cache, and knows one storage.",
        _singles,
    ),
)
