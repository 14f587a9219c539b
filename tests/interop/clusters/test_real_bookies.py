"""Our client by service URI on real bookies of all storages, beside the real client."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from bkstore.errors import BookieUnavailable, IllegalOperation, LedgerFenced, NoSuchLedger
from bkstore.formats.entry import Coder, Entry, master_key
from bkstore.network import Client
from bkstore.schedule import expected
from tests.interop.clients import FENCED
from tests.interop.clusters.conftest import MakeClient, MakeCluster
from tests.interop.clusters.real_bookies import RealBookies
from tests.interop.clusters.whole_client import WholeClient
from tests.interop.driver import RealError

STORAGES = {"sorted": "sorted", "interleaved": "interleaved", "db": "db", "spare": "sorted"}


@pytest.fixture(scope="module")
def real_bookies(
    new_cluster: MakeCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RealBookies]:
    """Yield four real bookies of a cluster of their own."""
    found = RealBookies(new_cluster(), tmp_path_factory.mktemp("real"), STORAGES)
    yield found
    found.close()


@pytest.fixture(scope="module")
def client(real_bookies: RealBookies) -> Iterator[Client]:
    """Yield our client of them."""
    with Client(real_bookies.cluster.uri) as found:
        yield found


@pytest.fixture(scope="module")
def whole(real_bookies: RealBookies, real_client: MakeClient) -> WholeClient:
    """Return the real client of them."""
    return real_client(real_bookies.cluster)


def _payloads(count: int) -> list[bytes]:
    return [b"%d," % number * (number % 40) for number in range(count)]


def _read(handle: Any, last: int) -> list[bytes]:
    return [entry.payload for entry in handle.read(0, last)]


def _until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.parametrize("digest", ["CRC32C", "CRC32", "HMAC", "DUMMY"])
@pytest.mark.parametrize("numbers", [(3, 2, 2), (3, 3, 2), (4, 2, 1)])
def test_life_of_a_ledger(
    real_bookies: RealBookies,
    client: Client,
    whole: WholeClient,
    numbers: tuple[int, int, int],
    digest: str,
) -> None:
    """Made, written, closed, read by both clients, listed, deleted.

    Each bookie has what the distribution gives it, and says so where its storage has such a list.
    """
    payloads = _payloads(100)
    with client.create_ledger(*numbers, digest_type=digest, password=b"pw") as ledger:
        assert list(range(100)) == ledger.append_many(payloads).tolist()
    reader = client.open_ledger(ledger.ledger, digest, password=b"pw")
    assert payloads == _read(reader, 99)
    assert ledger.ledger in client.store.ledgers()
    said = whole.open(ledger.id, recovery=False)
    assert (99, sum(map(len, payloads))) == (said["last"], said["length"])
    assert payloads == whole.read(ledger.id, 0, 99)
    (segment,) = ledger.metadata.segments
    for place, name in enumerate(segment.ensemble):
        held = expected(0, 99, place, *numbers[:2])
        if name != real_bookies.id_of("db"):
            assert held == client.bookies[name].availability(ledger.ledger)
            assert len(held) == whole.listed(ledger.id, name)
    client.delete_ledger(ledger.ledger)
    assert ledger.ledger not in client.store.ledgers()
    with pytest.raises(NoSuchLedger):
        client.open_ledger(ledger.ledger, password=b"pw")


def test_no_list_of_entries(real_bookies: RealBookies) -> None:
    """A real bookie with db storage has no list of entries: it says nothing, and no data count as
    lost."""
    with Client(real_bookies.cluster.uri, timeout=0.5) as client:
        with client.create_ledger(4, 4, 4) as ledger:
            ledger.append_many([b"x"] * 10)
        db = real_bookies.id_of("db")
        with pytest.raises(BookieUnavailable, match="no answer to list of entries"):
            client.bookies[db].availability(ledger.ledger)

        assert b"x" == client.open_ledger(ledger.ledger).read_entry(9).payload


def test_batch_reads(client: Client, whole: WholeClient) -> None:
    """A batch of an unstriped ledger of the real client is one answer of a real bookie, by count
    and size; a striped one has none."""
    payloads = _payloads(100)
    ledger, striped = whole.create(3, 3, 2), whole.create(3, 2, 2)
    for each in (ledger, striped):
        whole.add(each, payloads)
        whole.close_ledger(each)
    reader = client.open_ledger(ledger, password=b"pw")

    assert payloads[10:40] == [entry.payload for entry in reader.read_batch(10, 30, 1 << 20)]
    assert payloads[90:] == [entry.payload for entry in reader.read_batch(90, 30, 1 << 20)]
    size = 36 + sum(len(payload) + 36 + 4 for payload in payloads[:5])
    assert payloads[:5] == [entry.payload for entry in reader.read_batch(0, 30, size)]
    with pytest.raises(IllegalOperation):
        client.open_ledger(striped, password=b"pw").read_batch(0, 10)


@pytest.mark.parametrize("write", [2, 3])
def test_bookie_that_stops(
    real_bookies: RealBookies, client: Client, whole: WholeClient, write: int
) -> None:
    """A real bookie stops under our appends: another takes its place, all is acknowledged."""
    payloads = _payloads(600)
    ledger = client.create_ledger(3, write, 2, password=b"pw")
    ledger.append_many(payloads[:100])
    victim = ledger.metadata.segments[0].ensemble[1]
    names: list[str] = []
    stopper = threading.Timer(0.01, lambda: names.append(real_bookies.stop(victim)))
    stopper.start()

    assert list(range(100, 600)) == ledger.append_many(payloads[100:]).tolist()
    stopper.join()
    last = ledger.append(b"after")
    ledger.close()
    assert victim not in ledger.metadata.segments[-1].ensemble
    real_bookies.start(names[0])
    assert [*payloads, b"after"] == _read(client.open_ledger(ledger.ledger, password=b"pw"), last)
    whole.open(ledger.id, recovery=False)
    assert [*payloads, b"after"] == whole.read(ledger.id, 0, last)


@pytest.mark.parametrize("write", [2, 3])
def test_we_end_the_real_writer(client: Client, whole: WholeClient, write: int) -> None:
    """Our recovery of what the real client writes: it is fenced, what it acknowledged is there."""
    payloads = _payloads(80)
    ledger = whole.create(3, write, 2)
    whole.add(ledger, payloads)
    reader = client.open_ledger(ledger, password=b"pw")

    assert 79 == reader.last_add_confirmed
    assert payloads == _read(reader, 79)
    with pytest.raises(RealError) as caught:
        whole.add(ledger, [b"late"])
    assert FENCED == caught.value.code
    assert 79 == client.store.read(ledger).metadata.last_entry_id


@pytest.mark.parametrize("write", [2, 3])
def test_the_real_one_ends_our_writer(client: Client, whole: WholeClient, write: int) -> None:
    """Its recovery of what we write: we are fenced, what we acknowledged is there."""
    payloads = _payloads(80)
    ledger = client.create_ledger(3, write, 2, password=b"pw")
    ledger.append_many(payloads)

    assert (79, True) == (whole.open(ledger.id, recovery=True)["last"], True)
    assert payloads == whole.read(ledger.id, 0, 79)
    with pytest.raises(LedgerFenced):
        ledger.append(b"late")
    ledger.close()  # with the same end
    assert 79 == client.store.read(ledger.ledger).metadata.last_entry_id


@pytest.mark.parametrize("first", ["ours", "real"])
def test_lone_entry(client: Client, whole: WholeClient, first: str) -> None:
    """An entry that is on one bookie only, of a dead writer: whoever recovers the ledger first
    decides whether it is in, and the other finds the same end."""
    writer = client.create_ledger(3, 3, 2, password=b"pw")
    writer.append_many(_payloads(20))
    coder, key = Coder("CRC32C", b"pw"), master_key(b"pw")
    record = coder.encode(Entry(writer.ledger, 20, 19, writer.length + 4, b"lone"))
    client.bookies[writer.metadata.segments[0].ensemble[2]].add_entry(record, key)
    ends = {
        "ours": lambda: client.open_ledger(writer.ledger, password=b"pw").last_add_confirmed,
        "real": lambda: whole.open(writer.id, recovery=True)["last"],
    }
    found = ends.pop(first)()
    (other,) = ends.values()

    assert found in (19, 20)
    assert found == other()


def test_last_confirmed(client: Client, whole: WholeClient) -> None:
    """Readers of either kind follow writers of the other by the LAC of entries and by explicit
    ones."""
    theirs = whole.create(3, 3, 2)
    whole.add(theirs, [b"x"] * 4)
    whole.add(theirs, [b"y"])
    reader = client.open_ledger_no_recovery(theirs, password=b"pw")

    assert 3 <= reader.last_add_confirmed
    _until(lambda: reader.read_explicit_lac() == 4)
    assert 4 == reader.read_last_confirmed()
    whole.add(theirs, [b"z"])
    _until(lambda: reader.read_last_confirmed() == 5)
    ours = client.create_ledger(3, 2, 2, password=b"pw")
    ours.append_many([b"x"] * 5)
    ours.write_explicit_lac()
    assert 4 == whole.open(ours.id, recovery=False)["last"]
    assert 4 == whole.confirmed(ours.id)["explicit"]


def test_read_only_bookie(real_bookies: RealBookies, client: Client) -> None:
    """A real bookie that becomes read-only is replaced under our writer, gets no ledgers, is read
    from, and takes what our recovery writes."""
    ledger = client.create_ledger(4, 4, 3, password=b"pw")
    ledger.append_many([b"x"] * 10)
    mine = client.create_ledger(3, 3, 2, password=b"pw")
    mine.append_many([b"x"] * 10)
    full = mine.metadata.segments[0].ensemble[0]
    real_bookies.read_only(full, True)
    _until(lambda: client.store.read_only_bookies() == {full})
    _until(lambda: full not in client.store.writable_bookies())  # it was both for a moment
    mine.append_many([b"y"] * 10)

    assert full not in mine.metadata.segments[-1].ensemble
    for _ in range(4):
        made = client.create_ledger(3, 3, 3)
        assert full not in made.metadata.segments[0].ensemble
    reader = client.open_ledger(ledger.ledger, password=b"pw")
    assert 9 == reader.last_add_confirmed
    assert full in reader.metadata.segments[-1].ensemble
    real_bookies.read_only(full, False)
    _until(lambda: full in client.store.writable_bookies())
