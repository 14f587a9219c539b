"""A pipe, a device, a link to nothing or a TiB of zeros in the place of any file that is read.

Rule of the family: every reader and every writer's opening answers as for the sound tree, or
with one line that says what is wrong, or with a finding. None waits, none says "not found", none
takes 100 MiB for it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("odd_files.py")
SOME = {"sorted": 14, "db": 6, "store": 30, "zookeeper": 30, "dump": 30, "single": 20}


def _went(tree: str, top: Path, seed: int, count: int) -> list[str]:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), tree, str(top), str(seed), str(count)],
        capture_output=True,
        text=True,
        timeout=280 if count else 3000,
    )
    assert 0 == done.returncode, done.stderr[-3000:]
    found: list[str] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("inputs", SOME)
def test_no_reader_waits_or_fills_the_memory(inputs: str, tmp_path: Path) -> None:
    """A pipe for a file of each sort, and some files of other kinds."""
    if inputs == "dump":
        pytest.importorskip("pyarrow")

    assert [] == _went(inputs, tmp_path, 11, SOME[inputs])


@pytest.mark.long
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("inputs", SOME)
def test_every_file_as_every_kind(inputs: str, tmp_path: Path) -> None:
    """All files, all kinds."""
    if inputs == "dump":
        pytest.importorskip("pyarrow")

    assert [] == _went(inputs, tmp_path, 0, 0)
