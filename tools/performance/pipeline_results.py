"""What kept results of the data pipeline have: columns, engines, steps."""

from __future__ import annotations

from tools.lab import Column, Experiment
from tools.pipeline import KERNELS, TEXTS

__all__ = ["ENGINES", "EXPERIMENT", "LOADS", "SPARKS", "SQL", "STEPS"]

LOADS = ("load to rocksdb", "load to idx")
SPARKS = ("spark", "one executor", "two executors")
SQL = ("sequences", "comparison")
STEPS = ("dump", *LOADS, *KERNELS, *TEXTS)
ENGINES = ("local", *SPARKS, "write batch", "duckdb", "polars")

EXPERIMENT = Experiment(
    name="pipeline",
    question="What do dump, loads and analyses take, by which engine?",
    method=(
        "Each step runs in a process of its own. First: the first round, in which libraries and "
        "Spark's workers start; seconds and CPU are the least of the others (of the first, if it "
        "is the only one). The start of Python and of a Spark session is not counted. CPU is of "
        "all processes; peak memory is Python's, Java's and that of Spark's Python workers, "
        "together, and beside it without the first. Other programs are asked in words of theirs, "
        "which the column says. Loads are of one bookie, and without comparison."
    ),
    data=(
        "1,000,000 entries at scale 1, in 1,000 ledgers over three bookies, 2-of-3 striped, a "
        "quarter of them with 5 % losses; ids with the top bit set among them; one dump."
    ),
    columns=(
        Column("step", "step", kind="given"),
        Column("engine", "engine", kind="given"),
        Column("entries", "entries", kind="given"),
        Column("rows", "rows", kind="count"),
        Column("first", "first round", "s"),
        Column("seconds", "seconds", "s"),
        Column("cpu", "CPU", "s"),
        Column("rate", "rate", "million entries a s"),
        Column("peak", "peak memory", "MiB"),
        Column("below", "workers and JVM", "MiB"),
        Column("asked", "was asked", kind="told"),
        Column("error", "error", kind="told"),
        Column("samples", "samples", kind="kept"),
    ),
    panels=(),
    measure=lambda _: [],
    found=lambda _: [],
    unit=("step", "engine", "entries"),
)
