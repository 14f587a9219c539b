"""Indexes and storages under load: `bkstore lab workload`. Threads run a mix of operations for some
time; latencies up to p99.99, the rate over time, CPU, bytes and space are measured."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import get_args

from bkstore.ids import LedgerId
from bkstore.lab.experiment import Experiment, LabRun, Panel, ResultColumn, Row, Rows
from bkstore.lab.experiments.layouts import INDEX_SIDES
from bkstore.lab.load_generator.clients import (
    FLUSH,
    SLICES,
    DrivenLoad,
    LoadPlan,
    SharedLedgers,
    run_load,
)
from bkstore.lab.load_generator.index_target import IndexTarget
from bkstore.lab.load_generator.key_draws import KEY_ORDERS, EntryKeys, entry_ids_of
from bkstore.lab.load_generator.latencies import require_hdrhistogram
from bkstore.lab.load_generator.operations import OPERATIONS, OperationMix
from bkstore.lab.load_generator.storage_target import StorageTarget
from bkstore.lab.load_generator.target import LoadTarget
from bkstore.lab.measuring.latencies_and_costs import WorkCost, measure_cost, measure_files
from bkstore.lab.number_format import as_text
from bkstore.lab.stores.chosen_sides import (
    ENTRY_POINTS,
    add_rocks_option,
    own_rocks_indexes,
    parse_index_class,
)
from bkstore.lab.stores.index_sides import IndexSide
from bkstore.storage.options import StorageKind

ENTRIES, _LEDGERS = 200_000, 100
_SECONDS, _FLUSH_ENTRIES, _BATCH_ENTRIES = 10.0, 20_000, 100
_DISK_INDEXES = {label: side for label, side in INDEX_SIDES.items() if not side.in_memory}
_STORAGES = get_args(StorageKind)

ALL = "all"
"""The operation of rows that are about all of them."""

_SUMMARIZED_POINTS = ("p50", "p99", "max")

OpenTarget = Callable[[Path], LoadTarget]


def _parse_positive_integer(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: not a whole number above 0")
    return int(text)


def _parse_seconds(text: str) -> float:
    """Return a number of seconds above 0."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0
    if not 0 < seconds < 1e6:
        raise argparse.ArgumentTypeError(f"{text}: not a number of seconds above 0")
    return seconds


def _parse_index(text: str) -> tuple[str, IndexSide]:
    """Return an index of the package or a user's class, by name; for argparse."""
    if text in _DISK_INDEXES:
        return text, _DISK_INDEXES[text]
    try:
        return parse_index_class(text)
    except argparse.ArgumentTypeError as error:
        known = ", ".join(map(repr, _DISK_INDEXES))
        raise argparse.ArgumentTypeError(f"{error}; the package has {known}") from None


def _add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this experiment to those of every experiment."""
    add = parser.add_argument
    known = ", ".join(repr(label) if " " in label else label for label in _DISK_INDEXES)
    add(
        "--index",
        "--side",
        metavar="INDEX",
        action="append",
        default=[],
        type=_parse_index,
        help=f"drive this index: {known}, MODULE:CLASS, or an entry point of {ENTRY_POINTS}; "
        "repeatable (default: both of the package, unless --storage or --rocks is given)",
    )
    add_rocks_option(parser)
    add(
        "--storage",
        metavar="KIND",
        action="append",
        default=[],
        choices=_STORAGES,
        help=f"drive a ledger storage: {', '.join(_STORAGES)}; repeatable",
    )
    add("--journal", action="store_true", help="with --storage: the bookie above, synced adds")
    add(
        "--ops",
        default="read,write",
        metavar="OP[,OP]",
        help="what clients do, of read (one entry), write (one, the next of a ledger), batch (a "
        "read of 100 in a row by one call), add (a write of 100 by one call) and delete (the "
        "oldest ledger); default: %(default)s",
    )
    add("--mix", metavar="N:N", help="shares of the operations, in their order (default: equal)")
    size_help = "bytes of an entry's payload (default: %(default)s)"
    add("--value-size", type=_parse_positive_integer, default=100, metavar="BYTES", help=size_help)
    keys_help = "what is read: by Zipf's law, uniformly, or along a stripe (default: %(default)s)"
    add("--keys", choices=KEY_ORDERS, default="zipf", help=keys_help)
    threads_help = "clients, each a thread (default: %(default)s)"
    add("--threads", type=_parse_positive_integer, default=1, metavar="N", help=threads_help)
    duration_help = f"of the run of each side (default: {_SECONDS:g} times the scale)"
    add("--duration", type=_parse_seconds, metavar="SECONDS", help=duration_help)


def _choose_targets(run: LabRun) -> dict[str, OpenTarget]:
    """Return by name the functions that open each side in an empty directory: the indexes of
    --index and --rocks and the storages of --storage, else both indexes of the package."""
    options = run.options
    value_size = options.value_size
    indexes: dict[str, IndexSide] = dict(options.index) | own_rocks_indexes(options)
    if not indexes and not options.storage:
        indexes = _DISK_INDEXES
    targets: dict[str, OpenTarget] = {
        label: partial(_open_index, side, value_size) for label, side in indexes.items()
    }
    for kind in options.storage:
        label = f"{kind} storage, journal" if options.journal else f"{kind} storage"
        targets[label] = partial(_open_storage, kind, value_size, options.journal)
    return targets


def _open_index(side: IndexSide, value_size: int, directory: Path) -> LoadTarget:
    assert side.open_index is not None
    return IndexTarget(side.open_index(directory, True), value_size)


def _open_storage(kind: StorageKind, value_size: int, journal: bool, directory: Path) -> LoadTarget:
    return StorageTarget(directory, kind, value_size, journal=journal)


def _make_plan(run: LabRun, mix: OperationMix) -> LoadPlan:
    """Return the load, the same for every side. Half of the ledgers are read and never deleted; the
    others are there to be deleted."""
    entries = max(run.scaled(ENTRIES, minimum=2_000) // _LEDGERS, 1)
    ledgers = [LedgerId(0, number) for number in range(_LEDGERS // 2)]
    options = run.options
    return LoadPlan(
        mix=mix,
        keys=EntryKeys(ledgers, entry_ids_of(options.keys, 0, entries)),
        key_order=options.keys,
        ledger_entries=entries,
        batch_entries=min(_BATCH_ENTRIES, entries),
        flush_entries=_FLUSH_ENTRIES,
        seconds=options.duration or _SECONDS * run.scale,
        clients=options.threads,
        seed=run.seed,
    )


def _fill(target: LoadTarget, plan: LoadPlan) -> SharedLedgers:
    """Write the ledgers that a run begins with, and flush. Return what the clients share: those of
    the ledgers that are not read, with their numbers of entries, may be deleted."""
    for number in range(_LEDGERS):
        target.write(target.prepare(LedgerId(0, number), plan.keys.entry_ids))
    target.flush()
    unread = [LedgerId(0, number) for number in range(len(plan.keys.ledgers), _LEDGERS)]
    return SharedLedgers([(ledger, plan.keys.entry_ids.size) for ledger in unread], _LEDGERS)


def measure(run: LabRun) -> Iterator[Row]:
    """Yield the rows of each side, an index or storage that gets the load: totals, latencies by
    operation, and rates over time."""
    require_hdrhistogram()
    mix = OperationMix.parse(run.options.ops, run.options.mix)
    plan, targets = _make_plan(run, mix), _choose_targets(run)
    run.expect_steps(2 * len(targets))
    for side, open_target in targets.items():
        directory = run.directory / "side"
        directory.mkdir()
        run.report_progress(f"{side}: writing {_LEDGERS} ledgers")
        target = open_target(directory)
        try:
            state = _fill(target, plan)
            run.report_progress(f"{side}: {mix}, for {plan.seconds:g} s")
            with measure_cost() as cost:
                result = run_load(target, plan, state)
            target.flush()
            disk_bytes = measure_files(directory).on_disk
        finally:
            target.close()
        yield _total_row(side, plan, target, result, cost, disk_bytes)
        yield from _operation_rows(side, mix, result, cost)
        yield from _rate_rows(side, plan, result)
        shutil.rmtree(directory)


def _total_row(
    side: str,
    plan: LoadPlan,
    target: LoadTarget,
    result: DrivenLoad,
    cost: WorkCost,
    disk_bytes: int,
) -> Row:
    """Return the row of a side as a whole: rate, CPU and bytes of an operation, and the size of the
    files as a multiple of the live entries' bytes ("amplification")."""
    operations = int(result.per_slice.sum())
    filled_entries = _LEDGERS * plan.keys.entry_ids.size  # written before the run
    live_entries = filled_entries + result.written_entries - result.deleted_entries
    return {
        "side": side,
        "operation": ALL,
        "point": "",
        "operations": operations,
        "rate": operations / cost.wall,
        "cpu": cost.cpu / operations * 1e6,
        "cores": cost.cpu / cost.wall,
        "read": None if cost.read is None else cost.read / operations,
        "written": None if cost.written is None else cost.written / operations,
        "live": live_entries,
        "amplification": disk_bytes / (live_entries * target.row_bytes),
    }


def _operation_rows(
    side: str, mix: OperationMix, result: DrivenLoad, cost: WorkCost
) -> Iterator[Row]:
    """Yield for each operation of one side (an index or storage that got the load) a row with its
    rate, then a row for each percentile of its latency, such as "p99"."""
    # Writes happen even if the mix has none: a delete becomes a write where no ledger is left.
    for operation in dict.fromkeys((*mix.names, "write", FLUSH)):
        if operation not in result.histograms:  # it was too rare to happen in this time
            continue
        histogram = result.histograms[operation]
        key = {"side": side, "operation": operation}
        yield {
            **key,
            "point": "",
            "operations": histogram.count,
            "rate": histogram.count / cost.wall,
            "histogram": histogram.encode(),
        }
        for percentile, microseconds in histogram.percentiles_us().items():
            yield {**key, "point": percentile, "latency": microseconds}


def _rate_rows(side: str, plan: LoadPlan, result: DrivenLoad) -> Iterator[Row]:
    """Yield a row for each of the `SLICES` equal parts of the run's time: the rate in it."""
    slice_seconds = plan.seconds / SLICES
    for number, operations in enumerate(result.per_slice.tolist()):
        yield {
            "side": side,
            "operation": ALL,
            "point": f"{number + 1} of {SLICES}",
            "second": (number + 1) * slice_seconds,
            "rate_then": operations / slice_seconds,
        }


def summarize(rows: Rows) -> list[str]:
    """Return a sentence for each side, and one for each operation, which compares the sides."""
    return [*_summarize_sides(rows), *_summarize_operations(rows)]


def _summarize_sides(rows: Rows) -> Iterator[str]:
    """Yield a sentence per side: its rate, and what an operation costs."""
    for total in (row for row in rows if row["operation"] == ALL and not row["point"]):
        written_bytes = total["written"]  # of an operation; None if the system does not count them
        written = "" if written_bytes is None else f"{as_text(written_bytes)} bytes written, "
        yield (
            f"{total['side']}: {as_text(total['rate'])} operations a second; an operation takes "
            f"{as_text(total['cpu'])} us of CPU, {written}and the files have "
            f"{as_text(total['amplification'])} times the bytes of the live entries."
        )


def _summarize_operations(rows: Rows) -> Iterator[str]:
    """Yield a sentence for each operation: its latency on each side (an index or a storage) at some
    percentiles. The column "point" of such a row is a percentile, such as "p99"."""
    timed = [row for row in rows if row["latency"] is not None]
    for operation in dict.fromkeys(row["operation"] for row in timed):
        phrases = []
        for percentile in _SUMMARIZED_POINTS:
            latencies = [
                f"{as_text(row['latency'])} us ({row['side']})"
                for row in timed
                if row["operation"] == operation and row["point"] == percentile
            ]
            if latencies:
                phrases.append(f"{percentile} {', '.join(latencies)}")
        yield f"Latency of {operation}: {'; '.join(phrases)}."


EXPERIMENT = Experiment(
    name="workload",
    question="What does an index or a storage bear, and how late are its slowest answers?",
    method=(
        "Each side is filled and flushed, then every client, a thread, runs operations one after "
        "the other for the duration: each begins when the one before has ended, so that a stall "
        "delays those behind it without being counted for them. A latency is that of the call "
        "alone; rates are by the clock, and include what clients take to choose keys and to "
        "encode records. After 20,000 entries the client that wrote the last of them flushes, "
        "which is counted as an operation of its own. CPU, and bytes given to and asked of the "
        "system (wchar, rchar of /proc/self/io), are those of the process, clients included. "
        "Space is what all files have allocated after a last flush, by the bytes of live entries: "
        "24 in an index (ledger, entry, location), the record in a storage. Latencies are kept in "
        "HdrHistograms of three digits, which the JSON has."
    ),
    data=(
        "100 ledgers of 2,000 entries at scale 1. The first half is read, and never deleted; "
        "deletes take the others, then those that clients have filled. Batches have 100 entries. "
        "With keys by stripe, ledgers have 2 of 3 entries, and clients read them in order."
    ),
    columns=(
        ResultColumn("side", "side", kind="given"),
        ResultColumn("operation", "operation", kind="given"),
        ResultColumn("point", "percentile or time", kind="given"),
        ResultColumn("operations", "operations", kind="told"),
        ResultColumn("rate", "rate", "operations/s"),
        ResultColumn("latency", "latency", "us"),
        ResultColumn("second", "time", "s", "told"),
        ResultColumn("rate_then", "rate at the time", "operations/s", "told"),
        ResultColumn("cpu", "CPU", "us an operation"),
        ResultColumn("cores", "cores busy", "cores"),
        ResultColumn("read", "asked of the system", "bytes an operation"),
        ResultColumn("written", "given to the system", "bytes an operation"),
        ResultColumn("live", "live entries", kind="told"),
        ResultColumn("amplification", "space on disk", "times the bytes of live entries"),
        ResultColumn("histogram", "histogram", kind="kept"),
    ),
    panels=(
        Panel("Rate over time", "second", "rate_then", "side"),
        *(
            Panel(
                f"Latency of {operation}",
                "point",
                "latency",
                "side",
                where={"operation": operation},
                log="y",
                label="percentile",
            )
            for operation in (*OPERATIONS, FLUSH)
        ),
        Panel("Rate", "operation", "rate", "side", log="y"),
        Panel("CPU", "side", "cpu"),
        Panel("Bytes given to the system", "side", "written"),
        Panel("Space on disk", "side", "amplification"),
    ),
    measure=measure,
    summarize=summarize,
    add_options=_add_options,
    compared_by=("side",),
)
