"""What the pages name is there: files, folders, modules, functions, targets of make, rooms.

Links and headings, examples and command lines are `test_docs`'s.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from bkstore.offline.analyses import ANALYSES
from bkstore.storage.directories.writer_lock import LOCK_NAME
from tests.docs.installed_pages import (
    MODULES_BY_EXTRA,
    NOTHING,
    OPTIONAL_MODULES,
    read_install_line,
)
from tests.docs.page_blocks import blocks
from tests.docs.page_runs import NEEDS_SPARK
from tools import rooms

ROOT = rooms.ROOT
ARCHITECTURE = rooms.PAGE
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
TOP = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
PAGES = [*TOP, *sorted(ROOT.glob("docs/**/*.md"))]

_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`([^`\n]+)`")
_PATH = re.compile(r"(?:bkstore|docs|tests|tools|\.ci)/[\w./*-]*|[\w-]+\.(?:toml|txt)|[A-Z]+\.md")
_PLACED = re.compile(r"`([\w.]+)`(?: and `([\w.]+)`)? (?:in |of |\()`((?:[\w-]+/)+[\w-]+\.py)`")

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
two_pages = pytest.mark.parametrize("page", [ARCHITECTURE, CONTRIBUTING], ids=lambda p: p.name)


def _prose(page: Path) -> str:
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def _codes(page: Path) -> list[str]:
    return _CODE.findall(_prose(page))


@cache
def _defined(path: Path) -> frozenset[str]:
    """Return what a module names at its top level, and the members of its classes (``A.b``)."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Module | ast.If):
            found.update(name for each in node.body for name in _names(each))
        elif isinstance(node, ast.ClassDef):
            found.update(f"{node.name}.{name}" for each in node.body for name in _names(each))
    return frozenset(found)


def _names(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return [target.id for target in targets if isinstance(target, ast.Name)]
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [alias.asname or alias.name for alias in node.names]
    return []


def _is_module(path: str) -> bool:
    return bool(re.fullmatch(r"(?:[\w-]+/)+[\w-]+\.py", path))


# -- files and names


@every_page
def test_paths_exist(page: Path) -> None:
    """Each file or folder of the repository that a page names is there."""
    named = [code for code in _codes(page) if _PATH.fullmatch(code)]

    assert [] == [path for path in named if not any(ROOT.glob(path.rstrip("/")))]


@every_page
def test_dotted_names_resolve(page: Path) -> None:
    """Each `bkstore.x.y` of a page is a module of now, or a name in one."""
    text = " ".join(_codes(page))
    lost = []
    for name in set(re.findall(r"\bbkstore(?:\.\w+)+", text)) - {LOCK_NAME}:
        module, rest = name.removeprefix("bkstore."), ""
        while module not in rooms.module_files():
            module, _, last = module.rpartition(".")
            rest = f"{last}.{rest}".rstrip(".")
        if rest and rest not in _defined(rooms.module_files()[module]):
            lost.append(name)

    assert [] == lost


@two_pages
def test_rows_name_what_their_files_define(page: Path) -> None:
    """In a table with files and calls, each call is defined in one of the files of its row."""
    lost = []
    for line in _prose(page).splitlines():
        cells = [_CODE.findall(cell) for cell in line.strip("|").split("|")]
        if len(cells) == 3 and cells[1] and all(map(_is_module, cells[1])):
            files = [ROOT / path for path in cells[1] if (ROOT / path).is_file()]
            calls = [call for call in cells[2] if "/" not in call]
            lost += [call for call in calls if not any(call in _defined(file) for file in files)]

    assert [] == lost


@two_pages
def test_prose_names_what_its_files_define(page: Path) -> None:
    """Where a page says "`name` in (or of) `file.py`" or "`name` (`file.py`", that holds."""
    lost = [
        (name, path)
        for *names, path in _PLACED.findall(_prose(page))
        for name in filter(None, names)
        if name not in _defined(ROOT / path)
    ]

    assert [] == lost


def test_roads_are_seen() -> None:
    """The looks for names find those of the page: they are not blind."""
    text = _prose(ARCHITECTURE)
    placed = [name for *names, _ in _PLACED.findall(text) for name in names if name]

    assert {"EntryIndex", "Layout", "find_holdings", "COMMAND_GROUPS", "KeyValues"} <= set(placed)
    assert "Files" in placed
    assert 20 < len(re.findall(r"^\| .* \| `bkstore/[\w/]+\.py`", text, re.MULTILINE))


@every_page
def test_make_targets_exist(page: Path) -> None:
    """Each `make TARGET` of a page is a target of the Makefile."""
    text = page.read_text(encoding="utf-8")
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))

    assert set() == set(re.findall(r"(?:`|^)make ([a-z][\w-]*)", text, re.MULTILINE)) - targets


@every_page
def test_tools_exist(page: Path) -> None:
    """Each `python -m tools.NAME` of a page is a module of the lab."""
    for name in re.findall(r"python -m tools\.(\w+)", page.read_text(encoding="utf-8")):
        assert any(ROOT.glob(f"tools/{name}.py")) or any(ROOT.glob(f"tools/{name}/__main__.py"))


# -- lists that stand elsewhere too


def test_the_page_has_the_rooms() -> None:
    """The table of rooms is that of `tools.rooms`; `python -m tools.rooms --write` makes it so."""
    text = ARCHITECTURE.read_text(encoding="utf-8")

    assert rooms.replace_table(text) == text
    assert rooms.replace_table(text.replace(f"| `{rooms.ROOMS[0]}` |", "| `gone` |")) == text
    with pytest.raises(LookupError, match="end of rooms"):
        rooms.replace_table("no marks")


def test_every_family_of_tests_has_its_row() -> None:
    """CONTRIBUTING says what each folder of tests is for that is not a room's, and no other."""
    folders = {path.name for path in (ROOT / "tests").iterdir() if any(path.glob("**/*.py"))}
    told = re.findall(r"^\| `tests/(\w+)/` \|", _prose(CONTRIBUTING), re.MULTILINE)

    assert sorted(folders - {room.split(".")[0] for room in rooms.ROOMS}) == sorted(told)


def test_every_analysis_has_its_row() -> None:
    """The page of analyses has a row for each, and counts them."""
    text = (ROOT / "docs" / "analyses.md").read_text(encoding="utf-8")
    told = re.findall(
        r"^\| `(\w+)` \| (?:metadata|metadata, Pulsar's|a second dump)? ?\|", text, re.MULTILINE
    )

    assert sorted(ANALYSES) == sorted(told)
    assert f"{len(ANALYSES)} analyses" in text


# -- what a page says to install

_INSTALL_PAGES = [
    page for page in PAGES if page.is_relative_to(ROOT / "docs") and page.name != "install.md"
]
_IMPORT = re.compile(r"^\s*(?:import|from) (\w+)", re.MULTILINE)


@pytest.mark.parametrize("page", _INSTALL_PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_page_says_what_to_install(page: Path) -> None:
    """Below its title each page has a line "Install: ", with `pip install .`, extras that exist and
    packages, or "nothing"; `test_page_runs` runs the page with these alone."""
    line = read_install_line(page)
    shown = [block for block in blocks(page) if block.kind in ("python", "py", "console")]

    assert line.text is not None, "add a line below the title: Install: `pip install '.[EXTRA]'`."
    assert set() == line.extras - set(MODULES_BY_EXTRA)
    assert line.text.startswith(("`pip install .", "`pip install '.[", NOTHING, "`make test`"))
    assert line.text.endswith(".")
    assert not (shown and line.text.startswith(NOTHING))


@pytest.mark.parametrize("page", _INSTALL_PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_of_a_page_are_installed(page: Path) -> None:
    """What a page's code imports, and what its blocks for Spark or a ZooKeeper need, is
    in the line; this holds for blocks too that no test runs."""
    line = read_install_line(page)
    code = [block.text for block in blocks(page) if block.kind in ("python", "py")]
    imported = {name for text in code for name in _IMPORT.findall(text)} & OPTIONAL_MODULES
    text = page.read_text(encoding="utf-8")

    assert set() == imported - line.modules
    assert "spark" in line.extras or NEEDS_SPARK not in text
    assert "zookeeper" in line.extras or not text.startswith("<!-- needs zookeeper -->")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# A\n\nInstall: `pip install .`.\n\nB\n", (set(), set())),
        (
            "# A\n\nInstall: `pip install '.[arrow,local]' pytest`; `'.[serve]'` for `--http`.\n",
            ({"arrow", "local", "serve"}, {"pytest"}),
        ),
        (
            "<!-- needs zookeeper -->\n# A\n\nInstall: `pip install '.[zookeeper]'`, `make`.\n",
            ({"zookeeper"}, set()),
        ),
        ("# A\n\nB\n\nC\n\nD\n\nInstall: `pip install '.[arrow]'`.\n", None),
        ("# A\n\nTo Install: `pip install .`.\n", None),
    ],
    ids=["core", "extras", "zookeeper", "too low", "inside a line"],
)
def test_install_lines(
    text: str, expected: tuple[set[str], set[str]] | None, tmp_path: Path
) -> None:
    """Extras and packages are read from the line's code, in the first paragraphs only."""
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    line = read_install_line(page)

    assert expected == (None if line.text is None else (line.extras, line.packages))
