"""Ledger metadata: the record of a ledger in the metadata store.

An immutable value, its consistency rules (`LedgerMetadata.problems`), and the queries of readers
and checkers. `model` has all of it, and the text form of bookie shell, with custom metadata in the
order of a `java_hash_map`. Its serialized forms are in `bkstore.formats.metadata.serialized`
(BookKeeper's) and `bkstore.formats.metadata.json_file`.

Inconsistent metadata of other programs can be read and written all the same, so that a checker can
report it; `LedgerMetadata.validate` refuses it.
"""

from bkstore.ledger_metadata.model import (
    NEWEST_VERSION,
    NO_ENTRY,
    LedgerMetadata,
    Segment,
    SegmentRange,
    State,
)

__all__ = ["NEWEST_VERSION", "NO_ENTRY", "LedgerMetadata", "Segment", "SegmentRange", "State"]
