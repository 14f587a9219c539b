"""Row: check, usage, diff and rebuild-index of a directory, compared with a plain read of it."""

from __future__ import annotations

import shutil
import statistics
from functools import partial
from typing import Any

from bkstore.storage.options import StorageKind
from tools.bench.cases import BenchmarkRow, Cases, Context, Fact, FactCase
from tools.bench.inputs.entry_ids import new_directory
from tools.bench.inputs.offline_task_process import LOGS, TASKS
from tools.bench.inputs.own_process import run_input

ENTRIES = 10_000_000
ROUNDS = 5
_MAX_PEAK_BYTES = 512 << 20

Runs = list[dict[str, Any]]
"""What a task's process printed, run by run."""


def _run_tasks(context: Context, storage: StorageKind, entries: int) -> dict[str, Runs]:
    """Run the tasks in turns for several rounds; return the costs of each task's runs."""
    directory = new_directory(context) / "bookie"
    run_input("offline_task_process", "make", storage, directory, entries)
    runs_of_task: dict[str, Runs] = {task: [] for task in TASKS}
    for _ in range(ROUNDS if context.scale == 1 else 1):
        for task, runs in runs_of_task.items():
            runs.append(run_input("offline_task_process", task, directory))
    shutil.rmtree(directory)
    return runs_of_task


def _facts(context: Context, storage: StorageKind, entries: int) -> list[Fact]:
    runs_of_task = _run_tasks(context, storage, entries)
    # The task "read" counts the bytes of the logs, which it reads in full.
    log_bytes, target = runs_of_task["read"][0]["count"], f"<= {_MAX_PEAK_BYTES >> 20}"
    facts = [Fact("bytes of logs", log_bytes)]
    for task, runs in runs_of_task.items():
        cpu, wall = (statistics.median(run[name] for run in runs) for name in ("cpu", "wall"))
        peak = max(run["peak"] for run in runs)
        facts += [
            Fact(f"{task}: CPU s", round(cpu, 2)),
            Fact(f"{task}: wall s", round(wall, 2)),
            Fact(f"{task}: MB of logs a wall s", round(log_bytes / wall / 1e6)),
            Fact(f"{task}: peak MiB", round(peak / 2**20), target, peak <= _MAX_PEAK_BYTES),
        ]
    return facts


def _task_figures(context: Context) -> Cases:
    storages: tuple[StorageKind, ...] = ("db", "sorted")
    entries = context.scaled(ENTRIES, minimum=20_000)
    shape = f"{entries} entries of 96 bytes in a thousand ledgers, {LOGS} logs"
    for storage in storages:
        yield FactCase(storage, entries, shape, partial(_facts, context, storage, entries))


ROWS = (
    BenchmarkRow(
        "care",
        "check, usage, diff and rebuild-index of one directory",
        "`python -m tools.bench.inputs.offline_task_process` in processes of their own, five "
        "rounds in turns: medians of CPU (all processes) and wall seconds, start of Python not "
        "counted, the highest resident size of the largest process. `read` reads all logs, in "
        "order, one MiB at a time; files are in the page cache for all of them. `diff` is of a "
        "directory with itself, `rebuild-index` to the same layout with links to the logs, "
        "equality proven.",
        _task_figures,
        long=True,
    ),
)
