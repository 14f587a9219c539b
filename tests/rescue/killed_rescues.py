"""A process that runs rescues in children, each of which kills itself before one of its calls.

The children are forked after all imports, so that many of them take little time.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

_ROOT = Path(__file__).parents[2]
_COUNTED = ("close", "fsync", "mkdir", "open", "pwrite", "remove_tree", "replace", "sync_dir")
_COUNTED_ALSO = ("truncate", "unlink")


class KilledRun(NamedTuple):
    """How a child ended: its exit code, negative for a signal, and how many calls it made."""

    exit_code: int
    calls: int


class RescueRun(NamedTuple):
    """The arguments of `bkstore rescue`, and before which call it is killed (0: before none)."""

    arguments: Sequence[str]
    last_call: int = 0


def run_rescues(runs: Sequence[RescueRun]) -> list[KilledRun]:
    """Run rescues, each in a child of one process, and return how they ended."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.rescue.killed_rescues"],
        cwd=_ROOT,
        input=json.dumps(runs),
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return [KilledRun(*json.loads(line)) for line in done.stdout.splitlines()]


@contextmanager
def small_batches() -> Iterator[None]:
    """Make batches and the distances of checkpoints so small that a small world has many."""
    from bkstore.rescue import rescue_job, rescued_records
    from bkstore.rescue.outputs import parquet_files

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rescue_job, "CHECKPOINT_BYTES", 1500)
        patch.setattr(rescue_job, "CHECKPOINT_LEDGERS", 2)
        patch.setattr(rescued_records, "_BATCH_BYTES", 700)
        patch.setattr(parquet_files, "FILE_BYTES", 1500)
        patch.setattr(parquet_files, "_GROUP_BYTES", 1000)
        yield


class CallCounter:
    """Counts the calls that change the disk, or ask a metadata store; the process ends before the
    `last` one."""

    def __init__(self, last: int) -> None:
        self.calls = 0
        self._last = last

    def install(self, counted_class: Any, names: Sequence[str]) -> None:
        """Count the calls of these methods."""
        for name in names:
            setattr(counted_class, name, self._counted(getattr(counted_class, name)))

    def _counted(self, method: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            self.calls += 1
            if self.calls == self._last:
                os.kill(os.getpid(), signal.SIGKILL)
            return method(*arguments, **options)

        return call


def _run_child(run: RescueRun, pipe: int) -> int:
    """Run a rescue in this child; write the number of its calls into the pipe."""
    from bkstore.cli.main import main
    from bkstore.files.disk_changes import Files

    counter = CallCounter(run.last_call)
    counter.install(Files, (*_COUNTED, *_COUNTED_ALSO))
    with small_batches():
        code = main([*run.arguments, "--jobs", "1", "--format", "jsonl", "-o", os.devnull])
    os.write(pipe, b"%d" % counter.calls)
    return code


def _fork(run: RescueRun) -> KilledRun:
    read_end, write_end = os.pipe()
    child = os.fork()
    if not child:
        code = 70
        try:
            code = _run_child(run, write_end)
        finally:
            os._exit(code)
    os.close(write_end)
    with os.fdopen(read_end) as pipe:
        calls = pipe.read()
    return KilledRun(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), int(calls or 0))


def _preload() -> None:
    """Load what a rescue needs; nothing that starts threads is used before the forks."""
    import pyarrow.parquet  # noqa: F401
    import rocksdict  # noqa: F401

    import bkstore.cli.main
    import bkstore.cli.rescue.rescue
    import bkstore.rescue.outputs  # noqa: F401


if __name__ == "__main__":
    _preload()
    for arguments, last_call in json.load(sys.stdin):
        sys.stdout.write(json.dumps(_fork(RescueRun(arguments, last_call))) + "\n")
