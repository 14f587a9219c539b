"""Counts as they are read: a number and what it counts, one or many."""

from __future__ import annotations

__all__ = ["counted"]


def counted(number: int, one: str, many: str | None = None, *, grouped: bool = False) -> str:
    """Return a number and its noun; `many` where that is not `one` with an s.

    `grouped` sets thousands apart. Raises nothing.

    >>> counted(1, "ledger"), counted(0, "ledger"), counted(1200, "entry", "entries")
    ('1 ledger', '0 ledgers', '1200 entries')
    >>> counted(1200, "byte", grouped=True)
    '1,200 bytes'
    """
    return f"{number:{',' if grouped else ''}} {one if number == 1 else many or one + 's'}"
