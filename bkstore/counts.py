"""Texts of counts, sizes and lists: a number with its noun or unit, names joined by commas."""

from __future__ import annotations

from collections.abc import Sequence

BINARY_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


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


def size_text(number: int) -> str:
    """Return bytes in binary units, three digits.

    >>> size_text(999), size_text(1536), size_text(300 * 2**30), size_text(1024**2 - 1)
    ('999 B', '1.50 KiB', '300 GiB', '1.00 MiB')
    """
    value, unit = float(number), 0
    # From 999.5 on, a value would be rounded to four digits.
    while abs(value) >= 999.5 and unit < len(BINARY_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    if unit == 0:
        return f"{number} B"
    decimals = 0
    if abs(value) < 99.95:
        decimals = 2 if abs(value) < 9.995 else 1
    return f"{value:.{decimals}f} {BINARY_UNITS[unit]}"
