"""A client of bookies on sockets: what it appends, what it survives, what it refuses."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bkstore.cluster import ClientOptions, DirectoryStore, MemoryStore
from bkstore.errors import (
    BookieUnavailable,
    IllegalOperation,
    LedgerFenced,
    NoSuchLedger,
    NotEnoughBookies,
    UnsupportedLayout,
)
from bkstore.ids import LedgerId
from bkstore.network import Client
from bkstore.schedule import write_set
from tests.cluster.client.appends.gated import until
from tests.network.bookies_on_sockets import Served


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """Yield four bookies."""
    bookies = Served(tmp_path, 4)
    yield bookies
    bookies.close()


@pytest.fixture
def store(served: Served) -> MemoryStore:
    """Return a store in which they are registered."""
    made = MemoryStore()
    for name in served.running:
        made.register_bookie(name)
    return made


@pytest.fixture
def client(store: MemoryStore) -> Iterator[Client]:
    """Yield a client of them."""
    with Client(store) as made:
        yield made


def test_a_ledger_through_a_failure(served: Served, store: MemoryStore, client: Client) -> None:
    """A killed bookie in the middle of many appends is replaced; another client fences, recovers
    and reads every acknowledged entry; the old writer acknowledges nothing more."""
    ledger = client.create_ledger(3, 2, 2, password=b"secret")
    sent = [b"entry %d" % number for number in range(3000)]
    victim = ledger.metadata.segments[0].ensemble[1]

    def feed() -> Iterator[bytes]:
        for number, data in enumerate(sent):
            if number == 1500:
                served.kill(victim)
            yield data

    ids = ledger.append_many(feed())
    segments = ledger.metadata.segments

    assert list(range(3000)) == ids.tolist()
    assert (2999, sum(map(len, sent))) == (ledger.last_add_confirmed, ledger.length)
    assert 2 == len(segments)
    assert victim not in segments[1].ensemble

    with Client(store) as other:
        reader = other.open_ledger(ledger.ledger, password=b"secret")

        assert (2999, ledger.length) == (reader.last_add_confirmed, reader.length)
        assert sent == [entry.payload for entry in reader.read(0, 2999)]
    with pytest.raises(LedgerFenced):
        ledger.append(b"too late")
    with pytest.raises(LedgerFenced):
        ledger.append_many([b"too late"])
    assert 2999 == ledger.last_add_confirmed


def test_every_replica_is_where_it_has_to_be(served: Served, client: Client) -> None:
    """Without failures each entry is on the bookies of its write set, and on no other."""
    with client.create_ledger(3, 2, 2) as ledger:
        ledger.append_many([b"x"] * 300)
    ensemble = ledger.metadata.segments[0].ensemble
    for index, name in enumerate(ensemble):
        expected = [entry for entry in range(300) if index in write_set(entry, 3, 2)]

        assert expected == client.bookies[name].availability(ledger.ledger).entries().tolist()
    (spare,) = set(served.running) - set(ensemble)
    with pytest.raises(NoSuchLedger):
        client.bookies[spare].availability(ledger.ledger)


def test_scopes(client: Client) -> None:
    """A bookie that does not announce support for scopes gets no ledger of one; scope 0 goes on."""
    with pytest.raises(NotEnoughBookies):
        client.create_ledger(1, 1, 1, scope=5)
    name = next(iter(client.bookies))
    with pytest.raises(IllegalOperation, match="does not announce support for scopes"):
        client.bookies[name].read_entry(LedgerId(5, 1), 0)

    assert 0 == client.create_ledger(1, 1, 1).append(b"x")


def test_too_few_bookies(served: Served, client: Client) -> None:
    """With fewer than A bookies the append fails with each bookie's answer, and stays failed."""
    ledger = client.create_ledger(3, 3, 3)
    ledger.append(b"kept")
    first, second, *_ = served.running
    served.kill(first)
    served.kill(second)

    with pytest.raises(
        NotEnoughBookies, match=r"entry 1 of ledger 0: 2 of 3 bookies have acknowledged it"
    ):
        ledger.append(b"lost")
    with pytest.raises(IllegalOperation, match="failed with NotEnoughBookies"):
        ledger.append(b"again")
    ledger.close()
    assert (0, 4) == (ledger.metadata.last_entry_id, ledger.metadata.length)


def test_a_silent_bookie(store: MemoryStore, served: Served) -> None:
    """A bookie that accepts connections and says nothing does not hold up what has its quorum
    without it; where it is needed, the append fails after the time-out."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        silent = "{}:{}".format(*listening.getsockname())
        served.kill(next(iter(served.running)))
        store.register_bookie(silent)
        for name in store.registered_bookies() - set(served.running) - {silent}:
            store.unregister_bookie(name)
        with Client(store, timeout=3, options=ClientOptions(delay_ensemble_change=True)) as one:
            ledger = one.create_ledger(4, 4, 3)

            assert list(range(400)) == ledger.append_many([b"x"] * 400).tolist()
            assert silent in ledger.metadata.segments[-1].ensemble
        with Client(store, timeout=0.5) as other:
            ledger = other.create_ledger(4, 4, 4)
            with pytest.raises(NotEnoughBookies, match="no answer to add"):
                ledger.append(b"x")


def test_appends_of_several_threads(client: Client) -> None:
    """Appends of several threads are under way together; each gets its own id, in one order."""
    ledger = client.create_ledger(3, 2, 2)
    ids: dict[int, bytes] = {}

    def work(number: int) -> None:
        for turn in range(40):
            data = b"%d/%d" % (number, turn)
            ids[ledger.append(data)] = data

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ledger.close()
    found = [entry.payload for entry in ledger.read(0, 239)]

    assert list(range(240)) == sorted(ids)
    assert [ids[entry] for entry in range(240)] == found


def test_batch_reads_and_deletion(client: Client) -> None:
    """What is on every bookie is read in batches; a deleted ledger is unknown."""
    with client.create_ledger(2, 2, 2) as ledger:
        ledger.append_many([b"%d" % number for number in range(1000)])
    reader = client.open_ledger(ledger.ledger)

    assert [b"10", b"11", b"12"] == [entry.payload for entry in reader.read_batch(10, 3)]
    assert 1000 == len(reader.read_batch(0))

    client.delete_ledger(ledger.ledger)

    with pytest.raises(NoSuchLedger):
        client.open_ledger(ledger.ledger)


def test_a_store_in_a_directory(tmp_path: Path, served: Served) -> None:
    """A client opens a store by its path, and closes what it opened; a place without one is
    refused."""
    store = DirectoryStore(tmp_path / "metadata")
    for name in served.running:
        store.register_bookie(name)
    with Client(tmp_path / "metadata") as client:
        ledger = client.create_ledger()

        assert 0 == ledger.append(b"x")
    with pytest.raises(IllegalOperation):
        ledger.append(b"x")
    with pytest.raises(UnsupportedLayout):
        Client(tmp_path)


def test_a_closed_client_connects_no_more(store: MemoryStore) -> None:
    """What is asked of a closed client is refused, and makes no new connection."""
    with Client(store) as client:
        with client.create_ledger() as ledger:
            ledger.append(b"x")
        reader = client.open_ledger(ledger.ledger)
    for call in (lambda: reader.read(0, 0), client.create_ledger, lambda: len(client.bookies)):
        with pytest.raises((IllegalOperation, BookieUnavailable), match="is closed"):
            call()

    assert {} == client.bookies._clients


def test_replicas_that_are_late(
    served: Served, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries that are confirmed without a slow bookie are there too once the client is closed;
    while it closes nothing new is taken."""
    reached, gate = threading.Event(), threading.Event()
    slow, _ = next(iter(served.running.values()))
    for kind in ("add_entry", "add_entries"):
        monkeypatch.setattr(slow, kind, _behind(gate, reached, getattr(slow, kind)))
    client = Client(store, timeout=20)
    ledger = client.create_ledger(4, 4, 3)
    ledger.append(b"x")
    assert reached.wait(20)
    ledger.append_many([b"x"] * 599)
    closing = threading.Thread(target=client.close)
    closing.start()
    until(lambda: client._workers.is_finished)
    with pytest.raises(IllegalOperation, match="closed"):
        ledger.append(b"too late")
    with pytest.raises(IllegalOperation, match="closed"):
        ledger.append_later(b"too late")

    assert closing.is_alive()
    gate.set()
    closing.join(20)
    for bookie, _ in served.running.values():
        assert list(range(600)) == bookie.availability(ledger.ledger).entries().tolist()


def _behind(
    gate: threading.Event, reached: threading.Event, taken: Callable[..., Any]
) -> Callable[..., Any]:
    """Return a method that does as another once the gate is open, and says that it is called."""

    def add(*arguments: Any, **options: Any) -> Any:
        reached.set()
        gate.wait(20)
        return taken(*arguments, **options)

    return add
