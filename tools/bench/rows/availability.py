"""Rows: availability from index files, encoding, and missing entries."""

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
from tools.bench.inputs.entry_ids import held_ids, idx_index
from tools.bench.measure import Case, Context, Fact, Figures, Row, Side
from tools.lab.bitmaps import build_bitmap, serialize_bitmap


@contextmanager
def _idx_availability(context: Context) -> Iterator[list[Case]]:
    n = context.scaled(1_000_000)
    rng = np.random.default_rng(context.seed)
    holes = np.flatnonzero(rng.random(n * 10 // 9) < 0.9)
    shapes: dict[str, Int64Array] = {
        "contiguous": np.arange(n),
        "striped 2 of 3": held_ids(n, 3, 2),
        "10 % holes": holes,
    }
    with idx_index(context, dict(enumerate(shapes.values()))) as index:
        yield [
            _idx_case(index, ledger, name, ids, name != "10 % holes")
            for ledger, (name, ids) in enumerate(shapes.items())
        ]


def _idx_case(
    index: HierarchicalIndex, ledger: int, name: str, ids: Int64Array, judged: bool
) -> Case:
    path = index.path(ledger)
    assert path is not None
    return Case(
        name,
        ids.size,
        f"{ids.size} entries, {name}",
        Side("HierarchicalIndex.availability", lambda: index.availability(ledger)),
        (Side("np.fromfile", lambda: np.fromfile(path, np.int64)),),
        2.5 if judged else None,
        "cost",
    )


def _grouped(ids: Int64Array) -> Availability:
    return Availability.from_bytes(Availability.from_entries(ids).to_bytes())


@contextmanager
def _encoding(context: Context) -> Iterator[list[Case | Figures]]:
    ids = held_ids(context.scaled(1_000_000), 3, 2)
    module = context.peer("pyroaring")
    shape = f"{ids.size} stored ids of a 2-of-3 stripe, int64 array"
    data = Availability.from_entries(ids).to_bytes()
    size = Fact("encoded bytes", len(data), "88", len(data) == 88)
    if module is None:
        yield [Figures("encode and decode", ids.size, shape, lambda: [size])]
    else:
        theirs = Fact("pyroaring bytes", len(serialize_bitmap(build_bitmap(module, ids))))
        yield _encoding_cases(module, ids, shape, [size, theirs])


def _encoding_cases(
    module: Any, ids: Int64Array, shape: str, sizes: list[Fact]
) -> list[Case | Figures]:
    def whole(bitmap: Any) -> Any:
        return module.BitMap.deserialize(serialize_bitmap(bitmap))

    fast = Side("BitMap(array('I')), conversion included", lambda: whole(build_bitmap(module, ids)))
    plain = Side("BitMap(int64 array)", lambda: whole(module.BitMap(ids)))
    back = Side("..., to_array()", lambda: whole(build_bitmap(module, ids)).to_array())
    return [
        Case(
            "encode and decode",
            ids.size,
            shape,
            Side("from_entries, to_bytes, from_bytes", lambda: _grouped(ids)),
            (fast, plain),
            5,
            facts=lambda: sizes,
        ),
        Case(
            "and back to ids",
            ids.size,
            "the same, the decoded answer expanded to an array of ids",
            Side("..., entries()", lambda: _grouped(ids).entries()),
            (back,),
        ),
    ]


def _mask_difference(expected: Int64Array, here: Int64Array) -> Int64Array:
    mask = np.zeros(int(expected[-1]) + 1, np.bool_)
    mask[expected] = True
    mask[here] = False
    return np.flatnonzero(mask)


@contextmanager
def _missing(context: Context) -> Iterator[Iterable[Case]]:
    n = context.scaled(10_000_000)
    expected = schedule.expected(0, n - 1, 1, 3, 2)
    rng = np.random.default_rng(context.seed)
    lost = Availability.from_entries(rng.choice(expected.entries(), 6, replace=False))
    module = context.peer("pyroaring")
    yield (
        case
        for name, here in (("none lost", expected), ("6 lost", expected - lost))
        for case in _missing_cases(module, name, n, expected, here)
    )


def _missing_cases(
    module: Any, name: str, n: int, expected: Availability, here: Availability
) -> Iterator[Case]:
    all_ids, ids = expected.entries(), here.entries()
    all_set, set_ = set(all_ids.tolist()), set(ids.tolist())
    ours = Side("Availability.missing, entries", lambda: here.missing(expected).entries())
    differences = (
        Side("np.setdiff1d", lambda: np.setdiff1d(all_ids, ids, assume_unique=True)),
        Side("Python sets", lambda: all_set - set_),
    )
    mask = Side("boolean mask", lambda: _mask_difference(all_ids, ids))
    shape = f"{n} entries, 2-of-3 stripe: {all_ids.size} expected at one bookie, {name}"

    def peaks() -> list[Fact]:
        ours_peak, mask_peak = _peak_bytes(ours), _peak_bytes(mask)
        small = ours_peak < 100_000
        return [
            Fact("peak bytes, missing", ours_peak, "O(groups): < 100 kB at any size", small),
            Fact("peak bytes, boolean mask", mask_peak),
            Fact("peak bytes, np.setdiff1d", _peak_bytes(differences[0])),
            Fact("sequence groups", len(here.groups)),
        ]

    yield Case(name, all_ids.size, shape, ours, differences, 100, facts=peaks)
    yield Case(f"{name}, mask", all_ids.size, shape, ours, (mask,))
    if module is not None:
        all_bits, bits = build_bitmap(module, all_ids), build_bitmap(module, ids)
        bitmaps = Side("BitMap difference, to_array", lambda: (all_bits - bits).to_array())
        yield Case(f"{name}, pyroaring", all_ids.size, shape, ours, (bitmaps,))


def _peak_bytes(side: Side) -> int:
    tracemalloc.start()
    side.run()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


ROWS = (
    Row(
        "idx-availability",
        "availability of a flushed ledger, idx",
        "Ours: HierarchicalIndex.availability on an index opened for reading, its file open. "
        "Baseline: np.fromfile of the same file (open, read into a new array, close). Both from "
        "the page cache. Ours returns the condensed answer, the baseline raw words.",
        _idx_availability,
    ),
    Row(
        "encoding",
        "encode and decode the stored ids of a stripe",
        "All sides begin with the same int64 array and end with a decoded compressed set. Ours: "
        "Availability.from_entries, to_bytes, from_bytes. Baseline: BitMap made, run_optimize, "
        "serialize, deserialize; made from the int64 array, and through array('I') with the "
        "conversion from int64 included, which is the fastest way in that was found. The faster "
        "counts. Without pyroaring there are the bytes alone.",
        _encoding,
    ),
    Row(
        "missing",
        "missing entries of a striped ledger",
        "Each side begins with both sets in its own form, made before: sequence groups, sorted "
        "int64 arrays (np.setdiff1d with assume_unique, several times faster than without), "
        "Python sets. Ours includes the expansion of the answer to ids. The faster of setdiff1d "
        "and sets counts; a boolean mask over the range, which is faster than both, is shown "
        "beside them, and so are bitmaps of pyroaring, made before. Peak memory by tracemalloc, "
        "inputs not included.",
        _missing,
    ),
)
