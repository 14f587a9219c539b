"""Spark on several executors: local-cluster, a standalone master, executors and drivers killed.

Each test runs a script in a process of its own: a process has one Spark.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bkstore import open_index
from bkstore.index.rocks import RocksIndex
from bkstore.offline.dump import dump
from bkstore.offline.load import load
from tests.spark.standalone_master import standalone_master
from tests.worlds.dumps import CONTENT, three_bookies
from tests.worlds.loads import World, entry_row, fill, jumbled, make_world, plain_dump, read_world

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.spark, pytest.mark.long]

START = """
import os, signal, sys
from pathlib import Path
from bkstore.spark import load, register, start_session
from bkstore.spark.load import SparkLoadEngine
from bkstore.offline.load.dump_rows import open_load_source
import bkstore.offline.load.load_job
build_module = sys.modules["bkstore.offline.load.load_job"]
master, bookies, dumped, out = sys.argv[1], sys.argv[2].split("|"), sys.argv[3], sys.argv[4]
spark = start_session("cluster", master, config={"spark.executor.memory": "1g"})
register(spark)
"""

TABLES = """
for table in ("entries", "groups", "ledgers", "findings"):
    frame = spark.read.format("bookie").option("table", table).load(bookies)
    print(table, frame.count(), frame.where("bookie = 'rocks3'").count())
frame = spark.read.format("bookie").option("partitionRows", 2000).load(bookies)
print("hosts", frame.where("ledger_id < 0").count())
"""

LOAD = """
for to in ("rocksdb", "idx"):
    result = load(spark, dumped, f"{out}-{to}", to, partitions=5)
    print(to, result.rows, result.duplicates, result.compared)
"""

KILLS_EXECUTOR = """
class Kills:
    def __init__(self, inner, once):
        self.inner, self.once = inner, once
    def __call__(self, batches):
        made = list(self.inner(batches))
        try:
            os.close(os.open(self.once, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            yield from made
            return
        pid = os.getppid()
        while b"java" not in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\\0")[0]:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(pid, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

WHICH
result = load(spark, dumped, out, "rocksdb", partitions=4)
print(result.rows, result.compared)
"""

KILLED = {
    "writing": """
task = SparkLoadEngine.piece_writer
SparkLoadEngine.piece_writer = lambda self, *rest: Kills(task(self, *rest), out + ".once")
""",
    "comparing": """
module = sys.modules["bkstore.spark.load"]
compares = module.CompareRanges
module.CompareRanges = lambda *rest: Kills(compares(*rest), out + ".once")
""",
}


@pytest.fixture(scope="module")
def bookies(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return a bookie of each layout, with CONTENT."""
    return three_bookies(tmp_path_factory.mktemp("bookies"))


@pytest.fixture(scope="module")
def jumble(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, World, int]:
    """Return a folder of Parquet in any order, what it means, and its rows."""
    world = make_world(51, 30)
    given, expected = jumbled(world, 52)
    return plain_dump(tmp_path_factory.mktemp("j") / "dump", world, given), expected, len(given)


@pytest.fixture
def clean_work() -> Iterator[None]:
    """Remove the folder that local-cluster leaves in the installed package."""
    import pyspark

    work = Path(pyspark.__file__).parent / "work"
    there = work.exists()
    yield
    if not there:
        shutil.rmtree(work, ignore_errors=True)


def run(script: str, master: str, bookies: list[Path], dumped: Path, out: Path) -> list[str]:
    """Run a script, and return the lines that it printed; an error fails the test."""
    words = [sys.executable, "-c", START + script, master, "|".join(map(str, bookies))]
    done = subprocess.run(
        [*words, str(dumped), str(out)], capture_output=True, text=True, check=False, timeout=280
    )

    assert 0 == done.returncode, done.stderr
    return done.stdout.splitlines()


def check(out: Path, told: list[str], jumble: tuple[Path, World, int]) -> None:
    """Check what TABLES and LOAD printed, and what was made."""
    _, expected, given = jumble
    kept = sum(len(held) for held, _ in expected.values())
    entries = sum(ids.size for ids in CONTENT.values())
    wide = sum(ids.size for name, ids in CONTENT.items() if name.signed[1] < 0)

    assert told == [
        f"entries {3 * entries} {entries}",
        f"groups {3 * 10} 10",
        f"ledgers {3 * len(CONTENT)} {len(CONTENT)}",
        "findings 0 0",
        f"hosts {3 * wide}",
        f"rocksdb {kept} {given - kept} True",
        f"idx {kept} {given - kept} True",
    ]
    for to in ("rocksdb", "idx"):
        with open_index(f"{out}-{to}") as index:
            assert expected == read_world(index)


@pytest.mark.usefixtures("clean_work")
def test_local_cluster(
    bookies: list[Path], jumble: tuple[Path, World, int], tmp_path: Path
) -> None:
    """On two executors of their own, tables and loads are as on one."""
    out = tmp_path / "out"
    told = run(TABLES + LOAD, "local-cluster[2,1,1024]", bookies, jumble[0], out)

    check(out, told, jumble)


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[str]:
    """Yield the URL of a standalone master with two workers."""
    with standalone_master(tmp_path) as url:
        yield url


def test_standalone(
    bookies: list[Path], jumble: tuple[Path, World, int], tmp_path: Path, standalone: str
) -> None:
    """On a standalone master with two workers likewise."""
    out = tmp_path / "out"
    told = run(TABLES + LOAD, standalone, bookies, jumble[0], out)

    check(out, told, jumble)


@pytest.mark.usefixtures("clean_work")
@pytest.mark.parametrize(
    ("lies", "killed"),
    [("in any order", "writing"), ("sorted", "writing"), ("sorted", "comparing")],
)
def test_killed_executor(
    bookies: list[Path], jumble: tuple[Path, World, int], tmp_path: Path, lies: str, killed: str
) -> None:
    """An executor that is killed after it wrote its pieces is replaced; the index is whole.

    So it is where the pieces are of files that the executor reads itself, and where it compares
    them with the index.
    """
    out = tmp_path / "out"
    dumped, expected, _ = jumble
    if lies == "sorted":
        top, expected = bookies[0].parent, make_world(53, 30)
        dumped = tmp_path.parent / f"sorted-{killed}"
        fill(RocksIndex(top / killed, writable=True), expected)
        dump([top / killed], dumped, piece_rows=500)
    script = KILLS_EXECUTOR.replace("WHICH", KILLED[killed])
    told = run(script, "local-cluster[2,1,1024]", bookies, dumped, out)
    kept = sum(len(held) for held, _ in expected.values())

    assert [f"{kept} True"] == told
    assert (tmp_path / "out.once").exists()
    assert {"out", "out.once"} == {path.name for path in tmp_path.iterdir()}
    with open_index(out) as index:
        assert expected == read_world(index)


@pytest.mark.parametrize("point", ["build_index", "_compare_index"])
def test_killed_driver(jumble: tuple[Path, World, int], tmp_path: Path, point: str) -> None:
    """A kill of the driver leaves nothing under the name; the next load is as any."""
    kill = f"build_module.{point} = lambda *a: os.kill(os.getpid(), signal.SIGKILL)\n"
    words = [sys.executable, "-c", START + kill + LOAD, "local[2]", "x", str(jumble[0])]
    done = subprocess.run([*words, str(tmp_path / "out")], check=False, capture_output=True)

    assert -signal.SIGKILL == done.returncode
    assert ["out-rocksdb.partial"] == [path.name for path in tmp_path.iterdir()]
    load(jumble[0], tmp_path / "out-rocksdb", "rocksdb")
    assert ["out-rocksdb"] == [path.name for path in tmp_path.iterdir()]


LIMITED = """
import os, resource, sys
os.environ["PYTHONDONTWRITEBYTECODE"] = "1"  # what is compiled would be cut off, and stay so
sys.dont_write_bytecode = True
from bkstore.cli.main import main
from bkstore.spark.load import SparkLoadEngine
class Limited:
    def __init__(self, inner):
        self.inner = inner
    def __call__(self, batches):
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
        yield from self.inner(batches)
task = SparkLoadEngine.piece_writer
SparkLoadEngine.piece_writer = lambda *words: Limited(task(*words))
sys.exit(main(["load", sys.argv[1], sys.argv[2], "--to=rocksdb", "--engine=spark",
    "--master=local[2]"]))
"""


@pytest.mark.parametrize("what", ["disk", "rows"])
def test_command_fails_in_one_line(
    jumble: tuple[Path, World, int], tmp_path: Path, what: str
) -> None:
    """A full disk of executors, a row that no index has: one line on stderr, exit code 2."""
    dumped = jumble[0]
    if what == "rows":
        (name,) = list(make_world(1, 1))
        bad = (*entry_row(name, 0, 9)[:4], -1, 1, 9, None)
        dumped = plain_dump(tmp_path / "dump", {}, [bad], 1)
    words = [sys.executable, "-c", LIMITED, str(dumped), str(tmp_path / "out")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    lines = [line for line in done.stderr.splitlines() if "WARNING: " not in line]

    assert (2, "") == (done.returncode, done.stdout), done.stderr
    assert 1 == len(lines), done.stderr
    assert ("File too large" if what == "disk" else "not a row of an index") in lines[0]
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "out.partial").exists()
