"""PulsarNodes: the nodes of Pulsar's metadata store, wherever they are, by path."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol

from bkstore.errors import CorruptionError

_MAX_NAME_BYTES = 255  # of a file, on common file systems

MANAGED_LEDGERS, SCHEMAS = "/managed-ledgers", "/schemas"


class NodeValue(NamedTuple):
    """A node's value. `version` counts its changes, `modified` is when it was last changed, in
    milliseconds since 1970; -1 = unknown."""

    data: bytes
    version: int = -1
    modified: int = -1


class PulsarNodes(Protocol):
    """Nodes below `/managed-ledgers` and `/schemas`. Paths are those of Pulsar, without its root.

    `is_live`: brokers may change the nodes. `is_complete`: a tree that is not there is empty, as in
    a metadata store; in a copy it may have been left out.
    """

    is_live: bool
    is_complete: bool

    @property
    def read_at(self) -> int | None:
        """When the copy was made, in milliseconds, as far as it has been read; None = now."""

    def list_children(self, paths: Iterable[str]) -> Iterator[list[str] | None]:
        """Yield the names of the children of each node, sorted; None for a node that is absent."""

    def read_many(self, paths: Iterable[str]) -> Iterator[NodeValue | CorruptionError | None]:
        """Yield the value of each node, None if it is absent, or why it cannot be read."""

    def location_of(self, path: str) -> str:
        """Return where a node is, for messages."""

    def close(self) -> None:
        """Release what the source holds."""


def has_long_name(path: str) -> bool:
    """Return whether a folder cannot have a node of this path: a name is too long for a file."""
    return any(len(part.encode()) > _MAX_NAME_BYTES for part in path.split("/"))


def name_too_long(file: str) -> CorruptionError:
    """Return why a node is unknown that is not in a copied folder for that reason."""
    return CorruptionError(file, None, "the name is too long for a file of the copy")


class MemoryNodes:
    """Nodes of a mapping from paths to values, such as an export's. Folders need no value.

    >>> nodes = MemoryNodes({"/managed-ledgers/shop/orders/persistent/paid": NodeValue(b"")})
    >>> list(nodes.list_children(["/managed-ledgers/shop", "/schemas"]))
    [['orders'], None]
    """

    is_live = False

    def __init__(
        self,
        values: Mapping[str, NodeValue | CorruptionError],
        source: str = "",
        *,
        read_at: int | None = None,
        is_complete: bool = True,
    ) -> None:
        self.values = dict(values)
        self.read_at = read_at
        self.is_complete = is_complete
        self._source = source
        self._children: defaultdict[str, set[str]] = defaultdict(set)
        for path in values:
            self._children[path]
            while path:
                path, _, child = path.rpartition("/")
                self._children[path].add(child)

    def list_children(self, paths: Iterable[str]) -> Iterator[list[str] | None]:
        """As `PulsarNodes.list_children`."""
        for path in paths:
            yield sorted(self._children[path]) if path in self._children else None

    def read_many(self, paths: Iterable[str]) -> Iterator[NodeValue | CorruptionError | None]:
        """As `PulsarNodes.read_many`."""
        for path in paths:
            value = self.values.get(path)
            if value is None and not self.is_complete and has_long_name(path):
                value = name_too_long(self.location_of(path))  # in the folder that was exported
            yield value

    def location_of(self, path: str) -> str:
        """Return the path, after the file that it was read from."""
        return f"{self._source}: {path}" if self._source else path

    def close(self) -> None:
        """Do nothing."""
