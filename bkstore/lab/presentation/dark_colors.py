"""Dark colors of a picture: for whoever's browser prefers them, in the SVG itself."""

from __future__ import annotations

INK, GRID, GROUND = "#1a2129", "#d9dfe5", "#ffffff"
"""Text, lines and background of a picture, from the report's style sheet."""

DARK_COLORS = {
    INK: "#e7ebf0",
    GRID: "#33404d",
    GROUND: "#171d25",
    "#1f4e86": "#4a86cf",
    "#5aa3f0": "#a6d0ff",
    "#7a2e6b": "#c274b2",
    "#17764a": "#42ad79",
    "#56616d": "#a3afbd",
}
"""Light -> dark; colors of series that are not here are light enough for both."""


def add_dark_colors(svg: str) -> str:
    """Return the SVG with a style sheet that replaces its colors where dark ones are preferred.

    The drawing keeps its light colors for programs that know no style sheets.

    >>> add_dark_colors('<svg><path style="fill: #ffffff"/></svg>').count("prefers-color-scheme")
    1
    """
    # Colors are attributes or part of style attributes; a rule overrides both by `!important`.
    rules = "".join(
        f'[style*="{name}: {light}"],[{name}="{light}"]{{{name}:{dark}!important}}'
        for light, dark in DARK_COLORS.items()
        for name in ("fill", "stroke")
    )
    content_start = svg.index(">", svg.index("<svg")) + 1
    sheet = f"<style>@media (prefers-color-scheme:dark){{{rules}}}</style>"
    return svg[:content_start] + sheet + svg[content_start:]
