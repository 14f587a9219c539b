"""Trees that real clusters left in ZooKeeper, and how they are put into one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bkstore.cluster import ZooKeeperStore
from tests.golden.data import load_json

NAMES = ("flat", "hierarchical", "longhierarchical")


def documents(golden: Path) -> Mapping[str, Any]:
    """Return the documents of the clusters by name."""
    return {name: load_json(golden / "zookeeper" / f"{name}.json") for name in NAMES}


def manager(document: Any) -> str:
    """Return the ledger manager of a cluster."""
    return str(document["uri_scheme"].partition("+")[2])


def raw(store: ZooKeeperStore) -> Any:
    """Return the kazoo client of a store."""
    return store._connection.client


def put_tree(client: Any, top: str, tree: Mapping[str, Any]) -> None:
    """Make the nodes of a tree below `top`, with their values, versions and kinds."""
    client.ensure_path(top)
    waiting = []
    for path, node in sorted(tree.items()):
        data = bytes.fromhex(node["data_hex"] or "")
        waiting.append(client.create_async(top + path, data, ephemeral=node["ephemeral"]))
        waiting += [client.set_async(top + path, data) for _ in range(node["version"])]
    for each in waiting:
        each.get(timeout=60)


def tree_of(client: Any, top: str) -> dict[str, tuple[bytes, int, bool, str]]:
    """Return the nodes below `top`: value, version, whether ephemeral, access list, by path."""
    found = {}
    level = [top]
    while level:
        asked = [
            (
                path,
                client.get_async(path),
                client.get_acls_async(path),
                client.get_children_async(path),
            )
            for path in level
        ]
        level = []
        for path, value, access, names in asked:
            (data, stat), (acls, _) = value.get(), access.get()
            said = " ".join(f"{acl.id.scheme}:{acl.id.id}:{acl.perms}" for acl in acls)
            node = (data or b"", stat.version, stat.ephemeralOwner != 0, said)
            found[path.removeprefix(top)] = node
            level += [f"{path}/{name}" for name in names.get()]
    del found[""]
    return found


def golden_tree(tree: Mapping[str, Any]) -> dict[str, tuple[bytes, int, bool, str]]:
    """Return a recorded tree in the form of `tree_of`."""
    return {
        path: (
            bytes.fromhex(node["data_hex"] or ""),
            node["version"],
            node["ephemeral"],
            " ".join(node["acl"]),
        )
        for path, node in tree.items()
    }
