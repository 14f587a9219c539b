"""Numbers as text: three significant digits; one that misses a limit never shows as the limit."""

from __future__ import annotations

import math
from typing import Any


def as_text(value: Any) -> str:
    """Return a value as text: three significant digits or all integer digits, "" for None. A false
    value is "NO", in capitals, because it marks a check that failed.

    >>> as_text(0.012345), as_text(1234567.8), as_text(None), as_text(3), as_text(False)
    ('0.0123', '1,234,568', '', '3', 'NO')
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "NO"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def compare(ratio: float, adverb: str) -> str:
    """Return a ratio as words that are followed by "as", or end a sentence.

    >>> compare(2.468, "long"), compare(1.04, "long"), compare(0.4512, "long")
    ('2.47 times as long', 'about as long', '45 % as long')
    """
    if 0.95 <= ratio <= 1.05:
        return f"about as {adverb}"
    amount = f"{ratio:.0%}".replace("%", " %") if ratio < 1 else f"{as_text(float(ratio))} times"
    return f"{amount} as {adverb}"


def format_missed(value: float, limit: float) -> str:
    """Return a figure that misses a limit as text that differs from the limit's.

    >>> format_missed(1.4975, 1.5), format_missed(2.003, 2), format_missed(1.2, 1.5)
    ('1.49', '2.01', '1.2')
    """
    if as_text(value) != as_text(float(limit)):
        return as_text(value)
    # Round away from the limit, to three significant digits.
    step = 10.0 ** min(math.floor(math.log10(abs(value))) - 2, 0) if value else 0.01
    towards = math.ceil if value > limit else math.floor
    return as_text(round(towards(value / step) * step, 10))
