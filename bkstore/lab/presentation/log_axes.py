"""Readable logarithmic axes: round tick values, short labels, and the baseline of bars."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

_MIN_TICKS, MAX_TICKS = 3, 7  # how many ticks an axis has, approximately


def choose_ticks(low: float, high: float) -> list[float]:
    """Return at least three round numbers from `low` to `high`, both above 0.

    These are powers of ten if the range has three of them, else powers of ten and twice and five
    times these, and if those are less than three, numbers at equal distances.

    >>> choose_ticks(0.5, 20_000), choose_ticks(8, 60), choose_ticks(1.1, 1.9)
    ([1.0, 10.0, 100.0, 1000.0, 10000.0], [10.0, 20.0, 50.0], [1.2, 1.4, 1.6, 1.8])
    """
    decades = list(_scaled_powers_of_ten((1,), low, high))
    if len(decades) >= _MIN_TICKS:
        return decades[:: -(-len(decades) // MAX_TICKS)]  # every n-th, if there are too many
    finer_ticks = list(_scaled_powers_of_ten((1, 2, 5), low, high))
    return finer_ticks if len(finer_ticks) >= _MIN_TICKS else _even_ticks(low, high)


def _scaled_powers_of_ten(factors: Sequence[int], low: float, high: float) -> Iterator[float]:
    """Yield factor x 10^n within the limits, for tick marks."""
    for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1):
        for factor in factors:
            if low <= float(f"{factor}e{power}") <= high:
                yield float(f"{factor}e{power}")


def _even_ticks(low: float, high: float) -> list[float]:
    """Return at least three multiples of a round step from `low` to `high`. The step is the widest
    of 1, 2 and 5 times a power of ten that has three multiples in this range."""
    power = math.ceil(math.log10(high - low))
    while True:
        for factor in (5, 2, 1):  # from wide to narrow
            step = float(f"{factor}e{power}")
            # With a tolerance, as quotients of floats may be just off a whole number.
            first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
            if last - first + 1 >= _MIN_TICKS:
                return [float(f"{multiple * step:.12g}") for multiple in range(first, last + 1)]
        power -= 1


def widen_range(low: float, high: float) -> tuple[float, float]:
    """Return a range widened to a factor of two at least, so that noise does not fill a panel."""
    factor = math.sqrt(max(2 * low / high, 1))
    return low / factor, high * factor


def bar_baseline(values: Iterable[float]) -> float:
    """Return the value at which bars begin on a logarithmic axis, which has no 0: a power of ten
    that is at most half of each value above 0. So even the lowest bar has a visible length.

    >>> bar_baseline([8.2, 10.2]), bar_baseline([10.2, 0]), bar_baseline([0])
    (1.0, 1.0, 0.1)
    """
    lowest = min((value for value in values if value > 0), default=1)
    return float(f"1e{math.floor(math.log10(lowest / 2))}")


def tick_labels(values: Sequence[float]) -> list[str]:
    """Return short, distinct labels of numbers: 12k, 3.5M.

    >>> tick_labels([1000, 1500, 2e6]), tick_labels([1000, 1002])
    (['1k', '1.5k', '2M'], ['1k', '1.002k'])
    """
    for significant_digits in range(3, 16):
        labels = [abbreviate(value, significant_digits) for value in values]
        if len(set(labels)) == len(labels):
            break
    return labels


def abbreviate(value: float, digits: int = 3) -> str:
    """Return a number with a suffix k, M or G."""
    for divisor, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= divisor:
            return f"{value / divisor:.{digits}g}{suffix}"
    return f"{value:.{digits}g}"
