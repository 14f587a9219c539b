"""Charts of the page: inlined SVG from matplotlib, in the colors of the page.

matplotlib draws in placeholder colors, which CSS variables replace, so that one drawing serves
light and dark mode. Each chart is drawn wide and narrow, both in the least width that they are
shown in; the style sheet scales their text back to the size of the page's. Ids, dates and versions
are removed: the same numbers give the same text.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bkstore.errors import MissingDependency
from bkstore.report.findings.table_columns import number_column
from bkstore.report.html.rendering import mark_safe
from bkstore.report.html.value_formats import counted, shorten, size_unit
from bkstore.tables.safe_text import escape_unprintable

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.axes import Axes

_Array = npt.NDArray[Any]

_COLORS = {"live": "#010101", "garbage": "#020202", "ink": "#030303", "grid": "#040404"}
_UNITS_PER_INCH = 72
_WIDE, _NARROW = (780, 225), (360, 270)  # units: pixels of the smallest screens that show each
_FONT_SIZE = 15  # the page's
_MAX_BAR_NAMES, _MAX_NAME = 16, 22
_ROTATION = 35  # degrees, of names that do not fit side by side
_BINS = 20
_MAX_POINTS = 200

_SETTINGS: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "bkstore",
    "font.size": _FONT_SIZE,
    "text.parse_math": False,  # a bookie id is no formula
    **dict.fromkeys(
        ("axes.labelcolor", "text.color", "xtick.color", "ytick.color"), _COLORS["ink"]
    ),
    **dict.fromkeys(("axes.edgecolor", "grid.color"), _COLORS["grid"]),
    **dict.fromkeys(("xtick.major.size", "ytick.major.size", "xtick.minor.size"), 0),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right"), False),
    "xtick.major.pad": 7,
    "axes.grid.axis": "y",
    "grid.linewidth": 0.6,
}


class Drawing(NamedTuple):
    """The markup inside an SVG element, and its view box."""

    view_box: str
    inside: str


class Chart(NamedTuple):
    """A chart: a description, the colors that need a key, and the drawing in two widths."""

    words: str
    keys: tuple[str, ...]
    wide: Drawing
    narrow: Drawing


def require_matplotlib(purpose: str = "A report", extra: str = "report") -> Any:
    """Return the matplotlib module, or raise `MissingDependency` naming the extra."""
    try:
        import matplotlib
        import matplotlib.backends.backend_svg  # what draws without a display
        import matplotlib.figure
    except ImportError as error:
        raise MissingDependency.of("matplotlib", extra, purpose) from error
    return matplotlib


def bookies_chart(table: pa.Table) -> Chart | None:
    """Return a chart of live and garbage bytes per bookie, None for fewer than two bookies."""
    sizes = number_column(table, "log_file_bytes")
    if len(sizes) < 2 or not sizes.sum():
        return None
    order = np.argsort(-sizes, kind="stable")
    live, garbage = (number_column(table, name)[order] for name in ("live_bytes", "garbage_bytes"))
    # Many bookies are an outline without names.
    names = table.column("bookie").to_pylist() if len(order) <= _MAX_BAR_NAMES else []

    def draw(axes: Axes) -> None:
        # Bookie number n, from 1 on, takes n - 0.5 to n + 0.5 on the x axis.
        _draw_bytes(axes, np.arange(len(order) + 1) + 0.5, live, garbage, as_bars=bool(names))
        axes.set_xlim(0.5, len(order) + 0.5)
        if names:
            _name_bars(axes, [shorten(escape_unprintable(names[row]), _MAX_NAME) for row in order])
        axes.set_xlabel("bookies, the fullest first")

    words = f"Record bytes of {counted(len(order), 'bookie')}, the fullest first"
    return _make_chart(draw, words, ("live", "garbage"))


def logs_chart(table: pa.Table) -> Chart | None:
    """Return a chart of record bytes by the logs' occupancy, None if there are no bytes."""
    if not table.num_rows:
        return None
    live, garbage = number_column(table, "live_bytes"), number_column(table, "garbage_bytes")
    # A log with occupancy 1 belongs to the last bin, not to one of its own.
    bins = np.minimum((number_column(table, "occupancy") * _BINS).astype(np.int64), _BINS - 1)
    sums = [np.bincount(bins, weights=sizes, minlength=_BINS) for sizes in (live, garbage)]
    if not (sums[0] + sums[1]).any():
        return None

    def draw(axes: Axes) -> None:
        _draw_bytes(axes, np.linspace(0, 100, _BINS + 1), sums[0], sums[1], as_bars=False)
        axes.set_xlim(0, 100)
        axes.set_xticks(range(0, 101, 20))
        axes.set_xlabel("live part of the entry log, %")

    words = f"Record bytes of {counted(table.num_rows, 'entry log')} by their live part"
    return _make_chart(draw, words, ("live", "garbage"))


def ledgers_chart(table: pa.Table) -> Chart | None:
    """Return a chart of the share of bytes in the biggest ledgers, None for fewer than three."""
    sizes = np.sort(number_column(table, "bytes"))[::-1].astype(np.float64)
    if len(sizes) < 3 or not sizes.sum():
        return None
    # Points at even distances on a logarithmic axis: (number of biggest ledgers, their share).
    counts = np.unique(np.geomspace(1, len(sizes), _MAX_POINTS).round().astype(np.int64))
    shares = (np.cumsum(sizes) / sizes.sum() * 100)[counts - 1]

    def draw(axes: Axes) -> None:
        axes.plot(counts, shares, color=_COLORS["live"], linewidth=2)
        area = [counts[0], *counts, counts[-1]], [0, *shares, 0]  # below the line, down to the axis
        axes.fill(*area, color=_COLORS["live"], alpha=0.15, linewidth=0)
        axes.set_xscale("log")
        axes.set_xlim(1, len(sizes))
        axes.set_ylim(0, 100)
        ticks = _count_ticks(len(sizes))
        axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
        axes.set_xticks([], minor=True)
        axes.set_yticks(range(0, 101, 25))
        axes.set_xlabel("number of biggest ledgers (logarithmic)")
        axes.set_ylabel("share of record bytes, %")

    words = f"Share of all record bytes in the biggest of {len(sizes):,} ledgers"
    return _make_chart(draw, words, ())


def _count_ticks(highest: int) -> list[int]:
    """Return ticks from 1 to `highest` for a logarithmic axis: decades, below 1000 also 2 and 5."""
    steps = (1,) if highest >= 1000 else (1, 2, 5)
    ticks = [step * 10**n for n in range(len(str(highest))) for step in steps]
    ticks = [tick for tick in ticks if tick <= highest]
    return [*ticks, highest] if highest >= 1.4 * ticks[-1] else ticks


def _draw_bytes(axes: Axes, edges: _Array, live: _Array, garbage: _Array, as_bars: bool) -> None:
    """Draw garbage stacked on live bytes, as separate bars or two outlines, and a y axis. Value n
    is drawn between `edges` n and n + 1."""
    totals = live + garbage
    live_color, garbage_color = _COLORS["live"], _COLORS["garbage"]
    if as_bars:
        bar_centers = (edges[1:] + edges[:-1]) / 2
        axes.bar(bar_centers, live, 0.66, color=live_color)
        axes.bar(bar_centers, garbage, 0.66, bottom=live, color=garbage_color)
    else:
        axes.stairs(live, edges, fill=True, color=live_color, linewidth=0)
        axes.stairs(totals, edges, baseline=live, fill=True, color=garbage_color, linewidth=0)
    unit_bytes, unit_name = size_unit(float(totals.max()))
    highest = float(totals.max()) / unit_bytes
    step = _tick_step(highest)
    ticks = step * np.arange(int(np.ceil(highest / step)) + 1)
    axes.set_ylim(0, ticks[-1] * unit_bytes)
    axes.set_yticks(ticks * unit_bytes, [f"{tick:g}" for tick in ticks])
    axes.set_ylabel(f"bytes of records, {unit_name}")


def _name_bars(axes: Axes, names: list[str]) -> None:
    """Write a name below each bar, slanted if they do not fit side by side."""
    axes.set_xticks(range(1, len(names) + 1), names)
    room = axes.figure.bbox.width / _FONT_SIZE  # characters, roughly, that fit side by side
    longest = max(map(len, names))
    if longest * len(names) > room:
        axes.tick_params(axis="x", labelrotation=_ROTATION)
        # Make the picture higher by what the names take, at half the font's size a character.
        height = longest * _FONT_SIZE / 2 * np.sin(np.radians(_ROTATION))
        figure: Any = axes.figure
        figure.set_figheight(figure.get_figheight() + height / _UNITS_PER_INCH)
        for label in axes.get_xticklabels():
            label.set(horizontalalignment="right", rotation_mode="anchor")


def _tick_step(highest: float) -> float:
    """Return a round step that gives three to five ticks up to `highest`."""
    steps = [size * 10.0**power for power in range(-1, 4) for size in (1, 2, 5)]
    return next((step for step in steps if highest / step <= 5), steps[-1])


def _make_chart(draw: Callable[[Axes], None], words: str, keys: tuple[str, ...]) -> Chart:
    return Chart(words, keys, _draw_svg(draw, _WIDE), _draw_svg(draw, _NARROW))


def _draw_svg(draw: Callable[[Axes], None], size: tuple[float, float]) -> Drawing:
    """Return the drawing of a chart, `size` (width, height) in pixels; `draw` draws the data."""
    matplotlib = require_matplotlib()
    svg_text = io.StringIO()
    with matplotlib.rc_context(_SETTINGS):
        inches = (size[0] / _UNITS_PER_INCH, size[1] / _UNITS_PER_INCH)
        figure = matplotlib.figure.Figure(figsize=inches, layout="constrained")
        axes = figure.add_subplot()
        axes.set_axisbelow(True)
        axes.grid(visible=True, axis="y")
        draw(axes)
        canvas = matplotlib.backends.backend_svg.FigureCanvasSVG(figure)
        # Without the date, the same data give the same bytes.
        no_metadata = {"Date": None, "Creator": None, "Format": None, "Type": None}
        canvas.print_svg(svg_text, metadata=no_metadata)
    return _make_inline_drawing(svg_text.getvalue())


def _make_inline_drawing(svg: str) -> Drawing:
    """Return the drawing inside matplotlib's SVG document, without clip paths and clashing ids."""
    svg_tag, _, svg = svg[svg.index("<svg") :].partition(">")
    view_box = re.findall(r'viewBox="([^"]*)"', svg_tag)[0]
    svg = svg.removesuffix("\n").removesuffix("</svg>")
    svg = re.sub(r"<metadata>.*?</metadata>|<defs>.*?</defs>|<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r' (?:id|clip-path)="[^"]*"', "", svg)
    svg = re.sub(r"font(?:-family|-size)?: [^;\"]*;? ?", "", svg)  # the page's font applies
    # The background is the page's; the colors drawn stand for variables of the style sheet.
    svg = re.sub(r"fill: #ffffff", "fill: none", svg)
    for name, color in _COLORS.items():
        svg = svg.replace(color, f"var(--{name})")
    return Drawing(view_box, mark_safe(re.sub(r">\s+<", "><", svg).strip()))
