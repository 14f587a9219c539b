"""The house rules that a machine can check: imports, sizes, what importing costs."""

from __future__ import annotations

import ast
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MODULES = sorted(ROOT.glob("bkstore/**/*.py"))
# The design's list, but for `errors` and `arguments`: what all others raise and check with.
PARTS = """errors arguments forks ids availability schedule ledger_metadata tables metrics formats
index bloom storage streams cluster wire offline spark report testing cli"""
ORDER = PARTS.split()
HEAVY = ("pyspark", "pyarrow", "pandas", "matplotlib", "google.protobuf", "rich", "rocksdict")


def _imports(tree: ast.AST) -> list[str]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.append(node.module)
        elif isinstance(node, ast.Import):
            found.extend(alias.name for alias in node.names)
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_run_down_the_list(path: Path) -> None:
    """A part imports only itself and parts above it in the design's list."""
    parts = path.relative_to(ROOT).parts
    if len(parts) == 2 and parts[1] == "__init__.py":
        pytest.skip("the package's own face imports what it shows")
    mine = ORDER.index(parts[1].removesuffix(".py"))
    upward = [
        name
        for name in _imports(ast.parse(path.read_text(encoding="utf-8")))
        if name.startswith("bkstore.") and ORDER.index(name.split(".")[1]) > mine
    ]

    assert [] == upward


def test_sizes() -> None:
    """Modules: median under 200 lines, none above 500. Functions: none above 60 lines."""
    lines = {path: path.read_text(encoding="utf-8").count("\n") for path in MODULES}
    long_functions = [
        f"{path.name}:{node.name}"
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and (node.end_lineno or 0) - node.lineno > 60
    ]

    assert [] == [f"{path}: {count}" for path, count in lines.items() if count > 500]
    assert [] == long_functions
    assert statistics.median(lines.values()) < 200


def _loaded_after(code: str) -> set[str]:
    script = f"import sys\n{code}\nprint(*sorted(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_import_is_light() -> None:
    """`import bkstore` loads numpy and the standard library only."""
    loaded = _loaded_after("import bkstore")

    assert set() == {name for name in HEAVY if name in loaded}
    assert "numpy" in loaded


def test_idx_needs_no_rocksdb(tmp_path: Path) -> None:
    """Opening index files does not load RocksDB; `open_index` loads what the layout needs."""
    (tmp_path / "current").mkdir()
    loaded = _loaded_after(f"import bkstore; bkstore.open_index({str(tmp_path)!r}).ledgers()")

    assert set() == {name for name in HEAVY if name in loaded}


def test_public_names_are_there() -> None:
    """Every module says its public names, and has them."""
    import importlib

    for path in MODULES:
        if path.name == "__main__.py":
            continue
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        module = importlib.import_module(name)

        assert isinstance(module.__all__, list), name
        missing = [public for public in module.__all__ if not hasattr(module, public)]
        submodules = [p for p in missing if (path.parent / f"{p}.py").exists()]
        assert missing == submodules, name


def test_no_place_names() -> None:
    """The repository names no machine's paths and no registry hosts."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    words = ("/wo" + "rk/", "/ro" + "ot/", "pypi" + ".org", "python" + "hosted", "npm" + "js.org")
    found = []
    for name in listed:
        try:
            text = (ROOT / name).read_text(encoding="utf-8")
        except (UnicodeDecodeError, FileNotFoundError):
            continue
        found.extend(f"{name}: {word}" for word in words if word in text)

    assert [] == found
