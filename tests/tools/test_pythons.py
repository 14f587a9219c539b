"""Other Pythons: which are found, which are chosen, what is made, and what counts as failure."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.paths import ROOT
from tools import pythons
from tools.pythons import (
    CORE_TESTS,
    Python,
    UnfitPython,
    choose_pythons,
    find_pythons,
    main,
    prepare_venv,
)

OWN = (3, 12, 4)


def _python(folder: Path, name: str, version: tuple[int, ...] = (), **said: object) -> Path:
    """Make an executable that answers as a Python does, or, without a version, as a dead shim."""
    answer = {"version": version, "level": "final", "kind": "cpython", "venv": True} | said
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / name
    action = f"echo '{json.dumps(answer)}'" if version else "exit 127"
    file.write_text(f'#!/bin/sh\ntouch "$0.asked"\n{action}\n')
    file.chmod(0o755)
    return file


def _path(*folders: Path) -> str:
    return os.pathsep.join(map(str, folders))


def test_found_by_name_and_version(tmp_path: Path) -> None:
    """The first of each version counts; what is named otherwise, or for older, is not run."""
    a, b = tmp_path / "a", tmp_path / "b"
    first = _python(a, "python3.11", (3, 11, 2))
    _python(b, "python3.11", (3, 11, 2))
    other = _python(b, "python3.13", (3, 13, 0))
    others = [_python(a, name, (3, 11, 9)) for name in ("python3.10", "python3", "python3.11-x")]
    (b / "python3.12").write_text("not to be run")
    found, out = find_pythons(_path(a, tmp_path / "nowhere", b, a))

    assert {(3, 11, 2): first, (3, 13, 0): other} == {
        version: python.path for version, python in found.items()
    }
    assert [] == out
    assert [] == [file for file in others if Path(f"{file}.asked").exists()]


def test_versions_beside_shims(tmp_path: Path) -> None:
    """A shim that answers for nothing is left out by name; the version itself is found."""
    shim = _python(tmp_path / "shims", "python3.13")
    real = _python(tmp_path / "versions" / "3.13.0" / "bin", "python3.13", (3, 13, 0))
    found, out = find_pythons(str(tmp_path / "shims"))

    assert {(3, 13, 0): Python((3, 13, 0), real)} == found
    assert [f"{shim}: does not answer"] == out


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"version": (3, 13, 0), "venv": False}, "is 3.13.0 without venv and ensurepip"),
        ({"version": (3, 15, 0), "level": "alpha"}, "is cpython 3.15.0 alpha"),
        ({"version": (3, 11, 13), "kind": "pypy"}, "is pypy 3.11.13 final"),
        ({"version": (3, 10, 1)}, "is 3.10.1"),
    ],
    ids=str,
)
def test_unfit(tmp_path: Path, said: dict[str, Any], reason: str) -> None:
    """A Python that cannot be run on is left out by name, with the reason."""
    file = _python(tmp_path, "python3.13", **said)

    assert ({}, [f"{file}: {reason}"]) == find_pythons(str(tmp_path))


@pytest.mark.parametrize(
    ("versions", "without", "expected"),
    [
        ([(3, 11, 2), OWN, (3, 12, 9), (3, 13, 0)], [], [(3, 11, 2), (3, 13, 0)]),
        ([(3, 12, 5), (3, 9, 1)], [], [(3, 9, 1), (3, 12, 5)]),
        ([(3, 11, 2), (3, 11, 10)], [], [(3, 11, 2)]),
        ([OWN], [], []),
        ([], [], []),
        ([(3, 11, 2), (3, 13, 0), (3, 14, 1)], ["3.14"], [(3, 11, 2), (3, 13, 0)]),
        ([(3, 11, 2), (3, 11, 20)], ["3.11.2"], [(3, 11, 20)]),
        ([(3, 11, 2), (3, 13, 0)], ["3.1"], [(3, 11, 2), (3, 13, 0)]),
    ],
)
def test_chosen(
    versions: list[tuple[int, int, int]], without: list[str], expected: list[tuple[int, int, int]]
) -> None:
    """The oldest and the newest of all, this one not again; each other has its reason."""
    found = {version: Python(version, Path("p")) for version in versions}
    chosen, out = choose_pythons(found, OWN, without)

    assert expected == [python.version for python in chosen]
    assert len(versions) - len(expected) == len(out)


class Runner:
    """Stands for `subprocess.run`: makes the venv's interpreter, keeps the commands."""

    def __init__(self, failing: str = "") -> None:
        self.failing = failing
        self.commands: list[list[str]] = []
        self.environments: list[dict[str, str]] = []

    def __call__(self, command: list[str], **more: Any) -> Any:
        """Return the outcome; a command fails if one of its words is `failing`."""
        self.commands.append(command)
        self.environments.append(more.get("env", {}))
        code = int(self.failing in command)
        if "venv" in command and not code:
            (Path(command[-1]) / "bin").mkdir(parents=True, exist_ok=True)
            (Path(command[-1]) / "bin" / "python").touch()
        return subprocess.CompletedProcess(command, code)


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with pins, which takes the place of the checkout."""
    for name in ("pyproject.toml", "constraints.txt"):
        (tmp_path / name).write_text(name)
    monkeypatch.setattr(pythons, "ROOT", tmp_path)
    return tmp_path


def test_installed_once(checkout: Path) -> None:
    """A venv is made and filled once, and again when the pins change."""
    python, run = Python((3, 13, 0), checkout / "python3.13"), Runner()
    inside = prepare_venv(python, checkout, run)

    assert checkout / ".venv-3.13.0" / "bin" / "python" == inside
    assert [str(python.path), str(inside)] == [command[0] for command in run.commands]
    assert ["-c", "constraints.txt"] == run.commands[1][-4:-2]
    assert inside == prepare_venv(python, checkout, run)
    assert 2 == len(run.commands)

    (checkout / "constraints.txt").write_text("others")
    prepare_venv(python, checkout, run)
    assert 4 == len(run.commands)


@pytest.mark.parametrize(("failing", "said"), [("venv", "no venv"), ("pip", "cannot be installed")])
def test_not_installed(checkout: Path, failing: str, said: str) -> None:
    """Without venv or packages there is a reason, and no mark that all is there."""
    python = Python((3, 13, 0), checkout / "python3.13")
    with pytest.raises(UnfitPython, match=said):
        prepare_venv(python, checkout, Runner(failing))

    run = Runner()
    prepare_venv(python, checkout, run)
    assert 2 == len(run.commands)


@pytest.mark.parametrize(
    ("failing", "expected", "said"),
    [
        ("nothing", 0, ": passed"),
        ("pip", 1, ": NOT RUN: the packages of constraints.txt cannot be installed"),
        ("pytest", 1, ": FAILED"),
    ],
)
def test_outcome(
    checkout: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    failing: str,
    expected: int,
    said: str,
) -> None:
    """0 if the core passed on each; a Python that could not be tried is no success."""
    python = _python(checkout / "bin", "python3.99", (3, 99, 0))
    monkeypatch.setenv("PATH", str(python.parent))
    monkeypatch.setattr(pythons, "USUAL_DIRECTORY", "")
    monkeypatch.setenv("HYPOTHESIS_PROFILE", "long")
    run = Runner(failing)

    assert expected == main([], run)
    assert f"Python 3.99.0 ({python}){said}" in capsys.readouterr().out
    if failing != "pip":
        assert list(CORE_TESTS) == run.commands[-1][-len(CORE_TESTS) :]
        assert "HYPOTHESIS_PROFILE" not in run.environments[-1]


def test_nothing_to_run_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """That no other Python is there is said."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(pythons, "USUAL_DIRECTORY", "")

    assert 0 == main([], Runner())
    assert "nothing was run" in capsys.readouterr().out


def test_the_core_is_there() -> None:
    """Each file of the core exists, and so does the test named alone."""
    for name in CORE_TESTS:
        file, _, test = name.partition("::")
        text = (ROOT / file).read_text(encoding="utf-8")

        assert f"def {test}(" in text if test else "def test_" in text or "Suite" in text
