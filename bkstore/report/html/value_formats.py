"""Formats numbers, sizes, shares, ids and ranges for people."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from bkstore.counts import BINARY_UNITS, format_count, size_text
from bkstore.ids import LedgerId

CATEGORY_WORDS = {
    "no_replica": "no replica",
    "below_ack_quorum": "below ack quorum",
    "below_write_quorum": "below write quorum",
    "in_part": "complete where judged",
    "not_judged": "not judged",
    "sound": "all replicas present",
    "placement": "placement",
    "placement_soft": "placement preference not met",
    "overdue": "overdue for repair",
    "bookie_unavailable": "bookie not answering",
    "holes": "holes",
}
"""The page's words for categories and classes of health."""

ABSENT = "\u2013"
"""The text for a null value."""

counted = partial(format_count, grouped=True)
"""Returns a number with separators and its noun, as `counted(2500, "ledger")`: 2,500 ledgers."""


def size_unit(number: float) -> tuple[float, str]:
    """Return the size and name of the binary unit in which a number of bytes is 1 to 1023.

    >>> size_unit(3000), size_unit(0)
    ((1024.0, 'KiB'), (1.0, 'B'))
    """
    log2 = max(int(number), 1).bit_length() - 1
    power = min(log2 // 10, len(BINARY_UNITS) - 1)  # each unit is 2^10 of the one before
    return 1024.0**power, BINARY_UNITS[power]


class Size(NamedTuple):
    """A number of bytes in binary units, and exactly."""

    text: str
    exact: str


def format_size(number: int) -> Size:
    """Return bytes in binary units, and exactly.

    >>> format_size(1536)
    Size(text='1.50 KiB', exact='1,536 bytes')
    """
    return Size(size_text(number), counted(number, "byte"))


def format_share(part: float, whole: float) -> str:
    """Return a percentage; 0 % and 100 % only if they are exact.

    >>> [format_share(part, 1000) for part in (333, 1, 999, 0, 1000)]
    ['33 %', '<1 %', '>99 %', '0 %', '100 %']
    """
    if part <= 0 or whole <= 0:
        return "0 %"
    if part >= whole:
        return "100 %"
    percent = 100 * part / whole
    if percent < 0.5:
        return "<1 %"
    return ">99 %" if percent > 99.5 else f"{percent:.0f} %"


def ledger_name(scope_id: int, ledger_id: int) -> str:
    """Return the text of a ledger id given as a table's signed columns.

    >>> ledger_name(0, 7), ledger_name(1, -1)
    ('7', '0000000000000001ffffffffffffffff')
    """
    return str(LedgerId.from_signed(scope_id, ledger_id))


def scope_name(scope_id: int) -> str:
    """Return "0", or the 16 hex digits with which qualified names of the scope begin.

    >>> scope_name(0), scope_name(-1)
    ('0', 'ffffffffffffffff')
    """
    return "0" if scope_id == 0 else f"{scope_id % 2**64:016x}"


def join_clauses(parts: Sequence[str]) -> str:
    """Return the parts joined to one sentence, an empty string if there are none.

    >>> join_clauses(["2 ledgers lack replicas", "1 bookie is gone"])
    '2 ledgers lack replicas; 1 bookie is gone.'
    """
    text = "; ".join(parts)
    return text[:1].upper() + text[1:] + "." if text else ""


def join_names(names: Sequence[str], max_names: int = 5) -> str:
    """Return at most `max_names` names as a list in a sentence, and the number of the others.

    >>> join_names(["b1", "b2"]), join_names(["b1", "b2", "b3"], max_names=2)
    ('b1, b2', 'b1, b2 and 1 more')
    """
    more_count = len(names) - max_names
    shown = ", ".join(names[:max_names])
    return f"{shown} and {more_count:,} more" if more_count > 0 else shown


def shorten(text: str, max_length: int = 140) -> str:
    """Return the text cut to at most `max_length` characters, with an ellipsis if it was longer.

    >>> shorten("a bad checksum", 6)
    'a bad\u2026'
    """
    return text if len(text) <= max_length else f"{text[: max_length - 1]}\u2026"
