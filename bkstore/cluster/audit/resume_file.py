"""The file that lets an interrupted audit go on: a line of JSON for each batch it has judged.

The first line says what run it is; each other line how far the run got, and what it found on the
way. A last line that is cut off was never said, and is left out. Nothing but a file that begins
so, or is empty, is ever written or removed.
"""

from __future__ import annotations

import math
import os
import re
import stat
from io import BufferedReader
from pathlib import Path
from typing import Any

from bkstore.cluster.audit.batch_outcome import Outcome
from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.files.disk_changes import OS_FILES, StrPath
from bkstore.files.lock_files import let_go, take_lock
from bkstore.files.opening import open_regular
from bkstore.files.os_errors import readable, writing
from bkstore.formats.syntax.json_text import format_json, parse_json
from bkstore.index.api import Closing

FORMAT = "bkstore-audit-1"
_HEAD = b'{"format": "bkstore-audit-1"'
_STEP = b'{"step": "'
_STEPS = re.compile(r"ledger [0-9a-f]{32}|look [1-9][0-9]{0,8}")

_LONGEST_HEAD = 1 << 20
_LONGEST_STEP = 1 << 30
"""Bytes of a line: millions of violations."""

_LONGEST_TORN = 1 << 20
"""Bytes that may stand behind the last whole line without being the begin of one: a power loss
may leave zeros."""

_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class RunFile(Closing):
    """The steps of one run, kept as they are done; locked until `close`.

    `run` describes the run (its parameters, not its time). Raises `InvalidArgument` for another
    run's file, for a link, and for a file that is there, not empty, and none of an audit;
    `CorruptionError` for one of an audit that is damaged, or no regular file; `DirectoryInUse`
    where another audit has it open; `WriteFailed`. Whatever was refused is as it was.
    """

    def __init__(self, path: StrPath, run: dict[str, Any], started_at: float) -> None:
        """Open or make the file."""
        self.path = Path(os.path.abspath(path))
        self.started_at = started_at
        self.steps: list[tuple[str, Outcome]] = []
        self._whole = 0
        self._fd = _held(self.path)
        try:
            with open(self._fd, "rb", closefd=False) as file:
                self._read(file, run)
            if not self._whole:
                self._append({"format": FORMAT, "started_at": started_at, "run": run})
                with writing(self.path):
                    OS_FILES.sync_dir(self.path.parent)
        except BaseException:
            self.close()
            raise

    # -- reading

    def _read(self, file: BufferedReader, run: dict[str, Any]) -> None:
        with readable(self.path):
            line = file.readline(_LONGEST_HEAD)
            if not line:
                return
            head = self._head(line)
            if head["run"] != parse_json(format_json(run)):
                said = format_json(head["run"])
                raise InvalidArgument(
                    f"{self.path}: is of an audit with other parameters: {said:.2000}"
                )
            self.started_at = head["started_at"]
            at = len(line)
            while (step := self._next_step(file, at)) is not None:
                self.steps.append(self._step(step, at))
                at += len(step)
            self._whole = at

    def _head(self, line: bytes) -> dict[str, Any]:
        """Return the first line's content, if it is one of ours and whole."""
        whole = line.endswith(b"\n")
        try:
            found = parse_json(line) if whole else None
        except CorruptionError as error:
            if line.startswith(_HEAD):
                raise self._damaged(0, error.reason) from None
            found = None
        if not isinstance(found, dict) or found.get("format") != FORMAT:
            raise InvalidArgument(
                f"{self.path}: is there and not the file of an audit: nothing is written to it"
            )
        run: Any = found.get("run")
        at: Any = found.get("started_at")
        if not isinstance(run, dict) or any(isinstance(v, (dict, list)) for v in run.values()):
            raise self._damaged(0, "the head of an audit's file without its run")
        if type(at) not in (int, float) or not math.isfinite(at):
            raise self._damaged(0, "the head of an audit's file without its time")
        return found

    def _next_step(self, file: BufferedReader, at: int) -> bytes | None:
        """Return the next line; None at the end, and for a last one that is cut off."""
        begin = file.read(len(_STEP))
        if begin != _STEP:
            rest = begin + file.read(_LONGEST_TORN)
            if b"\n" in rest or len(rest) >= _LONGEST_TORN:
                raise self._damaged(at, "no step of an audit")
            return None
        line = begin + file.readline(_LONGEST_STEP)
        if line.endswith(b"\n"):
            return line
        if len(line) >= _LONGEST_STEP:
            raise self._damaged(at, f"a step of more than {_LONGEST_STEP} bytes")
        return None

    def _step(self, line: bytes, at: int) -> tuple[str, Outcome]:
        try:
            found = parse_json(line)
            step, outcome = found["step"], Outcome.from_json(found["outcome"])
            known = _STEPS.fullmatch(step)
        except CorruptionError as error:
            raise self._damaged(at, error.reason) from None
        except KeyError as error:
            raise self._damaged(at, f"a step without {error}") from None
        except (ValueError, TypeError, AttributeError, OverflowError) as error:
            raise self._damaged(at, f"no step of an audit: {error}") from None
        if not known:
            raise self._damaged(at, f"no step of an audit: {step!a:.80}")
        return step, outcome

    def _damaged(self, offset: int, reason: str) -> CorruptionError:
        return CorruptionError(self.path, offset, reason)

    # -- writing

    def keep(self, step: str, outcome: Outcome) -> None:
        """Keep a step, durably."""
        self._append({"step": step, "outcome": outcome.to_json()})

    def _append(self, line: dict[str, Any]) -> None:
        data = format_json(line).encode("ascii") + b"\n"
        with writing(self.path):
            OS_FILES.truncate(self._fd, self._whole)
            OS_FILES.pwrite(self._fd, data, self._whole)
            OS_FILES.fsync(self._fd)
        self._whole += len(data)

    def remove(self) -> None:
        """Remove the file, durably: the run is over. What took its name meanwhile stays."""
        with writing(self.path):
            if _is_named(self._fd, self.path):
                OS_FILES.unlink(self.path)
                OS_FILES.sync_dir(self.path.parent)

    def close(self) -> None:
        """Let go of the file. Idempotent."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            let_go(fd)


def _held(path: Path) -> int:
    """Return the locked file, a new one where none is; nothing is written yet."""
    while True:
        with writing(path):
            fd = _opened(path)
            try:
                if fd is not None:
                    take_lock(fd, path, f"{path}: another audit keeps its steps there")
                    if _is_named(fd, path):  # else that audit has just ended and removed it
                        held, fd = fd, None
                        return held
            finally:
                if fd is not None:
                    os.close(fd)


def _opened(path: Path) -> int | None:
    """Open or make the file; None where others came in between."""
    try:
        if stat.S_ISLNK(os.lstat(path).st_mode):
            raise InvalidArgument(f"{path}: is a link: name the file itself")
        return open_regular(path, os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        try:
            return os.open(path, _NEW, 0o644)
        except FileExistsError:
            return None


def _is_named(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.lstat(path))
    except FileNotFoundError:
        return False
