"""Pulsar over BookKeeper: which ledgers its metadata refer to, and which nobody needs any more.

Read `leak_search` first: `LeakSearch` reads both trees in the right order, and again what it would
report; `ledger_classes` has the rules. `references` has what refers to a ledger and what cannot be
known; `reading` reads that from the nodes. `node_paths` finds topics and schemas in the tree,
`node_values` decodes values, with the `messages` of protobuf. Nodes come from ZooKeeper
(`zookeeper_nodes`), a copied folder (`folder_nodes`), or memory (`nodes`). Page: `docs/pulsar.md`.
"""

from bkstore.pulsar.leak_search import LeakReport, LeakSearch
from bkstore.pulsar.ledger_classes import LEDGER_CLASSES, ClassifiedLedger
from bkstore.pulsar.nodes import MemoryNodes, NodeValue, PulsarNodes
from bkstore.pulsar.reading import read_references
from bkstore.pulsar.references import PulsarReferences

__all__ = [
    "LEDGER_CLASSES",
    "ClassifiedLedger",
    "LeakReport",
    "LeakSearch",
    "MemoryNodes",
    "NodeValue",
    "PulsarNodes",
    "PulsarReferences",
    "read_references",
]
