"""Names of Pulsar's topics: as URLs, as names of managed ledgers, and as elements of paths.

A managed ledger of the topic ``persistent://shop/orders/paid today`` is named
``shop/orders/persistent/paid+today``: the local name is one element, encoded as Java's `URLEncoder`
does. Source: Pulsar's `TopicName` and `Codec`.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import quote_plus, unquote_plus

# A number with leading zeros is none of a partition, as in Pulsar.
_PARTITION = re.compile(r"(.+)-partition-(0|[1-9][0-9]{0,8})", re.DOTALL)
# What ZooKeeper refuses in paths: control characters, and some that cannot be displayed.
_REFUSED_IN_PATHS = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")
_PERSISTENT = "persistent"


class TopicName(NamedTuple):
    """A persistent topic. `namespace` includes the tenant, and for names of the old form the
    cluster; `local_name` is decoded and includes the suffix of a partition."""

    namespace: str
    local_name: str

    @property
    def tenant(self) -> str:
        """The tenant: the first part of the namespace."""
        return self.namespace.partition("/")[0]

    @property
    def url(self) -> str:
        """The topic as clients name it, ``persistent://TENANT/NAMESPACE/NAME``."""
        return f"{_PERSISTENT}://{self.namespace}/{self.local_name}"

    @property
    def partition(self) -> int | None:
        """The number of the partition, None if the topic is not one."""
        match = _PARTITION.fullmatch(self.local_name)
        return int(match[2]) if match else None

    @property
    def partitioned_url(self) -> str:
        """The URL without the suffix of a partition: the topic that clients use."""
        match = _PARTITION.fullmatch(self.local_name)
        return f"{_PERSISTENT}://{self.namespace}/{match[1]}" if match else self.url

    @property
    def managed_ledger(self) -> str:
        """The name of the topic's managed ledger: its path below ``/managed-ledgers``."""
        return f"{self.namespace}/{_PERSISTENT}/{encode_element(self.local_name)}"


def encode_element(name: str) -> str:
    """Return a name as one element of a path, encoded as by Java's `URLEncoder` with UTF-8.

    >>> encode_element("a/b ~ü*")
    'a%2Fb+%7E%C3%BC*'
    """
    return quote_plus(name, safe="*").replace("~", "%7E")


def decode_element(element: str) -> str:
    """Return the name that a path's element encodes; unchanged if it does not encode UTF-8.

    >>> decode_element("a%2Fb+%7E"), decode_element("%FF")
    ('a/b ~', '%FF')
    """
    try:
        return unquote_plus(element, errors="strict")
    except UnicodeDecodeError:
        return element


def decode_if_encoded(name: str) -> str:
    """Return the name that a text encodes, or the text, if encoding writes that name differently:
    for names that brokers encode, and other writers do not.

    >>> decode_if_encoded("my+sub"), decode_if_encoded("my sub+")
    ('my sub', 'my sub+')
    """
    decoded = decode_element(name)
    return decoded if encode_element(decoded) == name else name


def is_node_path(path: str) -> bool:
    """Return whether a metadata store can have a node of this path below a root, as ZooKeeper
    defines it: no element is empty, ``.`` or ``..``, and none has control characters.

    >>> is_node_path("shop/orders/persistent/paid"), is_node_path("shop/../paid")
    (True, False)
    """
    has_names = not {"", ".", ".."} & set(path.split("/"))
    return has_names and _REFUSED_IN_PATHS.search(path) is None


def parse_managed_ledger(managed_ledger: str) -> TopicName | None:
    """Return the topic of a managed ledger's name, None if it is not the name of a topic. Names
    with a cluster between tenant and namespace, as before Pulsar 2, are recognized.

    >>> parse_managed_ledger("shop/orders/persistent/paid+today").url
    'persistent://shop/orders/paid today'
    >>> parse_managed_ledger("shop/west/orders/persistent/paid").namespace
    'shop/west/orders'
    """
    parts = managed_ledger.split("/")
    if len(parts) not in (4, 5) or parts[-2] != _PERSISTENT or "" in parts:
        return None
    return TopicName("/".join(parts[:-2]), decode_element(parts[-1]))


def parse_topic_url(url: str) -> TopicName | None:
    """Return the topic of a URL, None if it is not a persistent topic's. All after the namespace is
    the local name, which may contain slashes; the old form with a cluster cannot be distinguished.

    >>> parse_topic_url("persistent://shop/orders/paid-partition-3").partition
    3
    """
    domain, separator, path = url.partition("://")
    topic = parse_topic_path(path)
    return topic if separator and domain == _PERSISTENT else None


def parse_topic_path(path: str) -> TopicName | None:
    """Return the topic of ``TENANT/NAMESPACE/NAME``, as in ids of schemas; None if it is none."""
    tenant, namespace, local_name = (*path.split("/", 2), "", "")[:3]  # absent parts are empty
    if not (tenant and namespace and local_name):
        return None
    return TopicName(f"{tenant}/{namespace}", local_name)
