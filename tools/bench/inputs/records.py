"""The data sets of the ledger storage rows: records, and storages filled with them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from bkstore.formats.entry import Coder
from bkstore.ids import LedgerId
from bkstore.storage.ledger_storage import LedgerStorage
from bkstore.storage.options import StorageKind, StorageOptions
from tools.bench.cases import Context
from tools.bench.inputs.entry_ids import SCOPE_0, new_directory

STORAGES: tuple[StorageKind, ...] = ("sorted", "interleaved", "db")
MASTER_KEY = b"k" * 20

_LARGE_CACHE = StorageOptions(write_cache=1 << 30)  # no flush in the middle of a run


def records_of(
    context: Context,
    count: int,
    payload_bytes: int,
    ledger_id: LedgerId = SCOPE_0,
    first_entry: int = 0,
) -> list[bytes]:
    """Return the records of `count` entries with random payloads of `payload_bytes` bytes."""
    noise = np.random.default_rng(context.seed).bytes(payload_bytes * min(count, 1000))
    chunks = [noise[start : start + payload_bytes] for start in range(0, len(noise), payload_bytes)]
    payloads = (chunks * (count // len(chunks) + 1))[:count]
    return Coder("CRC32C").encode_many(ledger_id, range(first_entry, first_entry + count), payloads)


def empty_storage(
    context: Context, storage: StorageKind, ledger_id: LedgerId = SCOPE_0, **options: int
) -> LedgerStorage:
    """Return a new storage in a directory of its own, with the master key of one ledger set."""
    settings = StorageOptions(**options) if options else _LARGE_CACHE  # type: ignore[arg-type]
    ledger_storage = LedgerStorage.open(new_directory(context), storage, options=settings)
    ledger_storage.set_master_key(ledger_id, MASTER_KEY)
    return ledger_storage


def remove_storage(storage: LedgerStorage) -> None:
    """Close a storage that `empty_storage` created, and delete its directory."""
    directory: Path = storage.write_paths[0].logger.currents[0].parent
    storage.close()
    shutil.rmtree(directory)


@contextmanager
def storage_with(
    context: Context, storage: StorageKind, records: list[bytes], flushed: bool
) -> Iterator[LedgerStorage]:
    """Yield a storage that holds the records of a ledger, `flushed` or in its write cache."""
    ledger_storage = empty_storage(context, storage)
    try:
        ledger_storage.add_entries(records)
        if flushed:
            ledger_storage.flush()
        yield ledger_storage
    finally:
        remove_storage(ledger_storage)
