"""Schemas, and tables with columns that can be read as rows or as Arrow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from bkstore.errors import InvalidArgument, MissingDependency
from bkstore.ids import Int64Array
from bkstore.tables.safe_text import escape_surrogates

if TYPE_CHECKING:
    import pyarrow as pa

ColumnKind = Literal["int64", "int32", "float64", "string", "bool", "binary", "rows"]
Values = npt.NDArray[Any] | Sequence[Any]


class Column(NamedTuple):
    """A column: its name, its kind ("rows": lists of int64 lists), and whether it can be null."""

    name: str
    kind: ColumnKind
    nullable: bool = False


class ScreenColumns(NamedTuple):
    """How a table is shown to people: its columns, and which give way if they do not fit.

    columns: in the order of the screen. caption: printed above the header while all rows have the
    same value. hide_idle: left out while every row has null, or zero if the column cannot be null.
    drop_first: left out first if space is short, before the last columns. may_cut: may be
    shortened, the first of them last. wrap: the column that is wrapped to several lines on a
    terminal, beside the others or below them, and never left out. as_records: rows are shown as
    fields, one per line. keep_idle: columns are shown even if every row has the value that
    `COLUMNS` declares idle.
    """

    columns: tuple[str, ...]
    caption: tuple[str, ...] = ()
    hide_idle: tuple[str, ...] = ()
    drop_first: tuple[str, ...] = ()
    may_cut: tuple[str, ...] = ()
    wrap: str = ""
    as_records: bool = False
    keep_idle: bool = False


class Schema(NamedTuple):
    """A named list of columns; `screen` is how they are shown to people, None for the default.
    `nothing` is the message that people get instead of a table without rows, "" for none."""

    name: str
    columns: tuple[Column, ...]
    screen: ScreenColumns | None = None
    nothing: str = "no rows"

    @property
    def names(self) -> list[str]:
        """The column names, in order."""
        return [column.name for column in self.columns]

    def to_arrow(self) -> pa.Schema:
        """Return the pyarrow schema; raises `MissingDependency` without pyarrow."""
        pa = require_pyarrow("Arrow output")
        arrow_types = {
            "int64": pa.int64(),
            "int32": pa.int32(),
            "float64": pa.float64(),
            "string": pa.string(),
            "bool": pa.bool_(),
            "binary": pa.binary(),
            "rows": pa.list_(pa.list_(pa.int64())),
        }
        columns = ((name, arrow_types[kind], nullable) for name, kind, nullable in self.columns)
        return pa.schema([pa.field(*column) for column in columns])


def require_pyarrow(purpose: str) -> Any:
    """Return the pyarrow module, or raise `MissingDependency` naming the extra."""
    try:
        import pyarrow
    except ImportError as error:
        raise MissingDependency.of("pyarrow", "arrow", purpose) from error
    return pyarrow


class ConstantColumn(Sequence[Any]):
    """A column that has the same value, or null, in every row; it takes no memory per row."""

    def __init__(self, value: Any, size: int) -> None:
        self.value = value
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self.value] * len(range(self.size)[index])
        return self.value

    def __iter__(self) -> Iterator[Any]:
        return repeat(self.value, self.size)


class Table:
    """Columns of equal length with a declared schema.

    >>> from bkstore.tables import FINDINGS
    >>> table = Table(FINDINGS, {name: [None] for name in FINDINGS.names}
    ...     | {"severity": ["oddity"], "detail": ["leftover"]})
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
        columns = [list(values) for values in zip(*rows)] or [[] for _ in schema.columns]
        return cls(schema, dict(zip(schema.names, columns)))

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Yield rows as tuples of plain Python values."""
        return zip(*map(_plain_cells, self.columns.values(), self.schema.columns))

    def to_arrow(self) -> pa.Table:
        """Return a pyarrow Table of the declared schema."""
        pa = require_pyarrow("Arrow output")
        schema = self.schema.to_arrow()
        columns = zip(self.columns.values(), schema.types)
        arrays = [_to_arrow_array(pa, values, arrow_type) for values, arrow_type in columns]
        return pa.Table.from_arrays(arrays, schema=schema)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_arrow().__arrow_c_stream__(requested_schema)


def _to_arrow_array(pa: Any, values: Values, arrow_type: pa.DataType) -> Any:
    """Return a column as an Arrow array; text that UTF-8 cannot encode is escaped."""
    if isinstance(values, ConstantColumn):
        (value,) = _escape_texts([values.value])
        return pa.repeat(pa.scalar(value, arrow_type), values.size)
    # pyarrow takes no two-dimensional arrays as the cells of a column.
    if pa.types.is_list(arrow_type) and any(isinstance(cell, np.ndarray) for cell in values):
        return _nested_array(pa, values, arrow_type)
    try:
        return pa.array(values, type=arrow_type)
    except UnicodeEncodeError:  # such as an undecodable file name
        return pa.array(_escape_texts(values), type=arrow_type)


def _plain_cells(values: Values, column: Column) -> Sequence[Any]:
    """Return a column's cells without numpy types: numbers, and lists of lists in kind "rows"."""
    if isinstance(values, np.ndarray):
        return values.tolist()  # type: ignore[no-any-return]
    if column.kind != "rows":
        return values
    return [cell.tolist() if isinstance(cell, np.ndarray) else cell for cell in values]


def _nested_array(pa: Any, cells: Values, arrow_type: pa.DataType) -> Any:
    """Return a column as an Arrow array of type list<list<int64>>. A cell is int64[n, m], such as n
    ranges of m = 2 numbers, or None. Arrow keeps such lists flat: all numbers, the offset of each
    inner list in them, and the offset of each cell's first inner list."""
    # The inner lists: the numbers of all cells, cut into rows.
    present = [cell for cell in cells if cell is not None]
    numbers = pa.array(np.concatenate([cell.ravel() for cell in present]), pa.int64())
    widths = np.repeat([cell.shape[1] for cell in present], [len(cell) for cell in present])
    rows = pa.ListArray.from_arrays(_list_offsets(pa, widths), numbers)
    # The cells: these rows, cut into as many as each cell has.
    row_counts = [0 if cell is None else len(cell) for cell in cells]
    nulls = pa.array([cell is None for cell in cells])
    return pa.ListArray.from_arrays(_list_offsets(pa, row_counts), rows, arrow_type, mask=nulls)


def _list_offsets(pa: Any, lengths: Sequence[int] | Int64Array) -> Any:
    """Return the Arrow offsets of lists with these lengths; pyarrow raises above 32 bits."""
    return pa.array(np.concatenate(([0], np.cumsum(lengths, dtype=np.int64))), pa.int32())


def _escape_texts(values: Values) -> list[Any]:
    """Return the values, with the surrogates in texts escaped."""
    return [escape_surrogates(value) if isinstance(value, str) else value for value in values]
