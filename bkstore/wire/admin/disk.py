"""`bookie/list_disk_file`, `last_log_mark`, `info`: what the bookie has on its disks.

Upstream: `ListDiskFilesService`, `GetLastLogMarkService`, `BookieInfoService`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from bkstore.files.os_errors import readable
from bkstore.storage.bookie import Bookie
from bkstore.storage.directories.file_listing import entry_logs_in
from bkstore.storage.journal.last_mark import journal_name, read_last_mark
from bkstore.wire.admin.messages import Answer, Request, json_answer, members

KINDS = {"journal": ".txn", "entrylog": ".log", "index": ".idx"}


class DiskEndpoints:
    """Looks at the bookie's directories."""

    def __init__(self, bookie: Bookie, compat: bool) -> None:
        self._bookie = bookie
        self._compat = compat

    def list_disk_file(self, request: Request) -> Answer:
        """Answer with the names of each kind of files, by time of change, a tab behind each.

        Another `file_type` than the three means all of them, as upstream.
        """
        asked = request.parameters.get("file_type")
        kinds = [asked] if asked in KINDS else list(KINDS)
        pairs = ((f"{kind} files", self._names(kind or "")) for kind in kinds)
        return Answer(200, members(pairs))

    def _names(self, kind: str) -> str:
        place = self._bookie.place
        currents = {"journal": place.journal, "entrylog": place.ledger, "index": place.index}[kind]
        if kind == "entrylog" and not self._compat:
            paths = [log.path for log in entry_logs_in(currents)]
        else:  # upstream takes the write-ahead logs of RocksDB for entry logs
            paths = list(_below(currents, KINDS[kind]))
        return "".join(f"{os.path.basename(path)}\t" for path in _by_time(paths))

    def last_log_mark(self, request: Request) -> Answer:
        """Answer with the mark of each journal, as it is on disk."""
        place, marks = self._bookie.place, dict[str, str]()
        several = len(place.journal) > 1
        for number in range(len(place.journal)):
            mark = read_last_mark(place.ledger, number if several else None)
            name = f"{mark.journal_id}({journal_name(mark.journal_id)})"
            name = f"LastLogMark: Journal Id - {name}"
            if name in marks and not self._compat:  # upstream keeps one of those of one id
                name += f" of journal {number}"
            marks[name] = f"Pos - {mark.position}"
        return json_answer(marks)

    def info(self, request: Request) -> Answer:
        """Answer with free and total bytes of the disks under the ledger directories."""
        disks = {}
        for current in self._bookie.place.ledger:
            with readable(current):
                disks[os.stat(current).st_dev] = os.statvfs(current)
        free = sum(disk.f_bavail * disk.f_frsize for disk in disks.values())
        total = sum(disk.f_blocks * disk.f_frsize for disk in disks.values())
        return json_answer({"freeSpace": free, "totalSpace": total})


def _below(currents: Sequence[Path], suffix: str) -> Iterator[str]:
    for current in currents:
        with readable(current):
            for folder, _, names in os.walk(current):
                yield from (os.path.join(folder, name) for name in names if name.endswith(suffix))


def _by_time(paths: list[str]) -> list[str]:
    """Return the files by time of change, then by name; those that are gone are left out."""
    found = []
    for path in paths:
        try:
            found.append((os.stat(path).st_mtime_ns, len(path), path))
        except FileNotFoundError:
            continue
    return [path for *_, path in sorted(found)]
