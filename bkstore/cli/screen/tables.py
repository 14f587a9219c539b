"""Tables for people: aligned columns under one header, or records with one field per line.

The style is rich's `SIMPLE_HEAD`. rich itself measures and wraps each cell, which takes eight times
as long as the listing; here a column of a batch is padded at once.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import chain
from typing import IO, Any

from bkstore.cli.screen.cells import entries_cell, format_cell, payload_cell
from bkstore.cli.screen.column_choice import (
    COLUMN_GAP,
    MIN_CUT_WIDTH,
    ColumnChoice,
    RequestedColumns,
    columns_that_fit,
    line_width,
    min_width,
    narrow_to_fit,
    plain_values,
)
from bkstore.cli.screen.short_ids import ledger_cells
from bkstore.cli.screen.text_width import max_width, pad_cells, truncate, wrap_text
from bkstore.counts import format_count
from bkstore.ids import LedgerId
from bkstore.tables import Schema, Table
from bkstore.tables.table import ConstantColumn

DEFAULT_WIDTH = 100
"""Line width if the stream is not a terminal."""

_STYLES = {"bold": "\x1b[1m", "dim": "\x1b[2m"}
_RESET_STYLE = "\x1b[0m"

_NUMBER_KINDS = ("int64", "int32", "float64")
_DEFAULT_COLUMNS = RequestedColumns()


def _directory_cell(number: int | None) -> str:
    # -1: the index has the entry, but none of the logs does.
    return "-" if number == -1 else format_cell(number)


_CELL_FORMATS: dict[str, Callable[[Any], str]]
_CELL_FORMATS = {"payload": payload_cell, "dir_index": _directory_cell}
"""Columns whose values need their own format."""

_ENTRY_COLUMNS = {
    "ranges": "groups",
    "missing": "missing_groups",
    "surplus_groups": "surplus_groups",
}
"""Columns of entry ids that are shown as text, and the column that has their sequence groups."""

_KEPT_ENDS = ("file", "owner", "qualified_name")
"""Columns whose values begin alike: if they are cut, they lose their beginning."""

_MIN_WRAP_WIDTH, _INDENT = 24, "    "
"""A column that is wrapped to less than this, or to more than two lines of less than half of the
screen, is printed below each row instead, indented."""

_RANGES_IN_COLUMN, _RANGES_IN_RECORD = 9, 30  # up to so many ranges of entries are listed


class ScreenStream:
    """A text stream; `is_terminal` is whether it is a terminal (width from COLUMNS or the system).

    Headers are bold and rules dim there, except with NO_COLOR (https://no-color.org) or if TERM is
    dumb. The encoding supports `rule`, `cut_mark` (of cut text) and `id_separator` (within ids).
    """

    def __init__(self, stream: IO[str]) -> None:
        """Find out the width, whether styles are supported, and which characters."""
        self.stream = stream
        self.is_terminal = stream.isatty()
        self.width = DEFAULT_WIDTH
        if self.is_terminal:
            self.width = shutil.get_terminal_size((DEFAULT_WIDTH, 24)).columns
        plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
        self._styled = self.is_terminal and not plain
        self.rule, self.cut_mark, self.id_separator = "─", "…", "…"
        try:
            "─…".encode(getattr(stream, "encoding", None) or "utf-8")
        except (UnicodeEncodeError, LookupError):
            self.rule, self.cut_mark, self.id_separator = "-", "...", ".."

    def line(self, text: str, style: str) -> None:
        """Write one line, in the `style` "bold" or "dim" if the stream supports styles."""
        styled = f"{_STYLES[style]}{text}{_RESET_STYLE}" if self._styled else text
        self.stream.write(f"{styled}\n")


class Screen:
    """Writes the batches of a table as columns below one header, or as records.

    By default (`RequestedColumns`), the schema's default columns are shown, as many as fit the
    terminal, or 100 characters elsewhere. On a terminal texts are cut to fit, elsewhere only bytes.
    The first batch decides; a wider cell in a later one widens its column for good. If a later
    batch needs a column that was left out, or no longer fits, a new header follows an empty line.
    """

    def __init__(
        self, stream: IO[str], schema: Schema, requested: RequestedColumns = _DEFAULT_COLUMNS
    ) -> None:
        """Begin a table of this schema; nothing is written before the first batch."""
        self._out = ScreenStream(stream)
        self._schema = schema
        self._shows_default = requested.is_default
        self._column_choice = ColumnChoice(schema, requested)
        self._screen_columns = self._column_choice.screen
        kinds = {column.name: column.kind for column in schema.columns}
        self._right_aligned = {name for name, kind in kinds.items() if kind in _NUMBER_KINDS}
        self._cut_columns = {  # elsewhere than on a terminal texts are complete
            name
            for name in self._screen_columns.may_cut
            if self._out.is_terminal or kinds[name] == "binary"
        }
        self._entry_columns = {
            ranges: groups
            for ranges, groups in _ENTRY_COLUMNS.items()
            if kinds.get(ranges) == kinds.get(groups) == "rows"
        }
        # Unless another column shows the scope, `ledger_id` shows it too.
        scope_columns = {"scope_id", "qualified_name"} & {*self._screen_columns.columns}
        self._adds_scope_to_id = {"scope_id", "ledger_id"} <= {*kinds} and not scope_columns
        self._has_shown_scope = False
        self._wanted_columns: list[str] | None = None  # of the last header, with those left out
        self._widths: dict[str, int] = {}  # of the columns shown
        self._wraps_below = False  # the wrapped column is below each row, not beside the others
        self._record_count = 0

    @property
    def hidden(self) -> list[str]:
        """The columns that were not shown and would have added information."""
        choice = self._column_choice
        known_names = {*self._widths, *choice.constant_values, *choice.idle_columns}
        if self._screen_columns.as_records:
            known_names = {*self._screen_columns.columns}
        if self._wraps_below:
            known_names.add(self._screen_columns.wrap)
        # A complete `ledger_id` represents both other id columns, a shortened one only the scope.
        if "ledger_id" in known_names:
            known_names |= {"scope_id"} if self._has_shown_scope else {"scope_id", "qualified_name"}
        return [name for name in self._schema.names if name not in known_names]

    def write(self, table: Table) -> None:
        """Write the rows of one batch."""
        if not len(table):
            return
        # The groups have the entries of every row, also where the ranges are too many to list.
        groups = {shown: table.columns[column] for shown, column in self._entry_columns.items()}
        table = Table(table.schema, {**table.columns, **groups})
        if self._screen_columns.as_records:
            for row in table.rows():
                self._write_record(dict(zip(self._schema.names, row)))
            return
        wanted = self._column_choice.update(table)
        texts = {name: self._cell_texts(table, name) for name in wanted}
        texts_below: list[str] = []
        wrapped = self._screen_columns.wrap
        if wrapped in texts and self._out.is_terminal:
            room = self._room_to_wrap(texts)
            # If there is too little room beside the other columns, wrapped texts go below the row;
            # see `_MIN_WRAP_WIDTH`. The first batch decides that.
            if self._wanted_columns is None:
                lines = 1 if room < _MIN_WRAP_WIDTH else 2
                is_narrow = 2 * room < self._out.width or lines == 1
                self._wraps_below = is_narrow and max_width(texts[wrapped]) > lines * room
            if self._wraps_below:
                wanted, texts_below = [n for n in wanted if n != wrapped], texts.pop(wrapped)
            else:
                texts = _wrap_column(texts, wrapped, room)
        if wanted != self._wanted_columns or not self._still_fits(texts):
            self._begin_table(wanted, texts)
        self._write_rows({name: texts[name] for name in self._widths}, texts_below)

    def _room_to_wrap(self, texts: Mapping[str, list[str]]) -> int:
        """Return the width of the column that is wrapped: what the others leave it. Those that may
        be cut take at most half of what the ones before them left."""
        widths = {name: max_width([name, *cells]) for name, cells in texts.items()}
        widths.pop(self._screen_columns.wrap, None)
        room = self._out.width
        # The columns that may be cut come last (False < True).
        for name in sorted(widths, key=lambda each: each in self._cut_columns):
            if name in self._cut_columns:
                half = max(room // 2 - len(COLUMN_GAP), MIN_CUT_WIDTH, len(name))
                widths[name] = min(widths[name], half)
            room -= widths[name] + len(COLUMN_GAP)
        return max(room, 1)

    def finish(self) -> None:
        """Write the header if there were no rows."""
        if self._wanted_columns is None and not self._record_count:
            self._begin_table(self._column_choice.names, {})

    # -- tables

    def _begin_table(self, wanted: list[str], texts: Mapping[str, list[str]]) -> None:
        """Choose the `wanted` columns that fit with these cells; write caption and header."""
        if self._wanted_columns is not None:  # below the rows of an earlier header
            self._out.stream.write("\n")
        self._wanted_columns = wanted
        full_widths = {name: max(len(name), max_width(texts.get(name, []))) for name in wanted}
        screen, room = self._screen_columns, self._out.width
        names = wanted
        if self._shows_default:
            uncut = self._entry_columns if self._out.is_terminal else ()
            names = columns_that_fit(full_widths, screen, room, uncut)
        full_widths = {name: full_widths[name] for name in names}
        self._widths = {
            name: narrowed_width if name in self._cut_columns else full_widths[name]
            for name, narrowed_width in narrow_to_fit(full_widths, screen, room).items()
        }
        constants = self._column_choice.constant_values
        if constants:
            caption = COLUMN_GAP.join(f"{name}: {text}" for name, text in constants.items())
            self._out.line(self._cut_on_terminal(caption, room), "dim")
        self._write_header()

    def _still_fits(self, texts: Mapping[str, list[str]]) -> bool:
        """Return whether the rows of a later batch fit below the header that has been written."""
        if not self._shows_default or len(self._widths) == 1:
            return True  # a new header would not help
        last_column = [*self._widths][-1]
        widths = []
        for column, width in self._widths.items():
            if column not in self._screen_columns.may_cut:
                width = max(width, max_width(texts[column]))
            elif column not in self._cut_columns or column == last_column:
                # Texts that are not cut are as wide as they are, under any header; nothing stands
                # to the right of the last column, so it may be cut shorter than before.
                width = min_width(column, width, self._screen_columns)
            widths.append(width)
        return line_width(widths) <= self._out.width

    def _write_header(self) -> None:
        header = "".join(self._table_lines({name: [name] for name in self._widths}))
        self._out.line(header, "bold")
        self._out.line(self._out.rule * line_width(self._widths.values()), "dim")

    def _cell_texts(self, table: Table, name: str) -> list[str]:
        """Return a column's cells as text: ledger ids with their scope, entry ids as ranges."""
        values = table.columns[name]
        if name == "ledger_id" and self._adds_scope_to_id:
            scopes = list(plain_values(table.columns["scope_id"]))
            self._has_shown_scope |= any(scopes)
            return ledger_cells(scopes, plain_values(values), self._out.id_separator)
        if name in self._entry_columns:
            return [entries_cell(groups, _RANGES_IN_COLUMN) for groups in values]
        to_text = _CELL_FORMATS.get(name, format_cell)
        if isinstance(values, ConstantColumn):
            return [to_text(values.value)] * len(values)
        return list(map(to_text, plain_values(values)))

    def _write_rows(self, texts: dict[str, list[str]], texts_below: list[str]) -> None:
        """Write rows under the last header: cells that are too wide are cut, or widen a column."""
        # The columns that may be cut come last (False < True), and get the space that is left.
        for name in sorted(texts, key=lambda each: each in self._cut_columns):
            if name in self._cut_columns:
                others = line_width(room for each, room in self._widths.items() if each != name)
                room = self._out.width - others - len(COLUMN_GAP)
                if name == [*self._widths][-1]:  # may be narrower than its header was
                    room = max(room, min_width(name, self._widths[name], self._screen_columns))
                    self._widths[name] = min(self._widths[name], room)
                else:
                    room = max(room, self._widths[name])
                cut = partial(truncate, mark=self._out.cut_mark, keep_end=name in _KEPT_ENDS)
                texts[name] = [cut(text, room) for text in texts[name]]
            # Rows that were written keep their place: a column widens, and only the last narrows.
            self._widths[name] = max(self._widths[name], max_width(texts[name]))
        lines = self._table_lines(texts)
        if texts_below:
            lines = chain.from_iterable(map(self._with_text_below, lines, texts_below))
        self._out.stream.writelines(f"{line}\n" for line in lines)

    def _with_text_below(self, line: str, text: str) -> list[str]:
        room = max(self._out.width - len(_INDENT), 1)
        return [line, *(_INDENT + part for part in wrap_text(text, room) if part)]

    def _table_lines(self, texts: Mapping[str, list[str]]) -> Iterator[str]:
        """Yield the lines of cells with these texts, padded to the columns' widths."""
        columns = [
            pad_cells(texts[name], cell_width, name in self._right_aligned)
            for name, cell_width in self._widths.items()
        ]
        for row in zip(*columns):
            yield COLUMN_GAP.join(row).rstrip()

    def _cut_on_terminal(self, text: str, room: int) -> str:
        return truncate(text, room, self._out.cut_mark) if self._out.is_terminal else text

    # -- records

    def _write_record(self, row: Mapping[str, Any]) -> None:
        """Write a row with a line for each field; a long value takes several lines."""
        names = list(self._screen_columns.columns)
        if self._shows_default:
            names = [name for name in names if row[name] is not None]
        # Wrap each value to the width right of the names; its further lines have no name.
        room = max(self._out.width - max(map(len, names)) - len(COLUMN_GAP), 1)
        fields: list[str] = []
        values: list[str] = []
        for name in names:
            value_lines = wrap_text(self._field_text(row, name, room), room)
            fields += _pad_below(name, len(value_lines))
            values += value_lines
        if self._record_count:
            self._out.stream.write("\n")
        else:  # one header, as wide as the first record
            self._widths = {"field": max_width(names), "value": max_width(values)}
            self._write_header()
        self._record_count += 1
        columns = pad_cells(fields, self._widths["field"], right=False), values
        self._out.stream.writelines(COLUMN_GAP.join(line).rstrip() + "\n" for line in zip(*columns))

    def _field_text(self, row: Mapping[str, Any], name: str, room: int) -> str:
        """Return the text of one value of a record. Ledger ids are complete, as there is space;
        bytes that may be cut are cut to `room` characters, after their number."""
        value = row[name]
        if name == "ledger_id" and self._adds_scope_to_id and value is not None:
            return str(LedgerId.from_signed(row["scope_id"], value))
        if name in self._entry_columns:
            return entries_cell(value, _RANGES_IN_RECORD)
        if name in self._screen_columns.may_cut and isinstance(value, bytes):
            size, data = f"{format_count(len(value), 'byte')}: ", value[:DEFAULT_WIDTH].hex()
            return size + truncate(data, room - len(size), self._out.cut_mark)
        return payload_cell(value) if name == "payload" else format_cell(value)


def _wrap_column(texts: dict[str, list[str]], wrapped: str, room: int) -> dict[str, list[str]]:
    """Return the cells of each column, with a cell for each line: those of the column `wrapped` are
    split into lines of `room` characters, the others are empty in all lines but the first."""
    lines_of_cells = [wrap_text(text, room) for text in texts[wrapped]]
    result = {}
    for name, cells in texts.items():
        padded = (_pad_below(cell, len(lines)) for cell, lines in zip(cells, lines_of_cells))
        result[name] = list(chain.from_iterable(lines_of_cells if name == wrapped else padded))
    return result


def _pad_below(cell: str, line_count: int) -> list[str]:
    return [cell, *[""] * (line_count - 1)]
