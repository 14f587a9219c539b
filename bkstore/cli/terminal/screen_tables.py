"""Tables for people: aligned columns under one header, and records, a field a line.

The look is that of rich's `SIMPLE_HEAD` box. rich measures and wraps each cell, though, which
takes eight times as long as the listing itself; here a column of a piece is padded at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import IO, Any

from bkstore.tables import Schema, Table
from bkstore.tables.safe_text import shown

__all__ = ["Beginning", "Screen"]

_GAP = "   "
_RECORD_WIDTH = 100
_LONGEST_CELL = 400  # the other formats never shorten


class Beginning(list[list[int]]):
    """The first rows of a cell that holds too many to be made; `whole` says of what.

    >>> cell(Beginning([[0, 1], [3, 4]], "17 ranges"))
    '0-1 3-4 ... (17 ranges)'
    """

    def __init__(self, rows: list[list[int]], whole: str) -> None:
        super().__init__(rows)
        self.whole = whole


class Screen:
    """Writes the pieces of a table as columns, below one header.

    A column is as wide as its widest cell so far: a later piece may widen it, and never narrows
    it. Rows that hold lists are shown as records, a field a line, folded at 100 characters.
    """

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._widths: list[int] = []
        self._records = 0

    def write(self, schema: Schema, table: Table) -> None:
        """Write one piece."""
        if any(column.kind == "rows" for column in schema.columns):
            for row in table.rows():
                self._record(schema.names, row)
            return
        columns = [list(map(cell, values)) for values in _plain_columns(table)]
        right = [column.kind in ("int64", "int32") for column in schema.columns]
        self._print(schema.names, columns, right)

    def _record(self, names: Sequence[str], row: Sequence[Any]) -> None:
        fields: list[str] = []
        values: list[str] = []
        for name, value in zip(names, row):
            lines = _folded(cell(value), _RECORD_WIDTH)
            values += lines
            fields += [name, *[""] * (len(lines) - 1)]
        if self._records:
            self._stream.write("\n")
        self._records += 1
        self._print(("field", "value"), [fields, values], [False, False])

    def _print(self, names: Sequence[str], columns: list[list[str]], right: Sequence[bool]) -> None:
        first = not self._widths
        before = self._widths or list(map(_width, names))
        widest = [max(map(_width, cells), default=0) for cells in columns]
        self._widths = list(map(max, before, widest))
        padded = [
            _padded(cells, width, to_right)
            for cells, width, to_right in zip(columns, self._widths, right)
        ]
        if first:
            heads = [
                _padded([name], width, to_right)[0]
                for name, width, to_right in zip(names, self._widths, right)
            ]
            self._stream.write(_GAP.join(heads).rstrip() + "\n")
            self._stream.write(self._rule() * (sum(self._widths) + len(_GAP) * (len(names) - 1)))
            self._stream.write("\n")
        self._stream.writelines(_GAP.join(row).rstrip() + "\n" for row in zip(*padded))

    def _rule(self) -> str:
        """Return the character of the line below the header, one that the stream can write."""
        try:
            "─".encode(getattr(self._stream, "encoding", None) or "utf-8")
        except (UnicodeEncodeError, LookupError):
            return "-"
        return "─"


def _plain_columns(table: Table) -> Iterable[Iterable[Any]]:
    for values in table.columns.values():
        yield values.tolist() if hasattr(values, "tolist") else values


def cell(value: Any) -> str:
    """Return a value as people read it: one line, shortened where it is very long."""
    if isinstance(value, str):
        return _shortened(shown(value))
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Beginning):
        return f"{' '.join(map(_numbers, value))} ... ({value.whole})"
    if isinstance(value, list):
        return _shortened(" ".join(map(_numbers, value)) or "none")
    return _shortened(value.hex()) if isinstance(value, bytes) else str(value)


def _numbers(row: list[int]) -> str:
    """Return a range as a-b (or a), a sequence group as first..last/size/period."""
    if len(row) == 4:
        return f"{row[0]}..{row[1]}/{row[2]}/{row[3]}"
    return str(row[0]) if row[0] == row[-1] else f"{row[0]}-{row[-1]}"


def _shortened(text: str) -> str:
    if len(text) <= _LONGEST_CELL:
        return text
    return f"{text[:_LONGEST_CELL]}... ({len(text)} characters; see --format json)"


def _width(text: str) -> int:
    """Return the cells of a terminal that a printable text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _padded(cells: list[str], width: int, right: bool) -> list[str]:
    if all(map(str.isascii, cells)):
        return [each.rjust(width) if right else each.ljust(width) for each in cells]
    gaps = [" " * (width - _width(each)) for each in cells]
    return [gap + each if right else each + gap for gap, each in zip(gaps, cells)]


def _folded(text: str, width: int) -> list[str]:
    """Return the lines of a text, cut between words, and inside those wider than a line."""
    lines = [""]
    for word in re.findall(r" *[^ ]+", text):
        if lines[-1] and _width(lines[-1] + word) > width:
            lines.append("")
            word = word.lstrip()
        for character in word:
            if _width(character) + _width(lines[-1]) > width:
                lines.append("")
            lines[-1] += character
    return lines
