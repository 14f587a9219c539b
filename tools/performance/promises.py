"""The ratios that must hold, and whether they do, by kept figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

from tools.lab.table import as_text, format_missed
from tools.performance.figures import Figures
from tools.pipeline.steps import KERNELS, LOADS, STEPS

Values = Callable[[Figures], Mapping[str, float]]

_MILLION = 1_000_000
SQL = STEPS["duckdb"]


class Promise(NamedTuple):
    """A path, what it is held against, and what every one of some figures must be."""

    path: str
    against: str
    sign: Literal[">=", "<=", "="]
    limit: float
    unit: str
    values: Values

    @property
    def must(self) -> str:
        """What must be, in words."""
        return f"{self.sign} {as_text(self.limit)}{self.unit}".removeprefix("= ")

    def holds(self, value: float) -> bool:
        """Return whether one figure is as it must be."""
        if self.sign == "=":
            return value == self.limit
        return value >= self.limit if self.sign == ">=" else value <= self.limit

    def told(self, value: float) -> str:
        """Return a figure as tables have it: one that is not as it must be reads as that."""
        return as_text(value) if self.holds(value) else format_missed(value, self.limit)


def _ratio(row: str, cases: str = ".*") -> Values:
    return lambda figures: figures.ratios(row, cases)


def _fact(row: str, what: str, cases: str = ".*") -> Values:
    return lambda figures: figures.facts(row, what, cases)


def _engines(over: str, under: str, steps: tuple[str, ...]) -> Values:
    """Return how the seconds by the clock of two engines compare, over the largest dump."""
    return lambda figures: figures.engines(over, under, steps, 50 * _MILLION, "seconds")


PROMISES = (
    Promise(
        "availability of a flushed 1M-entry ledger, index file",
        "`np.fromfile` of the same file",
        "<=",
        2.5,
        "x its time",
        _ratio("idx-availability", "contiguous|striped.*"),
    ),
    Promise(
        "availability of a flushed 1M-entry ledger, RocksDB",
        "seek/key/next loop of the same binding",
        ">=",
        1.6,
        "x",
        _ratio("rocks-availability", "entry ids"),
    ),
    Promise(
        "encoded ids of a 2-of-3 stripe, 1M",
        "its size",
        "=",
        88,
        " bytes",
        _fact("encoding", "encoded bytes"),
    ),
    Promise(
        "encode and decode them, 1M",
        "pyroaring, run-optimised",
        ">=",
        5,
        "x",
        _ratio("encoding", "encode and decode"),
    ),
    Promise(
        "missing entries of a striped 10M ledger",
        "set difference of entry ids",
        ">=",
        100,
        "x",
        _ratio("missing", "none lost|6 lost"),
    ),
    Promise(
        "memory that missing entries take",
        "groups, not entries",
        "<=",
        100_000,
        " bytes",
        _fact("missing", "peak bytes, missing"),
    ),
    Promise(
        "`put_many` to RocksDB", "`db[k] = v`", ">=", 3.5, "x", _ratio("rocks-fill", "put_many")
    ),
    Promise(
        "bulk load of RocksDB, 1M", "`db[k] = v`", ">=", 5.5, "x", _ratio("rocks-fill", "bulk_load")
    ),
    Promise(
        "memtable, add",
        "flat SortedDict of tuples",
        ">=",
        5,
        "x",
        _ratio("memtable-put", "put, 100 ledgers"),
    ),
    Promise(
        "memtable, `put_many`",
        "the same",
        ">=",
        40,
        "x",
        _ratio("memtable-put-many", ".*batches of 1000"),
    ),
    Promise(
        "batch read from disk",
        "one at a time, same storage",
        ">=",
        10,
        "x",
        _ratio("batch-read", ".*from disk.*"),
    ),
    Promise(
        "batch read from the cache",
        "one at a time, same storage",
        ">=",
        3,
        "x",
        _ratio("batch-read", ".*from cache.*"),
    ),
    Promise(
        "single read", "hand-written get and pread", "<=", 2, "x its time", _ratio("single-read")
    ),
    Promise(
        "batch read over loopback, by the clock",
        "single reads likewise",
        ">=",
        10,
        "x",
        _fact("wire-reads", "entries a wall second, against single reads"),
    ),
    Promise(
        "bloom filter, built and probed, 1M",
        "mmh3 per key",
        ">=",
        30,
        "x",
        _ratio("bloom", "build and probe"),
    ),
    Promise(
        "bloom filter, the same",
        "fastbloom-rs",
        ">=",
        1,
        "x",
        _ratio("bloom", "build and probe, fast.*"),
    ),
    Promise(
        "stream look-up, 500 objects, 300 streams, warm: loads",
        "load-all",
        ">=",
        50,
        "x fewer",
        _fact("streams", "times fewer loads than load-all"),
    ),
    Promise(
        "stream look-up: waves",
        "loads one after the other",
        "<=",
        2,
        "",
        _fact("streams", "waves a look-up"),
    ),
    Promise(
        "stream look-up: time",
        "sparse-index",
        ">=",
        1,
        "x",
        _ratio("streams", "bloom, sparse-index"),
    ),
    Promise("dump to Parquet", "row loop", ">=", 50, "x", _ratio("dump")),
    Promise(
        "dump to Parquet, peak memory, 1M to 50M entries",
        "whatever the size",
        "<=",
        600,
        " MiB",
        _fact("dump-sizes", "peak MiB"),
    ),
    Promise(
        "scope 0, 128-bit support in place",
        "the same paths without it",
        ">=",
        0.97,
        "x",
        _ratio("scope", ".*scope 0 against twin"),
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
        _fact("ledger-scope", "index key, bytes, more for a scope"),
    ),
    Promise(
        "questions of the pipeline, 50M, by the clock",
        "DuckDB on the same Parquet",
        ">=",
        1,
        "x",
        _engines("duckdb", "local", SQL),
    ),
    Promise(
        "questions by Spark, two cores",
        "DuckDB",
        ">=",
        1,
        "x",
        _engines("duckdb", "spark", SQL),
    ),
    Promise(
        "kernels by Spark",
        "the local kernels",
        "<=",
        2,
        "x their time",
        _engines("spark", "local", KERNELS),
    ),
    Promise(
        "loads by Spark",
        "local loads",
        "<=",
        2.5,
        "x their time",
        _engines("spark", "local", LOADS),
    ),
    Promise(
        "questions by two executors of one core",
        "by one executor",
        ">=",
        1.5,
        "x",
        _engines("one executor", "two executors", SQL),
    ),
    Promise(
        "`add_batch` of 1,000 and flush; with journal, synced",
        "a write an entry, fsync, by hand",
        "<=",
        1,
        "x its time",
        _ratio("ledger-write", "add_batch.*|add_entries.*|journal.*"),
    ),
    Promise(
        "single add",
        "the same loop, an entry",
        "<=",
        2,
        "x its time",
        _ratio("ledger-write", "add_entry,.*"),
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
        _ratio("ledger-upkeep", "compaction.*"),
    ),
    Promise(
        "audit over directories of 3 bookies",
        "a call for each ledger, as before",
        ">=",
        4,
        "x",
        _ratio("audit", "audit, directories, (idx|rocksdb)"),
    ),
)


class _Judgement(NamedTuple):
    """A promise, the figures it is about, and those of them that are not as they must be."""

    promise: Promise
    values: Mapping[str, float]
    missed: Mapping[str, float]

    @property
    def measured(self) -> str:
        """The figure, or the lowest and the highest."""
        if not self.values:
            return "not measured"
        low, high = min(self.values.values()), max(self.values.values())
        ends = [low] if low == high else [low, high]
        return " .. ".join(map(self.promise.told, ends))

    @property
    def verdict(self) -> str:
        """Whether it holds: yes, no, or for how many of the figures."""
        if not self.values:
            return ""
        if self.missed:
            held = len(self.values) - len(self.missed)
            return f"**{held} of {len(self.values)}**" if held else "**no**"
        return "yes"


def judged(figures: Figures) -> list[_Judgement]:
    """Return each promise with its figures."""
    found = []
    for promise in PROMISES:
        values = promise.values(figures)
        missed = {key: value for key, value in values.items() if not promise.holds(value)}
        found.append(_Judgement(promise, values, missed))
    return found
