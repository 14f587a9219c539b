"""The processes of a dump: killed, interrupted, out of memory or disk, two at a time.

Rule of the family: one clear error, no dump that is not whole, nothing left running or lying.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bkstore.errors import BkstoreError, DirectoryInUse, WriteFailed
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.offline import worker_pool
from bkstore.offline.dump import DumpProgress, dump
from bkstore.offline.dump.partial_dump import PartialDump
from bkstore.testing.faults import FaultPlan
from tests.worlds.dumps import contents

pytest.importorskip("pyarrow.parquet")

# -- processes that end


KILLED = r"bookie .*, (ledgers from|entry logs) .*SIGKILL; .*out was not created"
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
    assert 1 == again.pieces - again.reused_pieces
    assert contents(whole) == contents(out)


STUCK = """
import os, signal, sys
def pwrite(*args):
    signal.pause()
if any("worker_pool import work;" in word for word in sys.orig_argv):
    os.pwrite = pwrite
"""


def test_worker_ends_with_its_driver(three: list[Path], tmp_path: Path) -> None:
    """When the driver is killed, its workers end too, wherever they are; nothing is made."""
    (tmp_path / "sitecustomize.py").write_text(STUCK)
    script = f"""
from bkstore.offline import worker_pool
from bkstore.offline.dump import dump
made = worker_pool._Worker.__init__
def init(self, *arguments):
    made(self, *arguments)
    print(self.process.pid, flush=True)
worker_pool._Worker.__init__ = init
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
    groups, make = [], worker_pool._Worker.__init__

    def init(self: worker_pool._Worker, *arguments: Any) -> None:
        make(self, *arguments)
        groups.append(os.getpgid(self.process.pid))

    monkeypatch.setattr(worker_pool._Worker, "__init__", init)
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
    had in temporary files is gone."""
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
    while len(list(tmp_path.glob("out.partial/work-*/*.entries"))) < len(three):
        os.sched_yield()
    assert [*(tmp_path / "temp").glob("bkstore-dump-*")]
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
import os, resource, sys
os.environ["PYTHONDONTWRITEBYTECODE"] = "1"  # what is compiled would be cut off, and stay so
sys.dont_write_bytecode = True
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
