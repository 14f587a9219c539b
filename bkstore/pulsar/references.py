"""PulsarReferences: which ledgers Pulsar's metadata refer to, and where that cannot be known.

A topic's managed ledger lists its ledgers; a cursor names the ledger with its positions, the cursor
of the compaction also the compacted ledger; a schema's locator names the ledgers of its versions.
Table in `docs/pulsar.md`.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from bkstore.index.api import Finding
from bkstore.ledger_metadata.owners import (
    COMPACTED_LEDGER,
    MANAGED_LEDGER,
    SCHEMA,
    LedgerOwner,
)
from bkstore.ledger_metadata.topic_names import is_node_path
from bkstore.pulsar.node_values import CursorValue
from bkstore.pulsar.sources.nodes import MANAGED_LEDGERS, SCHEMAS


class NodeKind(Enum):
    """The nodes that a doubt or a change is about."""

    TREE = "tree"
    TOPIC = "topic"
    CURSORS = "cursors"
    CURSOR = "cursor"
    COMPACTION = "compaction"
    SCHEMA = "schema"


NodeKey = tuple[NodeKind, str]
"""The nodes of a kind, and their topic, schema or tree."""

DELAYED_INDEX_BUCKET = "delayed-index-bucket"
"""The component of ledgers with an index of delayed messages."""


class LedgerReference(NamedTuple):
    """What refers to a ledger. `offloaded` and `bookkeeper_deleted` are those of `ListedLedger`.
    `may_be_replaced`: a newer position in the cursor's own ledger may name another ledger."""

    owner: LedgerOwner
    offloaded: bool = False
    bookkeeper_deleted: bool = False
    may_be_replaced: bool = False


class NodeChange(NamedTuple):
    """How often a node was changed, and when last (milliseconds); -1 = unknown."""

    version: int
    modified: int


class PulsarReferences:
    """The references of all topics and schemas, or of some of them. Built by
    `bkstore.pulsar.reading.read_references`.

    `ledgers` maps ledger ids to references. `findings` are nodes that cannot be read; ledgers that
    they may refer to have a `doubt`. `lacks_topics`: the whole cluster has no topic. Memory: some
    200 bytes a ledger, 500 a topic.
    """

    def __init__(self) -> None:
        self.ledgers: dict[int, LedgerReference] = {}
        self.findings: list[Finding] = []
        self.topics: dict[str, str] = {}  # the managed ledger of each topic
        self.compacted_ledgers: dict[str, CursorValue] = {}  # by topic
        self.lowest_versions: dict[str, int] = {}  # by schema
        self.doubts: dict[NodeKey, str] = {}  # reasons why a node's references are not known
        self.changes: dict[NodeKey, NodeChange] = {}
        self.lacks_topics = False

    def doubt(self, owner: LedgerOwner) -> str | None:
        """Return why it is not known whether a ledger of this owner is referred to; None if it is
        known."""
        keys = _nodes_of(owner)
        if not keys:
            return f"where Pulsar refers to ledgers of {owner} is not known"
        return next((self.doubts[key] for key in keys if key in self.doubts), None)

    def has_locator(self, schema: str) -> bool:
        """Return whether a schema's locator is there, even if it cannot be read."""
        return schema in self.lowest_versions or (NodeKind.SCHEMA, schema) in self.doubts

    def last_change(self, owner: LedgerOwner) -> NodeChange | None:
        """Return the last change of the node that refers to ledgers of this owner; None if there
        is no such node, so that nothing is known of its last change."""
        if owner.component == MANAGED_LEDGER and owner.cursor is not None:
            return self.changes.get(cursor_key(topic_key(owner) or "", owner.cursor))
        keys = _nodes_of(owner)
        return self.changes.get(keys[-1]) if keys else None

    def add(self, ledger_id: int, reference: LedgerReference) -> None:
        """Add a reference to a ledger, and keep the stronger one if there are two: one that states
        that BookKeeper's copy is deleted is weaker than any other, and an uncertain one than a
        certain one."""
        known = self.ledgers.get(ledger_id)
        if known is None or _precedence(reference) > _precedence(known):
            self.ledgers[ledger_id] = reference

    def merge(self, others: PulsarReferences) -> None:
        """Add what was read of other topics."""
        for ledger_id, reference in others.ledgers.items():
            self.add(ledger_id, reference)
        self.findings += others.findings
        self.topics |= others.topics
        self.compacted_ledgers |= others.compacted_ledgers
        self.lowest_versions |= others.lowest_versions
        self.doubts |= others.doubts
        self.changes |= others.changes


def topic_key(owner: LedgerOwner) -> str | None:
    """Return what identifies the topic of a ledger: its URL, or the name of a managed ledger that
    does not belong to a topic."""
    return owner.topic or owner.managed_ledger


def _precedence(reference: LedgerReference) -> tuple[bool, bool]:
    return not reference.bookkeeper_deleted, not reference.may_be_replaced


def cursor_key(topic: str, cursor: str) -> NodeKey:
    """Return the key of a single cursor's node."""
    return NodeKind.CURSOR, f"{topic}/{cursor}"


def _nodes_of(owner: LedgerOwner) -> list[NodeKey]:
    """Return the keys of the nodes that may refer to ledgers of an owner, from the tree down to the
    node itself; empty if unknown, or if a metadata store cannot have such nodes."""
    topic = topic_key(owner)
    if owner.component == SCHEMA and owner.schema is not None:
        namespace = owner.namespace or owner.schema
        keys = [(NodeKind.TREE, SCHEMAS), (NodeKind.SCHEMA, owner.schema)]
        return keys if is_node_path(namespace) else []
    if topic is None or not is_node_path(owner.managed_ledger or ""):
        return []
    nodes = [(NodeKind.TREE, MANAGED_LEDGERS), (NodeKind.TOPIC, topic)]
    if owner.component == MANAGED_LEDGER:
        return nodes if owner.cursor is None else [*nodes, (NodeKind.CURSORS, topic)]
    if owner.component == COMPACTED_LEDGER:
        return [*nodes, (NodeKind.COMPACTION, topic)]
    return []
