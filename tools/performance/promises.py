"""The ratios that must hold, judged by the saved figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

from tools.lab.number_format import as_text, format_missed
from tools.performance.figures import Figures
from tools.pipeline.steps import KERNELS, LOADS, STEPS

Values = Callable[[Figures], Mapping[str, float]]

_MILLION = 1_000_000
SQL = STEPS["duckdb"]


class Promise(NamedTuple):
    """A path of the package, its baseline, and the limit that all of some figures must meet."""

    path: str
    baseline: str
    sign: Literal[">=", "<=", "="]
    limit: float
    unit: str
    values: Values

    @property
    def limit_text(self) -> str:
        """The limit as text."""
        return f"{self.sign} {as_text(self.limit)}{self.unit}".removeprefix("= ")

    def holds(self, value: float) -> bool:
        """Return whether a figure meets the limit."""
        if self.sign == "=":
            return value == self.limit
        return value >= self.limit if self.sign == ">=" else value <= self.limit

    def format_value(self, value: float) -> str:
        """Return a figure as text, rounded so that one that misses the limit differs from it."""
        return as_text(value) if self.holds(value) else format_missed(value, self.limit)


def _ratio_values(row: str, cases: str = ".*") -> Values:
    return lambda figures: figures.ratios(row, cases)


def _fact_values(row: str, what: str, cases: str = ".*") -> Values:
    return lambda figures: figures.facts(row, what, cases)


def _engine_ratios(numerator: str, denominator: str, steps: tuple[str, ...]) -> Values:
    """Return the ratio of two engines' wall seconds, for the largest dump."""
    return lambda figures: figures.engines(numerator, denominator, steps, 50 * _MILLION, "seconds")


PROMISES = (
    Promise(
        "availability of a flushed 1M-entry ledger, index file",
        "`np.fromfile` of the same file",
        "<=",
        2.5,
        "x its time",
        _ratio_values("idx-availability", "contiguous|striped.*"),
    ),
    Promise(
        "availability of a flushed 1M-entry ledger, RocksDB",
        "seek/key/next loop of the same binding",
        ">=",
        1.6,
        "x",
        _ratio_values("rocks-availability", "entry ids"),
    ),
    Promise(
        "encoded ids of a 2-of-3 stripe, 1M",
        "its size",
        "=",
        88,
        " bytes",
        _fact_values("encoding", "encoded bytes"),
    ),
    Promise(
        "encode and decode them, 1M",
        "pyroaring, run-optimised",
        ">=",
        5,
        "x",
        _ratio_values("encoding", "encode and decode"),
    ),
    Promise(
        "missing entries of a striped 10M ledger",
        "set difference of entry ids",
        ">=",
        100,
        "x",
        _ratio_values("missing", "none lost|6 lost"),
    ),
    Promise(
        "memory that missing entries take",
        "groups, not entries",
        "<=",
        100_000,
        " bytes",
        _fact_values("missing", "peak bytes, missing"),
    ),
    Promise(
        "`put_many` to RocksDB",
        "`db[k] = v`",
        ">=",
        3.5,
        "x",
        _ratio_values("rocks-fill", "put_many"),
    ),
    Promise(
        "bulk load of RocksDB, 1M",
        "`db[k] = v`",
        ">=",
        5.5,
        "x",
        _ratio_values("rocks-fill", "bulk_load"),
    ),
    Promise(
        "memtable, add",
        "flat SortedDict of tuples",
        ">=",
        5,
        "x",
        _ratio_values("memtable-put", "put, 100 ledgers"),
    ),
    Promise(
        "memtable, `put_many`",
        "the same",
        ">=",
        40,
        "x",
        _ratio_values("memtable-put-many", ".*batches of 1000"),
    ),
    Promise(
        "batch read from disk",
        "one at a time, same storage",
        ">=",
        10,
        "x",
        _ratio_values("batch-read", ".*from disk.*"),
    ),
    Promise(
        "batch read from the cache",
        "one at a time, same storage",
        ">=",
        3,
        "x",
        _ratio_values("batch-read", ".*from cache.*"),
    ),
    Promise(
        "single read",
        "hand-written get and pread",
        "<=",
        2,
        "x its time",
        _ratio_values("single-read"),
    ),
    Promise(
        "batch read over loopback, by the clock",
        "single reads likewise",
        ">=",
        10,
        "x",
        _fact_values("wire-reads", "entries a wall second, against single reads"),
    ),
    Promise(
        "bloom filter, built and probed, 1M",
        "mmh3 per key",
        ">=",
        30,
        "x",
        _ratio_values("bloom", "build and probe"),
    ),
    Promise(
        "bloom filter, the same",
        "fastbloom-rs",
        ">=",
        1,
        "x",
        _ratio_values("bloom", "build and probe, fast.*"),
    ),
    Promise(
        "stream look-up, 500 objects, 300 streams, warm: loads",
        "load-all",
        ">=",
        50,
        "x fewer",
        _fact_values("streams", "times fewer loads than load-all"),
    ),
    Promise(
        "stream look-up: waves",
        "loads one after the other",
        "<=",
        2,
        "",
        _fact_values("streams", "waves a look-up"),
    ),
    Promise(
        "stream look-up: time",
        "sparse-index",
        ">=",
        1,
        "x",
        _ratio_values("streams", "bloom, sparse-index"),
    ),
    Promise("dump to Parquet", "row loop", ">=", 50, "x", _ratio_values("dump")),
    Promise(
        "dump to Parquet, peak memory, 1M to 50M entries",
        "whatever the size",
        "<=",
        600,
        " MiB",
        _fact_values("dump-sizes", "peak MiB"),
    ),
    Promise(
        "scope 0, 128-bit support in place",
        "the same paths without it",
        ">=",
        0.97,
        "x",
        _ratio_values("scope", ".*scope 0 against twin"),
    ),
    Promise(
        "another scope: entry log, journal",
        "scope 0",
        "=",
        9,
        " bytes an entry more",
        lambda figures: (
            figures.facts("ledger-scope", "entry log, bytes an entry, more for a scope")
            | figures.facts("ledger-scope", "journal, bytes an entry, more for a scope")
        ),
    ),
    Promise(
        "another scope: key of the index",
        "scope 0",
        "=",
        8,
        " bytes more",
        _fact_values("ledger-scope", "index key, bytes, more for a scope"),
    ),
    Promise(
        "questions of the pipeline, 50M, by the clock",
        "DuckDB on the same Parquet",
        ">=",
        1,
        "x",
        _engine_ratios("duckdb", "local", SQL),
    ),
    Promise(
        "questions by Spark, two cores",
        "DuckDB",
        ">=",
        1,
        "x",
        _engine_ratios("duckdb", "spark", SQL),
    ),
    Promise(
        "kernels by Spark",
        "the local kernels",
        "<=",
        2,
        "x their time",
        _engine_ratios("spark", "local", KERNELS),
    ),
    Promise(
        "loads by Spark",
        "local loads",
        "<=",
        2.5,
        "x their time",
        _engine_ratios("spark", "local", LOADS),
    ),
    Promise(
        "questions by two executors of one core",
        "by one executor",
        ">=",
        1.5,
        "x",
        _engine_ratios("one executor", "two executors", SQL),
    ),
    Promise(
        "`add_batch` of 1,000 and flush; with journal, synced",
        "a write an entry, fsync, by hand",
        "<=",
        1,
        "x its time",
        _ratio_values("ledger-write", "add_batch.*|add_entries.*|journal.*"),
    ),
    Promise(
        "single add",
        "the same loop, an entry",
        "<=",
        2,
        "x its time",
        _ratio_values("ledger-write", "add_entry,.*"),
    ),
    Promise(
        "replay",
        "a plain copy of the bytes",
        "<=",
        2,
        "x its time",
        lambda figures: {
            **figures.ratios("journal", "replay"),
            **figures.ratios("ledger-upkeep", "replay.*"),
        },
    ),
    Promise(
        "compaction",
        "a plain copy of the bytes",
        "<=",
        3,
        "x its time",
        _ratio_values("ledger-upkeep", "compaction.*"),
    ),
    Promise(
        "audit over directories of 3 bookies",
        "a call for each ledger, as before",
        ">=",
        4,
        "x",
        _ratio_values("audit", "audit, directories, (idx|rocksdb)"),
    ),
)


class _Judgement(NamedTuple):
    """A promise, its figures, and those that miss the limit."""

    promise: Promise
    values: Mapping[str, float]
    missed: Mapping[str, float]

    @property
    def measured(self) -> str:
        """The figure, or the lowest and the highest one."""
        if not self.values:
            return "not measured"
        low, high = min(self.values.values()), max(self.values.values())
        bounds = [low] if low == high else [low, high]
        return " .. ".join(map(self.promise.format_value, bounds))

    @property
    def verdict(self) -> str:
        """Whether the promise holds: "yes", "no", or the number of figures that meet it."""
        if not self.values:
            return ""
        if self.missed:
            met_count = len(self.values) - len(self.missed)
            return f"**{met_count} of {len(self.values)}**" if met_count else "**no**"
        return "yes"


def judge_promises(figures: Figures) -> list[_Judgement]:
    """Return each promise with its figures and verdict."""
    judgements = []
    for promise in PROMISES:
        values = promise.values(figures)
        missed = {key: value for key, value in values.items() if not promise.holds(value)}
        judgements.append(_Judgement(promise, values, missed))
    return judgements
