"""What pictures of results show: axes that can be read, bars that say something, one name one look.

The figures are looked at as matplotlib has them, before they are text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from bkstore.lab import Experiment, Panel, ResultColumn, Row
from bkstore.lab.number_format import as_text
from bkstore.lab.presentation.dark_colors import DARK_COLORS, GRID, GROUND, INK
from bkstore.lab.presentation.picture import _STYLES, _wrap_title, draw_picture

Draw = Callable[..., Any]


@pytest.fixture
def figure(monkeypatch: pytest.MonkeyPatch) -> Draw:
    """Return what draws panels of some rows and returns the figure."""
    matplotlib = pytest.importorskip("matplotlib.figure")
    made: list[Any] = []

    class Kept(matplotlib.Figure):  # type: ignore[misc, name-defined]
        def __init__(self, *words: Any, **named: Any) -> None:
            super().__init__(*words, **named)
            made.append(self)

    monkeypatch.setattr("matplotlib.figure.Figure", Kept)

    def draw(rows: list[Row], *panels: Panel) -> Any:
        columns = tuple(
            ResultColumn(name, name) for name in dict.fromkeys(n for row in rows for n in row)
        )
        sheet = Experiment("a", "", "", "", columns, panels, lambda _: [], lambda _: [])
        draw_picture(sheet, {"rows": rows}, "svg")
        return made[-1]

    return draw


def _named(axis: Any) -> list[str]:
    low, high = sorted(axis.get_view_interval())
    return [
        label.get_text()
        for place, label in zip(axis.get_ticklocs(), axis.get_ticklabels())
        if low <= place <= high
    ]


# -- logarithmic axes


@pytest.mark.parametrize(
    ("low", "high"),
    [(95, 240), (110, 190), (1, 1.0005), (7, 7), (4.1, 30), (12, 90), (0.0005, 0.2), (1, 3e9)],
)
def test_a_logarithmic_axis_has_three_numbers_and_more(
    low: float, high: float, figure: Draw
) -> None:
    """Whatever it spans: different names, of which there are not too many."""
    rows = [{"x": low, "y": high}, {"x": high * 2, "y": low}]
    (axes,) = figure(rows, Panel("a", "x", "y", log="xy")).axes

    for axis in (axes.xaxis, axes.yaxis):
        names = _named(axis)
        assert len(set(names)) == len(names)
        assert 3 <= len(names) <= 10
    assert axes.get_ylim()[0] <= low <= high <= axes.get_ylim()[1]


def test_noise_does_not_fill_a_panel(figure: Draw) -> None:
    """A line that moves by a hundredth lies in an axis that spans a factor of two."""
    rows = [{"x": 1, "y": 100}, {"x": 2, "y": 101}]
    (axes,) = figure(rows, Panel("a", "x", "y", log="y")).axes
    low, high = axes.get_ylim()

    assert 1.99 < high / low


@pytest.mark.parametrize("values", [(8.2, 10.2), (10.2, 12), (100, 1e6), (0.0011, 0.5)])
def test_bars_begin_at_a_power_of_ten(values: tuple[float, float], figure: Draw) -> None:
    """It is at most half of the smallest, so that nearly the same is nearly as long."""
    rows = [{"x": name, "y": value} for name, value in zip("ab", values)]
    (axes,) = figure(rows, Panel("a", "x", "y", log="y")).axes
    floor = axes.get_ylim()[0]

    assert round(math.log10(floor)) == pytest.approx(math.log10(floor))
    assert min(values) / 20 <= floor <= min(values) / 2


def test_a_zero_has_no_place_on_a_logarithmic_axis(figure: Draw) -> None:
    """It is a gap of a line and no bar; on a linear axis it is a zero."""
    rows = [{"x": x, "y": y, "side": "a"} for x, y in ((1, 5.0), (2, 0.0), (4, 20.0), (0, 7.0))]
    line, plain = figure(rows, Panel("a", "x", "y", log="xy"), Panel("b", "x", "y")).axes
    bars = [{"x": name, "y": y} for name, y in (("a", 0), ("b", 3.0))]
    (columns,) = figure(bars, Panel("a", "x", "y", log="y")).axes

    assert [1, 2, 4] == line.lines[0].get_xdata().tolist()
    np.testing.assert_equal([5, math.nan, 20], line.lines[0].get_ydata())
    np.testing.assert_equal([7, 5, 0, 20], plain.lines[0].get_ydata())
    np.testing.assert_equal([math.nan, 3], [bar.get_height() for bar in columns.patches])


def test_zeros_alone_are_drawn_as_nothing(figure: Draw) -> None:
    """A panel without anything above 0 has its axes."""
    (axes,) = figure([{"x": 1, "y": 0.0}], Panel("a", "x", "y", log="xy")).axes

    assert 3 <= len(_named(axes.yaxis))


# -- bars with ticks, markers


def test_a_bar_without_a_p99_has_no_tick(figure: Draw) -> None:
    """Few queries have none; the others' stand."""
    rows = [{"x": "a", "y": 2.0, "high": None}, {"x": "b", "y": 3.0, "high": 9.0}]
    (axes,) = figure(rows, Panel("a", "x", "y", tick_column="high", log="y")).axes

    np.testing.assert_equal([math.nan, 9], axes.lines[0].get_ydata())
    assert axes.get_ylim()[1] > 9


def test_the_highest_marker_is_inside(figure: Draw) -> None:
    """A line that is nearly level has room above it."""
    rows = [{"x": 1, "y": 100.0}, {"x": 2, "y": 99.0}]
    (axes,) = figure(rows, Panel("a", "x", "y")).axes

    assert (0, pytest.approx(105)) == axes.get_ylim()


def test_bars_are_in_the_order_of_all_series(figure: Draw) -> None:
    """A value that the first series lacks is drawn where the second has it."""
    rows = [
        {"x": x, "y": 1.0, "side": side}
        for side, points in (("a", ("p50", "max")), ("b", ("p50", "p99", "max")))
        for x in points
    ]
    (axes,) = figure(rows, Panel("a", "x", "y", "side")).axes

    assert ["p50", "p99", "max"] == [label.get_text() for label in axes.get_xticklabels()]


@pytest.mark.parametrize(("label", "angle"), [("rocksdb", 0), ("rocksdb block_size=16384", 30)])
def test_names_below_bars_do_not_touch(label: str, angle: int, figure: Draw) -> None:
    """Long names are drawn at an angle, also if the others are short."""
    rows = [{"x": name, "y": 1.0} for name in ("a", "b", label)]
    (axes,) = figure(rows, Panel("a", "x", "y")).axes

    assert {angle} == {text.get_rotation() for text in axes.get_xticklabels()}


def test_a_long_title_of_an_axis_has_its_unit_below() -> None:
    """So that it is not cut at the ends of its panel."""
    column = ResultColumn("y", "given to the system", "bytes an operation")

    assert "given to the system,\nbytes an operation" == _wrap_title(column)
    assert "time, ms" == _wrap_title(ResultColumn("y", "time", "ms"))


# -- names and legends


def _looks(figure: Any) -> dict[str, set[tuple[str, str]]]:
    """Return by the names of all legends how their series look."""
    looks: dict[str, set[tuple[str, str]]] = {}
    legends = [*figure.legends, *(axes.get_legend() for axes in figure.axes)]
    for legend in filter(None, legends):
        for line, text in zip(legend.get_lines(), legend.get_texts()):
            looks.setdefault(text.get_text(), set()).add((line.get_color(), line.get_marker()))
    return looks


def test_a_name_has_one_look(figure: Draw) -> None:
    """Names of several columns differ in colour or marker, and keep theirs in every panel."""
    rows = [
        {"x": x, "y": x, "side": f"side {n}", "room": n, "kind": f"side {n % 2}"}
        for n in range(9)
        for x in (1, 2)
    ]
    panels = [Panel(by, "x", "y", by) for by in ("side", "room", "kind")]
    looks = _looks(figure(rows, *panels))

    assert {f"side {n}" for n in range(9)} | {as_text(n) for n in range(9)} == looks.keys()
    assert {1} == {len(each) for each in looks.values()}
    assert len(looks) == len(set.union(*looks.values()))


def test_a_legend_of_a_panel_covers_nothing(figure: Draw) -> None:
    """It lies between title and axes, however many names there are."""
    rows = [{"x": x, "y": x, "side": "a", "room": f"room of {n}"} for n in range(7) for x in (1, 2)]
    found = figure(rows, Panel("one", "x", "y", "side"), Panel("two", "x", "y", "room"))
    _, axes = found.axes
    legend = axes.get_legend().get_window_extent()

    assert legend.y0 >= axes.get_window_extent().y1
    assert axes.title.get_text() == ""
    assert legend.y1 <= axes._left_title.get_window_extent().y0 + 1
    assert legend.x1 <= found.bbox.x1


# -- dark colors


def _luminance(color: str) -> float:
    """Return a color's relative luminance, as WCAG 2 defines it."""
    channels = (int(color[start : start + 2], 16) / 255 for start in (1, 3, 5))
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(color: str, ground: str) -> float:
    darker, lighter = sorted(map(_luminance, (color, ground)))
    return (lighter + 0.05) / (darker + 0.05)


def test_dark_colors_are_seen() -> None:
    """On the dark ground, series have the contrast that WCAG wants of drawings, text that of text,
    and no two series one color."""
    dark = {style.color: DARK_COLORS.get(style.color, style.color) for style in _STYLES}

    assert 7 < _contrast(DARK_COLORS[INK], DARK_COLORS[GROUND])
    assert [] == [c for c in dark.values() if _contrast(c, DARK_COLORS[GROUND]) < 3]
    assert len(dark) == len(set(dark.values()))


def test_a_picture_has_dark_colors() -> None:
    """Each light color that a drawing uses and that has a dark one is replaced by a style sheet,
    where it fills and where it draws; without style sheets the drawing is light."""
    pytest.importorskip("matplotlib")
    columns = tuple(ResultColumn(name, name) for name in ("x", "y", "side"))
    rows: list[Row] = [{"x": n, "y": 2, "side": side} for n in ("p", "q") for side in ("a", "b")]
    sheet = Experiment(
        "a", "", "", "", columns, (Panel("A", "x", "y", "side"),), lambda _: [], lambda _: []
    )
    text = draw_picture(sheet, {"rows": rows}, "svg").decode()
    style = re.findall(r"<style>@media \(prefers-color-scheme:dark\)\{(.*)\}</style>", text)[0]
    rule = r'\[style\*="(\w+: #\w{6})"\],\[\w+="#\w{6}"\]\{\w+:(#\w{6})!important\}'
    rules = dict(re.findall(rule, style))
    attributes = set(re.findall(r' (?:fill|stroke)="#\w{6}"', text))  # of hatched bars
    used = set(re.findall(r"(?:fill|stroke): #\w{6}", text.replace(style, "")))

    assert {f"fill: {GROUND}", f"fill: {INK}", f"stroke: {GRID}"} <= used
    assert {use: DARK_COLORS[use[-7:]] for use in used if use[-7:] in DARK_COLORS} == {
        use: dark for use, dark in rules.items() if use in used
    }
    assert [] == [
        each
        for each in attributes
        if f"[{each.strip()}]" not in style and each[-8:-1] in DARK_COLORS
    ]


def test_a_panel_of_fewer_rows_than_it_needs() -> None:
    """It shows nothing: a comparison of one value is none."""
    panel = Panel("a", "x", "y", min_rows=2)

    assert [] == panel.rows([{"x": 1, "y": 2}, {"x": 2, "y": None}])
    assert 2 == len(panel.rows([{"x": 1, "y": 2}, {"x": 2, "y": 3}]))
