"""What deleting ledgers leaves in RocksDB, by how it is done: `python -m tools.deletes`.

Each step writes ledgers and deletes the oldest, so that as many are live as before. A real
bookie's index went from 46 GB to 199 MB when it was rebuilt.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import NamedTuple

from bkstore.ids import LedgerId
from bkstore.index.rocks.keys import ledger_range
from tools.lab import Column, Experiment, Panel, Row, Run, main
from tools.lab.experiment import Rows
from tools.lab.samples import Asking, latencies_of
from tools.lab.stores.shrinking_rocks import ShrinkingRocks
from tools.lab.table import shown

_PER_STEP, _PER_LEDGER, _LIVE_STEPS, STEPS, _EVERY = 40, 500, 2, 12, 4
"""Ledgers of a step, entries of each, steps that stay live, steps, steps between repairs."""

_LEFT = 2
"""Ledgers that are left in the last step, in which nothing is written."""

Deleting = Callable[[ShrinkingRocks, LedgerId], None]
STRATEGIES: dict[str, tuple[Deleting | None, Callable[[ShrinkingRocks], None] | None]] = {
    "nothing deleted": (None, None),
    "deleteRange": (ShrinkingRocks.delete_by_range, None),
    "point deletes": (ShrinkingRocks.delete_by_row, None),
    "deleteRange, compactRange": (ShrinkingRocks.delete_by_range, ShrinkingRocks.compact),
    "deleteRange, rebuild": (ShrinkingRocks.delete_by_range, ShrinkingRocks.rebuild),
}
"""How a ledger is deleted, and what is done every fourth step."""


class Life(NamedTuple):
    """A database, its live ledgers, and what becomes of those that are not."""

    store: ShrinkingRocks
    live: list[LedgerId]
    delete: Deleting | None
    repair: Callable[[ShrinkingRocks], None] | None

    def advance(self, step: int, written: int, seed: int) -> None:
        """Write ledgers, delete the oldest; in the last step write none and delete nearly all."""
        last = step > STEPS
        for at in range(0 if last else written):
            self.live.append(LedgerId(0, step * written + at))
            self.store.put(self.live[-1], seed)
        if self.delete is not None:
            keep = _LEFT if last else _LIVE_STEPS * written
            for ledger in self.live[:-keep]:
                self.delete(self.store, ledger)
            del self.live[:-keep]
        if self.repair is not None and (last or step % _EVERY == 0):
            self.repair(self.store)
        self.store.settle()

    def left(self) -> Row:
        """Return what is in the files."""
        return {
            "live": len(self.live) * _PER_LEDGER,
            "rows": self.store.scan(),
            "tombstones": self.store.tombstones(),
            "kib": self.store.table_bytes() / 1024,
        }

    def newest(self) -> list[bytes]:
        """Return where 50 live ledgers end, beginning with the newest."""
        return [ledger_range(self.live[-1 - at % len(self.live)])[1] for at in range(50)]


def _asked(run: Run, lives: dict[str, Life]) -> dict[str, Row]:
    """Return how long questions take, the databases beside each other."""
    rows: dict[str, Row] = {name: {} for name in lives}
    ways: dict[str, Callable[[Life], Asking]] = {
        "scan": lambda life: Asking(lambda _: life.store.scan(), [None]),
        "last_p50": lambda life: Asking(life.store.database.last_below, life.newest()),
        "first_p50": lambda life: Asking(life.store.database.first_at, [bytes(16)] * 5),
    }
    for column, asking in ways.items():
        taken = latencies_of({name: asking(life) for name, life in lives.items()}, run.rounds)
        for name, one in taken.items():
            rows[name][column] = one.p50 / 1e3 if column == "scan" else one.p50
    return rows


def measure(run: Run) -> Iterator[Row]:
    """Yield a row for each step and strategy."""
    written, lives = run.scaled(_PER_STEP, 4), {}
    with ExitStack() as closing:
        for number, (name, (delete, repair)) in enumerate(STRATEGIES.items()):
            top = run.directory / f"{number}"
            store = ShrinkingRocks(top, _PER_LEDGER, written * _PER_LEDGER // 2)
            closing.callback(store.close)
            lives[name] = Life(store, [], delete, repair)
        for step in range(1, STEPS + 2):
            run.tell(f"step {step} of {STEPS + 1}")
            left = {}
            for name, life in lives.items():
                life.advance(step, written, run.seed)
                left[name] = life.left()
            for name, asked in _asked(run, lives).items():
                yield {"strategy": name, "step": step, **left[name], **asked}


def found(rows: Rows) -> list[str]:
    """Return what the rows come to, by the medians of the second half of the steps."""
    late = [row for row in rows if STEPS // 2 < row["step"] <= STEPS]
    end = {row["strategy"]: row for row in rows if row["step"] > STEPS}

    def usual(column: str, strategy: str) -> str:
        values = [row[column] for row in late if row["strategy"] == strategy]
        return shown(round(statistics.median(values)))

    ranged, points, nothing = "deleteRange", "point deletes", "nothing deleted"
    longest = {
        name: shown(max(row["first_p50"] for row in rows if row["strategy"] == name))
        for name in (ranged, points, nothing)
    }
    return [
        f"{usual('live', ranged)} rows are live. Their database takes {usual('kib', ranged)} KiB "
        f"by deleteRange, {usual('kib', 'deleteRange, compactRange')} compacted every {_EVERY} "
        f"steps, {usual('kib', 'deleteRange, rebuild')} rebuilt as often, "
        f"{usual('kib', points)} by point deletes; {usual('kib', nothing)} where nothing is "
        f"deleted.",
        f"Then all but {shown(end[ranged]['live'])} rows are deleted and nothing is written: "
        f"deleteRange leaves {shown(end[ranged]['kib'])} KiB, with compactRange "
        f"{shown(end['deleteRange, compactRange']['kib'])}, rebuilt "
        f"{shown(end['deleteRange, rebuild']['kib'])}; point deletes leave "
        f"{shown(end[points]['kib'])}.",
        f"Tombstones: {usual('tombstones', ranged)} by deleteRange, "
        f"{usual('tombstones', points)} by point deletes, {usual('tombstones', nothing)} where "
        f"nothing is deleted.",
        f"The first row behind the deleted ones takes up to {longest[points]} us after point "
        f"deletes, {longest[ranged]} after deleteRange, {longest[nothing]} where nothing is "
        f"deleted.",
    ]


EXPERIMENT = Experiment(
    name="deletes",
    question="What do deleted ledgers leave in RocksDB, and what takes it away?",
    method=(
        "Every step writes ledgers, deletes the oldest, repairs where it is due, and lets RocksDB "
        "compact until it has nothing to do. Half a step's rows and tombstones go into a table "
        "each time; no compaction begins before the end of a step, so that what is left is the "
        "same in every run. Tombstones, of rows and of ranges, are those of the tables' "
        "properties; bytes are those of the tables. A scan goes over all rows; the last "
        "entry is that of a live ledger, by one backward seek; the first row is looked for from "
        "the lowest key on, past what was deleted. Latencies are wall time, of each query the "
        "median of the rounds, in which the databases take turns."
    ),
    data=(
        f"A step writes {_PER_STEP} ledgers of {_PER_LEDGER} entries at scale 1 and leaves the "
        f"last {_LIVE_STEPS} steps' ledgers live; {STEPS} steps. Then all but {_LEFT} ledgers are "
        "deleted and nothing is written."
    ),
    columns=(
        Column("strategy", "deleted by", kind="given"),
        Column("step", "step", kind="given"),
        Column("live", "live rows", kind="count"),
        Column("rows", "rows scanned", kind="count"),
        Column("tombstones", "tombstones", kind="count"),
        Column("kib", "tables", "KiB", "count"),
        Column("scan", "scan of all", "ms"),
        Column("last_p50", "last entry, p50", "us"),
        Column("first_p50", "first row, p50", "us"),
    ),
    panels=(
        Panel("Bytes of the database", "step", "kib", "strategy"),
        Panel("Scan of all rows", "step", "scan", "strategy"),
        Panel("The first row, past what was deleted", "step", "first_p50", "strategy", log="y"),
        Panel("Last entry of a live ledger", "step", "last_p50", "strategy"),
    ),
    measure=measure,
    found=found,
)


if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
