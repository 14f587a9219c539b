"""Pictures of a document, by matplotlib: a panel beside the other.

Drawn from the document and the experiment's panels alone: the same numbers, the same
bytes. SVG keeps its text as text.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from bkstore.errors import InvalidArgument
from bkstore.report.charts import require_matplotlib
from tools.lab import log_axes
from tools.lab.document import Document
from tools.lab.experiment import Experiment, Panel, Row
from tools.lab.table import shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# -- looks: like the report's charts, and readable in grey, so that sides differ by lightness too

_INK, _GRID = "#1a2129", "#d9dfe5"  # of the report's style sheet, on white


class _Style(NamedTuple):
    """How a side is drawn: as a line, and as bars."""

    colour: str
    marker: str
    line: str
    hatch: str


_STYLES = (
    _Style("#1f4e86", "o", "-", ""),
    _Style("#c48324", "s", "--", "////"),
    _Style("#5aa3f0", "^", "-.", ""),
    _Style("#7a2e6b", "D", ":", "xxxx"),
    _Style("#9fb5a8", "v", "-", "...."),
    _Style("#17764a", "P", "--", "\\\\\\\\"),
    _Style("#e0b0a0", "X", "-.", ""),
    _Style("#56616d", "*", ":", "----"),
)
"""By turns for the sides of a picture, in the order in which the rows name them."""

_ALONE = _Style("#56616d", "o", "-", "")
"""The only series of a panel."""

_SETTINGS: dict[str, Any] = {
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

_PANEL = (4.5, 3.3)  # inches
_NOTHING = {"Date": None, "Creator": None}


def drawn(experiment: Experiment, document: Document, form: Literal["svg", "png"]) -> bytes:
    """Return the picture; `MissingDependency` without matplotlib.

    Raises `InvalidArgument` where no panel has rows: a benchmark's row may have no ratio.
    """
    matplotlib = require_matplotlib()
    panels = [panel for panel in experiment.panels if panel.rows(document["rows"])]
    if not panels:
        raise InvalidArgument(f"no rows of this result stand in a panel of {experiment.name}")
    columns = min(len(panels), 3 if len(panels) > 4 else 2)
    lines = math.ceil(len(panels) / columns)
    out = io.BytesIO()
    with matplotlib.rc_context(_SETTINGS):
        size = (_PANEL[0] * columns, _PANEL[1] * lines + 0.5)
        figure = matplotlib.figure.Figure(figsize=size, layout="constrained")
        figure.get_layout_engine().set(w_pad=0.12, h_pad=0.1)
        grid = figure.subplots(lines, columns, squeeze=False).ravel()
        named = _panels(experiment, panels, grid, document["rows"])
        for axes in grid[len(panels) :]:
            axes.set_axis_off()
        if len(named) > 1:
            figure.legend(
                named.values(), named.keys(), loc="outside upper left", ncols=_fits(named, size[0])
            )
        if form == "svg":
            canvas = matplotlib.backends.backend_svg.FigureCanvasSVG(figure)
            canvas.print_svg(out, metadata=_NOTHING)
            return _tight(out.getvalue())
        else:
            from matplotlib.backends.backend_agg import FigureCanvasAgg

            canvas = FigureCanvasAgg(figure)
            canvas.print_png(out, metadata={"Software": None})  # type: ignore[no-untyped-call]
    return out.getvalue()


def _panels(
    experiment: Experiment, panels: list[Panel], grid: Iterable[Axes], rows: list[Row]
) -> dict[str, Any]:
    """Draw the panels; return what the legend of those that show what the first one does needs.

    One that shows other series has a legend of its own, between its title and its axes.
    """
    named: dict[str, Any] = {}
    styles = _styles(panels, rows)
    for panel, axes in zip(panels, grid):
        keys = _draw(experiment, panel, axes, rows, styles)
        if panel.by == panels[0].by:
            named |= {name: key for name, key in keys.items() if name not in named}
        elif len(keys) > 1:
            columns = _fits(keys, _PANEL[0])
            above = 13 * (math.ceil(len(keys) / columns) + 1)  # points, its title's line as well
            axes.set_title(panel.title, pad=6 + above)
            axes.legend(
                keys.values(),
                keys.keys(),
                title=experiment.column(panel.by or panel.x).title,
                loc="lower left",
                bbox_to_anchor=(0, 1),
                borderaxespad=0.1,
                borderpad=0.1,
                ncols=columns,
                alignment="left",
                fontsize=9,
                title_fontsize=9,
            )
    return named


def _fits(names: Iterable[str], inches: float) -> int:
    """Return how many columns of a legend have room in a width."""
    return max(int(inches * 13 / (max(map(len, names)) + 8)), 1)  # characters of an inch


def _tight(svg: bytes) -> bytes:
    """Return the same drawing without comments, metadata and blanks between elements."""
    text = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", svg.decode(), flags=re.DOTALL)
    return (re.sub(r">\s+<", "><", text).strip() + "\n").encode()


def _draw(
    experiment: Experiment, panel: Panel, axes: Axes, rows: list[Row], styles: dict[str, _Style]
) -> dict[str, Any]:
    """Draw a panel; return what a legend needs of each series, by its name."""
    chosen = panel.rows(rows)
    series: dict[str, list[Row]] = {}
    for row in chosen:
        series.setdefault(_name(panel, row), []).append(row)
    axes.set_title(panel.title)
    axes.set_xlabel(panel.label or experiment.column(panel.x).title)
    axes.set_ylabel(experiment.column(panel.y).title)
    words = any(isinstance(row[panel.x], str) for row in chosen)
    draw = _bars if words else _lines
    keys = draw(panel, axes, series, styles)
    if "y" in panel.log:
        _log_y(axes, _heights(panel, chosen), words)
    else:
        axes.set_ylim(0, 1.05 * max(_heights(panel, chosen), default=1))
        axes.yaxis.set_major_formatter(_plain)
    axes.grid(visible=True, axis="y" if words else "both")
    return keys


def _heights(panel: Panel, rows: list[Row]) -> list[float]:
    """Return what is shown above 0."""
    names = [panel.y] if panel.high is None else [panel.y, panel.high]
    values = [row.get(name) for row in rows for name in names]
    return [value for value in values if value is not None and value > 0]


def _log_y(axes: Axes, heights: list[float], bars: bool) -> None:
    """Make the y axis logarithmic, from below the lowest value to above the highest."""
    least, most = min(heights, default=1), max(heights, default=1)
    low = log_axes.floor_of_bars(heights) if bars else least
    margin = (most / low) ** 0.05
    low, high = log_axes.widened(low if bars else low / margin, most * margin)
    places = log_axes.ticks(low, high)
    axes.set_yscale("log")
    axes.set_ylim(low, high)
    axes.set_yticks(places, log_axes.labels(places))
    axes.set_yticks([], minor=True)


def _name(panel: Panel, row: Row) -> str:
    return "" if panel.by is None else shown(row[panel.by])


def _styles(panels: list[Panel], rows: list[Row]) -> dict[str, _Style]:
    """Return a style for each name of a series: one in all panels, and no other name's."""
    by = [panel for panel in panels if panel.by is not None]
    names = dict.fromkeys(_name(panel, row) for panel in by for row in panel.rows(rows))
    return {"": _ALONE} | {name: _style(at) for at, name in enumerate(names)}


def _style(at: int) -> _Style:
    """Return the style of a name: where colours begin again, with another marker each."""
    lap, place = divmod(at, len(_STYLES))
    return _Style(_STYLES[place].colour, *_STYLES[(place + lap) % len(_STYLES)][1:])


def _lines(
    panel: Panel, axes: Axes, series: dict[str, list[Row]], styles: dict[str, _Style]
) -> dict[str, Any]:
    keys = {}
    for name, rows in series.items():
        style, rows = styles[name], sorted(rows, key=lambda row: row[panel.x])
        rows = [row for row in rows if "x" not in panel.log or row[panel.x] > 0]
        (keys[name],) = axes.plot(
            [row[panel.x] for row in rows],
            _shown(panel, rows, panel.y),
            color=style.colour,
            marker=style.marker,
            linestyle=style.line,
        )
    if "x" in panel.log:
        found = {row[panel.x] for rows in series.values() for row in rows if row[panel.x] > 0}
        places = _apart(sorted(found))
        axes.set_xscale("log")
        axes.set_xticks(places, log_axes.labels(places))
        axes.set_xticks([], minor=True)
    else:
        axes.xaxis.set_major_formatter(_plain)
    return keys


def _shown(panel: Panel, rows: list[Row], name: str) -> list[float]:
    """Return the values of a column, NaN (a gap) for what has no place at the y axis."""
    values = [math.nan if row.get(name) is None else row[name] for row in rows]
    return [value if value > 0 or "y" not in panel.log else math.nan for value in values]


def _apart(places: list[float]) -> list[float]:
    """Return the places of a logarithmic axis that have room for a name of their own.

    Where these are but two, round numbers between them.
    """
    if len(places) < 2:
        return places
    kept, least = places[:1], (places[-1] / places[0]) ** (1 / log_axes.MOST)
    for place in places[1:]:
        if place >= kept[-1] * min(least, 4):
            kept.append(place)
    return kept if len(kept) > 2 else log_axes.ticks(places[0], places[-1])


def _bars(
    panel: Panel, axes: Axes, series: dict[str, list[Row]], styles: dict[str, _Style]
) -> dict[str, Any]:
    groups = list(dict.fromkeys(row[panel.x] for rows in series.values() for row in rows))
    width, keys = 0.8 / len(series), {}
    for at, (name, rows) in enumerate(series.items()):
        middles = [groups.index(row[panel.x]) + (at + 0.5) * width - 0.4 for row in rows]
        style = styles[name]
        keys[name] = axes.bar(
            middles,
            _shown(panel, rows, panel.y),
            width * 0.92,
            color=style.colour,
            hatch=style.hatch,
            edgecolor="white",
            linewidth=0,
        )
        if panel.high is not None:
            highs = _shown(panel, rows, panel.high)
            axes.vlines(middles, _shown(panel, rows, panel.y), highs, color="#1a2129", lw=1)
            axes.plot(middles, highs, "_", color="#1a2129", markersize=6)
    axes.set_xticks(range(len(groups)), [str(group) for group in groups])
    if sum(len(str(group)) + 2 for group in groups) > 52:
        axes.tick_params(axis="x", labelrotation=30)
        for label in axes.get_xticklabels():
            label.set(horizontalalignment="right", rotation_mode="anchor")
    return keys


def _plain(value: float, _: float | None = None) -> str:
    """Return a tick's number in short words."""
    return log_axes.short(value)
