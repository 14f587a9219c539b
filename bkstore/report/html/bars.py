"""Stacked one-line bars, drawn by `pieces.html.j2`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from bkstore.report.html.value_formats import format_share

_BAR_WIDTH = 1000
_MIN_PART_WIDTH = 4  # so that the smallest part is visible


class BarPart(NamedTuple):
    """A part of a bar: its color class, label, value, and the value as text."""

    color: str
    label: str
    value: int
    text: str


class BarRectangle(NamedTuple):
    """A rectangle of a bar 1000 units wide; `title` is the tooltip."""

    color: str
    x: str
    width: str
    title: str


class Bar(NamedTuple):
    """A bar; `label` is for screen readers."""

    label: str
    pieces: tuple[BarRectangle, ...]


class LegendLine(NamedTuple):
    """A line of a bar's legend: color class, name, number, and share of the whole."""

    color: str
    label: str
    text: str
    share: str


def make_bar(parts: Sequence[BarPart], whole: int, label: str) -> Bar:
    """Return a bar whose full width is `whole`.

    >>> make_bar([BarPart("c-live", "live", 3, "3 B")], 4, "4 B").pieces[0].width
    '750.0'
    """
    pieces, x = [], 0.0
    for part in parts:
        if part.value <= 0 or whole <= 0:
            continue
        width = min(max(_BAR_WIDTH * part.value / whole, _MIN_PART_WIDTH), _BAR_WIDTH - x)
        title = f"{part.label}: {part.text}"
        pieces.append(BarRectangle(part.color, f"{x:.1f}", f"{width:.1f}", title))
        x += width
    return Bar(label, tuple(pieces))


def make_legend(parts: Sequence[BarPart], whole: int) -> tuple[LegendLine, ...]:
    """Return the legend of a bar's parts; parts with value 0 have no line."""
    return tuple(
        LegendLine(part.color, part.label, part.text, format_share(part.value, whole))
        for part in parts
        if part.value > 0
    )
