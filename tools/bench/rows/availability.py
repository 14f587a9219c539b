"""Rows: availability from index files, its encoding, and missing entries."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from bkstore import schedule
from bkstore.availability import Availability
from bkstore.ids import Int64Array
from bkstore.index.hierarchical import HierarchicalIndex
from tools.bench.inputs.entry_ids import idx_index, stored_ids
from tools.bench.measure import BenchmarkRow, Case, Context, Fact, FactCase, TimedSide
from tools.lab.bitmaps import build_bitmap, serialize_bitmap


@contextmanager
def _idx_availability_cases(context: Context) -> Iterator[list[Case]]:
    entry_count = context.scaled(1_000_000)
    rng = np.random.default_rng(context.seed)
    holes = np.flatnonzero(rng.random(entry_count * 10 // 9) < 0.9)
    shapes: dict[str, Int64Array] = {
        "contiguous": np.arange(entry_count),
        "striped 2 of 3": stored_ids(entry_count, 3, 2),
        "10 % holes": holes,
    }
    with idx_index(context, dict(enumerate(shapes.values()))) as index:
        yield [
            _idx_case(index, ledger, name, ids, name != "10 % holes")
            for ledger, (name, ids) in enumerate(shapes.items())
        ]


def _idx_case(
    index: HierarchicalIndex, ledger: int, name: str, ids: Int64Array, has_limit: bool
) -> Case:
    path = index.path(ledger)
    assert path is not None
    return Case(
        name,
        ids.size,
        f"{ids.size} entries, {name}",
        TimedSide("HierarchicalIndex.availability", lambda: index.availability(ledger)),
        (TimedSide("np.fromfile", lambda: np.fromfile(path, np.int64)),),
        2.5 if has_limit else None,
        "cost",
    )


def _round_trip(ids: Int64Array) -> Availability:
    return Availability.from_bytes(Availability.from_entries(ids).to_bytes())


@contextmanager
def _encoding_rows(context: Context) -> Iterator[list[Case | FactCase]]:
    ids = stored_ids(context.scaled(1_000_000), 3, 2)
    pyroaring = context.import_optional("pyroaring")
    shape = f"{ids.size} stored ids of a 2-of-3 stripe, int64 array"
    data = Availability.from_entries(ids).to_bytes()
    bkstore_bytes = Fact("encoded bytes", len(data), "88", len(data) == 88)
    if pyroaring is None:
        yield [FactCase("encode and decode", ids.size, shape, lambda: [bkstore_bytes])]
    else:
        pyroaring_bytes = Fact(
            "pyroaring bytes", len(serialize_bitmap(build_bitmap(pyroaring, ids)))
        )
        yield _encoding_cases(pyroaring, ids, shape, [bkstore_bytes, pyroaring_bytes])


def _encoding_cases(
    pyroaring: Any, ids: Int64Array, shape: str, sizes: list[Fact]
) -> list[Case | FactCase]:
    def round_trip(bitmap: Any) -> Any:
        return pyroaring.BitMap.deserialize(serialize_bitmap(bitmap))

    from_array = TimedSide(
        "BitMap(array('I')), conversion included", lambda: round_trip(build_bitmap(pyroaring, ids))
    )
    from_ids = TimedSide("BitMap(int64 array)", lambda: round_trip(pyroaring.BitMap(ids)))
    back_to_ids = TimedSide(
        "..., to_array()", lambda: round_trip(build_bitmap(pyroaring, ids)).to_array()
    )
    return [
        Case(
            "encode and decode",
            ids.size,
            shape,
            TimedSide("from_entries, to_bytes, from_bytes", lambda: _round_trip(ids)),
            (from_array, from_ids),
            5,
            facts=lambda: sizes,
        ),
        Case(
            "and back to ids",
            ids.size,
            "the same, the decoded answer expanded to an array of ids",
            TimedSide("..., entries()", lambda: _round_trip(ids).entries()),
            (back_to_ids,),
        ),
    ]


def _mask_difference(expected: Int64Array, stored: Int64Array) -> Int64Array:
    mask = np.zeros(int(expected[-1]) + 1, np.bool_)
    mask[expected] = True
    mask[stored] = False
    return np.flatnonzero(mask)


@contextmanager
def _missing_entry_cases(context: Context) -> Iterator[Iterable[Case]]:
    entry_count = context.scaled(10_000_000)
    expected = schedule.expected(0, entry_count - 1, 1, 3, 2)
    rng = np.random.default_rng(context.seed)
    lost = Availability.from_entries(rng.choice(expected.entries(), 6, replace=False))
    pyroaring = context.import_optional("pyroaring")
    yield (
        case
        for name, stored in (("none lost", expected), ("6 lost", expected - lost))
        for case in _cases_of_loss(pyroaring, name, entry_count, expected, stored)
    )


def _cases_of_loss(
    pyroaring: Any, name: str, entry_count: int, expected: Availability, stored: Availability
) -> Iterator[Case]:
    expected_ids, present_ids = expected.entries(), stored.entries()
    expected_set, stored_set = set(expected_ids.tolist()), set(present_ids.tolist())
    ours = TimedSide("Availability.missing, entries", lambda: stored.missing(expected).entries())
    differences = (
        TimedSide(
            "np.setdiff1d", lambda: np.setdiff1d(expected_ids, present_ids, assume_unique=True)
        ),
        TimedSide("Python sets", lambda: expected_set - stored_set),
    )
    mask = TimedSide("boolean mask", lambda: _mask_difference(expected_ids, present_ids))
    shape = (
        f"{entry_count} entries, 2-of-3 stripe: {expected_ids.size} expected at one bookie, {name}"
    )

    def peaks() -> list[Fact]:
        ours_peak, mask_peak = _peak_bytes(ours), _peak_bytes(mask)
        is_small = ours_peak < 100_000
        return [
            Fact("peak bytes, missing", ours_peak, "O(groups): < 100 kB at any size", is_small),
            Fact("peak bytes, boolean mask", mask_peak),
            Fact("peak bytes, np.setdiff1d", _peak_bytes(differences[0])),
            Fact("sequence groups", len(stored.groups)),
        ]

    yield Case(name, expected_ids.size, shape, ours, differences, 100, facts=peaks)
    yield Case(f"{name}, mask", expected_ids.size, shape, ours, (mask,))
    if pyroaring is not None:
        expected_bits, stored_bits = (
            build_bitmap(pyroaring, expected_ids),
            build_bitmap(pyroaring, present_ids),
        )
        bitmaps = TimedSide(
            "BitMap difference, to_array", lambda: (expected_bits - stored_bits).to_array()
        )
        yield Case(f"{name}, pyroaring", expected_ids.size, shape, ours, (bitmaps,))


def _peak_bytes(side: TimedSide) -> int:
    tracemalloc.start()
    side.run()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


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
        _encoding_rows,
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
