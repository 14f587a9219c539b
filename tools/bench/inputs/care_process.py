"""One command of offline care in a process of its own, which says what it took.

`python -m tools.bench.inputs.care_process make STORAGE DIRECTORY ENTRIES` makes a bookie's
directory of a hundred entry logs; `python -m tools.bench.inputs.care_process WORK DIRECTORY` does
one of `WORKS` to it and prints one JSON object: what came out, CPU seconds of all its processes,
wall seconds, and the highest resident size of the largest. `read` is the plain read of all logs,
in order, that the others are held against.
"""

from __future__ import annotations

import json
import resource
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

from bkstore import BookieDir, LedgerStorage
from bkstore.formats.entry import Coder, master_key
from bkstore.storage.options import Storage, StorageOptions
from tools.bench.inputs.own_memory import KIB, peak_memory

LOGS, LEDGERS = 100, 1000
PASSWORD = "care"
_AT_ONCE, _PAYLOAD = 100, bytes(60)
_RECORD = 4 + 32 + 4 + len(_PAYLOAD)


def make(storage: Storage, directory: Path, entries: int) -> None:
    """Make a directory: a thousand ledgers that are written in turns, a hundred entries each."""
    coder = Coder("CRC32C", PASSWORD)
    size = max(entries * _RECORD // LOGS, 8 << 10)
    options = StorageOptions(entry_log_size=size)
    share = max(entries // LEDGERS, 1)
    with LedgerStorage.open(directory, storage, options=options) as opened:
        for ledger in range(LEDGERS):
            opened.set_master_key(ledger, master_key(PASSWORD))
        for at in range(0, share, _AT_ONCE):
            some = range(at, min(at + _AT_ONCE, share))
            for ledger in range(LEDGERS):
                opened.add_batch(coder.encode_batch(ledger, some, [_PAYLOAD] * len(some)))
        opened.flush()


def _read(directory: Path) -> int:
    buffer, total = memoryview(bytearray(1 << 20)), 0
    for path in sorted(directory.rglob("*.log")):
        with path.open("rb", buffering=0) as file:
            while count := file.readinto(buffer):
                total += count
    return total


def _check(directory: Path, digest_type: str | None = None, jobs: int = 1) -> int:
    from bkstore.offline.check import Check

    with BookieDir(directory) as bookie:
        checking = Check(bookie, digest_type, PASSWORD if digest_type else None, jobs=jobs)
        assert all(found.severity == "note" for found in checking)
    return checking.coverage.rows_checked


def _usage(directory: Path) -> int:
    from bkstore.offline.usage import Usage

    with BookieDir(directory) as bookie:
        usage = Usage(bookie)
        for _ in usage.logs():
            pass
    return sum(each.entries or 0 for each in usage.ledgers())


def _diff(directory: Path) -> int:
    from bkstore.offline.diff import DirectorySide, diff

    with BookieDir(directory) as a, BookieDir(directory) as b:
        return len([*diff(DirectorySide(a), DirectorySide(b), [])])


def _rebuild(directory: Path) -> int:
    from bkstore.offline.rewrite import rebuild_index

    with BookieDir(directory) as bookie:
        layout = bookie.layout
    target = directory.parent / f"{directory.name}-rebuilt"
    result = rebuild_index(directory, target, layout, link=True)
    shutil.rmtree(target)
    return result.entries


WORKS: dict[str, Callable[[Path], int]] = {
    "read": _read,
    "check": _check,
    "check, digests": lambda directory: _check(directory, "CRC32C"),
    "check, digests, two processes": lambda directory: _check(directory, "CRC32C", 2),
    "usage": _usage,
    "diff": _diff,
    "rebuild-index": _rebuild,
}


def main(arguments: list[str]) -> None:
    """Make a directory, or work on one and print what it took."""
    work, *others = arguments
    if work == "make":
        make(cast(Storage, others[0]), Path(others[1]), int(others[2]))
        return
    begin, before = time.perf_counter(), time.process_time()
    count = WORKS[work](Path(others[0]))
    wall = time.perf_counter() - begin
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    result = {
        "count": count,
        "cpu": sum(one.ru_utime + one.ru_stime for one in spent) - before,
        "wall": wall,
        "peak": max(peak_memory(), spent[1].ru_maxrss * KIB),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1:])
