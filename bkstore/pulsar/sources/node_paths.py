"""The paths of managed ledgers and schema locators: which nodes of a tree are which."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from bkstore.pulsar.sources.nodes import MANAGED_LEDGERS, SCHEMAS, PulsarNodes

_PERSISTENT = "persistent"


def list_managed_ledgers(nodes: PulsarNodes) -> list[str] | None:
    """Return the names of all topics' managed ledgers, sorted; None if their tree does not exist.

    They are ``TENANT/NAMESPACE/persistent/TOPIC``, or of the old form with a cluster after the
    tenant. Other nodes below `/managed-ledgers` are not of topics. One request for each folder.
    """
    if next(nodes.list_children([MANAGED_LEDGERS])) is None:
        return None
    namespaces = _descend(nodes, _descend(nodes, [MANAGED_LEDGERS]))
    domains = _descend(nodes, namespaces)
    # Names of the old form have their domain one level deeper.
    old_domains = _descend(nodes, (path for path in domains if not _is_domain(path)))
    folders = [path for path in (*domains, *old_domains) if _is_domain(path)]
    prefix_length = len(MANAGED_LEDGERS) + 1
    return sorted(path[prefix_length:] for path in _descend(nodes, folders))


def list_schemas(nodes: PulsarNodes) -> list[str] | None:
    """Return the paths of all schema locators, sorted; None if their tree does not exist. They are
    the nodes below ``/schemas/TENANT/NAMESPACE`` that have no children."""
    if next(nodes.list_children([SCHEMAS])) is None:
        return None
    paths = _descend(nodes, _descend(nodes, _descend(nodes, [SCHEMAS])))
    locators = []
    while paths:
        folders = []
        for path, children in zip(paths, nodes.list_children(paths)):
            if children:
                folders.append(path)
            elif children is not None:
                locators.append(path)
        paths = _descend(nodes, folders)
    return sorted(locators)


def list_nodes(nodes: PulsarNodes, tree: str) -> list[str] | None:
    """Return the paths of all nodes below a tree's root, down to the cursors of topics, sorted;
    None if the tree does not exist. One request for each node that is no cursor."""
    if next(nodes.list_children([tree])) is None:
        return None
    paths: list[str] = []
    level = [tree]
    while level := _descend(nodes, level):
        paths += level
        level = [path for path in level if not _is_cursor(path)]
    return sorted(paths)


def is_topic(path: str) -> bool:
    """Return whether a path may be that of a topic: below the domain of a namespace."""
    is_below = path.startswith(f"{MANAGED_LEDGERS}/") and path.count("/") in (5, 6)
    return is_below and _is_domain(path.rpartition("/")[0])


def _is_cursor(path: str) -> bool:
    # Of a path with "persistent" twice, either may be the domain: then it counts as a topic.
    return is_topic(path.rpartition("/")[0]) and not is_topic(path)


def _is_domain(path: str) -> bool:
    return path.endswith(f"/{_PERSISTENT}")


def _descend(nodes: PulsarNodes, paths: Iterable[str]) -> list[str]:
    """Return the paths of all children of these nodes."""
    parents = list(paths)
    return [
        f"{parent}/{child}"
        for parent, children in zip(parents, nodes.list_children(parents))
        for child in children or ()
    ]


def chunks(items: Iterable[str], size: int) -> Iterator[list[str]]:
    """Yield lists of at most `size` items."""
    remaining = iter(items)
    while chunk := list(islice(remaining, size)):
        yield chunk
