"""Tables for people: aligned columns under one header, and records, a field a line.

The look is that of rich's `SIMPLE_HEAD` box. rich measures and wraps each cell, though, which
takes eight times as long as the listing itself; here a column of a piece is padded at once.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from typing import IO, Any

from bkstore.cli.screen.cells import cell, cut, folded, ledger_cells, padded, payload_cell, widest
from bkstore.cli.screen.column_choice import (
    GAP,
    ColumnChoice,
    Shown,
    fitting,
    narrowed,
    plain_values,
    total,
)
from bkstore.counts import counted
from bkstore.ids import LedgerId
from bkstore.tables import Schema, Table
from bkstore.tables.table import Repeated

WIDTH = 100
"""Characters of a line where the stream is no terminal."""

_STYLES = {"bold": "\x1b[1m", "dim": "\x1b[2m"}
_PLAIN = "\x1b[0m"

_NUMBERS = ("int64", "int32", "float64")
_DEFAULT = Shown()


def _directory_cell(number: int | None) -> str:
    return "-" if number == -1 else cell(number)  # an index has the entry, and no log here does


_TEXTS: dict[str, Callable[[Any], str]] = {"payload": payload_cell, "dir_index": _directory_cell}
"""How columns read whose values are not just shown."""


class ScreenStream:
    """A text stream; `terminal` says whether it is one.

    A terminal has the width that COLUMNS or the system says. Headers are bold and rules dim
    there, but not with NO_COLOR (https://no-color.org) or where TERM is dumb. `rule`, `mark` (for
    what was cut) and `gap` (the middle of an id) are characters that the encoding has.
    """

    def __init__(self, stream: IO[str]) -> None:
        self.stream = stream
        self.terminal = stream.isatty()
        self.width = shutil.get_terminal_size((WIDTH, 24)).columns if self.terminal else WIDTH
        plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
        self._styled = self.terminal and not plain
        self.rule, self.mark, self.gap = "─", "…", "…"
        try:
            "─…".encode(getattr(stream, "encoding", None) or "utf-8")
        except (UnicodeEncodeError, LookupError):
            self.rule, self.mark, self.gap = "-", "...", ".."

    def line(self, text: str, style: str) -> None:
        """Write one line, "bold" or "dim" where the stream takes that."""
        self.stream.write(f"{_STYLES[style]}{text}{_PLAIN}\n" if self._styled else f"{text}\n")


class Screen:
    """Writes the pieces of a table as columns below one header, or as records.

    Where nothing is asked for (`Shown`), the columns are as many of the default ones as fit the
    terminal, or 100 characters where the stream is none. On a terminal texts are cut to fit,
    elsewhere only bytes are. The first piece decides; a wider cell of a later one widens its
    column, which never becomes narrower. Where a later piece needs a column that was left out, a
    new header begins below an empty line: there are never more headers than columns.
    """

    def __init__(self, stream: IO[str], schema: Schema, shown: Shown = _DEFAULT) -> None:
        self._out = ScreenStream(stream)
        self._schema = schema
        self._shown = shown
        self._choice = ColumnChoice(schema, shown)
        self._columns = self._choice.screen
        kinds = {column.name: column.kind for column in schema.columns}
        self._right = {name for name, kind in kinds.items() if kind in _NUMBERS}
        self._cut = {n for n in self._columns.cut if self._out.terminal or kinds[n] == "binary"}
        beside = {"scope_id", "qualified_name"} & {*self._columns.columns}
        self._short_ids = {"scope_id", "ledger_id"} <= {*kinds} and not beside
        self._wanted: list[str] | None = None  # the columns, before room was short
        self._widths: dict[str, int] = {}  # those that are shown
        self._records = 0
        self._shortened = False

    @property
    def hidden(self) -> list[str]:
        """The columns that were not shown, but for those that would have nothing to add."""
        seen = {*self._widths, *self._choice.said, *self._choice.silent}
        if self._columns.record:
            seen = {*self._columns.columns}
        if "ledger_id" in seen:
            seen |= {"scope_id"} if self._shortened else {"scope_id", "qualified_name"}
        return [name for name in self._schema.names if name not in seen]

    def write(self, table: Table) -> None:
        """Write one piece."""
        if not len(table):
            return
        if self._columns.record:
            for row in table.rows():
                self._record(dict(zip(self._schema.names, row)))
            return
        wanted = self._choice.of(table)
        texts = {name: self._texts(table, name) for name in wanted}
        if self._columns.fold and self._out.terminal:
            texts = _folded_rows(texts, self._columns.fold, self._out.width)
        if wanted != self._wanted:
            self._begin(wanted, texts)
        self._rows({name: texts[name] for name in self._widths})

    def finish(self) -> None:
        """Write the header, if there was no row to write it for."""
        if self._wanted is None and not self._records:
            self._begin(self._choice.names, {})

    # -- tables

    def _begin(self, wanted: list[str], texts: Mapping[str, list[str]]) -> None:
        """Choose the columns that fit, and write the caption and the header."""
        if self._wanted is not None:
            self._out.stream.write("\n")
        self._wanted = wanted
        natural = {name: max(len(name), widest(texts.get(name, []))) for name in wanted}
        room = self._out.width
        names = fitting(natural, self._columns, room) if self._shown.by_default else wanted
        shown = {name: natural[name] for name in names}
        narrow = narrowed(shown, self._columns, room)
        self._widths = {n: narrow[n] if n in self._cut else shown[n] for n in names}
        if self._choice.said:
            said = GAP.join(f"{name}: {text}" for name, text in self._choice.said.items())
            self._out.line(self._fitted(said, room), "dim")
        self._header()

    def _header(self) -> None:
        heads = [
            padded([name], room, name in self._right)[0] for name, room in self._widths.items()
        ]
        self._out.line(GAP.join(heads).rstrip(), "bold")
        self._out.line(self._out.rule * total(self._widths.values()), "dim")

    def _texts(self, table: Table, name: str) -> list[str]:
        values = table.columns[name]
        if name == "ledger_id" and self._short_ids:
            scopes = list(plain_values(table.columns["scope_id"]))
            self._shortened |= any(scopes)
            return ledger_cells(scopes, plain_values(values), self._out.gap)
        to_text = _TEXTS.get(name, cell)
        if isinstance(values, Repeated):
            return [to_text(values.value)] * len(values)
        return list(map(to_text, plain_values(values)))

    def _rows(self, texts: dict[str, list[str]]) -> None:
        for name in sorted(texts, key=self._cut.__contains__):  # what is cut has what is left
            if name in self._cut:
                others = total(room for each, room in self._widths.items() if each != name)
                room = max(self._out.width - others - len(GAP), self._widths[name])
                end = name == "file"
                texts[name] = [cut(each, room, self._out.mark, end=end) for each in texts[name]]
            self._widths[name] = max(self._widths[name], widest(texts[name]))
        columns = [
            padded(texts[name], room, name in self._right) for name, room in self._widths.items()
        ]
        self._out.stream.writelines(GAP.join(row).rstrip() + "\n" for row in zip(*columns))

    def _fitted(self, text: str, room: int) -> str:
        return cut(text, room, self._out.mark) if self._out.terminal else text

    # -- records

    def _record(self, row: Mapping[str, Any]) -> None:
        names = list(self._columns.columns)
        if self._shown.by_default:
            names = [name for name in names if row[name] is not None]
        room = max(self._out.width - max(map(len, names)) - len(GAP), 1)
        lines = {name: folded(self._field(row, name, room), room) for name in names}
        fields = [part for name in names for part in (name, *[""] * (len(lines[name]) - 1))]
        values = [line for name in names for line in lines[name]]
        widths = {"field": widest(names), "value": widest(values)}
        if self._records:
            self._out.stream.write("\n")
        else:
            self._widths = widths
            self._header()
        self._records += 1
        columns = padded(fields, self._widths["field"], False), values
        self._out.stream.writelines(GAP.join(line).rstrip() + "\n" for line in zip(*columns))

    def _field(self, row: Mapping[str, Any], name: str, room: int) -> str:
        value = row[name]
        if name == "ledger_id" and self._short_ids and value is not None:
            return str(LedgerId.from_signed(row["scope_id"], value))
        if name in self._columns.cut and isinstance(value, bytes):
            size = f"{counted(len(value), 'byte')}: "
            return size + cut(value[:WIDTH].hex(), room - len(size), self._out.mark)
        return payload_cell(value) if name == "payload" else cell(value)


def _folded_rows(texts: dict[str, list[str]], name: str, room: int) -> dict[str, list[str]]:
    """Return the cells with rows added in which a column goes on at the end of its line."""
    left = room - total(widest([other, *texts[other]]) for other in texts if other != name)
    lines = [folded(text, max(left - len(GAP), 1)) for text in texts[name]]
    return {
        other: [
            part
            for cell, parts in zip(texts[other], lines)
            for part in (parts if other == name else [cell, *[""] * (len(parts) - 1)])
        ]
        for other in texts
    }
