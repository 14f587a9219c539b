"""Stacked bars of one line: what `bars.html.j2` draws them from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from bkstore.report.html.wording import share

_WIDTH = 1000
_LEAST = 4  # a part that is there is seen, however small


class Part(NamedTuple):
    """A piece of a bar: its colour class, what it is, how much, and how that reads."""

    colour: str
    label: str
    value: int
    text: str


class Piece(NamedTuple):
    """A rectangle of a bar 1000 units wide; `title` is what the pointer shows."""

    colour: str
    x: str
    width: str
    title: str


class Bar(NamedTuple):
    """A bar; `label` is what a screen reader says."""

    label: str
    pieces: tuple[Piece, ...]


class Key(NamedTuple):
    """A line of a bar's legend: colour class, name, number, share of the whole."""

    colour: str
    label: str
    text: str
    share: str


def bar(parts: Sequence[Part], whole: int, label: str) -> Bar:
    """Return a bar whose full width is `whole`.

    >>> bar([Part("c-live", "live", 3, "3 B")], 4, "4 B").pieces[0].width
    '750.0'
    """
    pieces, at = [], 0.0
    for part in parts:
        if part.value <= 0 or whole <= 0:
            continue
        width = min(max(_WIDTH * part.value / whole, _LEAST), _WIDTH - at)
        title = f"{part.label}: {part.text}"
        pieces.append(Piece(part.colour, f"{at:.1f}", f"{width:.1f}", title))
        at += width
    return Bar(label, tuple(pieces))


def legend(parts: Sequence[Part], whole: int) -> tuple[Key, ...]:
    """Return the names of a bar's parts, with their numbers; parts of nothing have no line."""
    return tuple(
        Key(part.colour, part.label, part.text, share(part.value, whole))
        for part in parts
        if part.value > 0
    )
