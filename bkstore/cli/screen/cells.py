"""Formats values as cells of a table for people: one line each, cut to the column's width."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence
from typing import Any

from bkstore.availability import Availability
from bkstore.availability.entry_text import format_entries
from bkstore.counts import format_count
from bkstore.tables.safe_text import escape_unprintable

_MAX_CELL = 400  # characters; only tables shorten, the other formats do not
MAX_RANGES = 10_000
"""Above this many ranges, a cell of ranges is null: the column of groups has the same entries."""


def format_cell(value: Any) -> str:
    """Return a value as text for people: one line, shortened if it is very long.

    >>> [format_cell(value) for value in (None, True, b"\\x07", 2 / 3, [[0, 4], [6, 6]])]
    ['-', 'yes', '07', '0.666667', '0-4 6']
    """
    if isinstance(value, str):
        return _shorten_text(escape_unprintable(value))
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return _shorten_text(" ".join(map(format_row, value)) or "none")
    if isinstance(value, float):
        return f"{value:.6g}"
    return _shorten_text(value.hex()) if isinstance(value, bytes) else str(value)


def payload_cell(value: bytes | None) -> str:
    r"""Return a payload as text: UTF-8 if it is, else ASCII with other bytes escaped, or hex after
    0x if most bytes are not ASCII text. The bytes that a cell has no space for are ignored.

    >>> print(payload_cell(b"entry 7"), payload_cell(b"\xfc\x1bentry"), payload_cell(b"\0\x01a"))
    entry 7 \xfc\x1bentry 0x000161
    """
    if value is None:
        return "-"
    data = value[:_MAX_CELL]
    try:  # incrementally: the cut may be within a character
        text = codecs.getincrementaldecoder("utf-8")().decode(data, final=len(data) == len(value))
        if text.isprintable():
            return text + _cut_note(value, data)
    except UnicodeDecodeError:
        pass
    if 2 * sum(map(_is_text, data)) < len(data):
        data = data[: _MAX_CELL // 2]
        return f"0x{data.hex()}{_cut_note(value, data)}"
    escaped = "".join(chr(byte) if _is_text(byte) else f"\\x{byte:02x}" for byte in data)
    return escaped + _cut_note(value, data)


def _cut_note(value: bytes, data: bytes) -> str:
    """Return the end of a cell that shows only the beginning `data` of the value, else ""."""
    size = format_count(len(value), "byte")
    return "" if len(data) == len(value) else f"... ({size}; see --format json)"


def _is_text(byte: int) -> bool:
    return 0x20 <= byte < 0x7F


def format_row(row: list[int]) -> str:
    """Return a range as a-b (or a), a sequence group as first..last/size/period."""
    if len(row) == 4:
        first_start, last_start, size, period = row
        return f"{first_start}..{last_start}/{size}/{period}"
    first, last = row[0], row[-1]
    return str(first) if first == last else f"{first}-{last}"


def entries_cell(groups: Iterable[Sequence[int]] | None, max_ranges: int) -> str:
    """Return the entries of sequence groups as text, "-" if they are not known.

    >>> entries_cell([[0, 99, 1, 3], [200, 200, 1, 0]], 9), entries_cell(None, 9)
    ('0, 3, 6, ..., 99, 200 (35 entries)', '-')
    """
    return "-" if groups is None else format_entries(Availability.from_groups(groups), max_ranges)


def list_ranges(entries: Availability) -> list[list[int]] | None:
    """Return the ranges of entries as a cell, None above `MAX_RANGES`."""
    if entries.range_count > MAX_RANGES:
        return None
    ranges: list[list[int]] = entries.ranges().tolist()
    return ranges


def _shorten_text(text: str) -> str:
    if len(text) <= _MAX_CELL:
        return text
    return f"{text[:_MAX_CELL]}... ({format_count(len(text), 'character')}; see --format json)"
