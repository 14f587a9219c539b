"""A load on a bookie over v2: many connections, each with a window of requests in flight.

All frames are encoded before a run, and responses are not decoded but counted by their bytes, so
that the client's cost is little more than system calls. A request's latency is the time from the
sending of its window to the arrival of its response.
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
from tools.bench.inputs.own_memory import peak_memory
from tools.bench.inputs.records import MASTER_KEY

_RESPONSE_BYTES = 28  # bytes of a response's frame without a record
_RECEIVE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Window:
    """Requests sent together: their frames, their number, and the bytes of each response."""

    frames: bytes
    count: int
    response_bytes: int


@dataclass(frozen=True, slots=True)
class WireLoadResult:
    """The result of a run: requests, seconds, and (latency in seconds, responses) per arrival."""

    requests: int
    seconds: float
    latencies: list[tuple[float, int]]

    @property
    def requests_per_second(self) -> float:
        """Requests per second."""
        return self.requests / self.seconds

    def percentile(self, share: float) -> float:
        """Return the latency in seconds that this share of the requests did not exceed."""
        values, counts = np.array(sorted(self.latencies)).T
        rank = np.cumsum(counts).searchsorted(share * counts.sum())
        return float(values[min(int(rank), values.size - 1)])


def add_windows(
    ledger: int, first_entry: int, window_size: int, window_count: int, payload_bytes: int
) -> list[Window]:
    """Return `window_count` windows of `window_size` adds each, of consecutive entries."""
    count = window_size * window_count
    entries = range(first_entry, first_entry + count)
    batch = Coder("CRC32C").encode_batch(ledger, entries, [bytes(payload_bytes)] * count)
    frames = [frame(*v2.AddRequest(MASTER_KEY, record).parts()) for record in batch.records()]
    return [
        Window(b"".join(frames[start : start + window_size]), window_size, _RESPONSE_BYTES)
        for start in range(0, count, window_size)
    ]


def read_windows(
    ledger: int, first_entry: int, window_size: int, window_count: int, payload_bytes: int
) -> list[Window]:
    """Return windows of reads of the entries that `add_windows` adds for the same arguments."""
    record = Coder("CRC32C").encode_batch(ledger, [first_entry], [bytes(payload_bytes)])[0]
    windows = []
    for start in range(first_entry, first_entry + window_size * window_count, window_size):
        requests = (v2.ReadRequest(ledger, entry) for entry in range(start, start + window_size))
        frames = b"".join(frame(*request.parts()) for request in requests)
        windows.append(Window(frames, window_size, _RESPONSE_BYTES + len(record)))
    return windows


@dataclass(slots=True)
class _Client:
    """A connection, its unsent windows, and `missing_bytes` of the responses to the first."""

    socket: socket.socket
    windows: list[Window]
    missing_bytes: int = 0
    partial_bytes: int = 0
    sent: float = 0.0
    latencies: list[tuple[float, int]] = field(default_factory=list)

    def send(self) -> bool:
        """Send the next window; return False if there is none."""
        if not self.windows:
            return False
        window = self.windows[0]
        self.missing_bytes, self.partial_bytes = window.count * window.response_bytes, 0
        self.sent = time.perf_counter()
        self.socket.sendall(window.frames)
        return True

    def take(self) -> bool:
        """Receive available responses, which are all of one size; return whether the window is
        complete. They are only counted, not decoded."""
        size = len(self.socket.recv(_RECEIVE_BYTES))
        if not size:
            raise ConnectionError("the bookie hung up")
        window = self.windows[0]
        responses, self.partial_bytes = divmod(size + self.partial_bytes, window.response_bytes)
        self.missing_bytes -= size
        if responses:
            self.latencies.append((time.perf_counter() - self.sent, responses))
        if self.missing_bytes < 0:
            raise RuntimeError(f"responses have {-self.missing_bytes} bytes more than they should")
        if not self.missing_bytes:
            self.windows.pop(0)
        return not self.missing_bytes


def run_load(address: tuple[str, int], work: Sequence[list[Window]]) -> WireLoadResult:
    """Send each list of windows over its own connection, one window at a time."""
    requests = sum(window.count for windows in work for window in windows)
    clients = [_Client(socket.create_connection(address), list(windows)) for windows in work]
    with selectors.DefaultSelector() as selector:
        started = time.perf_counter()
        for client in clients:
            selector.register(client.socket, selectors.EVENT_READ, client)
            client.send()
        while selector.get_map():
            ready = selector.select(60)
            if not ready:
                raise TimeoutError("the bookie gave no answer in a minute")
            for key, _ in ready:  # a complete window makes room for the next one
                if key.data.take() and not key.data.send():
                    selector.unregister(key.fileobj)
        seconds = time.perf_counter() - started
    for client in clients:
        client.socket.close()
    latencies = [latency for client in clients for latency in client.latencies]
    return WireLoadResult(requests, seconds, latencies)


@dataclass(frozen=True, slots=True)
class MeasuredProcess:
    """A bookie in a process of its own, observed through `/proc`."""

    address: tuple[str, int]
    pid: int

    def cpu_seconds(self) -> float:
        """Return the CPU seconds of the process so far, in ticks of 10 ms."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def peak_memory(self) -> int:
        """Return the highest resident size so far, in bytes."""
        return peak_memory(self.pid)
