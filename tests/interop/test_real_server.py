"""Our client against the real server: the contract of clients, both protocols, all storages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bkstore.availability import Availability
from bkstore.errors import BookieUnavailable, NoSuchEntry, NoSuchLedger
from bkstore.formats.entry import Coder, Entry
from bkstore.ids import LedgerId
from bkstore.index.api import LedgerLike
from bkstore.testing.suites.bookie_client import BookieClientSuite, ServedBookie
from bkstore.wire.client import WireClient
from tests.interop.bookies import Cluster, Place

KEY = b"k" * 20
CODER = Coder("CRC32C", "pw")


class RealServed:
    """A real bookie with its server, and a client of ours."""

    def __init__(self, cluster: Cluster, path: Path, storage: str, client: Any, protocol: str):
        self._cluster = cluster
        self._place = Place(cluster.new_id(), [path / "ledgers"], [path / "journal"])
        self._conf = cluster.settings(self._place, storage)
        self.start()
        self.client = client(("127.0.0.1", self.bookie.port), protocol)

    def start(self) -> None:
        """Start the bookie, at the port of before."""
        self.bookie = self._cluster.start(self._place, self._conf)

    def stop(self) -> None:
        """Stop the bookie."""
        self.bookie.stop()

    def close(self) -> None:
        """End all."""
        self.client.close()
        self.stop()


class ProbingClient(WireClient):
    """A client that finds out by reads what db storage of a real bookie does not list."""

    availability_many = None  # type: ignore[assignment]

    def availability(self, ledger: LedgerLike) -> Availability:
        """Return which entries can be read."""
        found = []
        last = int.from_bytes(self.read_entry(ledger, -1)[8:16], "big")
        for entry in range(last + 1):
            try:
                self.read_entry(ledger, entry)
            except NoSuchEntry:
                continue
            found.append(entry)
        return Availability.from_entries(found)


class _OfARealBookie(BookieClientSuite):
    scopes = False
    storage = "sorted"
    protocol = "v2"
    client_class: Any = WireClient

    @pytest.fixture(autouse=True)
    def _in_cluster(self, real_cluster: Cluster) -> None:
        self.cluster = real_cluster

    def serve(self, path: Path) -> ServedBookie:
        """Serve a real bookie."""
        return RealServed(self.cluster, path, self.storage, self.client_class, self.protocol)


class TestV2OfSorted(_OfARealBookie):
    """v2, sorted storage."""


class TestV2OfInterleaved(_OfARealBookie):
    """v2, interleaved storage."""

    storage = "interleaved"


class TestV2OfDb(_OfARealBookie):
    """v2, db storage, which has no list of entries."""

    storage = "db"
    client_class = ProbingClient


class TestV3OfSorted(_OfARealBookie):
    """v3, sorted storage; a real server has no batch reads there."""

    protocol = "v3"
    batches = False


class TestV3OfInterleaved(_OfARealBookie):
    """v3, interleaved storage."""

    storage = "interleaved"
    protocol = "v3"
    batches = False


class TestV3OfDb(_OfARealBookie):
    """v3, db storage."""

    storage = "db"
    protocol = "v3"
    batches = False
    client_class = ProbingClient


@pytest.fixture(params=["v2", "v3"])
def served(
    request: pytest.FixtureRequest, real_cluster: Cluster, tmp_path: Path
) -> Iterator[RealServed]:
    """Serve a real bookie to a client of each protocol."""
    home = RealServed(real_cluster, tmp_path, "sorted", WireClient, request.param)
    yield home
    home.close()


def _fill(client: WireClient, count: int) -> None:
    for entry in range(count):
        client.add_entry(CODER.encode(Entry(7, entry, entry - 1, entry + 1, b"x")), KEY)


def test_delete(served: RealServed) -> None:
    """A ledger that the bookie deleted is not known."""
    _fill(served.client, 3)
    served.bookie.flush()
    served.bookie.delete(7)

    with pytest.raises(NoSuchLedger):
        served.client.read_entry(7, 0)


def test_waits_for_lac(served: RealServed) -> None:
    """The LAC that is there is answered at once, one that does not come after the time."""
    _fill(served.client, 3)
    there = served.client.wait_for_lac(7, 0, 10.0)
    due = served.client.wait_for_lac(7, 1, 0.1)

    assert (1, CODER.encode(Entry(7, 1, 0, 2, b"x"))) == there
    assert 1 == due.lac


def test_disk_space(served: RealServed) -> None:
    """The real bookie's disks are told."""
    space = served.client.disk_space()

    assert 0 < space.free <= space.total


def test_no_list_of_db(real_cluster: Cluster, tmp_path: Path) -> None:
    """Asked for the entries of a ledger that db storage has, a real bookie never answers.

    Of one that is unknown it says so.
    """
    home = RealServed(real_cluster, tmp_path, "db", _impatient, "v3")
    try:
        _fill(home.client, 3)
        with pytest.raises(NoSuchLedger):
            home.client.availability(LedgerId(0, 8))
        with pytest.raises(BookieUnavailable):
            home.client.availability(7)
    finally:
        home.close()


def _impatient(address: tuple[str, int], protocol: Any) -> WireClient:
    return WireClient(address, protocol, timeout=1.0)
