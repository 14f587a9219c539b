"""One step in a process of its own: seconds, CPU seconds and memory of all its processes."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tools.bench.inputs.process_tree import tree_cpu_seconds, tree_peak_bytes
from tools.pipeline.steps import engine_steps

_CHECKOUT = Path(__file__).parents[2]


def _own_peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def run_step(engine: str, step: str, directory: Path, rounds: int) -> dict[str, Any]:
    """Run a step of an engine for some rounds; return times, rows and peak memory."""
    work = next(work for step_name, work in engine_steps(engine, directory) if step_name == step)
    seconds, cpu_seconds, rows = [], [], 0
    for _ in range(max(rounds, 1)):
        started, cpu_before = time.perf_counter(), tree_cpu_seconds()
        rows = work()
        seconds.append(time.perf_counter() - started)
        cpu_seconds.append(tree_cpu_seconds() - cpu_before)
    result = {"engine": engine, "step": step, "seconds": seconds, "cpu": cpu_seconds, "rows": rows}
    peak, own_peak = tree_peak_bytes(), _own_peak_bytes()
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
