"""Table files as what they hold: properties, and internal rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bkstore.errors import CorruptionError
from bkstore.formats.rocksdb.coding import read_varint
from bkstore.formats.rocksdb.keys import ValueType
from bkstore.index.rocks.inspection.internal_rows import InternalRow
from bkstore.index.rocks.tables.any_rows import read_versions
from bkstore.index.rocks.tables.table_reader import TableReader

_PREFIX = "rocksdb."
_TEXTS = frozenset(
    {
        "block.based.table.prefix.filtering",
        "block.based.table.whole.key.filtering",
        "column.family.name",
        "comparator",
        "compression",
        "compression_options",
        "creating.db.identity",
        "creating.host.identity",
        "creating.session.identity",
        "filter.policy",
        "merge.operator",
        "prefix.extractor.name",
        "property.collectors",
    }
)
_FIXED = frozenset(
    {
        "block.based.table.index.type",
        "external_sst_file.global_seqno",
        "external_sst_file.version",
    }
)


class TableSummary(NamedTuple):
    """What a table file's properties state: all rows, the deletes of a key and of a range among
    them, and the name of the compression of its data blocks."""

    rows: int
    tombstones: int
    range_tombstones: int
    compression: str


def summarize_table(path: Path, largest_sequence: int | None) -> TableSummary:
    """Return the summary of a table file. Reads all of it but its data blocks; raises as
    `TableReader`."""
    with TableReader(path, largest_sequence) as table:
        properties = table.properties
        compression = properties.values.get("rocksdb.compression", b"")
        return TableSummary(
            rows=properties.entries,
            tombstones=properties.deletions - properties.range_deletions,
            range_tombstones=properties.range_deletions,
            compression=compression.decode("utf-8", "replace"),
        )


def read_properties(path: Path, largest_sequence: int | None) -> list[tuple[str, str]]:
    """Return (name, value as text) of what a table file states about itself: its footer, and the
    properties that RocksDB wrote, without their prefix. Raises as `TableReader`."""
    with TableReader(path, largest_sequence) as table:
        footer = [
            ("footer.format.version", str(table.footer.format_version)),
            ("footer.checksum", table.footer.checksum_type.name),
        ]
        values = table.properties.values
    return footer + [
        (name.removeprefix(_PREFIX), _describe(name.removeprefix(_PREFIX), value))
        for name, value in values.items()
    ]


def _describe(name: str, value: bytes) -> str:
    """Return the value of a property as text. It is stored as text, as a number of fixed size or as
    a varint, by its name; what is none of these is shown in hex."""
    if name in _TEXTS:
        return value.decode("utf-8", "replace")
    if name in _FIXED and len(value) in (4, 8):
        return str(int.from_bytes(value, "little"))
    try:
        number, end = read_varint(value, 0)
    except CorruptionError:
        return f"0x{value.hex()}"
    return str(number) if end == len(value) else f"0x{value.hex()}"


def read_table_rows(path: Path, largest_sequence: int | None) -> Iterator[InternalRow]:
    """Yield the internal rows of a table file in their order, then its range deletes. Raises as
    `TableReader`, and as `read_versions` after the rows before the damage."""
    with TableReader(path, largest_sequence) as table:
        for key, sequence, kind, value in read_versions(table):
            yield InternalRow(key, sequence, kind, value)
        for start, stop, sequence in table.range_deletes:
            yield InternalRow(start, sequence, ValueType.RANGE_DELETION, stop)
