"""Ledger metadata: what the metadata store knows of a ledger.

What this is: an immutable value, the rules it should keep (`LedgerMetadata.problems`), and the
questions that readers and checkers ask of it: which bookies have an entry, where a segment ends.
What it is not: bytes; those are in `bkstore.formats.metadata.serialized` (as BookKeeper keeps them)
and `bkstore.formats.metadata.json_file` (a JSON file).

`model` has it all: `LedgerMetadata`, what sound metadata keeps to, and the form that bookie shell
shows.

Metadata written by others may contradict itself. It can be held, read and written here all the
same, so that a checker can say what is wrong; `LedgerMetadata.checked` refuses it.
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
