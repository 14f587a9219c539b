"""Pictures of a document, by matplotlib: a panel beside the other.

Drawn from the document and the experiment's panels alone: the same numbers, the same
bytes. SVG keeps its text as text.
"""

from __future__ import annotations

import io
import math
import re
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from bkstore.errors import InvalidArgument
from bkstore.report.charts import require_matplotlib
from tools.lab.document import Document
from tools.lab.experiment import Experiment, Panel, Row
from tools.lab.table import shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["drawn"]

# -- looks: like the report's charts, and readable in grey, so that sides differ by lightness too

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
    with matplotlib.rc_context(SETTINGS):
        size = (_PANEL[0] * columns, _PANEL[1] * lines + 0.5)
        figure = matplotlib.figure.Figure(figsize=size, layout="constrained")
        figure.get_layout_engine().set(w_pad=0.12, h_pad=0.1)
        named: dict[str, Any] = {}
        grid = figure.subplots(lines, columns, squeeze=False).ravel()
        for panel, axes in zip(panels, grid):
            same = panel.by == panels[0].by
            keys = _draw(experiment, panel, axes, document["rows"])
            if same:
                named |= {name: key for name, key in keys.items() if name not in named}
            elif len(keys) > 1:
                title = experiment.column(panel.by or panel.x).title
                axes.legend(keys.values(), keys.keys(), title=title, fontsize=9, title_fontsize=9)
        for axes in grid[len(panels) :]:
            axes.set_axis_off()
        if len(named) > 1:
            fits = int(size[0] * 13 / (max(map(len, named)) + 8))  # characters of an inch
            figure.legend(
                named.values(), named.keys(), loc="outside upper left", ncols=max(fits, 1)
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


def _tight(svg: bytes) -> bytes:
    """Return the same drawing without comments, metadata and blanks between elements."""
    text = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", svg.decode(), flags=re.DOTALL)
    return (re.sub(r">\s+<", "><", text).strip() + "\n").encode()


def _draw(experiment: Experiment, panel: Panel, axes: Axes, rows: list[Row]) -> dict[str, Any]:
    """Draw a panel; return what a legend needs of each series, by its name."""
    styles = _styles(panel, rows)
    shown = panel.rows(rows)
    series: dict[str, list[Row]] = {}
    for row in shown:
        series.setdefault(_name(panel, row), []).append(row)
    axes.set_title(panel.title)
    axes.set_xlabel(panel.label or experiment.column(panel.x).title)
    axes.set_ylabel(experiment.column(panel.y).title)
    words = any(isinstance(row[panel.x], str) for row in shown)
    draw = _bars if words else _lines
    keys = draw(panel, axes, series, styles)
    if "y" in panel.log:
        axes.set_yscale("log")
        from matplotlib.ticker import LogLocator

        low, high = axes.get_ylim()
        if high < 300 * low:
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.set_yticks([], minor=True)
    else:
        axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(_plain)
    axes.grid(visible=True, axis="y" if words else "both")
    return keys


def _name(panel: Panel, row: Row) -> str:
    return "" if panel.by is None else shown(row[panel.by])


def _styles(panel: Panel, rows: list[Row]) -> dict[str, Style]:
    """Return a style for each side; a side has the same in every panel."""
    names = list(dict.fromkeys(_name(panel, row) for row in rows))
    if panel.by is None:
        return {"": ALONE}
    return {name: STYLES[at % len(STYLES)] for at, name in enumerate(names)}


def _lines(
    panel: Panel, axes: Axes, series: dict[str, list[Row]], styles: dict[str, Style]
) -> dict[str, Any]:
    keys = {}
    for name, rows in series.items():
        style, rows = styles[name], sorted(rows, key=lambda row: row[panel.x])
        (keys[name],) = axes.plot(
            [row[panel.x] for row in rows],
            [row[panel.y] for row in rows],
            color=style.colour,
            marker=style.marker,
            linestyle=style.line,
        )
    if "x" in panel.log:
        axes.set_xscale("log")
        places = sorted({row[panel.x] for rows in series.values() for row in rows})
        axes.set_xticks(_apart(places), [_plain(place) for place in _apart(places)])
        axes.set_xticks([], minor=True)
    else:
        axes.xaxis.set_major_formatter(_plain)
    return keys


def _apart(places: list[float]) -> list[float]:
    """Return the places of a logarithmic axis that have room for a name of their own."""
    least = (places[-1] / places[0]) ** (1 / 7) if places[0] > 0 else 1
    kept = places[:1]
    for place in places[1:]:
        if place >= kept[-1] * min(least, 4):
            kept.append(place)
    return kept


def _bars(
    panel: Panel, axes: Axes, series: dict[str, list[Row]], styles: dict[str, Style]
) -> dict[str, Any]:
    groups = list(dict.fromkeys(row[panel.x] for rows in series.values() for row in rows))
    width, keys = 0.8 / len(series), {}
    for at, (name, rows) in enumerate(series.items()):
        middles = [groups.index(row[panel.x]) + (at + 0.5) * width - 0.4 for row in rows]
        style = styles[name]
        keys[name] = axes.bar(
            middles,
            [row[panel.y] for row in rows],
            width * 0.92,
            color=style.colour,
            hatch=style.hatch,
            edgecolor="white",
            linewidth=0,
        )
        if panel.high is not None:
            highs = [row[panel.high] for row in rows]
            axes.vlines(middles, [row[panel.y] for row in rows], highs, color="#1a2129", lw=1)
            axes.plot(middles, highs, "_", color="#1a2129", markersize=6)
    axes.set_xticks(range(len(groups)), [str(group) for group in groups])
    if sum(len(str(group)) + 2 for group in groups) > 52:
        axes.tick_params(axis="x", labelrotation=30)
        for label in axes.get_xticklabels():
            label.set(horizontalalignment="right", rotation_mode="anchor")
    return keys


def _plain(value: float, _: float | None = None) -> str:
    """Return a tick's number in short words: 12k, 3.5M."""
    for unit, sign in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= unit:
            return f"{value / unit:.3g}{sign}"
    return f"{value:.3g}"
