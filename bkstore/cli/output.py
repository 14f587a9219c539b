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
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

from bkstore.errors import InvalidArgument
from bkstore.index.outputs import OutputFile, output_file
from bkstore.tables import Schema, Table, require_pyarrow

__all__ = ["FORMATS", "write_tables"]

FORMATS = ("table", "json", "jsonl", "csv", "parquet")
_NO_WIDTH = 1 << 20
_RECORD_WIDTH = 100
_LONGEST_CELL = 400  # in a table on a screen; the other formats never shorten


def write_tables(
    schema: Schema,
    tables: Iterable[Table],
    form: str,
    target: Path | None = None,
    *,
    private: bool = False,
) -> None:
    """Write the tables, all of `schema`, to `target` or stdout.

    A file has its name when it is whole, and is as it was before if that does not come to pass
    (`bkstore.index.outputs`); a `private` one is for its owner alone.
    """
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
            writer = _WRITERS[form](stream)
        writer.start(schema)
        for table in tables:
            writer.write(table)
        writer.finish()


def _plain(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else value


class _Writer(ABC):
    def start(self, schema: Schema) -> None:
        self.schema = schema

    @abstractmethod
    def write(self, table: Table) -> None: ...

    def finish(self) -> None:  # noqa: B027
        """End the output."""


class _Text(_Writer):
    def __init__(self, stream: IO[str]) -> None:
        self.stream = stream


class _JsonLines(_Text):
    def write(self, table: Table) -> None:
        for row in table.rows():
            self.stream.write(self._row(row) + "\n")

    def _row(self, row: tuple[Any, ...]) -> str:
        return json.dumps(dict(zip(self.schema.names, map(_plain, row))))


class _Json(_JsonLines):
    separator = "[\n"

    def write(self, table: Table) -> None:
        for row in table.rows():
            self.stream.write(self.separator + self._row(row))
            self.separator = ",\n"

    def finish(self) -> None:
        self.stream.write("[]\n" if self.separator == "[\n" else "\n]\n")


class _Csv(_Text):
    def start(self, schema: Schema) -> None:
        super().start(schema)
        self.rows = csv.writer(self.stream, lineterminator="\n")
        self.rows.writerow(schema.names)

    def write(self, table: Table) -> None:
        for row in table.rows():
            self.rows.writerow(map(self._cell, row))

    def _cell(self, value: Any) -> Any:
        if value is None:
            return ""
        return json.dumps(value) if isinstance(value, (list, bool)) else _plain(value)


class _Screen(_Text):
    """Aligned columns for people; a piece is aligned within itself.

    Rows that hold lists are shown as records, a field a line.
    """

    def write(self, table: Table) -> None:
        if any(column.kind == "rows" for column in self.schema.columns):
            for row in table.rows():
                fields = zip(self.schema.names, row)
                self._print(("field", "value"), [False, False], fields, _RECORD_WIDTH)
            return
        right = [column.kind in ("int64", "int32") for column in self.schema.columns]
        self._print(self.schema.names, right, table.rows())

    def _print(
        self,
        names: Iterable[str],
        right: list[bool],
        rows: Iterable[tuple[Any, ...]],
        widest: int | None = None,
    ) -> None:
        from rich import box
        from rich.console import Console
        from rich.table import Table as RichTable

        shown = RichTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
        for name, to_right in zip(names, right):
            shown.add_column(
                name, justify="right" if to_right else "left", overflow="fold", max_width=widest
            )
        for row in rows:
            shown.add_row(*map(_cell, row))
        console = Console(file=self.stream, highlight=False, markup=False, emoji=False)
        # As wide as it is: a row cut into folded cells is harder to read than a wrapped line.
        free = console.options.update(width=_NO_WIDTH, max_width=_NO_WIDTH)
        console.width = console.measure(shown, options=free).maximum
        with console.capture() as captured:
            console.print(shown)
        for line in captured.get().splitlines():
            self.stream.write(line.rstrip() + "\n")


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return _shortened(" ".join(map(_numbers, value)) or "none")
    return _shortened(str(_plain(value)))


def _numbers(row: list[int]) -> str:
    """Return a range as a-b (or a), a sequence group as first..last/size/period."""
    if len(row) == 4:
        return f"{row[0]}..{row[1]}/{row[2]}/{row[3]}"
    return str(row[0]) if row[0] == row[-1] else f"{row[0]}-{row[-1]}"


def _shortened(text: str) -> str:
    if len(text) <= _LONGEST_CELL:
        return text
    return f"{text[:_LONGEST_CELL]}... ({len(text)} characters; see --format json)"


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
    "table": _Screen,
    "json": _Json,
    "jsonl": _JsonLines,
    "csv": _Csv,
}
