"""The contract of bookies' clients, without a network."""

from __future__ import annotations

from pathlib import Path

from bkstore import Bookie
from bkstore.cluster.in_process.bookie import LocalBookie
from bkstore.cluster.in_process.bookie_client import LocalClient
from bkstore.storage.options import JournalOptions
from bkstore.testing.suites.bookie_client import BookieClientSuite, ServedBookie


class InProcess:
    """A bookie of this process and its client."""

    def __init__(self, path: Path) -> None:
        def open_at(place: Path) -> Bookie:
            return Bookie.open(place, "sorted", journal=JournalOptions(preallocate=64 << 10))

        self._server = LocalBookie("bookie-1", path, open_at, timeout=5, sleep=lambda _: None)
        self._server.start()
        self.client = LocalClient(self._server)
        self.start, self.stop = self._server.start, self._server.stop

    def close(self) -> None:
        """Close the bookie."""
        self._server.stop()


class TestInProcess(BookieClientSuite):
    """A `LocalClient` of a `LocalBookie`."""

    def serve(self, path: Path) -> ServedBookie:
        """Open a bookie in this process."""
        return InProcess(path)
