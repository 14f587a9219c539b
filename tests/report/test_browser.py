"""The report's page in headless Chromium: what fits the first screen, themes, narrow screens.

A page is looked at as it is, or as a copy without its policy and with a probe: a script that
measures and hands what it found to a frame around it. The frame gives the page its exact size.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from bkstore import tables
from bkstore.report import write_report
from bkstore.tables import Table
from tests.report.made_tables import made
from tests.report.samples import SAMPLES

pytest.importorskip("pyarrow")
pytest.importorskip("matplotlib")
image = pytest.importorskip("matplotlib.image")

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium on PATH (Debian has a package of that name)"
)

DARK, LIGHT = 0, 1  # Chromium's own numbers
PANEL = {LIGHT: (0xFF, 0xFF, 0xFF), DARK: (0x17, 0x1D, 0x25)}
PAGE_COLOUR = {LIGHT: (0xF4, 0xF6, 0xF8), DARK: (0x0E, 0x12, 0x17)}

_PROBE = """
<script>addEventListener("load", () => {{
  let found; try {{ found = (() => {{ {code} }})(); }} catch (error) {{ found = String(error); }}
  parent.postMessage([name, found], "*");
}});</script>
"""
_WRAPPER = """<!DOCTYPE html><meta charset="utf-8"><meta name="color-scheme" content="light dark">
<body style="margin:0"><script>const told = {{}}; addEventListener("message", (event) => {{
  told[event.data[0]] = event.data[1];
  const pre = document.getElementById("told") ?? document.createElement("pre");
  pre.id = "told"; pre.textContent = JSON.stringify(told); document.body.append(pre);
}});</script>
"""
_FRAME = """<iframe name="{name}" src="{file}"
style="border:0;display:block;width:{width}px;height:{height}px"></iframe>
"""

# A window has its size only after the first layout, so this is done again whenever that changes.
_SCROLLED = """
<script>for (const frame of document.querySelectorAll(".scroll")) {{
  new ResizeObserver(() => {{ frame.scrollLeft = {start}; }}).observe(frame);
}}</script>
"""

Look = Callable[..., tuple[str, str]]


@pytest.fixture(scope="module")
def look(tmp_path_factory: pytest.TempPathFactory) -> Look:
    """Return a function that runs Chromium on a file: (its document at the end, its messages)."""
    profile = tmp_path_factory.mktemp("chromium")

    def run(page: Path, *options: str, theme: int = LIGHT) -> tuple[str, str]:
        command = [
            str(CHROMIUM),
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--enable-logging=stderr",
            f"--user-data-dir={profile}",
            f"--blink-settings=preferredColorScheme={theme}",
            "--virtual-time-budget=5000",
            *options,
            page.as_uri(),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        return done.stdout, done.stderr

    return run


def _written(folder: Path, name: str) -> Path:
    target = folder / f"{name}.html"
    sample = SAMPLES[name]()
    write_report(target, sample.tables, title=sample.title, source=sample.source)
    return target


def _messages(stderr: str) -> list[str]:
    """Return what a page wrote to the console: its errors, and what its policy refused."""
    return [line for line in stderr.splitlines() if "CONSOLE" in line]


def _probe(
    look: Look, pages: list[Path], code: str, width: int, height: int, **options: int
) -> dict[str, Any]:
    """Return what `code` returns inside each page, by its stem, in a window of that size."""
    frames = [_WRAPPER.format()]
    for page in pages:
        text = page.read_text(encoding="utf-8")
        policy = re.search(r'<meta http-equiv="Content-Security-Policy"[^>]*>', text)
        assert policy is not None
        probed = page.with_name(f"probed-{page.name}")
        text = text.replace(policy[0], "").replace("</body>", _PROBE.format(code=code) + "</body>")
        probed.write_text(text, encoding="utf-8")
        frame = {"name": page.stem, "file": probed.name, "width": width, "height": height}
        frames.append(_FRAME.format(**frame))
    wrapper = pages[0].with_name("wrapper.html")
    wrapper.write_text("".join(frames), encoding="utf-8")
    window = f"--window-size={width + 100},{height + 200}"
    document, _ = look(wrapper, "--dump-dom", window, **options)
    told = re.search(r'<pre id="told">(.*?)</pre>', document, re.DOTALL)
    assert told is not None, document[-2000:]
    found: dict[str, Any] = json.loads(unescape(told[1]))
    assert {page.stem for page in pages} == set(found)
    return found


@pytest.mark.parametrize("name", ["sick", pytest.param("bare", marks=pytest.mark.long)])
def test_no_console_messages(look: Look, tmp_path: Path, name: str) -> None:
    """The page runs its script under its own policy, and nothing reaches the console."""
    document, messages = look(_written(tmp_path, name), "--dump-dom")

    assert [] == _messages(messages)
    assert document.count('<button type="button">') == document.count('scope="col"') > 0


def test_foreign_script_is_refused(look: Look, tmp_path: Path) -> None:
    """A script that is not the page's own does not run, and the console says so."""
    page = _written(tmp_path, "single")
    text = page.read_text(encoding="utf-8")
    page.write_text(text.replace("</body>", "<script>document.title = 1</script></body>"))
    document, messages = look(page, "--dump-dom")

    assert "<title>One bookie</title>" in document
    assert any("Content Security Policy" in line for line in _messages(messages))


@pytest.mark.long
def test_first_screen(look: Look, tmp_path: Path) -> None:
    """At 1280 x 800 the headline and all four tiles are seen whole, and nothing in them is cut."""
    code = """
    const seen = (e) => e.getBoundingClientRect();
    const tiles = [...document.querySelectorAll(".tile")];
    return {
      size: [innerWidth, innerHeight],
      verdict: seen(document.querySelector(".verdict")).bottom,
      tiles: tiles.map((t) => ({
        name: t.querySelector("h2").textContent, bottom: seen(t).bottom, right: seen(t).right,
        height: seen(t).height, cut: t.scrollHeight > t.clientHeight + 1 ||
          t.scrollWidth > t.clientWidth + 1,
      })),
    };
    """
    pages = [_written(tmp_path, name) for name in SAMPLES]
    for name, found in _probe(look, pages, code, 1280, 800).items():
        assert [1280, 800] == found["size"]
        third = "Lost or at risk" if SAMPLES[name]().source["metadata"] else "Holes"
        names = ["How much", "How healthy", third, "What fills the disk"]

        assert names == [tile["name"] for tile in found["tiles"]]
        assert 0 < found["verdict"] < 250
        assert [] == [t for t in found["tiles"] if t["bottom"] > 800 or t["right"] > 1280], name
        assert [] == [t for t in found["tiles"] if t["height"] < 60 or t["cut"]], name


@pytest.mark.parametrize("width", [pytest.param(1400, marks=pytest.mark.long), 420])
def test_nothing_over_the_edge(look: Look, tmp_path: Path, width: int) -> None:
    """On a wide and on a narrow screen nothing reaches over the edge, with 128-bit ids, with and
    without metadata, with two dumps; tables scroll within their own frames."""
    code = """
    const wide = [...document.body.querySelectorAll("*")].filter((e) =>
      !e.closest("table") && !e.matches(".skip") &&
      e.getBoundingClientRect().right > innerWidth + 0.5);
    const frames = [...document.querySelectorAll(".scroll")];
    return {
      width: innerWidth, page: document.documentElement.scrollWidth,
      wide: wide.map((e) => e.outerHTML.slice(0, 120)),
      frames: frames.filter((e) => getComputedStyle(e).overflowX === "auto").length,
      tables: document.querySelectorAll("table").length,
      count: document.body.querySelectorAll("*").length,
    };
    """
    pages = [_written(tmp_path, name) for name in SAMPLES]
    for name, found in _probe(look, pages, code, width, 800).items():
        assert width == found["width"]
        assert found["page"] <= width, name
        assert [] == found["wide"], name
        assert found["tables"] == found["frames"] > 0
        assert found["count"] > 300


def test_long_ids_are_whole(look: Look, tmp_path: Path) -> None:
    """A 128-bit id is on the first screen and in the tables whole: no part of it is cut, in one
    line on a wide screen, at most two halves on a narrow one, and the word "ledger" before it."""
    code = """
    const outside = (e) => {
      const box = e.closest(".tile") ?? e;
      return e.getBoundingClientRect().right > box.getBoundingClientRect().right + 0.5;
    };
    const codes = [...document.querySelectorAll("code")].filter((e) => e.textContent.length == 32);
    const lines = (e) => new Set([...e.getClientRects()].map((r) => Math.round(r.top))).size;
    return {count: codes.length, outside: codes.filter(outside).length,
      listed: codes.filter((e) => e.closest(".risks")).map(lines),
      words: [...document.querySelectorAll(".risks .what")].map((e) => e.innerText.slice(0, 7)),
      most: Math.max(...codes.map(lines))};
    """
    page = _written(tmp_path, "thousand")
    wide, middle, narrow = (
        _probe(look, [page], code, width, 800)["thousand"] for width in (1400, 1000, 420)
    )

    assert {"ledger "} == {*wide["words"]} == {*middle["words"]} == {*narrow["words"]}
    assert wide["count"] == middle["count"] == narrow["count"] > 500
    assert 0 == wide["outside"] == middle["outside"] == narrow["outside"]
    assert [1, 1, 1, 1, 1] == wide["listed"] == middle["listed"]
    assert (2, 1) == (wide["most"], middle["most"])
    assert 2 >= narrow["most"]


@pytest.mark.parametrize("width", [1000, pytest.param(1200, marks=pytest.mark.long)])
def test_names_of_bookies_are_whole(look: Look, tmp_path: Path, width: int) -> None:
    """Beside the worst ledgers no bookie's name is cut while its tile has room below."""
    code = """
    return [...document.querySelectorAll(".risks .on, .risks .what")].map((e) => ({
      text: e.textContent, cut: e.scrollWidth > e.clientWidth, line: e.closest("div").clientWidth,
      need: e.scrollWidth,
    }));
    """
    found = _probe(look, [_written(tmp_path, "sick")], code, width, 800)["sick"]

    assert len(found) > 5
    assert [] == [each for each in found if each["cut"] and each["need"] <= each["line"]]
    assert any(not each["cut"] and each["text"].startswith("on ") for each in found)


@pytest.mark.parametrize("name", ["bare", "thousand"])
def test_lines_of_the_worst_ledgers(look: Look, tmp_path: Path, name: str) -> None:
    """On a wide screen each of the worst ledgers has a line or two of entries, and one of bookies;
    what is cut off is the title."""
    code = """
    return [...document.querySelectorAll(".risks li")].map((e) => ({
      height: e.getBoundingClientRect().height, text: e.querySelector(".what").textContent,
      title: e.querySelector(".what").title, on: e.querySelector(".on").title,
      where: e.querySelector(".on").textContent,
    }));
    """
    found = _probe(look, [_written(tmp_path, name)], code, 1400, 800)[name]

    assert 5 == len(found)
    assert [] == [each for each in found if not 10 < each["height"] < 66]
    assert [] == [each for each in found if not each["text"].endswith(each["title"])]
    assert [] == [each for each in found if each["on"] != each["where"] or not each["on"]]


@pytest.mark.parametrize(
    ("width", "least"),
    [
        (1400, 1100),
        *(pytest.param(*each, marks=pytest.mark.long) for each in ((900, 780), (420, 350))),
    ],
)
def test_charts_use_the_width(look: Look, tmp_path: Path, width: int, least: int) -> None:
    """One drawing of each chart is seen, as wide as its part, with text of the body's size; its
    longest text, rotated or not, is inside the drawing."""
    code = """
    return [...document.querySelectorAll("figure")].map((figure) => {
      const seen = [...figure.querySelectorAll(".chart")].filter((e) => e.clientWidth > 0);
      const box = seen[0].getBoundingClientRect();
      const scale = box.width / seen[0].viewBox.baseVal.width;
      const texts = [...seen[0].querySelectorAll("text")];
      return {seen: seen.length, part: figure.clientWidth, width: box.width,
        sizes: texts.map((e) => parseFloat(getComputedStyle(e).fontSize) * scale),
        body: parseFloat(getComputedStyle(document.body).fontSize),
        outside: texts.filter((e) => {
          const text = e.getBoundingClientRect();
          return text.left < box.left - 1 || text.right > box.right + 1 ||
            text.top < box.top - 1 || text.bottom > box.bottom + 1;
        }).map((e) => e.textContent)};
    });
    """
    pages = [_written(tmp_path, name) for name in ("hundred", "sick")]
    charts = _probe(look, pages, code, width, 800)

    assert [3, 3] == [len(found) for found in charts.values()]
    for chart in (each for found in charts.values() for each in found):
        assert 1 == chart["seen"]
        assert chart["part"] == pytest.approx(chart["width"], abs=1)
        assert chart["width"] > least
        assert chart["sizes"] == [pytest.approx(chart["body"], abs=0.3)] * len(chart["sizes"])
        assert len(chart["sizes"]) > 5
        assert [] == chart["outside"]


def _shaded(pixels: Any, theme: int) -> float:
    """Return which part of some pixels has another colour than a panel."""
    return float((abs(pixels - list(PANEL[theme])) > 12).any(axis=1).mean())


@pytest.mark.long
@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_what_scrolls_is_seen(look: Look, tmp_path: Path, theme: int) -> None:
    """Where a table goes on beyond its frame that edge is shaded, and where it ends it is not."""
    code = """
    const frame = document.querySelector(".scroll"), box = frame.getBoundingClientRect();
    const body = frame.querySelector("tbody").getBoundingClientRect();
    return [box.left, box.right, body.top, body.bottom, frame.scrollWidth > frame.clientWidth];
    """
    content = {"holes": made(tables.HOLES, *[{}] * 9)}
    pages = []
    for name, start in (("first", 0), ("last", 9999)):
        pages.append(tmp_path / f"{name}.html")
        write_report(pages[-1], content, title=name, source={})
        text = pages[-1].read_text(encoding="utf-8")
        script = _SCROLLED.format(start=start)
        pages[-1].write_text(text.replace("</body>", script + "</body>"), encoding="utf-8")
    found = {}
    for width in (360, 1400):
        told = _probe(look, pages, code, width, 2000, theme=theme)
        picture = tmp_path / f"{width}.png"
        window = f"--window-size={width + 100},4200"
        look(tmp_path / "wrapper.html", window, f"--screenshot={picture}", theme=theme)
        pixels = (image.imread(picture)[:, :, :3] * 255).round().astype(int)
        for at, page in enumerate(pages):
            left, right, top, bottom, more = told[page.stem]
            lines = pixels[round(2000 * at + top) : round(2000 * at + bottom)]
            edges = [_shaded(lines[:, round(x)], theme) for x in (left + 1, right - 2)]
            found[width, page.stem] = (more, *(each > 0.5 for each in edges))

    assert (True, False, True) == found[360, "first"]
    assert (True, True, False) == found[360, "last"]
    assert (False, False, False) == found[1400, "first"]


SIZES = [(1280, 800), pytest.param((500, 1600), marks=pytest.mark.long)]
THEMES = [
    pytest.param(LIGHT, id="light"),
    pytest.param(DARK, id="dark", marks=pytest.mark.long),
]


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("name", ["sick", pytest.param("hundred", marks=pytest.mark.long)])
@pytest.mark.parametrize("size", SIZES, ids=["wide", "narrow"])
def test_screenshots(
    look: Look, tmp_path: Path, name: str, theme: int, size: tuple[int, int]
) -> None:
    """The picture has the theme's ground, text and bars on it; wide and narrow."""
    target = _written(tmp_path, name)
    width, height = size
    picture = tmp_path / f"{width}.png"
    window = f"--window-size={width},{height}"
    _, messages = look(target, window, f"--screenshot={picture}", theme=theme)
    pixels = (image.imread(picture)[:, :, :3] * 255).round().astype(int)
    colours = {tuple(colour) for colour in pixels.reshape(-1, 3).tolist()}
    ground = PAGE_COLOUR[theme]

    assert [] == _messages(messages)
    assert (height, width) == pixels.shape[:2]
    assert ground == tuple(pixels[4, 4].tolist())
    assert 0.02 < (pixels != list(ground)).any(axis=2).mean() < 0.95
    assert len(colours) > 200
    assert {LIGHT: (0x2A, 0x6C, 0xB8), DARK: (0x5A, 0xA3, 0xF0)}[theme] in colours


def test_charts_follow_the_theme(look: Look, tmp_path: Path) -> None:
    """The charts' text has the theme's ink, and their bars its colours."""
    target = _written(tmp_path, "sick")
    code = """
    const of = (e, what) => getComputedStyle(e)[what];
    const ink = of(document.body, "color");
    const texts = [...document.querySelectorAll(".chart.wide text")];
    const fills = [...document.querySelectorAll(".chart.wide path")].map((e) => of(e, "fill"));
    return {ink, charts: document.querySelectorAll(".chart.wide").length, count: texts.length,
      texts: [...new Set(texts.map((e) => of(e, "fill")))], fills: [...new Set(fills)]};
    """
    for theme, ink, live in (
        (LIGHT, "rgb(26, 33, 41)", "rgb(42, 108, 184)"),
        (DARK, "rgb(231, 235, 240)", "rgb(90, 163, 240)"),
    ):
        found = _probe(look, [target], code, 1280, 800, theme=theme)["sick"]

        assert ink == found["ink"]
        assert 3 == found["charts"]
        assert found["count"] > 15
        assert [ink] == found["texts"]
        assert live in found["fills"]


def test_sorting(look: Look, tmp_path: Path) -> None:
    """A header sorts by its column: ids unsigned, numbers exactly, what is null last both ways."""
    ids = [(0, 10), (-1, 1), (0, 9), (1, -1), (1, 5)]
    entries = [2**53 + 1, None, 2**53, 12, 1000]
    listed = [("b", *i, "", e, n) for n, (i, e) in enumerate(zip(ids, entries))]
    target = tmp_path / "sorted.html"
    content = {"orphans": Table.from_rows(tables.ORPHANS, listed).to_arrow()}
    write_report(target, content, title="x", source={})
    found = _probe(
        look,
        [target],
        """
        const heads = [...document.querySelectorAll("#orphans th")];
        const told = {start: heads.map((h) => h.getAttribute("aria-sort"))};
        for (const [name, at] of [["ledger", 1], ["entries", 2]]) {
          for (const turn of ["first", "second"]) {
            heads[at].querySelector("button").click();
            told[`${name} ${turn}`] = [heads[at].getAttribute("aria-sort"),
              ...[...document.querySelectorAll(`#orphans td:nth-child(${at + 1})`)].map(
                (cell) => cell.textContent)];
          }
        }
        told.end = heads.map((h) => h.getAttribute("aria-sort"));
        return told;
        """,
        1280,
        800,
    )["sorted"]
    names = ["9", "10", f"{1:016x}{5:016x}", f"{1:016x}{'f' * 16}", f"{'f' * 16}{1:016x}"]
    counts = ["9,007,199,254,740,993", "9,007,199,254,740,992", "1,000", "12"]
    dash = "\N{EN DASH}"

    assert [None, None, None, "descending"] == found["start"]
    assert ["ascending", *names] == found["ledger first"]
    assert ["descending", *reversed(names)] == found["ledger second"]
    assert ["descending", *counts, dash] == found["entries first"]
    assert ["ascending", *reversed(counts), dash] == found["entries second"]
    assert [None, None, "ascending", None] == found["end"]


def test_filter(look: Look, tmp_path: Path) -> None:
    """Typing in a table's filter leaves the rows that have the text, and says how many."""
    found = _probe(
        look,
        [_written(tmp_path, "hundred")],
        """
        const part = document.getElementById("bytes_by_bookie");
        const input = part.querySelector("input");
        const left = () => [...part.querySelectorAll("tbody tr")].filter((r) => !r.hidden).length;
        const type = (text) => {
          input.value = text; input.dispatchEvent(new Event("input"));
          return [left(), part.querySelector("output").textContent.trim()];
        };
        return [type("BK-01"), type("nothing"), type("")];
        """,
        1280,
        800,
    )["hundred"]

    assert [[10, "10 of 100 rows on this page"], [0, "0 of 100 rows on this page"], [100, ""]] == (
        found
    )


def test_paper_has_all(look: Look, tmp_path: Path) -> None:
    """By the rules for print no table is wider than the paper, nothing cut, no drawing missing."""
    code = """
    const right = (e) => Math.round(e.getBoundingClientRect().right);
    const drawings = [...document.querySelectorAll(".chart")];
    return {right: Math.max(...[...document.querySelectorAll("td")].map(right)),
      charts: drawings.filter((e) => e.clientWidth > 500).length,
      cut: [...document.querySelectorAll(".risks span")].filter((e) =>
        e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).whiteSpace === "nowrap" &&
        !e.matches(".chip")).length};
    """
    pages = [_written(tmp_path, name) for name in ("sick", "thousand")]
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert 1 == text.count("@media print {")
        page.write_text(text.replace("@media print {", "@media all {"), encoding="utf-8")
    for name, found in _probe(look, pages, code, 794, 1123).items():
        assert 600 < found["right"] <= 794, name
        assert 3 == found["charts"]
        assert 0 == found["cut"]


@pytest.mark.long
def test_prints(look: Look, tmp_path: Path) -> None:
    """The page prints, whole tables included: a PDF of several pages."""
    target = tmp_path / "out.pdf"
    look(_written(tmp_path, "hundred"), f"--print-to-pdf={target}", "--no-pdf-header-footer")
    data = target.read_bytes()
    pages = len(re.findall(rb"/Type\s*/Page\b", data))

    assert data.startswith(b"%PDF-")
    assert pages > 8
