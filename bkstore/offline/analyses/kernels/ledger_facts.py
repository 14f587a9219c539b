"""LedgerFacts: the metadata that a ledger is judged by, as text that is sent to executors. A JSON
list: small, of the same type in DuckDB and Spark, and without passwords."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from bkstore.ledger_metadata import LedgerMetadata


class LedgerFacts(NamedTuple):
    """The metadata that a ledger is judged by; `skip_reason` is the reason not to, or None.
    `segments` are (first entry, bookies); `last_entry` is -1 if the ledger is not closed."""

    state: str
    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    last_entry: int
    segments: list[tuple[int, list[str]]]
    skip_reason: str | None

    def to_json(self) -> str:
        """Return the text of a `facts_json` column."""
        return json.dumps(self, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> LedgerFacts:
        """Return the facts from the output of `to_json`."""
        return cls(*json.loads(text))

    def segment_ranges(self) -> list[tuple[int, int, list[str]]]:
        """Return (first, last, ensemble) of the segments that have entries."""
        ends = [first - 1 for first, _ in self.segments[1:]] + [self.last_entry]
        last_entries = (min(last, self.last_entry) for last in ends)
        return [
            (first, last, ensemble)
            for (first, ensemble), last in zip(self.segments, last_entries)
            if first <= last
        ]


def extract_facts(metadata: LedgerMetadata, *, is_marked: bool = False) -> LedgerFacts:
    """Return the facts that a ledger is judged by; `is_marked`: it has an underreplicated mark.

    As in an audit, marked ledgers, open ones and those with `problems` are not judged.

    >>> open_one = LedgerMetadata(7, 2, 2, 1, [(0, ["b1", "b2"])])
    >>> extract_facts(open_one).skip_reason, extract_facts(open_one, is_marked=True).skip_reason
    ('open', 'underreplicated')
    """
    problems = metadata.problems()
    skip_reason: Any = None
    if is_marked:
        skip_reason = "underreplicated"
    elif problems:
        skip_reason = f"its metadata: {'; '.join(problems)}"
    elif not metadata.closed:
        skip_reason = metadata.state.lower()
    return LedgerFacts(
        metadata.state,
        metadata.ensemble_size,
        metadata.write_quorum_size,
        metadata.ack_quorum_size,
        metadata.last_entry_id,
        [(segment.first_entry, list(segment.ensemble)) for segment in metadata.segments],
        skip_reason,
    )
