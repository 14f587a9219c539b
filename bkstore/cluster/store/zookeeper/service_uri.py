"""Service URIs: the location of a cluster's metadata, in BookKeeper's syntax.

``zk+hierarchical://host:port;host:port/ledgers``: the ledger manager, servers, the ledgers root.
Source: `meta/zk/ZKMetadataDriverBase`, `meta/MetadataDrivers`.
"""

from __future__ import annotations

import re
from typing import NamedTuple, get_args

from bkstore.errors import InvalidArgument, UnsupportedLayout
from bkstore.formats.metadata.ledger_layout import Manager

EXAMPLE_URI = "zk+hierarchical://host:2181/ledgers"
_DEFAULT_PORT = 2181

_URI = re.compile(r"([A-Za-z][A-Za-z0-9.-]*)((?:\+[A-Za-z0-9]*)*)://([^/]*)(.*)", re.DOTALL)
_SERVER = re.compile(r"((?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]))(?::([0-9]{1,5}))?")
_ROOT = re.compile(r"(?:/(?!\.\.?(?:/|$))[!-.0-~]+)+")
_MANAGERS: dict[str, Manager | None] = {name: name for name in get_args(Manager)}
_MANAGERS |= {"": None, "null": None}
_UNSUPPORTED_MANAGERS = ("ms", "legacyhierarchical")


class ServiceUri(NamedTuple):
    """A parsed service URI. `manager` None = the one of the cluster's LAYOUT."""

    manager: Manager | None
    servers: tuple[str, ...]
    root: str

    def __str__(self) -> str:
        scheme = "zk" if self.manager is None else f"zk+{self.manager}"
        return f"{scheme}://{';'.join(self.servers)}{self.root}"


def is_service_uri(text: object) -> bool:
    """Return whether a string has the syntax of a service URI of any kind.

    >>> is_service_uri("zk://localhost:2181/ledgers"), is_service_uri("metadata.json")
    (True, False)
    """
    return isinstance(text, str) and _URI.fullmatch(text) is not None


def parse_service_uri(text: str) -> ServiceUri:
    """Parse a service URI; the default port is 2181.

    Raises `InvalidArgument` if it is none of ZooKeeper's, `UnsupportedLayout` for ledger managers
    that only BookKeeper has.

    >>> parse_service_uri("zk+flat://a:2181;b/bk/ledgers")
    ServiceUri(manager='flat', servers=('a:2181', 'b:2181'), root='/bk/ledgers')
    """
    uri_match = _URI.fullmatch(text)
    if uri_match is None or uri_match[1].lower() != "zk":
        raise InvalidArgument(f"{text!r} is not a service URI of ZooKeeper, such as {EXAMPLE_URI}")
    manager_suffix, server_list, root = uri_match.group(2, 3, 4)
    manager_name = manager_suffix[1:].lower()  # without the plus sign
    if manager_name in _UNSUPPORTED_MANAGERS:
        raise UnsupportedLayout(f"{text}: the ledger manager {manager_name} is not supported")
    if manager_name not in _MANAGERS:
        known = ", ".join(manager for manager in _MANAGERS.values() if manager)
        message = f"{text}: unknown ledger manager {manager_name!r}, known are: {known}"
        raise InvalidArgument(message)
    servers = tuple(_parse_server(text, word) for word in server_list.split(";"))
    if not _ROOT.fullmatch(root):
        reason = f"{root!r} is not a ledgers root" if root else "it lacks the ledgers root"
        raise InvalidArgument(f"{text}: {reason}, such as /ledgers")
    return ServiceUri(_MANAGERS[manager_name], servers, root)


def _parse_server(text: str, word: str) -> str:
    """Return ``host:port`` of one server in a URI; `text` is the whole, for errors."""
    server_match = _SERVER.fullmatch(word)
    port = int(server_match[2] or _DEFAULT_PORT) if server_match else 0
    if server_match is None or not 0 < port <= 0xFFFF:
        hint = ": separate servers by ;" if "," in word else ""
        raise InvalidArgument(f"{text}: {word!r} is not host:port{hint}")
    return f"{server_match[1]}:{port}"
