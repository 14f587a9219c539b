"""The looks of a picture: like the report's charts, and readable in grey.

Sides differ by lightness and colour, and by marker and line or by hatching too.
"""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["ALONE", "SETTINGS", "STYLES", "Style"]

_INK, _GRID = "#1a2129", "#d9dfe5"  # of the report's style sheet, on white


class Style(NamedTuple):
    """How a side is drawn: as a line, and as bars."""

    colour: str
    marker: str
    line: str
    hatch: str


STYLES = (
    Style("#1f4e86", "o", "-", ""),
    Style("#c48324", "s", "--", "////"),
    Style("#5aa3f0", "^", "-.", ""),
    Style("#7a2e6b", "D", ":", "xxxx"),
    Style("#9fb5a8", "v", "-", "...."),
    Style("#17764a", "P", "--", "\\\\\\\\"),
    Style("#e0b0a0", "X", "-.", ""),
    Style("#56616d", "*", ":", "----"),
)
"""By turns for the sides of a picture, in the order in which the rows name them."""

ALONE = Style("#56616d", "o", "-", "")
"""The only series of a panel."""

SETTINGS: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "bkstore",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.edgecolor": _GRID,
    "axes.labelcolor": _INK,
    "axes.titlecolor": _INK,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": _INK,
    "text.parse_math": False,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "xtick.minor.size": 0,
    "ytick.minor.size": 0,
    "grid.color": _GRID,
    "grid.linewidth": 0.6,
    "hatch.linewidth": 0.6,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "lines.markersize": 5.5,
}
