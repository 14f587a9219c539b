"""Nothing that a user has is harmed: what each writer does to files around it when it is refused.

A snapshot (bytes, modes, link targets, inodes) of everything is taken before and held against
what is there afterwards.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkstore.cli.main import main
from bkstore.cluster import Cluster, DirectoryStore, MemoryStore, snapshot
from bkstore.errors import InvalidArgument, UnsupportedLayout
from bkstore.files.disk_changes import OS_FILES, Files
from bkstore.formats.idxfile import index_path
from bkstore.formats.metadata.json_file import encode_file
from bkstore.ids import LedgerId
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.offline.dump import dump
from bkstore.offline.load import load
from bkstore.storage.bookie import Bookie
from bkstore.storage.directories.writer_lock import LOCK_NAME
from bkstore.storage.ledger_storage import LedgerStorage
from bkstore.testing.crash import CrashFiles
from bkstore.testing.faults import FaultPlan
from bkstore.testing.suites.storage.base import record
from tests.worlds.audits import closed

IMAGE = {"nodes": [], "streams": [], "objects": []}


def _snapshot(top: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path in sorted(top.rglob("*")):
        info = path.lstat()
        if stat.S_ISLNK(info.st_mode):
            content: Any = os.readlink(path)
        else:
            content = path.read_bytes() if stat.S_ISREG(info.st_mode) else None
        mtime = None if content is None else info.st_mtime_ns
        found[str(path.relative_to(top))] = (info.st_mode, info.st_ino, mtime, content)
    return found


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a bookie, metadata, an image, a dump of the bookie."""
    top = tmp_path_factory.mktemp("made")
    with Bookie.open(top / "b1", bookie_id="b1") as bookie:
        bookie.checkpoint()
    for name in ("b2", "b3"):
        with HierarchicalIndex(top / name, writable=True) as index:
            index.put_many(7, [0, 1], [1028, 1100])
    store = MemoryStore()
    store.create(closed())
    (top / "metadata.json").write_bytes(encode_file(snapshot(store)))
    (top / "image.json").write_text(json.dumps(IMAGE))
    (top / "conf").write_text(f"ledgerDirectories={top / 'b2'}\n")
    dump([top / "b2"], top / "dumped", jobs=1)
    return top


@pytest.fixture
def world(made: Path, tmp_path: Path) -> Path:
    """Return a copy, with files of the user's under the names that are written beside targets."""
    top = tmp_path / "w"
    shutil.copytree(made, top)
    (top / "conf").write_text(f"ledgerDirectories={top / 'b2'}\n")
    (top / "precious").write_bytes(b"precious")
    (top / "precious").chmod(0o640)
    for name in ("out", "out.html", "lastMark"):
        (top / f"{name}.tmp").symlink_to("precious")
    (top / "nothing").symlink_to("victim")
    (top / "to-b2").symlink_to("b2")
    (top / "out-in-b2").symlink_to("b2/current/lastId")
    (top / "b2" / "current" / "lastId").write_text("0\n")
    (top / "live").write_text("7\n")
    (top / "to-live").symlink_to("live")
    (top / "b5" / "current").mkdir(parents=True)
    (top / "b5" / "current" / "0.log").write_bytes(bytes(1024))
    (top / "full").mkdir()
    (top / "full" / "theirs").write_bytes(b"theirs")
    (top / "full.partial").mkdir()
    (top / "full.partial" / "work-1").mkdir()
    (top / "full.partial" / "work-1" / "theirs").write_bytes(b"theirs")
    (top / "full.partial" / "lock").write_bytes(b"")
    (top / "file.partial").write_bytes(b"theirs")
    (top / "link.partial").symlink_to("full")
    return top


BOOKIES = ["b1={w}/b1", "b2={w}/b2", "b3={w}/b3"]
LISTINGS = {
    "inspect": ["{w}/b2"],
    "ledgers": ["{w}/b2"],
    "ledger": ["{w}/b2", "--ledger-id", "7"],
    "availability": ["{w}/b2", "--ledger-id", "7"],
    "listfiles": ["{w}/b2"],
    "lastmark": ["{w}/b1"],
    "check": ["{w}/b2"],
    "usage": ["{w}/b2", "{w}/b3"],
    "diff": ["{w}/b2", "{w}/b3"],
    "audit": ["{w}/metadata.json", *BOOKIES],
}
OUTPUTS = ["nothing", "full", "none/out", "b2/current/out", "to-b2/current/out", "b2/bkstore.lock"]
OUTPUTS += ["b2/out", "to-b2/out", "out-in-b2"]
INSIDE = ["b2/current/x", "b2/x", "to-b2/x"]
REWRITES = {
    "convert": ["--to", "idx"],
    "rebuild-index": ["--to", "rocksdb"],
    "salvage": [],
}
REFUSED: dict[str, list[str]] = {
    f"{name} -o {target}": [name, *words, "--format", "table", "-o", f"{{w}}/{target}"]
    for name, words in LISTINGS.items()
    for target in OUTPUTS
    if name != "lastmark" or "b2" not in target
}
REFUSED |= {
    "audit -o METADATA": ["audit", "{w}/metadata.json", *BOOKIES, "-o", "{w}/metadata.json"],
    "audit --resume METADATA": [
        *["audit", "{w}/metadata.json", *BOOKIES],
        *["--resume", "{w}/metadata.json"],
    ],
    "audit --resume FILE": ["audit", "{w}/metadata.json", *BOOKIES, "--resume", "{w}/precious"],
    "audit --resume LINK": ["audit", "{w}/metadata.json", *BOOKIES, "--resume", "{w}/out.tmp"],
    "audit --resume NOTHING": ["audit", "{w}/metadata.json", *BOOKIES, "--resume", "{w}/nothing"],
    "lastmark -o b1/out": ["lastmark", "{w}/b1", "-o", "{w}/b1/out"],
    "check -o the second": ["check", "{w}/b2", "{w}/b3", "-o", "{w}/b3/out"],
    "usage -o the second": ["usage", "{w}/b2", "{w}/b3", "-o", "{w}/b3/out"],
    "usage -o the second's conf": ["usage", "{w}/b3", "{w}/conf", "-o", "{w}/b2/out"],
    "usage -o --live-ledgers": [
        *["usage", "{w}/b2", "--live-ledgers", "{w}/live"],
        *["-o", "{w}/to-live", "--format", "csv"],
    ],
    "check -o METADATA": [
        *["check", "{w}/b2", "--metadata", "{w}/metadata.json", "-o", "{w}/metadata.json"],
    ],
    "diff -o DUMP": ["diff", "{w}/dumped", "{w}/b2", "-o", "{w}/dumped/out"],
    "audit --textfile": [
        *["audit", "{w}/metadata.json", *BOOKIES, "--textfile", "{w}/b3/x.prom"],
    ],
    "readlog LOG -o beside": ["readlog", "{w}/b5/current/0.log", "-o", "{w}/b5/current/out"],
    "inspect current -o beside": ["inspect", "{w}/b2/current", "-o", "{w}/b2/out"],
    "metadata -o --format": [
        *["metadata", "list", "{w}/metadata.json", "-o", "{w}/metadata.json"],
    ],
    "dump into one that cannot be read": ["dump", "{w}/b2", "b9={w}/full", "{w}/full/out"],
    "load by URI": ["load", "file://{w}/dumped", "{w}/dumped/x", "--to", "idx"],
    "ledgers CONF -o CONF": ["ledgers", "{w}/conf", "-o", "{w}/conf"],
    "streams -o IMAGE": ["streams", "compare", "{w}/image.json", "-o", "{w}/image.json"],
    **{
        f"dump {target}": ["dump", "{w}/b2", f"{{w}}/{target}"]
        for target in (*INSIDE, "full", "precious", "nothing", "to-b2", "b2", "file", "link")
    },
    "dump beside FULL.partial": ["dump", "{w}/b2", "{w}/full"],
    "dump beside a bookie": ["dump", "{w}/b2", "{w}/b4"],
    "dump --no-resume": ["dump", "--no-resume", "{w}/b2", "{w}/b4"],
    **{
        f"load {target}": ["load", "{w}/dumped", f"{{w}}/{target}", "--to", "idx"]
        for target in ("full", "precious", "nothing", "to-b2", "dumped", "dumped/x", "file", "b4")
    },
    **{
        f"{way} {target}": [way, "{w}/b2", f"{{w}}/{target}", *words]
        for way, words in REWRITES.items()
        for target in (*INSIDE, "full", "precious", "nothing", "to-b2", "b2", "file", "b4")
    },
    **{
        f"analyze --report {target}": ["analyze", "{w}/dumped", "--report", f"{{w}}/{target}"]
        for target in ("nothing", "full", "none/x", "dumped/x", "dumped/manifest.json")
    },
    "analyze --report METADATA": [
        *["analyze", "{w}/dumped", "--metadata", "{w}/metadata.json"],
        *["--report", "{w}/metadata.json"],
    ],
    "analyze --out FULL": ["analyze", "{w}/dumped", "--out", "{w}/full"],
    "analyze --out --report": [
        *["analyze", "{w}/dumped", "--out", "{w}/new", "--report", "{w}/new"],
    ],
    "demo --report NOTHING": ["demo", "--report", "{w}/nothing"],
    "demo --report DIR": ["demo", "--bookie", "{w}/b2", "--report", "{w}/b2/current/x"],
    "demo --report DIR/x": ["demo", "--bookie", "{w}/to-b2", "--report", "{w}/b2/x"],
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str, world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A target that cannot be, or is another's: exit code 2, one line, and all is as it was."""
    if "b4" in name or "beside a bookie" in name or "--no-resume" in name:
        (world / "full.partial").rename(world / "b4.partial")
    before = _snapshot(world)
    code = main([word.format(w=world) for word in REFUSED[name]])

    assert before == _snapshot(world)
    assert 2 == code
    assert 1 == len(capsys.readouterr().err.splitlines())


WRITTEN: dict[str, tuple[list[str], str]] = {
    f"{name} -o": ([name, *words, "-o", "{w}/out"], "out") for name, words in LISTINGS.items()
}
WRITTEN |= {
    "analyze --report": (
        ["analyze", "{w}/dumped", "--only", "bytes_by_bookie", "--report", "{w}/out.html"],
        "out.html",
    ),
    "dump": (["dump", "{w}/b2", "{w}/out"], "out"),
    "load": (["load", "{w}/dumped", "{w}/out", "--to", "idx"], "out"),
    **{way: ([way, "{w}/b1", "{w}/out", *words], "out") for way, words in REWRITES.items()},
}


@pytest.mark.parametrize("name", WRITTEN)
def test_written(name: str, world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A command that writes adds what was named and changes nothing else, `NAME.tmp` neither."""
    words, target = WRITTEN[name]
    before = _snapshot(world)
    code = main([word.format(w=world) for word in words])
    after = _snapshot(world)

    assert code in (0, 1), capsys.readouterr().err
    assert before == {path: found for path, found in after.items() if path in before}
    assert {target} == {path.split("/")[0] for path in after.keys() - before.keys()}


# -- folders in which something grows


@pytest.mark.parametrize("make", ["dump", "load"])
def test_what_is_put_into_a_growing_folder(make: str, world: Path) -> None:
    """A file of the user's in OUT.partial outlives the run that removes its own."""
    out = world / "out"

    def write(progress: Any = None) -> None:
        if make == "dump":
            dump([world / "b2"], out, progress, jobs=1)
        else:
            load(world / "dumped", out, "idx", progress)

    def stop(at: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(stop)
    partial = world / "out.partial"
    assert (make == "dump") == partial.exists()
    if make == "load":
        partial.mkdir()
        (partial / "lock").write_text("BKSTORE-PARTIAL\tload\n")
    (partial / "theirs").mkdir()
    (partial / "theirs" / "file").write_bytes(b"theirs")
    (partial / ("work-link" if make == "dump" else "run-link")).symlink_to("../full")
    write()

    assert b"theirs" == (partial / "theirs" / "file").read_bytes()
    assert b"theirs" == (world / "full" / "theirs").read_bytes()
    assert ["lock", "theirs"] == sorted(os.listdir(partial))


def test_the_other_kind_s_folder(world: Path) -> None:
    """A load does not clear away an interrupted dump's pieces."""

    def stop(at: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        dump([world / "b2"], world / "out", stop, jobs=1)
    before = _snapshot(world)
    with pytest.raises(InvalidArgument, match="not the folder of an interrupted load"):
        load(world / "dumped", world / "out", "idx")

    assert before == _snapshot(world)


# -- links that were planted


@pytest.mark.parametrize("kind", [Files, CrashFiles, FaultPlan])
@pytest.mark.parametrize("plant", ["link", "nothing", "hard link", "file"])
def test_fresh_files(kind: type[Files], plant: str, tmp_path: Path) -> None:
    """What has the name of a scratch file goes, and what it leads to stays as it was."""
    victim, scratch = tmp_path / "victim", tmp_path / "x" / "name.tmp"
    scratch.parent.mkdir()
    victim.write_bytes(b"precious")
    if plant == "hard link":
        os.link(victim, scratch)
    elif plant == "file":
        scratch.write_bytes(b"left by a crash")
    else:
        scratch.symlink_to(victim if plant == "link" else tmp_path / "none")
    kind().write_file(tmp_path / "x" / "name", b"new")

    assert b"precious" == victim.read_bytes()
    assert {"victim", "x"} == set(os.listdir(tmp_path))
    assert ["name"] == os.listdir(scratch.parent)
    assert b"new" == (scratch.parent / "name").read_bytes()


def _new_ledger(top: Path) -> None:
    with HierarchicalIndex(top, writable=True) as index:
        index.put(8, 0, 1028)


def _storage(top: Path) -> None:
    with LedgerStorage.open(top, "sorted") as storage:
        storage.add_entry(record(7, 0), master_key=b"")
        storage.flush()


def _store(top: Path) -> None:
    DirectoryStore(top / "store").create(closed())


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("current/lastId.tmp", _storage),
        (f"current/{index_path(LedgerId(0, 8))}.new", _new_ledger),
        ("store/BKSTORE-METADATA.tmp", _store),
    ],
)
def test_planted_scratch_names(name: str, write: Callable[[Path], None], tmp_path: Path) -> None:
    """A writer's fixed scratch name leads nobody out of its folder."""
    (tmp_path / "victim").write_bytes(b"precious")
    top = tmp_path / "b"
    (top / name).parent.mkdir(parents=True)
    (top / name).symlink_to(tmp_path / "victim")
    before = _snapshot(tmp_path)["victim"]
    write(top)

    assert before == _snapshot(tmp_path)["victim"]
    assert not (top / name).exists()


@pytest.mark.parametrize("plant", ["link", "nothing", "pipe", "folder"])
@pytest.mark.parametrize("what", ["storage", "store"])
def test_planted_lock_files(what: str, plant: str, tmp_path: Path) -> None:
    """What is no lock file is refused by its name, not followed, made or waited for."""
    top = tmp_path / "b"
    top.mkdir()
    (tmp_path / "victim").write_bytes(b"precious")
    if what == "store":
        DirectoryStore(top / "store")
    lock = top / LOCK_NAME if what == "storage" else top / "store" / "lock"
    if plant == "pipe":
        os.mkfifo(lock)
    elif plant == "folder":
        lock.mkdir()
    else:
        lock.symlink_to(tmp_path / ("victim" if plant == "link" else "none"))
    before = _snapshot(tmp_path)
    with pytest.raises(UnsupportedLayout, match="is not a regular file or lock file"):
        (_storage if what == "storage" else _store)(top)

    after = _snapshot(tmp_path)
    assert before == {path: found for path, found in after.items() if path in before}
    assert "none" not in after


# -- a bookie's directories with other files in them


@pytest.mark.parametrize("kind", ["sorted", "interleaved", "db"])
def test_foreign_files_in_a_bookie(kind: Any, tmp_path: Path) -> None:
    """Opening, writing, collecting and closing leave alone what no writer of ours made."""
    current = tmp_path / "b" / "ledgers" / "current"
    with Bookie.open(tmp_path / "b", kind):
        pass
    theirs = ["notes.log.compacting", "x.log", "7.idx.tmp", "notes.tmp", "01.log.compacting"]
    theirs += ["G.log.0.compacted", "lastMark.old", ".hidden", "deep/er/notes.txt"]
    for name in theirs:
        (current / name).parent.mkdir(parents=True, exist_ok=True)
        (current / name).write_bytes(b"theirs")
    (current / "link").symlink_to("notes.tmp")
    with Bookie.open(tmp_path / "b", kind) as bookie:
        bookie.checkpoint()

    found = {name: (current / name).read_bytes() for name in theirs}
    assert dict.fromkeys(theirs, b"theirs") == found
    assert "notes.tmp" == os.readlink(current / "link")


@pytest.mark.parametrize("linked", [True, False], ids=["link", "folder"])
def test_a_crash_of_a_cluster_s_bookie(linked: bool, tmp_path: Path) -> None:
    """A bookie's folder that is a link stays one, links in it too, and its neighbours stay."""
    top, elsewhere = tmp_path / "cluster", tmp_path / "elsewhere"
    top.mkdir()
    elsewhere.mkdir()
    (tmp_path / "precious").write_bytes(b"precious")
    if linked:
        (top / "bookie-1").symlink_to(elsewhere)
    (top / ".bookie-1.left").mkdir()
    (top / ".bookie-1.left" / "theirs").write_bytes(b"theirs")
    with Cluster.open(top, 1) as cluster:
        (top / "bookie-1" / "link").symlink_to(tmp_path / "precious")
        cluster.crash("bookie-1")
        cluster.start("bookie-1")

    assert linked == (top / "bookie-1").is_symlink()
    assert str(tmp_path / "precious") == os.readlink(top / "bookie-1" / "link")
    assert b"theirs" == (top / ".bookie-1.left" / "theirs").read_bytes()
    assert [".bookie-1.left", "bookie-1"] == sorted(os.listdir(top))
    assert ["cluster", "elsewhere", "precious"] == sorted(os.listdir(tmp_path))


def test_scratch_of_parquet(tmp_path: Path) -> None:
    """Files of a dump's work are made anew, never through a link."""
    from bkstore.offline.dump.parquet import ParquetTableWriter
    from bkstore.tables import FINDINGS

    (tmp_path / "victim").write_bytes(b"precious")
    (tmp_path / "file").symlink_to("victim")
    with ParquetTableWriter(tmp_path / "file", FINDINGS, OS_FILES):
        pass

    assert b"precious" == (tmp_path / "victim").read_bytes()
    assert not (tmp_path / "file").is_symlink()
