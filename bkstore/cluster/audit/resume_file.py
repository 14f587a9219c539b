"""The file from which an interrupted audit resumes: a line of JSON for each batch it has checked.

The first line describes the run; each other line has the run's position and the outcome of the
batch before it; an incomplete last line is ignored. No other file, unless empty, is ever changed.
"""

from __future__ import annotations

import math
import os
import re
import stat
from io import BufferedReader
from pathlib import Path
from typing import Any

from bkstore.cluster.audit.batch_outcome import BatchOutcome
from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.files.disk_changes import OS_FILES, StrPath
from bkstore.files.lock_files import release_lock, take_lock
from bkstore.files.opening import open_regular
from bkstore.files.os_errors import convert_read_errors, convert_write_errors
from bkstore.formats.syntax.json_text import format_json, parse_json
from bkstore.index.api import Closeable

FORMAT = "bkstore-audit-1"
_HEAD = b'{"format": "bkstore-audit-1"'
_STEP = b'{"step": "'
_STEPS = re.compile(r"ledger [0-9a-f]{32}|look [1-9][0-9]{0,8}")

_MAX_HEAD_BYTES = 1 << 20
_MAX_STEP_BYTES = 1 << 30
"""Limits of a line's length; a step's is enough for millions of violations."""

_MAX_TORN_BYTES = 1 << 20
"""Limit of garbage after the last whole line: a power loss may leave zeros there."""

_CREATE_FLAGS = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class ResumeFile(Closeable):
    """The steps of one run, each written when it is done; the file is locked until `close`.

    `parameters` describes the run (its parameters, not its time). Raises `InvalidArgument` if the
    file is of another run, is a link, or is neither empty nor an audit's; `CorruptionError` if it
    is an audit's but damaged, or no regular file; `DirectoryInUse` if another audit has it open;
    `WriteFailed`. A file that is refused is not changed.
    """

    def __init__(self, path: StrPath, parameters: dict[str, Any], started_at: float) -> None:
        """Open or create the file, lock it, and read the steps of an interrupted run."""
        self.path = Path(os.path.abspath(path))
        self.started_at = started_at
        self.steps: list[tuple[str, BatchOutcome]] = []
        self._end_offset = 0
        self._fd = _open_and_lock(self.path)
        try:
            with open(self._fd, "rb", closefd=False) as file:
                self._read_head_and_steps(file, parameters)
            if not self._end_offset:
                self._append({"format": FORMAT, "started_at": started_at, "run": parameters})
                with convert_write_errors(self.path):
                    OS_FILES.sync_dir(self.path.parent)
        except BaseException:
            self.close()
            raise

    # -- reading

    def _read_head_and_steps(self, file: BufferedReader, parameters: dict[str, Any]) -> None:
        """Read head and steps, and set `_end_offset` to where the last whole line ends."""
        with convert_read_errors(self.path):
            line = file.readline(_MAX_HEAD_BYTES)
            if not line:
                return
            head = self._parse_head(line)
            # compared as JSON gives them back: tuples as lists, for example
            if head["run"] != parse_json(format_json(parameters)):
                other_run = format_json(head["run"])
                raise InvalidArgument(
                    f"{self.path}: belongs to an audit with other parameters: {other_run:.2000}"
                )
            self.started_at = head["started_at"]
            offset = len(line)
            while (step := self._next_step(file, offset)) is not None:
                self.steps.append(self._parse_step(step, offset))
                offset += len(step)
            self._end_offset = offset

    def _parse_head(self, line: bytes) -> dict[str, Any]:
        """Return the content of the first line; raises if it is not a whole, valid head."""
        is_whole = line.endswith(b"\n")
        try:
            head = parse_json(line) if is_whole else None
        except CorruptionError as error:
            if line.startswith(_HEAD):  # an audit's file, but damaged
                raise self._corruption_at(0, error.reason) from None
            head = None
        if not isinstance(head, dict) or head.get("format") != FORMAT:
            message = f"{self.path}: exists and is not an audit's file; it is left unchanged"
            raise InvalidArgument(message)
        run: Any = head.get("run")
        started_at: Any = head.get("started_at")
        if not isinstance(run, dict) or any(
            isinstance(value, (dict, list)) for value in run.values()
        ):
            raise self._corruption_at(0, "the header of the audit's file lacks its parameters")
        if type(started_at) not in (int, float) or not math.isfinite(started_at):
            raise self._corruption_at(0, "the header of the audit's file lacks its time")
        return head

    def _next_step(self, file: BufferedReader, offset: int) -> bytes | None:
        """Return the next line, None at the end or if the last line is incomplete: torn by an
        interruption."""
        prefix = file.read(len(_STEP))
        if prefix != _STEP:
            torn = prefix + file.read(_MAX_TORN_BYTES)
            if b"\n" in torn or len(torn) >= _MAX_TORN_BYTES:
                raise self._corruption_at(offset, "not a step of an audit")
            return None
        line = prefix + file.readline(_MAX_STEP_BYTES)
        if line.endswith(b"\n"):
            return line
        if len(line) >= _MAX_STEP_BYTES:
            raise self._corruption_at(offset, f"a step is longer than {_MAX_STEP_BYTES} bytes")
        return None

    def _parse_step(self, line: bytes, offset: int) -> tuple[str, BatchOutcome]:
        """Parse a line into the audit's step that it records and the outcome of that step."""
        try:
            content = parse_json(line)
            step, outcome = content["step"], BatchOutcome.from_json(content["outcome"])
            is_known = _STEPS.fullmatch(step)
        except CorruptionError as error:
            raise self._corruption_at(offset, error.reason) from None
        except KeyError as error:
            raise self._corruption_at(offset, f"a step lacks {error}") from None
        except (ValueError, TypeError, AttributeError, OverflowError) as error:
            raise self._corruption_at(offset, f"not a step of an audit: {error}") from None
        if not is_known:
            raise self._corruption_at(offset, f"not a step of an audit: {step!a:.80}")
        return step, outcome

    def _corruption_at(self, offset: int, reason: str) -> CorruptionError:
        return CorruptionError(self.path, offset, reason)

    # -- writing

    def append_step(self, step: str, outcome: BatchOutcome) -> None:
        """Append a step, durably."""
        self._append({"step": step, "outcome": outcome.to_json()})

    def _append(self, line: dict[str, Any]) -> None:
        """Write a line after the last whole one, over any torn bytes; durable at return."""
        data = format_json(line).encode("ascii") + b"\n"
        with convert_write_errors(self.path):
            OS_FILES.truncate(self._fd, self._end_offset)
            OS_FILES.pwrite(self._fd, data, self._end_offset)
            OS_FILES.fsync(self._fd)
        self._end_offset += len(data)

    def remove(self) -> None:
        """Remove the file, durably, as the run is over; another file of its name is left alone."""
        with convert_write_errors(self.path):
            if _is_named(self._fd, self.path):
                OS_FILES.unlink(self.path)
                OS_FILES.sync_dir(self.path.parent)

    def close(self) -> None:
        """Unlock and close the file. Idempotent."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            release_lock(fd)


def _open_and_lock(path: Path) -> int:
    """Open or create the file and lock it; return its descriptor. Raises `DirectoryInUse` if
    another audit has the lock."""
    while True:
        with convert_write_errors(path):
            fd = _open_or_create(path)
            try:
                if fd is not None:
                    take_lock(fd, path, f"{path}: another audit is using this file")
                    if _is_named(fd, path):  # else an audit that ended removed it: try again
                        locked_fd, fd = fd, None  # it stays open
                        return locked_fd
            finally:
                if fd is not None:
                    os.close(fd)


def _open_or_create(path: Path) -> int | None:
    """Open or create the file; None if another process created it in between."""
    try:
        if stat.S_ISLNK(os.lstat(path).st_mode):
            raise InvalidArgument(f"{path}: is a link; give the file itself")
        return open_regular(path, os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        try:
            return os.open(path, _CREATE_FLAGS, 0o644)
        except FileExistsError:
            return None


def _is_named(fd: int, path: Path) -> bool:
    """Return whether the path still leads to the open file: another run may have replaced it."""
    try:
        return os.path.samestat(os.fstat(fd), os.lstat(path))
    except FileNotFoundError:
        return False
