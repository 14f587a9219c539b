"""New clusters: the nodes that `initnewcluster` makes, at once or not at all.

Source: `meta/zk/ZKMetadataDriverBase`, `discover/ZKRegistrationManager.initNewCluster`.
"""

from __future__ import annotations

import uuid

from bkstore.cluster.store.zookeeper.connection import Connection, forbidden
from bkstore.cluster.store.zookeeper.kazoo_client import (
    FORBIDDEN,
    UNCERTAIN,
    KazooTimeoutError,
    NodeExistsError,
    NoNodeError,
)
from bkstore.errors import IllegalOperation, MetadataUnavailable
from bkstore.formats.metadata.ledger_layout import LedgerLayout, Manager, encode_layout

__all__ = ["make_cluster"]


def make_cluster(
    connection: Connection, root: str, manager: Manager, instance_id: str | None = None
) -> str:
    """Make the nodes of a new cluster, folders above them too; return its instance id.

    `IllegalOperation` if the root is there. After a connection that broke it is looked whether
    they were made: `MetadataUnavailable` is raised only where nobody answers.
    """
    instance = str(uuid.uuid4()) if instance_id is None else instance_id
    _make_folders_above(connection, root)
    request = connection.client.transaction()
    request.create(root, b"")
    request.create(f"{root}/available", b"")
    request.create(f"{root}/available/readonly", b"")
    request.create(f"{root}/INSTANCEID", instance.encode("ascii"))
    request.create(f"{root}/LAYOUT", encode_layout(LedgerLayout.of(manager)))
    try:
        results = request.commit_async().get(timeout=connection.timeout)
    except UNCERTAIN:
        if _instance_at(connection, root) == instance:
            return instance
        raise MetadataUnavailable(f"{root}: the connection broke while it was made") from None
    except KazooTimeoutError:
        raise connection.unavailable(root, "create") from None
    for result in results:
        if isinstance(result, NodeExistsError):
            raise IllegalOperation(f"{root} is there already: nothing was changed")
        if isinstance(result, FORBIDDEN):
            raise forbidden(root)
    if not isinstance(results[0], str):
        raise IllegalOperation(f"{root} was not made: {results!r:.200}")
    return instance


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
