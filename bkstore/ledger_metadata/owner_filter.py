"""OwnerFilter: choose ledgers by patterns of their owners' names."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from bkstore.ledger_metadata.owners import LedgerOwner
from bkstore.ledger_metadata.topic_names import parse_topic_path, parse_topic_url


@dataclass(frozen=True, slots=True)
class OwnerFilter:
    """Patterns of shells (``*``, ``?``, ``[abc]``), None = any. A ledger must match all of them.

    `topic` is matched with the topic's URL and with the URL of the whole partitioned topic, both
    also without ``persistent://``, and with the topics of schemas. `namespace` is matched with
    ``TENANT/NAMESPACE`` and with the last part alone. `component` is Pulsar's word, or another
    application's. A ledger of an unknown owner matches no pattern.

    >>> from bkstore.ledger_metadata.owners import owner_of_topic
    >>> owner = owner_of_topic(parse_topic_path("shop/orders/paid-partition-0"), "managed-ledger")
    >>> [OwnerFilter(topic=topic).matches(owner) for topic in ("shop/orders/paid", "*/refunds")]
    [True, False]
    """

    topic: str | None = None
    namespace: str | None = None
    tenant: str | None = None
    component: str | None = None

    def __bool__(self) -> bool:
        patterns = (self.topic, self.namespace, self.tenant, self.component)
        return any(pattern is not None for pattern in patterns)

    def matches(self, owner: LedgerOwner) -> bool:
        """Return whether a ledger of this owner is chosen. O(length of the names)."""
        # A pattern may be of the namespace with its tenant, or of its last part alone.
        namespace = owner.namespace
        namespaces = () if namespace is None else (namespace, namespace.rpartition("/")[2])
        return (
            _matches(self.topic, _topic_names(owner))
            and _matches(self.namespace, namespaces)
            and _matches(self.tenant, [owner.tenant])
            and _matches(self.component, [owner.component])
        )


def _matches(pattern: str | None, names: Iterable[str | None]) -> bool:
    if pattern is None:
        return True
    return any(name is not None and fnmatchcase(name, pattern) for name in names)


def _topic_names(owner: LedgerOwner) -> set[str]:
    """Return the names by which a topic may be chosen, empty if the owner has none."""
    topic = parse_topic_url(owner.topic or "") or parse_topic_path(owner.schema or "")
    if topic is None:
        return set()
    urls = {topic.url, topic.partitioned_url}
    return urls | {url.partition("://")[2] for url in urls}
