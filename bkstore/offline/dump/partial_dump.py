"""The folder in which a dump grows, and from which an interrupted one goes on.

``OUT.partial`` stands beside OUT until the dump is whole: `data` is what becomes OUT, `pieces`
has a record for each piece whose files are in `data`, `work-...` is where this run writes.
Files move into `data` when they are durable, a record is written when they are there, and the
last step is one rename. So whatever ends a dump, nothing is under its name that is not whole.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from bkstore.errors import CorruptionError
from bkstore.files.disk_changes import OS_FILES, Files
from bkstore.files.opening import check_regular, read_whole
from bkstore.files.os_errors import writing
from bkstore.formats.syntax.json_text import format_json, parse_json
from bkstore.offline.dump.piece import FileDone, PieceDone
from bkstore.offline.dump.plan import Piece, file_name
from bkstore.offline.reading.ledger_ranges import LedgerRange
from bkstore.offline.reading.manifest import MANIFEST, finding_from_json, finding_to_json
from bkstore.offline.staging_directory import StagingDirectory

_RECORD_LIMIT = 64 << 20
_MADE = ("data", "pieces", "work-*")


def dumped_name(table: str, bookie_id: str, number: int) -> str:
    """Return the path of a table's file below the dump."""
    return f"{table}/{file_name(bookie_id)}-{number:05d}.parquet"


class PartialDump(StagingDirectory):
    """The staging directory of a dump. Leaving it keeps what is there for the next run.

    With `resume`, pieces of an earlier run are kept; else all that it made is removed. `finish`
    makes the dump whole, `discard` removes all of it.
    """

    def __init__(self, out: Path, *, resume: bool = True, files: Files = OS_FILES) -> None:
        super().__init__(out, "dump", files)
        self.out = out  # messages name it as it was given
        self.data = self.top / "data"
        self.work = self._new_run_directory("work")
        self._pieces = self.top / "pieces"
        self._resume = resume

    def _create_directories(self) -> None:
        # A link with a name of ours would lead what is written out of here.
        for pattern in _MADE:
            for path in self.top.glob(pattern):
                if not self._resume or path.name.startswith("work-") or path.is_symlink():
                    OS_FILES.remove_tree(path)
        for folder in (self.data, self._pieces, self.work):
            self._files.makedirs(folder)
        os.chmod(self.work, 0o700)  # files with keys are made here

    def _leave(self) -> None:
        with self._lock, suppress(OSError):  # what stays is removed by the next run
            OS_FILES.remove_tree(self.work)

    # -- pieces

    def kept(self, piece: Piece, key: str) -> PieceDone | None:
        """Return what an earlier run made of the piece, None if it is not there as it was.

        The record must have the piece's key, each file its size, and its footer its rows.
        """
        try:
            said = parse_json(read_whole(self._pieces / f"{piece.name}.json", _RECORD_LIMIT))
        except (OSError, CorruptionError):
            return None
        if not isinstance(said, dict) or said.get("key") != key:
            return None
        done = PieceDone(
            [_file_done(file) for file in said["files"]],
            list(map(finding_from_json, said["findings"])),
        )
        whole = all(_is_whole(self._place(piece, file), file) for file in done.files)
        return done if whole else None

    def _place(self, piece: Piece, file: FileDone) -> Path:
        return self.data / dumped_name(file.table, piece.bookie, piece.number)

    def keep(self, piece: Piece, key: str, done: PieceDone) -> None:
        """Take the piece's files out of `work`, and record them durably."""
        files, record = self._files, self._pieces / f"{piece.name}.json"
        with writing(self.top):
            if record.exists():  # its files are about to be others
                files.unlink(record)
                files.sync_dir(self._pieces)
            for file in done.files:
                target = self._place(piece, file)
                files.makedirs(target.parent)
                files.replace(self.work / file.name, target)
                files.sync_dir(target.parent)
            said = {
                "key": key,
                "files": [
                    {"table": f.table, "name": f.name, "rows": f.rows, "bytes": f.bytes, **f.order}
                    for f in done.files
                ],
                "findings": list(map(finding_to_json, done.findings)),
            }
            files.write_file(record, format_json(said).encode())

    # -- the end

    def add(self, file: FileDone, name: str) -> None:
        """Take one more file, which no piece gave, out of `work`."""
        target = self.data / name
        with writing(target):
            self._files.makedirs(target.parent)
            self._files.replace(self.work / file.name, target)
            self._files.sync_dir(target.parent)

    def finish(self, names: Iterable[str], manifest: bytes) -> None:
        """Make the named files and the manifest OUT, and nothing else; durable."""
        files, wanted = self._files, set(names)
        with writing(self.top):
            for path in sorted(self.data.rglob("*"), reverse=True):
                if path.is_dir():
                    with suppress(OSError):  # not empty
                        files.rmdir(path)
                elif str(path.relative_to(self.data)) not in wanted:
                    files.unlink(path)
                    files.sync_dir(path.parent)
            files.write_file(self.data / MANIFEST, manifest)
        self.publish()
        self.discard()

    def discard(self) -> None:
        """Remove all that this run and earlier ones made."""
        self._remove_and_log(*_MADE)


def _file_done(said: Any) -> FileDone:
    ledgers = LedgerRange.from_json(said, said["table"])
    return FileDone(said["table"], said["name"], said["rows"], said["bytes"], ledgers)


def _is_whole(path: Path, file: FileDone) -> bool:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if check_regular(path).st_size != file.bytes:
            return False
        rows: Any = pq.read_metadata(path).num_rows
    except (OSError, CorruptionError, pa.ArrowException):
        return False
    return bool(rows == file.rows)
