"""Row: what check, usage, diff and rebuild-index of a directory take, beside a plain read of it."""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bkstore.storage.options import Storage
from tools.bench.inputs.care_process import LOGS, WORKS
from tools.bench.inputs.entry_ids import new_directory
from tools.bench.measure import Context, Fact, Figures, Row

ENTRIES = 10_000_000
ROUNDS = 5
_MOST = 512 << 20
_CHECKOUT = Path(__file__).parents[3]


def _process(*words: object) -> str:
    command = [sys.executable, "-m", "tools.bench.inputs.care_process", *map(str, words)]
    done = subprocess.run(command, cwd=_CHECKOUT, check=True, capture_output=True, text=True)
    return done.stdout


def _runs(context: Context, storage: Storage, entries: int) -> dict[str, list[dict[str, Any]]]:
    """Do each work in turn, several rounds; return what each run took."""
    directory = new_directory(context) / "bookie"
    _process("make", storage, directory, entries)
    found: dict[str, list[dict[str, Any]]] = {work: [] for work in WORKS}
    for _ in range(ROUNDS if context.size == 1 else 1):
        for work, runs in found.items():
            runs.append(json.loads(_process(work, directory)))
    shutil.rmtree(directory)
    return found


def _facts(context: Context, storage: Storage, entries: int) -> list[Fact]:
    found = _runs(context, storage, entries)
    size = found["read"][0]["count"]
    facts = [Fact("bytes of logs", size)]
    for work, runs in found.items():
        cpu, wall = (statistics.median(run[name] for run in runs) for name in ("cpu", "wall"))
        peak = max(run["peak"] for run in runs)
        facts += [
            Fact(f"{work}: CPU s", round(cpu, 2)),
            Fact(f"{work}: wall s", round(wall, 2)),
            Fact(f"{work}: MB of logs a wall s", round(size / wall / 1e6)),
            Fact(f"{work}: peak MiB", round(peak / 2**20), f"<= {_MOST >> 20}", peak <= _MOST),
        ]
    return facts


@contextmanager
def _care(context: Context) -> Iterator[Iterator[Figures]]:
    def figures(storage: Storage) -> Figures:
        entries = context.scaled(ENTRIES, 20_000)
        shape = f"{entries} entries of 96 bytes in a thousand ledgers, {LOGS} logs"
        return Figures(storage, entries, shape, lambda: _facts(context, storage, entries))

    yield (figures(storage) for storage in ("db", "sorted"))


ROWS = (
    Row(
        "care",
        "check, usage, diff and rebuild-index of one directory",
        "`python -m tools.bench.inputs.care_process` in processes of their own, five rounds in "
        "turns: medians of CPU (all processes) and wall seconds, start of Python not counted, the "
        "highest resident size of the largest process. `read` reads all logs, in order, one MiB "
        "at a time; files are in the page cache for all of them. `diff` is of a directory with "
        "itself, `rebuild-index` to the same layout with links to the logs, equality proven.",
        _care,
        long=True,
    ),
)
