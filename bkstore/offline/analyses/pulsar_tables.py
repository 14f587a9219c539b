"""PulsarMetadata: what Pulsar's metadata refer to, as tables that analyses join with.

Ledgers and references have the number of an owner: what is known of a topic, such as that one of
its nodes cannot be read, is in a row for each owner.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bkstore.errors import InvalidArgument
from bkstore.ids import Int64Array
from bkstore.index.api import Finding
from bkstore.ledger_metadata import LedgerOwner, OwnerFilter
from bkstore.ledger_metadata.owners import PULSAR
from bkstore.offline.analyses.metadata_table import METADATA, Metadata
from bkstore.pulsar.cluster_references import check_root, read_cluster_references
from bkstore.pulsar.ledger_classes import (
    lacks_older_schemas,
    last_modified,
    open_compaction,
    states_topic,
)
from bkstore.pulsar.references import LedgerReference, PulsarReferences
from bkstore.pulsar.sources.nodes import PulsarNodes
from bkstore.tables import Schema
from bkstore.tables.columns import make_schema
from bkstore.tables.commands import OWNERS
from bkstore.tables.table import Column, Table

if TYPE_CHECKING:
    import pyarrow as pa

_OWNER_FIELDS = list(LedgerOwner._fields)
_KEY_FIELDS = [field for field in _OWNER_FIELDS if field != "partition"]
"""The fields that tell owners apart; the partition is in the name of the topic, too."""

_NULL = "\x01"
"""Replaces null in the texts that owners are compared by; no field has this character."""

_NUMBER = Column("owner_number", "int64", False)

_LEDGER_COLUMNS = ["scope_id", "ledger_id", "state", "ctime", "length", "version", "problem"]


_OWNER_FLAGS = ("is_pulsar", "states_topic", "lacks_topics", "lacks_schemas")


def _schema(table: str, columns: str, *more: Column) -> Schema:
    schema = make_schema(table, columns)
    return schema._replace(columns=(_NUMBER, *schema.columns, *more))


_REFERENCES = _schema(
    "pulsar_references",
    "ledger_id",
    *(Column(flag, "bool", False) for flag in LedgerReference._fields[1:]),
)
_OWNERS = _schema(
    "pulsar_owners",
    f"owner? {OWNERS} managed_ledger?",
    *(Column(flag, "bool", False) for flag in _OWNER_FLAGS),
    Column("doubt", "string", True),
    *(Column(number, "int64", True) for number in ("changed_at", "cursor_ledger", "named_ledger")),
)


class PulsarTables(NamedTuple):
    """Tables that SQL texts join: `ledgers`, those of the metadata; `references`, the ledgers that
    Pulsar refers to; `owners`, of both. `findings` are nodes that cannot be read; `read_at` is when
    the copy was made, in milliseconds, None = not known."""

    ledgers: pa.Table
    references: pa.Table
    owners: pa.Table
    findings: list[Finding]
    read_at: int | None

    def choose(self, owner_filter: OwnerFilter) -> pa.Table:
        """Return `owners` with a column `is_chosen`: whether the filter matches. O(owners)."""
        import pyarrow as pa

        rows = self.owners.select(_OWNER_FIELDS).to_pylist()
        is_chosen = [owner_filter.matches(LedgerOwner(**row)) for row in rows]
        return self.owners.append_column("is_chosen", pa.array(is_chosen, pa.bool_()))


class PulsarMetadata:
    """A copy of Pulsar's metadata: a folder, or the file of `bkstore metadata export --pulsar`.

    Raises `InvalidArgument` for the nodes of a running cluster: brokers go on meanwhile, so that
    what they are deleting would seem to be leaks (`bkstore.pulsar.LeakSearch` looks again).
    """

    def __init__(self, nodes: PulsarNodes) -> None:
        if nodes.is_live:
            raise InvalidArgument(
                "analyses need a copy of Pulsar's metadata: make one with `bkstore metadata export "
                "--pulsar`, or use `bkstore leaks`"
            )
        self._nodes = nodes
        self._made: tuple[Metadata, PulsarTables] | None = None

    @property
    def findings(self) -> list[Finding]:
        """The nodes that cannot be read, as far as `tables` has been called."""
        return [] if self._made is None else self._made[1].findings

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> PulsarMetadata:
        """Open a copy by its path; raises as `bkstore.pulsar.open_pulsar`, and for the URI of a
        running ZooKeeper."""
        from bkstore.pulsar.sources.opening import open_pulsar, parse_pulsar_location

        location = parse_pulsar_location(path)
        if not isinstance(location, Path):
            raise InvalidArgument(f"{location}: analyses need a copy, not a running cluster")
        return cls(open_pulsar(location))

    def tables(self, metadata: Metadata) -> PulsarTables:
        """Return the tables for the ledgers of some metadata; those of the last call are kept.
        Memory: some 400 bytes a ledger, 2 KB a topic. Raises `UnsupportedLayout` if the nodes have
        no topics, and `CorruptionError` for a copy that cannot be read."""
        if self._made is None or self._made[0] is not metadata:
            self._made = metadata, self._make_tables(metadata)
        return self._made[1]

    def now(self, metadata: Metadata) -> int:
        """Return when ages are counted from: the time of the copy, in milliseconds."""
        now, read_at = int(time.time() * 1000), self.tables(metadata).read_at
        return now if read_at is None else min(now, read_at)

    def _make_tables(self, metadata: Metadata) -> PulsarTables:
        """Read the nodes, and return the tables for the ledgers of some metadata."""
        check_root(self._nodes)
        numbering = _OwnerNumbering()
        ledgers = _number_ledgers(metadata.table, numbering)
        scope_ids, ledger_ids = (ledgers.column(each).to_numpy() for each in _LEDGER_COLUMNS[:2])
        stored_ids = ledger_ids[scope_ids == 0]

        def has_any(needed: Iterable[int]) -> bool:
            """Return whether one of these ledgers, which Pulsar refers to, is in the metadata; if
            none is, they are probably of another cluster. Without metadata, that is not known."""
            if not ledger_ids.size:
                return True
            return bool(np.isin(np.fromiter(needed, np.int64), stored_ids).any())

        references = read_cluster_references(self._nodes, list(numbering.owners), has_any)
        referring = _reference_table(references, numbering)
        owners = Table.from_rows(_OWNERS, _owner_rows(numbering, references)).to_arrow()
        findings, read_at = references.findings, self._nodes.read_at
        return PulsarTables(ledgers, referring, owners, findings, read_at)


class _OwnerNumbering:
    """Numbers the distinct `owners`, by position."""

    def __init__(self) -> None:
        self._numbers: dict[LedgerOwner, int] = {}

    @property
    def owners(self) -> Iterable[LedgerOwner]:
        return self._numbers

    def of(self, owner: LedgerOwner) -> int:
        return self._numbers.setdefault(owner, len(self._numbers))


def _number_ledgers(table: pa.Table, numbering: _OwnerNumbering) -> pa.Table:
    """Return the columns of ledgers that classes depend on, with the numbers of their owners. Rows
    are taken in batches, in which each owner is looked up once."""
    import pyarrow as pa

    batches = [
        pa.record_batch(
            [
                pa.array(_numbers_of(batch.select(_OWNER_FIELDS), numbering), pa.int64()),
                *(batch.column(each) for each in _LEDGER_COLUMNS),
            ],
            [_NUMBER.name, *_LEDGER_COLUMNS],
        )
        for batch in table.to_batches(1 << 16)
    ]
    fields = [METADATA.to_arrow().field(each) for each in _LEDGER_COLUMNS]
    schema = pa.schema([pa.field(_NUMBER.name, pa.int64()), *fields])
    return pa.Table.from_batches(batches).cast(schema) if batches else schema.empty_table()


def _numbers_of(owners: pa.RecordBatch, numbering: _OwnerNumbering) -> Int64Array:
    """Return int64[n]: the number of each row's owner."""
    import pyarrow.compute as pc

    # Make a text of each row's owner, and look up a row of each distinct text only.
    columns = [pc.fill_null(owners.column(each), _NULL) for each in _KEY_FIELDS]
    keys = pc.binary_join_element_wise(*columns, "\0").dictionary_encode()
    codes = keys.indices.to_numpy(zero_copy_only=False)
    _, first_rows = np.unique(codes, return_index=True)
    rows = owners.take(first_rows).to_pylist()
    numbers: Int64Array = np.array([numbering.of(LedgerOwner(**row)) for row in rows], np.int64)
    row_numbers: Int64Array = numbers[codes]
    return row_numbers


def _reference_table(references: PulsarReferences, numbering: _OwnerNumbering) -> pa.Table:
    """Return a row for each ledger that is referred to."""
    import pyarrow as pa

    count = len(references.ledgers)
    numbers = np.empty(count, np.int64)
    flags = np.empty((len(LedgerReference._fields) - 1, count), np.bool_)
    for row, (owner, *flags_of_reference) in enumerate(references.ledgers.values()):
        numbers[row] = numbering.of(owner)
        flags[:, row] = flags_of_reference
    ledger_ids = np.fromiter(references.ledgers, np.int64, count)
    return pa.Table.from_arrays(
        [numbers, ledger_ids, *map(pa.array, flags)], schema=_REFERENCES.to_arrow()
    )


def _owner_rows(
    numbering: _OwnerNumbering, references: PulsarReferences
) -> Iterator[tuple[Any, ...]]:
    """Yield the row of each owner in the table `pulsar_owners`, by number. For owners of Pulsar,
    `doubt` is why references to their ledgers may not be known, `changed_at` when these last
    changed, and the last two columns are the ledgers of the cursor of the topic's compaction."""
    for number, owner in enumerate(numbering.owners):
        is_pulsar = owner.application == PULSAR
        cursor = open_compaction(owner, references)
        yield (
            number,
            owner.subject or owner.application,
            *owner,
            is_pulsar,
            states_topic(owner),
            references.lacks_topics,
            lacks_older_schemas(owner, references),
            references.doubt(owner) if is_pulsar else None,
            last_modified(owner, references),
            None if cursor is None else cursor.cursor_ledger,
            None if cursor is None else cursor.compacted_ledger,
        )
