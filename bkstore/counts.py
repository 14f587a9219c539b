"""Counts and lists as they are read: a number and what it counts; several names in a row."""

from __future__ import annotations

from collections.abc import Sequence


def counted(number: int, one: str, many: str | None = None, *, grouped: bool = False) -> str:
    """Return a number and its noun; `many` where that is not `one` with an s.

    `grouped` sets thousands apart. Raises nothing.

    >>> counted(1, "ledger"), counted(0, "ledger"), counted(1200, "entry", "entries")
    ('1 ledger', '0 ledgers', '1200 entries')
    >>> counted(1200, "byte", grouped=True)
    '1,200 bytes'
    """
    return f"{number:{',' if grouped else ''}} {one if number == 1 else many or one + 's'}"


def in_words(names: Sequence[str]) -> str:
    """Return names in a row, with "and" before the last; empty for none.

    >>> in_words(["duckdb"]), in_words(["duckdb", "pyarrow"]), in_words(["a", "b", "c"])
    ('duckdb', 'duckdb and pyarrow', 'a, b and c')
    """
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
