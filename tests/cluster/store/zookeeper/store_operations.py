"""Every operation of the store, with what must hold after it, for faults in the middle of it.

An operation is a generator: up to its first `yield` it prepares, then it works through the
connection that breaks, and behind the second `yield` it looks, through one that holds.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from bkstore.cluster import Versioned, ZooKeeperStore
from bkstore.errors import LedgerExists
from bkstore.formats.cookie import Cookie
from bkstore.formats.metadata.service_info import ServiceInfo
from bkstore.ids import LedgerId
from tests.cluster.store.samples import metadata_of, said
from tests.worlds.zookeeper import raw_client, root_of

__all__ = ["OPERATIONS", "Here", "Operation", "operation", "until"]

HERE = ServiceInfo.at("127.0.0.1", 3181)


@dataclass
class Here:
    """Where an operation works: `store` is behind the proxy, `other` beside it."""

    store: ZooKeeperStore
    other: ZooKeeperStore
    uri: str
    """The cluster's, through the proxy."""
    ended: bool = False
    """Whether the session ends in the middle."""


Operation = Callable[[Here], Iterator[None]]
OPERATIONS: dict[str, Operation] = {}


def operation(work: Operation) -> Operation:
    """Add an operation to the table, by its name."""
    OPERATIONS[work.__name__] = work
    return work


def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds that another thread brings about."""
    end = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


# -- ledgers


@operation
def create(here: Here) -> Iterator[None]:
    yield
    assert 0 == here.store.create(metadata_of(7))
    yield
    assert (metadata_of(7), 0) == said(here.other.read(7))


@operation
def create_in_a_scope(here: Here) -> Iterator[None]:
    yield
    assert 0 == here.store.create(metadata_of(LedgerId(3, 7)))
    yield
    assert [LedgerId(3, 7)] == here.other.ledgers()


@operation
def create_in_an_old_format(here: Here) -> Iterator[None]:
    yield
    try:
        assert 0 == here.store.create(metadata_of(7, version=2))
    except LedgerExists:  # it has no token: the page says so
        assert [LedgerId.of(7)] == here.other.ledgers()
    yield
    assert (metadata_of(7, version=2), 0) == said(here.other.read(7))


@operation
def create_what_is_there(here: Here) -> Iterator[None]:
    here.other.create(metadata_of(7))
    yield
    with pytest.raises(LedgerExists):
        here.store.create(metadata_of(7))
    yield
    assert 0 == here.other.read(7).version


@operation
def read(here: Here) -> Iterator[None]:
    here.other.create(metadata_of(7))
    yield
    assert (metadata_of(7), 0) == said(here.store.read(7))


@operation
def write(here: Here) -> Iterator[None]:
    here.other.create(metadata_of(7))
    yield
    assert 1 == here.store.write(metadata_of(7, ack_quorum_size=2), 0)
    yield
    assert (metadata_of(7, ack_quorum_size=2), 1) == said(here.other.read(7))


@operation
def delete(here: Here) -> Iterator[None]:
    here.other.create(metadata_of(7))
    here.other.create(metadata_of(2**40))
    yield
    here.store.delete(7)
    yield
    assert [LedgerId.of(2**40)] == here.other.ledgers()


@operation
def delete_a_version(here: Here) -> Iterator[None]:
    here.other.create(metadata_of(7))
    here.other.write(metadata_of(7), 0)
    yield
    here.store.delete(7, 1)
    yield
    assert [] == here.other.ledgers()


@operation
def ledgers(here: Here) -> Iterator[None]:
    names = [LedgerId.of(7), LedgerId.of(2**40), LedgerId(3, 7)]
    for name in names:
        here.other.create(metadata_of(name))
    yield
    assert names == here.store.ledgers()


@operation
def read_many(here: Here) -> Iterator[None]:
    names = [LedgerId.of(number) for number in range(5)]
    for name in names:
        here.other.create(metadata_of(name))
    yield
    found = list(here.store.read_many(names))

    assert names == [name for name, _ in found]
    assert all(isinstance(each, Versioned) for _, each in found)


@operation
def next_id(here: Here) -> Iterator[None]:
    given = [here.other.next_id()]
    yield
    given += [here.store.next_id(), here.store.next_id()]
    yield
    given.append(here.other.next_id())
    assert sorted(set(given)) == given


@operation
def next_id_of_a_scope(here: Here) -> Iterator[None]:
    yield
    given = [here.store.next_id(5), here.store.next_id(5)]
    yield
    given.append(here.other.next_id(5))
    assert sorted(set(given)) == given


@operation
def next_long_id(here: Here) -> Iterator[None]:
    raw_client(here.other).create(f"{root_of(here.other)}/idgen-long", b"")
    yield
    given = [here.store.next_id().ledger, here.store.next_id().ledger]
    yield
    with ZooKeeperStore(here.other.uri) as third:
        given.append(third.next_id().ledger)
    assert sorted(set(given)) == given
    assert 2**32 <= given[0]


# -- bookies


@operation
def register(here: Here) -> Iterator[None]:
    yield
    made = here.store.register("b1", HERE)
    yield
    until(lambda: here.other.writable_bookies() == {"b1"})
    assert HERE == here.other.service_info("b1")
    until(lambda: made.problem is None)


@operation
def register_read_only(here: Here) -> Iterator[None]:
    yield
    here.store.register("b1", HERE, read_only=True)
    yield
    until(lambda: here.other.read_only_bookies() == {"b1"})
    assert frozenset() == here.other.writable_bookies()


@operation
def register_by_name(here: Here) -> Iterator[None]:
    yield
    here.store.register_bookie("10.0.0.1:3181")
    yield
    until(lambda: here.other.registered_bookies() == {"10.0.0.1:3181"})


@operation
def become_read_only(here: Here) -> Iterator[None]:
    made = here.store.register("b1", HERE)
    yield
    made.set_read_only(True)
    yield
    until(lambda: here.other.read_only_bookies() == {"b1"})
    until(lambda: here.other.writable_bookies() == frozenset())


@operation
def become_writable(here: Here) -> Iterator[None]:
    made = here.store.register("b1", HERE, read_only=True)
    yield
    made.set_read_only(False)
    yield
    until(lambda: here.other.writable_bookies() == {"b1"})
    until(lambda: here.other.read_only_bookies() == frozenset())


@operation
def end_a_registration(here: Here) -> Iterator[None]:
    made = here.store.register("b1", HERE)
    here.store.register("b2", HERE)
    yield
    made.close()
    yield
    until(lambda: here.other.registered_bookies() == {"b2"})


@operation
def unregister(here: Here) -> Iterator[None]:
    here.store.register_bookie("b1")
    yield
    here.store.unregister_bookie("b1")
    yield
    until(lambda: here.other.registered_bookies() == frozenset())


@operation
def lists_of_bookies(here: Here) -> Iterator[None]:
    here.other.register("b1", HERE)
    here.other.register("b2", HERE, read_only=True)
    yield
    assert ({"b1"}, {"b2"}) == (here.store.writable_bookies(), here.store.read_only_bookies())
    assert frozenset({"b1", "b2"}) == here.store.registered_bookies()
    assert HERE == here.store.service_info("b2")


@operation
def unavailable(here: Here) -> Iterator[None]:
    here.other.set_unavailable("b2")
    yield
    here.store.set_unavailable("b1")
    here.store.set_unavailable("b2", False)
    assert frozenset({"b1"}) == here.store.unavailable_bookies()
    yield
    assert frozenset({"b1"}) == here.other.unavailable_bookies()


@operation
def watch_bookies(here: Here) -> Iterator[None]:
    seen: queue.Queue[tuple[frozenset[str], frozenset[str]]] = queue.Queue()
    none = frozenset[str]()
    yield
    here.store.watch_bookies(lambda *lists: seen.put(lists))
    assert (none, none) == seen.get(timeout=20)
    here.other.register("b1", HERE)
    assert ({"b1"}, none) == seen.get(timeout=20)


@operation
def watch_ledger(here: Here) -> Iterator[None]:
    seen: queue.Queue[Any] = queue.Queue()
    here.other.create(metadata_of(7))
    yield
    here.store.watch_ledger(7, seen.put)
    assert 0 == seen.get(timeout=20).version
    here.other.write(metadata_of(7), 0)
    assert 1 == seen.get(timeout=20).version
    here.other.delete(7)
    assert seen.get(timeout=20) is None


# -- cookies, the cluster


def _cookie(here: Here, *ledger_dirs: str) -> Cookie:
    return Cookie(5, "b1:1", ("/j",), ledger_dirs, None, here.other.instance_id())


@operation
def write_a_cookie(here: Here) -> Iterator[None]:
    made = _cookie(here, "/l")
    yield
    assert 0 == here.store.write_cookie("b1:1", made)
    yield
    assert (made, 0) == here.other.cookie("b1:1")


@operation
def change_a_cookie(here: Here) -> Iterator[None]:
    here.other.write_cookie("b1:1", _cookie(here, "/l"))
    yield
    assert 1 == here.store.write_cookie("b1:1", _cookie(here, "/m"), 0)
    yield
    assert (_cookie(here, "/m"), 1) == here.other.cookie("b1:1")


@operation
def delete_a_cookie(here: Here) -> Iterator[None]:
    here.other.write_cookie("b1:1", _cookie(here, "/l"))
    yield
    assert here.store.delete_cookie("b1:1", 0)
    yield
    assert frozenset() == here.other.cookies()


@operation
def read_cookies(here: Here) -> Iterator[None]:
    here.other.write_cookie("b1:1", _cookie(here, "/l"))
    yield
    assert frozenset({"b1:1"}) == here.store.cookies()
    assert (_cookie(here, "/l"), 0) == here.store.cookie("b1:1")
    assert here.other.instance_id() == here.store.instance_id()


@operation
def open_a_store(here: Here) -> Iterator[None]:
    here.other.create(metadata_of(7))
    yield
    with ZooKeeperStore(here.uri) as opened:
        assert [LedgerId.of(7)] == opened.ledgers()


@operation
def make_a_cluster(here: Here) -> Iterator[None]:
    yield
    with ZooKeeperStore.format(f"{here.uri}/below/it") as made:
        instance = made.instance_id()
    yield
    with ZooKeeperStore(f"{root_uri(here.other)}/below/it") as found:
        assert instance == found.instance_id()


@operation
def empty_a_cluster(here: Here) -> Iterator[None]:
    here.other.create(metadata_of(7))
    here.other.create(metadata_of(LedgerId(3, 7)))
    here.other.underreplication.mark(7)
    yield
    with ZooKeeperStore.format(here.uri, force=True) as made:
        instance = made.instance_id()
    yield
    with ZooKeeperStore(here.other.uri) as found:
        assert ([], {}) == (found.ledgers(), found.underreplicated())
        assert instance == found.instance_id()


def root_uri(store: ZooKeeperStore) -> str:
    """Return the URI of a store's cluster."""
    return str(store.uri)
