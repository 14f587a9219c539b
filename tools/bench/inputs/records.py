"""The data sets of the ledger storage rows: records, and storages that hold them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from bkstore.formats.entry import Coder
from bkstore.ids import LedgerId
from bkstore.storage.ledger_storage import LedgerStorage
from bkstore.storage.options import Storage, StorageOptions
from tools.bench.inputs.entry_ids import SCOPE_0, new_directory
from tools.bench.measure import Context

STORAGES: tuple[Storage, ...] = ("sorted", "interleaved", "db")
KEY = b"k" * 20

_LARGE_CACHE = StorageOptions(write_cache=1 << 30)  # no flush in the middle of a run


def records_of(
    context: Context, count: int, payload: int, name: LedgerId = SCOPE_0, first: int = 0
) -> list[bytes]:
    """Return the records of `count` entries with random payloads of `payload` bytes."""
    noise = np.random.default_rng(context.seed).bytes(payload * min(count, 1000))
    parts = [noise[at : at + payload] for at in range(0, len(noise), payload)]
    payloads = (parts * (count // len(parts) + 1))[:count]
    return Coder("CRC32C").encode_many(name, range(first, first + count), payloads)


def empty_storage(
    context: Context, storage: Storage, name: LedgerId = SCOPE_0, **options: int
) -> LedgerStorage:
    """Return a new storage in a directory of its own, which knows one ledger."""
    settings = StorageOptions(**options) if options else _LARGE_CACHE  # type: ignore[arg-type]
    opened = LedgerStorage.open(new_directory(context), storage, options=settings)
    opened.set_master_key(name, KEY)
    return opened


def remove_storage(storage: LedgerStorage) -> None:
    """Close a storage that `empty_storage` made, and remove its directory."""
    top: Path = storage.paths[0].logger.currents[0].parent
    storage.close()
    shutil.rmtree(top)


@contextmanager
def storage_with(
    context: Context, storage: Storage, records: list[bytes], flushed: bool
) -> Iterator[LedgerStorage]:
    """Yield a storage that holds the records of a ledger, `flushed` or in its write cache."""
    opened = empty_storage(context, storage)
    try:
        opened.add_entries(records)
        if flushed:
            opened.flush()
        yield opened
    finally:
        remove_storage(opened)
