"""Row: the cost of starting, compared with importing numpy."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from collections.abc import Mapping

from bkstore.lab.measuring.timing import rotate
from tools.bench.cases import BenchmarkRow, Cases, Context, Fact, FactCase
from tools.bench.inputs.own_process import CHECKOUT

_START_COUNT = 21
_MIN_STARTS = 7
_NUMPY = "python -c 'import numpy'"
_LIMITS = {"import bkstore": 0.5, "bkstore --help": 0.75}
_COMMANDS: Mapping[str, tuple[str, ...]] = {
    _NUMPY: ("-c", "import numpy"),
    "import bkstore": ("-c", "import bkstore"),
    "bkstore --help": ("-m", "bkstore", "--help"),
}


def cpu_seconds(arguments: tuple[str, ...]) -> float:
    """Return the CPU seconds, user and system, of one Python process from start to exit. Raises
    `CalledProcessError` if it exits with a code other than 0."""
    command = [sys.executable, *arguments]
    with subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.DEVNULL) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise subprocess.CalledProcessError(process.returncode, command)
    return used.ru_utime + used.ru_stime


def measure_medians(starts: int) -> dict[str, float]:
    """Return the median CPU seconds of each command; their order rotates from round to round."""
    samples: dict[str, list[float]] = {name: [] for name in _COMMANDS}
    for arguments in _COMMANDS.values():  # unrecorded: writes the compiled files
        cpu_seconds(arguments)
    for round_number in range(starts):
        for name in rotate(list(_COMMANDS), round_number):
            samples[name].append(cpu_seconds(_COMMANDS[name]))
    return {name: statistics.median(seconds) for name, seconds in samples.items()}


def _start_figures(context: Context) -> Cases:
    starts = context.scaled(_START_COUNT, minimum=_MIN_STARTS)

    def facts() -> list[Fact]:
        medians = measure_medians(starts)
        figures = [Fact(f"{name}, ms", round(medians[name] * 1e3, 1)) for name in medians]
        for name, limit in _LIMITS.items():
            ratio = round(medians[name] / medians[_NUMPY], 2)
            target = f"<= {limit:g}"
            figures.append(Fact(f"{name} / {_NUMPY}", ratio, target, holds=ratio <= limit))
        return figures

    yield FactCase("processes", starts, f"{starts} starts of each, in turning order", facts)


ROWS = (
    BenchmarkRow(
        "start",
        "starting, beside numpy",
        "CPU time, the user's and the system's, of whole Python processes from start to end, "
        "compiled files written before: `import bkstore` and `python -m bkstore --help`, each "
        "over `import numpy` in the same run; medians.",
        _start_figures,
    ),
)
