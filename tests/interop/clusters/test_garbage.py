"""Garbage collection in clusters of both kinds: what one client deleted goes, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from bkstore import BookieDir
from bkstore.cluster import ZooKeeperStore
from bkstore.errors import MetadataUnavailable, UnsupportedLayout
from bkstore.ids import LedgerId
from bkstore.network import Client, RegisteredBookie
from tests.golden.zookeeper.real_clusters import raw
from tests.interop.bookies import Cluster, Place
from tests.interop.clusters.conftest import MakeClient, MakeCluster
from tests.interop.clusters.whole_client import WholeClient
from tests.worlds.zookeeper import Proxy

MANAGERS = ("flat", "hierarchical", "longhierarchical")
STORAGES = ("sorted", "interleaved", "db")
PAYLOADS = [b"%d" % number * 20 for number in range(40)]


def _deleted(client: Client, theirs: WholeClient) -> tuple[list[int], list[int]]:
    """Return the ledgers that are left, and those that went: each client made and deleted some.

    Two clients' ids lie side by side, in one folder of the tree and in several.
    """
    made = []
    for turn in range(14):
        if turn % 2:
            ledger = theirs.create(1, 1, 1)
            theirs.add(ledger, PAYLOADS)
            theirs.close_ledger(ledger)
            made.append(ledger)
        else:
            with client.create_ledger(1, 1, 1, password=b"pw") as mine:
                mine.append_many(PAYLOADS)
            made.append(mine.id)
    for number in (2**31 - 2, 2**31 + 5, 2**40):
        if client.store.manager != "flat":  # type: ignore[attr-defined]
            with client.create_ledger(1, 1, 1, password=b"pw", ledger=number) as mine:
                mine.append_many(PAYLOADS)
            made.append(number)
    gone = made[1::4] + made[4::5]
    for turn, ledger in enumerate(gone := sorted({*gone})):
        if turn % 2:
            theirs.delete(ledger)
        else:
            client.delete_ledger(ledger)
    return sorted({*made} - {*gone}), gone


@pytest.mark.parametrize("manager", MANAGERS)
def test_real_garbage(
    new_cluster: MakeCluster, real_client: MakeClient, manager: str, tmp_path: Path
) -> None:
    """The real garbage collector on a tree that both clients changed: it finds what they made,
    in every layout, and deletes what they deleted; ledgers of other scopes do not disturb it."""
    cluster = new_cluster(manager)
    storage = STORAGES[MANAGERS.index(manager)]
    place = Place(cluster.root[1:], [tmp_path / "ledgers"], [tmp_path / "journal"])
    with cluster.bookie(place, storage) as bookie, Client(cluster.uri) as client:
        kept, gone = _deleted(client, real_client(cluster))
        client.store.create(_elsewhere(client))
        bookie.flush()

        assert sorted([*kept, *gone]) == bookie.ledgers()
        bookie.collect_garbage()
        assert kept == bookie.ledgers()
        for ledger in kept:
            reader = client.open_ledger(ledger, password=b"pw")
            assert PAYLOADS == [entry.payload for entry in reader.read(0, 39)]


def _elsewhere(client: Client) -> Any:
    """Return metadata of a ledger of another scope."""
    from dataclasses import replace

    some = client.store.ledgers(0)[0]
    return replace(client.store.read(some).metadata, ledger=LedgerId(7, some.ledger))


@pytest.mark.parametrize("storage", STORAGES)
def test_our_garbage(
    new_cluster: MakeCluster, real_client: MakeClient, storage: Any, tmp_path: Path
) -> None:
    """Our bookie, in a cluster that the real classes made: the same, also on its disk; then a
    real client reads what is left."""
    manager = MANAGERS[STORAGES.index(storage)]
    cluster = new_cluster(manager)
    with Client(cluster.uri) as client:
        path = tmp_path / "b0"
        with RegisteredBookie.open(cluster.uri, path, storage, bookie_id="b0") as bookie:
            theirs = real_client(cluster)
            kept, gone = _deleted(client, theirs)
            scoped = client.create_ledger(1, 1, 1, scope=7)
            scoped.append_many(PAYLOADS)
            bookie.bookie.checkpoint()
            report = bookie.bookie.collect_garbage(client.store.ledgers)

            assert gone == sorted(name.ledger for name in report.deleted_ledgers)
            for ledger in kept:
                theirs.open(ledger, recovery=False)
                assert PAYLOADS == theirs.read(ledger, 0, 39)
        with BookieDir(path) as found:
            assert {*map(LedgerId.of, kept), scoped.ledger} == {*found.index.ledgers()}


@contextmanager
def _full(cluster: Cluster, path: Path, real_client: MakeClient) -> Iterator[RegisteredBookie]:
    with RegisteredBookie.open(cluster.uri, path, bookie_id="b0") as bookie:
        theirs = real_client(cluster)  # it must see the bookie
        for _ in range(6):
            theirs.add(theirs.create(1, 1, 1), PAYLOADS)
        yield bookie


def test_a_listing_that_fails(
    new_cluster: MakeCluster, real_client: MakeClient, tmp_path: Path
) -> None:
    """Where the ledgers cannot be listed, in the middle of it or at all, nothing is deleted; nor
    where the cluster's root is gone."""
    cluster = new_cluster()
    with _full(cluster, tmp_path / "b0", real_client) as bookie, ExitStack() as stack:
        before = bookie.bookie.ledgers()
        proxy = Proxy(cluster.port)
        through = cluster.uri.replace(str(cluster.port), str(proxy.port))
        store = stack.enter_context(ZooKeeperStore(through, timeout=1))
        direct = stack.enter_context(ZooKeeperStore(cluster.uri))

        def broken() -> list[LedgerId]:
            proxy.break_at(3, answer=True, then=proxy.close)  # behind the root's own folders
            return store.ledgers()

        with pytest.raises(MetadataUnavailable):
            bookie.bookie.collect_garbage(broken)
        assert 1 == proxy.lost
        assert before == bookie.bookie.ledgers()
        store.close()
        raw(direct).delete(cluster.root, recursive=True)
        with pytest.raises(UnsupportedLayout, match="does not exist"):
            bookie.bookie.collect_garbage(direct.ledgers)
        assert 6 == len(before)
        assert before == bookie.bookie.ledgers()
