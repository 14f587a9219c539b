"""Create clusters, with the nodes of `initnewcluster`, in one transaction; and empty clusters.

A scope is the upper 64 bits of a 128-bit ledger id; BookKeeper's ledgers are in scope 0. Source:
`meta/zk/ZKMetadataDriverBase`, `meta/AbstractZkLedgerManagerFactory`,
`discover/ZKRegistrationManager.initNewCluster`; for `clear_cluster` what `metaformat -force` does.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from typing import get_args

from bkstore.cluster.store.api import Value
from bkstore.cluster.store.zookeeper.connection import ZooKeeperConnection, forbidden_error
from bkstore.cluster.store.zookeeper.kazoo_client import (
    FORBIDDEN_ERRORS,
    UNCERTAIN_ERRORS,
    KazooTimeoutError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
)
from bkstore.cluster.store.zookeeper.ledger_tree import LedgerTree
from bkstore.cluster.store.zookeeper.nodes import Nodes
from bkstore.errors import BadVersion, IllegalOperation, UnsupportedLayout
from bkstore.formats.metadata.ledger_layout import LedgerLayout, Manager, encode_layout

_REMOVED_NODES = frozenset({"cookies", "idgen", "idgen-long"})
_MARKS_AND_LOCKS = ("underreplication/ledgers", "underreplication/locks")


def create_cluster(
    connection: ZooKeeperConnection, root: str, manager: Manager, instance_id: str | None = None
) -> str:
    """Create the nodes of a new cluster and the folders above; return its instance id. Raises
    `IllegalOperation` if the root exists, unless made by this call before a broken connection."""
    instance = str(uuid.uuid4()) if instance_id is None else instance_id
    _create_parents(connection, root)
    deadline = time.monotonic() + connection.timeout
    repeated = False
    while True:
        try:
            results = _create_nodes(connection, root, manager, instance)
        except UNCERTAIN_ERRORS:
            if time.monotonic() > deadline:
                raise connection.unavailable_error(root, "create") from None
            repeated = True
            continue
        is_created = isinstance(results[0], str)  # the path of the new root; otherwise an error
        if is_created or (repeated and _read_instance_id(connection, root) == instance):
            return instance
        for result in results:
            if isinstance(result, NodeExistsError):
                raise IllegalOperation(f"{root} already exists; nothing was changed")
            if isinstance(result, FORBIDDEN_ERRORS):
                raise forbidden_error(root)
        raise IllegalOperation(f"{root} was not created: {results!r:.200}")


def create_layout(nodes: Nodes, manager: Manager) -> Value | None:
    """Write LAYOUT into a cluster that has none, and return the value that is there then. Returns
    None, and writes nothing, if there is no folder for registrations: that is no cluster. Raises
    `UnsupportedLayout` for ledgers of another manager, which this one cannot find."""
    try:
        names = nodes.connection.request(nodes.root, "get_children")
    except NoNodeError:
        return None
    if "available" not in names:
        return None
    tree = LedgerTree(manager)
    for path in (f"/{name}" for name in names):
        if _has_ledgers(path) and not tree.is_folder(path) and tree.parse_path(path) is None:
            raise UnsupportedLayout(
                f"{nodes.location_of('/LAYOUT')} is not there, and {path[1:]} is not of the ledger "
                f"manager {manager}; give the right one in the service URI"
            )
    with suppress(BadVersion):  # another client was first
        nodes.create("/LAYOUT", encode_layout(LedgerLayout.of(manager)))
    return nodes.get("/LAYOUT")


def _create_nodes(
    connection: ZooKeeperConnection, root: str, manager: Manager, instance: str
) -> Sequence[object]:
    """Create all nodes or none; return a result for each, which may be an error."""
    transaction = connection.client.transaction()
    for folder in ("", "/available", "/available/readonly"):
        transaction.create(f"{root}{folder}", b"")
    transaction.create(f"{root}/INSTANCEID", instance.encode("ascii"))
    transaction.create(f"{root}/LAYOUT", encode_layout(LedgerLayout.of(manager)))
    try:
        return list(transaction.commit_async().get(timeout=connection.timeout))
    except KazooTimeoutError:
        raise connection.unavailable_error(root, "create") from None


def _create_parents(connection: ZooKeeperConnection, root: str) -> None:
    """Create the nodes above `root` that do not exist."""
    parent = root.rpartition("/")[0]
    if parent and connection.request(parent, "exists") is None:
        _create_parents(connection, parent)
        with suppress(NodeExistsError):
            connection.request(parent, "create", b"")


def _read_instance_id(connection: ZooKeeperConnection, root: str) -> str | None:
    try:
        data, _ = connection.request(f"{root}/INSTANCEID", "get")
    except NoNodeError:
        return None
    return str((data or b"").decode("ascii", "replace"))


def clear_cluster(nodes: Nodes, manager: Manager, instance_id: str | None = None) -> str:
    """Remove a cluster's ledgers, ids, cookies, marks, locks and scopes; return its new id. If
    interrupted, call it again. Registered bookies stay, and so do the auditors' settings, check
    times and votes. Raises `CorruptionError`, and removes nothing, as `Nodes.check_scopes_root`."""
    instance = str(uuid.uuid4()) if instance_id is None else instance_id
    connection, root = nodes.connection, nodes.root
    nodes.check_scopes_root(of_any_cluster=True)
    for name in connection.request(root, "get_children"):
        if name in _REMOVED_NODES or _has_ledgers(f"/{name}"):
            _remove_tree(connection, f"{root}/{name}")
    for folder in _MARKS_AND_LOCKS:
        _remove_tree(connection, f"{root}/{folder}")
    _remove_tree(connection, nodes.scopes_root)
    layout = encode_layout(LedgerLayout.of(manager))
    for name, data in (("LAYOUT", layout), ("INSTANCEID", instance.encode("ascii"))):
        _remove_tree(connection, f"{root}/{name}")
        nodes.create(f"/{name}", data)
    return instance


def _has_ledgers(path: str) -> bool:
    trees = map(LedgerTree, get_args(Manager))
    return any(tree.is_folder(path) or tree.parse_path(path) is not None for tree in trees)


def _remove_tree(connection: ZooKeeperConnection, path: str) -> None:
    """Remove a node and everything below it, also nodes that are added meanwhile."""
    while True:
        try:
            for name in connection.request(path, "get_children"):
                _remove_tree(connection, f"{path}/{name}")
            connection.request(path, "delete")
        except NotEmptyError:
            continue
        except NoNodeError:
            pass
        return
