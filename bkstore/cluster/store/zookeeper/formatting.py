"""New clusters: the nodes that `initnewcluster` makes, at once or not at all; and emptied ones.

Source: `meta/zk/ZKMetadataDriverBase`, `meta/AbstractZkLedgerManagerFactory`,
`discover/ZKRegistrationManager.initNewCluster`, and for `empty_cluster` what `metaformat -force`
was seen to remove and to leave.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from typing import get_args

from bkstore.cluster.store.api import Value
from bkstore.cluster.store.zookeeper.connection import Connection, forbidden
from bkstore.cluster.store.zookeeper.kazoo_client import (
    FORBIDDEN,
    UNCERTAIN,
    KazooTimeoutError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
)
from bkstore.cluster.store.zookeeper.ledger_tree import LedgerTree
from bkstore.cluster.store.zookeeper.nodes import Nodes
from bkstore.errors import BadVersion, IllegalOperation, UnsupportedLayout
from bkstore.formats.metadata.ledger_layout import LedgerLayout, Manager, encode_layout

_EMPTIED = frozenset({"cookies", "idgen", "idgen-long"})
_MARKS_AND_LOCKS = ("underreplication/ledgers", "underreplication/locks")


def make_cluster(
    connection: Connection, root: str, manager: Manager, instance_id: str | None = None
) -> str:
    """Make the nodes of a new cluster, folders above them too; return its instance id.

    `IllegalOperation` if the root is there. After a connection that broke it is tried again, and
    a cluster that has this instance id is then its own.
    """
    instance = str(uuid.uuid4()) if instance_id is None else instance_id
    _make_folders_above(connection, root)
    until = time.monotonic() + connection.timeout
    repeated = False
    while True:
        try:
            results = _transaction(connection, root, manager, instance)
        except UNCERTAIN:
            if time.monotonic() > until:
                raise connection.unavailable(root, "create") from None
            repeated = True
            continue
        if isinstance(results[0], str) or (repeated and _instance_at(connection, root) == instance):
            return instance
        for result in results:
            if isinstance(result, NodeExistsError):
                raise IllegalOperation(f"{root} is there already: nothing was changed")
            if isinstance(result, FORBIDDEN):
                raise forbidden(root)
        raise IllegalOperation(f"{root} was not made: {results!r:.200}")


def add_layout(nodes: Nodes, manager: Manager) -> Value | None:
    """Write LAYOUT into a cluster that has none, and return the one that is there then.

    None, and nothing is written, where there is no folder for registrations: that is no cluster.
    `UnsupportedLayout` where another manager's ledgers are: this one would find none of them.
    """
    try:
        names = nodes.connection.ask(nodes.root, "get_children")
    except NoNodeError:
        return None
    if "available" not in names:
        return None
    tree = LedgerTree(manager)
    for path in (f"/{name}" for name in names):
        if _has_ledgers(path) and not tree.is_folder(path) and tree.ledger(path) is None:
            raise UnsupportedLayout(
                f"{nodes.where('/LAYOUT')} is not there, and {path[1:]} is not of the ledger "
                f"manager {manager}: name the right one in the service URI"
            )
    with suppress(BadVersion):  # another was first
        nodes.create("/LAYOUT", encode_layout(LedgerLayout.of(manager)))
    return nodes.get("/LAYOUT")


def _transaction(
    connection: Connection, root: str, manager: Manager, instance: str
) -> Sequence[object]:
    """Make all nodes or none; return an answer for each, which may be an error."""
    request = connection.client.transaction()
    request.create(root, b"")
    request.create(f"{root}/available", b"")
    request.create(f"{root}/available/readonly", b"")
    request.create(f"{root}/INSTANCEID", instance.encode("ascii"))
    request.create(f"{root}/LAYOUT", encode_layout(LedgerLayout.of(manager)))
    try:
        return list(request.commit_async().get(timeout=connection.timeout))
    except KazooTimeoutError:
        raise connection.unavailable(root, "create") from None


def _make_folders_above(connection: Connection, root: str) -> None:
    above = root.rpartition("/")[0]
    if above and connection.ask(above, "exists") is None:
        _make_folders_above(connection, above)
        try:
            connection.ask(above, "create", b"")
        except NodeExistsError:
            return


def _instance_at(connection: Connection, root: str) -> str | None:
    try:
        data, _ = connection.ask(f"{root}/INSTANCEID", "get")
    except NoNodeError:
        return None
    return str((data or b"").decode("ascii", "replace"))


def empty_cluster(nodes: Nodes, manager: Manager, instance_id: str | None = None) -> str:
    """Remove ledgers, ids, cookies, marks and locks of a cluster, and its scopes.

    Returns its new instance id. What broke off is ended by calling it again. Registered bookies
    stay, and so do the auditors' settings, check times and votes. `CorruptionError`, and nothing
    is removed, if what lies beside the root is no folder of scopes.
    """
    instance = str(uuid.uuid4()) if instance_id is None else instance_id
    connection, root = nodes.connection, nodes.root
    nodes.check_beside(of_any_cluster=True)
    for name in connection.ask(root, "get_children"):
        if name in _EMPTIED or _has_ledgers(f"/{name}"):
            _remove(connection, f"{root}/{name}")
    for folder in _MARKS_AND_LOCKS:
        _remove(connection, f"{root}/{folder}")
    _remove(connection, nodes.beside)
    for name, data in (
        ("LAYOUT", encode_layout(LedgerLayout.of(manager))),
        ("INSTANCEID", instance.encode("ascii")),
    ):
        _remove(connection, f"{root}/{name}")
        nodes.create(f"/{name}", data)
    return instance


def _has_ledgers(path: str) -> bool:
    trees = map(LedgerTree, get_args(Manager))
    return any(tree.is_folder(path) or tree.ledger(path) is not None for tree in trees)


def _remove(connection: Connection, path: str) -> None:
    """Remove a node with all below it; what others put there meanwhile goes too."""
    while True:
        try:
            for name in connection.ask(path, "get_children"):
                _remove(connection, f"{path}/{name}")
            connection.ask(path, "delete")
        except NotEmptyError:
            continue
        except NoNodeError:
            pass
        return
