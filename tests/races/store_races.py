"""Races of two clients for one node of the store, in any order of their requests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from bkstore.cluster import KeyValueStore, ZooKeeperStore
from bkstore.errors import BadVersion, LedgerExists, NoSuchLedger
from bkstore.formats.cookie import Cookie
from bkstore.ids import LedgerId
from tests.cluster.store.samples import metadata_of
from tests.races.two_clients import TwoClients

__all__ = ["STORE_RACES", "ZOOKEEPER_RACES"]

Race = Callable[[TwoClients], None]
STORE_RACES: dict[str, Race] = {}
ZOOKEEPER_RACES: dict[str, Callable[[TwoClients, ZooKeeperStore, ZooKeeperStore], None]] = {}

ROUNDS = 4


def _race(work: Race) -> Race:
    STORE_RACES[work.__name__] = work
    return work


def _zookeeper_race(work: Any) -> Any:
    ZOOKEEPER_RACES[work.__name__] = work
    return work


@_race
def create_and_create(here: TwoClients) -> None:
    def create(store: KeyValueStore, mine: int) -> int:
        return store.create(metadata_of(7, ack_quorum_size=mine))

    one, other = here.stores
    told = here.run(lambda: create(one, 1), lambda: create(other, 2))
    found = one.read(7)
    winner = told.index(0)

    assert isinstance(told[1 - winner], LedgerExists)
    assert (winner + 1, 0) == (found.metadata.ack_quorum_size, found.version)


@_race
def write_and_write(here: TwoClients) -> None:
    one, other = here.stores
    one.create(metadata_of(7, custom_metadata={"n": b"0"}))

    def add(store: KeyValueStore) -> int:
        added = 0
        while added < ROUNDS:
            found = store.read(7)
            try:
                more = b"%d" % (int(found.metadata.custom_metadata["n"]) + 1)
                changed = replace(found.metadata, custom_metadata={"n": more})
                assert found.version + 1 == store.write(changed, found.version)
                added += 1
            except BadVersion:
                continue
        return added

    told = here.run(lambda: add(one), lambda: add(other))
    found = other.read(7)

    assert [ROUNDS, ROUNDS] == told
    assert {"n": b"%d" % (2 * ROUNDS)} == dict(found.metadata.custom_metadata)
    assert 2 * ROUNDS == found.version


@_race
def delete_and_write(here: TwoClients) -> None:
    one, other = here.stores
    one.create(metadata_of(7))
    told = here.run(lambda: one.delete(7), lambda: other.write(metadata_of(7), 0))

    assert told[0] is None
    assert told[1] == 1 or isinstance(told[1], NoSuchLedger)
    assert [] == one.ledgers()


@_race
def delete_a_version_and_write(here: TwoClients) -> None:
    one, other = here.stores
    one.create(metadata_of(7))
    told = here.run(lambda: one.delete(7, 0), lambda: other.write(metadata_of(7), 0))
    deleted = told[0] is None

    assert isinstance(told[1], NoSuchLedger) if deleted else isinstance(told[0], BadVersion)
    assert deleted or told[1] == 1
    assert ([] if deleted else [LedgerId.of(7)]) == other.ledgers()


@_race
def delete_and_create(here: TwoClients) -> None:
    """Folders that one removes as empty are the other's way to its ledger."""
    one, other = here.stores
    one.create(metadata_of(2**32))

    def again(store: KeyValueStore) -> None:
        for _ in range(2):
            store.create(metadata_of(2**32 + 1))
            store.delete(2**32 + 1)
        store.create(metadata_of(2**32 + 1))

    told = here.run(lambda: one.delete(2**32), lambda: again(other))

    assert [None, None] == told
    assert [LedgerId.of(2**32 + 1)] == one.ledgers()


@_race
def ids(here: TwoClients) -> None:
    told = here.run(
        *(
            lambda store=store: [store.next_id(scope) for scope in (0, 0, 5, 5)]
            for store in here.stores
        )
    )
    given = [*told[0], *told[1]]

    assert 8 == len(set(given))


@_race
def bookies_that_come_and_go(here: TwoClients) -> None:
    one, other = here.stores

    def come_and_go() -> None:
        one.register_bookie("b1")
        one.unregister_bookie("b1")

    told = here.run(come_and_go, lambda: other.register_bookie("b2"))
    registered = other.registered_bookies() or frozenset()

    assert [None, None] == told
    assert {"b2"} == registered - set(here.bookies.bookies)


# -- what only ZooKeeper has


@_zookeeper_race
def marks(here: TwoClients, one: ZooKeeperStore, other: ZooKeeperStore) -> None:
    def mark(store: ZooKeeperStore, who: str) -> list[bool]:
        return [store.underreplication.mark(7, [f"{who}{n}"], timed=False) for n in range(3)]

    told = here.run(lambda: mark(one, "a"), lambda: mark(other, "b"))
    found = one.mark_of(7)

    assert [[True] * 3, [True] * 3] == told
    assert found is not None
    assert {"a0", "a1", "a2", "b0", "b1", "b2"} == set(found.missing_bookies)


@_zookeeper_race
def copied_and_marked(here: TwoClients, one: ZooKeeperStore, other: ZooKeeperStore) -> None:
    """A mark that comes while the ledger is copied is not removed with the older one."""
    one.underreplication.mark(7, ["b1"])

    def copy() -> int | None:
        lock = one.underreplication.lock_any()
        assert lock is not None
        one.underreplication.mark_replicated(lock)
        return lock.version

    told = here.run(copy, lambda: other.underreplication.mark(7, ["b2"]))
    found = other.mark_of(7)

    assert told[0] in (0, 1)
    assert told[1] is True
    if told[0] == 1:  # it was marked before it was taken
        assert found is None
    else:
        assert found is not None
        assert "b2" in found.missing_bookies


@_zookeeper_race
def workers(here: TwoClients, one: ZooKeeperStore, other: ZooKeeperStore) -> None:
    """Two workers never have the same ledger, and each one is copied once."""
    for ledger in range(3):
        one.underreplication.mark(ledger)
    held: set[LedgerId] = set()
    copied: list[LedgerId] = []

    def work(store: ZooKeeperStore) -> None:
        while store.underreplicated():
            lock = store.underreplication.lock_any()
            if lock is not None:
                assert lock.ledger not in held
                held.add(lock.ledger)
                here.turns()
                held.remove(lock.ledger)
                if store.underreplication.mark_replicated(lock):
                    copied.append(lock.ledger)

    told = here.run(lambda: work(one), lambda: work(other))

    assert [None, None] == told
    assert [LedgerId.of(ledger) for ledger in range(3)] == sorted(copied)


@_zookeeper_race
def votes(here: TwoClients, one: ZooKeeperStore, other: ZooKeeperStore) -> None:
    def vote(store: ZooKeeperStore, bookie: str) -> bool:
        return store.underreplication.elected(store.underreplication.vote(bookie))

    told = here.run(lambda: vote(one, "a"), lambda: vote(other, "b"))

    assert 1 == sum(told)
    assert ["a", "b"][told.index(True)] == one.underreplication.auditor()


@_zookeeper_race
def cookies(here: TwoClients, one: ZooKeeperStore, other: ZooKeeperStore) -> None:
    def write(store: ZooKeeperStore, place: str) -> int:
        made = Cookie(5, "b1:1", ("/j",), (place,), None, None)
        return store.write_cookie("b1:1", made)

    told = here.run(lambda: write(one, "/a"), lambda: write(other, "/b"))
    found = one.cookie("b1:1")
    winner = told.index(0)

    assert isinstance(told[1 - winner], BadVersion)
    assert found is not None
    assert (["/a", "/b"][winner],) == found.cookie.ledger_dirs
