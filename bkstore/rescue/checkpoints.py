"""Checkpoints: how far the output of a rescue is durable, so that an interrupted rescue goes on.

Records are written in the order of ledgers and entries. A checkpoint states up to which entry all
of them are durable in the output. The file has a line of JSON for each: the first line is the key
of the output, which covers all that it is made from.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bkstore.availability import Availability
from bkstore.errors import CorruptionError
from bkstore.files.disk_changes import OS_FILES, Files
from bkstore.files.opening import read_file
from bkstore.files.os_errors import convert_write_errors
from bkstore.formats.syntax.json_text import format_json, parse_json
from bkstore.ids import LedgerId

_FILE_LIMIT = 1 << 30

NO_POSITION = (LedgerId(0, 0), -1)
"""Before the first entry of all ledgers."""


@dataclass
class WrittenPart:
    """What is durable in an output: the readable entries of all ledgers before `position`'s ledger,
    and those of this ledger up to `position`'s entry.

    `lengths` are the length fields of the last records of ledgers that are not closed, `unread` the
    entries whose copies could not be read again. `state` is what the output needs to go on.
    """

    position: tuple[LedgerId, int] = NO_POSITION
    lengths: dict[LedgerId, int] = field(default_factory=dict)
    unread: dict[LedgerId, Availability] = field(default_factory=dict)
    state: Any = None

    def entries_after(self, ledger_id: LedgerId, readable: Availability) -> Availability:
        """Return those of a ledger's readable entries that are not in this part.

        >>> part = WrittenPart((LedgerId(0, 7), 5))
        >>> ids, entries = [LedgerId(0, 6), LedgerId(0, 7), LedgerId(0, 8)], range(4, 7)
        >>> [list(part.entries_after(each, Availability.from_entries(entries))) for each in ids]
        [[], [6], [4, 5, 6]]
        """
        position_ledger, position_entry = self.position
        if ledger_id > position_ledger or position_entry < 0:
            return readable
        if ledger_id < position_ledger:
            return Availability()
        return readable - Availability.from_ranges([(0, position_entry)])


class CheckpointLog:
    """The checkpoints of an output that is built in the folder `data`, in the file `path`.

    `resume` comes first, then `append` for each checkpoint. The file is readable by its owner
    alone. Both raise `WriteFailed`.
    """

    def __init__(self, path: Path, data: Path, files: Files = OS_FILES) -> None:
        self._path = path
        self._data = data
        self._files = files
        self._size = 0

    def resume(self, key: str) -> WrittenPart:
        """Return what an earlier rescue with the same key has written. If there is none, or the key
        differs, its data are removed, and nothing is written yet."""
        written = self._read(key)
        if written is not None and self._data.is_dir() and not self._data.is_symlink():
            return written
        files = self._files
        with convert_write_errors(self._path):
            files.makedirs(self._path.parent)
            # Without the file, a later run does not go on with data that are partly removed.
            if os.path.lexists(self._path):
                files.unlink(self._path)
                files.sync_dir(self._path.parent)
        with convert_write_errors(self._data):
            if os.path.lexists(self._data):
                files.remove_tree(self._data)
            files.makedirs(self._data)
        with convert_write_errors(self._path):
            # The key is a digest of passwords, too.
            files.write_file(self._path, header := _to_line({"key": key}), mode=0o600)
        self._size = len(header)
        return WrittenPart()

    def append(self, written: WrittenPart) -> None:
        """Add a checkpoint, durably. `lengths` and `unread` are those since the last one."""
        ledger_id, entry_id = written.position
        line = _to_line(
            {
                "position": [*ledger_id, entry_id],
                "lengths": [[*each, length] for each, length in written.lengths.items()],
                "unread": [[*each, ids.groups.tolist()] for each, ids in written.unread.items()],
                "state": written.state,
            }
        )
        files = self._files
        with convert_write_errors(self._path):
            fd = files.open(self._path, os.O_RDWR)
            try:
                files.truncate(fd, self._size)  # a line that a killed process has begun
                files.pwrite(fd, line, self._size)
                files.fsync(fd)
            finally:
                files.close(fd)
        self._size += len(line)

    def _read(self, key: str) -> WrittenPart | None:
        """Return all checkpoints as one; None if the key is another one. A last line that is not
        complete was not durable."""
        try:
            lines = read_file(self._path, _FILE_LIMIT).split(b"\n")[:-1]
            rows = [parse_json(line) for line in lines]
        except (OSError, CorruptionError):
            return None
        if not rows or rows[0] != {"key": key}:
            return None
        self._size = sum(len(line) + 1 for line in lines)
        written = WrittenPart()
        for row in rows[1:]:
            _add_checkpoint(written, row)
        return written


def _add_checkpoint(written: WrittenPart, row: Mapping[str, Any]) -> None:
    """Extend a written part up to the next checkpoint."""
    scope, ledger, entry_id = row["position"]
    written.position = (LedgerId(scope, ledger), entry_id)
    written.lengths |= {LedgerId(*ids): length for *ids, length in row["lengths"]}
    for *ids, groups in row["unread"]:
        ledger_id = LedgerId(*ids)
        earlier = written.unread.get(ledger_id, Availability())
        written.unread[ledger_id] = earlier | Availability.from_groups(groups)
    written.state = row["state"]


def _to_line(value: Mapping[str, Any]) -> bytes:
    return format_json(value).encode() + b"\n"
