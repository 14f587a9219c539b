"""The documentation site: every public name has a place, every link a target, and it is built."""

from __future__ import annotations

import ast
import importlib.util
import re
import symtable
from pathlib import Path

import pytest

pytest.importorskip("griffe")

from tests.paths import ROOT
from tools.site import check, sources
from tools.site.__main__ import build, main
from tools.site.docstrings import to_markdown
from tools.site.public_names import Library
from tools.site.reference import Page, build_pages

pytest_plugins = ["pytester"]

_ANCHOR = re.compile(r'(?:\{ #|<span id=")((?:[\w.]|\\_)+)')

needs_zensical = pytest.mark.skipif(
    importlib.util.find_spec("zensical") is None, reason="`make docs` installs what renders"
)


def _public() -> dict[str, list[str]]:
    """Return module -> its public names, by other means than the site's own.

    The names of ``__all__``; where there is none, what the module's own symbols define.
    """
    found = {}
    for path in sorted(ROOT.glob("bkstore/**/*.py")):
        if path.name == "__main__.py":  # a command, nobody imports it
            continue
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        text = path.read_text(encoding="utf-8")
        caught = {
            node.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ExceptHandler)
        }
        found[name] = [
            symbol.get_name()
            for symbol in symtable.symtable(text, str(path), "exec").get_symbols()
            if symbol.is_assigned() and not symbol.is_imported()
            if not symbol.get_name().startswith("_") and symbol.get_name() not in caught
        ]
        for statement in ast.parse(text).body:
            if isinstance(statement, ast.Assign | ast.AnnAssign):
                target = statement.targets[0] if isinstance(statement, ast.Assign) else None
                if "__all__" == getattr(target or statement.target, "id", None):
                    found[name] = ast.literal_eval(statement.value)
    return found


@pytest.fixture(scope="module")
def listed() -> dict[str, Page]:
    """Return module -> page of this library's reference."""
    return {page.module: page for page in build_pages(Library("bkstore", ROOT))}


def _places(text: str) -> list[str]:
    return [anchor.replace("\\_", "_") for anchor in _ANCHOR.findall(text)]


def test_every_public_name_has_a_place(listed: dict[str, Page]) -> None:
    """Each module with public names has a page of its own, and each of the names a place there."""
    public = _public()
    missing = [
        f"{module}.{name}"
        for module, names in public.items()
        for name in names
        if f"{module}.{name}" not in {*_places(listed[module].text), *listed}
    ]

    assert "Bookie" in public["bkstore"]
    assert [] == missing
    assert set(public) == set(listed)


def test_places_are_no_two_things(listed: dict[str, Page]) -> None:
    """An anchor stands once on its page, and no two pages have one path."""
    twice = {
        page.module: [place for place in set(places) if 1 < places.count(place)]
        for page in listed.values()
        for places in [_places(page.text)]
    }

    assert {} == {module: places for module, places in twice.items() if places}
    assert len(listed) == len({page.path for page in listed.values()})


def test_the_navigation_names_every_page() -> None:
    """Each page of docs/ stands in the navigation once, and nothing else does."""
    text = (ROOT / sources.CONFIG).read_text(encoding="utf-8").partition("\nnav:")[2]
    named = sorted(re.findall(r": (\S+\.md)$", text, re.MULTILINE))
    there = [path.relative_to(ROOT / "docs").as_posix() for path in ROOT.glob("docs/**/*.md")]

    assert sorted([*there, "changelog.md", "contributing.md", "reference/index.md"]) == named


def test_the_landing_page_s_test_passes(pytester: pytest.Pytester) -> None:
    """The test that the landing page shows passes with the fixture that the plugin brings."""
    page = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    shown = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)[0]
    pytester.makepyfile(shown)
    options = ["-p", "no:bkstore", "-p", "bkstore.testing.plugin", "-p", "no:cacheprovider"]
    result = pytester.runpytest_subprocess(*options, "-Werror")

    assert {"passed": 1} == result.parseoutcomes()


def test_the_picture_is_light() -> None:
    """The landing page's picture is a PNG of less than 250 kB."""
    data = (ROOT / "docs" / "images" / "report.png").read_bytes()

    assert b"\x89PNG\r\n" == data[:6]
    assert 250_000 > len(data)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A <b> of `<b>`.", "A &lt;b> of `<b>`."),
        ("Rules:\n* one\n* two\n  more", "Rules:\n\n* one\n* two\n  more"),
        ("Say:\n>>> 1 + 1\n2\n\nEnd.", "Say:\n\n```pycon\n>>> 1 + 1\n2\n```\n\nEnd."),
        ("    raw <b>", "    raw <b>"),
        ("`Known` and ``Known`` and `other`", "[`Known`](x.md) and [``Known``](x.md) and `other`"),
        ("See [`Known`](y.md).", "See [`Known`](y.md)."),
    ],
    ids=["brackets", "list", "example", "indented", "names", "linked"],
)
def test_docstrings_as_markdown(text: str, expected: str) -> None:
    """Examples and lists stand apart, brackets stay what they are, known names become links."""
    assert expected == to_markdown(text, {"Known": "x.md"}.get)


MODULE = '''"""A module; its sibling is `Other`.

>>> 1 + 1
2
"""

from bkstore.other import Other

__all__ = ["FIRST", "Other", "Small", "both"]

FIRST, SECOND = 1, 2


class Small(Other):
    """Fields, a method."""

    size: int = 3
    other: str = "b"

    def __init__(self, size: int) -> None:
        self.size = size
        self.hidden = 1

    @property
    def twice(self) -> int:
        """Twice the `size`."""


def both(first: int, /, *, second: str = "a <b>", **more: object) -> list[int]:
    """Return <both>."""
'''
OTHER = '''"""Another."""

__all__ = ["Other"]


class Other:
    """Something else."""

    def shared(self) -> None:
        """Do what all do, as `docs/page.md` says."""
'''
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
  - Page: page.md
  - Reference: reference/index.md
  - Changes: changelog.md
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Return a small repository with pages and a package named bkstore."""
    root = tmp_path / "small"
    files = {
        "pyproject.toml": '[project]\nname = "x"\nurls = { Repository = "https://host/x" }\n',
        "mkdocs.yml": CONFIG,
        "LICENSE": "Free.\n",
        "CHANGELOG.md": "# Changes\n\nSee [a page](docs/page.md#part).\n",
        "docs/assets/iframe-worker.js": "",
        "docs/index.md": "# Start\n\n[Page](page.md), [code](../bkstore/other.py).\n",
        "docs/page.md": "# Page\n\n## Part\n\n`bkstore/other.py`, [licence](../LICENSE)\n",
        "bkstore/__init__.py": MODULE,
        "bkstore/other.py": OTHER,
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return root


def test_a_page_of_the_reference(small: Path) -> None:
    """A page shows heads as in the source, links to what is elsewhere, and what is inherited."""
    text = build_pages(Library("bkstore", small))[0].text

    assert "its sibling is [`Other`](other.md#bkstore.other.Other)." in text
    assert '<span id="bkstore.Other"></span>' in text
    assert "FIRST, SECOND = (1, 2)" in text
    assert "class Small(Other):\n    size: int\n    other: str = 'b'\n    def __init__(self" in text
    assert "@property\ndef twice(self) -> int" in text
    assert "From [`Other`](other.md#bkstore.other.Other): [`shared`](" in text
    assert (
        "def both(first: int, /, *, second: str = 'a <b>', **more: object) -> list[int]\n" in text
    )
    assert "Return &lt;both>." in text
    assert "hidden" not in text


def test_links_of_pages(small: Path, tmp_path: Path) -> None:
    """Links between pages, to code, to the changes and out of docs/ are right on the site too."""
    sources.write_sources(small, "bkstore", tmp_path)
    read = {name: (tmp_path / "docs" / name).read_text() for name in ("index.md", "page.md")}

    assert "[code](reference/other.md)" in read["index.md"]
    assert "[`bkstore/other.py`](reference/other.md)" in read["page.md"]
    assert "(https://host/x/blob/main/LICENSE)" in read["page.md"]
    assert "[a page](page.md#part)" in (tmp_path / "docs" / "changelog.md").read_text()


def test_without_an_address_of_the_repository(small: Path, tmp_path: Path) -> None:
    """Where the project has no address, what would lead out of the site is text, not a link."""
    (small / "pyproject.toml").write_text('[project]\nname = "x"\n')
    sources.write_sources(small, "bkstore", tmp_path)
    pages = {p.name: p.read_text() for p in (tmp_path / "docs").glob("**/*.md")}

    assert pages["page.md"].endswith("[`bkstore/other.py`](reference/other.md), licence\n")
    assert "`bkstore.other`, in `bkstore/other.py`\n" in pages["other.md"]
    assert [] == [name for name, text in pages.items() if "nowhere:" in text]


def test_what_is_not_there_is_named(small: Path, tmp_path: Path) -> None:
    """A public name that nothing defines, and a link to no file, stop the build by name."""
    (small / "docs" / "page.md").write_text("[gone](../gone.txt)")

    assert ["docs/page.md: ../gone.txt leads to nothing"] == build(small, tmp_path / "out")

    (small / "bkstore" / "other.py").write_text('"""Another."""\n\n__all__ = ["Gone"]\n')

    assert ["bkstore: Other of its __all__ leads to nothing"] == build(small, tmp_path / "out")

    (small / "bkstore" / "__init__.py").write_text('"""A module."""\n\n__all__ = []\n')

    assert ["bkstore.other: nothing defines Gone of its __all__"] == build(small, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_problems_of_a_site(tmp_path: Path) -> None:
    """Each kind of problem is found in built pages, and what is right is not."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b.html").write_text('<h1 id="top">B</h1> <a href="../index.html#x">x</a>')
    (tmp_path / "style.css").write_text("a { background: url('https://host/x.png') }")
    good = """<p id=x>Fine: <code>[a](b) ```</code> <a href="a/b.html#top">b</a> <a href="#x">x</a>
    <a href="https://host/">elsewhere</a> <link rel="stylesheet" href="style.css"></p>"""
    bad = """<a href="a/c.html">c</a> <a href="a/b.html#low">b</a> <a href="/a/b.html">up</a>
    <source srcset="b.png"> <script src="https://host/x.js"></script>
    <p>[a](b)</p>\n<p>Rules:\n* one</p>"""
    (tmp_path / "index.html").write_text(good + bad)

    assert [
        "index.html: a/c.html leads to no file",
        "index.html: a/b.html#low leads to no anchor",
        "index.html: b.png leads to no file",
        "index.html: https://host/x.js is loaded from elsewhere",
        "index.html: '](' is left of the Markdown",
        "index.html: '* o' is left of the Markdown",
        "style.css: https://host/x.png is loaded from elsewhere",
    ] == list(check.find_problems(tmp_path))


def test_a_folder_of_other_things_is_kept(small: Path, tmp_path: Path) -> None:
    """A site does not take the place of a folder that holds anything but a site."""
    wrong = build(small, small / "docs")

    assert [
        f"{small / 'docs'}: not replaced, it is a folder with other things than a site"
    ] == wrong
    assert (small / "docs" / "page.md").is_file()


@needs_zensical
def test_a_small_site_is_built_or_refused(small: Path, tmp_path: Path) -> None:
    """A site with nothing wrong is there in the end; one with a wrong anchor leaves it so."""
    out = tmp_path / "out"

    assert [] == build(small, out)
    assert "bkstore.Small.twice" in check.read_anchors(out / "reference" / "index.html")
    assert "Start" in (out / "index.html").read_text(encoding="utf-8")

    (small / "docs" / "index.md").write_text("# Other\n\n[Page](page.md#gone)\n")
    wrong = build(small, out)

    assert 1 == len(wrong)
    assert "gone" in wrong[0]
    assert "Start" in (out / "index.html").read_text(encoding="utf-8")


@pytest.mark.long
@needs_zensical
def test_the_site_is_built(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """This repository's site is built with nothing wrong, with the picture on its first page."""
    assert 0 == main(["--out", str(tmp_path / "site")])
    assert "" == capsys.readouterr().err
    assert "images/report.png" in (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert "bkstore.Bookie" in check.read_anchors(tmp_path / "site" / "reference" / "index.html")
