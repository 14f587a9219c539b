"""A load on a bookie over v2: many connections, each with a window of requests under way.

All frames are made before a run, and answers are told by their number of bytes: what is left of
the cost of a client is system calls. A request's latency goes from the moment its window was sent
to the one at which its answer had arrived.
"""

from __future__ import annotations

import os
import selectors
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from bkstore.formats.entry import Coder
from bkstore.wire import v2
from bkstore.wire.frames import frame
from tools.bench.inputs.records import KEY

_ANSWER = 28  # bytes of an answer's frame without a record
_PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class Window:
    """Requests that are sent at once: their frames, how many they are, bytes of each answer."""

    frames: bytes
    count: int
    answer: int


@dataclass(frozen=True, slots=True)
class Load:
    """What a run gave: requests, seconds, and by arrival (latency in seconds, answers)."""

    requests: int
    seconds: float
    latencies: list[tuple[float, int]]

    @property
    def rate(self) -> float:
        """Requests a second."""
        return self.requests / self.seconds

    def percentile(self, share: float) -> float:
        """Return the latency in seconds that this share of the requests did not pass."""
        values, counts = np.array(sorted(self.latencies)).T
        at = np.cumsum(counts).searchsorted(share * counts.sum())
        return float(values[min(int(at), values.size - 1)])


def add_windows(ledger: int, first: int, window: int, windows: int, payload: int) -> list[Window]:
    """Return adds of consecutive entries, so many windows of so many."""
    count = window * windows
    entries = range(first, first + count)
    records = Coder("CRC32C").encode_batch(ledger, entries, [bytes(payload)] * count).records()
    frames = [frame(*v2.AddRequest(KEY, record).parts()) for record in records]
    return [
        Window(b"".join(frames[start : start + window]), window, _ANSWER)
        for start in range(0, count, window)
    ]


def read_windows(ledger: int, first: int, window: int, windows: int, payload: int) -> list[Window]:
    """Return reads of the same entries."""
    size = len(Coder("CRC32C").encode_batch(ledger, [first], [bytes(payload)])[0])
    return [
        Window(
            b"".join(
                frame(*v2.ReadRequest(ledger, entry).parts())
                for entry in range(start, start + window)
            ),
            window,
            _ANSWER + size,
        )
        for start in range(first, first + window * windows, window)
    ]


@dataclass(slots=True)
class _Client:
    """A connection with its windows; `missing` bytes of the answers to the first."""

    socket: socket.socket
    windows: list[Window]
    missing: int = 0
    rest: int = 0
    sent: float = 0.0
    latencies: list[tuple[float, int]] = field(default_factory=list)

    def send(self) -> bool:
        """Send the next window; return whether there was one."""
        if not self.windows:
            return False
        window = self.windows[0]
        self.missing, self.rest = window.count * window.answer, 0
        self.sent = time.perf_counter()
        self.socket.sendall(window.frames)
        return True

    def take(self) -> bool:
        """Take answers that are there; return whether that was all of them."""
        size = len(self.socket.recv(_PIECE))
        if not size:
            raise ConnectionError("the bookie hung up")
        window = self.windows[0]
        answers, self.rest = divmod(size + self.rest, window.answer)
        self.missing -= size
        if answers:
            self.latencies.append((time.perf_counter() - self.sent, answers))
        if self.missing < 0:
            raise RuntimeError(f"answers are {-self.missing} bytes longer than they should be")
        if not self.missing:
            self.windows.pop(0)
        return not self.missing


def run_load(address: tuple[str, int], work: Sequence[list[Window]]) -> Load:
    """Send each list of windows over a connection of its own, one window at a time."""
    requests = sum(window.count for windows in work for window in windows)
    clients = [_Client(socket.create_connection(address), list(windows)) for windows in work]
    with selectors.DefaultSelector() as selector:
        begun = time.perf_counter()
        for client in clients:
            selector.register(client.socket, selectors.EVENT_READ, client)
            client.send()
        while selector.get_map():
            ready = selector.select(60)
            if not ready:
                raise TimeoutError("the bookie gave no answer in a minute")
            for key, _ in ready:
                if key.data.take() and not key.data.send():
                    selector.unregister(key.fileobj)
        seconds = time.perf_counter() - begun
    for client in clients:
        client.socket.close()
    return Load(requests, seconds, [one for client in clients for one in client.latencies])


@dataclass(frozen=True, slots=True)
class Served:
    """A bookie in a process of its own, as the system tells of it."""

    address: tuple[str, int]
    pid: int

    def cpu_seconds(self) -> float:
        """Return the CPU seconds of the process so far, in ticks of 10 ms."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def peak_memory(self) -> int:
        """Return the highest resident size so far, in bytes."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return int(dict(line.split(":", 1) for line in lines)["VmHWM"].removesuffix("kB")) * 1024
