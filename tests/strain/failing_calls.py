"""Commands whose calls of the system fail, one after the other: what `Machine` runs.

A machine has three groups of files: what commands read, what they write meanwhile (TMPDIR), and
where their output goes. In each run one call on one group fails with one errno, below Python too:
RocksDB's and Arrow's calls are met by a library that is loaded before libc.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["ERRORS", "GROUPS", "Machine", "Outcome", "compiler"]

GROUPS = ("input", "scratch", "output")
ERRORS = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EACCES,
    errno.EMFILE,
    errno.ENOMEM,
    errno.EIO,
)
_ROOT = Path(__file__).parents[2]
_SOURCE = Path(__file__).with_name("failing_calls.c")


@dataclass(frozen=True)
class Outcome:
    """How a command ended.

    `code` is its exit code, None if a signal ended it; `failed` the call that failed, "" if none.
    `calls` are those that could have failed, of a run in which none did: a group, and the call with
    its path.
    """

    code: int | None
    stdout: bytes
    stderr: str
    failed: str
    calls: list[tuple[str, str]]


def compiler() -> str | None:
    """Return the machine's C compiler, None if it has none."""
    return shutil.which("cc") or shutil.which("gcc")


def _call(line: str) -> tuple[str, str]:
    group, _, call = line.partition(" ")
    return GROUPS[int(group)], call


class Machine:
    """A folder with `input`, `scratch` and `output`, and a process that runs commands in it."""

    def __init__(self, top: Path) -> None:
        self.top = top
        for group in GROUPS:
            (top / group).mkdir(exist_ok=True)
        library = top / "failing_calls.so"
        built = compiler()
        assert built is not None
        options = ["-shared", "-fPIC", "-O1", "-o", str(library), str(_SOURCE)]
        subprocess.run([built, *options, "-ldl", "-lpthread"], check=True)
        environment = {
            **os.environ,
            "LD_PRELOAD": str(library),
            "TMPDIR": str(top / "scratch"),
            "PYTHONPATH": str(_ROOT),
            "COLUMNS": "80",
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.strain.forked_commands"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            cwd=_ROOT,
        )
        self._send([[str(top / group)] for group in GROUPS])

    def _send(self, message: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()

    def run(
        self,
        argv: list[str],
        group: str = "input",
        number: int = 0,
        error: int = errno.EIO,
        lasting: bool = False,
    ) -> Outcome:
        """Run a command; its `number`-th call on the group fails, none if that is 0.

        A `lasting` fault lets all later ones fail too.
        """
        places = {name: str(self.top / name) for name in ("stdout", "stderr", "calls")}
        case = {
            "argv": argv,
            "group": GROUPS.index(group),
            "number": number,
            "errno": error,
            "lasting": lasting,
            **places,
        }
        self._send(case)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the process that forks has ended"
        said = json.loads(line)
        return Outcome(
            said.get("code"),
            Path(places["stdout"]).read_bytes(),
            Path(places["stderr"]).read_text(errors="replace"),
            said.get("failed", ""),
            [_call(line) for line in Path(places["calls"]).read_text().splitlines()],
        )

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()
