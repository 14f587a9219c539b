"""Ledger metadata as a table, which analyses join with and Spark sends to executors."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bkstore.cluster.store.api import MetadataStore, Versioned
from bkstore.cluster.store.key_value_store import KeyValueStore
from bkstore.cluster.store.opening import opened_metadata
from bkstore.errors import CorruptionError, InvalidArgument, NoSuchLedger
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerOwner, LedgerOwners, OwnerFilter, read_owner
from bkstore.ledger_metadata.owners import UNKNOWN_OWNER
from bkstore.offline.analyses.kernels.ledger_facts import LedgerFacts, extract_facts
from bkstore.tables.columns import make_schema
from bkstore.tables.commands import OWNERS
from bkstore.tables.table import Table

if TYPE_CHECKING:
    import pyarrow as pa

METADATA = make_schema(
    "metadata",
    f"scope_id ledger_id facts_json:string state? last_entry_id? length? {OWNERS} managed_ledger?"
    " ctime? version? problem:string?",
)
"""One row per ledger; `facts_json` is a `LedgerFacts` as a JSON list. `last_entry_id` and `length`
are null for a ledger that is not closed, the columns from `application` to `managed_ledger`, those
of the owner, where the custom metadata do not state it, and `ctime` where it is not known.
`version` is the store's. All are null if the metadata cannot be read; `problem` is why."""

_FILTERED_COLUMNS = ["component", "tenant", "namespace", "topic", "schema"]
"""The columns of an owner that an `OwnerFilter` reads."""

_OWNER_COLUMNS = OWNERS.replace("?", "").split()

_REQUIRED_COLUMNS = ("scope_id", "ledger_id", "facts_json")

_Row = tuple[Any, ...]

_UNKNOWN = "UNKNOWN"
_BATCH_ROWS = 1 << 16


@dataclass(frozen=True)
class Metadata:
    """The metadata of a cluster: a table of `METADATA`, and the path it was read from, if any.

    Columns that a table does not have, such as one of an earlier version of this library, are
    null. Raises `InvalidArgument` if the ids or `facts_json` are missing.
    """

    table: pa.Table
    path: str | None = None

    def __post_init__(self) -> None:
        """Complete the columns of the table."""
        if self.table.column_names != METADATA.names:
            object.__setattr__(self, "table", _complete_columns(self.table))

    def choose(self, owner_filter: OwnerFilter) -> Metadata:
        """Return the metadata of the ledgers whose owners the filter matches. Each owner is
        compared once; memory: some 100 bytes per ledger."""
        import pyarrow as pa

        codes, owners = _distinct_owners(self.table, _FILTERED_COLUMNS)
        matches = [owner_filter.matches(owner) for owner in owners]
        if all(matches):
            return self
        is_chosen = np.array(matches, np.bool_)[codes]
        return Metadata(self.table.filter(pa.array(is_chosen)), self.path)

    def owners(self) -> LedgerOwners:
        """Return the owners of the ledgers whose metadata state one. Memory: some 150 bytes per
        ledger.

        >>> ids = {"scope_id": [0, 0], "ledger_id": [7, 8], "facts_json": ["", ""]}
        >>> import pyarrow as pa
        >>> table = pa.table({**ids, "application": ["pulsar", None]})
        >>> [(str(ledger), owner.application) for ledger in Metadata(table).owners().ledgers()
        ...  if (owner := Metadata(table).owners().get(ledger))]
        [('7', 'pulsar')]
        """
        import pyarrow.compute as pc

        stated = self.table.filter(pc.is_valid(self.table.column("application")))
        scope_ids, ledger_ids = (stated.column(column).to_numpy() for column in METADATA.names[:2])
        owner_numbers, owners = _distinct_owners(stated, _OWNER_COLUMNS)
        return LedgerOwners.from_arrays(scope_ids, ledger_ids, owner_numbers, owners)


def _distinct_owners(
    table: pa.Table, names: list[str]
) -> tuple[npt.NDArray[np.int32], list[LedgerOwner]]:
    """Return (for each row the number of its owner, the distinct owners by these columns)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    # Make a text of each row's owner, and look up a row of each distinct text only.
    columns = [pc.fill_null(table.column(each).cast(pa.string()), "") for each in names]
    keys = pc.binary_join_element_wise(*columns, "\0").combine_chunks().dictionary_encode()
    codes: npt.NDArray[np.int32] = keys.indices.to_numpy()
    _, first_rows = np.unique(codes, return_index=True)
    rows = table.select(names).take(first_rows).to_pylist()
    return codes, [LedgerOwner(**row) for row in rows]


def _complete_columns(table: pa.Table) -> pa.Table:
    """Return a table of `METADATA`; columns that `table` does not have are null."""
    import pyarrow as pa

    missing = [column for column in _REQUIRED_COLUMNS if column not in table.column_names]
    if missing:
        raise InvalidArgument(f"a table of ledger metadata has no column {missing[0]!r}")
    schema = METADATA.to_arrow()
    columns = [
        table.column(field.name)
        if field.name in table.column_names
        else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema.names).cast(schema)


def read_metadata(source: MetadataStore | str | os.PathLike[str]) -> Metadata:
    """Return the ledger metadata in a store, or at a path that `open_metadata` takes. A ledger
    whose metadata cannot be read or is inconsistent has a row with the reason. Memory: some 500
    bytes per ledger. Raises what `open_metadata` raises.

    >>> from bkstore.cluster import MemoryStore
    >>> from bkstore.ledger_metadata import LedgerMetadata
    >>> custom = {"application": b"pulsar", "component": b"managed-ledger",
    ...           "pulsar/managed-ledger": b"shop/orders/persistent/paid"}
    >>> store = MemoryStore()
    >>> created = store.create(LedgerMetadata(7, 1, 1, 1, [(0, ["b1"])], custom_metadata=custom))
    >>> read_metadata(store).table.select(["ledger_id", "state", "topic"]).to_pylist()
    [{'ledger_id': 7, 'state': 'OPEN', 'topic': 'persistent://shop/orders/paid'}]
    """
    import pyarrow as pa

    if not isinstance(source, MetadataStore):
        with opened_metadata(source) as store:
            return Metadata(read_metadata(store).table, os.fspath(source))
    tables, rows = [], []
    for row in _ledger_rows(source):
        rows.append(row)
        if len(rows) == _BATCH_ROWS:
            tables.append(Table.from_rows(METADATA, rows).to_arrow())
            rows = []
    tables.append(Table.from_rows(METADATA, rows).to_arrow())
    return Metadata(pa.concat_tables(tables))


def _ledger_rows(store: MetadataStore) -> Iterator[_Row]:
    """Yield each ledger's row. A `KeyValueStore` reads many ledgers at once, after all of their
    underreplicated marks. Other stores read ledger by ledger, and so does it if a mark is damaged.
    """
    try:
        marks = store.underreplicated() or {} if isinstance(store, KeyValueStore) else None
    except CorruptionError:
        marks = None
    if marks is None or not isinstance(store, KeyValueStore):
        for ledger_id in store.ledgers():
            row = _read_row(store, ledger_id)
            if row is not None:
                yield row
        return
    for ledger_id, metadata_or_error in store.read_many(store.ledgers()):
        if isinstance(metadata_or_error, CorruptionError):
            yield _unreadable_row(ledger_id, metadata_or_error)
        else:
            yield _make_row(metadata_or_error, is_marked=ledger_id in marks)


def _make_row(versioned: Versioned, *, is_marked: bool) -> _Row:
    """Return the row of a ledger whose metadata can be read; `is_marked`: as underreplicated."""
    metadata = versioned.metadata
    facts = extract_facts(metadata, is_marked=is_marked)
    end = (metadata.last_entry_id, metadata.length) if metadata.closed else (None, None)
    owner = read_owner(metadata.custom_metadata)
    ctime = metadata.ctime if metadata.ctime >= 0 else None
    ids = (*metadata.ledger.signed, facts.to_json(), metadata.state)
    return (*ids, *end, *owner, ctime, versioned.version, None)


def _unreadable_row(ledger_id: LedgerId, error: CorruptionError) -> _Row:
    problem = f"its metadata cannot be read: {error}"
    facts = LedgerFacts(_UNKNOWN, 0, 0, 0, -1, [], problem)
    ids = (*ledger_id.signed, facts.to_json())
    return (*ids, None, None, None, *UNKNOWN_OWNER, None, None, problem)


def _read_row(store: MetadataStore, ledger_id: LedgerId) -> _Row | None:
    """Return the row of one ledger, or None if it was deleted meanwhile."""
    try:
        is_marked = store.mark_of(ledger_id) is not None
        return _make_row(store.read(ledger_id), is_marked=is_marked)
    except NoSuchLedger:
        return None
    except CorruptionError as error:
        return _unreadable_row(ledger_id, error)
