"""The Makefile: plain `make` tells what there is, and makes nothing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.paths import ROOT

MAKE = shutil.which("make")
pytestmark = pytest.mark.skipif(MAKE is None, reason="no make on PATH")


def _make(*words: str) -> list[str]:
    """Return the lines that make prints, without the variables of a make that runs this."""
    command = [str(MAKE), "--no-print-directory", *words]
    variables = ("MAKEFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "PART", "WITHOUT", "BOOKIE")
    environment = {name: value for name, value in os.environ.items() if name not in variables}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )

    assert (0, "") == (done.returncode, done.stderr)
    return done.stdout.splitlines()


def test_plain_make_lists_every_target() -> None:
    """Without a target, make prints a line for each of .PHONY, in order, that fits 100 columns."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    (targets,) = re.findall(r"^\.PHONY: (.*)$", text, re.MULTILINE)
    lines = _make()

    assert "demo" in targets.split()
    assert sorted(targets.split()) == sorted(line.split()[0] for line in lines)
    assert [] == [line for line in lines if not re.fullmatch(r"[a-z-]+ +\S.*", line)]
    assert max(map(len, lines)) <= 100
    assert lines == _make("help")


def test_a_bookie_of_ones_own() -> None:
    """BOOKIE=DIR is handed on, blanks and all, and nothing is without it."""
    assert ".venv/bin/bkstore demo" == _make("-n", "demo")[-1].strip()
    assert ".venv/bin/bkstore demo --bookie '/x y'" == _make("-n", "demo", "BOOKIE=/x y")[-1]


@pytest.fixture
def fresh_clone(tmp_path: Path) -> Path:
    """Return a folder with what the installation reads, and no .venv."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


@pytest.mark.parametrize("parallel", [(), ("-j4",)], ids=str)
def test_a_mistyped_bookie_installs_nothing(parallel: tuple[str, ...], fresh_clone: Path) -> None:
    """BOOKIE=nope is refused in a line that names it, before Python is called at all."""
    command = [str(MAKE), "-s", *parallel, "demo", "BOOKIE=no pe", "PYTHON=touch called; false"]
    done = subprocess.run(command, cwd=fresh_clone, capture_output=True, text=True, check=False)

    assert 2 == done.returncode
    assert done.stderr.startswith("BOOKIE=no pe: no such directory or bk_server.conf,")
    assert "" == done.stdout
    assert {"Makefile", "pyproject.toml", "constraints.txt"} == {
        path.name for path in fresh_clone.iterdir()
    }


@pytest.mark.parametrize("words", [(), ("BOOKIE=.",)], ids=["generated data", "a bookie"])
def test_the_demo_says_what_it_installs(words: tuple[str, ...], fresh_clone: Path) -> None:
    """Before the first package, `make demo` says where it installs, how much and how long."""
    (fresh_clone / "python").write_text(
        "#!/bin/sh\necho called: $*\ncase $* in *venv*) exit 1; esac\n"
    )
    (fresh_clone / "python").chmod(0o755)
    command = [str(MAKE), "-s", "demo", "PYTHON=./python", *words]
    done = subprocess.run(command, cwd=fresh_clone, capture_output=True, text=True, check=False)
    before = done.stdout.partition("called: -m venv")[0]

    assert 2 == done.returncode
    assert "called: -m venv" in done.stdout
    assert re.search(r"into \.venv, once: .*\d GB, about \d+ minutes", before, re.DOTALL)


def test_a_part_of_all_tests() -> None:
    """PART=N/M is handed on, as are versions to leave out; without it all parts are run."""
    runs = ".venv/bin/python -m tools.parts"
    one, whole = (
        _make("-n", "test-all", "WITHOUT=3.14", *words)[-1] for words in (["PART=2/14"], [])
    )

    assert f"{runs} --part '2/14' --without 3.14 -- -n " in " ".join(one.split())
    assert f"{runs} --without 3.14 -- -n " in " ".join(whole.split())


@pytest.mark.parametrize(
    ("failing", "code"), [("", 0), ("ruff", 2), ("mypy", 2), ("python -m pytest -m", 2)], ids=str
)
def test_what_fails_in_a_test_run(failing: str, code: int, tmp_path: Path) -> None:
    """`make test` fails with any of ruff, mypy and the tests; what mypy says is printed last."""
    for name in ("python", "ruff", "mypy"):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        fails = f'case "{name} $*" in "{failing or "none"}"*) exit 1; esac'
        program.write_text(f'#!/bin/sh\necho "ran {name} $*"\n{fails}\n')
        program.chmod(0o755)
    (tmp_path / "tmp").mkdir()
    words = [f"BIN={tmp_path / 'bin'}", "STAMP=", f"MEMORY={tmp_path / 'tmp'}"]
    done = subprocess.run(
        [str(MAKE), "--no-print-directory", "test", *words],
        cwd=ROOT,
        env={key: value for key, value in os.environ.items() if not key.startswith("MAKE")},
        capture_output=True,
        text=True,
        check=False,
    )
    ran = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("ran ")]
    linted = ["ruff"] if failing == "ruff" else ["ruff", "ruff", "python", "mypy"]

    assert (code, linted) == (done.returncode, ran), done.stderr
    assert [] == list((tmp_path / "tmp").iterdir())
