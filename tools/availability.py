"""Forms of "which entries are here", by pattern: `python -m tools.availability`.

Sequence groups as BP-34 designed them, the same as BookKeeper builds them, a bit vector, a
roaring bitmap (pyroaring, where it is installed).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from bkstore import Availability, schedule
from bkstore.ids import Int64Array
from bkstore.testing import generators
from tools.lab import Column, Experiment, Panel, Row, Run, main
from tools.lab.bitmaps import bitmap_of, encoded
from tools.lab.experiment import Rows
from tools.lab.sides import Side, sample
from tools.lab.table import shown

ENTRIES = 300_000

PATTERNS: dict[str, Callable[[int, int], Int64Array]] = {
    "all": lambda n, _: generators.contiguous(n),
    "2 of 3": lambda n, _: generators.striped(n - 1, 1, 3, 2),
    "3 of 5": lambda n, _: generators.striped(n - 1, 1, 5, 3),
    "2 of 3, 0.1 % lost": lambda n, s: _lost(generators.striped(n - 1, 1, 3, 2), 0.001, s),
    "2 of 3, 1 % lost": lambda n, s: _lost(generators.striped(n - 1, 1, 3, 2), 0.01, s),
    "10 % lost": lambda n, s: _lost(generators.contiguous(n), 0.1, s),
    "half lost": lambda n, s: _lost(generators.contiguous(n), 0.5, s),
    "1 in 100": lambda n, s: generators.sparse(n // 100, n, s),
}
"""Which of n entries a bookie has, by the stripe (W of E) and by what got lost."""


def _lost(entries: Int64Array, rate: float, seed: int) -> Int64Array:
    return generators.with_holes(entries, rate, seed)


class _Form(NamedTuple):
    """A way to say it: ids to bytes, bytes to what can be asked, and how many are missing."""

    encode: Callable[[Int64Array], bytes]
    decode: Callable[[bytes], object]
    missing: Callable[[object, int], int]


def _groups_missing(held: object, count: int) -> int:
    assert isinstance(held, Availability)
    return len(held.missing(schedule.expected(0, count - 1, 0, 1, 1)))


def _to_bits(ids: Int64Array) -> bytes:
    mask = np.zeros(int(ids[-1]) + 1, np.bool_)
    mask[ids] = True
    return np.packbits(mask, bitorder="little").tobytes()


def _bits_missing(held: object, count: int) -> int:
    assert isinstance(held, np.ndarray)
    return count - int(np.count_nonzero(held))


FORMS = {
    "grouped": _Form(
        lambda ids: Availability.from_entries(ids).to_bytes(),
        Availability.from_bytes,
        _groups_missing,
    ),
    "as built": _Form(
        lambda ids: Availability.from_entries(ids).to_bytes("bookkeeper"),
        Availability.from_bytes,
        _groups_missing,
    ),
    "bit vector": _Form(
        _to_bits,
        lambda data: np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little"),
        _bits_missing,
    ),
}
"""What bkstore can say it in, and plain bits."""


def roaring(module: Any) -> _Form:
    """Return the form of pyroaring's bitmaps, made by its fast way in."""

    def missing(held: object, count: int) -> int:
        return len(module.BitMap(range(count)) - held)

    return _Form(lambda ids: encoded(bitmap_of(module, ids)), module.BitMap.deserialize, missing)


def _rows(
    run: Run, pattern: str, forms: dict[str, _Form], ids: Int64Array, count: int
) -> Iterator[Row]:
    """Yield a row for each form, all measured beside each other."""
    sides: list[Side] = []
    known: dict[str, tuple[bytes, object]] = {}
    for name, form in forms.items():
        data = form.encode(ids)
        held = form.decode(data)
        if form.missing(held, count) != count - ids.size:
            raise RuntimeError(f"{name}, {pattern}: not {count - ids.size} missing")
        known[name] = data, held
        sides += _sides(form, ids, data, held, count)
    taken = iter(sample(sides, run.rounds, run.shortest))
    for name, (data, held) in known.items():
        yield {
            "pattern": pattern,
            "form": name,
            "entries": int(ids.size),
            "groups": len(held.groups) if isinstance(held, Availability) else None,
            "bytes": len(data),
            "encode": next(taken).seconds * 1e3,
            "decode": next(taken).seconds * 1e3,
            "missing": next(taken).seconds * 1e3,
        }


def _sides(form: _Form, ids: Int64Array, data: bytes, held: object, count: int) -> list[Side]:
    return [
        Side("encode", lambda: form.encode(ids)),
        Side("decode", lambda: form.decode(data)),
        Side("missing", lambda: form.missing(held, count)),
    ]


def measure(run: Run) -> Iterator[Row]:
    """Yield a row for each pattern and form."""
    count = run.scaled(ENTRIES, 1200)
    forms = dict(FORMS)
    pyroaring = run.peer("pyroaring")
    if pyroaring is not None:
        forms["roaring"] = roaring(pyroaring)
    for pattern, make in PATTERNS.items():
        run.tell(pattern)
        yield from _rows(run, pattern, forms, make(count, run.seed), count)


def found(rows: Rows) -> list[str]:
    """Return what the rows come to."""
    by = {(row["pattern"], row["form"]): row for row in rows}
    stripe, built = by["2 of 3", "grouped"], by["2 of 3", "as built"]
    smallest = {
        pattern: min((row for row in rows if row["pattern"] == pattern), key=lambda r: r["bytes"])
        for pattern in PATTERNS
    }
    grouped = [name for name, row in smallest.items() if row["form"] == "grouped"]
    others = [f"{row['form']} ({name})" for name, row in smallest.items() if name not in grouped]
    encode = by["2 of 3", "bit vector"]["encode"] / stripe["encode"]
    return [
        f"A stripe of {shown(stripe['entries'])} entries takes {shown(stripe['bytes'])} bytes as "
        f"groups, {shown(built['bytes'])} as BookKeeper builds it, "
        f"{shown(by['2 of 3', 'bit vector']['bytes'])} as bits.",
        f"Groups are the smallest form of: {'; '.join(grouped) or 'none'}. "
        f"Elsewhere: {'; '.join(others) or 'nothing'}.",
        f"Making groups of the stripe takes {1 / encode:.2f} times as long as making bits; what "
        f"is missing is counted in {shown(stripe['missing'])} ms, from bits in "
        f"{shown(by['2 of 3', 'bit vector']['missing'])} ms.",
    ]


EXPERIMENT = Experiment(
    name="availability",
    question="In which form should a bookie say which entries it has?",
    method=(
        "Encoding goes from sorted int64 ids to bytes, decoding from bytes to what can be asked; "
        "then what is missing of all entries is counted. A roaring bitmap is made through "
        "array('I'), its fastest way in. CPU time of the thread, medians of the rounds. The "
        "answers of all forms are compared."
    ),
    data=(
        "A ledger of 300,000 entries at scale 1: all of them, stripes (W of E bookies have an "
        "entry), stripes and runs of which some got lost at random, one entry in 100."
    ),
    columns=(
        Column("pattern", "entries here", kind="given"),
        Column("form", "form", kind="given"),
        Column("entries", "entries", kind="count"),
        Column("groups", "groups", kind="count"),
        Column("bytes", "size", "bytes", "count"),
        Column("encode", "encoding", "ms"),
        Column("decode", "decoding", "ms"),
        Column("missing", "what is missing", "ms"),
    ),
    panels=(
        Panel("Bytes", "pattern", "bytes", "form", log="y"),
        Panel("Encoding", "pattern", "encode", "form", log="y"),
        Panel("Decoding", "pattern", "decode", "form", log="y"),
        Panel("What is missing", "pattern", "missing", "form", log="y"),
    ),
    measure=measure,
    found=found,
)


if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
