"""Topics in headless Chromium: long names are whole, and what is opened fits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.report.chromium import DARK, LIGHT, Browser

pytest.importorskip("pyarrow")
pytest.importorskip("matplotlib")

SampleFile = Callable[[str], Path]


@pytest.mark.parametrize("width", [1400, 1000, 420])
def test_names_are_whole(browser: Browser, sample_file: SampleFile, width: int) -> None:
    """Names of 200 characters, ASCII without a break and others, are cut nowhere but among the
    biggest ledgers, and nothing is over the edge, with all ledgers of all topics shown."""
    code = """
    document.querySelectorAll(".topics details").forEach((each) => { each.open = true; });
    const right = (e) => e.getBoundingClientRect().right;
    const cut = (e) => e.scrollHeight > e.clientHeight + 1 || e.scrollWidth > e.clientWidth + 1;
    const names = [...document.querySelectorAll(".topics .owner, .risks .owner, td.owner")];
    const tile = document.querySelector(".tile.whole");
    return {
      longest: Math.max(...names.map((e) => e.textContent.length)), count: names.length,
      cut: names.filter(cut).map((e) => e.textContent),
      outside: [...tile.querySelectorAll("*")].filter((e) => right(e) > right(tile) + 0.5).length,
      cells: [...document.querySelectorAll("td.owner")].filter((e) => e.clientWidth < 190).length,
      page: document.documentElement.scrollWidth,
      widths: [...tile.querySelectorAll("summary .owner")].map((e) => e.clientWidth),
      shown: [...tile.querySelectorAll("li li")].filter((e) => e.clientHeight > 10).length,
      below: document.querySelectorAll(".topics li li").length,
    };
    """
    found = browser.look_at(sample_file("topics")).show(width, 800).run(code)

    assert found["longest"] > 200
    assert found["count"] > 100
    assert [] == found["cut"]
    assert (0, 0) == (found["outside"], found["cells"])
    assert found["page"] <= width
    assert min(found["widths"]) > 300
    assert 10 < found["shown"] == found["below"]


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_colors_of_topics(browser: Browser, sample_file: SampleFile, theme: str) -> None:
    """Names have the ink of the theme, and what was lost its alarming color."""
    code = """
    const of = (selector, what) => getComputedStyle(document.querySelector(selector))[what];
    return [of("body", "color"), of(".topics .owner", "color"),
      of(".topics .c-no_replica", "backgroundColor")];
    """
    ink, name, lost = browser.look_at(sample_file("topics")).show(1000, 800, theme).run(code)

    assert ink == name
    assert {LIGHT: "rgb(179, 32, 27)", DARK: "rgb(255, 128, 120)"}[theme] == lost


def test_a_click_shows_the_ledgers(browser: Browser, sample_file: SampleFile) -> None:
    """They are hidden before, under the page's policy."""
    code = """
    const [details] = document.querySelectorAll(".topics details");
    const seen = () => details.querySelector("ul").checkVisibility();
    const told = [seen()];
    details.querySelector("summary").click();
    return [...told, seen()];
    """
    page = browser.open(sample_file("topics"))

    assert [False, True] == page.run(code)
    assert [] == page.messages
