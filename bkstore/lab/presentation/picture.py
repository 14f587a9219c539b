"""Pictures of a document, drawn by matplotlib: a grid of panels. A picture depends on the document
and the experiment's panels alone: the same numbers yield the same bytes. Text in SVG stays text."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from bkstore.errors import InvalidArgument
from bkstore.lab.documents.document import Document
from bkstore.lab.experiment import Experiment, Panel, ResultColumn, Row, merge_orders
from bkstore.lab.number_format import as_text
from bkstore.lab.presentation import log_axes
from bkstore.lab.presentation.dark_colors import GRID, INK, add_dark_colors
from bkstore.report.charts import require_matplotlib

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# -- styles: as in the report's charts; they differ in lightness too, to be readable in gray


class _Style(NamedTuple):
    color: str
    marker: str
    line: str
    hatch: str


_Series = dict[str, list[Row]]
_Styles = dict[str, _Style]
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
"""The styles of the series of a picture, in the order in which the rows name them."""

_SINGLE_STYLE = _Style("#56616d", "o", "-", "")
"""The style of the only series of a panel."""

_SETTINGS: dict[str, Any] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.edgecolor": GRID,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": INK,
    "text.parse_math": False,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "xtick.minor.size": 0,
    "ytick.minor.size": 0,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "hatch.linewidth": 0.6,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "lines.markersize": 5.5,
}

_PANEL_INCHES = (4.5, 3.3)  # inches
_X_LABEL_CHARACTERS, _Y_LABEL_CHARACTERS = 56, 30  # as many as fit beside and below a panel
_SVG_METADATA = {"Date": None, "Creator": None}


def draw_picture(
    experiment: Experiment,
    document: Document,
    form: Literal["svg", "png"],
    max_columns: int = 3,
) -> bytes:
    """Return the picture of a result, a panel for each of the experiment's that has rows: as SVG,
    in light and dark colors, or as PNG, in light ones, with at most `max_columns` panels side by
    side. Raises `MissingDependency` without matplotlib, and `InvalidArgument` if no panel has rows,
    as panels leave out rows without values."""
    matplotlib = require_matplotlib("a picture", "lab")
    panels = [panel for panel in experiment.panels if panel.rows(document["rows"])]
    if not panels:
        raise InvalidArgument(f"no rows of this result stand in a panel of {experiment.name}")
    column_count = min(len(panels), 3 if len(panels) > 4 else 2, max_columns)
    line_count = math.ceil(len(panels) / column_count)
    buffer = io.BytesIO()
    # The ids of an SVG's definitions come from this salt. A page has a wide and a narrow picture,
    # whose ids must differ, as otherwise one would refer to definitions of the other.
    hash_salt = "bkstore narrow" if max_columns == 1 else "bkstore"
    with matplotlib.rc_context(_SETTINGS | {"svg.hashsalt": hash_salt}):
        panel_width, panel_height = _PANEL_INCHES
        # Half an inch above the panels is for the legend.
        inches = (panel_width * column_count, panel_height * line_count + 0.5)
        figure = matplotlib.figure.Figure(figsize=inches, layout="constrained")
        figure.get_layout_engine().set(w_pad=0.12, h_pad=0.1)
        # One axes object for each panel; the grid may have more than there are panels.
        grid = figure.subplots(line_count, column_count, squeeze=False).ravel()
        legend_keys = _draw_panels(experiment, panels, grid, document["rows"])
        for axes in grid[len(panels) :]:
            axes.set_axis_off()
        if len(legend_keys) > 1:
            handles, names = legend_keys.values(), legend_keys.keys()
            columns = _legend_columns(names, inches[0])
            figure.legend(handles, names, loc="outside upper left", ncols=columns)
        if form == "svg":
            canvas = matplotlib.backends.backend_svg.FigureCanvasSVG(figure)
            canvas.print_svg(buffer, metadata=_SVG_METADATA)
            return _minify_svg(buffer.getvalue())
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        canvas = FigureCanvasAgg(figure)
        canvas.print_png(buffer, metadata={"Software": None})  # type: ignore[no-untyped-call]
    return buffer.getvalue()


def _draw_panels(
    experiment: Experiment, panels: list[Panel], grid: Iterable[Axes], rows: list[Row]
) -> dict[str, Any]:
    """Draw the panels; return the legend's keys (what shows the style of a series) by series name.
    The panels with the same `series_column` as the first one share a legend, which the caller puts
    above all panels. Other panels get legends of their own here, between title and axes."""
    shared_keys: dict[str, Any] = {}
    styles = _assign_styles(panels, rows)
    for panel, axes in zip(panels, grid):
        keys = _draw_panel(experiment, panel, axes, rows, styles)
        if panel.series_column == panels[0].series_column:
            shared_keys |= {name: key for name, key in keys.items() if name not in shared_keys}
        elif len(keys) > 1:
            column_count = _legend_columns(keys, _PANEL_INCHES[0])
            legend_lines = math.ceil(len(keys) / column_count) + 1  # with its title
            axes.set_title(panel.title, pad=6 + 13 * legend_lines)  # in points
            axes.legend(
                keys.values(),
                keys.keys(),
                title=experiment.column(panel.series_column or panel.x).title,
                loc="lower left",
                bbox_to_anchor=(0, 1),
                borderaxespad=0.1,
                borderpad=0.1,
                ncols=column_count,
                alignment="left",
                fontsize=9,
                title_fontsize=9,
            )
    return shared_keys


def _legend_columns(names: Iterable[str], inches: float) -> int:
    return max(int(inches * 13 / (max(map(len, names)) + 8)), 1)  # 13 characters per inch


def _minify_svg(svg: bytes) -> bytes:
    """Return the same drawing without comments, metadata and white space between elements, in dark
    colors too."""
    text = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", svg.decode(), flags=re.DOTALL)
    return (add_dark_colors(re.sub(r">\s+<", "><", text).strip()) + "\n").encode()


def _draw_panel(
    experiment: Experiment, panel: Panel, axes: Axes, rows: list[Row], styles: _Styles
) -> dict[str, Any]:
    """Draw one panel, a line for each series, or bars if x values are texts. Return the legend's
    key of each series."""
    panel_rows = panel.rows(rows)
    series: _Series = {}
    for row in panel_rows:
        series.setdefault(_series_name(panel, row), []).append(row)
    axes.set_title(panel.title)
    axes.set_xlabel(panel.label or experiment.column(panel.x).title)
    axes.set_ylabel(_wrap_title(experiment.column(panel.y)))
    has_bars = any(isinstance(row[panel.x], str) for row in panel_rows)
    draw_series = _draw_bars if has_bars else _draw_lines
    keys = draw_series(panel, axes, series, styles)
    if "y" in panel.log:
        _set_log_y_axis(axes, _positive_values(panel, panel_rows), has_bars)
    else:
        axes.set_ylim(0, 1.05 * max(_positive_values(panel, panel_rows), default=1))
        axes.yaxis.set_major_formatter(_format_tick)
    axes.grid(visible=True, axis="y" if has_bars else "both")
    return keys


def _wrap_title(column: ResultColumn) -> str:
    """Return a column's title for a y axis: its unit on a line of its own where it is long."""
    if len(column.title) <= _Y_LABEL_CHARACTERS:
        return column.title
    return f"{column.label},\n{column.unit}" if column.unit else column.label


def _positive_values(panel: Panel, rows: list[Row]) -> list[float]:
    columns = [panel.y] if panel.tick_column is None else [panel.y, panel.tick_column]
    values = [row.get(column) for row in rows for column in columns]
    return [value for value in values if value is not None and value > 0]


def _set_log_y_axis(axes: Axes, heights: list[float], has_bars: bool) -> None:
    """Make the y axis logarithmic, from below the lowest value to above the highest one, with a
    margin of 5 % of the axis. Bars stand on the lower end without a margin."""
    lowest, highest = min(heights, default=1), max(heights, default=1)
    low = log_axes.bar_baseline(heights) if has_bars else lowest
    margin = (highest / low) ** 0.05
    low, high = log_axes.widen_range(low if has_bars else low / margin, highest * margin)
    ticks = log_axes.choose_ticks(low, high)
    axes.set_yscale("log")
    axes.set_ylim(low, high)
    axes.set_yticks(ticks, log_axes.tick_labels(ticks))
    axes.set_yticks([], minor=True)


def _series_name(panel: Panel, row: Row) -> str:
    return "" if panel.series_column is None else as_text(row[panel.series_column])


def _assign_styles(panels: list[Panel], rows: list[Row]) -> _Styles:
    """Return a style for each series name; it is the same in all panels, and distinct."""
    grouped = [panel for panel in panels if panel.series_column is not None]
    names = dict.fromkeys(_series_name(panel, row) for panel in grouped for row in panel.rows(rows))
    return {"": _SINGLE_STYLE} | {name: _nth_style(i) for i, name in enumerate(names)}


def _nth_style(number: int) -> _Style:
    """Return a style; once the colors start again, they are combined with other markers."""
    lap, position = divmod(number, len(_STYLES))
    return _Style(_STYLES[position].color, *_STYLES[(position + lap) % len(_STYLES)][1:])


def _draw_lines(panel: Panel, axes: Axes, series: _Series, styles: _Styles) -> dict[str, Any]:
    """Draw each series as a line; return their legend keys. A logarithmic axis has no 0: rows with
    such an x value are left out."""
    keys = {}
    for name, series_rows in series.items():
        style = styles[name]
        rows = [row for row in series_rows if "x" not in panel.log or row[panel.x] > 0]
        rows.sort(key=lambda row: row[panel.x])
        (keys[name],) = axes.plot(
            [row[panel.x] for row in rows],
            _plot_values(panel, rows, panel.y),
            color=style.color,
            marker=style.marker,
            linestyle=style.line,
        )
    if "x" in panel.log:
        x_values = {row[panel.x] for rows in series.values() for row in rows if row[panel.x] > 0}
        ticks = _spaced_ticks(sorted(x_values))
        axes.set_xscale("log")
        axes.set_xticks(ticks, log_axes.tick_labels(ticks))
        axes.set_xticks([], minor=True)
    else:
        axes.xaxis.set_major_formatter(_format_tick)
    return keys


def _plot_values(panel: Panel, rows: list[Row], column: str) -> list[float]:
    """Return the values of a column, with NaN (a gap) for those that the y axis cannot show."""
    values = [math.nan if row.get(column) is None else row[column] for row in rows]
    return [value if value > 0 or "y" not in panel.log else math.nan for value in values]


def _spaced_ticks(values: list[float]) -> list[float]:
    """Return the values that can have a label on a logarithmic axis without overlap. If only one or
    two remain, return round numbers between the extremes instead."""
    if len(values) < 2:
        return values
    # On this axis a distance is a ratio: ticks are apart by at least 1 / MAX_TICKS of the axis.
    ticks, min_ratio = values[:1], (values[-1] / values[0]) ** (1 / log_axes.MAX_TICKS)
    for value in values[1:]:
        if value >= ticks[-1] * min(min_ratio, 4):  # four times the value always has room
            ticks.append(value)
    return ticks if len(ticks) > 2 else log_axes.choose_ticks(values[0], values[-1])


def _draw_bars(panel: Panel, axes: Axes, series: _Series, styles: _Styles) -> dict[str, Any]:
    """Draw the series as bars beside each other, grouped by x; return their legend keys. With a
    `tick_column`, a second value of a row, such as a maximum, is a tick mark above its bar."""
    # Groups are 1 apart; the bars of a group take 0.8 of that, around its center.
    groups = merge_orders([row[panel.x] for row in rows] for rows in series.values())
    width, keys = 0.8 / len(series), {}
    for series_number, (name, rows) in enumerate(series.items()):
        centers = [groups.index(row[panel.x]) + (series_number + 0.5) * width - 0.4 for row in rows]
        style, heights = styles[name], _plot_values(panel, rows, panel.y)
        keys[name] = axes.bar(
            centers,
            heights,
            width * 0.92,  # with a gap to the next one
            color=style.color,
            hatch=style.hatch,
            edgecolor="white",
            linewidth=0,
        )
        if panel.tick_column is not None:
            tick_heights = _plot_values(panel, rows, panel.tick_column)
            axes.vlines(centers, heights, tick_heights, color=INK, lw=1)
            axes.plot(centers, tick_heights, "_", color=INK, markersize=6)
    axes.set_xticks(range(len(groups)), [str(group) for group in groups])
    # Labels are centered below their groups. If the longest one needs more than a group's share of
    # the line, all are drawn slanted.
    longest = max(len(str(group)) for group in groups) + 2
    if longest * len(groups) > _X_LABEL_CHARACTERS:
        axes.tick_params(axis="x", labelrotation=30)
        for label in axes.get_xticklabels():
            label.set(horizontalalignment="right", rotation_mode="anchor")
    return keys


def _format_tick(value: float, _: float | None = None) -> str:
    """Return a tick's value abbreviated; matplotlib passes a position too, which is ignored."""
    return log_axes.abbreviate(value)
