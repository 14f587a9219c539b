"""Writing tables to stdout or a file in the five output formats.

Tables of one schema arrive in pieces and are written as they come, so that a long listing
needs no memory for all of it (the JSON document and Parquet are written piece by piece too).
Bytes appear as lower-case hex in the text formats, and as bytes in Parquet.
"""

from __future__ import annotations

import csv
import io
import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

from bkstore.cli.screen.column_choice import Shown
from bkstore.cli.screen.tables import Screen
from bkstore.cli.terminal.messages import print_text, silence, tell
from bkstore.errors import InvalidArgument, WriteFailed
from bkstore.files.user_outputs import OutputFile, output_file
from bkstore.formats.syntax.json_text import format_json
from bkstore.tables import Schema, Table, require_pyarrow
from bkstore.tables.safe_text import shown

FORMATS = ("table", "json", "jsonl", "csv", "parquet")
_DEFAULT = Shown()
_FORMULA = tuple("=+-@\uff1d\uff0b\uff0d\uff20")
"""What a spreadsheet takes for the beginning of a formula, in wide characters too."""


def write_tables(
    schema: Schema,
    tables: Iterable[Table],
    form: str,
    target: Path | None = None,
    *,
    private: bool = False,
    shown: Shown = _DEFAULT,
) -> None:
    """Write the tables, all of `schema`, to `target` or stdout.

    All columns, or those that `shown` names in that order; for people (`form` "table") those that
    fit, unless it asks for them. A file has its name when it is whole, and is as it was before if
    that does not come to pass (`bkstore.files.user_outputs`); a `private` one is for its owner
    alone.
    """
    if shown.columns is not None and form != "table":
        schema, tables = _named_columns(schema, tables, shown.columns)
    with ExitStack() as stack:
        file = None
        if target is not None:
            file = stack.enter_context(output_file(target, private=private))
        if form == "parquet":
            writer: _Writer = _Parquet(file)
        else:
            stream: IO[str] = sys.stdout
            if file is not None:
                text = io.TextIOWrapper(io.BufferedWriter(file), encoding="utf-8", newline="")
                stream = stack.enter_context(text)
            writer = _Screen(stream, shown) if form == "table" else _WRITERS[form](stream)
        with _named(target):
            writer.start(schema)
        for table in tables:
            with _named(target):
                writer.write(table)
        with _named(target):
            writer.finish()


def write_text(text: str, target: Path | None = None) -> None:
    """Write a text to `target`, as `write_tables` does, or stdout."""
    if target is None:
        print_text(text)
        return
    with _named(target), output_file(target) as file:
        file.write(text.encode("utf-8"))


def _named_columns(
    schema: Schema, tables: Iterable[Table], names: Sequence[str]
) -> tuple[Schema, Iterator[Table]]:
    """Return the schema and tables with the columns of these names alone, in this order."""
    kinds = {column.name: column for column in schema.columns}
    chosen = Schema(schema.name, tuple(kinds[name] for name in names))
    return chosen, (Table(chosen, {n: each.columns[n] for n in names}) for each in tables)


@contextmanager
def _named(target: Path | None) -> Iterator[None]:
    """Say what could not be written; that a pipe's reader left is for `main`."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        if target is None:
            silence(sys.stdout)
        raise WriteFailed(target or "standard output", error) from error


def _plain(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else value


class _Writer(ABC):
    def start(self, schema: Schema) -> None:
        self.schema = schema

    @abstractmethod
    def write(self, table: Table) -> None: ...

    @abstractmethod
    def finish(self) -> None: ...


class _Text(_Writer):
    def __init__(self, stream: IO[str]) -> None:
        self.stream = stream

    def finish(self) -> None:
        self.stream.flush()


class _JsonLines(_Text):
    def write(self, table: Table) -> None:
        for row in table.rows():
            self.stream.write(self._row(row) + "\n")

    def _row(self, row: tuple[Any, ...]) -> str:
        return format_json(dict(zip(self.schema.names, map(_plain, row))))


class _Json(_JsonLines):
    separator = "[\n"

    def write(self, table: Table) -> None:
        for row in table.rows():
            self.stream.write(self.separator + self._row(row))
            self.separator = ",\n"

    def finish(self) -> None:
        self.stream.write("[]\n" if self.separator == "[\n" else "\n]\n")
        super().finish()


class _Csv(_Text):
    """For spreadsheets: texts hold no control characters, and none is taken for a formula.

    The exact texts are in the other formats.
    """

    def start(self, schema: Schema) -> None:
        super().start(schema)
        self.rows = csv.writer(self.stream, lineterminator="\n")
        self.rows.writerow(schema.names)

    def write(self, table: Table) -> None:
        for row in table.rows():
            self.rows.writerow(map(self._cell, row))

    def _cell(self, value: Any) -> Any:
        if isinstance(value, str):
            text = shown(value)
            return f"'{text}" if text.startswith(_FORMULA) else text
        if value is None:
            return ""
        return json.dumps(value) if isinstance(value, (list, bool)) else _plain(value)


class _Screen(_Text):
    def __init__(self, stream: IO[str], shown: Shown) -> None:
        super().__init__(stream)
        self.shown = shown

    def start(self, schema: Schema) -> None:
        super().start(schema)
        self.screen = Screen(self.stream, schema, self.shown)

    def write(self, table: Table) -> None:
        self.screen.write(table)

    def finish(self) -> None:
        self.screen.finish()
        super().finish()
        if self.shown.by_default and self.screen.hidden:
            self._tell_hidden(self.screen.hidden)

    def _tell_hidden(self, hidden: list[str]) -> None:
        """Say which columns are left out, to somebody who looks at both streams."""
        if self.stream.isatty() and sys.stderr.isatty():
            tell(f"--wide shows {', '.join(hidden)} too")


class _Parquet(_Writer):
    def __init__(self, target: OutputFile | None) -> None:
        if target is None and sys.stdout.isatty():
            raise InvalidArgument("parquet is not for a terminal: give -o FILE")
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


_WRITERS: dict[str, type[_Text]] = {
    "json": _Json,
    "jsonl": _JsonLines,
    "csv": _Csv,
}
