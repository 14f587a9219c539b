"""`bookie/list_disk_file`, `last_log_mark`, `info`, `state`: against the files themselves."""

from __future__ import annotations

import os
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest

from bkstore import Bookie
from bkstore.errors import WriteFailed
from bkstore.storage.options import JournalOptions, StorageOptions
from bkstore.testing.faults import FaultPlan
from bkstore.wire.admin import AdminServer
from tests.wire.admin.asking import ask, fill

pytest.importorskip("aiohttp")

FILES, MARK = "/api/v1/bookie/list_disk_file", "/api/v1/bookie/last_log_mark"
INFO, STATE = "/api/v1/bookie/info", "/api/v1/bookie/state"


def by_time(paths: list[Path]) -> str:
    """Return names by time of change, a tab behind each."""
    ordered = sorted(paths, key=lambda path: (path.stat().st_mtime_ns, len(str(path)), str(path)))
    return "".join(f"{path.name}\t" for path in ordered)


def many_files(top: Path, storage: Any) -> Bookie:
    """Return a bookie with several files of each kind, entry logs changed in another order."""
    options = StorageOptions(entry_log_size=4096)
    bookie = Bookie.open(top, storage, options=options, journal=JournalOptions(max_size=4096))
    for ledger in range(5):
        fill(bookie, ledger, range(8), size=500)
    logs = sorted(top.rglob("[0-9].log"))
    assert len(logs) > 2
    for at, log in enumerate(reversed(logs)):
        os.utime(log, ns=(10**18, 10**18 + at * 10**9))
    return bookie


def test_names_of_files(tmp_path: Path, storage: Any) -> None:
    """Each kind has the names of its files, by time of change, a tab behind each name."""
    with many_files(tmp_path, storage) as bookie, AdminServer(bookie) as admin:
        ledgers, journal = tmp_path / "ledgers/current", tmp_path / "journal/current"
        wanted = {
            "journal files": by_time(list(journal.glob("*.txn"))),
            "entrylog files": by_time(list(ledgers.glob("*.log"))),
            "index files": by_time(list(ledgers.rglob("*.idx"))),
        }
        everything = ask(admin, FILES).json
        parts = [
            ask(admin, FILES, file_type=kind).json for kind in ("journal", "entrylog", "index")
        ]

    assert wanted == everything
    assert [{name: text} for name, text in wanted.items()] == parts
    assert (5 if storage != "db" else 0) == everything["index files"].count("\t")
    assert everything["entrylog files"].startswith(f"{max(map(_log_id, ledgers.glob('*.log'))):x}.")


def _log_id(path: Path) -> int:
    return int(path.stem, 16)


def test_another_kind_is_all_kinds(bookie: Bookie, admin: AdminServer) -> None:
    """A `file_type` that is none of the three means all, as upstream has it."""
    assert ask(admin, FILES).json == ask(admin, FILES, file_type="picture").json


def test_write_ahead_logs_are_entry_logs_upstream(tmp_path: Path) -> None:
    """In compat mode every file named .log counts: RocksDB's write-ahead logs too."""
    with Bookie.open(tmp_path, "db") as bookie:
        fill(bookie, 7, range(3))
        with AdminServer(bookie) as admin:
            plain = ask(admin, FILES, file_type="entrylog").json["entrylog files"]
        with AdminServer(bookie, compat="bookkeeper") as admin:
            faithful = ask(admin, FILES, file_type="entrylog").json["entrylog files"]
        logs = list((tmp_path / "ledgers/current").rglob("*.log"))

    assert "0.log\t" == plain
    assert sorted(path.name for path in logs) == sorted(faithful.split("\t")[:-1])
    assert len(logs) > 1


def test_the_mark_is_the_one_on_disk(tmp_path: Path) -> None:
    """The mark is what the file `lastMark` says: two big-endian numbers."""
    with Bookie.open(tmp_path, "sorted") as bookie, AdminServer(bookie) as admin:
        fill(bookie, 7, range(100))
        number, position = struct.unpack(
            ">qq", (tmp_path / "ledgers/current/lastMark").read_bytes()
        )
        shown = ask(admin, MARK).json

    assert {f"LastLogMark: Journal Id - {number}({number:x}.txn)": f"Pos - {position}"} == shown
    assert position > 0


def test_each_journal_has_a_mark(tmp_path: Path) -> None:
    """Marks of several journals stand beside each other; of equal ids upstream keeps one."""
    places = {"ledger_dirs": [tmp_path / "l"], "journal_dirs": [tmp_path / "j0", tmp_path / "j1"]}
    with Bookie.open(None, "sorted", **places) as bookie:  # type: ignore[arg-type]
        with AdminServer(bookie) as admin:
            before = ask(admin, MARK).json
        with AdminServer(bookie, compat="bookkeeper") as admin:
            faithful = ask(admin, MARK).json
        fill(bookie, 7, range(10))
        fill(bookie, 8, range(30))
        marks = [
            struct.unpack(">qq", (tmp_path / f"l/current/lastMark.{number}").read_bytes())
            for number in (0, 1)
        ]
        with AdminServer(bookie) as admin:
            after = ask(admin, MARK).json

    name = "LastLogMark: Journal Id - 0(0.txn)"
    assert {name: "Pos - 0", f"{name} of journal 1": "Pos - 0"} == before
    assert {name: "Pos - 0"} == faithful
    assert [f"Pos - {position}" for _, position in marks] == list(after.values())
    assert [f"({number:x}.txn)" in text for (number, _), text in zip(marks, after)] == [True, True]


def test_space_is_that_of_the_disks(tmp_path: Path) -> None:
    """Free and total bytes are the file system's, once where directories share it."""
    places = {"ledger_dirs": [tmp_path / "a", tmp_path / "b"], "journal_dirs": [tmp_path / "j"]}
    with (
        Bookie.open(None, "sorted", **places) as bookie,  # type: ignore[arg-type]
        AdminServer(bookie) as admin,
    ):
        shown = ask(admin, INFO).json
        disk = shutil.disk_usage(tmp_path)

    assert ["freeSpace", "totalSpace"] == list(shown)
    assert disk.total == shown["totalSpace"]
    assert abs(disk.free - shown["freeSpace"]) < disk.total // 100


def test_a_running_bookie(admin: AdminServer) -> None:
    """A bookie that runs takes writes."""
    assert {
        "running": True,
        "readOnly": False,
        "shuttingDown": False,
        "availableForHighPriorityWrites": True,
    } == ask(admin, STATE).json


def test_a_closed_bookie(bookie: Bookie, admin: AdminServer) -> None:
    """A closed bookie does not run; what asks it is 503, and the admin goes on."""
    bookie.close()
    reply = ask(admin, "/api/v1/ledger/list")

    assert (False, False, False) == tuple(
        ask(admin, STATE).json[name]
        for name in ("running", "readOnly", "availableForHighPriorityWrites")
    )
    assert (503, True) == (reply.status, "closed" in reply.line)
    assert b"OK\n" == ask(admin, "/heartbeat").body


def test_a_bookie_whose_sync_failed_is_read_only(tmp_path: Path) -> None:
    """After a failed sync a bookie answers reads, and says that it takes no writes."""
    plan = FaultPlan()
    with Bookie.open(tmp_path, "sorted", files=plan) as bookie, AdminServer(bookie) as admin:
        fill(bookie, 7, range(3))
        plan.fail_sync()
        with pytest.raises(WriteFailed):
            fill(bookie, 7, range(3, 6))
        shown = ask(admin, STATE).json

        assert (True, True, False) == tuple(
            shown[name] for name in ("running", "readOnly", "availableForHighPriorityWrites")
        )
        assert 200 == ask(admin, "/api/v1/ledger/read", ledger_id=7).status
