"""Bookies that register in a real ZooKeeper, and a client that finds them there."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from bkstore.cluster import MemoryStore, ZooKeeperStore
from bkstore.errors import (
    BookieUnavailable,
    IllegalOperation,
    InvalidArgument,
    LedgerFenced,
    NotEnoughBookies,
    ReadOnlyError,
    UnsupportedLayout,
)
from bkstore.formats import cookie as cookies
from bkstore.formats.entry import Entry, encode, master_key
from bkstore.formats.metadata.service_info import BOOKIE_RPC, Endpoint, ServiceInfo
from bkstore.network import Client, DiskOptions, RegisteredBookie, registrations
from bkstore.network.registrations import BookieClients
from bkstore.storage.bookie import Bookie
from bkstore.testing.zookeeper_server import ZooKeeperServer
from tests.cluster.store.samples import new_uri
from tests.network.bookies_on_sockets import registered
from tests.worlds.zookeeper import expire


@pytest.fixture
def uri(zookeeper: ZooKeeperServer) -> str:
    """Return a new cluster's service URI."""
    found = new_uri(zookeeper)
    ZooKeeperStore.format(found, instance_id="a0b1").close()
    return found


@pytest.fixture
def store(uri: str) -> Iterator[ZooKeeperStore]:
    """Yield the cluster's metadata."""
    with ZooKeeperStore(uri) as opened:
        yield opened


@pytest.fixture
def bookies(uri: str, tmp_path: Path) -> Iterator[dict[str, RegisteredBookie]]:
    """Yield four registered bookies."""
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(registered(uri, tmp_path, name))
            for name in ("b1", "b2", "b3", "b4")
        }


def _until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


# -- clients and bookies together


@pytest.mark.parametrize("scope", [0, 7])
def test_a_ledger_through_a_failure(
    uri: str, bookies: dict[str, RegisteredBookie], scope: int
) -> None:
    """Bookies are found by what they registered; one whose port goes at once, with its
    registration still there, is replaced; a second client reads all that was acknowledged, and the
    first can add nothing more."""
    with Client(uri) as client, Client(uri) as other:
        ledger = client.create_ledger(3, 2, 2, password=b"secret", scope=scope)
        sent = [b"%d" % number for number in range(600)]
        ledger.append_many(sent[:300])
        victim = ledger.metadata.segments[0].ensemble[0]
        bookies[victim].server.close()
        ledger.append_many(sent[300:])

        assert 2 == len(ledger.metadata.segments)
        assert victim not in ledger.metadata.segments[1].ensemble
        assert victim in client.store.registered_bookies()

        reader = other.open_ledger(ledger.ledger, password=b"secret")

        assert 599 == reader.last_add_confirmed
        assert sent == [entry.payload for entry in reader.read(0, 599)]
        with pytest.raises(LedgerFenced):
            ledger.append(b"too late")
        assert 599 == ledger.last_add_confirmed


def test_bad_registrations(store: ZooKeeperStore, uri: str, tmp_path: Path) -> None:
    """A registration that cannot be read, or tells no address, concerns its own bookie alone; one
    without a byte is found by its id."""
    raw, folder = store._connection.client, f"{store.uri.root}/available"
    raw.create(f"{folder}/junk", b"\xff\xff\xff")
    raw.create(f"{folder}/nameless", b"")
    raw.create(f"{folder}/bad name", b"")
    store.register("elsewhere", ServiceInfo((Endpoint("h", 80, "127.0.0.1", "http"),)))
    store.register("odd", ServiceInfo((Endpoint("bookie", 0, "", BOOKIE_RPC),)))
    with registered(uri, tmp_path, "good") as good, Client(store) as client:
        with registered(uri, tmp_path, "old") as old:
            address = str(old.server.address)
            raw.create(f"{folder}/{address}", b"")

            assert {"good", "old", address} == client.bookies.writable_bookies()
            assert {"good", "old"} == client.bookies.writable_bookies(7)
            assert {"good", "old", address} == set(client.bookies)
        ledger = client.create_ledger(1, 1, 1)

        assert 0 == client.create_ledger(1, 1, 1, scope=7).append(b"x")
        with pytest.raises(NotEnoughBookies):
            client.create_ledger(3, 3, 3)
        assert good.problem is None
        assert 0 <= ledger.append(b"x")


def test_a_bookie_that_moved(uri: str, tmp_path: Path) -> None:
    """A bookie that comes back at another port is found there, by reads at once; while it is gone
    it is said to be unreachable."""
    with Client(uri) as client:
        with registered(uri, tmp_path, "b1") as bookie:
            first = bookie.server.address
            with client.create_ledger(1, 1, 1) as ledger:
                ledger.append(b"x")
        reader = client.open_ledger(ledger.ledger)
        with registered(uri, tmp_path, "b1") as bookie:
            assert first != bookie.server.address
            assert b"x" == reader.read_entry(0).payload
        with pytest.raises(BookieUnavailable, match="b1"):
            reader.read_entry(0)
        with registered(uri, tmp_path, "b1"):
            time.sleep(0.25)  # at most five looks a second

            assert b"x" == reader.read_entry(0).payload


def test_whatever_is_asked_of_one_that_moved(uri: str, tmp_path: Path) -> None:
    """A bookie that is elsewhere now is found there by the first question for a LAC, the first
    recovery, and the first append: with no other bookie, none of them fails."""
    with Client(uri) as client:
        with registered(uri, tmp_path, "b1"):
            ledgers = [client.create_ledger(1, 1, 1) for _ in range(3)]
            for ledger in ledgers:
                ledger.append(b"x")
                ledger.append(b"y")
        with registered(uri, tmp_path, "b1"):
            assert 0 == client.open_ledger_no_recovery(ledgers[0].ledger).last_add_confirmed
        with registered(uri, tmp_path, "b1"):
            time.sleep(0.25)  # at most five looks a second

            assert 1 == client.open_ledger(ledgers[1].ledger).last_add_confirmed
        with registered(uri, tmp_path, "b1"):
            time.sleep(0.25)

            assert 2 == ledgers[2].append(b"z")
            assert 1 == len(ledgers[2].metadata.segments)


# -- registered, and what is registered


def test_what_is_registered(store: ZooKeeperStore, uri: str, tmp_path: Path) -> None:
    """While it serves a bookie is registered with one endpoint, as a real one, and a property that
    tells of scopes; when it stops, it is gone and its cookie stays."""
    with registered(uri, tmp_path, "b1", advertise="10.1.2.3") as bookie:
        port = bookie.server.address.port
        info = store.service_info("b1")

        assert {"b1"} == store.writable_bookies()
        assert info is not None
        assert ((Endpoint("bookie", port, "10.1.2.3", BOOKIE_RPC),)) == info.endpoints
        assert {"bkstore-protocol": "v3-extended"} == info.properties
    bookie.close()

    assert frozenset() == store.registered_bookies()
    assert {"b1"} == store.cookies()
    with registered(uri, tmp_path, "b1", extended=False):
        found = store.service_info("b1")

        assert found is not None
        assert {} == found.properties


def test_an_expired_session(uri: str, tmp_path: Path) -> None:
    """A bookie whose session expires goes on serving, and is registered again."""
    with ZooKeeperStore(uri, session_timeout=2) as own, Client(uri) as client:
        with RegisteredBookie.open(own, tmp_path / "b1", bookie_id="b1") as bookie:
            ledger = client.create_ledger(1, 1, 1)
            session = own._connection.session
            expire(own)

            assert 0 == ledger.append(b"x")
            _until(lambda: own._connection.session not in (None, session))
            _until(lambda: {"b1"} == client.store.writable_bookies())
            assert bookie.problem is None
        assert frozenset() == client.store.writable_bookies()


def test_full_disks(store: ZooKeeperStore, uri: str, tmp_path: Path) -> None:
    """With all disks full a bookie is registered as read-only and takes no new ledger, but serves
    reads and recoveries; with room again it is writable."""
    used = [0.5]
    limits = DiskOptions(full=0.95, writable_again=0.9, interval=3600)
    with (
        registered(
            uri, tmp_path, "b1", disk_options=limits, get_used_share=lambda path: used[0]
        ) as bookie,
        Client(store) as client,
    ):
        ledger = client.create_ledger(1, 1, 1)
        ledger.append(b"x")

        assert bookie.check_disks() is None
        used[0] = 0.96
        assert "full: 96.0% used" in str(bookie.check_disks())
        assert (frozenset(), {"b1"}) == (store.writable_bookies(), store.read_only_bookies())
        with pytest.raises(NotEnoughBookies):
            client.create_ledger(1, 1, 1)
        record = encode(Entry(ledger.ledger, 1, 0, 2, b"y"), "CRC32C")
        with pytest.raises(ReadOnlyError):
            client.bookies["b1"].add_entry(record, master_key(b""))
        assert 0 == client.open_ledger(ledger.ledger).last_add_confirmed

        used[0] = 0.92
        assert bookie.check_disks() is not None
        used[0] = 0.9
        assert bookie.check_disks() is None
        assert ({"b1"}, frozenset()) == (store.writable_bookies(), store.read_only_bookies())
        assert 0 == client.create_ledger(1, 1, 1).append(b"z")


def test_full_disks_while_another_is_registered(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever becomes of its registration, a bookie without room takes no adds."""
    used = [0.5]
    with registered(uri, tmp_path, "b1", get_used_share=lambda path: used[0]) as bookie:
        foreign = bookie._registration._owned_by_other_error()
        monkeypatch.setattr(bookie._registration, "_try_register", lambda: False)
        used[0] = 0.99

        assert "full: 99.0% used" in str(bookie.check_disks())
        assert bookie.read_only
        assert str(foreign).replace("b1", "readonly/b1", 1) == str(bookie.problem)
        monkeypatch.undo()


def test_started_with_full_disks(store: ZooKeeperStore, uri: str, tmp_path: Path) -> None:
    """A bookie that starts without room is read-only at once; it looks again by itself. Each
    change is told once, with its reason, the first before it is made."""
    used, told = [0.99], []
    limits = DiskOptions(interval=0.05)
    with registered(
        uri,
        tmp_path,
        "b1",
        disk_options=limits,
        get_used_share=lambda path: used[0],
        on_read_only_change=told.append,
    ) as bookie:
        assert (True, {"b1"}) == (bookie.read_only, store.read_only_bookies())
        assert ["all disks of ledger directories are full: 99.0% used"] == told
        used[0] = 0.1
        _until(lambda: 2 == len(told))

        assert ({"b1"}, False) == (store.writable_bookies(), bookie.read_only)
        used[0] = 0.96
        _until(lambda: 3 == len(told))
    assert [None, "all disks of ledger directories are full: 96.0% used"] == told[1:]
    with pytest.raises(InvalidArgument, match="above full"):
        DiskOptions(full=0.5, writable_again=0.6)


# -- cookies


def test_the_cookies_of_a_new_bookie(store: ZooKeeperStore, uri: str, tmp_path: Path) -> None:
    """The cookie in the store is that of the directories, byte for byte, with the instance id, and
    stays as it is when the bookie starts again, under the id that it has."""
    registered(uri, tmp_path, "b1").close()
    (file,) = (tmp_path / "b1" / "ledgers").rglob(cookies.FILE_NAME)
    stored = store._nodes.get("/cookies/b1")

    assert stored is not None
    assert (file.read_bytes(), 0) == (stored.data, stored.version)
    assert "a0b1" == cookies.decode(stored.data).instance_id
    with RegisteredBookie.open(store, tmp_path / "b1") as bookie:
        assert "b1" == bookie.bookie.bookie_id
    again = store.cookie("b1")
    assert again is not None
    assert 0 == again.version
    with pytest.raises(InvalidArgument, match="needs an id"):
        RegisteredBookie.open(store, tmp_path / "new")
    with pytest.raises(InvalidArgument, match="not a bookie id"):
        RegisteredBookie.open(store, tmp_path / "new", bookie_id="a/b")
    assert not (tmp_path / "new").exists()


REFUSED = {
    "of another cluster": "of cluster a0b1, not of cluster other",
    "taken out of the cluster": "is here, but not in the cluster",
    "an empty disk": "no cookie here, but the cluster has one",
    "one of two disks is empty": "no cookie here",
    "another id": "the cookie is of bookie 'b1', not of 'b2'",
    "other directories": "the cookie has ledger_dirs",
    "without a cluster": "of no cluster, not of cluster a0b1",
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(store: ZooKeeperStore, uri: str, tmp_path: Path, case: str) -> None:
    """A directory that is not this bookie's, in this cluster, is not served: nothing is registered,
    and neither cookie changes."""
    folder, name = tmp_path / "b1", "b1"
    registered(uri, tmp_path, "b1").close()
    stored = store.cookie("b1")
    assert stored is not None
    if case == "of another cluster":
        store._nodes.put("/INSTANCEID", b"other", 0)
    elif case == "taken out of the cluster":
        store.delete_cookie("b1")
    elif case == "an empty disk":
        shutil.rmtree(folder)
    elif case == "one of two disks is empty":
        shutil.rmtree(folder / "journal" / "current")
        (folder / "journal" / "current").mkdir()
    elif case == "another id":
        name = "b2"
    elif case == "other directories":
        other = cookies.Cookie(5, "b1", stored.cookie.journal_dirs, ("/x",), instance_id="a0b1")
        store.write_cookie("b1", other, stored.version)
    else:
        shutil.rmtree(folder)
        store.delete_cookie("b1")
        Bookie.open(folder, bookie_id="b1").close()
    before = (store.cookie("b1"), sorted(os.listdir(tmp_path)), store.cookies())

    with pytest.raises(UnsupportedLayout, match=REFUSED[case]):
        RegisteredBookie.open(store, folder, bookie_id=name)
    assert frozenset() == store.registered_bookies()
    assert before == (store.cookie("b1"), sorted(os.listdir(tmp_path)), store.cookies())


def test_a_first_start_that_was_interrupted(
    store: ZooKeeperStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between the cookie of the directories and that of the store, before anything was
    stored, a bookie starts at the next try."""

    def killed(*arguments: object) -> int:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(store, "write_cookie", killed)
        with pytest.raises(KeyboardInterrupt):
            RegisteredBookie.open(store, tmp_path / "b1", bookie_id="b1")

    assert store.cookie("b1") is None
    with RegisteredBookie.open(store, tmp_path / "b1", bookie_id="b1"):
        assert {"b1"} == store.writable_bookies()
    assert store.cookie("b1") is not None


def test_a_registration_of_another_session(uri: str, tmp_path: Path) -> None:
    """A bookie that another session keeps registered does not start, and leaves nothing open; once
    that is gone, it does."""
    with ZooKeeperStore(uri, session_timeout=1) as own:
        with ZooKeeperStore(uri) as foreign:
            foreign.register("b1", ServiceInfo.at("127.0.0.1", 1))
            with pytest.raises(IllegalOperation, match="registered by another session"):
                RegisteredBookie.open(own, tmp_path / "b1", bookie_id="b1")
        with RegisteredBookie.open(own, tmp_path / "b1", bookie_id="b1"):
            assert {"b1"} == own.writable_bookies()


def test_a_store_without_addresses() -> None:
    """Where the store knows no registrations, a bookie whose id is not an address is none."""
    store = MemoryStore()
    store.register_bookie("bookie-1")
    with Client(store) as client:
        assert "bookie-1" not in client.bookies
        with pytest.raises(NotEnoughBookies):
            client.create_ledger(1, 1, 1)


class _SlowStore(MemoryStore):
    """Has addresses, and tells of them when `gate` is open."""

    def __init__(self) -> None:
        super().__init__()
        self.info = ServiceInfo.at("127.0.0.1", 1)
        self.looks = 0
        self.gate = threading.Event()
        self.gate.set()

    def service_info(self, bookie: str) -> ServiceInfo:
        """Return what the bookie registered, once the gate is open."""
        self.gate.wait(60)
        self.looks += 1
        return self.info


def test_news_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bookie that moves again as soon as it was found is looked up at once; one that is where
    it was is not looked up again before the pause is over."""
    monkeypatch.setattr(registrations, "_LOOKUP_INTERVAL", 60.0)
    store = _SlowStore()
    store.register_bookie("b1")
    with BookieClients(store) as bookies:

        def doubted(port: int) -> int:
            store.info = ServiceInfo.at("127.0.0.1", port)
            bookies.mark_unreachable("b1")
            return bookies["b1"].address[1]

        assert "b1" in bookies
        assert [2, 3, 4, 4, 4] == [doubted(port) for port in (2, 3, 4, 4, 5)]
        assert 5 == store.looks


def test_late_news(monkeypatch: pytest.MonkeyPatch) -> None:
    """News of a bookie's address for which nobody waits any more hold from when they come; until
    then the known address stays. Each doubt is one look."""
    monkeypatch.setattr(registrations, "_MAX_LOOKUP_WAIT", 0.02)
    monkeypatch.setattr(registrations, "_LOOKUP_INTERVAL", 0.0)
    store = _SlowStore()
    store.register_bookie("b1")
    with BookieClients(store) as bookies:

        def port() -> int:
            return bookies["b1"].address[1]

        assert 1 == port()
        for later in (2, 3):
            store.gate.clear()
            store.info = ServiceInfo.at("127.0.0.1", later)
            bookies.mark_unreachable("b1")

            assert later - 1 == port()
            store.gate.set()
            _until(lambda: later == port())  # noqa: B023
        assert [3] * 3 == [port() for _ in range(3)]
        assert 3 == store.looks
