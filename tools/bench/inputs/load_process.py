"""A load of many entries in a process of its own, which then says how much memory it took.

`python -m tools.bench.inputs.load_process STORAGE DIRECTORY ENTRIES LEDGERS` adds entries of
100 bytes, one ledger after the other in turns, flushes, closes, and prints one JSON object. The
peak is that of the whole process: interpreter, libraries, caches, and the records being added.
"""

from __future__ import annotations

import json
import sys
import time
from typing import cast

from bkstore.formats.entry import Coder
from bkstore.storage.ledger_storage import LedgerStorage
from bkstore.storage.options import Storage
from tools.bench.inputs.own_memory import peak_memory

PAYLOAD = 100
"""Bytes of an entry's payload."""

_AT_ONCE = 1000


def main(arguments: list[str]) -> None:
    """Load, and print entries, wall seconds and bytes of memory at the start and at most."""
    storage, directory = arguments[:2]
    count, ledgers = map(int, arguments[2:])
    before = peak_memory()
    coder, payloads = Coder("DUMMY"), [bytes(PAYLOAD)] * _AT_ONCE
    begin = time.perf_counter()
    with LedgerStorage.open(directory, cast(Storage, storage)) as opened:
        for ledger in range(ledgers):
            opened.set_master_key(ledger, b"k" * 20)
        at = 0
        share = count // ledgers
        while at < share:
            some = range(at, min(at + _AT_ONCE, share))
            for ledger in range(ledgers):
                opened.add_batch(coder.encode_batch(ledger, some, payloads[: len(some)]))
            at = some.stop
        opened.flush()
        held = sum(len(opened.availability(ledger)) for ledger in range(ledgers))
    seconds = time.perf_counter() - begin
    result = {"entries": held, "seconds": seconds, "start": before, "peak": peak_memory()}
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1:])
