"""Ledger metadata as a table: what the analyses join with, and what executors are sent.

One row a ledger, its segments as JSON text: small, typed alike in DuckDB and Spark, and free of
passwords.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from bkstore.cluster.store.api import MetadataStore
from bkstore.cluster.store.key_value_store import KeyValueStore
from bkstore.cluster.store.opening import opened_metadata
from bkstore.errors import CorruptionError, NoSuchLedger
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerMetadata
from bkstore.tables.table import Table, schema

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["METADATA", "LedgerSaid", "Metadata", "read_metadata", "said_of"]

METADATA = schema(
    "metadata",
    ("scope_id", "int64"),
    ("ledger_id", "int64"),
    ("said", "string"),
)
"""One row a ledger; `said` is a `LedgerSaid` as a JSON list."""

_UNKNOWN = "UNKNOWN"
_BATCH = 1 << 16


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


@dataclass(frozen=True)
class Metadata:
    """The metadata of a cluster: a table of `METADATA`, and where it was read."""

    table: pa.Table
    path: str | None = None


def read_metadata(source: MetadataStore | str | os.PathLike[str]) -> Metadata:
    """Return what a store, or the metadata at a path (`open_metadata`), says of its ledgers.

    A ledger whose metadata cannot be read, or contradict themselves, is there with the reason.
    Memory: some 300 bytes a ledger. Raises as `open_metadata` does.
    """
    import pyarrow as pa

    if not isinstance(source, MetadataStore):
        with opened_metadata(source) as opened:
            return Metadata(read_metadata(opened).table, os.fspath(source))
    parts, rows = [], []
    for ledger, said in _each(source):
        rows.append((*ledger.signed, said.to_json()))
        if len(rows) == _BATCH:
            parts.append(Table.from_rows(METADATA, rows).to_arrow())
            rows = []
    parts.append(Table.from_rows(METADATA, rows).to_arrow())
    return Metadata(pa.concat_tables(parts))


def _each(store: MetadataStore) -> Iterator[tuple[LedgerId, LedgerSaid]]:
    """Yield what is said of each ledger; many are read at once unless a mark is damaged."""
    try:
        marks = store.underreplicated() or {} if isinstance(store, KeyValueStore) else None
    except CorruptionError:
        marks = None
    if marks is None or not isinstance(store, KeyValueStore):
        for ledger in store.ledgers():
            said = _read(store, ledger)
            if said is not None:
                yield ledger, said
        return
    for ledger, found in store.read_many(store.ledgers()):
        if isinstance(found, CorruptionError):
            yield ledger, _unreadable(found)
        else:
            yield ledger, said_of(found.metadata, marked=ledger in marks)


def _unreadable(error: CorruptionError) -> LedgerSaid:
    return LedgerSaid(_UNKNOWN, 0, 0, 0, -1, [], f"its metadata cannot be read: {error}")


def _read(store: MetadataStore, ledger: LedgerId) -> LedgerSaid | None:
    try:
        marked = store.mark_of(ledger) is not None
        return said_of(store.read(ledger).metadata, marked=marked)
    except NoSuchLedger:  # it went meanwhile
        return None
    except CorruptionError as error:
        return _unreadable(error)


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
