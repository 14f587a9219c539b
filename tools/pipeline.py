"""The data pipeline, measured: dump, loads and analyses of three bookies, engines side by side.

    python -m tools.pipeline 10000000 --json pipeline.json

Makes the indexes of three bookies (2-of-3 striped ledgers, some with random losses), then runs
each step in a process of its own: seconds (the first round apart, in which libraries and Spark's
workers start, and the best of the others; start-up of Python and of a Spark session is not
counted), seconds of CPU of the process and all below it, rows a second, and the highest resident
sizes (Python's, Java's and those of Spark's Python workers, together). JSON first, the table is
made of it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["main", "make_world", "run_step"]

BOOKIES = ("b0", "b1", "b2")
QUORUM = 2
MIB = 1 << 20
KERNELS = ("sequences", "violations", "ledger_health", "surplus", "comparison")
TEXTS = ("holes", "orphans", "bytes_by_bookie", "bytes_by_ledger", "fragmentation")

Work = Callable[[], int]
"""Does the step once; returns rows of its answer, or rows written."""


# -- data


def make_world(top: Path, entries: int, ledgers: int, seed: int = 1) -> None:
    """Write three bookies' indexes with about `entries` rows in all, and their metadata."""
    from bkstore.cluster import MemoryStore, snapshot
    from bkstore.formats.metadata.json_file import encode_file
    from bkstore.ids import LedgerId
    from bkstore.index.hierarchical import HierarchicalIndex
    from bkstore.ledger_metadata import LedgerMetadata, Segment
    from bkstore.schedule import expected

    chance = np.random.default_rng(seed)
    each = max(1, entries // ledgers // QUORUM)
    names = [
        LedgerId(2**63 + 1, 2**63 + n) if n % 2 else LedgerId.of(n + 1) for n in range(ledgers)
    ]
    store = MemoryStore()
    for name in names:
        segments = (Segment(0, BOOKIES),)
        state = {"state": "CLOSED", "last_entry_id": each - 1, "length": each}
        store.create(LedgerMetadata(name, len(BOOKIES), QUORUM, QUORUM, segments, **state))  # type: ignore[arg-type]
    (top / "metadata.json").write_bytes(encode_file(snapshot(store)))
    for at, bookie in enumerate(BOOKIES):
        with HierarchicalIndex(top / bookie, writable=True) as index:
            for number, name in enumerate(names):
                held = expected(0, each - 1, at, len(BOOKIES), QUORUM).entries()
                if number % 4 == 0:
                    held = held[chance.random(held.size) > 0.05]
                place = np.cumsum(chance.integers(200, 2000, held.size)) + 1028
                logs = place // (1 << 20) + number % 50
                index.put_many(name, held, (logs << 32) | (place & 0x3FFFFFFF))


# -- steps


def _dump(top: Path) -> Iterator[tuple[str, Work]]:
    from bkstore.offline.dump import dump

    def work() -> int:
        out = top / "again"
        shutil.rmtree(out, ignore_errors=True)
        return dump([top / name for name in BOOKIES], out, jobs=1).rows["entries"]

    yield "dump", work


def _load(top: Path, spark: Any = None) -> Iterator[tuple[str, Work]]:
    from bkstore.offline.load import load as local

    out = top / "loaded"

    def work(to: Any) -> int:
        shutil.rmtree(out, ignore_errors=True)
        if spark is None:
            return local(top / "dump", out, to, bookie="b0", compare=False).rows
        from bkstore.spark.load import load

        return load(spark, top / "dump", out, to, bookie="b0", compare=False).rows

    for to in ("rocksdb", "idx"):
        yield f"load to {to}", partial(work, to)


def _write_batch(top: Path) -> Iterator[tuple[str, Work]]:
    """The plain way to fill RocksDB: batches of 10,000, keys built with numpy."""
    import pyarrow.dataset as ds
    from rocksdict import Rdict, WriteBatch

    from bkstore.ids import LedgerId
    from bkstore.index.rocks.keys import entry_keys, values
    from bkstore.index.rocks.options import location_options

    def work() -> int:
        out = top / "loaded"
        shutil.rmtree(out, ignore_errors=True)
        options, rows = location_options(), 0
        database = Rdict(str(out), options, column_families={"default": options})
        files = sorted((top / "dump" / "entries").glob("b0-*.parquet"))
        columns = ["scope_id", "ledger_id", "entry_id", "log_id", "position"]
        for part in ds.dataset(list(map(str, files))).to_batches(columns=columns):
            scope, ledger, entry, log, position = (part[c].to_numpy() for c in columns)
            cuts = np.flatnonzero((np.diff(ledger) != 0) | (np.diff(scope) != 0)) + 1
            for lo, hi in zip([0, *cuts], [*cuts, entry.size]):
                name = LedgerId.from_signed(int(scope[lo]), int(ledger[lo]))
                keys = entry_keys(name, entry[lo:hi])
                stored = values((log[lo:hi] << 32) | position[lo:hi])
                for begin in range(0, len(keys), 10_000):
                    batch = WriteBatch(raw_mode=True)
                    for key, value in zip(
                        keys[begin : begin + 10_000], stored[begin : begin + 10_000]
                    ):
                        batch.put(key, value)
                    database.write(batch)
            rows += part.num_rows
        database.close()
        return rows

    yield "load to rocksdb", work


def _analyses(top: Path, engine: Any) -> Iterator[tuple[str, Work]]:
    from bkstore.offline.analyses import ANALYSES, open_inputs

    inputs = open_inputs(top / "dump", top / "metadata.json", top / "dump")
    for name in (*KERNELS, *TEXTS):
        yield name, partial(_answered, engine, ANALYSES[name], inputs)


def _answered(engine: Any, analysis: Any, inputs: Any) -> int:
    return int(engine.run(analysis, inputs).num_rows)


_RUNS = """select bookie, scope_id, ledger_id, min(entry_id) a, max(entry_id) b from (
  select bookie, scope_id, ledger_id, entry_id, entry_id - row_number() over (
    partition by bookie, scope_id, ledger_id order by entry_id) r from {rows})
group by bookie, scope_id, ledger_id, r"""
_COMMON = """select a.bookie, a.scope_id, a.ledger_id, count(*) n from {rows} a join {rows} b
using (bookie, scope_id, ledger_id, entry_id) group by all"""


def _duckdb(top: Path) -> Iterator[tuple[str, Work]]:
    """Plain SQL over entries: runs of ids, and keys that two dumps have in common."""
    import duckdb

    rows = f"read_parquet('{top}/dump/entries/*.parquet')"
    for name, text in (("sequences", _RUNS), ("comparison", _COMMON)):
        asked = f"select count(*) from ({text.format(rows=rows)})"
        yield name, partial(_counted, duckdb, asked)


def _counted(duckdb: Any, text: str) -> int:
    return int(duckdb.sql(text).fetchall()[0][0])


def _polars(top: Path) -> Iterator[tuple[str, Work]]:
    """The same with data frames."""
    from importlib import import_module

    pl = import_module("polars")
    keys = ["bookie", "scope_id", "ledger_id"]

    def rows() -> Any:
        return pl.scan_parquet(f"{top}/dump/entries/*.parquet").select(*keys, "entry_id")

    def runs() -> int:
        breaks = pl.col("entry_id") != pl.col("entry_id").shift(1) + 1
        for key in keys:
            breaks = breaks | (pl.col(key) != pl.col(key).shift(1))
        marked = rows().with_columns(run=breaks.fill_null(True).cum_sum())
        ends = {"a": pl.col("entry_id").min(), "b": pl.col("entry_id").max()}
        return int(marked.group_by(*keys, "run").agg(**ends).collect().height)

    def common() -> int:
        both = rows().join(rows(), on=[*keys, "entry_id"])
        return int(both.group_by(keys).len().collect().height)

    yield "sequences", runs
    yield "comparison", common


def _steps(engine: str, top: Path) -> Iterator[tuple[str, Work]]:
    if engine == "local":
        from bkstore.offline.analyses import LocalEngine

        yield from _dump(top)
        yield from _load(top)
        yield from _analyses(top, LocalEngine())
    elif engine == "spark":
        from bkstore.spark import start_session
        from bkstore.spark.analysis import SparkEngine

        spark = start_session(driver_memory="2g")
        yield from _load(top, spark)
        yield from _analyses(top, SparkEngine(spark))
    else:
        yield from {"duckdb": _duckdb, "polars": _polars, "write batch": _write_batch}[engine](top)


# -- measuring


def _processes() -> Iterator[tuple[str, str]]:
    """Yield (status, stat) of this process and of all below it, as Linux shows them."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            texts = (path / "status").read_text(), (path / "stat").read_text()
        except OSError:
            continue  # it has ended
        found[int(path.name)] = int(texts[0].partition("PPid:")[2].split()[0]), texts
    for number in found:
        above = number
        while above in found and above != os.getpid():
            above = found[above][0]
        if above == os.getpid():
            yield found[number][1]


def _resident() -> int:
    """Return the highest resident sizes of this process and of all below it, in bytes."""
    said = (status.partition("VmHWM:")[2].split() for status, _ in _processes())
    return sum(int(words[0]) * 1024 for words in said if words)


def _cpu() -> float:
    """Return the seconds of CPU of this process and of all below it, also those that ended."""
    ticks = (stat.rpartition(")")[2].split()[11:15] for _, stat in _processes())
    return sum(sum(map(int, each)) for each in ticks) / os.sysconf("SC_CLK_TCK")


def run_step(engine: str, name: str, top: Path, rounds: int) -> dict[str, Any]:
    """Run one step of an engine; return its times, its rows and the memory it took."""
    work = next(work for each, work in _steps(engine, top) if each == name)
    times, spent, rows = [], [], 0
    for _ in range(max(rounds, 1)):
        begin, before = time.perf_counter(), _cpu()
        rows = work()
        times.append(time.perf_counter() - begin)
        spent.append(_cpu() - before)
    made = {"engine": engine, "step": name, "seconds": times, "cpu": spent, "rows": rows}
    return {**made, "peak": _resident()}


def _in_a_process(engine: str, name: str, top: Path, rounds: int) -> dict[str, Any]:
    words = [sys.executable, "-m", "tools.pipeline", "step", engine, name, str(top), str(rounds)]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        return {"engine": engine, "step": name, "error": last}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _wanted(engines: list[str]) -> Iterator[tuple[str, str]]:
    steps = {
        "local": ("dump", "load to rocksdb", "load to idx", *KERNELS, *TEXTS),
        "spark": ("load to rocksdb", "load to idx", *KERNELS, *TEXTS),
        "write batch": ("load to rocksdb",),
        "duckdb": ("sequences", "comparison"),
        "polars": ("sequences", "comparison"),
    }
    for engine in engines:
        for step in steps[engine]:
            yield engine, step


def _table(document: dict[str, Any]) -> str:
    lines = [
        "| step | engine | first | seconds | CPU | million entries a second | peak MiB |",
        "|---|---|---|---|---|---|---|",
    ]
    for each in sorted(document["steps"], key=lambda found: found["step"]):
        if "error" in each:
            lines.append(f"| {each['step']} | {each['engine']} | {each['error']} | | | | |")
            continue
        first, *later = each["seconds"]
        best = min(later, default=first)
        spent = min(each["cpu"][1:], default=each["cpu"][0])
        count = document["entries"] if "load" not in each["step"] else each["rows"]
        times = f"{first:.2f} | {best:.2f} | {spent:.2f}"
        figures = f"{times} | {count / best / 1e6:.2f} | {each['peak'] // MIB}"
        lines.append(f"| {each['step']} | {each['engine']} | {figures} |")
    return "\n".join(lines)


def main(words: list[str]) -> int:
    """Measure, write JSON, print the table."""
    if words[:1] == ["step"]:
        engine, name, place, rounds = words[1:]
        print(json.dumps(run_step(engine, name, Path(place), int(rounds))))
        return 0
    parser = argparse.ArgumentParser(prog="python -m tools.pipeline", description=__doc__)
    parser.add_argument("entries", type=int, help="rows of all three bookies together")
    parser.add_argument("--ledgers", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--engines", default="local,spark,duckdb,polars,write batch")
    parser.add_argument("--json", type=Path, help="where the figures go")
    args = parser.parse_args(words)
    engines = args.engines.split(",")
    if "polars" in engines and find_spec("polars") is None:
        engines.remove("polars")  # compared if it is installed
    from bkstore.files.user_outputs import write_output
    from bkstore.offline.dump import dump

    with tempfile.TemporaryDirectory(prefix="bkstore-pipeline-") as scratch:
        top = Path(scratch)
        make_world(top, args.entries, args.ledgers)
        made = dump([top / name for name in BOOKIES], top / "dump", jobs=1)
        found = [_in_a_process(*each, top, args.rounds) for each in _wanted(engines)]
    document = {"entries": made.rows["entries"], "ledgers": args.ledgers, "steps": found}
    if args.json is not None:
        write_output(args.json, json.dumps(document, indent=1).encode())
    print(_table(document))
    return int(any("error" in each for each in found))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
