"""Service URIs: where a cluster's metadata are, as upstream writes it.

``zk+hierarchical://host:port;host:port/ledgers``: the ledger manager behind the plus, servers
with semicolons between, the ledgers root as path. Source: `meta/zk/ZKMetadataDriverBase`,
`meta/MetadataDrivers`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from bkstore.errors import InvalidArgument, UnsupportedLayout
from bkstore.formats.metadata.ledger_layout import Manager

EXAMPLE = "zk+hierarchical://host:2181/ledgers"
_DEFAULT_PORT = 2181

_URI = re.compile(r"([A-Za-z][A-Za-z0-9.-]*)((?:\+[A-Za-z0-9]*)*)://([^/]*)(.*)", re.DOTALL)
_SERVER = re.compile(r"((?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]))(?::([0-9]{1,5}))?")
_ROOT = re.compile(r"(?:/(?!\.\.?(?:/|$))[!-.0-~]+)+")
_MANAGERS: dict[str, Manager | None] = {
    "": None,
    "null": None,
    "flat": "flat",
    "hierarchical": "hierarchical",
    "longhierarchical": "longhierarchical",
}
_NOT_HERE = ("ms", "legacyhierarchical")


class ServiceUri(NamedTuple):
    """What a service URI says. `manager` None = the one that the cluster's LAYOUT names."""

    manager: Manager | None
    servers: tuple[str, ...]
    root: str

    def __str__(self) -> str:
        scheme = "zk" if self.manager is None else f"zk+{self.manager}"
        return f"{scheme}://{';'.join(self.servers)}{self.root}"


def is_service_uri(text: object) -> bool:
    """Return whether a word is written like a service URI of any kind, not like a path.

    >>> is_service_uri("zk://localhost:2181/ledgers"), is_service_uri("metadata.json")
    (True, False)
    """
    return isinstance(text, str) and _URI.fullmatch(text) is not None


def parse_service_uri(text: str) -> ServiceUri:
    """Return what a service URI says; the port is 2181 where none is given.

    Raises `InvalidArgument` for what is none of ZooKeeper's, `UnsupportedLayout` for ledger
    managers that upstream has and bkstore has not.

    >>> parse_service_uri("zk+flat://a:2181;b/bk/ledgers")
    ServiceUri(manager='flat', servers=('a:2181', 'b:2181'), root='/bk/ledgers')
    """
    found = _URI.fullmatch(text)
    scheme = found[1].lower() if found else ""
    if found is None or scheme != "zk":
        raise InvalidArgument(f"{text!r} is no service URI of ZooKeeper, such as {EXAMPLE}")
    name = found[2][1:].lower()
    if name in _NOT_HERE:
        raise UnsupportedLayout(f"{text}: the ledger manager {name} is not supported")
    if name not in _MANAGERS:
        known = ", ".join(manager for manager in _MANAGERS.values() if manager)
        raise InvalidArgument(f"{text}: there is no ledger manager {name!r}: {known}")
    servers = tuple(_server(text, word) for word in found[3].split(";"))
    if not _ROOT.fullmatch(found[4]):
        reason = f"{found[4]!r} is no ledgers root" if found[4] else "the ledgers root is missing"
        raise InvalidArgument(f"{text}: {reason}, such as /ledgers")
    return ServiceUri(_MANAGERS[name], servers, found[4])


def _server(text: str, word: str) -> str:
    found = _SERVER.fullmatch(word)
    port = _DEFAULT_PORT if found is None or found[2] is None else int(found[2])
    if found is None or not 0 < port <= 0xFFFF:
        hint = ": servers have ; between them" if "," in word else ""
        raise InvalidArgument(f"{text}: {word!r} is no host:port{hint}")
    return f"{found[1]}:{port}"
