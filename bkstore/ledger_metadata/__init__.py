"""Ledger metadata: the record of a ledger in the metadata store.

An immutable value, the rules it should keep (`LedgerMetadata.problems`), and the queries of readers
and checkers: which bookies have an entry, where a segment ends. Its serialized forms are elsewhere:
`bkstore.formats.metadata.serialized` (BookKeeper's) and `bkstore.formats.metadata.json_file` (a
JSON file).

`model` has all of it: `LedgerMetadata`, its consistency rules, and the text form of bookie shell.

Metadata written by other programs may be inconsistent. It can be read and written all the same, so
that a checker can report what is wrong; `LedgerMetadata.checked` refuses it.
"""

from bkstore.ledger_metadata.model import (
    NEWEST_VERSION,
    NO_ENTRY,
    LedgerMetadata,
    Segment,
    SegmentRange,
    State,
)

__all__ = [
    "NEWEST_VERSION",
    "NO_ENTRY",
    "LedgerMetadata",
    "Segment",
    "SegmentRange",
    "State",
]
