"""The references of a whole cluster, as far as they concern the ledgers that it has."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from bkstore.errors import UnsupportedLayout
from bkstore.index.api import Finding
from bkstore.ledger_metadata import LedgerOwner
from bkstore.ledger_metadata.owners import PULSAR
from bkstore.pulsar.reading import read_references
from bkstore.pulsar.references import NodeKind, PulsarReferences
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
    """Read all references, also of managed ledgers that are no topics' and that `owners`, those of
    the cluster's ledgers, name. `has_any` returns whether BookKeeper has one of some ledgers: if it
    has none of those that are referred to, everything is in doubt. O(nodes)."""
    references = read_references(nodes)
    others = {
        owner.managed_ledger
        for owner in owners
        if owner.application == PULSAR and owner.topic is None and owner.managed_ledger is not None
    }
    if others:
        references.merge(read_references(nodes, sorted(others), []))
    _doubt_other_clusters(nodes, references, has_any)
    return references


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
