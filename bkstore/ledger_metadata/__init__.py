"""Ledger metadata: the record of a ledger in the metadata store.

An immutable value, its consistency rules (`LedgerMetadata.problems`), and the queries of readers
and checkers. `model` has all of it, and the text form of bookie shell, with custom metadata in the
order of a `java_hash_map`. Its serialized forms are in `bkstore.formats.metadata.serialized`
(BookKeeper's) and `bkstore.formats.metadata.json_file`.

Custom metadata state whose ledger it is: `owners` reads them, `topic_names` has Pulsar's names of
topics, `owner_filter` chooses ledgers by owner, and `ledger_owners` has those of many ledgers.

Inconsistent metadata of other programs can be read and written all the same, so that a checker can
report it; `LedgerMetadata.validate` refuses it.
"""

from bkstore.ledger_metadata.ledger_owners import LedgerOwners
from bkstore.ledger_metadata.model import (
    NEWEST_VERSION,
    NO_ENTRY,
    LedgerMetadata,
    Segment,
    SegmentRange,
    State,
)
from bkstore.ledger_metadata.owner_filter import OwnerFilter
from bkstore.ledger_metadata.owners import LedgerOwner, read_owner

__all__ = [
    "NEWEST_VERSION",
    "NO_ENTRY",
    "LedgerMetadata",
    "LedgerOwner",
    "LedgerOwners",
    "OwnerFilter",
    "Segment",
    "SegmentRange",
    "State",
    "read_owner",
]
