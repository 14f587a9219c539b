"""Logarithmic axes that can be read: round numbers at them, and where bars begin."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

_LEAST, MOST = 3, 7
"""How many numbers stand at an axis, about."""


def ticks(low: float, high: float) -> list[float]:
    """Return round numbers from `low` to `high`, both above 0: at least three.

    Powers of ten where there are three, else their doubles and halves as well, else equal steps.

    >>> ticks(0.5, 20_000), ticks(8, 60), ticks(1.1, 1.9)
    ([1.0, 10.0, 100.0, 1000.0, 10000.0], [10.0, 20.0, 50.0], [1.2, 1.4, 1.6, 1.8])
    """
    decades = list(_multiples((1,), low, high))
    if len(decades) >= _LEAST:
        return decades[:: -(-len(decades) // MOST)]
    halves = list(_multiples((1, 2, 5), low, high))
    return halves if len(halves) >= _LEAST else _even(low, high)


def _multiples(factors: Sequence[int], low: float, high: float) -> Iterator[float]:
    for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1):
        for factor in factors:
            if low <= float(f"{factor}e{power}") <= high:
                yield float(f"{factor}e{power}")


def _even(low: float, high: float) -> list[float]:
    """Return multiples of the widest round step that has three of them."""
    power = math.ceil(math.log10(high - low))
    while True:
        for factor in (5, 2, 1):
            step = float(f"{factor}e{power}")
            first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
            if last - first + 1 >= _LEAST:
                return [float(f"{at * step:.12g}") for at in range(first, last + 1)]
        power -= 1


def widened(low: float, high: float) -> tuple[float, float]:
    """Return the ends of an axis, at least a factor of two apart: noise does not fill a panel."""
    wider = math.sqrt(max(2 * low / high, 1))
    return low / wider, high * wider


def floor_of_bars(values: Iterable[float]) -> float:
    """Return the power of ten that is at most half of each value above 0: where bars begin.

    The least has a length then, and what is a tenth larger has about the same one.

    >>> floor_of_bars([8.2, 10.2]), floor_of_bars([10.2, 0]), floor_of_bars([0])
    (1.0, 1.0, 0.1)
    """
    least = min((value for value in values if value > 0), default=1)
    return float(f"1e{math.floor(math.log10(least / 2))}")


def labels(places: Sequence[float]) -> list[str]:
    """Return short names of numbers, each another one: 12k, 3.5M.

    >>> labels([1000, 1500, 2e6]), labels([1000, 1002])
    (['1k', '1.5k', '2M'], ['1k', '1.002k'])
    """
    for digits in range(3, 16):
        names = [short(place, digits) for place in places]
        if len(set(names)) == len(names):
            break
    return names


def short(value: float, digits: int = 3) -> str:
    """Return a number in short words."""
    for unit, sign in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= unit:
            return f"{value / unit:.{digits}g}{sign}"
    return f"{value:.{digits}g}"
