"""One step in a process of its own: seconds, CPU and memory of all its processes."""

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

from tools.pipeline.steps import steps

_CHECKOUT = Path(__file__).parents[2]


def _processes() -> Iterator[tuple[str, str]]:
    """Yield (status, stat) of this process and of all below it, as Linux shows them."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            texts = (path / "status").read_text(), (path / "stat").read_text()
        except OSError:
            continue  # it has ended
        found[int(path.name)] = int(texts[0].partition("PPid:")[2].split()[0]), texts
    for number in found:
        above = number
        while above in found and above != os.getpid():
            above = found[above][0]
        if above == os.getpid():
            yield found[number][1]


def _resident() -> int:
    """Return the highest resident sizes of this process and of all below it, in bytes."""
    said = (status.partition("VmHWM:")[2].split() for status, _ in _processes())
    return sum(int(words[0]) * 1024 for words in said if words)


def _own() -> int:
    """Return the highest resident size of this process alone, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _cpu() -> float:
    """Return the seconds of CPU of this process and of all below it, also those that ended."""
    ticks = (stat.rpartition(")")[2].split()[11:15] for _, stat in _processes())
    return sum(sum(map(int, each)) for each in ticks) / os.sysconf("SC_CLK_TCK")


def run_step(engine: str, name: str, top: Path, rounds: int) -> dict[str, Any]:
    """Run one step of an engine; return its times, its rows and the memory it took."""
    work = next(work for each, work in steps(engine, top) if each == name)
    times, spent, rows = [], [], 0
    for _ in range(max(rounds, 1)):
        begin, before = time.perf_counter(), _cpu()
        rows = work()
        times.append(time.perf_counter() - begin)
        spent.append(_cpu() - before)
    made = {"engine": engine, "step": name, "seconds": times, "cpu": spent, "rows": rows}
    whole, own = _resident(), _own()
    return {**made, "peak": whole, "below": max(whole - own, 0)}


def in_a_process(engine: str, name: str, top: Path, rounds: int) -> dict[str, Any]:
    """Return what `run_step` returns in a process of its own, or the error that ended it."""
    words = [
        sys.executable,
        "-m",
        "tools.pipeline",
        "step",
        engine,
        name,
        str(top.resolve()),
        str(rounds),
    ]
    done = subprocess.run(words, capture_output=True, text=True, cwd=_CHECKOUT)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        return {"engine": engine, "step": name, "error": last}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main(words: Sequence[str]) -> int:
    """Run the step that the words name (engine, step, world, rounds); print what it took."""
    engine, name, world, rounds = words
    print(json.dumps(run_step(engine, name, Path(world), int(rounds))))
    return 0
