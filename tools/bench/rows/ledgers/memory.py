"""Row: the memory of loads of 10 and of 50 million entries, each in a process of its own."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bkstore.index.rocks.options import BLOCK_CACHE_BYTES
from bkstore.storage.options import StorageKind, StorageOptions
from tools.bench.inputs.entry_ids import new_directory
from tools.bench.inputs.load_process import PAYLOAD_BYTES
from tools.bench.inputs.records import STORAGES
from tools.bench.measure import BenchmarkRow, Context, Fact, FactCase

SIZES, LEDGERS = (10_000_000, 50_000_000), 10
_MIB = 1 << 20
_ALLOWANCE_BYTES = 150 * _MIB
_WRITE_BUFFER_BYTES = 4 * 64 * _MIB  # of `location_options`
_CHECKOUT = Path(__file__).parents[4]


def _configured_bytes(storage: StorageKind) -> dict[str, int]:
    """Return the bytes that the default settings allow each cache and buffer of a storage."""
    if storage == "interleaved":
        return {}
    cache = {"write cache": StorageOptions().write_cache}
    if storage == "sorted":
        return cache
    return cache | {"block cache": BLOCK_CACHE_BYTES, "write buffers": _WRITE_BUFFER_BYTES}


def _run_load_process(context: Context, storage: StorageKind, entries: int) -> dict[str, Any]:
    directory = new_directory(context)
    command = [sys.executable, "-m", "tools.bench.inputs.load_process", storage, str(directory)]
    command += [str(entries), str(LEDGERS)]
    process = subprocess.run(command, cwd=_CHECKOUT, check=True, capture_output=True, text=True)
    shutil.rmtree(directory)
    result: dict[str, Any] = json.loads(process.stdout)
    assert entries // LEDGERS * LEDGERS == result["entries"]
    return result


def _facts(context: Context, storage: StorageKind, entries: int) -> list[Fact]:
    result, bytes_of_part = _run_load_process(context, storage, entries), _configured_bytes(storage)
    limit = sum(bytes_of_part.values()) + _ALLOWANCE_BYTES
    terms = " + ".join(
        [*(f"{part} {part_bytes // _MIB}" for part, part_bytes in bytes_of_part.items()), "150"]
    )
    target = f"<= {limit // _MIB}: {terms}"
    return [
        Fact("peak MiB", round(result["peak"] / _MIB), target, result["peak"] <= limit),
        Fact("of them before the load", round(result["start"] / _MIB)),
        Fact("seconds", round(result["seconds"], 1)),
    ]


@contextmanager
def _memory_figures(context: Context) -> Iterator[Iterator[FactCase]]:
    def figures(storage: StorageKind, size: int) -> FactCase:
        entries = context.scaled(size)
        ledgers = f"{LEDGERS} ledgers, a thousand each in turn"
        shape = f"{entries} entries of {PAYLOAD_BYTES} bytes in {ledgers}"
        name = f"{storage}, {size // 1_000_000}M"
        return FactCase(name, entries, shape, lambda: _facts(context, storage, entries))

    yield (figures(storage, size) for storage in STORAGES for size in SIZES)


ROWS = (
    BenchmarkRow(
        "ledger-memory",
        "memory of loads of 10M and 50M entries, by storage",
        "`python -m tools.bench.inputs.load_process` in a process of its own: entries are encoded "
        "and added in batches of a thousand, then flushed, then the availability of all ledgers "
        "is asked for. "
        "The highest resident size of the whole process, interpreter and libraries included, "
        "beside what the default settings allow caches and RocksDB's buffers, and 150 MiB.",
        _memory_figures,
        long=True,
    ),
)
