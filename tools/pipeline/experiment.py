"""The pipeline as an experiment of the lab: its columns, options and findings."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from bkstore.lab import Experiment, LabRun, Panel, ResultColumn, Row
from bkstore.lab.experiment import Rows
from bkstore.lab.number_format import compare
from tools.pipeline.other_programs import DUCKDB_QUESTIONS
from tools.pipeline.step_process import run_in_process
from tools.pipeline.steps import KERNELS, LOADS, SQL_ANALYSES, STEPS
from tools.pipeline.world import prepare_world

_MIB = 1 << 20
ENTRIES, LEDGERS = 1_000_000, 1000
DEFAULT_ENGINES = "local,spark,duckdb,polars,write batch"


def _parse_names(text: str, allowed: Sequence[str]) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in allowed:
            raise argparse.ArgumentTypeError(f"no {name!r}; there are {', '.join(allowed)}")
    return names


def _parse_engines(text: str) -> list[str]:
    return _parse_names(text, list(STEPS))


def _parse_steps(text: str) -> list[str]:
    steps = dict.fromkeys(step for steps in STEPS.values() for step in steps)
    return _parse_names(text, list(steps))


def _add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("entries", type=int, nargs="?", help="rows of all three bookies together")
    add("--ledgers", type=int, default=LEDGERS, help="(default: %(default)s)")
    add(
        "--engines",
        type=_parse_engines,
        default=_parse_engines(DEFAULT_ENGINES),
        help=f"(default: {DEFAULT_ENGINES})",
    )
    add("--only", type=_parse_steps, default=[], metavar="STEPS", help="with commas between them")
    add("--world", type=Path, help="where the data go and stay (default: scratch)")


def choose_steps(engines: Sequence[str], only: Sequence[str] = ()) -> Iterator[tuple[str, str]]:
    """Yield the (engine, step) pairs to measure."""
    for engine in engines:
        for step in STEPS[engine]:
            if not only or step in only:
                yield engine, step


def measure(run: LabRun) -> Iterator[Row]:
    """Yield a row for each step of each engine, each in a process of its own."""
    options = run.options
    entries = options.entries or run.scaled(ENTRIES, minimum=600)
    engines = [name for name in options.engines if not _is_absent(run, name)]
    directory = options.world or run.directory
    steps = list(choose_steps(engines, options.only))
    run.expect_steps(1 + len(steps))
    run.report_progress(f"{entries} entries")
    row_count = prepare_world(directory, entries, options.ledgers)
    for engine, step in steps:
        run.report_progress(f"{step}, {engine}")
        measurement = run_in_process(engine, step, directory, run.rounds)
        yield {"entries": entries, **_row(measurement, row_count)}


def _is_absent(run: LabRun, engine: str) -> bool:
    return engine in ("duckdb", "polars") and run.import_optional(engine) is None


def _row(measurement: dict[str, Any], dumped_rows: int) -> Row:
    """Return the row of a step: the first round separately, and the median of the others."""
    row: Row = {name: measurement.get(name) for name in ("step", "engine", "rows", "error")}
    if row["error"] is None:
        samples = {name: measurement[name] for name in ("seconds", "cpu")}
        seconds, cpu = (median(values[1:] or values) for values in samples.values())
        # A load reads one bookie, and says how many rows; other steps read all of the dump.
        row_count = row["rows"] if "load" in row["step"] else dumped_rows
        row |= {
            "asked": DUCKDB_QUESTIONS[row["step"]] if row["engine"] == "duckdb" else None,
            "first": samples["seconds"][0],
            "seconds": seconds,
            "cpu": cpu,
            "rate": row_count / seconds / 1e6,
            "peak": measurement["peak"] // _MIB,
            "below": measurement["below"] // _MIB,
            "samples": samples,
        }
    return row


def summarize(rows: Rows) -> list[str]:
    """Return the findings: the engines compared with the local one."""
    row_of = {(row["entries"], row["step"], row["engine"]): row for row in rows if not row["error"]}
    sentences = [f"{row['step']}, {row['engine']}: {row['error']}" for row in rows if row["error"]]
    for (entries, step, engine), row in row_of.items():
        local = row_of.get((entries, step, "local"))
        if local is not None and engine != "local":
            seconds, memory = (row[name] / local[name] for name in ("seconds", "peak"))
            sentences.append(
                f"{step}, {entries:,} entries: {engine} takes {compare(seconds, 'long')} as the "
                f"local engine, and {compare(memory, 'much')} memory."
            )
    return sentences


EXPERIMENT = Experiment(
    name="pipeline",
    question="What do dump, loads and analyses take, by which engine?",
    method=(
        "Each step runs in a process of its own. First: the first round, in which libraries and "
        "Spark's workers start; seconds and CPU are the median of the others (of the first, if "
        "it is the only one). The start of Python and of a Spark session is not counted. CPU is of "
        "all processes; peak memory is Python's, Java's and that of Spark's Python workers, "
        "together, and beside it without the first. Other programs are asked in words of theirs, "
        "which the column says. Loads are of one bookie, and without comparison."
    ),
    data=(
        "1,000,000 entries at scale 1, in 1,000 ledgers over three bookies, 2-of-3 striped, a "
        "quarter of them with 5 % losses; ids with the top bit set among them; one dump."
    ),
    columns=(
        ResultColumn("step", "step", kind="given"),
        ResultColumn("engine", "engine", kind="given"),
        ResultColumn("entries", "entries", kind="given"),
        ResultColumn("rows", "rows", kind="count"),
        ResultColumn("first", "first round", "s"),
        ResultColumn("seconds", "seconds", "s"),
        ResultColumn("cpu", "CPU", "s"),
        ResultColumn("rate", "rate", "million entries a s"),
        ResultColumn("peak", "peak memory", "MiB"),
        ResultColumn("below", "workers and JVM", "MiB"),
        ResultColumn("asked", "was asked", kind="told"),
        ResultColumn("error", "error", kind="told"),
        ResultColumn("samples", "samples", kind="kept"),
    ),
    panels=(
        Panel(
            "Analyses", "step", "seconds", "engine", {"step": (*KERNELS, *SQL_ANALYSES)}, log="y"
        ),
        Panel("Memory", "step", "peak", "engine", {"step": (*KERNELS, *SQL_ANALYSES)}),
        Panel("Dump and loads", "step", "seconds", "engine", {"step": ("dump", *LOADS)}),
    ),
    measure=measure,
    summarize=summarize,
    add_options=_add_options,
    group_columns=("step", "engine", "entries"),
    command="python -m tools.pipeline",
)
