"""A bookie behind a server, and a client of it: what the contract of clients is tested on."""

from __future__ import annotations

from pathlib import Path
from threading import Thread
from typing import Any, Literal

from bkstore import Bookie
from bkstore.storage.options import JournalOptions, StorageKind
from bkstore.wire.client import WireClient
from bkstore.wire.server import BookieServer

__all__ = ["OverSockets"]


class OverSockets:
    """A bookie that serves on loopback; `stop` ends the server and the bookie behind it."""

    def __init__(
        self,
        path: Path,
        storage: StorageKind,
        protocol: Literal["v2", "v3"],
        *,
        extended: bool = False,
        **options: Any,
    ) -> None:
        self.path = path
        self._storage: StorageKind = storage
        self._extended = extended
        self._port = 0
        self.start()
        self.client = WireClient(self.server.address, protocol, extended, **options)

    def start(self) -> None:
        """Open the bookie and serve it, at the port of before."""
        self.bookie = Bookie.open(
            self.path / "bookie", self._storage, journal=JournalOptions(preallocate=64 << 10)
        )
        self.server = BookieServer(self.bookie, port=self._port, extended=self._extended)
        self.server.start()
        self._port = self.server.address.port

    def stop(self) -> None:
        """End the server and close the bookie."""
        closing = Thread(target=self.server.close)
        closing.start()
        while closing.is_alive():  # it waits for idle clients to see that it hung up
            self.client.connected  # noqa: B018
            closing.join(0.005)
        self.bookie.close()

    def close(self) -> None:
        """End all."""
        self.client.close()
        self.stop()
