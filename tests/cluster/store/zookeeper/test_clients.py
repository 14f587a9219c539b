"""Clients of one cluster beside each other: races, watches, sessions that end, other nodes."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from bkstore.cluster import Versioned, ZooKeeperStore
from bkstore.errors import (
    BadVersion,
    CorruptionError,
    IllegalOperation,
    InvalidArgument,
    LedgerExists,
)
from bkstore.formats.metadata.service_info import Endpoint, ServiceInfo
from bkstore.ids import LedgerId
from bkstore.testing.zookeeper_server import ZooKeeperServer
from tests.cluster.store.samples import metadata_of, new_uri, said
from tests.worlds.zookeeper import expire, raw_client, root_of

HERE = ServiceInfo.at("127.0.0.1", 3181)


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


def test_who_writes_the_same(stores: tuple[ZooKeeperStore, ZooKeeperStore]) -> None:
    """The same bytes, written by another before, are another's all the same."""
    one, other = stores
    one.create(metadata_of(7))
    other.write(metadata_of(7, state="IN_RECOVERY"), 0)
    with pytest.raises(BadVersion):
        one.write(metadata_of(7, state="IN_RECOVERY"), 0)
    one.underreplication.mark(7, timed=False)

    assert not other.underreplication.mark(7, timed=False)


def test_token(stores: tuple[ZooKeeperStore, ZooKeeperStore]) -> None:
    """A new ledger has a token of its own; the first change drops it, as a real client's does."""
    one, other = stores
    one.create(metadata_of(7))
    one.create(metadata_of(8))
    one.create(metadata_of(9, c_token=5))
    tokens = [other.read(name).metadata.c_token for name in (7, 8, 9)]
    one.write(other.read(7).metadata, 0)

    assert 3 == len({*tokens, 0} - {0})
    assert 5 == tokens[2]
    assert 0 == other.read(7).metadata.c_token


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
    assert not raw_client(stores[0]).exists(f"{root_of(stores[0])}/000")


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
    assert all("already exists; nothing was changed" in text for text in refused)


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


def test_nodes_of_others_stay(stores: tuple[ZooKeeperStore, ZooKeeperStore]) -> None:
    """Becoming read only, or leaving, removes no node of another session."""
    one, other = stores
    path = f"{root_of(one)}/available/b1"
    raw_client(other).create(path, b"", ephemeral=True)
    registration = one.register("b1", HERE, read_only=True)

    assert raw_client(other).exists(path)
    registration.close()
    assert raw_client(other).exists(path)
    assert frozenset() == other.read_only_bookies()


def test_ids_and_infos_that_harm_real_clients(
    stores: tuple[ZooKeeperStore, ZooKeeperStore],
) -> None:
    """Names that real clients refuse, and registrations that they cannot read, are not made."""
    one, other = stores
    for name in ("a b", "", "ReadOnly", "a/b", "..", "a%lo:1"):
        with pytest.raises(InvalidArgument, match="not a bookie id"):
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
    raw_client(one).create(f"{root_of(one)}/available/junk:1", b"not protobuf")
    with pytest.raises(CorruptionError, match=r"available/junk:1: offset 0: service info"):
        other.service_info("junk:1")


def test_expired_session(stores: tuple[ZooKeeperStore, ZooKeeperStore]) -> None:
    """After an expiry a bookie is registered again, as it was; a lock is told to be gone."""
    one, other = stores
    writable = one.register("b1", HERE)
    one.register("b2", HERE, read_only=True)
    one.underreplication.mark(7, ["b3"])
    lock = one.underreplication.lock_any()
    assert lock is not None
    session = one._connection.session
    expire(one)

    _until(lambda: other.registered_bookies() == {"b1", "b2"})
    _until(lambda: one._connection.session not in (None, session))
    assert frozenset({"b2"}) == other.read_only_bookies()
    assert writable.problem is None
    with pytest.raises(IllegalOperation, match="the lock was lost with its session"):
        one.underreplication.mark_replicated(lock)
    assert [LedgerId.of(7)] == list(other.underreplicated())
    taken = other.underreplication.lock_any()
    assert taken is not None
    assert other.underreplication.mark_replicated(taken)


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
    time.sleep(0.3)  # what was under way at the end may still come

    assert {(none, none)} >= {seen.get_nowait() for _ in range(seen.qsize())}


@pytest.mark.parametrize("change", ["a bookie", "a version", "a deletion"])
def test_a_look_under_way_at_the_end(
    stores: tuple[ZooKeeperStore, ZooKeeperStore], monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """What a look finds that ends after the watch did is not told."""
    one, other = stores
    version = other.create(metadata_of(7))
    begun, gate, idle = threading.Event(), threading.Event(), threading.Event()
    ask = one._connection.request

    def held(*arguments: Any, **options: Any) -> Any:
        begun.set()
        gate.wait(20)
        return ask(*arguments, **options)

    monkeypatch.setattr(one._connection, "request", held)
    seen: list[object] = []
    if change == "a bookie":
        end = one.watch_bookies(lambda *lists: seen.append(lists))
    else:
        end = one.watch_ledger(7, seen.append)
    assert begun.wait(20)
    end()
    if change == "a bookie":
        other.register("b2", HERE)
    elif change == "a version":
        other.write(metadata_of(7), version)
    else:
        other.delete(7, version)
    gate.set()
    one._events.call(idle.set)

    assert idle.wait(20)
    assert [] == seen


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
    session = one._connection.session
    expire(one)
    _until(lambda: one._connection.session not in (None, session))
    with pytest.raises(queue.Empty):  # it looks again, and has nothing new to tell
        seen.get(timeout=0.3)
    other.write(metadata_of(7, state="OPEN"), 1)
    third = seen.get(timeout=20)
    assert third is not None
    other.delete(7)

    assert [(metadata_of(7), 0), (metadata_of(7, state="IN_RECOVERY"), 1), (metadata_of(7), 2)] == [
        said(each) for each in (first, second, third)
    ]
    assert seen.get(timeout=20) is None
