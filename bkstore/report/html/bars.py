"""Stacked bars of one line, as inline SVG that takes its colours from the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from bkstore.report.html.markup import Html, tag
from bkstore.report.html.wording import share

__all__ = ["Part", "bar", "legend"]

_WIDTH = 1000
_LEAST = 4  # a part that is there is seen, however small


class Part(NamedTuple):
    """A piece of a bar: its colour class, what it is, how much, and how that reads."""

    colour: str
    label: str
    value: int
    text: str


def bar(parts: Sequence[Part], whole: int, label: str) -> Html:
    """Return a bar whose full width is `whole`; `label` is what a screen reader says."""
    pieces, at = [], 0.0
    for part in parts:
        if part.value <= 0 or whole <= 0:
            continue
        width = min(max(_WIDTH * part.value / whole, _LEAST), _WIDTH - at)
        title = tag("title", f"{part.label}: {part.text}")
        x, shown = f"{at:.1f}", f"{width:.1f}"
        drawn = tag("rect", class_=part.colour, x=x, y=0, width=shown, height=10)
        pieces.append(tag("g", drawn, title))
        at += width
    return tag(
        "svg",
        tag("rect", class_="track", x=0, y=0, width=_WIDTH, height=10),
        *pieces,
        class_="bar",
        viewBox=f"0 0 {_WIDTH} 10",
        preserveAspectRatio="none",
        role="img",
        aria_label=label,
    )


def legend(parts: Sequence[Part], whole: int) -> Html:
    """Return the list that names the parts of a bar, with their numbers."""
    return tag(
        "ul",
        *(
            tag(
                "li",
                tag("i", class_=f"key {part.colour}", aria_hidden="true"),
                tag("b", part.text),
                f" {part.label} ",
                tag("span", share(part.value, whole), class_="dim"),
            )
            for part in parts
            if part.value > 0
        ),
        class_="legend",
    )
