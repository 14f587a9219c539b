"""Formats values as cells of a table for people: one line each, cut to the column's width."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable
from typing import Any

from bkstore.availability import Availability
from bkstore.counts import format_count
from bkstore.ids import LedgerId, unsigned64
from bkstore.tables.safe_text import escape_unprintable

_MAX_CELL = 400  # characters; only tables shorten, the other formats do not
_SHORT_ID_DIGITS = 8  # hex digits of each half of a short id
MAX_RANGES = 10_000
"""Above this many ranges, outputs other than tables have null; the groups say the same."""


class TruncatedRows(list[list[int]]):
    """The first rows of a cell that has too many to show; `summary` describes all of them.

    >>> format_cell(TruncatedRows([[0, 1], [3, 4]], "17 ranges"))
    '0-1 3-4 ... (17 ranges)'
    """

    def __init__(self, rows: list[list[int]], summary: str) -> None:
        super().__init__(rows)
        self.summary = summary


def format_cell(value: Any) -> str:
    """Return a value as text for people: one line, shortened if it is very long.

    >>> [format_cell(value) for value in (None, True, b"\\x07", 2 / 3, [[0, 4], [6, 6]])]
    ['-', 'yes', '07', '0.666667', '0-4 6']
    """
    if isinstance(value, str):
        return _shortened(escape_unprintable(value))
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, TruncatedRows):
        return f"{' '.join(map(_format_row, value))} ... ({value.summary})"
    if isinstance(value, list):
        return _shortened(" ".join(map(_format_row, value)) or "none")
    if isinstance(value, float):
        return f"{value:.6g}"
    return _shortened(value.hex()) if isinstance(value, bytes) else str(value)


def payload_cell(value: bytes | None) -> str:
    r"""Return a payload as text with other bytes escaped, or as hex with 0x if most are not text;
    bytes beyond the longest cell are ignored.

    >>> print(payload_cell(b"entry 7"), payload_cell(b"\xfc\x1bentry"), payload_cell(b"\0\x01a"))
    entry 7 \xfc\x1bentry 0x000161
    """
    if value is None:
        return "-"
    data = value[:_MAX_CELL]
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(data, final=len(data) == len(value))
        if text.isprintable():
            return text + _more(value, data)
    except UnicodeDecodeError:
        pass
    if 2 * sum(map(_is_text, data)) < len(data):
        data = data[: _MAX_CELL // 2]
        return f"0x{data.hex()}{_more(value, data)}"
    escaped = "".join(chr(byte) if _is_text(byte) else f"\\x{byte:02x}" for byte in data)
    return escaped + _more(value, data)


def _more(value: bytes, data: bytes) -> str:
    """Return the end of a cell that shows only the beginning `data` of the value, else ""."""
    size = format_count(len(value), "byte")
    return "" if len(data) == len(value) else f"... ({size}; see --format json)"


def _is_text(byte: int) -> bool:
    return 0x20 <= byte < 0x7F


def short_ledger_id(scope: int, ledger: int, separator: str = "…") -> str:
    """Return a ledger id in decimal in scope 0, else the ends of scope and ledger in hex.

    A half of up to 8 hex digits is complete, without leading zeros. Both are signed, as in tables.

    >>> short_ledger_id(0, 7), short_ledger_id(1, 255)
    ('7', '1…ff')
    >>> short_ledger_id(*LedgerId.parse("c0ffee00-feed-4bad-9e55-0123456789ab").signed)
    'c0ffee00…456789ab'
    """
    if scope == 0:
        return str(ledger)
    high, low = f"{unsigned64(scope):x}", f"{unsigned64(ledger):x}"
    high = high if len(high) <= _SHORT_ID_DIGITS else f"{high:0>16}"[:_SHORT_ID_DIGITS]
    return f"{high}{separator}{low[-_SHORT_ID_DIGITS:]}"


def ledger_cells(scopes: Iterable[Any], ledgers: Iterable[Any], separator: str) -> list[str]:
    """Return ledger ids in short form, or all in full if two short ones would be equal."""
    scoped_ids = list(zip(scopes, ledgers))
    if not any(scope for scope, _ in scoped_ids):
        return ["-" if ledger is None else str(ledger) for _, ledger in scoped_ids]
    present = dict.fromkeys(each for each in scoped_ids if each[1] is not None)
    texts = {scoped_id: short_ledger_id(*scoped_id, separator) for scoped_id in present}
    if len({*texts.values()}) < len(texts):
        texts = {scoped_id: str(LedgerId.from_signed(*scoped_id)) for scoped_id in present}
    return [texts.get(scoped_id, "-") for scoped_id in scoped_ids]


def _format_row(row: list[int]) -> str:
    """Return a range as a-b (or a), a sequence group as first..last/size/period."""
    if len(row) == 4:
        return f"{row[0]}..{row[1]}/{row[2]}/{row[3]}"
    return str(row[0]) if row[0] == row[-1] else f"{row[0]}-{row[-1]}"


def ranges_cell(
    entries: Availability, for_screen: bool, max_ranges: int, first_count: int
) -> list[list[int]] | None:
    """Return the ranges of entries as a cell: in a table that is `for_screen`, more than
    `max_ranges` are reduced to the first `first_count`; in other outputs, more than `MAX_RANGES`
    give None."""
    if entries.range_count <= (max_ranges if for_screen else MAX_RANGES):
        ranges: list[list[int]] = entries.ranges().tolist()
        return ranges
    if not for_screen:
        return None
    first = entries.ranges(limit=first_count).tolist()
    return TruncatedRows(first, f"{format_count(entries.range_count, 'range')}; see groups")


def _shortened(text: str) -> str:
    if len(text) <= _MAX_CELL:
        return text
    return f"{text[:_MAX_CELL]}... ({format_count(len(text), 'character')}; see --format json)"


# -- cells of a terminal


def width(text: str) -> int:
    """Return the number of terminal cells that a printable text takes."""
    if _is_narrow(text):
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def max_width(cells: list[str]) -> int:
    """Return the number of terminal cells of the widest text, 0 if there is none."""
    return max(map(len if _is_narrow("".join(cells)) else width, cells), default=0)


def _is_narrow(text: str) -> bool:
    """Return whether the text surely takes one cell per character: ASCII and "…" do."""
    return text.isascii() or text.replace("…", "").isascii()


def pad_cells(cells: list[str], cell_width: int, right: bool) -> list[str]:
    """Return the texts padded to `cell_width` terminal cells; wider ones are unchanged."""
    if _is_narrow("".join(cells)):
        return [text.rjust(cell_width) if right else text.ljust(cell_width) for text in cells]
    gaps = [" " * (cell_width - width(text)) for text in cells]
    return [gap + text if right else text + gap for gap, text in zip(gaps, cells)]


def truncate(text: str, room: int, mark: str = "…", *, keep_end: bool = False) -> str:
    """Return the text cut to at most `room` terminal cells, with `mark` in place of its end, or of
    its beginning with `keep_end`, as ends distinguish paths.

    >>> truncate("bookie-1/current/0.log", 8), truncate("bookie-1/current/0.log", 8, keep_end=True)
    ('bookie-…', '…t/0.log')
    """
    if width(text) <= room:
        return text
    room = max(room - width(mark), 0)
    if keep_end:
        return mark + _prefix_of_width(text[::-1], room)[::-1]
    return _prefix_of_width(text, room) + mark


def _prefix_of_width(text: str, room: int) -> str:
    """Return the longest beginning of a text that fits into `room` terminal cells."""
    if _is_narrow(text):
        return text[:room]
    for length, character in enumerate(text):
        room -= width(character)
        if room < 0:
            return text[:length]
    return text


def wrap_text(text: str, room: int) -> list[str]:
    """Return the text wrapped to lines of `room` cells; only words wider than that are split."""
    lines = [""]
    for word in re.findall(r" *[^ ]+", text):
        if lines[-1] and width(lines[-1] + word) > room:
            lines.append("")
            word = word.lstrip()
        if width(lines[-1]) + width(word) <= room:
            lines[-1] += word
            continue
        for character in word:
            if width(character) + width(lines[-1]) > room:
                lines.append("")
            lines[-1] += character
    return lines
