"""What the machine lacks is an error that names the machine's place; what bytes say is a finding.

Each command runs with one call of the system failing, on what it reads, on its scratch files and
on its output apart. It may do without the call, and answers as if nothing had failed; else it
ends with exit code 2 and one line that names the place, publishes nothing, and its inputs are as
they were. Only a medium that fails under an input (EIO) may be a finding.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections import defaultdict
from hashlib import sha256
from itertools import groupby
from pathlib import Path

from tests.strain.commands import arguments
from tests.strain.failing_calls import ERRORS, Machine, Outcome

__all__ = ["LASTING", "Judge", "digests", "judge_calls_in_turn", "judge_every_call"]

_VARIES = re.compile(
    rb"bkstore-\w+-\w+|(?:work|run)-\d+-\w+|\d{4}-\d\d-\d\dT[\d:.+Z]+|[\d.]+ m?s\b|\d{13}"
)
_NUMBERS = re.compile(r"bkstore-\w+-\w+|(?:work|run)-\d+-\w+|[0-9a-f]{6,}|\d+")
LASTING = errno.ENOSPC


def digests(top: Path) -> dict[str, str]:
    """Return a digest of each file below a folder, and which folders there are."""
    found = {}
    for path in sorted(top.rglob("*")):
        name = str(path.relative_to(top))
        found[name] = sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
    return found


def _constant(top: Path, text: str | bytes) -> bytes:
    """Return a text without what differs from run to run."""
    data = text.encode() if isinstance(text, str) else text
    return _VARIES.sub(b"#", data.replace(os.fsencode(top), b""))


def _clear(machine: Machine) -> None:
    for group in ("scratch", "output"):
        shutil.rmtree(machine.top / group)
        (machine.top / group).mkdir()


def _published(machine: Machine) -> set[str]:
    """Return what lies in the output but for what a next run removes or goes on with."""
    names = os.listdir(machine.top / "output")
    return {name for name in names if not name.endswith((".partial", ".tmp"))}


class Judge:
    """Holds runs of one command in which a call fails against one in which none does."""

    def __init__(self, machine: Machine, name: str, inputs: dict[str, str]) -> None:
        self._machine = machine
        self._name = name
        self._inputs = inputs
        self.argv = arguments(name, machine.top)
        self._run()  # loads what the command needs
        self._sound: dict[int, Outcome] = {}
        self._made: set[str] = set()

    def _run(self, error: int = errno.EIO) -> Outcome:
        _clear(self._machine)
        return self._machine.run(self.argv, error=error)

    def sound(self, error: int) -> Outcome:
        """Return the run in which nothing fails; its calls are those that `error` is of."""
        if error not in self._sound:
            self._sound[error] = self._run(error)
            self._made = _published(self._machine)
        return self._sound[error]

    def calls(self, group: str, error: int) -> list[list[int]]:
        """Return the numbers of a group's calls, a list for those that are alike."""
        alike = defaultdict(list)
        mine = [call for where, call in self.sound(error).calls if where == group]
        for number, call in enumerate(mine, 1):
            alike[_NUMBERS.sub("#", call.replace(str(self._machine.top), ""))].append(number)
        return list(alike.values())

    def complaint(self, group: str, number: int, error: int, lasting: bool = False) -> str | None:
        """Return what is wrong with a run in which a call fails, None if nothing is."""
        sound = self.sound(error)
        _clear(self._machine)
        done = self._machine.run(self.argv, group, number, error, lasting)
        why = self._why(done, sound, group, error)
        if why is None:
            return None
        how = f"{errno.errorcode[error]}{' from there on' if lasting else ''}"
        return f"{self._name}: {how} at {done.failed}: {why}: {done.code}: {done.stderr[-500:]!r}"

    def _why(self, done: Outcome, sound: Outcome, group: str, error: int) -> str | None:
        top = self._machine.top
        if done.code is None:
            return "ended by a signal"
        if "Traceback" in done.stderr or "Exception ignored" in done.stderr:
            return "a traceback"
        if digests(top / "input") != self._inputs:
            return "inputs are not as they were"
        texts = [_constant(top, text) for text in (done.stdout, done.stderr)]
        wanted = [_constant(top, text) for text in (sound.stdout, sound.stderr)]
        if texts == wanted and done.code == sound.code and _published(self._machine) == self._made:
            return None
        if group == "input" and error == errno.EIO:
            return self._of_damage(done, texts[0] == wanted[0])
        told = [line for line in texts[1].splitlines() if line not in wanted[1].splitlines()]
        return self._of_refusal(done, group, len(told))

    def _of_damage(self, done: Outcome, same: bool) -> str | None:
        """A medium that fails is told: on stderr at least, where the answer is not concerned."""
        if done.code == 0 and not (same and done.stderr):
            return "damage is not told"
        return None if done.code in (0, 1, 2, 3) else "no exit code of ours"

    def _of_refusal(self, done: Outcome, group: str, lines: int) -> str | None:
        last = done.stderr.rstrip("\n").rpartition("\n")[2]
        if done.code != 2:
            return "not exit code 2"
        if lines != 1 or not last.startswith("bkstore: "):
            return "not one line"
        if str(self._machine.top / group) not in last:
            return f"a place that is not {group}"
        if _published(self._machine) and "it is complete, but" not in done.stderr:
            return "something is published"
        return None


def judge_every_call(machine: Machine, inputs: dict[str, str], name: str, group: str) -> list[str]:
    """Return what is wrong in any of the runs in which a call on the group fails.

    The first and the last of all calls that are alike fail, with each errno, once and for good.
    """
    judge = Judge(machine, name, inputs)
    complaints = []
    for error in ERRORS:
        for calls in judge.calls(group, error):
            for number, _ in groupby((calls[0], calls[-1])):
                complaints.append(judge.complaint(group, number, error))
            if error == LASTING:
                complaints.append(judge.complaint(group, calls[-1], error, lasting=True))
    return [each for each in complaints if each is not None]


def judge_calls_in_turn(
    machine: Machine, inputs: dict[str, str], name: str, group: str
) -> list[str]:
    """Return what is wrong in runs in which the first of all calls that are alike fails, each kind
    with one errno, the next kind with the next one."""
    judge = Judge(machine, name, inputs)
    complaints = [
        judge.complaint(group, calls[0], error)
        for first, error in enumerate(ERRORS)
        for calls in judge.calls(group, error)[first :: len(ERRORS)]
    ]
    return [each for each in complaints if each is not None]
