"""Pulsar over BookKeeper: the ledgers that its metadata refer to, and those that have leaked.

Read `leak_search` first: `LeakSearch` reads the ledgers of BookKeeper, then the references of
Pulsar, and again what it would report; `ledger_classes` has the rules. `references` has what refers
to a ledger and what cannot be known; `reading` reads that from the nodes of `sources`,
`cluster_references` for all ledgers of a cluster; `node_values` decodes the values with the
`metadata_messages` of protobuf. `deletion` deletes the ledgers of a reviewed list. `entries`
decodes the headers of a topic's entries. Page: `docs/pulsar.md`.
"""

from bkstore.pulsar.leak_search import LeakReport, LeakSearch
from bkstore.pulsar.ledger_classes import LEDGER_CLASSES, ClassifiedLedger
from bkstore.pulsar.reading import read_references
from bkstore.pulsar.references import PulsarReferences
from bkstore.pulsar.sources import (
    MemoryNodes,
    NodeValue,
    PulsarNodes,
    open_pulsar,
    parse_pulsar_location,
)

__all__ = [
    "LEDGER_CLASSES",
    "ClassifiedLedger",
    "LeakReport",
    "LeakSearch",
    "MemoryNodes",
    "NodeValue",
    "PulsarNodes",
    "PulsarReferences",
    "open_pulsar",
    "parse_pulsar_location",
    "read_references",
]
