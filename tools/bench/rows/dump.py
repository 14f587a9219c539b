"""Rows: a dump to Parquet, compared with a loop over rows, and its speed and memory by size."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from bkstore.offline.dump import dump
from tools.bench.cases import BenchmarkRow, Case, Cases, Context, Fact, FactCase, TimedSide
from tools.bench.inputs.dump_indexes import LOOKUP_INDEXES, LookupIndex, dump_by_row, make_index
from tools.bench.inputs.entry_ids import new_directory
from tools.bench.inputs.own_process import run_input

ENTRIES = 2_000_000
SIZES = (1_000_000, 10_000_000, 50_000_000)
_MAX_PEAK_BYTES = 600 << 20


def _dump_case(context: Context, kind: LookupIndex) -> Case:
    entries = context.scaled(ENTRIES)
    path = make_index(kind, new_directory(context) / "bookie", entries, context.seed)

    def set_up() -> Path:
        return new_directory(context) / "out"

    shape = f"{entries} entries in ledgers of 100,000, index in the page cache"
    ours = TimedSide("dump", lambda target: dump([path], target, jobs=1), set_up)
    baseline = TimedSide("row by row", lambda target: dump_by_row(path, target), set_up)
    return Case(kind, entries, shape, ours, (baseline,), limit=50)


def _dump_cases(context: Context) -> Cases:
    import pyarrow.parquet  # noqa: F401  (its loading is not part of the work)

    for kind in LOOKUP_INDEXES:
        yield _dump_case(context, kind)


def _size_facts(kind: LookupIndex, entries: int) -> list[Fact]:
    jobs = 1
    result = run_input("dump_indexes", kind, entries, jobs)
    peak, target = result["peak"], f"< {_MAX_PEAK_BYTES >> 20}"
    return [
        Fact("million rows a second", round(result["rows"] / result["seconds"] / 1e6, 2)),
        Fact("peak MiB", round(peak / 2**20), target, holds=peak < _MAX_PEAK_BYTES),
    ]


def _size_figures(context: Context) -> Cases:
    for kind in LOOKUP_INDEXES:
        for size in SIZES[: 3 if kind == "idx" else 2]:
            entries, name = context.scaled(size), f"{kind}, {size // 10**6}M entries"
            yield FactCase(name, entries, "in one process", partial(_size_facts, kind, entries))


ROWS = (
    BenchmarkRow(
        "dump",
        "an index to Parquet",
        "Six tables, sorted, with manifest, synced and renamed, in one process; beside it the "
        "`entries` table alone by a loop over `index.get` that makes a dict a row.",
        _dump_cases,
        long=True,
    ),
    BenchmarkRow(
        "dump-sizes",
        "a dump by size",
        "`python -m tools.bench.inputs.dump_indexes` in a process of its own, one job: rows a "
        "second of the whole dump and the highest resident size, interpreter and libraries "
        "included.",
        _size_figures,
        long=True,
    ),
)
