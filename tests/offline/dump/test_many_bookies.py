"""Many bookies in one dump: names, processes, the manifest, and bookies that cannot be read."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bkstore import BookieDir, CorruptionError, InvalidArgument, LedgerId, UnsupportedLayout
from bkstore.cli.main import main
from bkstore.errors import BkstoreError, DirectoryInUse, WriteFailed
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.index.rocks import RocksIndex
from bkstore.offline.analyses.dump_files import open_dump as analysed_dump
from bkstore.offline.dump import TABLES, DumpProgress, DumpSource, dump, workers
from bkstore.offline.dump.manifest import read_manifest
from bkstore.offline.dump.partial_dump import PartialDump
from bkstore.offline.load.dump_rows import open_dump as loaded_dump
from bkstore.tables import Schema
from bkstore.testing.faults import FaultPlan
from tests.docs.format_pages import FORMATS
from tests.worlds.dumps import CONTENT, NAMES, contents, fill, idx, rows, three_bookies

pq = pytest.importorskip("pyarrow.parquet")

ROWS = sum(entries.size for entries in CONTENT.values())


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return a bookie of each layout, all with the same content."""
    return three_bookies(tmp_path_factory.mktemp("three"))


@pytest.fixture(scope="module")
def whole(three: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a dump of the three, made in one go by one process."""
    out = tmp_path_factory.mktemp("whole") / "out"
    dump(three, out, piece_rows=2000)
    return out


def test_every_layout_gives_the_same(whole: Path) -> None:
    """Three layouts of one content give the same entries, ids above 2^63 among them."""
    expected = sorted(
        (*ledger.signed, entry, 7, entry * 100 + 1028)
        for ledger, entries in CONTENT.items()
        for entry in entries.tolist()
    )
    for name in ("idx", "rocks", "rocks3"):
        found = [row[2:7] for row in rows(whole, "entries") if row[0] == name]

        assert expected == sorted(found)


def test_files_follow_each_other(whole: Path) -> None:
    """Files of one index directory hold ranges of ledgers that ascend in unsigned order."""
    files = read_manifest(whole)["tables"]["entries"]["files"]
    for name in ("idx", "rocks"):
        ids = [
            LedgerId.from_signed(row["scope_id"], row["ledger_id"])
            for file in files
            if file["bookie"] == name
            for row in pq.read_table(whole / file["path"]).to_pylist()
        ]

        assert sorted(ids) == ids
        assert 3 <= len([file for file in files if file["bookie"] == name])


def test_processes_change_nothing(three: list[Path], whole: Path, tmp_path: Path) -> None:
    """Two processes beside each other write the same bytes as one."""
    dump(three, tmp_path / "out", piece_rows=2000, jobs=2)

    assert contents(whole) == contents(tmp_path / "out")
    assert not (tmp_path / "out.partial").exists()


@pytest.mark.parametrize("jobs", [None, 2])
def test_progress(three: list[Path], tmp_path: Path, jobs: int | None) -> None:
    """Progress never goes back or beyond the whole, and ends with all rows."""
    seen: list[DumpProgress] = []
    dump(three, tmp_path / "out", seen.append, piece_rows=2000, jobs=jobs)
    done = [at.done for at in seen]

    assert sorted(done) == done
    assert done[-1] <= seen[-1].total
    assert 3 * ROWS == seen[-1].rows
    assert {"idx", "rocks", "rocks3"} == {at.bookie for at in seen}


def test_manifest_says_what_is_there(three: list[Path], whole: Path) -> None:
    """The manifest's files, rows and bytes are those of the dump, and it names the bookies."""
    manifest = read_manifest(whole)
    listed = {f["path"]: f for table in manifest["tables"].values() for f in table["files"]}
    there = {str(p.relative_to(whole)) for p in whole.rglob("*.parquet")}

    assert list(NAMES) == list(manifest["tables"])
    assert there == set(listed)
    assert there | {"manifest.json"} == set(contents(whole))
    for path, file in listed.items():
        assert (whole / path).stat().st_size == file["bytes"]
        assert pq.read_metadata(whole / path).num_rows == file["rows"]
    assert manifest["complete"]
    assert 3 * ROWS == manifest["tables"]["entries"]["rows"]
    assert [str(path) for path in three] == [b["path"] for b in manifest["bookies"]]
    assert ["idx", "rocksdb", "rocksdb"] == [b["layout"] for b in manifest["bookies"]]
    assert [ROWS] * 3 == [b["rows"]["entries"] for b in manifest["bookies"]]
    assert [1, 1, 3] == [len(b["directories"]["index"]) for b in manifest["bookies"]]


def test_no_manifest(whole: Path, tmp_path: Path) -> None:
    """What is no dump, of a later format, or no JSON is refused by name."""
    path = tmp_path / "manifest.json"
    with pytest.raises(InvalidArgument, match=r"not a dump: it has no manifest.json"):
        read_manifest(tmp_path)
    path.write_text("{")
    with pytest.raises(CorruptionError, match="no JSON"):
        read_manifest(tmp_path)
    path.write_text('{"kind": "else"}')
    with pytest.raises(InvalidArgument, match="not the manifest of a dump"):
        read_manifest(tmp_path)
    path.write_text(json.dumps({**read_manifest(whole), "format": 99}))
    with pytest.raises(UnsupportedLayout, match="format 99, known is 1"):
        read_manifest(tmp_path)


@pytest.mark.parametrize("schema", TABLES, ids=lambda schema: schema.name)
def test_page_columns(schema: Schema, whole: Path) -> None:
    """The format page lists each table's columns with kind and nullability, as the files do."""
    text = (FORMATS / "dump.md").read_text(encoding="utf-8")
    section = text.partition(f"### `{schema.name}`\n")[2].partition("\n##")[0]
    shown = re.findall(r"^\| `(\w+)` \| (\w+) \| (yes|no) \|", section, re.MULTILINE)
    (file, *_) = sorted((whole / schema.name).glob("*.parquet"))

    assert [tuple(column) for column in schema.columns] == [(n, k, y == "yes") for n, k, y in shown]
    assert [(n, y == "yes") for n, _, y in shown] == [
        (field.name, field.nullable) for field in pq.read_schema(file)
    ]


# -- names


def test_names_by_argument(three: list[Path], tmp_path: Path) -> None:
    """NAME=DIR names a bookie; a directory whose own name has "=" in it is taken as it is."""
    odd = tmp_path / "x=y"
    fill(idx(odd))
    code = main(["dump", f"h:1={three[0]}", str(odd), str(tmp_path / "out"), "--jobs=1"])

    assert 0 == code
    assert {"h:1", "x=y"} == {row[0] for row in rows(tmp_path / "out", "ledgers")}
    assert (tmp_path / "out" / "entries" / "h_1-00000.parquet").is_file()


def test_names_twice(three: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Names by both ways at once are refused, and nothing is made."""
    code = main(["dump", f"a={three[0]}", str(tmp_path / "out"), "--bookie-id=b"])

    assert 2 == code
    assert "give one of them" in capsys.readouterr().err
    assert [] == list(tmp_path.iterdir())


def test_hidden_names(three: list[Path], tmp_path: Path) -> None:
    """An id that begins with "_" or "." gives no file that Spark would pass over."""
    dump([DumpSource(three[0], "_b"), DumpSource(three[0], ".c")], tmp_path / "out")
    names = [path.name for path in (tmp_path / "out").rglob("*.parquet")]

    assert [] == [name for name in names if name[0] in "_."]
    assert {"_b", ".c"} == {row[0] for row in rows(tmp_path / "out", "ledgers")}


# -- bookies that cannot be read


def _break(bookie: Path) -> None:
    (table,) = (bookie / "ledgers/current/locations").glob("*.sst")
    table.write_bytes(table.read_bytes()[:-50])


@pytest.fixture
def corrupt(three: list[Path], tmp_path: Path) -> Path:
    """Return a RocksDB bookie whose table file is cut."""
    shutil.copytree(three[1], tmp_path / "bad")
    _break(tmp_path / "bad")
    return tmp_path / "bad"


def test_block_that_is_damaged(tmp_path: Path) -> None:
    """A ledger whose rows a damaged block may have held is null, the others are whole."""
    with RocksIndex(tmp_path / "b", writable=True) as index:
        for ledger in range(400):
            index.put_many(ledger, np.arange(200), np.arange(200) * 977 + (ledger << 33) + 1028)
    (table,) = (tmp_path / "b/current/locations").glob("*.sst")
    data = bytearray(table.read_bytes())
    data[len(data) // 2] ^= 0xFF
    table.write_bytes(data)
    result = dump([tmp_path / "b"], tmp_path / "out")
    here = Counter(row[3] for row in rows(tmp_path / "out", "entries"))
    told = {row[2]: row[4] for row in rows(tmp_path / "out", "ledgers")}

    assert "damage" in {found.severity for found in result.findings}
    assert set(range(400)) == set(told)
    assert {None, 200} == set(told.values())
    assert {ledger for ledger, count in told.items() if count is None} == {
        ledger for ledger in range(400) if here[ledger] != 200
    }


@pytest.mark.parametrize("jobs", [1, 2])
def test_corrupt_among_good(
    three: list[Path],
    corrupt: Path,
    tmp_path: Path,
    jobs: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A bookie that cannot be opened is in manifest and findings; the rest is dumped; exit 1."""
    out = tmp_path / "out"
    words = [str(three[0]), str(corrupt), str(three[2]), str(out), f"--jobs={jobs}"]
    code = main(["dump", *words])
    manifest = read_manifest(out)
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "damage" in line]

    assert 1 == code
    assert "bookie bad was not read" in line
    assert str(corrupt) in line
    assert not manifest["complete"]
    assert {"idx": True, "bad": False, "rocks3": True} == {
        bookie["id"]: bookie["read"] for bookie in manifest["bookies"]
    }
    assert "bookie bad was not read" in manifest["bookies"][1]["reason"]
    assert 2 * ROWS == len(rows(out, "entries"))
    assert [("bad", "damage")] == [row[:2] for row in rows(out, "findings")]


def test_nothing_can_be_read(
    corrupt: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where no bookie can be read there is no dump, one line, and exit code 2."""
    code = main(["dump", str(corrupt), str(tmp_path / "no"), str(tmp_path / "out")])

    assert 2 == code
    assert 1 == capsys.readouterr().err.count("\n")
    assert ["bad"] == [path.name for path in tmp_path.iterdir()]


def test_source_that_changes(three: list[Path], tmp_path: Path) -> None:
    """A bookie whose files change while they are read is not in the dump; alone, it is an error."""
    shutil.copytree(three[0], tmp_path / "moving")
    path = next((tmp_path / "moving").rglob("1.idx"))

    def touch(at: DumpProgress) -> None:
        os.utime(path, ns=(1, at.rows))

    result = dump([three[1], tmp_path / "moving"], tmp_path / "out", touch)
    with pytest.raises(BkstoreError, match="changed while"):
        dump([tmp_path / "moving"], tmp_path / "out2", touch)

    assert [None, "moving"] == [b.failed and b.bookie_id for b in result.bookies]
    assert {"rocks"} == {row[0] for row in rows(tmp_path / "out", "ledgers")}
    assert not (tmp_path / "out2").exists()


def test_directory_that_grows(three: list[Path], tmp_path: Path) -> None:
    """A log that appears in a bookie's directory meanwhile makes it one in use."""
    shutil.copytree(three[0], tmp_path / "growing")

    def grow(at: DumpProgress) -> None:
        (tmp_path / "growing/ledgers/current/8.log").touch()

    with pytest.raises(DirectoryInUse, match="changed while the directory was read"):
        dump([tmp_path / "growing"], tmp_path / "out", grow)


# -- processes that end


KILLED = r"bookie .*, (ledgers from|entry logs) .*SIGKILL; .*out was not made"
SITE = """
import os, signal
real, count = os.pwrite, 0
def pwrite(*args):
    global count
    count += 1
    if count == 5:
        try:
            os.close(os.open({once!r}, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return real(*args)
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*args)
os.pwrite = pwrite
"""


def test_worker_that_is_killed(
    three: list[Path], whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker's SIGKILL in the middle of a file is one clear error, and makes no dump.

    The same dump goes on afterwards, and gives what it would have given at once.
    """
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(SITE.format(once=str(tmp_path / "once")))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    out = tmp_path / "out"
    with pytest.raises(BkstoreError, match=KILLED) as error:
        dump(three, out, piece_rows=2000, jobs=2)
    monkeypatch.delenv("PYTHONPATH")

    assert 1 == len(str(error.value).splitlines())
    assert not out.exists()
    again = dump(three, out, piece_rows=2000, jobs=2)
    assert 1 == again.pieces - again.kept
    assert contents(whole) == contents(out)


@pytest.mark.parametrize(
    "said",
    [
        "../elsewhere.parquet",
        "/etc/passwd",
        "entries/../../x",
        "link/x.parquet",
        "",
        ".",
        7,
        "a\0b",
    ],
    ids=repr,
)
def test_paths_that_leave_the_dump(whole: Path, tmp_path: Path, said: Any) -> None:
    """A file of the manifest that lies elsewhere is refused by name, wherever it is read."""
    made = shutil.copytree(whole, tmp_path / "made")
    (made / "link").symlink_to(tmp_path)
    shutil.copy(next((whole / "entries").iterdir()), tmp_path / "x.parquet")
    document = json.loads((made / "manifest.json").read_text())
    name = document["tables"]["entries"]["files"][0]["bookie"]
    document["tables"]["entries"]["files"][0]["path"] = said
    (made / "manifest.json").write_text(json.dumps(document))
    reason = r"manifest\.json: .* (is no path in|leaves) the dump"
    with pytest.raises(CorruptionError, match=reason):
        analysed_dump(made)
    with pytest.raises(CorruptionError, match=reason):
        loaded_dump(made, name)


def test_a_dump_below_a_link(whole: Path, tmp_path: Path) -> None:
    """The dump itself may be reached through a link."""
    (tmp_path / "link").symlink_to(whole)

    assert ("idx", "rocks", "rocks3") == analysed_dump(tmp_path / "link").bookies


def test_ids_of_any_length(three: list[Path], whole: Path, tmp_path: Path) -> None:
    """Bookie ids longer than a file name can be are dumped, also those that differ at their end
    only, and in any script; the tables have them whole."""
    ids = ["x" * 4000 + "1", "x" * 4000 + "2", "\u65e5" * 500]
    sources = [DumpSource(path, name) for path, name in zip(three, ids)]
    dump(sources, tmp_path / "out")
    paths = (tmp_path / "out").rglob("*.parquet")

    assert ids == [each["id"] for each in read_manifest(tmp_path / "out")["bookies"]]
    assert set(ids) == set(pq.read_table(tmp_path / "out" / "entries")["bookie"].to_pylist())
    assert 200 > max(len(os.fsencode(path.name)) for path in paths)
    assert ROWS == loaded_dump(tmp_path / "out", ids[1]).rows


STUCK = """
import os, signal, sys
def pwrite(*args):
    signal.pause()
if any("workers.work(" in word for word in sys.orig_argv):
    os.pwrite = pwrite
"""


def test_worker_ends_with_its_driver(three: list[Path], tmp_path: Path) -> None:
    """When the driver is killed, its workers end too, wherever they are; nothing is made."""
    (tmp_path / "sitecustomize.py").write_text(STUCK)
    script = f"""
from bkstore.offline.dump import workers
from bkstore.offline.dump import dump
made = workers._Worker.__init__
def init(self, *arguments):
    made(self, *arguments)
    print(self.process.pid, flush=True)
workers._Worker.__init__ = init
dump({[str(p) for p in three]!r}, {str(tmp_path / "out")!r}, jobs=2)
"""
    driver = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert driver.stdout is not None
    with driver.stdout as pipe:
        pids = [int(pipe.readline()) for _ in range(2)]
        driver.kill()

    assert -signal.SIGKILL == driver.wait()
    for pid in pids:
        _wait_gone(pid)
    assert not (tmp_path / "out").exists()


def test_terminal_interrupts_reach_the_driver_alone(
    three: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers are in process groups of their own from their first instruction on: Ctrl-C, which
    goes to the terminal's group, cannot meet them at their imports."""
    groups, make = [], workers._Worker.__init__

    def init(self: workers._Worker, *arguments: Any) -> None:
        make(self, *arguments)
        groups.append(os.getpgid(self.process.pid))

    monkeypatch.setattr(workers._Worker, "__init__", init)
    dump(three, tmp_path / "out", piece_rows=2000, jobs=2)

    assert 2 == len(set(groups) - {os.getpgrp()})


def test_workers_have_their_scratch_in_the_callers(
    three: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker's folder for temporary files is one of the caller, which is gone afterwards with
    all that a worker that was ended left there."""
    places, start = [], subprocess.Popen

    def popen(*arguments: Any, **named: Any) -> Any:
        places.append(Path(named["env"]["TMPDIR"]))
        (places[-1] / "left").touch()
        return start(*arguments, **named)

    monkeypatch.setattr(subprocess, "Popen", popen)
    dump(three, tmp_path / "out", piece_rows=2000, jobs=2)

    assert {True} == {place.name.startswith("bkstore-dump-") for place in places}
    assert not any(place.exists() for place in places)


def test_terminated_dump_leaves_no_scratch(three: list[Path], tmp_path: Path) -> None:
    """SIGTERM ends driver and workers with code 143 and without a word; what they
    had in temporary files, links to databases among them, is gone."""
    for name in ("site", "temp"):
        (tmp_path / name).mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(STUCK)
    code = "import sys; from bkstore.cli.main import main; sys.exit(main())"
    words = ["dump", *map(str, three), str(tmp_path / "out"), "--jobs", "3"]
    driver = subprocess.Popen(
        [sys.executable, "-c", code, *words],
        stderr=subprocess.PIPE,
        env={
            **os.environ,
            "TMPDIR": str(tmp_path / "temp"),
            "PYTHONPATH": os.pathsep.join([str(tmp_path / "site"), *sys.path]),
        },
    )
    while not list((tmp_path / "temp").rglob("bkstore-rocksdb-*/copy/CURRENT")):
        os.sched_yield()
    driver.terminate()
    _, said = driver.communicate()

    assert 143 == driver.returncode
    assert b"" == said
    assert [] == list((tmp_path / "temp").iterdir())


def _wait_gone(pid: int) -> None:
    while True:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return
        if state == "Z":
            return
        os.sched_yield()


def test_interrupt_is_clean(three: list[Path], whole: Path, tmp_path: Path) -> None:
    """Ctrl-C ends workers and dump, keeps what is done, and a later dump goes on."""

    def interrupt(at: DumpProgress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        dump(three, tmp_path / "out", interrupt, piece_rows=2000, jobs=2)

    assert not (tmp_path / "out").exists()
    dump(three, tmp_path / "out", piece_rows=2000)
    assert contents(whole) == contents(tmp_path / "out")


def test_memory_that_runs_out(
    three: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A MemoryError names the bookie; nothing is made."""

    def hungry(at: DumpProgress) -> None:
        raise MemoryError

    with pytest.raises(BkstoreError, match=r"bookie idx, ledgers from 0 to .*: memory"):
        dump(three[:1], tmp_path / "out", hungry)

    assert not (tmp_path / "out").exists()


# -- a disk that is full


@pytest.mark.parametrize("room", [0, 100, 5_000, 12_000])
def test_full_disk(three: list[Path], whole: Path, tmp_path: Path, room: int) -> None:
    """A full disk is one `WriteFailed`; nothing is made; with room again the dump goes on."""
    plan = FaultPlan()
    plan.disk_full(room)
    with pytest.raises(WriteFailed, match="cannot be written: No space left on device") as e:
        dump(three, tmp_path / "out", piece_rows=2000, files=plan)

    assert ["disk_full"] == sorted({fault.what for fault in plan.done})
    assert 1 == len(str(e.value).splitlines())
    assert not (tmp_path / "out").exists()
    dump(three, tmp_path / "out", piece_rows=2000)
    assert contents(whole) == contents(tmp_path / "out")


def test_full_disk_of_workers(tmp_path: Path) -> None:
    """Where the system refuses a worker's write, the command says so in one line, exit code 2."""
    rng = np.random.default_rng(3)
    for name in ("a", "b"):
        with HierarchicalIndex(tmp_path / name, writable=True) as index:
            index.put_many(5, np.arange(60_000), 1028 + np.cumsum(rng.integers(64, 5000, 60_000)))
    script = f"""
import resource, sys
from bkstore.cli.main import main
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
top = {str(tmp_path)!r}
sys.exit(main(["dump", top + "/a", top + "/b", top + "/out", "--jobs=2"]))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )

    assert (2, "") == (done.returncode, done.stdout)
    assert 1 == done.stderr.count("\n"), done.stderr
    assert "cannot be written: File too large" in done.stderr
    assert not (tmp_path / "out").exists()


# -- one at a time


def test_two_dumps_to_one_place(three: list[Path], tmp_path: Path) -> None:
    """While a dump grows, another one to the same place is refused."""
    with PartialDump(tmp_path / "out"), pytest.raises(DirectoryInUse, match="another dump"):
        dump(three, tmp_path / "out")
    dump(three[:1], tmp_path / "out")

    assert (tmp_path / "out" / "manifest.json").is_file()


def test_bad_arguments(three: list[Path], tmp_path: Path) -> None:
    """No bookie, no job, or a link in OUT's place is an `InvalidArgument`."""
    (tmp_path / "link").symlink_to(tmp_path)
    bad: list[tuple[list[Any], str, int]] = [([], "out", 1), (three, "out", 0), (three, "link", 1)]
    for bookies, name, jobs in bad:
        with pytest.raises(InvalidArgument):
            dump(bookies, tmp_path / name, jobs=jobs)
    with BookieDir(three[0]) as bookie, pytest.raises(InvalidArgument, match="not distinct"):
        dump([bookie, three[0]], tmp_path / "out")
