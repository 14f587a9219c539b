"""BookieProcess: a bookie of an ensemble, as a process that can be killed."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from bkstore.errors import BookieUnavailable, IllegalOperation
from bkstore.storage.options import Storage
from bkstore.testing.ensemble.process_group import ProcessGroup, last_lines
from bkstore.testing.ensemble.state_file import BookieState

HOST = "127.0.0.1"
_SERVES = re.compile(rb"^bkstore: serving .* on \S+:(\d+)$", re.MULTILINE)
_REGISTERED = re.compile(rb"^bkstore: bookie \S+ is registered at ", re.MULTILINE)
_PAUSE = 0.02


class BookieProcess:
    """One bookie: `bkstore serve` on a directory of its own, registered in ZooKeeper.

    `id` is its name in the cluster, `directory` where its data are, `log` the file with what it
    prints; they stay the same. `options` are further words of its command line. Made, started and
    stopped by `Ensemble`.
    """

    def __init__(
        self, state: BookieState, top: Path, group: ProcessGroup, options: Sequence[str] = ()
    ) -> None:
        self.id = state.id
        self.storage: Storage = state.storage
        self.directory = top / state.id
        self.log = top / f"{state.id}.log"
        self._port = state.port
        self._group = group
        self._options = list(options)
        self._process: subprocess.Popen[bytes] | None = None
        self._asked = False
        self._start = 0
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        """Return the id, the address and the process."""
        host, port = self.address
        what = f"process {self.pid}" if self.running else "not running"
        return f"<BookieProcess {self.id} at {host}:{port}, {what}>"

    @property
    def address(self) -> tuple[str, int]:
        """Host and port, the last ones if it does not run; port 0 before its first start."""
        return HOST, self._port

    @property
    def pid(self) -> int | None:
        """The number of its process; None if it does not run."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    @property
    def running(self) -> bool:
        """Whether its process is there."""
        return self.pid is not None

    @property
    def exit_code(self) -> int | None:
        """How its last process ended: an exit code, minus a signal's number; else None."""
        return None if self._process is None else self._process.poll()

    def state(self) -> BookieState:
        """Return what the state file says of it."""
        return BookieState(self.id, self.storage, self._port, self.pid)

    def launch(self, uri: str) -> None:
        """Start its process, on its port if that is free; `ready` waits for it."""
        with self._lock:
            if self.running:
                raise IllegalOperation(f"bookie {self.id} is running")
            port = self._port if self._port and is_free(self._port) else 0
            command = [sys.executable, "-m", "bkstore", "serve", str(self.directory), "--create"]
            command += ["--metadata", uri, "--bookie-id", self.id, "--storage", self.storage]
            command += ["--extended", "--host", HOST, "--port", str(port)]
            command += self._options
            self._start = self.log.stat().st_size if self.log.exists() else 0
            self._asked = False
            self._process = self._group.start(command, self.log)

    def ready(self, until: float) -> None:
        """Return when it is registered.

        Raises `BookieUnavailable` with its last lines if its process ends, or it is not registered
        at the time `until` of the monotonic clock.
        """
        while True:
            ended = self.exit_code
            printed = self._printed()
            found = _SERVES.search(printed)
            if found is not None and _REGISTERED.search(printed) and ended is None:
                self._port = int(found[1])
                return
            if ended is not None or time.monotonic() > until:
                why = "is not registered in time" if ended is None else f"ended ({ended})"
                raise BookieUnavailable(
                    f"bookie {self.id} {why}: {last_lines(self.log, self._start)} ({self.log})"
                )
            time.sleep(_PAUSE)

    def _printed(self) -> bytes:
        with open(self.log, "rb") as file:
            file.seek(self._start)
            return file.read()

    def ask_to_stop(self) -> None:
        """Send SIGTERM once, if it runs: a second one would end it at once."""
        if self._process is not None and not self._asked:
            self._asked = True
            self._process.terminate()

    def stop(self, patience: float) -> None:
        """Ask it to end, and wait; kill it if it has not ended after `patience` seconds."""
        self.ask_to_stop()
        if self._process is not None:
            try:
                self._process.wait(patience)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        """Send SIGKILL, if it runs, and wait for its end."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def is_free(port: int) -> bool:
    """Return whether a server could listen on a port of loopback now."""
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind((HOST, port))
        except OSError:
            return False
    return True
