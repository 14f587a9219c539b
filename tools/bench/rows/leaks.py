"""Rows: ledgers that Pulsar's metadata do not refer to, by the command and by the analysis."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

from tools.bench.cases import BenchmarkRow, Cases, Context, Fact, FactCase
from tools.bench.inputs.entry_ids import new_directory
from tools.bench.inputs.own_process import run_input

LEDGERS, TOPICS = 100_000, 5000
ANALYZED_LEDGERS = 1_000_000
ENGINES = ("local", "spark")
_LEDGERS_PER_TOPIC = 200
_MAX_SECONDS, _MAX_MIB = 10, 300
_MIB = 1 << 20


def _search_facts(file: Path, ledgers: int, topics: int) -> list[Fact]:
    run_input("leak_process", "make", file, ledgers, topics)
    result = run_input("leak_process", "search", file)
    cpu, peak = result["search_cpu"], result["peak"] / _MIB
    return [
        Fact("classes", result["classes"]),
        Fact("MB of metadata", round(file.stat().st_size / 1e6)),
        Fact("CPU seconds", round(cpu, 1), f"<= {_MAX_SECONDS}", cpu <= _MAX_SECONDS),
        Fact("peak MiB", round(peak), f"<= {_MAX_MIB}", peak <= _MAX_MIB),
    ]


def _search_figures(context: Context) -> Cases:
    ledgers, topics = context.scaled(LEDGERS), context.scaled(TOPICS)
    file, shape = new_directory(context) / "metadata.json", f"{ledgers} ledgers of {topics} topics"
    yield FactCase("bkstore leaks", 0, shape, partial(_search_facts, file, ledgers, topics))


def _analysis_facts(directory: Path, ledgers: int, topics: int, engine: str) -> list[Fact]:
    result = run_input("leak_process", "analyze", directory, ledgers, topics, engine)
    shutil.rmtree(directory)
    facts = [Fact(f"{each} ledgers", count) for each, count in result["classes"].items()]
    for step, title in (("tables", "tables of Pulsar's metadata"), ("query", "query")):
        facts.append(Fact(f"{title}, CPU seconds", round(result[f"{step}_cpu"], 1)))
        facts.append(Fact(f"{title}, seconds", round(result[f"{step}_seconds"], 1)))
    peaks = {"metadata made": "made_peak", "Python process": "own_peak", "all processes": "peak"}
    return facts + [
        Fact(f"peak MiB, {part}", round(result[key] / _MIB)) for part, key in peaks.items()
    ]


def _analysis_figures(context: Context) -> Cases:
    ledgers = context.scaled(ANALYZED_LEDGERS)
    topics = max(ledgers // _LEDGERS_PER_TOPIC, 1)
    shape = f"{ledgers} ledgers of {topics} topics, on 2 of 3 bookies each"
    for engine in ENGINES:
        directory = new_directory(context) / "dump"
        facts = partial(_analysis_facts, directory, ledgers, topics, engine)
        yield FactCase(engine, 0, shape, facts)


ROWS = (
    BenchmarkRow(
        "leak-search",
        "leaked ledgers of a metadata file",
        "`bkstore leaks` on a file of `bkstore metadata export --pulsar`, in a process of its own: "
        "CPU seconds without its start, and the highest resident size, interpreter and libraries "
        "included. A ledger of each topic is leaked.",
        _search_figures,
    ),
    BenchmarkRow(
        "leaked-ledgers",
        "the analysis `leaked_ledgers` by engine; `--size 10` for ten million ledgers",
        "`python -m tools.bench.inputs.leak_process analyze` in a process of its own: ledger "
        "metadata as columns in memory, a dump with the ledgers of entry logs in Parquet, the "
        "values of Pulsar's nodes in memory. CPU seconds of all processes, of both engines on two "
        "cores; Spark's first query of a session.",
        _analysis_figures,
        long=True,
    ),
)
