"""The references of a whole cluster, as far as they concern the ledgers that it has."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from bkstore.errors import CorruptionError, UnsupportedLayout
from bkstore.index.api import Finding
from bkstore.ledger_metadata import LedgerOwner
from bkstore.ledger_metadata.owners import PULSAR
from bkstore.ledger_metadata.topic_names import encode_element
from bkstore.pulsar.reading import read_references
from bkstore.pulsar.references import NodeKind, PulsarReferences, topic_key
from bkstore.pulsar.sources.nodes import MANAGED_LEDGERS, SCHEMAS, PulsarNodes


def check_root(nodes: PulsarNodes) -> None:
    """Raise `UnsupportedLayout` for a root without topics: all ledgers would seem to be leaks."""
    has_topics = next(nodes.list_children([MANAGED_LEDGERS])) is not None
    if nodes.is_complete and not has_topics:
        path = nodes.location_of(MANAGED_LEDGERS)
        raise UnsupportedLayout(f"{path} does not exist: is the root of Pulsar's metadata right?")


def read_cluster_references(
    nodes: PulsarNodes,
    owners: Iterable[LedgerOwner],
    has_any: Callable[[Iterable[int]], bool],
) -> PulsarReferences:
    """Read all references, also of the managed ledgers and schemas that `owners`, those of the
    cluster's ledgers, name and that are elsewhere than a topic's. `has_any` returns whether
    BookKeeper has one of some ledgers: if it has none of those that are referred to, everything is
    in doubt. O(nodes + owners)."""
    references = read_references(nodes)
    managed_ledgers, schemas = set(), set()
    pulsar_owners = [owner for owner in owners if owner.application == PULSAR]
    for owner in pulsar_owners:
        if owner.managed_ledger is not None and topic_key(owner) not in references.topics:
            managed_ledgers.add(owner.managed_ledger)
        if owner.schema is not None and not references.has_locator(owner.schema):
            schemas.add(owner.schema)
    if managed_ledgers or schemas:
        references.merge(read_references(nodes, sorted(managed_ledgers), sorted(schemas)))
    if not nodes.is_complete:
        _doubt_unlisted_cursors(nodes, references, pulsar_owners)
    _doubt_other_clusters(nodes, references, has_any)
    is_known = (NodeKind.TREE, MANAGED_LEDGERS) not in references.doubts
    references.lacks_topics = is_known and not references.topics
    if references.lacks_topics and pulsar_owners:
        reason = "has no topics, but BookKeeper has ledgers of Pulsar: is this the whole tree?"
        references.findings.append(Finding("oddity", reason, nodes.location_of(MANAGED_LEDGERS)))
    return references


def _doubt_unlisted_cursors(
    nodes: PulsarNodes, references: PulsarReferences, owners: Iterable[LedgerOwner]
) -> None:
    """Doubt the cursors of a topic if a ledger is that of a cursor which the copy cannot have, as
    its name is too long for a file: no listing has it."""
    cursors = {
        f"{MANAGED_LEDGERS}/{owner.managed_ledger}/{encode_element(owner.cursor)}": topic
        for owner in owners
        if owner.cursor is not None and (topic := topic_key(owner)) in references.topics
        if topic is not None and references.last_change(owner) is None
    }
    for path, value in zip(cursors, nodes.read_many(cursors)):
        key = (NodeKind.CURSORS, cursors[path])
        if isinstance(value, CorruptionError) and key not in references.doubts:
            references.findings.append(Finding.of(value))
            references.doubts[key] = f"{nodes.location_of(path)} cannot be read"


def _doubt_other_clusters(
    nodes: PulsarNodes, references: PulsarReferences, has_any: Callable[[Iterable[int]], bool]
) -> None:
    """Doubt everything if no ledger that is referred to is there: the nodes may be those of the
    Pulsar of another cluster."""
    needed = [
        ledger_id
        for ledger_id, reference in references.ledgers.items()
        if not reference.bookkeeper_deleted
    ]
    if not needed or has_any(needed):
        return
    path = nodes.location_of(MANAGED_LEDGERS)
    reason = "none of the ledgers that Pulsar refers to is in BookKeeper: is this its Pulsar?"
    references.findings.append(Finding("oddity", reason, path))
    for tree in (MANAGED_LEDGERS, SCHEMAS):
        references.doubts.setdefault((NodeKind.TREE, tree), reason)
