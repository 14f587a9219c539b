"""Endpoints `bookie/list_disk_file`, `last_log_mark`, `info`: the bookie's files and disks.

In BookKeeper: `ListDiskFilesService`, `GetLastLogMarkService`, `BookieInfoService`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from bkstore.files.os_errors import convert_read_errors
from bkstore.storage.bookie import Bookie
from bkstore.storage.directories.file_listing import list_entry_logs
from bkstore.storage.journal.last_mark import journal_name, read_last_mark
from bkstore.wire.admin.messages import HttpRequest, HttpResponse, json_response, stream_json_object

SUFFIX_BY_KIND = {"journal": ".txn", "entrylog": ".log", "index": ".idx"}


class DiskEndpoints:
    """The endpoints about the bookie's directories."""

    def __init__(self, bookie: Bookie, compat: bool) -> None:
        self._bookie = bookie
        self._compat = compat

    def list_disk_file(self, request: HttpRequest) -> HttpResponse:
        """Answer with the file names of each kind, ordered by modification time; with those of all
        kinds for an unknown `file_type`, as in BookKeeper."""
        file_type = request.parameters.get("file_type", "")
        kinds = [file_type] if file_type in SUFFIX_BY_KIND else list(SUFFIX_BY_KIND)
        pairs = ((f"{kind} files", self._joined_names(kind)) for kind in kinds)
        return HttpResponse(200, stream_json_object(pairs))

    def _joined_names(self, kind: str) -> str:
        """Return the names of the files of a kind, each with a tab behind it."""
        dirs = self._bookie.directories
        dirs_of_kind = {"journal": dirs.journal, "entrylog": dirs.ledger, "index": dirs.index}
        current_dirs = dirs_of_kind[kind]
        if kind == "entrylog" and not self._compat:
            paths = [log.path for log in list_entry_logs(current_dirs)]
        else:  # BookKeeper counts RocksDB's write-ahead logs as entry logs
            paths = list(_files_with_suffix(current_dirs, SUFFIX_BY_KIND[kind]))
        return "".join(f"{os.path.basename(path)}\t" for path in _sorted_by_time(paths))

    def show_log_marks(self, request: HttpRequest) -> HttpResponse:
        """Answer with the log mark of each journal, as stored on disk."""
        dirs, marks = self._bookie.directories, dict[str, str]()
        has_several = len(dirs.journal) > 1
        for journal_index in range(len(dirs.journal)):
            # the file of an only journal's mark has no number in its name
            mark = read_last_mark(dirs.ledger, journal_index if has_several else None)
            id_and_file = f"{mark.journal_id}({journal_name(mark.journal_id)})"
            title = f"LastLogMark: Journal Id - {id_and_file}"
            # of marks with the same title, BookKeeper keeps only one
            if title in marks and not self._compat:
                title += f" of journal {journal_index}"
            marks[title] = f"Pos - {mark.position}"
        return json_response(marks)

    def show_disk_space(self, request: HttpRequest) -> HttpResponse:
        """Answer with free and total bytes of the disks of the ledger directories, each disk
        counted once. The request has no parameters."""
        disks = {}  # by device number
        for current in self._bookie.directories.ledger:
            with convert_read_errors(current):
                disks[os.stat(current).st_dev] = os.statvfs(current)
        free = sum(disk.f_bavail * disk.f_frsize for disk in disks.values())
        total = sum(disk.f_blocks * disk.f_frsize for disk in disks.values())
        return json_response({"freeSpace": free, "totalSpace": total})


def _files_with_suffix(current_dirs: Sequence[Path], suffix: str) -> Iterator[str]:
    """Yield the paths of all files below the directories whose names end with `suffix`."""
    for current_dir in current_dirs:
        with convert_read_errors(current_dir):
            for folder, _, names in os.walk(current_dir):
                yield from (os.path.join(folder, name) for name in names if name.endswith(suffix))


def _sorted_by_time(paths: list[str]) -> list[str]:
    """Return the files that still exist, ordered by modification time. Equal times are ordered by
    length of the path, then by path: so names that are hex numbers are in numeric order."""
    keyed_paths = []
    for path in paths:
        try:
            keyed_paths.append((os.stat(path).st_mtime_ns, len(path), path))
        except FileNotFoundError:
            continue
    return [path for *_, path in sorted(keyed_paths)]
