"""The report's page in headless Chromium: what fits the first screen, themes, narrow screens."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkstore import tables
from bkstore.report import write_report
from bkstore.tables import Table
from tests.report.chromium import DARK, LIGHT, Browser
from tests.report.made_tables import made
from tests.report.samples import SAMPLES

pytest.importorskip("pyarrow")
pytest.importorskip("matplotlib")

PANEL = {LIGHT: (0xFF, 0xFF, 0xFF), DARK: (0x17, 0x1D, 0x25)}
PAGE_COLOUR = {LIGHT: (0xF4, 0xF6, 0xF8), DARK: (0x0E, 0x12, 0x17)}

SampleFile = Callable[[str], Path]


@pytest.mark.parametrize("name", ["sick", "bare"])
def test_no_console_messages(browser: Browser, sample_file: SampleFile, name: str) -> None:
    """The page runs its script under its own policy, and nothing reaches the console."""
    page = browser.look_at(sample_file(name))
    code = """
    return [document.querySelectorAll('th button[type="button"]').length,
      document.querySelectorAll('th[scope="col"]').length];
    """
    buttons, heads = page.run(code)

    assert [] == page.messages
    assert buttons == heads > 0


def test_foreign_script_is_refused(
    browser: Browser, sample_file: SampleFile, tmp_path: Path
) -> None:
    """A script that is not the page's own does not run, and the console says so."""
    text = sample_file("single").read_text(encoding="utf-8")
    changed = tmp_path / "changed.html"
    changed.write_text(text.replace("</body>", "<script>document.title = 1</script></body>"))
    page = browser.open(changed)

    assert "One bookie" == page.run("return document.title;")
    assert any("Content Security Policy" in str(message) for message in page.messages)


def test_first_screen(browser: Browser, sample_file: SampleFile) -> None:
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
    for name in SAMPLES:
        found = browser.look_at(sample_file(name)).show(1280, 800).run(code)
        assert [1280, 800] == found["size"]
        third = "Lost or at risk" if SAMPLES[name]().source["metadata"] else "Holes"
        names = ["How much", "How healthy", third, "What fills the disk"]
        if name == "topics":  # long names take more room: their tile is the last one
            assert [*names, "Topics"] == [tile["name"] for tile in found["tiles"]]
            continue

        assert names == [tile["name"] for tile in found["tiles"]]
        assert 0 < found["verdict"] < 250
        assert [] == [t for t in found["tiles"] if t["bottom"] > 800 or t["right"] > 1280], name
        assert [] == [t for t in found["tiles"] if t["height"] < 60 or t["cut"]], name


@pytest.mark.parametrize("width", [1400, 1000, 420])
def test_nothing_over_the_edge(browser: Browser, sample_file: SampleFile, width: int) -> None:
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
    for name in SAMPLES:
        found = browser.look_at(sample_file(name)).show(width, 800).run(code)
        assert width == found["width"]
        assert found["page"] <= width, name
        assert [] == found["wide"], name
        assert found["tables"] == found["frames"] > 0
        assert found["count"] > 300


def test_long_ids_are_whole(browser: Browser, sample_file: SampleFile) -> None:
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
    page = browser.look_at(sample_file("thousand"))
    wide, middle, narrow = (page.show(width, 800).run(code) for width in (1400, 1000, 420))

    assert {"ledger "} == {*wide["words"]} == {*middle["words"]} == {*narrow["words"]}
    assert wide["count"] == middle["count"] == narrow["count"] > 500
    assert 0 == wide["outside"] == middle["outside"] == narrow["outside"]
    assert [1, 1, 1, 1, 1] == wide["listed"] == middle["listed"]
    assert (2, 1) == (wide["most"], middle["most"])
    assert 2 >= narrow["most"]


@pytest.mark.parametrize("width", [1000, 1200])
def test_names_of_bookies_are_whole(browser: Browser, sample_file: SampleFile, width: int) -> None:
    """Beside the worst ledgers no bookie's name is cut while its tile has room below."""
    code = """
    return [...document.querySelectorAll(".risks .on, .risks .what")].map((e) => ({
      text: e.textContent, cut: e.scrollWidth > e.clientWidth, line: e.closest("div").clientWidth,
      need: e.scrollWidth,
    }));
    """
    found = browser.look_at(sample_file("sick")).show(width, 800).run(code)

    assert len(found) > 5
    assert [] == [each for each in found if each["cut"] and each["need"] <= each["line"]]
    assert any(not each["cut"] and each["text"].startswith("on ") for each in found)


@pytest.mark.parametrize("name", ["bare", "thousand"])
def test_lines_of_the_worst_ledgers(browser: Browser, sample_file: SampleFile, name: str) -> None:
    """On a wide screen each of the worst ledgers has a line or two of entries, and one of bookies;
    what is cut off is the title."""
    code = """
    return [...document.querySelectorAll(".risks li")].map((e) => ({
      height: e.getBoundingClientRect().height, text: e.querySelector(".what").textContent,
      title: e.querySelector(".what").title, on: e.querySelector(".on").title,
      where: e.querySelector(".on").textContent,
    }));
    """
    found = browser.look_at(sample_file(name)).show(1400, 800).run(code)

    assert 5 == len(found)
    assert [] == [each for each in found if not 10 < each["height"] < 66]
    assert [] == [each for each in found if not each["text"].endswith(each["title"])]
    assert [] == [each for each in found if each["on"] != each["where"] or not each["on"]]


@pytest.mark.parametrize(("width", "least"), [(1400, 1100), (900, 780), (420, 350)])
def test_charts_use_the_width(
    browser: Browser, sample_file: SampleFile, width: int, least: int
) -> None:
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
    charts = []
    for name in ("hundred", "sick"):
        charts += browser.look_at(sample_file(name)).show(width, 800).run(code)

    assert 6 == len(charts)
    for chart in charts:
        assert 1 == chart["seen"]
        assert chart["part"] == pytest.approx(chart["width"], abs=1)
        assert chart["width"] > least
        assert chart["sizes"] == [pytest.approx(chart["body"], abs=0.3)] * len(chart["sizes"])
        assert len(chart["sizes"]) > 5
        assert [] == chart["outside"]


def _shaded(pixels: Any, theme: str) -> float:
    """Return which part of some pixels has another colour than a panel."""
    return float((abs(pixels - list(PANEL[theme])) > 12).any(axis=1).mean())


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_what_scrolls_is_seen(browser: Browser, tmp_path: Path, theme: str) -> None:
    """Where a table goes on beyond its frame that edge is shaded, and where it ends it is not."""
    code = """
    const frame = document.querySelector(".scroll");
    frame.scrollLeft = %d;
    const box = frame.getBoundingClientRect();
    const body = frame.querySelector("tbody").getBoundingClientRect();
    return [box.left, box.right, body.top, body.bottom, frame.scrollWidth > frame.clientWidth];
    """
    target = tmp_path / "holes.html"
    write_report(target, {"holes": made(tables.HOLES, *[{}] * 9)}, title="Holes", source={})
    page = browser.look_at(target)
    found = []
    for width, start in ((360, 0), (360, 9999), (1400, 0)):
        left, right, top, bottom, more = page.show(width, 2000, theme).run(code % start)
        lines = page.take_picture()[round(top) : round(bottom)]
        edges = [_shaded(lines[:, round(x)], theme) for x in (left + 1, right - 2)]
        found.append((more, *(part > 0.5 for part in edges)))

    assert [(True, False, True), (True, True, False), (False, False, False)] == found


@pytest.mark.parametrize("theme", [LIGHT, DARK])
@pytest.mark.parametrize("name", ["sick", pytest.param("hundred", marks=pytest.mark.long)])
@pytest.mark.parametrize("size", [(1280, 800), (420, 1600)], ids=["wide", "narrow"])
def test_screenshots(
    browser: Browser, sample_file: SampleFile, name: str, theme: str, size: tuple[int, int]
) -> None:
    """The picture has the theme's ground, text and bars on it; wide and narrow."""
    width, height = size
    page = browser.look_at(sample_file(name)).show(width, height, theme)
    pixels = page.take_picture()
    colours = set((pixels @ [1 << 16, 1 << 8, 1]).ravel().tolist())
    ground = PAGE_COLOUR[theme]

    assert [] == page.messages
    assert (height, width) == pixels.shape[:2]
    assert ground == tuple(pixels[4, 4].tolist())
    assert 0.02 < (pixels != list(ground)).any(axis=2).mean() < 0.95
    assert len(colours) > 200
    assert {LIGHT: 0x2A6CB8, DARK: 0x5AA3F0}[theme] in colours


def test_charts_follow_the_theme(browser: Browser, sample_file: SampleFile) -> None:
    """The charts' text has the theme's ink, and their bars its colours."""
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
        found = browser.look_at(sample_file("sick")).show(1280, 800, theme).run(code)

        assert ink == found["ink"]
        assert 3 == found["charts"]
        assert found["count"] > 15
        assert [ink] == found["texts"]
        assert live in found["fills"]


def test_sorting(browser: Browser, tmp_path: Path) -> None:
    """A header sorts by its column: ids unsigned, numbers exactly, what is null last both ways."""
    ids = [(0, 10), (-1, 1), (0, 9), (1, -1), (1, 5)]
    entries = [2**53 + 1, None, 2**53, 12, 1000]
    listed = [("b", *i, "", e, n) for n, (i, e) in enumerate(zip(ids, entries))]
    target = tmp_path / "sorted.html"
    content = {"orphans": Table.from_rows(tables.ORPHANS, listed).to_arrow()}
    write_report(target, content, title="x", source={})
    code = """
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
    """
    found = browser.open(target).show(1280, 800).run(code)
    names = ["9", "10", f"{1:016x}{5:016x}", f"{1:016x}{'f' * 16}", f"{'f' * 16}{1:016x}"]
    counts = ["9,007,199,254,740,993", "9,007,199,254,740,992", "1,000", "12"]
    dash = "\N{EN DASH}"

    assert [None, None, None, "descending"] == found["start"]
    assert ["ascending", *names] == found["ledger first"]
    assert ["descending", *reversed(names)] == found["ledger second"]
    assert ["descending", *counts, dash] == found["entries first"]
    assert ["ascending", *reversed(counts), dash] == found["entries second"]
    assert [None, None, "ascending", None] == found["end"]


def test_filter(browser: Browser, sample_file: SampleFile) -> None:
    """Typing in a table's filter leaves the rows that have the text, and says how many."""
    code = """
        const part = document.getElementById("bytes_by_bookie");
        const input = part.querySelector("input");
        const left = () => [...part.querySelectorAll("tbody tr")].filter((r) => !r.hidden).length;
        const type = (text) => {
          input.value = text; input.dispatchEvent(new Event("input"));
          return [left(), part.querySelector("output").textContent.trim()];
        };
        return [type("BK-01"), type("nothing"), type("")];
    """
    found = browser.open(sample_file("hundred")).show(1280, 800).run(code)

    assert [[10, "10 of 100 rows on this page"], [0, "0 of 100 rows on this page"], [100, ""]] == (
        found
    )


def test_paper_has_all(browser: Browser, sample_file: SampleFile) -> None:
    """By the rules for print no table is wider than the paper, nothing cut, no drawing missing."""
    code = """
    const right = (e) => Math.round(e.getBoundingClientRect().right);
    const drawings = [...document.querySelectorAll(".chart")];
    return {right: Math.max(...[...document.querySelectorAll("td")].map(right)),
      size: getComputedStyle(document.body).fontSize,
      charts: drawings.filter((e) => e.clientWidth > 500).length,
      cut: [...document.querySelectorAll(".risks span")].filter((e) =>
        e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).whiteSpace === "nowrap" &&
        !e.matches(".chip")).length};
    """
    for name in ("sick", "thousand"):
        page = browser.look_at(sample_file(name)).show(794, 1123, media="print")
        found = page.run(code)
        assert "11px" == found["size"]  # the rules apply
        assert 600 < found["right"] <= 794, name
        assert 3 == found["charts"]
        assert 0 == found["cut"]


@pytest.mark.long
def test_prints(browser: Browser, sample_file: SampleFile) -> None:
    """The page prints, whole tables included: a PDF of several pages."""
    data = browser.open(sample_file("hundred")).print_pdf()

    assert data.startswith(b"%PDF-")
    assert len(re.findall(rb"/Type\s*/Page\b", data)) > 8
