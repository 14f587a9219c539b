"""One step in a process of its own: seconds, CPU seconds and memory of all its processes."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tools.pipeline.steps import engine_steps

_CHECKOUT = Path(__file__).parents[2]


def _read_process_tree() -> Iterator[tuple[str, str]]:
    """Yield the `/proc` texts (status, stat) of this process and its descendants."""
    parent_of: dict[int, int] = {}
    texts_of: dict[int, tuple[str, str]] = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            status, stat = (path / "status").read_text(), (path / "stat").read_text()
        except OSError:
            continue  # the process has ended
        pid = int(path.name)
        parent_of[pid] = int(status.partition("PPid:")[2].split()[0])
        texts_of[pid] = status, stat
    for pid, texts in texts_of.items():
        ancestor = pid
        while ancestor in parent_of and ancestor != os.getpid():
            ancestor = parent_of[ancestor]
        if ancestor == os.getpid():
            yield texts


def _peak_resident_bytes() -> int:
    """Return the sum of the peak resident sizes of this process and its descendants, in bytes."""
    fields = (status.partition("VmHWM:")[2].split() for status, _ in _read_process_tree())
    return sum(int(words[0]) * 1024 for words in fields if words)


def _own_peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _cpu_seconds() -> float:
    """Return the CPU seconds of this process and its descendants, including ended ones."""
    ticks = (stat.rpartition(")")[2].split()[11:15] for _, stat in _read_process_tree())
    return sum(sum(map(int, fields)) for fields in ticks) / os.sysconf("SC_CLK_TCK")


def run_step(engine: str, step: str, directory: Path, rounds: int) -> dict[str, Any]:
    """Run a step of an engine for some rounds; return times, rows and peak memory."""
    work = next(work for step_name, work in engine_steps(engine, directory) if step_name == step)
    seconds, cpu_seconds, rows = [], [], 0
    for _ in range(max(rounds, 1)):
        started, cpu_before = time.perf_counter(), _cpu_seconds()
        rows = work()
        seconds.append(time.perf_counter() - started)
        cpu_seconds.append(_cpu_seconds() - cpu_before)
    result = {"engine": engine, "step": step, "seconds": seconds, "cpu": cpu_seconds, "rows": rows}
    peak, own_peak = _peak_resident_bytes(), _own_peak_bytes()
    return {**result, "peak": peak, "below": max(peak - own_peak, 0)}  # of descendants alone


def run_in_process(engine: str, step: str, directory: Path, rounds: int) -> dict[str, Any]:
    """Call `run_step` in a process of its own; return its result, or the error that ended it."""
    command = [sys.executable, "-m", "tools.pipeline", "step", engine, step]
    command += [str(directory.resolve()), str(rounds)]
    process = subprocess.run(command, capture_output=True, text=True, cwd=_CHECKOUT)
    if process.returncode:
        error = (process.stderr.strip().splitlines() or ["it said nothing"])[-1]
        return {"engine": engine, "step": step, "error": error}
    result: dict[str, Any] = json.loads(process.stdout.splitlines()[-1])
    return result


def main(arguments: Sequence[str]) -> int:
    """Run the step of the arguments (engine, step, world, rounds); print the result as JSON."""
    engine, step, world, rounds = arguments
    print(json.dumps(run_step(engine, step, Path(world), int(rounds))))
    return 0
