"""Values as people read them in a table: one line each, never wider than their column."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable
from typing import Any

from bkstore.availability import Availability
from bkstore.counts import counted
from bkstore.ids import LedgerId, unsigned64
from bkstore.tables.safe_text import shown

_LONGEST_CELL = 400  # the other formats never shorten
_DIGITS = 8  # of each half of a short id
MOST_RANGES = 10_000
"""Ranges above which typed outputs have null: their groups say the same, and are few."""


class Beginning(list[list[int]]):
    """The first rows of a cell that holds too many to be made; `whole` says of what.

    >>> cell(Beginning([[0, 1], [3, 4]], "17 ranges"))
    '0-1 3-4 ... (17 ranges)'
    """

    def __init__(self, rows: list[list[int]], whole: str) -> None:
        super().__init__(rows)
        self.whole = whole


def cell(value: Any) -> str:
    """Return a value as people read it: one line, shortened where it is very long.

    >>> cell(None), cell(True), cell(b"\\x07"), cell(2 / 3), cell([[0, 4], [6, 6]])
    ('-', 'yes', '07', '0.666667', '0-4 6')
    """
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
    if isinstance(value, float):
        return f"{value:.6g}"
    return _shortened(value.hex()) if isinstance(value, bytes) else str(value)


def payload_cell(value: bytes | None) -> str:
    r"""Return a payload as text, bytes in it that are no text as escapes; or as hex with 0x.

    Hex is what has more bytes that are no text than such that are. Bytes beyond the longest cell
    are not looked at.

    >>> print(payload_cell(b"entry 7"), payload_cell(b"\xfc\x1bentry"), payload_cell(b"\0\x01a"))
    entry 7 \xfc\x1bentry 0x000161
    """
    if value is None:
        return "-"
    data = value[:_LONGEST_CELL]
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(data, final=len(data) == len(value))
        if text.isprintable():
            return text + _more(value, data)
    except UnicodeDecodeError:
        pass
    if 2 * sum(map(_is_text, data)) < len(data):
        data = data[: _LONGEST_CELL // 2]
        return f"0x{data.hex()}{_more(value, data)}"
    return "".join(chr(b) if _is_text(b) else f"\\x{b:02x}" for b in data) + _more(value, data)


def _more(value: bytes, data: bytes) -> str:
    return (
        "" if len(data) == len(value) else f"... ({counted(len(value), 'byte')}; see --format json)"
    )


def _is_text(byte: int) -> bool:
    return 0x20 <= byte < 0x7F


def short_ledger(scope: int, ledger: int, gap: str = "…") -> str:
    """Return a ledger's number in scope 0; else the ends of scope and ledger in hex.

    A half of up to 8 hex digits is whole, without leading zeros. `scope` and `ledger` are as
    tables carry them, in two's complement.

    >>> short_ledger(0, 7), short_ledger(1, 255)
    ('7', '1…ff')
    >>> short_ledger(*LedgerId.parse("c0ffee00-feed-4bad-9e55-0123456789ab").signed)
    'c0ffee00…456789ab'
    """
    if scope == 0:
        return str(ledger)
    high, low = f"{unsigned64(scope):x}", f"{unsigned64(ledger):x}"
    high = high if len(high) <= _DIGITS else f"{high:0>16}"[:_DIGITS]
    return f"{high}{gap}{low[-_DIGITS:]}"


def ledger_cells(scopes: Iterable[Any], ledgers: Iterable[Any], gap: str) -> list[str]:
    """Return ledger ids as they are told apart: short ones, whole ones if two would look alike."""
    names = list(zip(scopes, ledgers))
    if not any(scope for scope, _ in names):
        return ["-" if ledger is None else str(ledger) for _, ledger in names]
    short: dict[str, tuple[int, int]] = {}
    cells = ["-" if name[1] is None else short_ledger(*name, gap) for name in names]
    for name, text in zip(names, cells):
        if short.setdefault(text, name) != name:
            return ["-" if name[1] is None else str(LedgerId.from_signed(*name)) for name in names]
    return cells


def _numbers(row: list[int]) -> str:
    """Return a range as a-b (or a), a sequence group as first..last/size/period."""
    if len(row) == 4:
        return f"{row[0]}..{row[1]}/{row[2]}/{row[3]}"
    return str(row[0]) if row[0] == row[-1] else f"{row[0]}-{row[-1]}"


def ranges_cell(
    some: Availability, shown: bool, on_screen: int, beginning: int
) -> list[list[int]] | None:
    """Return the ranges as a cell; where the table is `shown`, the first of more than `on_screen`.

    `beginning` is how many those are. None in another output above `MOST_RANGES`.
    """
    if some.range_count <= (on_screen if shown else MOST_RANGES):
        ranges: list[list[int]] = some.ranges().tolist()
        return ranges
    if not shown:
        return None
    first = some.ranges(limit=beginning).tolist()
    return Beginning(first, f"{counted(some.range_count, 'range')}; see groups")


def _shortened(text: str) -> str:
    if len(text) <= _LONGEST_CELL:
        return text
    return f"{text[:_LONGEST_CELL]}... ({counted(len(text), 'character')}; see --format json)"


# -- cells of a terminal


def width(text: str) -> int:
    """Return the cells of a terminal that a printable text takes."""
    if _is_narrow(text):
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def widest(cells: list[str]) -> int:
    """Return the cells of a terminal that the widest of texts takes, 0 for none."""
    return max(map(len if _is_narrow("".join(cells)) else width, cells), default=0)


def _is_narrow(text: str) -> bool:
    """Return whether each character takes one cell, without asking for each: our marks do."""
    return text.isascii() or text.replace("…", "").isascii()


def padded(cells: list[str], room: int, right: bool) -> list[str]:
    """Return texts that all take `room` cells of a terminal; wider ones stay as they are."""
    if _is_narrow("".join(cells)):
        return [each.rjust(room) if right else each.ljust(room) for each in cells]
    gaps = [" " * (room - width(each)) for each in cells]
    return [gap + each if right else each + gap for gap, each in zip(gaps, cells)]


def cut(text: str, room: int, mark: str = "…", *, end: bool = False) -> str:
    """Return a text that takes at most `room` cells; `mark` stands for what was cut off.

    The beginning is kept, or with `end` the end, which tells paths apart.

    >>> cut("bookie-1/current/0.log", 8), cut("bookie-1/current/0.log", 8, end=True)
    ('bookie-…', '…t/0.log')
    """
    if width(text) <= room:
        return text
    left = max(room - width(mark), 0)
    if _is_narrow(text):
        kept = text[len(text) - left :] if end else text[:left]
    else:
        kept = _fitting(text[::-1], left)[::-1] if end else _fitting(text, left)
    return mark + kept if end else kept + mark


def _fitting(text: str, room: int) -> str:
    for size, character in enumerate(text):
        room -= width(character)
        if room < 0:
            return text[:size]
    return text


def folded(text: str, room: int) -> list[str]:
    """Return the lines of a text, cut between words, and inside those wider than a line."""
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
