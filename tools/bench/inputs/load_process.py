"""A load of many entries in a process of its own, which prints how much memory it took.

`python -m tools.bench.inputs.load_process STORAGE DIRECTORY ENTRIES LEDGERS` adds entries of
100 bytes to ledgers in turns, flushes, closes, and prints one JSON object. The peak memory is that
of the whole process: interpreter, libraries, caches, and the records being added.
"""

from __future__ import annotations

import json
import sys
from typing import cast

from bkstore.formats.entry import Coder
from bkstore.storage.ledger_storage import LedgerStorage
from bkstore.storage.options import StorageKind
from tools.bench.inputs.own_memory import measure_peak

PAYLOAD_BYTES = 100
"""Bytes of an entry's payload."""

_ENTRIES_PER_BATCH = 1000


def main(arguments: list[str]) -> None:
    """Load, and print entries, wall seconds, and bytes of memory at the start and at the peak."""
    kind, directory = cast(StorageKind, arguments[0]), arguments[1]
    count, ledgers = map(int, arguments[2:])
    coder, payloads = Coder("DUMMY"), [bytes(PAYLOAD_BYTES)] * _ENTRIES_PER_BATCH
    entries_per_ledger = count // ledgers
    with measure_peak() as figures, LedgerStorage.open(directory, kind) as storage:
        for ledger in range(ledgers):
            storage.set_master_key(ledger, b"k" * 20)
        for first in range(0, entries_per_ledger, _ENTRIES_PER_BATCH):
            entry_ids = range(first, min(first + _ENTRIES_PER_BATCH, entries_per_ledger))
            for ledger in range(ledgers):
                batch = coder.encode_batch(ledger, entry_ids, payloads[: len(entry_ids)])
                storage.add_batch(batch)
        storage.flush()
        stored_entries = sum(len(storage.availability(ledger)) for ledger in range(ledgers))
    print(json.dumps({**figures, "entries": stored_entries}))


if __name__ == "__main__":
    main(sys.argv[1:])
