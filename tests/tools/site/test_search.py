"""The site's search: what ranks first, and that it works in a folder opened as file://."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path

import pytest

pytest.importorskip("griffe")

from tests.paths import ROOT
from tools.site import search_index
from tools.site.__main__ import build

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

GUIDE = {"title": "The report", "path": ["Guides", "The report"], "text": "", "tags": []}
MODULE = {"title": "report.html.bars", "path": ["Reference", "report", "html", "bars"]}
CLASS = {"title": "BarChart_2", "path": ["Reference", "report", "html", "bars"], "text": "a class"}


def _site(folder: Path, items: list[dict[str, object]]) -> Path:
    index = json.dumps({"config": {"lang": ["en"]}, "items": items})
    (folder / "search.json").write_text(index, encoding="utf-8")
    (folder / "search.js").write_text(f"var __index = {index}", encoding="utf-8")
    return folder


def test_names_of_the_reference_are_found_by_their_path(tmp_path: Path) -> None:
    """A title of the reference is shown as it was and matches no word; its words are in the path.
    Titles of guides, and all else, are kept, in both files."""
    search_index.rank_guides_first(_site(tmp_path, [GUIDE, MODULE, CLASS]))
    text = (tmp_path / "search.json").read_text(encoding="utf-8")
    guide, module, class_item = json.loads(text)["items"]

    assert f"var __index = {text}" == (tmp_path / "search.js").read_text(encoding="utf-8")
    assert GUIDE == guide
    assert MODULE["path"] == module["path"]
    assert [*CLASS["path"], "BarChart_2"] == class_item["path"]
    assert "a class" == class_item["text"]
    for before, after in ((MODULE, module), (CLASS, class_item)):
        shown = after["title"].replace("\u2060", "")
        words = re.findall(r"[^\W_]+", str(before["title"]))
        assert before["title"] == shown
        assert [f"\u2060{word}" for word in words] == re.findall("\u2060[^\\W_]+", after["title"])


def test_an_index_that_is_none_is_refused(tmp_path: Path) -> None:
    """Without the script for pages from a folder, the build stops and says what is missing."""
    (_site(tmp_path, [GUIDE]) / "search.js").unlink()

    with pytest.raises(LookupError, match=r"search\.js are not a search index"):
        search_index.rank_guides_first(tmp_path)


CONFIG = """site_name: small
docs_dir: docs
site_dir: site
use_directory_urls: false
theme: {name: material, font: false}
markdown_extensions: [attr_list, tables, pymdownx.superfences]
plugins: [search, offline]
extra: {polyfills: [assets/iframe-worker.js]}
nav:
  - Start: index.md
  - Reference: reference/index.md
  - Guides:
      - Page: page.md
"""
MODULE_TEXT = '''"""Tools."""

__all__ = ["Ensemble", "EnsembleOptions"]


class Ensemble:
    """An ensemble of bookies."""


class EnsembleOptions:
    """Options of an ensemble, and of every ensemble after it."""
'''

_ASK = """<script>(async () => {
  const wait = (time) => new Promise((done) => setTimeout(done, time));
  const roots = () => [...document.querySelectorAll("*")].map((e) => e.shadowRoot).filter(Boolean);
  const all = (selector) => roots().flatMap((root) => [...root.querySelectorAll(selector)]);
  await wait(300);
  document.querySelector(".md-search__button").click();
  await wait(300);
  const [input] = all("input");
  input.value = "%s";
  input.dispatchEvent(new Event("input", { bubbles: true }));
  for (let i = 0; i < 40 && !all("ol a").length; i++) await wait(100);
  await wait(300);
  const pre = document.createElement("pre");
  pre.id = "answer";
  pre.textContent = JSON.stringify(all("ol a").map((a) => a.href.split("/site/")[1]));
  document.body.append(pre);
})();</script></body>"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a small site: a guide, and a module with two classes whose names are like its title.
    The shim is this repository's."""
    pytest.importorskip("zensical")
    root = tmp_path_factory.mktemp("search")
    files = {
        "pyproject.toml": '[project]\nname = "x"\n',
        "mkdocs.yml": CONFIG,
        "docs/index.md": "# Start\n\nNothing here.\n",
        "docs/page.md": "# A tour of an ensemble\n\nIt is of processes.\n",
        "bkstore/__init__.py": MODULE_TEXT,
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    (root / "docs" / "assets").mkdir()
    shutil.copy(ROOT / "docs" / "assets" / "iframe-worker.js", root / "docs" / "assets")

    assert [] == build(root, root / "site")
    return root / "site"


def _ask(site: Path, query: str, profile: Path) -> list[str]:
    """Return the addresses that the search of a page opened as file:// answers with."""
    page = (site / "index.html").read_text(encoding="utf-8")
    (site / "asked.html").write_text(page.replace("</body>", _ASK % query), encoding="utf-8")
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}"]
    options += ["--virtual-time-budget=10000", "--dump-dom"]
    done = subprocess.run(
        [str(CHROMIUM), *options, (site / "asked.html").as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    answer = re.search(r'<pre id="answer">(.*?)</pre>', done.stdout, re.DOTALL)

    assert answer is not None, done.stdout[-2000:]
    found: list[str] = json.loads(unescape(answer[1]))
    return found


needs_chromium = pytest.mark.skipif(
    CHROMIUM is None or importlib.util.find_spec("zensical") is None,
    reason="no chromium on PATH (Debian has a package of that name), or no zensical (`make docs`)",
)


@needs_chromium
@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("ensemble", ["page.html", "#bkstore.Ensemble", "#bkstore.EnsembleOptions"]),
        ("EnsembleOptions", ["#bkstore.EnsembleOptions"]),
        ("processes", ["page.html"]),
    ],
)
def test_search_in_a_folder(query: str, expected: list[str], site: Path, tmp_path: Path) -> None:
    """A page from a folder answers: a guide with the word in its title, then classes by name."""
    addresses = [re.sub(r"^reference/index.html(?=#)", "", a) for a in _ask(site, query, tmp_path)]

    assert expected == addresses


def test_the_site_loads_its_own_shim() -> None:
    """The configuration has the search for folders, with a shim that the site brings."""
    config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")

    assert "plugins: [search, offline]" in config
    for path in re.findall(r"^ +- (assets/\S+\.js)", config, re.MULTILINE):
        assert "iframe-worker" in path
        assert (ROOT / "docs" / path).is_file()
