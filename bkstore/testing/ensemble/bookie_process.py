"""BookieProcess: a bookie of an ensemble, as a process that can be killed."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bkstore.errors import BookieUnavailable, IllegalOperation
from bkstore.storage.options import StorageKind
from bkstore.testing.ensemble.faults import (
    DISK_FAULTS,
    add_fault,
    check_fault,
    faults_path,
    read_faults,
    remove_faults,
)
from bkstore.testing.ensemble.process_group import ProcessGroup, last_lines
from bkstore.testing.ensemble.process_table import continue_process, read_process, stop_process
from bkstore.testing.ensemble.state_file import BookieState

HOST = "127.0.0.1"
_SERVING = re.compile(rb"^bkstore: serving .* on \S+:(\d+)$", re.MULTILINE)
_REGISTERED = re.compile(rb"^bkstore: bookie \S+ is registered at ", re.MULTILINE)
_POLL_SECONDS = 0.02


class BookieProcess:
    """One bookie: `bkstore serve` on a directory of its own, registered in ZooKeeper.

    `id` is its bookie id, `directory` has its data, `log` is the file with its output; they never
    change. `options` are added to its command line. Made, started and stopped by `Ensemble`.
    """

    def __init__(
        self, state: BookieState, top: Path, group: ProcessGroup, options: Sequence[str]
    ) -> None:
        """Describe a bookie of the ensemble in `top`, not started yet. Its process belongs to
        `group`, which ends with this process."""
        self.id = state.id
        self.storage: StorageKind = state.storage
        self.directory = top / state.id
        self.log = top / f"{state.id}.log"
        self._faults_path = faults_path(top, state.id)
        self._port = state.port
        self._group = group
        self._options = list(options)
        self._process: subprocess.Popen[bytes] | None = None
        self._stop_requested = False
        self._had_disk_fault = False  # since its last start
        self._log_start = 0  # where the output of the last process begins in the log
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        host, port = self.address
        status = f"process {self.pid}" if self.running else "not running"
        return f"<BookieProcess {self.id} at {host}:{port}, {status}>"

    @property
    def address(self) -> tuple[str, int]:
        """Host and port, the last ones if it is not running; port 0 before its first start."""
        return HOST, self._port

    @property
    def pid(self) -> int | None:
        """The id of its process; None if it is not running."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    @property
    def running(self) -> bool:
        """Whether its process is running."""
        return self.pid is not None

    @property
    def exit_code(self) -> int | None:
        """The exit code of its last process, negative for a signal; None if it has not ended."""
        return None if self._process is None else self._process.poll()

    @property
    def faults(self) -> dict[str, float]:
        """Its faults by name, each with its seconds (0 if it has none); see `FAULTS`. "frozen" is
        looked up in the system's process table."""
        pid = self.pid
        process = None if pid is None else read_process(pid)
        is_frozen = process is not None and process.is_stopped
        return read_faults(self._faults_path) | ({"frozen": 0.0} if is_frozen else {})

    def set_fault(self, fault: str, seconds: float | None = None) -> None:
        """Give it a fault, or change the seconds of one. Raises `IllegalOperation` for "frozen" if
        it is not running."""
        checked_seconds = check_fault(fault, seconds)
        if fault == "frozen":
            self._change_process(stop_process)
        else:
            self._had_disk_fault |= fault in DISK_FAULTS
            add_fault(self._faults_path, fault, checked_seconds)

    def heal(self, fault: str | None = None) -> None:
        """End one fault, or all of them."""
        if fault is not None:
            check_fault(fault, None)
        remove_faults(self._faults_path, fault)
        if fault in (None, "frozen") and self.running:
            self._change_process(continue_process)

    def _change_process(self, change: Callable[[int], None]) -> None:
        with self._lock:
            if (pid := self.pid) is None:
                raise IllegalOperation(f"bookie {self.id} is not running")
            change(pid)

    @property
    def needs_restart(self) -> bool:
        """Whether it had a fault of its disk since its last start: a failed journal stays so."""
        return self._had_disk_fault

    def state(self) -> BookieState:
        """Return its state for the state file."""
        return BookieState(self.id, self.storage, self._port, self.pid)

    def launch(self, uri: str) -> None:
        """Start its process, on its last port if that is free, without waiting until it serves."""
        with self._lock:
            if self.running:
                raise IllegalOperation(f"bookie {self.id} is running")
            port = self._port if self._port and is_free(self._port) else 0
            command = [sys.executable, "-m", "bkstore", "serve", str(self.directory), "--create"]
            command += ["--metadata", uri, "--bookie-id", self.id, "--storage", self.storage]
            command += ["--extended", "--host", HOST, "--port", str(port)]
            command += ["--faults", str(self._faults_path), *self._options]
            self._log_start = self.log.stat().st_size if self.log.exists() else 0
            self._stop_requested = False
            self._had_disk_fault = not self.faults.keys().isdisjoint(DISK_FAULTS)
            self._process = self._group.start(command, self.log)

    def wait_until_registered(self, deadline: float) -> None:
        """Wait until it has registered, and note its port.

        Raises `BookieUnavailable` with the last lines of its log if its process ends, or if it has
        not registered by the time `deadline` of the monotonic clock.
        """
        __tracebackhide__ = True
        while True:
            code = self.exit_code  # before the log, which is whole if the process has ended
            log_text = self._read_log()
            match = _SERVING.search(log_text)
            if match is not None and _REGISTERED.search(log_text) and code is None:
                self._port = int(match[1])
                return
            if code is not None or time.monotonic() > deadline:
                cause = "did not register in time" if code is None else f"ended ({code})"
                lines = last_lines(self.log, self._log_start)
                raise BookieUnavailable(f"bookie {self.id} {cause}: {lines} ({self.log})")
            time.sleep(_POLL_SECONDS)

    def _read_log(self) -> bytes:
        with open(self.log, "rb") as file:
            file.seek(self._log_start)
            return file.read()

    def ask_to_stop(self) -> None:
        """Send SIGTERM if none was sent: a second one would end it at once. Continue it if it is
        frozen: it could not stop."""
        if self._process is not None and not self._stop_requested:
            self._stop_requested = True
            self._process.terminate()
            self._process.send_signal(signal.SIGCONT)

    def stop(self, timeout: float) -> None:
        """Send SIGTERM and wait; kill it if it has not ended after `timeout` seconds."""
        self.ask_to_stop()
        if self._process is not None:
            try:
                self._process.wait(timeout)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        """Send SIGKILL if it is running, and wait until it has ended."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def is_free(port: int) -> bool:
    """Return whether a server could listen on a loopback port now."""
    with socket.socket() as listener:
        # As a server sets it: connections of an earlier server do not keep the port taken.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
        except OSError:
            return False
    return True
