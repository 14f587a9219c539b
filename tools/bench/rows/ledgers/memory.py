"""Row: the memory of loads of 10 and of 50 million entries, each in a process of its own."""

from __future__ import annotations

import shutil
from functools import partial

from bkstore.index.rocks.options import BLOCK_CACHE_BYTES
from bkstore.storage.options import StorageKind, StorageOptions
from tools.bench.cases import BenchmarkRow, Cases, Context, Fact, FactCase
from tools.bench.inputs.entry_ids import new_directory
from tools.bench.inputs.load_process import PAYLOAD_BYTES
from tools.bench.inputs.own_process import run_input
from tools.bench.inputs.records import STORAGES

SIZES, LEDGERS = (10_000_000, 50_000_000), 10
_MIB = 1 << 20
_ALLOWANCE_BYTES = 150 * _MIB
_WRITE_BUFFER_BYTES = 4 * 64 * _MIB  # of `location_options`


def _configured_bytes(storage: StorageKind) -> dict[str, int]:
    """Return the bytes that the default settings allow each cache and buffer of a storage."""
    if storage == "interleaved":
        return {}
    cache = {"write cache": StorageOptions().write_cache}
    if storage == "sorted":
        return cache
    return cache | {"block cache": BLOCK_CACHE_BYTES, "write buffers": _WRITE_BUFFER_BYTES}


def _facts(context: Context, storage: StorageKind, entries: int) -> list[Fact]:
    directory = new_directory(context)
    result = run_input("load_process", storage, directory, entries, LEDGERS)
    shutil.rmtree(directory)
    assert entries // LEDGERS * LEDGERS == result["entries"]
    allowed = _configured_bytes(storage)
    limit = sum(allowed.values()) + _ALLOWANCE_BYTES
    terms = [f"{part} {part_bytes // _MIB}" for part, part_bytes in allowed.items()]
    target = f"<= {limit // _MIB}: {' + '.join([*terms, str(_ALLOWANCE_BYTES // _MIB)])}"
    return [
        Fact("peak MiB", round(result["peak"] / _MIB), target, result["peak"] <= limit),
        Fact("of them before the load", round(result["start"] / _MIB)),
        Fact("seconds", round(result["seconds"], 1)),
    ]


def _memory_figures(context: Context) -> Cases:
    ledgers = f"{LEDGERS} ledgers, a thousand each in turn"
    for storage in STORAGES:
        for size in SIZES:
            entries, name = context.scaled(size), f"{storage}, {size // 1_000_000}M"
            shape = f"{entries} entries of {PAYLOAD_BYTES} bytes in {ledgers}"
            yield FactCase(name, entries, shape, partial(_facts, context, storage, entries))


ROWS = (
    BenchmarkRow(
        "ledger-memory",
        "memory of loads of 10M and 50M entries, by storage",
        "`python -m tools.bench.inputs.load_process` in a process of its own: entries are encoded "
        "and added in batches of a thousand, then flushed, then the availability of all ledgers "
        "is asked for. The highest resident size of the whole process, interpreter and libraries "
        "included, beside what the default settings allow caches and RocksDB's buffers, and 150 "
        "MiB.",
        _memory_figures,
        long=True,
    ),
)
