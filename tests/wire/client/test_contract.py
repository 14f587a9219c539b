"""The contract of bookies' clients, over sockets: both protocols, all storages."""

from __future__ import annotations

from pathlib import Path

from bkstore.testing.suites.bookie_client import BookieClientSuite, ServedBookie
from tests.wire.client.served_bookies import OverSockets


class TestV2OfSorted(BookieClientSuite):
    """v2, which cannot say a scope, over sorted storage."""

    scopes = False

    def serve(self, path: Path) -> ServedBookie:
        """Serve a bookie to a v2 client."""
        return OverSockets(path, "sorted", "v2")


class TestV2OfDb(BookieClientSuite):
    """v2 over db storage."""

    scopes = False

    def serve(self, path: Path) -> ServedBookie:
        """Serve a bookie to a v2 client."""
        return OverSockets(path, "db", "v2")


class TestV3OfInterleaved(BookieClientSuite):
    """v3 as real bookies speak it: without scopes and batch reads."""

    scopes = False
    batches = False

    def serve(self, path: Path) -> ServedBookie:
        """Serve a bookie to a v3 client."""
        return OverSockets(path, "interleaved", "v3")


class TestExtendedV3OfSorted(BookieClientSuite):
    """v3 with scopes and batch reads, over sorted storage."""

    def serve(self, path: Path) -> ServedBookie:
        """Serve a bookie to an extended v3 client."""
        return OverSockets(path, "sorted", "v3", extended=True)


class TestExtendedV3OfDb(BookieClientSuite):
    """v3 with scopes and batch reads, over db storage."""

    def serve(self, path: Path) -> ServedBookie:
        """Serve a bookie to an extended v3 client."""
        return OverSockets(path, "db", "v3", extended=True)
