"""What clients and writers do with ledgers, in the form of `store_operations`."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count

import pytest

from bkstore.cluster import Client, Cluster, LedgerHandle, MemoryStore
from bkstore.errors import LedgerFenced, NoSuchLedger
from bkstore.ids import LedgerId
from tests.cluster.store.zookeeper.store_operations import Here, Operation

__all__ = ["CLIENT_OPERATIONS"]

BOOKIES = 3
CLIENT_OPERATIONS: dict[str, Operation] = {}

_clients = count(1)


class World:
    """Bookies in this process; a client over the connection that breaks, another over one that
    holds. `cut` takes a bookie from the first one alone."""

    def __init__(self, here: Here, cluster: Cluster) -> None:
        self.cluster = cluster
        self.name = f"client-{next(_clients)}"
        for bookie in cluster.bookies:
            here.other.register_bookie(bookie)
        plain = cluster.client(self.name).context
        self.client = Client(here.store, plain.bookies, plain.placement, plain.options)
        self.another = Client(here.other, cluster.bookies, plain.placement, plain.options)

    def cut(self, handle: LedgerHandle) -> str:
        """Cut a bookie of the ledger's last ensemble off from the client; return its id."""
        bookie = handle.metadata.segments[-1].ensemble[0]
        self.cluster.partition(bookie, self.name)
        return bookie

    def content(self, ledger: LedgerId) -> list[bytes]:
        """Return what the other client reads of a ledger, which it closes."""
        handle = self.another.open_ledger(ledger)
        last = handle.metadata.last_entry_id
        return [entry.payload for entry in handle.read(0, last)] if last >= 0 else []


@contextmanager
def _world(here: Here) -> Iterator[World]:
    with (
        tempfile.TemporaryDirectory(prefix="bkstore-operations-") as top,
        Cluster.open(top, BOOKIES, "sorted", store=MemoryStore()) as cluster,
    ):
        yield World(here, cluster)


def _operation(work: Callable[[Here, World], Iterator[None]]) -> Operation:
    def whole(here: Here) -> Iterator[None]:
        with _world(here) as world:
            yield from work(here, world)

    CLIENT_OPERATIONS[work.__name__] = whole
    return whole


@_operation
def create_ledger(here: Here, world: World) -> Iterator[None]:
    yield
    handle = world.client.create_ledger(2, 2, 2)
    handle.append(b"0")
    yield
    assert [handle.ledger] == here.other.ledgers()
    assert [b"0"] == world.content(handle.ledger)


@_operation
def close(here: Here, world: World) -> Iterator[None]:
    handle = world.client.create_ledger(2, 2, 2)
    handle.append_many([b"0", b"1"])
    yield
    handle.close()
    yield
    metadata = here.other.read(handle.ledger).metadata
    assert ("CLOSED", 1, 2) == (metadata.state, metadata.last_entry_id, metadata.length)
    assert [b"0", b"1"] == world.content(handle.ledger)


@_operation
def change_ensemble(here: Here, world: World) -> Iterator[None]:
    handle = world.client.create_ledger(2, 2, 2)
    handle.append(b"0")
    gone = world.cut(handle)
    yield
    assert 1 == handle.append(b"1")
    yield
    segments = here.other.read(handle.ledger).metadata.segments
    assert [0, 1] == [first for first, _ in segments]
    assert gone not in segments[-1].ensemble
    assert 2 == handle.append(b"2")
    assert [b"0", b"1", b"2"] == world.content(handle.ledger)


@_operation
def change_ensemble_in_a_recovery(here: Here, world: World) -> Iterator[None]:
    handle = world.client.create_ledger(2, 2, 2)
    handle.append(b"0")
    world.cut(handle)
    there, version = here.other.read(handle.ledger)
    here.other.write(replace(there, state="IN_RECOVERY"), version)
    yield
    with pytest.raises(LedgerFenced):
        handle.append(b"1")
    yield
    assert 1 == here.other.read(handle.ledger).version
    assert b"0" == world.content(handle.ledger)[0]


@_operation
def close_when_fenced(here: Here, world: World) -> Iterator[None]:
    handle = world.client.create_ledger(2, 2, 2)
    handle.append(b"0")
    world.another.open_ledger(handle.ledger)
    yield
    handle.close()  # it ended where the writer ends it
    yield
    assert 2 == here.other.read(handle.ledger).version
    assert [b"0"] == world.content(handle.ledger)


@_operation
def recover(here: Here, world: World) -> Iterator[None]:
    writer = world.another.create_ledger(2, 2, 2)
    writer.append_many([b"0", b"1"])
    yield
    assert 1 == world.client.open_ledger(writer.ledger).metadata.last_entry_id
    yield
    found = here.other.read(writer.ledger)
    assert ("CLOSED", 1, 2) == (found.metadata.state, found.metadata.last_entry_id, found.version)
    with pytest.raises(LedgerFenced):
        writer.append(b"2")
    assert [b"0", b"1"] == world.content(writer.ledger)


@_operation
def recover_with_a_bookie_less(here: Here, world: World) -> Iterator[None]:
    writer = world.another.create_ledger(2, 2, 2)
    writer.append_many([b"0", b"1"])
    world.cut(writer)
    yield
    assert 1 == world.client.open_ledger(writer.ledger).metadata.last_entry_id
    yield
    assert here.other.read(writer.ledger).metadata.closed
    assert [b"0", b"1"] == world.content(writer.ledger)


@_operation
def follow(here: Here, world: World) -> Iterator[None]:
    writer = world.another.create_ledger(2, 2, 2)
    writer.append_many([b"0", b"1"])
    yield
    reader = world.client.open_ledger_no_recovery(writer.ledger)
    assert [b"0"] == [entry.payload for entry in reader.read(0, 0)]
    yield
    assert 2 == writer.append(b"2")


@_operation
def delete_ledger(here: Here, world: World) -> Iterator[None]:
    handle = world.another.create_ledger(2, 2, 2)
    yield
    world.client.delete_ledger(handle.ledger)
    yield
    with pytest.raises(NoSuchLedger):
        world.another.open_ledger(handle.ledger)
