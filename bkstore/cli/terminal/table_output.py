"""Writes tables to stdout or a file in the five output formats.

Tables of one schema are written as they arrive, also as a JSON document or Parquet: a long listing
need not fit in memory. Bytes are lower-case hex in the text formats, and bytes in Parquet.
"""

from __future__ import annotations

import csv
import io
import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any

from bkstore.cli.screen.column_choice import RequestedColumns
from bkstore.cli.screen.tables import Screen
from bkstore.cli.terminal.standard_streams import print_stderr, print_text, redirect_to_null
from bkstore.errors import InvalidArgument, WriteFailed
from bkstore.files.user_outputs import OutputFile, open_output
from bkstore.formats.syntax.json_text import format_json
from bkstore.tables import Schema, Table, require_pyarrow
from bkstore.tables.safe_text import escape_unprintable

FORMATS = ("table", "json", "jsonl", "csv", "parquet")
_DEFAULT_COLUMNS = RequestedColumns()
_FORMULA_STARTS = tuple("=+-@\uff1d\uff0b\uff0d\uff20")
"""Characters that begin a formula in a spreadsheet, and their full-width forms."""


def write_tables(
    schema: Schema,
    tables: Iterable[Table],
    form: str,
    target: Path | None = None,
    *,
    private: bool = False,
    requested: RequestedColumns = _DEFAULT_COLUMNS,
    reports_no_rows: Callable[[], bool] = lambda: True,
) -> None:
    """Write the tables, all of `schema`, to `target` or stdout in the format `form`.

    Writes the columns that `requested` names, in that order, or all; the format "table" leaves out
    those that do not fit the terminal unless `requested` asks for them, and on stdout writes no
    table without rows: stderr gets the schema's message if `reports_no_rows()` is true. A file gets
    its name only when it is complete, and an existing one is kept if writing fails, which raises
    `WriteFailed`; a `private` file is readable by its owner alone.
    """
    if requested.columns is not None and form != "table":
        schema, tables = _select_columns(schema, tables, requested.columns)
    with ExitStack() as stack:
        file = None
        if target is not None:
            file = stack.enter_context(open_output(target, private=private))
        if form == "parquet":
            writer: _TableWriter = _ParquetWriter(file)
        else:
            stream: IO[str] = sys.stdout
            if file is not None:
                buffer = io.BufferedWriter(file)
                stream = stack.enter_context(io.TextIOWrapper(buffer, "utf-8", newline=""))
            if form == "table":
                has_file = target is not None
                writer = _ScreenWriter(stream, requested, has_file, reports_no_rows)
            else:
                writer = _WRITERS[form](stream)
        with _errors_naming(target):
            writer.start(schema)
        for table in tables:
            with _errors_naming(target):
                writer.write(table)
        with _errors_naming(target):
            writer.finish()


def tables_of_rows(schema: Schema, rows: Iterable[Sequence[Any]], count: int) -> Iterator[Table]:
    """Yield the rows as tables of `count` rows, the last one of fewer; none without rows."""
    iterator = iter(rows)
    while table_rows := list(islice(iterator, count)):
        yield Table.from_rows(schema, table_rows)


def write_text(text: str, target: Path | None = None) -> None:
    """Write a text to `target` or stdout; a file is replaced only when complete."""
    if target is None:
        print_text(text)
        return
    with _errors_naming(target), open_output(target) as file:
        file.write(text.encode("utf-8"))


def _select_columns(
    schema: Schema, tables: Iterable[Table], names: Sequence[str]
) -> tuple[Schema, Iterator[Table]]:
    """Return the schema and tables reduced to the named columns, in this order."""
    columns = {column.name: column for column in schema.columns}
    subset = Schema(schema.name, tuple(columns[name] for name in names))
    return subset, (
        Table(subset, {name: table.columns[name] for name in names}) for table in tables
    )


@contextmanager
def _errors_naming(target: Path | None) -> Iterator[None]:
    """Turn an `OSError` into `WriteFailed` with the target's name; `main` handles broken pipes."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        if target is None:
            redirect_to_null(sys.stdout)
        raise WriteFailed(target or "standard output", error) from error


def _hex_if_bytes(value: Any) -> Any:
    """Return bytes as hex, any other value unchanged."""
    return value.hex() if isinstance(value, bytes) else value


class _TableWriter(ABC):
    def start(self, schema: Schema) -> None:
        self.schema = schema

    @abstractmethod
    def write(self, table: Table) -> None: ...

    @abstractmethod
    def finish(self) -> None: ...


class _TextWriter(_TableWriter):
    def __init__(self, stream: IO[str]) -> None:
        self.stream = stream

    def finish(self) -> None:
        self.stream.flush()


class _JsonLinesWriter(_TextWriter):
    def write(self, table: Table) -> None:
        for row in table.rows():
            self.stream.write(self._format_row(row) + "\n")

    def _format_row(self, row: tuple[Any, ...]) -> str:
        return format_json(dict(zip(self.schema.names, map(_hex_if_bytes, row))))


class _JsonWriter(_JsonLinesWriter):
    separator = "[\n"

    def write(self, table: Table) -> None:
        for row in table.rows():
            self.stream.write(self.separator + self._format_row(row))
            self.separator = ",\n"

    def finish(self) -> None:
        self.stream.write("[]\n" if self.separator == "[\n" else "\n]\n")
        super().finish()


class _CsvWriter(_TextWriter):
    """CSV for spreadsheets: control characters are escaped, and no text can act as a formula."""

    def start(self, schema: Schema) -> None:
        super().start(schema)
        self.rows = csv.writer(self.stream, lineterminator="\n")
        self.rows.writerow(schema.names)

    def write(self, table: Table) -> None:
        for row in table.rows():
            self.rows.writerow(map(self._format_cell, row))

    def _format_cell(self, value: Any) -> Any:
        """Return a value as a CSV cell; an apostrophe keeps a text from being run as a formula."""
        if isinstance(value, str):
            text = escape_unprintable(value)
            return f"'{text}" if text.startswith(_FORMULA_STARTS) else text
        if value is None:
            return ""
        return json.dumps(value) if isinstance(value, (list, bool)) else _hex_if_bytes(value)


class _ScreenWriter(_TextWriter):
    """Tables for people. On stdout a table without rows is a message on stderr instead, if
    `reports_no_rows` returns True; a file (`keeps_header`) gets its header."""

    def __init__(
        self,
        stream: IO[str],
        requested: RequestedColumns,
        keeps_header: bool,
        reports_no_rows: Callable[[], bool],
    ) -> None:
        super().__init__(stream)
        self._reports_no_rows = reports_no_rows
        self.requested = requested
        self._keeps_header = keeps_header
        self._is_empty = True

    def start(self, schema: Schema) -> None:
        super().start(schema)
        self.screen = Screen(self.stream, schema, self.requested)

    def write(self, table: Table) -> None:
        self._is_empty &= not len(table)
        self.screen.write(table)

    def finish(self) -> None:
        """End the last table; report a result without rows, and columns that were not shown."""
        if self._is_empty and not self._keeps_header:
            super().finish()
            if self.schema.nothing and self._reports_no_rows():
                print_stderr(self.schema.nothing)
            return
        self.screen.finish()
        super().finish()
        hidden = self.screen.hidden if self.requested.is_default else []
        if hidden and self.stream.isatty() and sys.stderr.isatty():
            print_stderr(f"--wide shows {', '.join(hidden)} too")


class _ParquetWriter(_TableWriter):
    def __init__(self, target: OutputFile | None) -> None:
        if target is None and sys.stdout.isatty():
            raise InvalidArgument("parquet cannot be printed to a terminal: give -o FILE")
        self.target: Any = sys.stdout.buffer if target is None else target

    def start(self, schema: Schema) -> None:
        super().start(schema)
        require_pyarrow("Parquet output")
        import pyarrow.parquet as pq

        self.file = pq.ParquetWriter(self.target, schema.to_arrow(), compression="zstd")

    def write(self, table: Table) -> None:
        if len(table):
            self.file.write_table(table.to_arrow())

    def finish(self) -> None:
        self.file.close()


_WRITERS: dict[str, type[_TextWriter]] = {
    "json": _JsonWriter,
    "jsonl": _JsonLinesWriter,
    "csv": _CsvWriter,
}
