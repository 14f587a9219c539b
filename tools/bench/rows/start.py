"""Row: what starting costs, beside loading numpy."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tools.bench.measure import Context, Fact, Figures, Row

_STARTS = 21
_LEAST = 7
_CHECKOUT = Path(__file__).parents[3]
_NUMPY = "python -c 'import numpy'"
_LIMITS = {"import bkstore": 0.5, "bkstore --help": 0.75}
_COMMANDS: Mapping[str, tuple[str, ...]] = {
    _NUMPY: ("-c", "import numpy"),
    "import bkstore": ("-c", "import bkstore"),
    "bkstore --help": ("-m", "bkstore", "--help"),
}


def cpu_seconds(arguments: tuple[str, ...]) -> float:
    """Return the CPU seconds, of the user and the system, of one Python from start to end.

    Raises `CalledProcessError` where it ends with another code than 0.
    """
    command = [sys.executable, *arguments]
    with subprocess.Popen(command, cwd=_CHECKOUT, stdout=subprocess.DEVNULL) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise subprocess.CalledProcessError(process.returncode, command)
    return used.ru_utime + used.ru_stime


def medians(starts: int) -> dict[str, float]:
    """Return the median CPU seconds of each command; their turns change from round to round."""
    names = list(_COMMANDS)
    samples: dict[str, list[float]] = {name: [] for name in names}
    for arguments in _COMMANDS.values():  # unrecorded: writes the compiled files
        cpu_seconds(arguments)
    for nth in range(starts):
        turn = nth % len(names)
        for name in names[turn:] + names[:turn]:
            samples[name].append(cpu_seconds(_COMMANDS[name]))
    return {name: statistics.median(taken) for name, taken in samples.items()}


@contextmanager
def _start(context: Context) -> Iterator[Iterator[Figures]]:
    starts = context.scaled(_STARTS, _LEAST)

    def facts() -> list[Fact]:
        found = medians(starts)
        taken = [Fact(f"{name}, ms", round(found[name] * 1e3, 1)) for name in found]
        for name, limit in _LIMITS.items():
            ratio = round(found[name] / found[_NUMPY], 2)
            taken.append(Fact(f"{name} / {_NUMPY}", ratio, f"<= {limit:g}", ratio <= limit))
        return taken

    yield iter([Figures("processes", starts, f"{starts} starts of each, in turning order", facts)])


ROWS = (
    Row(
        "start",
        "starting, beside numpy",
        "CPU time, the user's and the system's, of whole Python processes from start to end, "
        "compiled files written before: `import bkstore` and `python -m bkstore --help`, each "
        "over `import numpy` in the same run; medians.",
        _start,
    ),
)
