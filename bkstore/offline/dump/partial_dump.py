"""The folder of an unfinished dump, from which an interrupted dump resumes.

``OUT.partial`` exists beside OUT until the dump is complete: `data` becomes OUT, `pieces` has a
record for each piece whose files are in `data`, and this run writes in `work-...`. Files move into
`data` when they are durable, then their record is written, and the last step is one rename. So
however a dump ends, OUT is complete or does not exist.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from bkstore.errors import CorruptionError
from bkstore.files.disk_changes import OS_FILES, Files
from bkstore.files.opening import check_regular, read_file
from bkstore.files.os_errors import convert_write_errors
from bkstore.formats.syntax.json_text import format_json, parse_json
from bkstore.offline.dump.dump_piece import PieceResult, WrittenFile
from bkstore.offline.dump.file_names import dump_file_path
from bkstore.offline.dump.plan import DumpPiece
from bkstore.offline.reading.ledger_ranges import LedgerRange
from bkstore.offline.reading.manifest import finding_from_json, finding_to_json
from bkstore.offline.staging_directory import StagingDirectory

_RECORD_LIMIT = 64 << 20
_OWN_PATTERNS = ("data", "pieces", "work-*")


class PartialDump(StagingDirectory):
    """The staging directory of a dump; its pieces stay for the next run when it is left.

    `resume` keeps an earlier run's pieces. `finish` completes the dump, `discard` removes it.
    """

    def __init__(self, out: Path, *, resume: bool = True, files: Files = OS_FILES) -> None:
        super().__init__(out, "dump", files)
        self.out = out  # messages show the path as the caller passed it
        self.data = self.staging_path / "data"
        self.work = self._new_run_directory("work")
        self._records = self.staging_path / "pieces"
        self.resumes = resume

    def _create_directories(self) -> None:
        """Remove what earlier runs left, but not their pieces, and make this run's directories."""
        for pattern in _OWN_PATTERNS:
            for path in self.staging_path.glob(pattern):
                is_piece = self.resumes and not path.name.startswith("work-")
                # A link with one of these names would lead writes out of this directory.
                if not is_piece or path.is_symlink():
                    OS_FILES.remove_tree(path)
        for folder in (self.data, self._records, self.work):
            self._files.makedirs(folder)
        os.chmod(self.work, 0o700)  # files with master keys are written here

    def _leave(self) -> None:
        with self._lock, suppress(OSError):  # the next run removes the rest
            OS_FILES.remove_tree(self.work)

    # -- pieces

    def find_piece(self, piece: DumpPiece, fingerprint: str) -> PieceResult | None:
        """Return an earlier run's piece; None if fingerprint, file sizes or row counts differ."""
        try:
            record = parse_json(read_file(self._records / f"{piece.name}.json", _RECORD_LIMIT))
        except (OSError, CorruptionError):
            return None
        if not isinstance(record, dict) or record.get("key") != fingerprint:
            return None
        files = list(map(_parse_file, record["files"]))
        findings = list(map(finding_from_json, record["findings"]))
        stored = PieceResult(files, findings, record["log_ids"], record["sources"])
        complete = all(is_unchanged(self._data_path(piece, file), file) for file in stored.files)
        return stored if complete else None

    def _data_path(self, piece: DumpPiece, file: WrittenFile) -> Path:
        return self.data / dump_file_path(file.table, piece.bookie_id, piece.number)

    def store_piece(self, piece: DumpPiece, fingerprint: str, result: PieceResult) -> None:
        """Move the piece's files from `work` to `data`, and record them durably."""
        files, record = self._files, self._records / f"{piece.name}.json"
        with convert_write_errors(self.staging_path):
            if record.exists():  # its files are about to be replaced
                files.unlink(record)
                files.sync_dir(self._records)
            for file in result.files:
                self._move_to_data(file, self._data_path(piece, file))
            files_json = [
                {"table": f.table, "name": f.name, "rows": f.rows, "bytes": f.bytes}
                | f.manifest_order
                for f in result.files
            ]
            findings_json = list(map(finding_to_json, result.findings))
            content = {
                "key": fingerprint,
                "files": files_json,
                "findings": findings_json,
                "log_ids": result.log_ids,
                "sources": result.source_digest,
            }
            files.write_file(record, format_json(content).encode())

    # -- the end

    def add_file(self, file: WrittenFile, path: str) -> None:
        """Move a file that belongs to no piece from `work` to `data`."""
        with convert_write_errors(self.data / path):
            self._move_to_data(file, self.data / path)

    def _move_to_data(self, file: WrittenFile, target: Path) -> None:
        self._files.makedirs(target.parent)
        self._files.replace(self.work / file.name, target)
        self._files.sync_dir(target.parent)

    def finish(self, paths: Iterable[str], texts: Mapping[str, bytes]) -> None:
        """Publish exactly the files `paths`, and `texts` by their names, as OUT, durably."""
        files, kept_names = self._files, set(paths)
        with convert_write_errors(self.staging_path):
            # Remove the files of pieces that this dump does not have.
            for path in sorted(self.data.rglob("*"), reverse=True):  # content before its folder
                if path.is_dir():
                    with suppress(OSError):  # not empty
                        files.rmdir(path)
                elif str(path.relative_to(self.data)) not in kept_names:
                    files.unlink(path)
                    files.sync_dir(path.parent)
            for name, text in texts.items():
                files.write_file(self.data / name, text)
        self.publish()
        self.discard()

    def discard(self) -> None:
        """Remove the files of this run and of earlier ones."""
        self._remove_and_log(*_OWN_PATTERNS)


def _parse_file(record: Any) -> WrittenFile:
    ledgers = LedgerRange.from_json(record, record["table"])
    return WrittenFile(record["table"], record["name"], record["rows"], record["bytes"], ledgers)


def is_unchanged(path: Path, file: WrittenFile) -> bool:
    """Return whether the file at `path` has the size and the number of rows of `file`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if check_regular(path).st_size != file.bytes:
            return False
        row_count: Any = pq.read_metadata(path).num_rows
    except (OSError, CorruptionError, pa.ArrowException):
        return False
    return bool(row_count == file.rows)
