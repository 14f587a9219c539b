"""Processes that end with the one that started them, whatever becomes of the guard."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bkstore.testing.ensemble.process_group import ProcessGroup
from tests.testing.ensemble.processes import alive, all_end

SLEEP = ["sleep", "600"]


def _guard_after(group: ProcessGroup, old: int) -> int:
    """Return the number of the guard that has come for one that was killed."""
    until = time.monotonic() + 20
    while (guard := group._guard) is None or guard.pid == old:
        assert time.monotonic() < until, "no guard came"
        time.sleep(0.01)
    return guard.pid


def test_a_guard_that_was_killed_alone(tmp_path: Path) -> None:
    """Another guard takes the place of one that was killed, as often as that happens; the end of
    the group kills what was started before and behind it, and one group holds all."""
    group = ProcessGroup()
    processes = [group.start(SLEEP, tmp_path / "log")]
    try:
        for _ in range(2):
            assert group._guard is not None
            old = group._guard.pid
            group._guard.kill()
            assert old != _guard_after(group, old)
            processes.append(group.start(SLEEP, tmp_path / "log"))
        groups = {os.getpgid(each.pid) for each in processes}
    finally:
        group.close()

    assert 1 == len(groups)
    assert [-9, -9, -9] == [each.wait(20) for each in processes]


def test_a_group_that_is_gone(tmp_path: Path) -> None:
    """Where the whole group was killed the next process begins a new one; closed twice, and
    without a process, nothing is left."""
    group = ProcessGroup()
    first = group.start(SLEEP, tmp_path / "log")
    os.killpg(os.getpgid(first.pid), 9)
    first.wait(20)
    second = group.start(SLEEP, tmp_path / "log")
    running = alive(second.pid)
    group.close()
    group.close()

    assert running
    assert -9 == second.wait(20)


def test_a_group_that_ends_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The group ends after its guard was found alive: the process begins a new one. A command that
    may not be run is that error, and leaves the group."""
    group = ProcessGroup()
    first = group.start(SLEEP, tmp_path / "log")
    guard = group._guard
    assert guard is not None
    with monkeypatch.context() as patch:
        patch.setattr(group, "_lock", contextlib.nullcontext())  # nobody replaces the guard
        patch.setattr(group, "_replace_guard", lambda: True)
        os.killpg(os.getpgid(first.pid), 9)
        first.wait(20)
        guard.wait(20)
        patch.setattr(guard, "poll", lambda: None)
        second = group.start(SLEEP, tmp_path / "log")
    running = alive(second.pid)
    (tmp_path / "no command").touch()
    with pytest.raises(PermissionError, match="no command"):
        group.start([str(tmp_path / "no command")], tmp_path / "log")
    third = group.start(SLEEP, tmp_path / "log")

    assert running
    assert os.getpgid(second.pid) == os.getpgid(third.pid)
    group.close()
    assert [-9, -9] == [second.wait(20), third.wait(20)]


def test_the_end_of_a_process_whose_guard_was_killed(tmp_path: Path) -> None:
    """A program that is killed behind its first guard leaves no process."""
    code = f"""
from pathlib import Path
from bkstore.testing.ensemble.process_group import ProcessGroup
from tests.testing.ensemble.test_process_group import _guard_after
group = ProcessGroup()
one = group.start({SLEEP!r}, Path({str(tmp_path / "log")!r}))
old = group._guard.pid
group._guard.kill()
print(one.pid, _guard_after(group, old), flush=True)
input()
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout is not None
        pids = [int(word) for word in program.stdout.readline().split()]
        running = [alive(pid) for pid in pids]
        program.kill()

    assert [True, True] == running
    assert all_end(pids)
