"""Texts of counts and lists: a number with its noun, names joined by commas and "and"."""

from __future__ import annotations

from collections.abc import Sequence


def format_count(
    number: int, singular: str, plural: str | None = None, *, grouped: bool = False
) -> str:
    """Return a number (`grouped`: by thousands) and its noun, in the plural `plural` or with an s.

    >>> format_count(1, "ledger"), format_count(0, "ledger"), format_count(1200, "entry", "entries")
    ('1 ledger', '0 ledgers', '1200 entries')
    >>> format_count(1200, "byte", grouped=True)
    '1,200 bytes'
    """
    noun = singular if number == 1 else plural or singular + "s"
    return f"{number:{',' if grouped else ''}} {noun}"


def join_words(names: Sequence[str]) -> str:
    """Return the names joined by commas, with "and" before the last; "" for none.

    >>> join_words(["duckdb"]), join_words(["duckdb", "pyarrow"]), join_words(["a", "b", "c"])
    ('duckdb', 'duckdb and pyarrow', 'a, b and c')
    """
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
