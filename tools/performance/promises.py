"""The ratios that must hold, judged by the saved figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

from bkstore.lab.number_format import as_text, format_missed
from tools.performance.figures import Figures
from tools.pipeline.steps import KERNELS, LOADS, STEPS

Values = Callable[[Figures], Mapping[str, float]]

_LARGEST_DUMP = 50_000_000  # entries
SQL = STEPS["duckdb"]


class Limit(NamedTuple):
    """What a figure must reach, must not exceed, or must be. `unit` stands behind it as text."""

    sign: Literal[">=", "<=", "="]
    value: float
    unit: str = "x"

    def __str__(self) -> str:
        return f"{self.sign} {as_text(self.value)}{self.unit}".removeprefix("= ")

    def holds(self, figure: float) -> bool:
        """Return whether a figure meets the limit."""
        if self.sign == "=":
            return figure == self.value
        return figure >= self.value if self.sign == ">=" else figure <= self.value

    def format_figure(self, figure: float) -> str:
        """Return a figure as text, rounded so that one that misses the limit differs from it."""
        return as_text(figure) if self.holds(figure) else format_missed(figure, self.value)


class Promise(NamedTuple):
    """A path of the package, its baseline, and the limit that all of some figures must meet."""

    path: str
    baseline: str
    limit: Limit
    values: Values


def _ratios(row: str, cases: str = ".*") -> Values:
    return lambda figures: figures.ratios(row, cases)


def _facts(row: str, what: str, cases: str = ".*") -> Values:
    return lambda figures: figures.facts(row, what, cases)


def _engine_ratios(numerator: str, denominator: str, steps: tuple[str, ...]) -> Values:
    """Return the ratio of two engines' wall seconds, for the largest dump."""
    return lambda figures: figures.engines(numerator, denominator, steps, _LARGEST_DUMP)


PROMISES = (
    Promise(
        "availability of a flushed 1M-entry ledger, index file",
        "`np.fromfile` of the same file",
        Limit("<=", 2.5, "x its time"),
        _ratios("idx-availability", "contiguous|striped.*"),
    ),
    Promise(
        "availability of a flushed 1M-entry ledger, RocksDB",
        "seek/key/next loop of the same binding",
        Limit(">=", 1.6),
        _ratios("rocks-availability", "entry ids"),
    ),
    Promise(
        "the same",
        "all keys of the binding, joined",
        Limit(">=", 4),
        _ratios("rocks-availability", "joined keys"),
    ),
    Promise(
        "a scan of RocksDB, 1M rows",
        "all keys and values of the binding, joined",
        Limit(">=", 7),
        _ratios("rocks-scan", "all rows"),
    ),
    Promise(
        "encoding of a 2-of-3 stripe, 1M entries",
        "its size",
        Limit("=", 88, " bytes"),
        _facts("encoding", "encoded bytes"),
    ),
    Promise(
        "encode and decode it",
        "pyroaring, run-optimised",
        Limit(">=", 5),
        _ratios("encoding", "encode and decode"),
    ),
    Promise(
        "missing entries of a striped 10M ledger",
        "set difference of entry ids",
        Limit(">=", 100),
        _ratios("missing", "none lost|6 lost"),
    ),
    Promise(
        "memory of `missing`",
        "its size",
        Limit("<=", 100_000, " bytes"),
        _facts("missing", "peak bytes, missing"),
    ),
    Promise(
        "`put_many` to RocksDB", "`db[k] = v`", Limit(">=", 3.5), _ratios("rocks-fill", "put_many")
    ),
    Promise(
        "bulk load of RocksDB, 1M",
        "`db[k] = v`",
        Limit(">=", 5.5),
        _ratios("rocks-fill", "bulk_load"),
    ),
    Promise(
        "memtable, add",
        "flat SortedDict of tuples",
        Limit(">=", 5),
        _ratios("memtable-put", "put, 100 ledgers"),
    ),
    Promise(
        "memtable, `put_many`",
        "flat SortedDict of tuples",
        Limit(">=", 40),
        _ratios("memtable-put-many", ".*batches of 1000"),
    ),
    Promise(
        "batch read from disk",
        "one at a time, same storage",
        Limit(">=", 10),
        _ratios("batch-read", ".*from disk.*"),
    ),
    Promise(
        "batch read from the cache",
        "one at a time, same storage",
        Limit(">=", 3),
        _ratios("batch-read", ".*from cache.*"),
    ),
    Promise(
        "single read",
        "hand-written get and pread",
        Limit("<=", 2, "x its time"),
        _ratios("single-read"),
    ),
    Promise(
        "batch read over loopback, wall-clock time",
        "single reads over loopback",
        Limit(">=", 10),
        _facts("wire-reads", "entries a wall second, against single reads"),
    ),
    Promise(
        "bloom filter, built and probed, 1M",
        "mmh3 per key",
        Limit(">=", 30),
        _ratios("bloom", "build and probe"),
    ),
    Promise(
        "bloom filter, built and probed, 1M",
        "fastbloom-rs",
        Limit(">=", 1),
        _ratios("bloom", "build and probe, fast.*"),
    ),
    Promise(
        "stream look-up, 500 objects, 300 streams, warm: loads",
        "load-all",
        Limit(">=", 50, "x fewer"),
        _facts("streams", "times fewer loads than load-all"),
    ),
    Promise(
        "stream look-up: waves",
        "loads one after the other",
        Limit("<=", 2, ""),
        _facts("streams", "waves a look-up"),
    ),
    Promise(
        "stream look-up: time",
        "sparse-index",
        Limit(">=", 1),
        _ratios("streams", "bloom, sparse-index"),
    ),
    Promise("dump to Parquet", "row loop", Limit(">=", 50), _ratios("dump")),
    Promise(
        "dump to Parquet, peak memory, 1M to 50M entries",
        "its size",
        Limit("<=", 600, " MiB"),
        _facts("dump-sizes", "peak MiB"),
    ),
    Promise(
        "`bkstore leaks`, 100,000 ledgers, peak memory",
        "its size",
        Limit("<=", 300, " MiB"),
        _facts("leak-search", "peak MiB"),
    ),
    Promise(
        "scope 0, 128-bit support in place",
        "the same paths without it",
        Limit(">=", 0.97),
        _ratios("scope", ".*scope 0 against twin"),
    ),
    Promise(
        "another scope: entry log, journal",
        "scope 0",
        Limit("=", 9, " bytes an entry more"),
        lambda figures: (
            figures.facts("ledger-scope", "entry log, bytes an entry, more for a scope")
            | figures.facts("ledger-scope", "journal, bytes an entry, more for a scope")
        ),
    ),
    Promise(
        "another scope: key of the index",
        "scope 0",
        Limit("=", 8, " bytes more"),
        _facts("ledger-scope", "index key, bytes, more for a scope"),
    ),
    Promise(
        "analyses of a dump, 50M, wall-clock time",
        "DuckDB on the same Parquet",
        Limit(">=", 1),
        _engine_ratios("duckdb", "local", SQL),
    ),
    Promise(
        "analyses by Spark, two cores",
        "DuckDB",
        Limit(">=", 1),
        _engine_ratios("duckdb", "spark", SQL),
    ),
    Promise(
        "kernels by Spark",
        "the local kernels",
        Limit("<=", 2, "x their time"),
        _engine_ratios("spark", "local", KERNELS),
    ),
    Promise(
        "loads by Spark",
        "local loads",
        Limit("<=", 2.5, "x their time"),
        _engine_ratios("spark", "local", LOADS),
    ),
    Promise(
        "analyses by two executors of one core",
        "one executor",
        Limit(">=", 1.5),
        _engine_ratios("one executor", "two executors", SQL),
    ),
    Promise(
        "`add_batch` of 1,000 and flush; with journal, synced",
        "a write per entry, then fsync, by hand",
        Limit("<=", 1, "x its time"),
        _ratios("ledger-write", "add_batch.*|add_entries.*|journal.*"),
    ),
    Promise(
        "single add",
        "the same loop, per entry",
        Limit("<=", 2, "x its time"),
        _ratios("ledger-write", "add_entry,.*"),
    ),
    Promise(
        "replay",
        "a plain copy of the bytes",
        Limit("<=", 2, "x its time"),
        lambda figures: {
            **figures.ratios("journal", "replay"),
            **figures.ratios("ledger-upkeep", "replay.*"),
        },
    ),
    Promise(
        "compaction",
        "a plain copy of the bytes",
        Limit("<=", 3, "x its time"),
        _ratios("ledger-upkeep", "compaction.*"),
    ),
    Promise(
        "audit over index files of 3 bookies",
        "a call for each ledger",
        Limit(">=", 4),
        _ratios("audit-directories", "audit, directories, idx"),
    ),
    Promise(
        "audit over RocksDB indexes of 3 bookies",
        "a call for each ledger",
        Limit(">=", 6),
        _ratios("audit-directories", "audit, directories, rocksdb"),
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
        return " .. ".join(map(self.promise.limit.format_figure, bounds))

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
        missed = {key: value for key, value in values.items() if not promise.limit.holds(value)}
        judgements.append(_Judgement(promise, values, missed))
    return judgements
