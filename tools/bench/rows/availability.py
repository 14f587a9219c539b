"""Rows: availability from index files, its encoding, and missing entries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from bkstore import schedule
from bkstore.availability import Availability
from bkstore.ids import Int64Array
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.lab.stores.bitmaps import build_bitmap, serialize_bitmap
from tools.bench.cases import BenchmarkRow, Case, Cases, Context, Fact, FactCase, TimedSide
from tools.bench.inputs.entry_ids import idx_index, stored_ids
from tools.bench.inputs.own_memory import peak_allocated


def _idx_availability_cases(context: Context) -> Cases:
    entry_count = context.scaled(1_000_000)
    rng = np.random.default_rng(context.seed)
    shapes: dict[str, Int64Array] = {  # of about `entry_count` entries each
        "contiguous": np.arange(entry_count),
        "striped 2 of 3": stored_ids(entry_count, 3, 2),
        "10 % holes": np.flatnonzero(rng.random(entry_count * 10 // 9) < 0.9),
    }
    with idx_index(context, dict(enumerate(shapes.values()))) as index:
        for ledger, (name, ids) in enumerate(shapes.items()):
            yield _idx_case(index, ledger, name, ids.size)


def _idx_case(index: HierarchicalIndex, ledger: int, name: str, count: int) -> Case:
    path = index.path(ledger)
    assert path is not None
    ours = TimedSide("HierarchicalIndex.availability", lambda: index.availability(ledger))
    words = TimedSide("np.fromfile", lambda: np.fromfile(path, np.int64))
    limit = None if name == "10 % holes" else 2.5
    shape = f"{count} entries, {name}"
    return Case(name, count, shape, ours, (words,), limit=limit, kind="cost")


def _round_trip(ids: Int64Array) -> Availability:
    return Availability.from_bytes(Availability.from_entries(ids).to_bytes())


def _encoding_cases(context: Context) -> Cases:
    ids = stored_ids(context.scaled(1_000_000), 3, 2)
    pyroaring = context.import_optional("pyroaring")
    shape = f"{ids.size} stored ids of a 2-of-3 stripe, int64 array"
    byte_count = len(Availability.from_entries(ids).to_bytes())
    bkstore_bytes = Fact("encoded bytes", byte_count, target="88", holds=byte_count == 88)
    if pyroaring is None:
        yield FactCase("encode and decode", ids.size, shape, lambda: [bkstore_bytes])
    else:
        bitmap_size = len(serialize_bitmap(build_bitmap(pyroaring, ids)))
        sizes = [bkstore_bytes, Fact("pyroaring bytes", bitmap_size)]
        yield from _pyroaring_cases(pyroaring, ids, shape, sizes)


def _pyroaring_cases(pyroaring: Any, ids: Int64Array, shape: str, sizes: list[Fact]) -> Cases:
    def round_trip(bitmap: Any) -> Any:
        return pyroaring.BitMap.deserialize(serialize_bitmap(bitmap))

    def from_array() -> Any:
        return round_trip(build_bitmap(pyroaring, ids))

    ours = TimedSide("from_entries, to_bytes, from_bytes", lambda: _round_trip(ids))
    bitmaps = (
        TimedSide("BitMap(array('I')), conversion included", from_array),
        TimedSide("BitMap(int64 array)", lambda: round_trip(pyroaring.BitMap(ids))),
    )
    yield Case("encode and decode", ids.size, shape, ours, bitmaps, limit=5, facts=lambda: sizes)
    ours = TimedSide("..., entries()", lambda: _round_trip(ids).entries())
    to_array = TimedSide("..., to_array()", lambda: from_array().to_array())
    shape = "the same, the decoded answer expanded to an array of ids"
    yield Case("and back to ids", ids.size, shape, ours, (to_array,))


def _mask_difference(expected: Int64Array, stored: Int64Array) -> Int64Array:
    mask = np.zeros(int(expected[-1]) + 1, np.bool_)
    mask[expected] = True
    mask[stored] = False
    return np.flatnonzero(mask)


def _missing_entry_cases(context: Context) -> Cases:
    entry_count = context.scaled(10_000_000)
    expected = schedule.expected(0, entry_count - 1, 1, ensemble_size=3, write_quorum=2)
    rng = np.random.default_rng(context.seed)
    lost = Availability.from_entries(rng.choice(expected.entries(), 6, replace=False))
    pyroaring = context.import_optional("pyroaring")
    for name, stored in (("none lost", expected), ("6 lost", expected - lost)):
        yield from _cases_of_loss(pyroaring, name, entry_count, expected, stored)


def _cases_of_loss(
    pyroaring: Any, name: str, entry_count: int, expected: Availability, stored: Availability
) -> Iterator[Case]:
    due_ids, stored_ids = expected.entries(), stored.entries()
    due_set, stored_set = set(due_ids.tolist()), set(stored_ids.tolist())
    ours = TimedSide("Availability.missing, entries", lambda: stored.missing(expected).entries())
    differences = (
        TimedSide("np.setdiff1d", lambda: np.setdiff1d(due_ids, stored_ids, assume_unique=True)),
        TimedSide("Python sets", lambda: due_set - stored_set),
    )
    mask = TimedSide("boolean mask", lambda: _mask_difference(due_ids, stored_ids))
    count = due_ids.size
    shape = f"{entry_count} entries, 2-of-3 stripe: {count} expected at one bookie, {name}"

    def peaks() -> list[Fact]:
        peak, target = peak_allocated(ours.run), "O(groups): < 100 kB at any size"
        return [
            Fact("peak bytes, missing", peak, target, holds=peak < 100_000),
            Fact("peak bytes, boolean mask", peak_allocated(mask.run)),
            Fact("peak bytes, np.setdiff1d", peak_allocated(differences[0].run)),
            Fact("sequence groups", len(stored.groups)),
        ]

    yield Case(name, count, shape, ours, differences, limit=100, facts=peaks)
    yield Case(f"{name}, mask", count, shape, ours, (mask,))
    if pyroaring is not None:
        due, held = (build_bitmap(pyroaring, ids) for ids in (due_ids, stored_ids))
        bitmaps = TimedSide("BitMap difference, to_array", lambda: (due - held).to_array())
        yield Case(f"{name}, pyroaring", count, shape, ours, (bitmaps,))


ROWS = (
    BenchmarkRow(
        "idx-availability",
        "availability of a flushed ledger, idx",
        "Ours: HierarchicalIndex.availability on an index opened for reading, its file open. "
        "Baseline: np.fromfile of the same file (open, read into a new array, close). Both from "
        "the page cache. Ours returns the condensed answer, the baseline raw words.",
        _idx_availability_cases,
    ),
    BenchmarkRow(
        "encoding",
        "encode and decode the stored ids of a stripe",
        "All sides begin with the same int64 array and end with a decoded compressed set. Ours: "
        "Availability.from_entries, to_bytes, from_bytes. Baseline: BitMap made, run_optimize, "
        "serialize, deserialize; made from the int64 array, and through array('I') with the "
        "conversion from int64 included, which is the fastest way in that was found. The faster "
        "counts. Without pyroaring there are the bytes alone.",
        _encoding_cases,
    ),
    BenchmarkRow(
        "missing",
        "missing entries of a striped ledger",
        "Each side begins with both sets in its own form, made before: sequence groups, sorted "
        "int64 arrays (np.setdiff1d with assume_unique, several times faster than without), "
        "Python sets. Ours includes the expansion of the answer to ids. The faster of setdiff1d "
        "and sets counts; a boolean mask over the range, which is faster than both, is shown "
        "beside them, and so are bitmaps of pyroaring, made before. Peak memory by tracemalloc, "
        "inputs not included.",
        _missing_entry_cases,
    ),
)
