"""Nodes as they lie in ZooKeeper: scopes apart, ids, damage, roots and access lists refused."""

from __future__ import annotations

import os

import pytest

from bkstore.cluster import ZooKeeperStore, open_metadata, snapshot
from bkstore.cluster.store.zookeeper import id_generator
from bkstore.errors import (
    CorruptionError,
    IllegalOperation,
    InvalidArgument,
    UnauthorizedAccess,
    UnsupportedLayout,
)
from bkstore.formats.metadata.serialized import encode
from bkstore.formats.metadata.underreplication import UnderreplicatedMark
from bkstore.ids import LedgerId
from bkstore.testing.zookeeper_server import ZooKeeperServer
from tests.cluster.store.samples import IDS, metadata_of, new_uri, said
from tests.worlds.zookeeper import raw_client, root_of

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
    raw, root = raw_client(other), root_of(other)
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
    with ZooKeeperStore(one.uri) as third, pytest.raises(CorruptionError, match="not a folder of"):
        third.read(IDS[-1])


def test_ids_are_numbers_of_nodes(stores: tuple[ZooKeeperStore, ZooKeeperStore]) -> None:
    """Ids go on as real clients count them; long ones once their folder is there, or need be."""
    one, other = stores
    raw, root = raw_client(one), root_of(one)

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


def test_ids_that_are_used_up(zookeeper: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind the last short id come long ones, a folder after the other; flat ids end there."""
    monkeypatch.setattr(id_generator, "_END_OF_SHORT", 2)
    with ZooKeeperStore.format(new_uri(zookeeper)) as store:
        given = [store.next_id().ledger for _ in range(11)]
        kept = raw_client(store).get_children(f"{root_of(store)}/idgen-long")

        assert [0, 1, *(high << 32 | low for high in range(1, 6) for low in (0, 1))][:11] == given
        assert {"HOB-0000000003", "HOB-0000000004", "HOB-0000000005"} <= set(kept)
        assert "HOB-0000000001" not in kept
    with (
        ZooKeeperStore.format(new_uri(zookeeper, "flat")) as store,
        pytest.raises(InvalidArgument, match="no short ledger ids are left"),
    ):
        store.next_id()


def test_forked(stores: tuple[ZooKeeperStore, ZooKeeperStore]) -> None:
    """In a forked child the store is closed, and says so; the parent goes on."""
    one, _ = stores
    one.create(metadata_of(7))
    child = os.fork()
    if child == 0:
        try:
            one.read(7)
        except IllegalOperation as error:
            os._exit(0 if "before a fork" in str(error) else 2)
        os._exit(1)

    assert 0 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert metadata_of(7) == said(one.read(7)).metadata


def test_flat_cluster(zookeeper: ZooKeeperServer) -> None:
    """Flat ids are numbers of nodes beside the ledgers; longer ones have no place."""
    with ZooKeeperStore.format(new_uri(zookeeper, "flat")) as store:
        first = store.next_id()
        store.create(metadata_of(first))
        second = store.next_id()

        assert [first] == store.ledgers()
        assert second.ledger == first.ledger + 2
        assert f"/L{first.ledger:010d}" == store._key_of(first)
        with pytest.raises(InvalidArgument, match="more digits than a flat path"):
            store.create(metadata_of(10**10))


def test_damaged_values(stores: tuple[ZooKeeperStore, ZooKeeperStore]) -> None:
    """A value that cannot be read is named with its path; the others are told all the same."""
    one, _ = stores
    one.create(metadata_of(7))
    one.create(metadata_of(8))
    one.underreplication.mark(9)
    raw, root = raw_client(one), root_of(one)
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
    with pytest.raises(InvalidArgument, match="ZooKeeper accepts at most"):
        stores[0].create(large)

    assert [] == stores[0].ledgers()
    stores[0].create(metadata_of(7, custom_metadata={"a": bytes((1 << 20) - 4096)}))
    assert len(encode(stores[0].read(7).metadata)) > 1 << 19


# -- what is refused


@pytest.mark.parametrize(
    ("layout", "reason"),
    [
        (None, "LAYOUT does not exist: has the cluster been initialized?"),
        (b"2\norg.apache.bookkeeper.meta.FlatLedgerManagerFactory:1", "LAYOUT has flat"),
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
        path = f"{root_of(store)}/LAYOUT"
        if layout is None:
            raw_client(store).delete(path)
        else:
            raw_client(store).set(path, layout)
    with pytest.raises((UnsupportedLayout, CorruptionError)) as caught:
        open_metadata(uri)

    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


MANAGERS = {
    "flat": b"2\norg.apache.bookkeeper.meta.FlatLedgerManagerFactory:1",
    "hierarchical": b"2\norg.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1",
    "longhierarchical": b"2\norg.apache.bookkeeper.meta.LongHierarchicalLedgerManagerFactory:1",
    "": b"2\norg.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1",
}


def _without_layout(zookeeper: ZooKeeperServer, ledger: str | None = None) -> str:
    """Return the root of a cluster that has lost its LAYOUT, with this node in it."""
    uri = new_uri(zookeeper)
    with ZooKeeperStore.format(uri) as store:
        root = root_of(store)
        raw_client(store).delete(f"{root}/LAYOUT")
        if ledger is not None:
            raw_client(store).create(f"{root}/{ledger}", b"", makepath=True)
    return root


@pytest.mark.parametrize("manager", MANAGERS)
def test_a_missing_layout_is_written(zookeeper: ZooKeeperServer, manager: str) -> None:
    """Whoever comes to change something writes LAYOUT, for the URI's manager; whoever reads does
    not. Who comes later with another manager is refused."""
    root = _without_layout(zookeeper)
    scheme = f"zk+{manager}" if manager else "zk"
    uri = f"{scheme}://{zookeeper.address}{root}"
    with pytest.raises(UnsupportedLayout, match="LAYOUT does not exist"):
        open_metadata(uri)
    with pytest.raises(UnsupportedLayout, match="LAYOUT does not exist"):
        ZooKeeperStore(uri, make_layout=False)
    with ZooKeeperStore(uri) as store:
        data, stat = raw_client(store).get(f"{root}/LAYOUT")
        store.create(metadata_of(7))

    assert (MANAGERS[manager], 0) == (data, stat.version)
    with ZooKeeperStore(f"zk://{zookeeper.address}{root}", make_layout=False) as store:
        assert [LedgerId.of(7)] == store.ledgers()
    other = "flat" if manager == "hierarchical" else "hierarchical"
    if manager:
        with pytest.raises(UnsupportedLayout, match=f"LAYOUT has {manager}"):
            ZooKeeperStore(f"zk+{other}://{zookeeper.address}{root}")


@pytest.mark.parametrize(
    ("scheme", "node"),
    [
        ("zk", "L0000000007"),
        ("zk+flat", "00/0000/L0007"),
        ("zk+longhierarchical", "00/0000/L0007"),
    ],
)
def test_no_layout_over_anothers_ledgers(
    zookeeper: ZooKeeperServer, scheme: str, node: str
) -> None:
    """Where ledgers of another manager lie LAYOUT is not guessed: they would count as deleted."""
    root = _without_layout(zookeeper, node)
    with pytest.raises(UnsupportedLayout, match="is not of the ledger manager"):
        ZooKeeperStore(f"{scheme}://{zookeeper.address}{root}")
    right = "zk+flat" if node[0] == "L" else "zk+hierarchical"
    with ZooKeeperStore(f"{right}://{zookeeper.address}{root}") as store:
        assert [LedgerId.of(7)] == store.ledgers()


def test_no_cluster_is_made_by_opening(zookeeper: ZooKeeperServer) -> None:
    """A root that is not there, or has no folder for registrations, gets nothing."""
    root = _without_layout(zookeeper)
    uri = f"zk+hierarchical://{zookeeper.address}{root}"
    with ZooKeeperStore.format(new_uri(zookeeper)) as store:
        raw_client(store).delete(f"{root}/available", recursive=True)
        for place in (uri, f"{uri}/below"):
            with pytest.raises(UnsupportedLayout, match="LAYOUT does not exist"):
                ZooKeeperStore(place)
        left = raw_client(store).get_children(root)

    assert ["INSTANCEID"] == left


def test_a_root_that_goes(stores: tuple[ZooKeeperStore, ZooKeeperStore]) -> None:
    """Ledgers of a root that is gone, or was gone for a while, are not told as none: garbage
    collection would delete all that a bookie has."""
    one, other = stores
    one.create(metadata_of(7))
    raw, root = raw_client(one), root_of(one)
    raw.delete(root, recursive=True)
    for store in stores:
        for ask in (store.ledgers, lambda store=store: store.ledgers(0)):
            with pytest.raises(UnsupportedLayout, match="does not exist"):
                ask()
    raw.create(root)

    assert [] == other.ledgers()


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
    raw, root = raw_client(one), root_of(one)
    raw.set_acls(f"{root}/00/0000/L0007", [make_acl("world", "anyone", read=True, admin=True)])
    with pytest.raises(
        UnauthorizedAccess, match=r"L0007: forbidden by ZooKeeper's access control list"
    ):
        other.write(metadata_of(7), 0)
    raw.set_acls(f"{root}/00/0000/L0007", [make_acl("world", "anyone", write=True, admin=True)])
    for call in (lambda: other.read(7), lambda: list(other.read_many([7]))):
        with pytest.raises(UnauthorizedAccess, match="forbidden"):
            call()
    raw.set_acls(root, [make_acl("world", "anyone", read=True, admin=True)])
    with pytest.raises(UnauthorizedAccess, match="forbidden"):
        other.create(metadata_of(2**40))


def test_marks_of_other_tools(stores: tuple[ZooKeeperStore, ZooKeeperStore]) -> None:
    """A mark set over another counts alone; bookies are added to it by `underreplication`."""
    one, other = stores
    one.mark_underreplicated(7, UnderreplicatedMark(5.0, ("b1",)))

    assert other.underreplication.mark(7, ["b2", "b1"], timed=False)
    assert not other.underreplication.mark(7, ["b2"])
    assert UnderreplicatedMark(5.0, ("b1", "b2")) == one.mark_of(7)
    lock = other.underreplication.lock_any()
    assert lock is not None
    one.underreplication.mark(7, ["b3"], timed=False)
    assert not other.underreplication.mark_replicated(lock)
    assert UnderreplicatedMark(5.0, ("b1", "b2", "b3")) == one.mark_of(7)
    assert one.underreplication.holder(7) is None
