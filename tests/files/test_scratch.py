"""Scratch directories: removed by their maker, else by whoever comes next; nothing else is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from bkstore.files import scratch
from bkstore.files.scratch import MARKER_NAME, scratch_directory
from bkstore.index.rocks import RocksIndex

NAME = "bkstore-piece-abcd_123"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The system's folder for temporary files, one that no process has swept."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(scratch, "_swept", set())
    return tmp_path


def test_it_is_there_and_goes(place: Path) -> None:
    """The directory lies where the system says, is its user's only, and goes with what is in it."""
    with scratch_directory("piece") as path:
        (path / "below").mkdir()
        (path / "below" / "file").write_bytes(b"x")

        assert (place, True) == (path.parent, path.name.startswith("bkstore-piece-"))
        assert 0o700 == path.stat().st_mode & 0o777
    assert [] == list(place.iterdir())


def test_those_of_killed_makers_are_swept(place: Path) -> None:
    """What a killed process left goes when the next one makes its own; a living one's stays."""
    code = (
        "from bkstore.files.scratch import scratch_directory\n"
        f"with scratch_directory('piece', {str(place)!r}) as path:\n"
        "    (path / 'data').write_bytes(b'x')\n"
        "    print(path, flush=True)\n"
        "    input()\n"
    )
    makers = [
        subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1, text=True)
        for _ in range(2)
    ]
    left, alive = (Path((maker.stdout or sys.stdin).readline().strip()) for maker in makers)
    makers[0].kill()
    makers[0].communicate()

    assert {left.name, alive.name} == {path.name for path in place.iterdir()}
    with scratch_directory("local") as mine:
        assert {alive.name, mine.name} == {path.name for path in place.iterdir()}
        assert (alive / "data").is_file()
    makers[1].communicate("\n")

    assert [] == list(place.iterdir())


def test_what_is_not_ours_stays(place: Path) -> None:
    """A folder of a like name is somebody's own, without the marker that only we leave; neither
    is anything removed through a link, or for a marker that is one."""
    own = place / NAME
    own.mkdir()
    (own / "thesis.txt").write_text("mine")
    elsewhere = place / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / MARKER_NAME).touch()
    (place / "bkstore-piece-linked01").symlink_to(elsewhere)
    pointing = place / "bkstore-piece-linked02"
    pointing.mkdir()
    (pointing / MARKER_NAME).symlink_to(elsewhere / MARKER_NAME)
    said = place / "bkstore-piece-written1"
    said.mkdir()
    (said / MARKER_NAME).write_text("I am of somebody who writes markers")
    before = sorted(place.rglob("*"))
    with scratch_directory("piece"):
        pass

    assert before == sorted(place.rglob("*"))


def test_links_are_not_followed(place: Path) -> None:
    """A swept directory's links go, not what they name."""
    kept = place / "kept"
    kept.mkdir()
    (kept / "file").touch()
    left = place / NAME
    left.mkdir()
    (left / MARKER_NAME).touch()
    (left / "to-folder").symlink_to(kept)
    (left / "to-file").symlink_to(kept / "file")
    with scratch_directory("piece"):
        pass

    assert [kept] == list(place.iterdir())
    assert [kept / "file"] == list(kept.iterdir())


def test_a_forked_child_removes_nothing(place: Path) -> None:
    """A child that leaves the block that its parent entered leaves the directory to it."""
    made = scratch_directory("piece")
    with made as path:
        pid = os.fork()
        if not pid:
            made.__exit__(None, None, None)
            os._exit(0)

        assert (pid, 0) == os.waitpid(pid, 0)
        assert (path / MARKER_NAME).is_file()


def test_a_terminated_command_leaves_nothing(place: Path) -> None:
    """SIGTERM ends a command with code 143, and its scratch directories with it."""
    with RocksIndex(place / "bookie", writable=True) as index:
        for ledger in range(1, 2000):
            index.put(ledger, 0, 1024)
    (place / "temp").mkdir()
    code = "import sys; from bkstore.cli.main import main; sys.exit(main())"
    # Its output is a pipe that nobody reads: it stands in the middle of its findings.
    running = subprocess.Popen(
        [sys.executable, "-c", code, "check", str(place / "bookie"), "--format", "jsonl"],
        env={**os.environ, "TMPDIR": str(place / "temp")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert running.stdout is not None
    assert b"{" == running.stdout.read(1)
    assert 1 <= len(list((place / "temp").iterdir()))
    running.send_signal(signal.SIGTERM)
    _, said = running.communicate()

    assert (143, b"") == (running.returncode, said)
    assert [] == list((place / "temp").iterdir())
