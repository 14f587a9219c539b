"""Texts of counts and lists: a number with its noun, names joined by commas and "and"."""

from __future__ import annotations

from collections.abc import Sequence


def counted(number: int, one: str, many: str | None = None, *, grouped: bool = False) -> str:
    """Return a number (`grouped`: by thousands) and its noun, in the plural `many` or with an s.

    >>> counted(1, "ledger"), counted(0, "ledger"), counted(1200, "entry", "entries")
    ('1 ledger', '0 ledgers', '1200 entries')
    >>> counted(1200, "byte", grouped=True)
    '1,200 bytes'
    """
    return f"{number:{',' if grouped else ''}} {one if number == 1 else many or one + 's'}"


def in_words(names: Sequence[str]) -> str:
    """Return the names joined by commas, with "and" before the last; "" for none.

    >>> in_words(["duckdb"]), in_words(["duckdb", "pyarrow"]), in_words(["a", "b", "c"])
    ('duckdb', 'duckdb and pyarrow', 'a, b and c')
    """
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
