"""LedgerSaid: what a ledger is judged by, as text that travels to executors.

Its segments as JSON: small, typed alike in DuckDB and Spark, and free of passwords.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from bkstore.ledger_metadata import LedgerMetadata


class LedgerSaid(NamedTuple):
    """What a ledger is judged by. `skip` says why it is not, None if it is.

    `segments` are (first entry, bookies); `last_entry` is -1 where the ledger is not closed.
    """

    state: str
    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    last_entry: int
    segments: list[tuple[int, list[str]]]
    skip: str | None

    def to_json(self) -> str:
        """Return the text of a `said` column."""
        return json.dumps(self, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> LedgerSaid:
        """Return what `to_json` wrote."""
        return cls(*json.loads(text))

    def ranges(self) -> list[tuple[int, int, list[str]]]:
        """Return (first, last, ensemble) of the segments that have entries."""
        ends = [first - 1 for first, _ in self.segments[1:]] + [self.last_entry]
        cut = (min(end, self.last_entry) for end in ends)
        return [(first, end, who) for (first, who), end in zip(self.segments, cut) if first <= end]


def said_of(metadata: LedgerMetadata, *, marked: bool = False) -> LedgerSaid:
    """Return what a ledger is judged by; `marked` = it has an underreplicated mark.

    As an audit does, marked ledgers, open ones and those with `problems` are not judged.

    >>> open_one = LedgerMetadata(7, 2, 2, 1, [(0, ["b1", "b2"])])
    >>> said_of(open_one).skip, said_of(open_one, marked=True).skip
    ('open', 'underreplicated')
    """
    problems = metadata.problems()
    skip: Any = None
    if marked:
        skip = "underreplicated"
    elif problems:
        skip = f"its metadata: {'; '.join(problems)}"
    elif not metadata.closed:
        skip = metadata.state.lower()
    return LedgerSaid(
        metadata.state,
        metadata.ensemble_size,
        metadata.write_quorum_size,
        metadata.ack_quorum_size,
        metadata.last_entry_id,
        [(part.first_entry, list(part.ensemble)) for part in metadata.segments],
        skip,
    )
