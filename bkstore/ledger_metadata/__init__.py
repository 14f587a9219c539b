"""Ledger metadata: what the metadata store knows of a ledger.

What this is: an immutable value, the rules it should keep (`LedgerMetadata.problems`), and the
questions that readers and checkers ask of it: which bookies have an entry, where a segment ends.
What it is not: bytes; those are in `bkstore.formats.metadata.serialized` (as BookKeeper keeps them)
and `bkstore.formats.metadata.json_file` (a JSON file).

`model` has `LedgerMetadata`, over its bare `fields`: read it first. `rules` says what sound
metadata keeps to, `printing` is the form that bookie shell shows.

Metadata written by others may contradict itself. It can be held, read and written here all the
same, so that a checker can say what is wrong; `LedgerMetadata.checked` refuses it.
"""

from bkstore.ledger_metadata.fields import NEWEST_VERSION, NO_ENTRY, Segment, State
from bkstore.ledger_metadata.model import LedgerMetadata, SegmentRange

__all__ = [
    "NEWEST_VERSION",
    "NO_ENTRY",
    "LedgerMetadata",
    "Segment",
    "SegmentRange",
    "State",
]
