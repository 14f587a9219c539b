"""A load of many entries in a process of its own, which prints how much memory it took.

`python -m tools.bench.inputs.load_process STORAGE DIRECTORY ENTRIES LEDGERS` adds entries of
100 bytes to ledgers in turns, flushes, closes, and prints one JSON object. The peak memory is that
of the whole process: interpreter, libraries, caches, and the records being added.
"""

from __future__ import annotations

import json
import sys
import time
from typing import cast

from bkstore.formats.entry import Coder
from bkstore.storage.ledger_storage import LedgerStorage
from bkstore.storage.options import StorageKind
from tools.bench.inputs.own_memory import peak_memory

PAYLOAD_BYTES = 100
"""Bytes of an entry's payload."""

_ENTRIES_PER_BATCH = 1000


def main(arguments: list[str]) -> None:
    """Load, and print entries, wall seconds, and bytes of memory at the start and at the peak."""
    storage, directory = arguments[:2]
    count, ledgers = map(int, arguments[2:])
    memory_before = peak_memory()
    coder, payloads = Coder("DUMMY"), [bytes(PAYLOAD_BYTES)] * _ENTRIES_PER_BATCH
    started = time.perf_counter()
    with LedgerStorage.open(directory, cast(StorageKind, storage)) as ledger_storage:
        for ledger in range(ledgers):
            ledger_storage.set_master_key(ledger, b"k" * 20)
        next_entry = 0
        entries_per_ledger = count // ledgers
        while next_entry < entries_per_ledger:
            entry_ids = range(next_entry, min(next_entry + _ENTRIES_PER_BATCH, entries_per_ledger))
            for ledger in range(ledgers):
                ledger_storage.add_batch(
                    coder.encode_batch(ledger, entry_ids, payloads[: len(entry_ids)])
                )
            next_entry = entry_ids.stop
        ledger_storage.flush()
        stored_entries = sum(len(ledger_storage.availability(ledger)) for ledger in range(ledgers))
    seconds = time.perf_counter() - started
    result = {
        "entries": stored_entries,
        "seconds": seconds,
        "start": memory_before,
        "peak": peak_memory(),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1:])
