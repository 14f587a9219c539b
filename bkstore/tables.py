"""The declared schemas of every table that leaves the library, and their Arrow export.

A `Table` is a schema and equally long columns: int64 numpy arrays, or lists where a column is
text, bytes, boolean or nullable. Rows come out as tuples without any extra package; with
pyarrow as Arrow, which pandas, Polars, DuckDB and Spark read through `__arrow_c_stream__`.
Ids and entry numbers are int64; ids above 2^63-1 appear in two's complement, and
`qualified_name` beside them says the id as text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from bkstore.errors import InvalidArgument, MissingDependency

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "ANSWERS",
    "AVAILABILITY",
    "BOOKIE_FILES",
    "BOOKIE_FINDINGS",
    "ENTRIES",
    "ENTRY_LOGS",
    "ENTRY_RECORDS",
    "FINDINGS",
    "GROUPS",
    "INSPECT",
    "JOURNAL_RECORDS",
    "LAST_MARKS",
    "LEDGERS",
    "LOCATIONS",
    "LOG_ENTRIES",
    "LOG_LEDGERS",
    "LOG_METADATA",
    "LOG_RECORDS",
    "LOOKUPS",
    "VIOLATIONS",
    "Column",
    "Repeated",
    "Schema",
    "Table",
    "require_pyarrow",
]

Kind = Literal["int64", "int32", "float64", "string", "bool", "binary", "rows"]
Values = npt.NDArray[Any] | Sequence[Any]


class Column(NamedTuple):
    """One column: its name, its kind ("rows" is a list of int64 lists), may it be null."""

    name: str
    kind: Kind
    nullable: bool = False


class Schema(NamedTuple):
    """A named list of columns."""

    name: str
    columns: tuple[Column, ...]

    @property
    def names(self) -> list[str]:
        """The column names, in order."""
        return [column.name for column in self.columns]

    def to_arrow(self) -> pa.Schema:
        """Return the pyarrow schema; `MissingDependency` without pyarrow."""
        pa = require_pyarrow("Arrow output")
        kinds = {
            "int64": pa.int64(),
            "int32": pa.int32(),
            "float64": pa.float64(),
            "string": pa.string(),
            "bool": pa.bool_(),
            "binary": pa.binary(),
            "rows": pa.list_(pa.list_(pa.int64())),
        }
        fields = [pa.field(c.name, kinds[c.kind], nullable=c.nullable) for c in self.columns]
        return pa.schema(fields)


def require_pyarrow(purpose: str) -> Any:
    """Return the pyarrow module, or raise `MissingDependency` naming the extra."""
    try:
        import pyarrow
    except ImportError as error:
        raise MissingDependency.of("pyarrow", "arrow", purpose) from error
    return pyarrow


class Repeated(Sequence[Any]):
    """A column that is one value throughout, null included; costs nothing until it is read."""

    def __init__(self, value: Any, size: int) -> None:
        self.value = value
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, at: Any) -> Any:
        return [self.value] * len(range(self.size)[at]) if isinstance(at, slice) else self.value

    def __iter__(self) -> Iterator[Any]:
        return repeat(self.value, self.size)


class Table:
    """Columns under a declared schema.

    >>> table = Table(FINDINGS, {"severity": ["oddity"], "detail": ["leftover"], "file": [None],
    ...     "offset": [None], "scope_id": [None], "ledger_id": [None]})
    >>> len(table), next(table.rows())[:2]
    (1, ('oddity', 'leftover'))
    """

    def __init__(self, schema: Schema, columns: Mapping[str, Values]) -> None:
        if list(columns) != schema.names:
            raise InvalidArgument(f"{schema.name} has columns {schema.names}, not {list(columns)}")
        sizes = {len(values) for values in columns.values()}
        if len(sizes) > 1:
            raise InvalidArgument(f"columns of {schema.name} differ in length: {sorted(sizes)}")
        self.schema = schema
        self.columns = dict(columns)

    @classmethod
    def from_rows(cls, schema: Schema, rows: Iterable[Sequence[Any]]) -> Table:
        """Return a table from row tuples in schema order."""
        listed = list(rows)
        columns: list[list[Any]] = [list(values) for values in zip(*listed)]
        if not listed:
            columns = [[] for _ in schema.columns]
        return cls(schema, dict(zip(schema.names, columns)))

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Yield rows as tuples of plain Python values."""
        plain = [v.tolist() if isinstance(v, np.ndarray) else v for v in self.columns.values()]
        return zip(*plain)

    def to_arrow(self) -> pa.Table:
        """Return a pyarrow Table of the declared schema."""
        pa = require_pyarrow("Arrow output")
        schema = self.schema.to_arrow()
        arrays = [
            pa.repeat(pa.scalar(values.value, field.type), values.size)
            if isinstance(values, Repeated)
            else pa.array(values, type=field.type)
            for values, field in zip(self.columns.values(), schema)
        ]
        return pa.Table.from_arrays(arrays, schema=schema)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_arrow().__arrow_c_stream__(requested_schema)


def _schema(name: str, *columns: tuple[str, Kind] | tuple[str, Kind, bool]) -> Schema:
    return Schema(name, tuple(Column(*column) for column in columns))


ENTRIES = _schema(
    "entries",
    ("bookie", "string"),
    ("dir_index", "int32"),
    ("scope_id", "int64"),
    ("ledger_id", "int64"),
    ("entry_id", "int64"),
    ("log_id", "int64"),
    ("position", "int64"),
    ("length", "int64", True),
)
"""One row an index entry. `length` is the record's size, null unless asked for or unknown."""

GROUPS = _schema(
    "groups",
    ("bookie", "string"),
    ("scope_id", "int64"),
    ("ledger_id", "int64"),
    ("first_sequence_start", "int64"),
    ("last_sequence_start", "int64"),
    ("sequence_size", "int64"),
    ("sequence_period", "int64"),
)
"""One row a BP-34 sequence group: the same entries, condensed."""

LEDGERS = _schema(
    "ledgers",
    ("bookie", "string"),
    ("scope_id", "int64"),
    ("ledger_id", "int64"),
    ("qualified_name", "string"),
    ("entries", "int64", True),
    ("first_entry", "int64", True),
    ("last_entry", "int64", True),
    ("fenced", "bool", True),
    ("limbo", "bool", True),
    ("explicit_lac", "binary", True),
    ("master_key", "binary", True),
    ("layout", "string"),
)
"""One row a ledger. What could not be read is null, and a finding says why."""

ENTRY_LOGS = _schema(
    "entry_logs",
    ("bookie", "string"),
    ("dir_index", "int32"),
    ("log_id", "int64"),
    ("file", "string"),
    ("bytes", "int64"),
    ("closed", "bool", True),
    ("ledgers", "int64", True),
)
"""One row an entry log: `closed` if its header says where a ledgers map is."""

LOG_LEDGERS = _schema(
    "log_ledgers",
    ("bookie", "string"),
    ("dir_index", "int32"),
    ("log_id", "int64"),
    ("scope_id", "int64"),
    ("ledger_id", "int64"),
    ("bytes", "int64"),
)
"""One row a ledger of an entry log; `bytes` are 4 + size of each of its records there."""

BOOKIE_FINDINGS = _schema(
    "findings",
    ("bookie", "string"),
    ("severity", "string"),
    ("detail", "string"),
    ("file", "string", True),
    ("offset", "int64", True),
    ("scope_id", "int64", True),
    ("ledger_id", "int64", True),
)
"""Oddities and damage of many bookies (`bkstore dump`)."""

LOCATIONS = _schema(
    "locations",
    ("entry_id", "int64"),
    ("dir_index", "int32"),
    ("log_id", "int64"),
    ("position", "int64"),
    ("location", "int64"),
)
"""The entries of one ledger with their places (`bkstore ledger`)."""

AVAILABILITY = _schema(
    "availability",
    ("scope_id", "int64"),
    ("ledger_id", "int64"),
    ("qualified_name", "string"),
    ("entries", "int64"),
    ("bytes", "binary"),
    ("groups", "rows"),
    ("ranges", "rows"),
    ("missing", "rows", True),
)
"""One row: which entries of a ledger are here (`bkstore availability`)."""

JOURNAL_RECORDS = _schema(
    "journal_records",
    ("file", "string"),
    ("journal_dir", "int32"),
    ("journal_id", "int64"),
    ("version", "int32"),
    ("offset", "int64"),
    ("kind", "string"),
    ("scope_id", "int64"),
    ("ledger_id", "int64"),
    ("entry_id", "int64"),
    ("bytes", "int64"),
    ("lac", "int64", True),
    ("length", "int64", True),
    ("master_key", "binary", True),
    ("explicit_lac", "binary", True),
    ("payload", "binary", True),
)
"""One row a journal record (`bkstore readjournal`).

`file` is a name in journal directory number `journal_dir`, `version` the file's. `offset` is that
of the length field, `bytes` the record without it.
`payload` is null unless asked for, else what follows the header: digest, then payload.
"""

LAST_MARKS = _schema(
    "last_marks",
    ("journal_dir", "int32"),
    ("file", "string", True),
    ("journal_id", "int64"),
    ("journal", "string"),
    ("position", "int64"),
)
"""One row a journal (`bkstore lastmark`); `file` is null where none says a mark."""

ENTRY_RECORDS = _schema(
    "entry_records",
    ("scope_id", "int64"),
    ("ledger_id", "int64"),
    ("entry_id", "int64"),
    ("dir_index", "int32"),
    ("log_id", "int64"),
    ("position", "int64"),
    ("bytes", "int64"),
    ("lac", "int64"),
    ("length", "int64"),
    ("digest_ok", "bool", True),
    ("payload", "binary"),
)
"""One row an entry as it is stored (`bkstore readledger`).

`bytes` is the record's size, `length` the ledger's payload bytes up to this entry. `digest_ok`
is null where no digest type was given; `payload` begins with the digest then.
"""

LOG_RECORDS = _schema(
    "log_records",
    ("dir_index", "int32"),
    ("log_id", "int64"),
    ("file", "string"),
    ("offset", "int64"),
    ("position", "int64"),
    ("scope_id", "int64"),
    ("ledger_id", "int64"),
    ("entry_id", "int64"),
    ("lac", "int64"),
    ("length", "int64"),
    ("bytes", "int64"),
    ("payload", "binary", True),
)
"""One row a record of an entry log (`bkstore readlog`).

`file` is a name in ledger directory number `dir_index`. `offset` is that of the size field,
`position` that of the record, which locations have.
`payload` is null unless asked for, else what follows the header: digest, then payload.
"""

LOG_ENTRIES = _schema(
    "log_entries",
    ("dir_index", "int32"),
    ("log_id", "int64"),
    ("file", "string"),
    ("entries", "int64"),
    ("first_entry", "int64"),
    ("last_entry", "int64"),
)
"""One row an entry log that holds entries of a ledger (`bkstore where`), or one a run of them.

`file` is a name in ledger directory number `dir_index`.
"""

LOG_METADATA = _schema(
    "log_metadata",
    ("dir_index", "int32"),
    ("log_id", "int64"),
    ("file", "string"),
    ("source", "string"),
    ("total_bytes", "int64"),
    ("remaining_bytes", "int64"),
    ("usage", "float64"),
    ("scope_id", "int64", True),
    ("ledger_id", "int64", True),
    ("bytes", "int64", True),
)
"""One row a ledger of an entry log (`bkstore readlogmetadata`); one without ledger if it has none.

`source` is "map" (the log's ledgers map), "scan" (its records) or "cache" (what garbage
collection keeps in `metadata-cache`). The totals are the log's, `bytes` the ledger's.
"""

BOOKIE_FILES = _schema(
    "bookie_files",
    ("kind", "string"),
    ("dir_index", "int32"),
    ("file", "string"),
    ("bytes", "int64"),
)
"""One row a file (`bkstore listfiles`); `kind` is "journal", "entrylog" or "index"."""

ANSWERS = _schema(
    "answers",
    ("kind", "string"),
    ("object_id", "int64"),
    ("start", "int64"),
    ("end", "int64"),
)
"""One row an object of an answer (`bkstore streams lookup`), in the order of offsets.

`kind` is "SSO" (stream set object) or "SO" (stream object); the range is half open.
"""

LOOKUPS = _schema(
    "lookups",
    ("world", "string", True),
    ("strategy", "string"),
    ("query", "int64", True),
    ("stream_id", "int64", True),
    ("start", "int64", True),
    ("end", "int64", True),
    ("limit", "int64", True),
    ("answer", "string", True),
    ("covered_to", "int64", True),
    ("agrees", "bool", True),
    ("loads", "int64"),
    ("waves", "int64"),
    ("preloads", "int64"),
    ("filter_refusals", "int64"),
    ("index_hits", "int64"),
    ("index_misses", "int64"),
    ("dead_entries", "int64"),
    ("seconds", "float64"),
)
"""One row a look-up and strategy (`bkstore streams compare`), and one with their sums.

`query` is the number of the look-up, null in the row of sums. `answer` is the status where it is
not "ok", else the objects, stream objects as ``so24``. `agrees` is null where there was nothing
to compare with, true if the answer is the expected one and that of the strategy before.
"""

FINDINGS = _schema(
    "findings",
    ("severity", "string"),
    ("detail", "string"),
    ("file", "string", True),
    ("offset", "int64", True),
    ("scope_id", "int64", True),
    ("ledger_id", "int64", True),
)
"""Oddities and damage."""

VIOLATIONS = _schema(
    "violations",
    ("category", "string"),
    ("scope_id", "int64"),
    ("ledger_id", "int64"),
    ("qualified_name", "string"),
    ("first_entry", "int64", True),
    ("bookie", "string", True),
    ("missing_entries", "int64"),
    ("missing", "rows", True),
    ("missing_groups", "rows"),
    ("detail", "string"),
)
"""What an audit found. `missing` are inclusive ranges, null where there are too many to list;
`missing_groups` (first, last, size, period) say the same in BP-34's form, whatever the number."""

INSPECT = _schema("inspect", ("property", "string"), ("value", "string"))
"""What `bkstore inspect` says, one property a row."""
