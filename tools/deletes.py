"""What deleting ledgers leaves in RocksDB, by how it is done: `python -m tools.deletes`.

Each step writes ledgers and deletes the oldest, so that as many are live as before. A real
bookie's index went from 46 GB to 199 MB when it was rebuilt.
"""

from __future__ import annotations

import re
import shutil
import statistics
from collections.abc import Callable, Iterator

from bkstore.ids import LedgerId
from bkstore.index.rocks.keys import ledger_range
from tools.lab import Column, Experiment, Panel, Row, Run, main
from tools.lab.experiment import Rows
from tools.lab.samples import ROWS, files_below, latency, spending
from tools.lab.stores.shrinking_rocks import ShrinkingRocks
from tools.lab.table import shown

__all__ = ["EXPERIMENT", "STRATEGIES"]

PER_STEP, PER_LEDGER, LIVE_STEPS, STEPS, EVERY = 40, 500, 2, 12, 4
"""Ledgers of a step, entries of each, steps that stay live, steps, steps between repairs."""

LEFT = 2
"""Ledgers that are left in the last step, in which nothing is written."""

ROW = 24  # bytes of a key and a location
_DELETIONS = re.compile(r"# (range )?deletions=(\d+)")


Deleting = Callable[[ShrinkingRocks, LedgerId], None]
STRATEGIES: dict[str, tuple[Deleting | None, Callable[[ShrinkingRocks], None] | None]] = {
    "nothing deleted": (None, None),
    "deleteRange": (ShrinkingRocks.delete_by_range, None),
    "point deletes": (ShrinkingRocks.delete_by_row, None),
    "deleteRange, compactRange": (ShrinkingRocks.delete_by_range, ShrinkingRocks.compact),
    "deleteRange, rebuild": (ShrinkingRocks.delete_by_range, ShrinkingRocks.rebuild),
}
"""How a ledger is deleted, and what is done every fourth step."""


def _step(run: Run, store: ShrinkingRocks, step: int, live: list[LedgerId]) -> Row:
    """Return what a step finds: rows, tombstones, bytes, how long questions take."""
    text = store.database.property("aggregated-table-properties")
    points, ranges = 0, 0
    for is_range, number in _DELETIONS.findall(text):
        points, ranges = (points, int(number)) if is_range else (int(number), ranges)
    top = b"\xff" * 16
    with spending() as scan:
        rows = sum(len(keys) for keys, _ in store.database.items(b"", top, 16, 1 << 16))
    newest = [live[-1 - at % len(live)] for at in range(50)]
    last = latency(lambda one: store.database.last_below(ledger_range(one)[1]), newest, run.rounds)
    first = latency(lambda _: store.database.first_at(bytes(16)), range(5), run.rounds)
    return {
        "step": step,
        "live": len(live) * PER_LEDGER,
        "rows": rows,
        "tombstones": points + ranges,
        "kib": files_below(store.top, ROWS).bytes / 1024,
        "scan": scan.wall * 1e3,
        "last_p50": last.p50,
        "first_p50": first.p50,
    }


def _life(run: Run, name: str) -> Iterator[Row]:
    """Yield a row a step; in the last one nothing is written and nearly all is deleted."""
    delete, repair = STRATEGIES[name]
    written = run.scaled(PER_STEP, 4)
    top = run.directory / "database"
    store = ShrinkingRocks(top, PER_LEDGER, max(written * PER_LEDGER * ROW // 2, 64 << 10))
    live: list[LedgerId] = []
    for step in range(1, STEPS + 2):
        keep = LIVE_STEPS * written if step <= STEPS else LEFT
        for at in range(written if step <= STEPS else 0):
            live.append(LedgerId(0, step * written + at))
            store.put(live[-1], run.seed)
        for ledger in live[:-keep] if delete is not None else ():
            assert delete is not None
            delete(store, ledger)
        live = live if delete is None else live[-keep:]
        if repair is not None and (step % EVERY == 0 or step > STEPS):
            repair(store)
        store.settle()
        yield {"strategy": name, **_step(run, store, step, live)}
    store.database.close()
    shutil.rmtree(top)


def measure(run: Run) -> Iterator[Row]:
    """Yield a row for each strategy and step."""
    for name in STRATEGIES:
        run.tell(name)
        yield from _life(run, name)


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
        f"by deleteRange, {usual('kib', 'deleteRange, compactRange')} compacted every {EVERY} "
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
        "Every step writes ledgers, deletes the oldest, repairs where it is due, and closes and "
        "opens the database, so that everything is in table files. Tombstones are those of the "
        "tables' properties; bytes are those of table files and logs. A scan goes "
        "over all rows; the last entry is that of a live ledger, by one backward seek; the first "
        "row is looked for from the lowest key on, past what was deleted. Latencies are wall "
        "time, of each query the median of the rounds. The write buffer is half a step's rows, so "
        "that there are several levels."
    ),
    data=(
        f"A step writes {PER_STEP} ledgers of {PER_LEDGER} entries at scale 1 and leaves the last "
        f"{LIVE_STEPS} steps' ledgers live; {STEPS} steps. Then all but {LEFT} ledgers are deleted "
        "and nothing is written."
    ),
    columns=(
        Column("strategy", "deleted by", kind="given"),
        Column("step", "step", kind="given"),
        Column("live", "live rows", kind="count"),
        Column("rows", "rows scanned", kind="count"),
        Column("tombstones", "tombstones"),
        Column("kib", "files", "KiB"),
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
