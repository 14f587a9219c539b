"""The Makefile: plain `make` tells what there is, and makes nothing."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from tests.paths import ROOT

MAKE = shutil.which("make")
pytestmark = pytest.mark.skipif(MAKE is None, reason="no make on PATH")


def _make(*words: str) -> list[str]:
    command = [str(MAKE), "--no-print-directory", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

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


def test_a_part_of_all_tests() -> None:
    """PART=N/M is handed on, as are versions to leave out; without it all parts are run."""
    runs = ".venv/bin/python -m tools.parts"
    one, whole = (
        _make("-n", "test-all", "WITHOUT=3.14", *words)[-1] for words in (["PART=2/8"], [])
    )

    assert f"{runs} --part '2/8' --without 3.14 -- -n " in " ".join(one.split())
    assert f"{runs} --without 3.14 -- -n " in " ".join(whole.split())
