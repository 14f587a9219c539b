"""Some calls of each command, a few of them for each group of files."""

from __future__ import annotations

import errno
from zlib import crc32

import pytest

from tests.strain.commands import COMMANDS, DRAWING
from tests.strain.every_call.judging import LASTING, Judge
from tests.strain.failing_calls import ERRORS, GROUPS, Machine


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in DRAWING])
def test_some_calls(machine: Machine, inputs: dict[str, str], name: str) -> None:
    """For each group of files a call with each of two errnos, others for each command."""
    judge = Judge(machine, name, inputs)
    complaints = []
    for group in GROUPS:
        seed = crc32(f"{name} {group}".encode())
        for error in {ERRORS[seed % 6], ERRORS[seed // 6 % 6]}:
            calls = judge.calls(group, error)
            if calls:
                chosen = calls[seed % len(calls)]
                complaints.append(judge.complaint(group, chosen[-1], error, error == LASTING))

    assert 2 != judge.sound(errno.EIO).code, judge.sound(errno.EIO).stderr
    assert [] == [each for each in complaints if each is not None]
