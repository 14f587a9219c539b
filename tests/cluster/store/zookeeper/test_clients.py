"""Clients of one cluster beside each other: races, watches, sessions that end, other nodes."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from bkstore.cluster import Versioned, ZooKeeperStore, open_metadata, snapshot
from bkstore.errors import (
    BadVersion,
    CorruptionError,
    IllegalOperation,
    InvalidArgument,
    LedgerExists,
    UnauthorizedAccess,
    UnsupportedLayout,
)
from bkstore.formats.metadata.serialized import Mark, encode
from bkstore.formats.metadata.service_info import Endpoint, ServiceInfo
from bkstore.ids import LedgerId
from bkstore.testing.zookeeper_server import ZooKeeperServer
from tests.cluster.store.samples import IDS, metadata_of, new_uri, said
from tests.worlds.zookeeper import expire

HERE = ServiceInfo.at("127.0.0.1", 3181)


@pytest.fixture
def uri(zookeeper: ZooKeeperServer) -> str:
    """Return a new cluster's service URI."""
    found = new_uri(zookeeper)
    ZooKeeperStore.format(found).close()
    return found


@pytest.fixture
def stores(uri: str) -> Iterator[tuple[ZooKeeperStore, ZooKeeperStore]]:
    """Yield two clients of the cluster."""
    with ZooKeeperStore(uri, session_timeout=1) as one, ZooKeeperStore(uri) as other:
        yield one, other


def _raw(store: ZooKeeperStore) -> Any:
    return store._connection.client


def _root(store: ZooKeeperStore) -> str:
    return store.uri.root


def _until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


# -- races


def test_races(stores: tuple[ZooKeeperStore, ZooKeeperStore]) -> None:
    """Of many who create, change, delete or mark one ledger each change is one client's."""
    wins: dict[str, list[Any]] = {"create": [], "write": [], "id": [], "mark": []}

    def work(store: ZooKeeperStore, who: int) -> None:
        for number in range(8):
            with suppress(LedgerExists):
                store.create(metadata_of(100 + number))
                wins["create"].append(number)
            with suppress(BadVersion):
                version = store.read(100).version
                wins["write"].append(store.write(metadata_of(100), version))
            wins["id"] += [store.next_id(), store.next_id(9)]
            if store.underreplication.mark(7, [f"b{who}-{number}"]):
                wins["mark"].append((who, number))

    stores[0].create(metadata_of(100 - 1))
    threads = [
        threading.Thread(target=work, args=(store, who))
        for who, store in enumerate([*stores, *stores])
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    mark = stores[0].mark_of(7)

    assert list(range(8)) == sorted(wins["create"])
    assert list(range(1, 1 + len(wins["write"]))) == sorted(wins["write"])
    assert 64 == len(set(wins["id"]))
    assert mark is not None
    assert {f"b{who}-{number}" for who, number in wins["mark"]} == set(mark.missing_bookies)
    assert 32 == len(wins["mark"])


def test_folders_that_come_and_go(stores: tuple[ZooKeeperStore, ZooKeeperStore]) -> None:
    """A folder that one client removes when it is empty does not fail another's creation."""
    failed: list[BaseException] = []

    def work(store: ZooKeeperStore, name: int) -> None:
        try:
            for _ in range(30):
                store.create(metadata_of(name))
                store.delete(name)
        except BaseException as error:  # noqa: BLE001  asserted on below
            failed.append(error)

    threads = [
        threading.Thread(target=work, args=(store, 2**40 + at)) for at, store in enumerate(stores)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [] == failed
    assert [] == stores[0].ledgers()
    assert not _raw(stores[0]).exists(f"{_root(stores[0])}/000")


def test_one_cluster_is_made(zookeeper: ZooKeeperServer) -> None:
    """Of many who make one cluster one does; nothing is changed by the others."""
    uri = new_uri(zookeeper)
    made: list[str | None] = []
    refused: list[str] = []

    def work() -> None:
        try:
            with ZooKeeperStore.format(uri) as store:
                made.append(store.instance_id())
        except IllegalOperation as error:
            refused.append(str(error))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with ZooKeeperStore(uri) as store:
        assert [store.instance_id()] == made

    assert 2 == len(refused)
    assert all("is there already: nothing was changed" in text for text in refused)


# -- bookies


def test_registrations(stores: tuple[ZooKeeperStore, ZooKeeperStore]) -> None:
    """A bookie is seen by others with its address; read only or not; gone with the session."""
    one, other = stores
    registration = one.register("bookie-two", HERE)

    assert frozenset({"bookie-two"}) == other.writable_bookies() == other.registered_bookies()
    assert HERE == other.service_info("bookie-two")
    with pytest.raises(IllegalOperation, match="already"):
        one.register("bookie-two", HERE)
    registration.set_read_only(True)
    assert (frozenset(), {"bookie-two"}) == (other.writable_bookies(), other.read_only_bookies())
    assert HERE == other.service_info("bookie-two")
    registration.set_read_only(False)
    assert ({"bookie-two"}, frozenset()) == (other.writable_bookies(), other.read_only_bookies())
    other.unregister_bookie("bookie-two")
    assert frozenset({"bookie-two"}) == other.registered_bookies()
    one.close()
    assert frozenset() == other.registered_bookies()
    assert other.service_info("bookie-two") is None


def test_registered_by_another(stores: tuple[ZooKeeperStore, ZooKeeperStore]) -> None:
    """A node of another session is waited for as long as a session lasts, and never removed."""
    one, other = stores
    held = other.register("b1", HERE)
    with pytest.raises(IllegalOperation, match="b1 is registered by another session"):
        one.register("b1", ServiceInfo.at("127.0.0.1", 1))

    assert HERE == one.service_info("b1")
    threading.Timer(0.5, held.close).start()
    one.register("b1", ServiceInfo.at("127.0.0.1", 1))
    assert ServiceInfo.at("127.0.0.1", 1) == other.service_info("b1")


def test_ids_and_infos_that_harm_real_clients(
    stores: tuple[ZooKeeperStore, ZooKeeperStore],
) -> None:
    """Names that real clients refuse, and registrations that they cannot read, are not made."""
    one, other = stores
    for name in ("a b", "", "ReadOnly", "a/b", "..", "a%lo:1"):
        with pytest.raises(InvalidArgument, match="no bookie id"):
            one.register(name, HERE)
    for info in (ServiceInfo(), ServiceInfo((Endpoint("b", 70000, "h", "bookie-rpc"),))):
        with pytest.raises(InvalidArgument):
            one.register("b1", info)
    one.register_bookie("no-address")
    one.register_bookie("10.0.0.1:3181")
    first, second = other.service_info("no-address"), other.service_info("10.0.0.1:3181")

    assert frozenset({"no-address", "10.0.0.1:3181"}) == other.registered_bookies()
    assert first is not None
    assert (None, True) == (first.address, bool(first.properties))
    assert ServiceInfo.at("10.0.0.1", 3181) == second
    _raw(one).create(f"{_root(one)}/available/junk:1", b"not protobuf")
    with pytest.raises(CorruptionError, match=r"available/junk:1: offset 0: service info"):
        other.service_info("junk:1")


def test_expired_session(stores: tuple[ZooKeeperStore, ZooKeeperStore]) -> None:
    """After an expiry a bookie is registered again, as it was; a lock is told to be gone."""
    one, other = stores
    writable = one.register("b1", HERE)
    one.register("b2", HERE, read_only=True)
    one.underreplication.mark(7, ["b3"])
    lock = one.underreplication.take()
    assert lock is not None
    session = one._connection.session
    expire(one)

    _until(lambda: other.registered_bookies() == {"b1", "b2"})
    _until(lambda: one._connection.session not in (None, session))
    assert frozenset({"b2"}) == other.read_only_bookies()
    assert writable.problem is None
    with pytest.raises(IllegalOperation, match="the lock went with its session"):
        one.underreplication.done(lock)
    assert [LedgerId.of(7)] == list(other.underreplicated())
    taken = other.underreplication.take()
    assert taken is not None
    assert other.underreplication.done(taken)


def test_watched_bookies(stores: tuple[ZooKeeperStore, ZooKeeperStore]) -> None:
    """A watcher hears of the bookies as they are, after an expiry too, until it ends."""
    one, other = stores
    seen: queue.Queue[tuple[frozenset[str], frozenset[str]]] = queue.Queue()
    end = one.watch_bookies(lambda *lists: seen.put(lists))
    none = frozenset[str]()

    assert (none, none) == seen.get(timeout=20)
    registration = other.register("b1", HERE)
    assert ({"b1"}, none) == seen.get(timeout=20)
    expire(one)
    registration.close()
    assert (none, none) == seen.get(timeout=20)
    end()
    other.register("b2", HERE)
    with pytest.raises(queue.Empty):
        seen.get(timeout=0.3)


def test_watched_ledger(stores: tuple[ZooKeeperStore, ZooKeeperStore]) -> None:
    """A watcher hears of newer metadata, whoever wrote them, and of the end."""
    one, other = stores
    other.create(metadata_of(7))
    seen: queue.Queue[Versioned | None] = queue.Queue()
    one.watch_ledger(7, seen.put)
    first = seen.get(timeout=20)
    assert first is not None
    other.write(metadata_of(7, state="IN_RECOVERY"), 0)
    second = seen.get(timeout=20)
    assert second is not None
    expire(one)
    other.write(metadata_of(7, state="OPEN"), 1)
    third = seen.get(timeout=20)
    assert third is not None
    other.delete(7)

    assert [(metadata_of(7), 0), (metadata_of(7, state="IN_RECOVERY"), 1), (metadata_of(7), 2)] == [
        said(each) for each in (first, second, third)
    ]
    assert seen.get(timeout=20) is None


# -- what lies in the tree


def test_scopes_lie_apart(stores: tuple[ZooKeeperStore, ZooKeeperStore]) -> None:
    """Nothing below the ledgers root tells of scopes; the folder beside it is one cluster's."""
    one, other = stores
    for name in IDS:
        one.create(metadata_of(name))
        one.underreplication.mark(name)
        one.underreplication.lock(name)
        one.next_id(name.scope)
    one.set_unavailable("b1")
    raw, root = _raw(other), _root(other)
    paths = [root]
    for path in paths:
        paths += [f"{path}/{name}" for name in raw.get_children(path)]

    assert [] == [path for path in paths if "/S" in path or "unavailable" in path]
    assert IDS == other.ledgers()
    assert set(IDS) == set(other.underreplicated())
    assert frozenset({"b1"}) == other.unavailable_bookies()
    raw.set(f"{root}/INSTANCEID", b"another")
    with ZooKeeperStore(one.uri) as third:
        with pytest.raises(UnsupportedLayout, match="scopes of another cluster"):
            third.ledgers()
        assert [name for name in IDS if not name.scope] == third.ledgers(0)
    raw.set(f"{root}-scopes", b"junk")
    with ZooKeeperStore(one.uri) as third, pytest.raises(CorruptionError, match="no folder of"):
        third.read(IDS[-1])


def test_ids_are_numbers_of_nodes(stores: tuple[ZooKeeperStore, ZooKeeperStore]) -> None:
    """Ids go on as real clients count them; long ones once their folder is there, or need be."""
    one, other = stores
    raw, root = _raw(one), _root(one)

    assert [0, 1] == [one.next_id().ledger, other.next_id().ledger]
    raw.create(f"{root}/idgen/other", b"")
    other.create(metadata_of(3))
    assert 4 == one.next_id().ledger
    raw.create(f"{root}/idgen-long", b"")
    with ZooKeeperStore(one.uri) as third:
        assert [2**32, 2**32 + 1] == [third.next_id().ledger for _ in range(2)]
        assert 5 == one.next_id().ledger
        raw.create(f"{root}/idgen-long/HOB-0000000007", b"")
        assert 7 * 2**32 == third.next_id().ledger


def test_flat_cluster(zookeeper: ZooKeeperServer) -> None:
    """Flat ids are numbers of nodes beside the ledgers; longer ones have no place."""
    with ZooKeeperStore.format(new_uri(zookeeper, "flat")) as store:
        first = store.next_id()
        store.create(metadata_of(first))
        second = store.next_id()

        assert [first] == store.ledgers()
        assert second.ledger == first.ledger + 2
        assert f"/L{first.ledger:010d}" == store._key(first)
        with pytest.raises(InvalidArgument, match="more digits than a flat path"):
            store.create(metadata_of(10**10))


def test_damaged_values(stores: tuple[ZooKeeperStore, ZooKeeperStore]) -> None:
    """A value that cannot be read is named with its path; the others are told all the same."""
    one, _ = stores
    one.create(metadata_of(7))
    one.create(metadata_of(8))
    one.underreplication.mark(9)
    raw, root = _raw(one), _root(one)
    raw.set(f"{root}/00/0000/L0007", b"BookieMetadataFormatVersion\t3\n\x05")
    raw.set(f"{root}/underreplication/ledgers/0000/0000/0000/0009/urL0000000009", b"replica: b")
    raw.create(f"{root}/underreplication/replicascheckctime", b"\x10\x01")
    raw.create(f"{root}/cookies/b1", b"x", makepath=True)
    found = dict(one.read_many(one.ledgers()))
    damaged = found[LedgerId.of(7)]

    assert isinstance(damaged, CorruptionError)
    assert f"{root}/00/0000/L0007" == damaged.file
    assert metadata_of(8) == said(one.read(8)).metadata
    for call in (
        lambda: one.read(7),
        lambda: snapshot(one),
        one.underreplicated,
        lambda: one.mark_of(9),
        one.checked_at,
        lambda: one.cookie("b1"),
    ):
        with pytest.raises(CorruptionError) as caught:
            call()
        assert str(caught.value).startswith(f"{root}/")


def test_values_that_are_too_large(stores: tuple[ZooKeeperStore, ZooKeeperStore]) -> None:
    """More bytes than the server takes are refused here: it would break the connection."""
    large = metadata_of(7, custom_metadata={"a": bytes(1 << 20)})
    with pytest.raises(InvalidArgument, match="ZooKeeper takes"):
        stores[0].create(large)

    assert [] == stores[0].ledgers()
    stores[0].create(metadata_of(7, custom_metadata={"a": bytes((1 << 20) - 4096)}))
    assert len(encode(stores[0].read(7).metadata)) > 1 << 19


# -- what is refused


@pytest.mark.parametrize(
    ("layout", "reason"),
    [
        (None, "LAYOUT is not there: has the cluster been initialized?"),
        (b"2\norg.apache.bookkeeper.meta.FlatLedgerManagerFactory:1", "LAYOUT says flat"),
        (b"2\norg.apache.bookkeeper.meta.MSLedgerManagerFactory:1", "MSLedgerManagerFactory is"),
        (b"7\nx", "LAYOUT: offset 0: LAYOUT's version is '7'"),
    ],
    ids=["none", "flat", "foreign", "broken"],
)
def test_roots_that_are_refused(
    zookeeper: ZooKeeperServer, uri: str, layout: bytes | None, reason: str
) -> None:
    """No cluster, one with another manager than the URI's, or one of nobody's: one line each."""
    with ZooKeeperStore(uri) as store:
        path = f"{_root(store)}/LAYOUT"
        if layout is None:
            _raw(store).delete(path)
        else:
            _raw(store).set(path, layout)
    with pytest.raises((UnsupportedLayout, CorruptionError)) as caught:
        open_metadata(uri)

    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_uri_without_a_manager(zookeeper: ZooKeeperServer) -> None:
    """`zk://` takes the manager that LAYOUT names, and makes a hierarchical cluster."""
    uri = new_uri(zookeeper, "longhierarchical")
    ZooKeeperStore.format(uri).close()
    with ZooKeeperStore(uri.replace("+longhierarchical", "")) as store:
        assert "longhierarchical" == store.manager
    with ZooKeeperStore.format(new_uri(zookeeper).replace("+hierarchical", "")) as store:
        assert "hierarchical" == store.manager


def test_access_lists(stores: tuple[ZooKeeperStore, ZooKeeperStore]) -> None:
    """What an access list forbids is told with its path, and nothing else is tried."""
    from kazoo.security import make_acl

    one, other = stores
    one.create(metadata_of(7))
    raw, root = _raw(one), _root(one)
    raw.set_acls(f"{root}/00/0000/L0007", [make_acl("world", "anyone", read=True, admin=True)])
    with pytest.raises(UnauthorizedAccess, match=r"L0007: ZooKeeper's access list forbids it"):
        other.write(metadata_of(7), 0)
    raw.set_acls(f"{root}/00/0000/L0007", [make_acl("world", "anyone", write=True, admin=True)])
    for call in (lambda: other.read(7), lambda: list(other.read_many([7]))):
        with pytest.raises(UnauthorizedAccess, match="forbids"):
            call()
    raw.set_acls(root, [make_acl("world", "anyone", read=True, admin=True)])
    with pytest.raises(UnauthorizedAccess, match="forbids"):
        other.create(metadata_of(2**40))


def test_marks_of_other_tools(stores: tuple[ZooKeeperStore, ZooKeeperStore]) -> None:
    """A mark set over another counts alone; bookies are added to it by `underreplication`."""
    one, other = stores
    one.mark_underreplicated(7, Mark(5.0, ("b1",)))

    assert other.underreplication.mark(7, ["b2", "b1"], timed=False)
    assert not other.underreplication.mark(7, ["b2"])
    assert Mark(5.0, ("b1", "b2")) == one.mark_of(7)
    lock = other.underreplication.take()
    assert lock is not None
    one.underreplication.mark(7, ["b3"], timed=False)
    assert not other.underreplication.done(lock)
    assert Mark(5.0, ("b1", "b2", "b3")) == one.mark_of(7)
    assert one.underreplication.holder(7) is None
