"""Ledger metadata as a table, which analyses join with and Spark sends to executors."""

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
from bkstore.offline.analyses.kernels.ledger_facts import LedgerFacts, extract_facts
from bkstore.tables.columns import make_schema
from bkstore.tables.table import Table

if TYPE_CHECKING:
    import pyarrow as pa

METADATA = make_schema("metadata", "scope_id ledger_id facts_json:string")
"""One row per ledger; `facts_json` is a `LedgerFacts` as a JSON list."""

_UNKNOWN = "UNKNOWN"
_BATCH_ROWS = 1 << 16


@dataclass(frozen=True)
class Metadata:
    """The metadata of a cluster: a table of `METADATA`, and the path it was read from, if any."""

    table: pa.Table
    path: str | None = None


def read_metadata(source: MetadataStore | str | os.PathLike[str]) -> Metadata:
    """Return the ledger metadata in a store, or at a path that `open_metadata` takes. A ledger
    whose metadata cannot be read or is inconsistent has a row with the reason. Memory: some 300
    bytes per ledger. Raises what `open_metadata` raises."""
    import pyarrow as pa

    if not isinstance(source, MetadataStore):
        with opened_metadata(source) as store:
            return Metadata(read_metadata(store).table, os.fspath(source))
    tables, rows = [], []
    for ledger_id, facts in _facts_of_ledgers(source):
        rows.append((*ledger_id.signed, facts.to_json()))
        if len(rows) == _BATCH_ROWS:
            tables.append(Table.from_rows(METADATA, rows).to_arrow())
            rows = []
    tables.append(Table.from_rows(METADATA, rows).to_arrow())
    return Metadata(pa.concat_tables(tables))


def _facts_of_ledgers(store: MetadataStore) -> Iterator[tuple[LedgerId, LedgerFacts]]:
    """Yield each ledger's facts: of many ledgers at once, or one by one if a mark is damaged."""
    # Only a `KeyValueStore` reads many at once; then the marks are needed before, all of them.
    try:
        marks = store.underreplicated() or {} if isinstance(store, KeyValueStore) else None
    except CorruptionError:
        marks = None
    if marks is None or not isinstance(store, KeyValueStore):
        for ledger_id in store.ledgers():
            facts = _read_facts(store, ledger_id)
            if facts is not None:
                yield ledger_id, facts
        return
    for ledger_id, metadata_or_error in store.read_many(store.ledgers()):
        if isinstance(metadata_or_error, CorruptionError):
            yield ledger_id, _unreadable_facts(metadata_or_error)
        else:
            yield ledger_id, extract_facts(metadata_or_error.metadata, is_marked=ledger_id in marks)


def _unreadable_facts(error: CorruptionError) -> LedgerFacts:
    return LedgerFacts(_UNKNOWN, 0, 0, 0, -1, [], f"its metadata cannot be read: {error}")


def _read_facts(store: MetadataStore, ledger_id: LedgerId) -> LedgerFacts | None:
    """Return the facts of one ledger, or None if it was deleted meanwhile."""
    try:
        is_marked = store.mark_of(ledger_id) is not None
        return extract_facts(store.read(ledger_id).metadata, is_marked=is_marked)
    except NoSuchLedger:
        return None
    except CorruptionError as error:
        return _unreadable_facts(error)
