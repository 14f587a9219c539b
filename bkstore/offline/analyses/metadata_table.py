"""Ledger metadata as a table: what the analyses join with, and what executors are sent.

One row a ledger, its segments as JSON text: small, typed alike in DuckDB and Spark, and free of
passwords.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bkstore.cluster.store.api import MetadataStore
from bkstore.cluster.store.key_value_store import KeyValueStore
from bkstore.cluster.store.opening import opened_metadata
from bkstore.errors import CorruptionError, NoSuchLedger
from bkstore.ids import LedgerId
from bkstore.offline.analyses.kernels.ledger_said import LedgerSaid, said_of
from bkstore.tables.columns import schema
from bkstore.tables.table import Table

if TYPE_CHECKING:
    import pyarrow as pa

METADATA = schema("metadata", "scope_id ledger_id said:string")
"""One row a ledger; `said` is a `LedgerSaid` as a JSON list."""

_UNKNOWN = "UNKNOWN"
_BATCH = 1 << 16


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
