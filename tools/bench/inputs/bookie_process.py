"""A bookie that serves on loopback, in a process of its own that reports its CPU seconds.

`python -m tools.bench.inputs.bookie_process STORAGE DIRECTORY` prints the port and then, for each
line of input, the CPU seconds of the process so far. It exits at the end of its input.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from bkstore import Bookie
from bkstore.storage.options import JournalOptions, StorageKind
from bkstore.wire.server import BookieServer
from tools.bench.inputs.own_process import CHECKOUT
from tools.bench.inputs.wire_load import MeasuredProcess


class BenchmarkBookie:
    """The parent's handle of the process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.address = ("127.0.0.1", int(self._read_line()))

    def _read_line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the bookie's process ended")
        return line

    @property
    def process(self) -> MeasuredProcess:
        """The process as `/proc` shows it."""
        return MeasuredProcess(self.address, self._process.pid)

    def cpu_seconds(self) -> float:
        """Return the CPU seconds of the process and its threads so far."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return float(self._read_line())


@contextmanager
def bookie_process(storage: StorageKind, directory: Path) -> Iterator[BenchmarkBookie]:
    """Yield a new bookie in a process of its own; end the process afterwards."""
    command = [sys.executable, "-m", __name__, storage, str(directory)]
    with subprocess.Popen(
        command, cwd=CHECKOUT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        try:
            yield BenchmarkBookie(process)
        finally:
            process.stdin.close()  # the process ends when its input ends
            process.wait(60)


def main(arguments: list[str]) -> None:
    """Print the port, then serve until the input ends; answer each line with the CPU seconds."""
    storage, directory = arguments
    journal = JournalOptions(preallocate=1 << 20)
    with (
        Bookie.open(directory, cast(StorageKind, storage), journal=journal) as bookie,
        BookieServer(bookie, extended=True) as server,
    ):
        print(server.address.port, flush=True)
        for _ in sys.stdin:
            print(time.process_time(), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
