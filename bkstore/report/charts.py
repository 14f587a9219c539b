"""Charts of the page: matplotlib's SVG, inlined, in the colours of the page.

matplotlib draws in stand-in colours; each becomes a CSS variable, so one drawing serves light
and dark. Each chart is drawn twice, wide and narrow, as text that is scaled with its drawing is
readable near one width only; the style sheet shows the one that fits the screen. Ids, dates and
versions are taken out: the same numbers give the same text.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bkstore.errors import MissingDependency
from bkstore.report.findings.key_figures import numbers
from bkstore.report.html.rendering import own_markup
from bkstore.report.html.wording import count, counted, size_unit
from bkstore.tables.safe_text import shown

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.axes import Axes

_COLOURS = {"live": "#010101", "garbage": "#020202", "ink": "#030303", "grid": "#040404"}
_WIDE, _NARROW = (11.5, 2.7), (5.0, 3.1)  # inches of 72 units; for 790-1170 and 360-640 pixels
_MOST_NAMES = 16
_BINS = 20
_POINTS = 200

_SETTINGS: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "bkstore",
    "font.size": 10,
    "axes.edgecolor": _COLOURS["grid"],
    "text.parse_math": False,  # a bookie id is no formula
    "axes.labelcolor": _COLOURS["ink"],
    "text.color": _COLOURS["ink"],
    "xtick.color": _COLOURS["ink"],
    "ytick.color": _COLOURS["ink"],
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "xtick.minor.size": 0,
    "xtick.major.pad": 7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid.axis": "y",
    "grid.color": _COLOURS["grid"],
    "grid.linewidth": 0.6,
}


class Drawing(NamedTuple):
    """The inside of an SVG element, as markup, and its view box."""

    view_box: str
    inside: str


class Chart(NamedTuple):
    """A chart: what it shows, the colours that need a key, and the drawing in two widths."""

    words: str
    keys: tuple[str, ...]
    wide: Drawing
    narrow: Drawing


def require_matplotlib() -> Any:
    """Return the matplotlib module, or raise `MissingDependency` naming the extra."""
    try:
        import matplotlib
        import matplotlib.backends.backend_svg  # what draws without a display
        import matplotlib.figure
    except ImportError as error:
        raise MissingDependency.of("matplotlib", "report", "A report") from error
    return matplotlib


def bookies_chart(table: pa.Table) -> Chart | None:
    """Return live and garbage bytes of each bookie, the fullest first; None for fewer than two."""
    sizes = numbers(table, "log_file_bytes")
    if len(sizes) < 2 or not sizes.sum():
        return None
    order = np.argsort(-sizes, kind="stable")
    live, garbage = (numbers(table, name)[order] for name in ("live_bytes", "garbage_bytes"))
    names = table.column("bookie").to_pylist() if len(order) <= _MOST_NAMES else []

    def draw(axes: Axes) -> None:
        _stack(axes, np.arange(len(order) + 1) + 0.5, live, garbage, apart=bool(names))
        axes.set_xlim(0.5, len(order) + 0.5)
        if names:
            _name_bars(axes, [_short(names[at]) for at in order])
        axes.set_xlabel("bookies, the fullest first")

    words = f"Record bytes of {counted(len(order), 'bookie')}, the fullest first"
    return _figure(draw, words, ("live", "garbage"))


def logs_chart(table: pa.Table) -> Chart | None:
    """Return record bytes of entry logs by how full of life they are; None if there are none."""
    if not table.num_rows:
        return None
    live, garbage = numbers(table, "live_bytes"), numbers(table, "garbage_bytes")
    # One that is all live belongs to the last bin, not to one of its own.
    bins = np.minimum((numbers(table, "occupancy") * _BINS).astype(np.int64), _BINS - 1)
    sums = [np.bincount(bins, weights=part, minlength=_BINS) for part in (live, garbage)]
    if not (sums[0] + sums[1]).any():
        return None

    def draw(axes: Axes) -> None:
        _stack(axes, np.linspace(0, 100, _BINS + 1), sums[0], sums[1])
        axes.set_xlim(0, 100)
        axes.set_xticks(range(0, 101, 20))
        axes.set_xlabel("live part of the entry log, %")

    words = f"Record bytes of {counted(table.num_rows, 'entry log')} by their live part"
    return _figure(draw, words, ("live", "garbage"))


def ledgers_chart(table: pa.Table) -> Chart | None:
    """Return which share of all bytes the biggest ledgers have; None for fewer than three."""
    sizes = np.sort(numbers(table, "bytes"))[::-1].astype(np.float64)
    if len(sizes) < 3 or not sizes.sum():
        return None
    sums = np.cumsum(sizes) / sizes.sum() * 100
    at = np.unique(np.geomspace(1, len(sizes), _POINTS).round().astype(np.int64))

    def draw(axes: Axes) -> None:
        axes.plot(at, sums[at - 1], color=_COLOURS["live"], linewidth=2)
        corners = [at[0], *at, at[-1]], [0, *sums[at - 1], 0]
        axes.fill(*corners, color=_COLOURS["live"], alpha=0.15, linewidth=0)
        axes.set_xscale("log")
        axes.set_xlim(1, len(sizes))
        axes.set_ylim(0, 100)
        ticks = _count_ticks(len(sizes))
        axes.set_xticks(ticks, [count(tick) for tick in ticks])
        axes.set_xticks([], minor=True)
        axes.set_yticks(range(0, 101, 25))
        axes.set_xlabel("how many of the biggest ledgers (logarithmic)")
        axes.set_ylabel("share of record bytes, %")

    words = f"Share of all record bytes in the biggest of {count(len(sizes))} ledgers"
    return _figure(draw, words, ())


def _count_ticks(most: int) -> list[int]:
    """Return numbers from 1 to `most` for a logarithmic axis: the decades, of few the 2 and 5 too.

    The last is `most`, unless it would stand on the one before.
    """
    steps = (1,) if most >= 1000 else (1, 2, 5)
    ticks = [step * 10**n for n in range(len(str(most))) for step in steps]
    ticks = [tick for tick in ticks if tick <= most]
    return [*ticks, most] if most >= 1.4 * ticks[-1] else ticks


def _stack(
    axes: Axes,
    edges: npt.NDArray[Any],
    live: npt.NDArray[Any],
    garbage: npt.NDArray[Any],
    apart: bool = False,
) -> None:
    """Draw garbage on live: few bars `apart`, else one outline each, however many there are."""
    both = live + garbage
    colours = {"live": _COLOURS["live"], "garbage": _COLOURS["garbage"]}
    if apart:
        middles = (edges[1:] + edges[:-1]) / 2
        axes.bar(middles, live, 0.66, color=colours["live"])
        axes.bar(middles, garbage, 0.66, bottom=live, color=colours["garbage"])
    else:
        axes.stairs(live, edges, fill=True, color=colours["live"], linewidth=0)
        axes.stairs(both, edges, baseline=live, fill=True, color=colours["garbage"], linewidth=0)
    highest = float(both.max())
    unit, name = size_unit(highest)
    step = _step(highest / unit)
    ticks = step * np.arange(int(np.ceil(highest / unit / step)) + 1)
    axes.set_ylim(0, ticks[-1] * unit)
    axes.set_yticks(ticks * unit, [f"{tick:g}" for tick in ticks])
    axes.set_ylabel(f"bytes of records, {name}")


def _name_bars(axes: Axes, names: list[str]) -> None:
    """Write names under the bars, slanted where they would run into each other."""
    axes.set_xticks(range(1, len(names) + 1), names)
    room = axes.figure.bbox.width / 10  # characters, roughly, that fit side by side
    if max(map(len, names)) * len(names) > room:
        axes.tick_params(axis="x", labelrotation=35)
        for label in axes.get_xticklabels():
            label.set(horizontalalignment="right", rotation_mode="anchor")


def _step(highest: float) -> float:
    """Return a round step that gives three to five ticks up to `highest`."""
    steps = [size * 10.0**power for power in range(-1, 4) for size in (1, 2, 5)]
    return next((step for step in steps if highest / step <= 5), steps[-1])


def _short(name: str, most: int = 22) -> str:
    name = shown(name)
    return name if len(name) <= most else f"{name[: most - 1]}…"


def _figure(draw: Callable[[Axes], None], words: str, keys: tuple[str, ...]) -> Chart:
    return Chart(words, keys, _drawn(draw, _WIDE), _drawn(draw, _NARROW))


def _drawn(draw: Callable[[Axes], None], size: tuple[float, float]) -> Drawing:
    matplotlib = require_matplotlib()
    out = io.StringIO()
    with matplotlib.rc_context(_SETTINGS):
        figure = matplotlib.figure.Figure(figsize=size, layout="constrained")
        axes = figure.add_subplot()
        axes.set_axisbelow(True)
        axes.grid(visible=True, axis="y")
        draw(axes)
        canvas = matplotlib.backends.backend_svg.FigureCanvasSVG(figure)
        plain = {"Date": None, "Creator": None, "Format": None, "Type": None}
        canvas.print_svg(out, metadata=plain)
    return _inline(out.getvalue())


def _inline(svg: str) -> Drawing:
    """Return what is inside matplotlib's document.

    Its ids repeat from drawing to drawing and would clash; nothing refers to them but clip
    paths, and what is drawn ends inside its axes.
    """
    opening, _, svg = svg[svg.index("<svg") :].partition(">")
    box = re.findall(r'viewBox="([^"]*)"', opening)[0]
    svg = svg.removesuffix("\n").removesuffix("</svg>")
    svg = re.sub(r"<metadata>.*?</metadata>|<defs>.*?</defs>|<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r' (?:id|clip-path)="[^"]*"', "", svg)
    svg = re.sub(r"font(?:-family)?: [^;\"]*", lambda m: _font(m[0]), svg)
    # What lies behind the drawing is the page.
    svg = re.sub(r"fill: #ffffff", "fill: none", svg)
    for name, colour in _COLOURS.items():
        svg = svg.replace(colour, f"var(--{name})")
    return Drawing(box, own_markup(re.sub(r">\s+<", "><", svg).strip()))


def _font(declared: str) -> str:
    """Keep the size of a font, and take the page's family."""
    size = re.search(r"[\d.]+px", declared)
    return f"font-size: {size[0]}" if size else ""
