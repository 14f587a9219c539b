"""One offline task over a bookie's directory in a process of its own, which prints its cost.

`python -m tools.bench.inputs.offline_task_process make STORAGE DIRECTORY ENTRIES` writes a bookie's
directory of a hundred entry logs. `python -m tools.bench.inputs.offline_task_process TASK
DIRECTORY` runs one of `TASKS` on it and prints a JSON object: the count that it returns, CPU
seconds of all its processes, wall seconds, and the peak resident size of the largest process.
`read`, a plain read of all logs in order, is the baseline of the others.
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
from bkstore.storage.options import StorageKind, StorageOptions
from tools.bench.inputs.own_memory import MAXRSS_UNIT_BYTES, peak_memory

LOGS, LEDGERS = 100, 1000
PASSWORD = "care"
_ENTRIES_PER_BATCH, _PAYLOAD = 100, bytes(60)
_FRAME_BYTES = 4 + 32 + 4 + len(_PAYLOAD)


def make_directory(storage: StorageKind, directory: Path, entries: int) -> None:
    """Write a directory of a thousand ledgers, which take turns at a hundred entries each."""
    coder = Coder("CRC32C", PASSWORD)
    log_size = max(entries * _FRAME_BYTES // LOGS, 8 << 10)
    options = StorageOptions(entry_log_size=log_size)
    entries_per_ledger = max(entries // LEDGERS, 1)
    with LedgerStorage.open(directory, storage, options=options) as opened:
        for ledger in range(LEDGERS):
            opened.set_master_key(ledger, master_key(PASSWORD))
        for first in range(0, entries_per_ledger, _ENTRIES_PER_BATCH):
            entry_ids = range(first, min(first + _ENTRIES_PER_BATCH, entries_per_ledger))
            for ledger in range(LEDGERS):
                opened.add_batch(coder.encode_batch(ledger, entry_ids, [_PAYLOAD] * len(entry_ids)))
        opened.flush()


def _read_logs(directory: Path) -> int:
    buffer, total = memoryview(bytearray(1 << 20)), 0
    for path in sorted(directory.rglob("*.log")):
        with path.open("rb", buffering=0) as file:
            while count := file.readinto(buffer):
                total += count
    return total


def _run_check(directory: Path, digest_type: str | None = None, jobs: int = 1) -> int:
    from bkstore.offline.check import Check

    with BookieDir(directory) as bookie:
        check = Check(bookie, digest_type, PASSWORD if digest_type else None, jobs=jobs)
        assert all(finding.severity == "note" for finding in check)
    return check.coverage.rows_checked


def _run_usage(directory: Path) -> int:
    from bkstore.offline.usage import Usage

    with BookieDir(directory) as bookie:
        usage = Usage(bookie)
        for _ in usage.logs():
            pass
    return sum(ledger.entries or 0 for ledger in usage.ledgers())


def _run_diff(directory: Path) -> int:
    from bkstore.offline.diff import DirectorySide, diff

    with BookieDir(directory) as a, BookieDir(directory) as b:
        return len([*diff(DirectorySide(a), DirectorySide(b), [])])


def _run_rebuild(directory: Path) -> int:
    from bkstore.offline.rewrite import rebuild_index

    with BookieDir(directory) as bookie:
        layout = bookie.layout
    target = directory.parent / f"{directory.name}-rebuilt"
    result = rebuild_index(directory, target, layout, link=True)
    shutil.rmtree(target)
    return result.entries


TASKS: dict[str, Callable[[Path], int]] = {
    "read": _read_logs,
    "check": _run_check,
    "check, digests": lambda directory: _run_check(directory, "CRC32C"),
    "check, digests, two processes": lambda directory: _run_check(directory, "CRC32C", 2),
    "usage": _run_usage,
    "diff": _run_diff,
    "rebuild-index": _run_rebuild,
}


def main(arguments: list[str]) -> None:
    """Write a directory, or run a task on one and print its result and cost."""
    task, *operands = arguments
    if task == "make":
        make_directory(cast(StorageKind, operands[0]), Path(operands[1]), int(operands[2]))
        return
    started, cpu_before = time.perf_counter(), time.process_time()
    count = TASKS[task](Path(operands[0]))
    wall = time.perf_counter() - started
    scopes = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN
    usages = [resource.getrusage(scope) for scope in scopes]
    cpu = sum(usage.ru_utime + usage.ru_stime for usage in usages) - cpu_before
    peak = max(peak_memory(), usages[1].ru_maxrss * MAXRSS_UNIT_BYTES)
    print(json.dumps({"count": count, "cpu": cpu, "wall": wall, "peak": peak}))


if __name__ == "__main__":
    main(sys.argv[1:])
