"""The files the page is made of: a template, a style sheet, a script, and no HTML elsewhere."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from bkstore.report.html.rendering import (
    content_security_policy,
    read_template_file,
    render_template,
)
from tests.paths import ROOT
from tests.report.page_reader import written

jinja2 = pytest.importorskip("jinja2")
pytest.importorskip("pyarrow")
pytest.importorskip("matplotlib")

FOLDER = ROOT / "bkstore" / "report" / "template"
MARKUP = re.compile(r"</?[a-z][a-z0-9]*(?:\s[^<>]*)?/?>|[#.]?[\w-]+ \{ [a-z-]+: ")


def _texts(path: Path) -> list[str]:
    """Return the string constants of a module, those of f-strings included, docstrings not."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    said = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said
    ]


def test_no_markup_in_python() -> None:
    """No module of the report writes HTML or CSS; `charts` takes matplotlib's apart."""
    modules = sorted((ROOT / "bkstore" / "report").rglob("*.py"))
    found = {
        path.name: texts
        for path in modules
        if (texts := [text for text in _texts(path) if MARKUP.search(text)])
    }

    assert len(modules) > 12
    assert {"charts.py"} == set(found)
    assert MARKUP.search("<b>")
    assert MARKUP.search("a { color: red }")


def test_files_are_the_page(tmp_path: Path) -> None:
    """The page has the style sheet and the script as they stand in their files."""
    page = written(tmp_path, {})

    assert read_template_file("style.css") == next(page.all("style")).text
    assert read_template_file("script.js") == next(page.all("script")).text


def test_a_changed_file_changes_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An edited script runs: the policy names the digest of the file as it is."""
    edited = read_template_file("script.js") + "// edited\n"
    read = read_template_file
    monkeypatch.setattr(
        "bkstore.report.page.read_template_file",
        lambda name: edited if name == "script.js" else read(name),
    )
    page = written(tmp_path, {})
    policies = [e.attributes.get("content") for e in page.all("meta")]

    assert next(page.all("script")).text.endswith("// edited\n")
    assert content_security_policy(edited) in policies
    assert content_security_policy(read("script.js")) not in policies


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.j2")), ids=lambda path: path.name)
def test_templates_escape(path: Path) -> None:
    """No template switches escaping off, and each parses."""
    text = path.read_text(encoding="utf-8")
    jinja2.Environment(autoescape=True).parse(text)

    assert not re.search(r"\|\s*safe|autoescape|Markup", text)


def test_misspelt_values_are_errors(tmp_path: Path) -> None:
    """A value that a template asks for and nobody gives is an error, never an empty place."""
    with pytest.raises(jinja2.UndefinedError, match="policy"):
        render_template("page.html.j2")


def test_style_and_script_stay_inside() -> None:
    """Neither file can end its element early, and braces in them are no template's."""
    for name in ("style.css", "script.js"):
        assert "</" not in read_template_file(name)
    assert read_template_file("style.css").count("{") == read_template_file("style.css").count("}")
