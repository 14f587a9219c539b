"""Bookies whose adds wait at a gate: what a writer over a network does meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from bkstore.cluster import Client, ClientOptions, Cluster
from bkstore.cluster.client.workers import Workers
from bkstore.formats.entry import RecordBatch

__all__ = ["Gated", "gated", "until"]


class Gated:
    """A bookie's client whose adds wait while its gate is closed, and that counts them."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.gate = threading.Event()
        self.gate.set()
        self.entries: list[int] = []
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def add_batch(self, batch: RecordBatch, master_key: bytes, **options: bool) -> None:
        """Note the entries, wait for the gate, and pass them on."""
        self.calls += 1
        self.entries += batch.entries.tolist()
        self.gate.wait(20)
        self.inner.add_batch(batch, master_key, **options)


def gated(cluster: Cluster, workers: Workers, **options: Any) -> tuple[Client, dict[str, Gated]]:
    """Return a client of gated bookies, and those by name."""
    gates = {name: Gated(client) for name, client in cluster.bookies.items()}
    settings = ClientOptions(**options)
    return Client(cluster.store, gates, None, settings, workers=workers), gates


def until(holds: Callable[[], bool]) -> None:
    """Wait until it is so."""
    end = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.005)
