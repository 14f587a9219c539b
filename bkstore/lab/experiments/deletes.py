"""The remains of deleted ledgers in RocksDB, by deletion strategy: `bkstore lab deletes`. Each
step writes ledgers and deletes as many of the oldest, so that the number of live ones stays the
same. A real bookie's index shrank from 46 GB to 199 MB when it was rebuilt."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from bkstore.ids import LedgerId
from bkstore.lab.experiment import Experiment, LabRun, Panel, ResultColumn, Row, Rows
from bkstore.lab.measuring.latencies_and_costs import QuerySet, measure_latencies_of
from bkstore.lab.number_format import as_text
from bkstore.lab.stores.chosen_sides import (
    add_side_options,
    only_sides,
    own_indexes,
    own_rocks,
)
from bkstore.lab.stores.index_sides import IndexSide
from bkstore.lab.stores.ledger_deletion import ShrinkingRocks
from bkstore.lab.stores.shrinking_index import ShrinkingIndex
from bkstore.lab.stores.tuned_rocks import Change

_LEDGERS_PER_STEP, _ENTRIES_PER_LEDGER = 40, 500
STEPS, _LIVE_STEPS, _STEPS_BETWEEN_REPAIRS = 12, 2, 4

_LEDGERS_LEFT = 2  # the live ledgers after the last step, in which nothing is written
ShrinkingStore = ShrinkingRocks | ShrinkingIndex
DeleteLedger = Callable[[Any, LedgerId], None]
STRATEGIES: dict[str, tuple[DeleteLedger | None, Callable[[Any], None] | None]] = {
    "nothing deleted": (None, None),
    "deleteRange": (ShrinkingRocks.delete_by_range, None),
    "point deletes": (ShrinkingRocks.delete_by_row, None),
    "deleteRange, compactRange": (ShrinkingRocks.delete_by_range, ShrinkingRocks.compact),
    "deleteRange, rebuild": (ShrinkingRocks.delete_by_range, ShrinkingRocks.rebuild),
}
"""Strategies by name: how a ledger is deleted, and the repair after each fourth step."""


class DatabaseRun(NamedTuple):
    """A database, its live ledgers, and the strategy by which others are deleted."""

    store: ShrinkingStore
    live: list[LedgerId]
    delete: DeleteLedger | None
    repair: Callable[[Any], None] | None

    def advance(self, step: int, ledger_count: int, seed: int) -> None:
        """Run one step: write `ledger_count` ledgers, delete the oldest so that those of
        `_LIVE_STEPS` steps are left, and repair the database every few steps. Steps count from 1;
        the one after `STEPS` is the last: it writes nothing and deletes nearly all ledgers."""
        is_last = step > STEPS
        for i in range(0 if is_last else ledger_count):
            self.live.append(LedgerId(0, step * ledger_count + i))
            self.store.put(self.live[-1], seed)
        if self.delete is not None:
            live_count = _LEDGERS_LEFT if is_last else _LIVE_STEPS * ledger_count
            for ledger in self.live[:-live_count]:
                self.delete(self.store, ledger)
            del self.live[:-live_count]
        if self.repair is not None and (is_last or step % _STEPS_BETWEEN_REPAIRS == 0):
            self.repair(self.store)
        self.store.settle()

    def measure_remains(self) -> Row:
        """Return the row's counts: live and scanned rows, tombstones, size."""
        return {
            "live": len(self.live) * _ENTRIES_PER_LEDGER,
            "rows": self.store.scan(),
            "tombstones": self.store.tombstones(),
            "kib": self.store.table_bytes() / 1024,
        }

    def newest_ledgers(self) -> list[LedgerId]:
        """Return 50 live ledgers, newest first; with fewer, they repeat."""
        return [self.live[-1 - i % len(self.live)] for i in range(50)]


def _measure_queries(run: LabRun, databases: dict[str, DatabaseRun]) -> dict[str, Row]:
    """Return the latencies by strategy: of a scan of all rows, of finding the last row of a ledger,
    and of finding the first row, behind all deleted ones. The databases take turns."""
    rows: dict[str, Row] = {strategy: {} for strategy in databases}
    queries_of_column: dict[str, Callable[[DatabaseRun], QuerySet]] = {  # [None]: no argument
        "scan": lambda run: QuerySet(lambda _: run.store.scan(), [None]),
        "last_p50": lambda run: QuerySet(run.store.find_last, run.newest_ledgers()),
        "first_p50": lambda run: QuerySet(lambda _: run.store.find_first(), [None] * 5),
    }
    for column, make_queries in queries_of_column.items():
        query_sets = {strategy: make_queries(database) for strategy, database in databases.items()}
        for strategy, latency in measure_latencies_of(query_sets, run.rounds).items():
            # A scan takes milliseconds, a seek microseconds.
            rows[strategy][column] = latency.p50 / 1e3 if column == "scan" else latency.p50
    return rows


def _database_openers(
    run: LabRun, ledgers_per_step: int
) -> dict[str, Callable[[Path], DatabaseRun]]:
    """Return by name the functions that open an empty database with a strategy of deletion: RocksDB
    with a bookie's options and each of `STRATEGIES`, RocksDB with each set of options that the user
    gave (--rocks) and `deleteRange`, and each index class of the user's (--side), whose own method
    deletes ledgers. If --only is given, only those that it names."""
    rows_per_table = ledgers_per_step * _ENTRIES_PER_LEDGER // 2  # a step fills two table files

    def open_rocks(
        directory: Path,
        delete: DeleteLedger | None,
        repair: Callable[[Any], None] | None,
        changes: tuple[Change, ...] = (),
    ) -> DatabaseRun:
        """Open RocksDB with a bookie's options after `changes`."""
        store = ShrinkingRocks(directory, _ENTRIES_PER_LEDGER, rows_per_table, changes)
        return DatabaseRun(store, [], delete, repair)

    def open_index(directory: Path, side: IndexSide) -> DatabaseRun:
        store = ShrinkingIndex(side, directory, _ENTRIES_PER_LEDGER)
        return DatabaseRun(store, [], ShrinkingIndex.delete_ledger, None)

    openers: dict[str, Callable[[Path], DatabaseRun]] = {
        strategy: partial(open_rocks, delete=delete, repair=repair)
        for strategy, (delete, repair) in STRATEGIES.items()
    }
    by_range = ShrinkingRocks.delete_by_range
    for strategy, changes in own_rocks(run.options).items():
        openers[f"deleteRange, {strategy}"] = partial(
            open_rocks, delete=by_range, repair=None, changes=changes
        )
    for strategy, side in own_indexes(run.options).items():
        openers[strategy] = partial(open_index, side=side)
    return only_sides(run.options, openers)


def measure(run: LabRun) -> Iterator[Row]:
    """Yield a row for each step and strategy of deletion. A step writes ledgers to the database of
    each strategy and deletes the oldest; then its remains and latencies are measured."""
    ledgers_per_step, databases = run.scaled(_LEDGERS_PER_STEP, minimum=4), {}
    with ExitStack() as closing:
        for number, (strategy, open_run) in enumerate(
            _database_openers(run, ledgers_per_step).items()
        ):
            databases[strategy] = open_run(run.directory / f"{number}")
            closing.callback(databases[strategy].store.close)
        run.expect_steps(STEPS + 1)
        for step in range(1, STEPS + 2):  # in the last step `advance` deletes nearly everything
            run.report_progress(f"step {step} of {STEPS + 1}")
            remains = {}
            for strategy, database in databases.items():
                database.advance(step, ledgers_per_step, run.seed)
                remains[strategy] = database.measure_remains()
            for strategy, latencies in _measure_queries(run, databases).items():
                yield {"strategy": strategy, "step": step, **remains[strategy], **latencies}


def summarize(rows: Rows) -> list[str]:
    """Return the findings, from the medians of the second half of the steps."""
    if not {row["strategy"] for row in rows} >= STRATEGIES.keys():  # --only left some out
        return _describe_own(rows)
    late_rows = [row for row in rows if STEPS // 2 < row["step"] <= STEPS]
    last_rows = {row["strategy"]: row for row in rows if row["step"] > STEPS}

    def median_of(column: str, strategy: str) -> str:
        values = [row[column] for row in late_rows if row["strategy"] == strategy]
        return as_text(round(statistics.median(values)))

    by_range, by_row, undeleted = "deleteRange", "point deletes", "nothing deleted"
    slowest_first_read = {
        strategy: as_text(max(row["first_p50"] for row in rows if row["strategy"] == strategy))
        for strategy in (by_range, by_row, undeleted)
    }
    return [
        f"{median_of('live', by_range)} rows are live. Their database takes "
        f"{median_of('kib', by_range)} KiB by deleteRange, "
        f"{median_of('kib', 'deleteRange, compactRange')} compacted every "
        f"{_STEPS_BETWEEN_REPAIRS} steps, {median_of('kib', 'deleteRange, rebuild')} rebuilt as "
        f"often, {median_of('kib', by_row)} by point deletes; {median_of('kib', undeleted)} where "
        "nothing is deleted.",
        f"Then all but {as_text(last_rows[by_range]['live'])} rows are deleted and nothing is "
        f"written: deleteRange leaves {as_text(last_rows[by_range]['kib'])} KiB, with "
        f"compactRange {as_text(last_rows['deleteRange, compactRange']['kib'])}, rebuilt "
        f"{as_text(last_rows['deleteRange, rebuild']['kib'])}; point deletes leave "
        f"{as_text(last_rows[by_row]['kib'])}.",
        f"Tombstones: {median_of('tombstones', by_range)} by deleteRange, "
        f"{median_of('tombstones', by_row)} by point deletes, "
        f"{median_of('tombstones', undeleted)} where nothing is deleted.",
        f"The first row behind the deleted ones takes up to {slowest_first_read[by_row]} us after "
        f"point deletes, {slowest_first_read[by_range]} after deleteRange, "
        f"{slowest_first_read[undeleted]} where nothing is deleted.",
        *_describe_own(rows),
    ]


def _describe_own(rows: Rows) -> list[str]:
    """Return a sentence for each database that is not one of `STRATEGIES`: those with options or
    an index class of the user's."""
    names = dict.fromkeys(row["strategy"] for row in rows if row["strategy"] not in STRATEGIES)
    sentences = []
    for strategy in names:
        *step_rows, last_row = (row for row in rows if row["strategy"] == strategy)
        late_kib = [row["kib"] for row in step_rows if row["step"] > STEPS // 2]
        sentences.append(
            f"{strategy} takes {as_text(round(statistics.median(late_kib)))} KiB for "
            f"{as_text(step_rows[-1]['live'])} live rows, and {as_text(round(last_row['kib']))} "
            f"when all but {as_text(last_row['live'])} are deleted."
        )
    return sentences


EXPERIMENT = Experiment(
    name="deletes",
    question="What do deleted ledgers leave in RocksDB, and what takes it away?",
    method=(
        "Every step writes ledgers, deletes the oldest, repairs where it is due, and lets RocksDB "
        "compact until it has nothing to do. Half a step's rows and tombstones go into a table "
        "each time; no compaction begins before the end of a step, so that what is left is the "
        "same in every run. Tombstones, of rows and of ranges, are those of the tables' "
        "properties; bytes are those of the tables, of an index of yours those of all files. A "
        "scan goes over all rows; the last entry is that of a live ledger, by one backward seek; "
        "the first row is looked for from the lowest key on, past what was deleted. Latencies are "
        "wall time, of each query the median of the rounds, in which the databases take turns."
    ),
    data=(
        f"A step writes {_LEDGERS_PER_STEP} ledgers of {_ENTRIES_PER_LEDGER} entries at scale 1 "
        f"and leaves the last {_LIVE_STEPS} steps' ledgers live; {STEPS} steps. Then all but "
        f"{_LEDGERS_LEFT} ledgers are deleted and nothing is written."
    ),
    columns=(
        ResultColumn("strategy", "deleted by", kind="given"),
        ResultColumn("step", "step", kind="given"),
        ResultColumn("live", "live rows", kind="count"),
        ResultColumn("rows", "rows scanned", kind="count"),
        ResultColumn("tombstones", "tombstones", kind="count"),
        ResultColumn("kib", "tables", "KiB", "count"),
        ResultColumn("scan", "scan of all", "ms"),
        ResultColumn("last_p50", "last entry, p50", "us"),
        ResultColumn("first_p50", "first row, p50", "us"),
    ),
    panels=(
        Panel("Bytes of the database", "step", "kib", "strategy"),
        Panel("Scan of all rows", "step", "scan", "strategy"),
        Panel("The first row, past what was deleted", "step", "first_p50", "strategy", log="y"),
        Panel("Last entry of a live ledger", "step", "last_p50", "strategy"),
    ),
    measure=measure,
    summarize=summarize,
    add_options=add_side_options,
)
