"""A bookie that serves on loopback, in a process of its own that reports its CPU seconds.

`python -m bkstore.lab.stores.bookie_process STORAGE DIRECTORY` prints the port and then, for each
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

from bkstore.cli.terminal.standard_streams import print_text
from bkstore.storage.bookie import Bookie
from bkstore.storage.options import JournalOptions, StorageKind
from bkstore.wire.server import BookieServer


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
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

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
    with subprocess.Popen(  # noqa: S603 (this module, on a directory of the caller)
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        try:
            yield BenchmarkBookie(process)
        finally:
            process.stdin.close()  # the process ends when its input ends
            process.wait(60)


def main(arguments: list[str]) -> None:
    """Serve a new bookie in this process. The protocol with the parent process is by lines: the
    first output is the port; each line of input is answered by the CPU seconds used so far; the end
    of the input ends the process."""
    storage, directory = arguments
    journal = JournalOptions(preallocate=1 << 20)
    with (
        Bookie.open(directory, cast(StorageKind, storage), journal=journal) as bookie,
        BookieServer(bookie, extended=True) as server,
    ):
        print_text(f"{server.address.port}\n")
        for _ in sys.stdin:
            print_text(f"{time.process_time()}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
