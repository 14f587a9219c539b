"""The source archive: all that the repository has, so that a distributor can test and document."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.paths import ROOT

_MADE = {"PKG-INFO", "setup.cfg"}
"""What setuptools adds, beside its folder `bkstore.egg-info`."""
_BUILD = "import setuptools.build_meta as build; build.build_sdist('out')"


def _tracked() -> list[str]:
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout: only git tells what belongs to the repository")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    return [name for name in os.fsdecode(listed.stdout).split("\0") if (ROOT / name).is_file()]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the archive of a copy of the checkout that was worked in; return it unpacked."""
    tree, tools, top = map(tmp_path_factory.mktemp, ("tree", "tools", "unpacked"))
    for name in _tracked():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tree / name)
    (tree / "tests" / "__pycache__").mkdir()
    (tree / "tests" / "__pycache__" / "paths.cpython-311.pyc").write_bytes(b"compiled")
    (tree / "out").mkdir()
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(tools)]
    subprocess.run([*install, "setuptools>=77"], check=True, capture_output=True)
    path = {**os.environ, "PYTHONPATH": str(tools)}
    build = [sys.executable, "-c", _BUILD]
    done = subprocess.run(build, cwd=tree, env=path, capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stderr
    (archive,) = (tree / "out").glob("bkstore-*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(top, filter="data")
    (folder,) = top.iterdir()
    return folder


def test_content(unpacked: Path) -> None:
    """Every file of the repository is in it, and nothing else but what setuptools makes."""
    files = {str(p.relative_to(unpacked)) for p in unpacked.rglob("*") if p.is_file()}
    ours = {name for name in files - _MADE if not name.startswith("bkstore.egg-info/")}

    assert set(_tracked()) == ours


def test_its_tests_run(unpacked: Path) -> None:
    """The tests that are in it find all that they import in it."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_ids.py"]
    path = {**os.environ, "PYTHONPATH": str(unpacked)}
    done = subprocess.run(
        command, cwd=unpacked, env=path, capture_output=True, text=True, check=False
    )

    assert 0 == done.returncode, done.stdout + done.stderr
