"""Clusters that are emptied: all that they had goes, of whatever layout, and nothing else."""

from __future__ import annotations

import pytest

from bkstore.cluster import ZooKeeperStore
from bkstore.errors import CorruptionError, IllegalOperation, UnsupportedLayout
from bkstore.formats.cookie import Cookie
from bkstore.formats.metadata.service_info import ServiceInfo
from bkstore.ids import LedgerId
from bkstore.testing.zookeeper_server import ZooKeeperServer
from tests.cluster.store.samples import IDS, metadata_of, new_uri
from tests.worlds.zookeeper import raw_client, root_of


@pytest.mark.parametrize("manager", ["flat", "hierarchical", "longhierarchical"])
def test_emptied(zookeeper: ZooKeeperServer, manager: str) -> None:
    """Ledgers, ids, cookies, marks, locks and scopes go; registrations and settings stay."""
    uri = new_uri(zookeeper, manager)
    names = [name for name in IDS if name.scope or manager != "flat" or name.ledger < 10**10]
    with ZooKeeperStore.format(uri) as store:
        first = store.next_id()
        for name in names:
            store.create(metadata_of(name))
            store.underreplication.mark(name)
            store.underreplication.lock(name)
        store.write_cookie("b1:1", Cookie(5, "b1:1", ("/j",), ("/l",), None, store.instance_id()))
        store.register("b1:1", ServiceInfo.at("127.0.0.1", 1))
        store.set_unavailable("b2")
        store.set_checked_at(7.0)
        before = store.instance_id()
        with ZooKeeperStore.format(uri, force=True) as emptied:
            assert [] == emptied.ledgers()
            assert {} == emptied.underreplicated()
            assert frozenset() == emptied.cookies()
            assert emptied.unavailable_bookies() is None
            assert frozenset({"b1:1"}) == emptied.registered_bookies()
            assert 7.0 == emptied.checked_at()
            assert before != emptied.instance_id()
            assert manager == emptied.manager
            assert emptied.underreplication.lock(names[0]) is not None
            if manager != "flat":  # whose numbers are those of the root, which stays
                assert first == emptied.next_id()
            emptied.create(metadata_of(LedgerId(1, 5)))
            assert [LedgerId(1, 5)] == emptied.ledgers()
    with pytest.raises(IllegalOperation, match="already exists"):
        ZooKeeperStore.format(uri)


def test_another_layout(zookeeper: ZooKeeperServer) -> None:
    """Emptying may change the manager: nothing of the old one's is left to be met later."""
    uri = new_uri(zookeeper, "flat")
    with ZooKeeperStore.format(uri) as store:
        store.create(metadata_of(7))
    with ZooKeeperStore.format(uri.replace("flat", "longhierarchical"), force=True) as store:
        children = raw_client(store).get_children(root_of(store))

        assert ["INSTANCEID", "LAYOUT", "available"] == sorted({*children} - {"underreplication"})
    with pytest.raises(UnsupportedLayout):
        ZooKeeperStore(uri)


def test_broken_off(zookeeper: ZooKeeperServer) -> None:
    """What an emptying that broke off has left is emptied by the next one; new roots are made."""
    uri = new_uri(zookeeper)
    with ZooKeeperStore.format(uri, force=True) as store:
        store.create(metadata_of(7))
        raw_client(store).delete(f"{root_of(store)}/LAYOUT")
        raw_client(store).delete(f"{root_of(store)}/INSTANCEID")
        ZooKeeperStore.format(uri, force=True).close()

        assert [] == store.ledgers()


def test_what_is_nobodys(zookeeper: ZooKeeperServer) -> None:
    """Beside a root that has no folder of scopes nothing is removed; other nodes are let be."""
    uri = new_uri(zookeeper)
    with ZooKeeperStore.format(uri) as store:
        raw, root = raw_client(store), root_of(store)
        store.create(metadata_of(7))
        raw.create(f"{root}/other", b"")
        raw.create(f"{root}-scopes", b"somebody's")
        with pytest.raises(CorruptionError, match="not a folder of scopes"):
            ZooKeeperStore.format(uri, force=True)
        assert [LedgerId.of(7)] == store.ledgers(0)
        raw.delete(f"{root}-scopes")
        ZooKeeperStore.format(uri, force=True).close()

        assert [] == store.ledgers()
        assert raw.exists(f"{root}/other")
