"""The metadata store against a dict, through random sequences of operations of two clients."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from bkstore.cluster import DirectoryStore, KeyValueStore, MemoryStore, ZooKeeperStore
from bkstore.errors import (
    BadVersion,
    LedgerExists,
    NoSuchLedger,
)
from bkstore.formats.metadata.underreplication import UnderreplicatedMark
from bkstore.ids import LedgerId
from bkstore.testing.zookeeper_server import ZooKeeperServer
from tests.cluster.store.samples import IDS, fitting, metadata_of, new_uri

Clients = Callable[[ExitStack], list[KeyValueStore]]
"""Makes a new store, and returns two clients of it."""

FEW = settings(max_examples=12, stateful_step_count=25, deadline=None)
FEWER = settings(max_examples=5, stateful_step_count=25, deadline=None)
MANY = settings(max_examples=100, stateful_step_count=50, deadline=None)


class StoreMachine(RuleBasedStateMachine):
    """A store against a dict: what is there, in which version, in which order."""

    places = st.integers(0, len(IDS) - 1)
    clients = st.integers(0, 1)
    quorums = st.integers(1, 9)

    def __init__(self, make: Clients, names: list[LedgerId]) -> None:
        super().__init__()
        self.end = ExitStack()
        self.stores = make(self.end)
        self.names = names
        self.model: dict[LedgerId, tuple[int, int]] = {}
        self.marks: dict[LedgerId, UnderreplicatedMark] = {}
        self.given: list[LedgerId] = []

    def teardown(self) -> None:
        """Close the clients."""
        self.end.close()

    def _named(self, place: int) -> LedgerId:
        return self.names[place % len(self.names)]

    @rule(client=clients, place=places, quorum=quorums)
    def create(self, client: int, place: int, quorum: int) -> None:
        """Creating succeeds only where nothing is."""
        store, name = self.stores[client], self._named(place)
        if name in self.model:
            with pytest.raises(LedgerExists):
                store.create(metadata_of(name))
            return
        self.model[name] = (quorum, store.create(metadata_of(name, ack_quorum_size=quorum)))

        assert 0 == self.model[name][1]

    @rule(client=clients, place=places, quorum=quorums, behind=st.integers(0, 1))
    def write(self, client: int, place: int, quorum: int, behind: int) -> None:
        """Writing succeeds only with the version that is there."""
        store, name = self.stores[client], self._named(place)
        if name not in self.model:
            with pytest.raises(NoSuchLedger):
                store.write(metadata_of(name), 0)
            return
        version = self.model[name][1]
        if behind:
            with pytest.raises(BadVersion):
                store.write(metadata_of(name), version + 1)
            return
        now = store.write(metadata_of(name, ack_quorum_size=quorum), version)

        assert version + 1 == now
        self.model[name] = (quorum, now)

    @rule(client=clients, place=places)
    def delete(self, client: int, place: int) -> None:
        """Deleting succeeds where something is."""
        store, name = self.stores[client], self._named(place)
        if self.model.pop(name, None) is None:
            with pytest.raises(NoSuchLedger):
                store.delete(name)
        else:
            store.delete(name)

    @rule(client=clients, scope=st.sampled_from([0, 0, 1]))
    def next_id(self, client: int, scope: int) -> None:
        """An id is given once, and is nobody's."""
        name = self.stores[client].next_id(scope)

        assert scope == name.scope
        assert name not in self.model
        assert name not in self.given
        self.given.append(name)

    @rule(client=clients, place=places, since=st.integers(0, 2**40))
    def mark(self, client: int, place: int, since: int) -> None:
        """The last mark counts, of a ledger that is there or not."""
        name, made = self._named(place), UnderreplicatedMark(since / 1000, ("b1",))
        self.stores[client].mark_underreplicated(name, made)
        self.marks[name] = made

    @rule(client=clients, place=places)
    def clear(self, client: int, place: int) -> None:
        """A mark goes, and one that is not there is no error."""
        self.stores[client].clear_mark(self._named(place))
        self.marks.pop(self._named(place), None)

    @invariant()
    def same(self) -> None:
        """Both clients see what the model has."""
        for store in self.stores:
            found = {name: store.read(name) for name in store.ledgers()}

            assert sorted(self.model) == list(found)
            assert self.model == {
                name: (metadata.ack_quorum_size, version)
                for name, (metadata, version) in found.items()
            }
            assert self.marks == store.underreplicated()


def _in_memory(layout: Any) -> Clients:
    def make(end: ExitStack) -> list[KeyValueStore]:
        store = MemoryStore(layout)
        return [store, store]

    return make


def _in_a_directory(layout: Any) -> Clients:
    def make(end: ExitStack) -> list[KeyValueStore]:
        top = Path(end.enter_context(tempfile.TemporaryDirectory(prefix="bkstore-store-")))
        return [DirectoryStore(top / "store", layout, sync=False) for _ in range(2)]

    return make


def _in_zookeeper(server: ZooKeeperServer, layout: str) -> Clients:
    def make(end: ExitStack) -> list[KeyValueStore]:
        uri = new_uri(server, layout)
        one = end.enter_context(ZooKeeperStore.format(uri))
        return [one, end.enter_context(ZooKeeperStore(uri))]

    return make


def _run(make: Clients, layout: str, size: settings) -> None:
    run_state_machine_as_test(lambda: StoreMachine(make, fitting(layout)), settings=size)


@pytest.mark.parametrize("layout", ["tree", "keys"])
def test_memory(layout: str) -> None:
    """A store in memory does what a dict does."""
    _run(_in_memory(layout), layout, FEW)


@pytest.mark.parametrize("layout", ["tree", "keys"])
def test_directory(layout: str) -> None:
    """So does a directory, opened twice."""
    _run(_in_a_directory(layout), layout, FEWER)


def test_zookeeper(zookeeper: ZooKeeperServer) -> None:
    """So does ZooKeeper, through two sessions."""
    _run(_in_zookeeper(zookeeper, "hierarchical"), "hierarchical", FEWER)


@pytest.mark.long
@pytest.mark.parametrize("layout", ["hierarchical", "longhierarchical", "flat"])
def test_zookeeper_long(zookeeper: ZooKeeperServer, layout: str) -> None:
    """The same with each ledger manager, longer."""
    _run(_in_zookeeper(zookeeper, layout), layout, MANY)
