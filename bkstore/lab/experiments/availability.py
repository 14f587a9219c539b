"""Encodings of the set of entries that a bookie has, by pattern: `bkstore lab availability`.
Sequence groups as BP-34 designed them, sequence groups as BookKeeper builds them, a bit vector, and
a roaring bitmap (if pyroaring is installed)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from bkstore import schedule
from bkstore.availability import Availability
from bkstore.counts import join_words
from bkstore.ids import Int64Array
from bkstore.lab.experiment import Experiment, LabRun, Panel, ResultColumn, Row, Rows
from bkstore.lab.measuring.timing import TimedSide, run_samples
from bkstore.lab.number_format import as_text, compare
from bkstore.lab.stores.bitmaps import build_bitmap, serialize_bitmap
from bkstore.testing import generators
from bkstore.testing.generators import with_holes

ENTRIES = 300_000

PATTERNS: dict[str, Callable[[int, int], Int64Array]] = {
    "all": lambda n, _: generators.contiguous(n),
    "2 of 3": lambda n, _: generators.striped(n - 1, 1, 3, 2),
    "3 of 5": lambda n, _: generators.striped(n - 1, 1, 5, 3),
    "2 of 3, 0.1 % lost": lambda n, s: with_holes(generators.striped(n - 1, 1, 3, 2), 0.001, s),
    "2 of 3, 1 % lost": lambda n, s: with_holes(generators.striped(n - 1, 1, 3, 2), 0.01, s),
    "10 % lost": lambda n, s: with_holes(generators.contiguous(n), 0.1, s),
    "half lost": lambda n, s: with_holes(generators.contiguous(n), 0.5, s),
    "1 in 100": lambda n, s: generators.sparse(n // 100, n, s),
}
"""The ids that a bookie has of n entries, given n and the seed: by stripe (bookie 1 of an ensemble
of E, write quorum W: "W of E"), and by the share that got lost."""


class _Form(NamedTuple):
    """An encoding: ids to bytes, and bytes to an object that can be queried. Given such an object
    and a count, `missing` returns the ids below the count that it lacks, as an object of the same
    kind, and `count_missing` only their number. `ids` returns the ids of an object."""

    encode: Callable[[Int64Array], bytes]
    decode: Callable[[bytes], Any]
    missing: Callable[[Any, int], Any]
    count_missing: Callable[[Any, int], int]
    ids: Callable[[Any], Int64Array]


def _encode_bits(ids: Int64Array) -> bytes:
    mask = np.zeros(int(ids[-1]) + 1, np.bool_)
    mask[ids] = True
    return np.packbits(mask, bitorder="little").tobytes()


def _invert_bits(bits: npt.NDArray[np.uint8], count: int) -> npt.NDArray[np.bool_]:
    absent = np.ones(count, np.bool_)  # those behind the last bit are absent too
    np.equal(bits[:count], 0, out=absent[: bits.size])
    return absent


def _form_of_groups(encoding: Literal["grouped", "bookkeeper"]) -> _Form:
    """Return the operations on sequence groups (runs of equal length at equal distances)."""

    def subtract_from_all(held: Availability, count: int) -> Availability:
        # The only bookie of an ensemble of one should have all ids.
        all_ids = schedule.expected(0, count - 1, bookie_index=0, ensemble_size=1, write_quorum=1)
        return held.missing(all_ids)

    return _Form(
        encode=lambda ids: Availability.from_entries(ids).to_bytes(encoding),
        decode=Availability.from_bytes,
        missing=subtract_from_all,
        count_missing=lambda held, count: count - len(held),
        ids=lambda held: held.entries(),
    )


FORMS = {
    "grouped": _form_of_groups("grouped"),
    "BookKeeper's": _form_of_groups("bookkeeper"),
    "bit vector": _Form(
        encode=_encode_bits,
        decode=lambda data: np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little"),
        missing=_invert_bits,
        count_missing=lambda bits, count: count - int(np.count_nonzero(bits)),
        ids=np.flatnonzero,
    ),
}
"""The encodings of bkstore, and a plain bit vector."""


def roaring_form(module: Any) -> _Form:
    """Return the encoding as a bitmap of pyroaring, whose `flip` is the fastest complement."""

    def encode(ids: Int64Array) -> bytes:
        return serialize_bitmap(build_bitmap(module, ids))

    return _Form(
        encode=encode,
        decode=module.BitMap.deserialize,
        missing=lambda bitmap, count: bitmap.flip(0, count),
        count_missing=lambda bitmap, count: count - len(bitmap),
        ids=lambda bitmap: np.array(bitmap.to_array(), np.int64),
    )


def _rows(
    run: LabRun, pattern: str, forms: dict[str, _Form], ids: Int64Array, count: int
) -> Iterator[Row]:
    """Yield a row for each form of `ids`, which are some of the ids below `count`. Each form has
    four timed operations; all operations of all forms take turns."""
    operations: list[TimedSide] = []
    encoded_and_decoded: dict[str, tuple[bytes, object]] = {}
    for name, form in forms.items():
        # Check the form's answers before they are timed.
        data = form.encode(ids)
        decoded = form.decode(data)
        missing_ids = np.setdiff1d(np.arange(count), ids, assume_unique=True)
        if not np.array_equal(form.ids(form.missing(decoded, count)), missing_ids):
            raise RuntimeError(f"{name}, {pattern}: not the {missing_ids.size} that are missing")
        if form.count_missing(decoded, count) != missing_ids.size:
            raise RuntimeError(f"{name}, {pattern}: not {missing_ids.size} missing")
        encoded_and_decoded[name] = data, decoded
        operations += (
            TimedSide("encode", partial(form.encode, ids)),
            TimedSide("decode", partial(form.decode, data)),
            TimedSide("missing", partial(form.missing, decoded, count)),
            TimedSide("count", partial(form.count_missing, decoded, count)),
        )
    samples = iter(run_samples(operations, run.rounds, run.min_sample_seconds))  # in that order
    for name, (data, decoded) in encoded_and_decoded.items():
        yield {
            "pattern": pattern,
            "form": name,
            "entries": int(ids.size),
            "groups": len(decoded.groups) if isinstance(decoded, Availability) else None,
            "bytes": len(data),
            "encode": next(samples).seconds * 1e3,
            "decode": next(samples).seconds * 1e3,
            "missing": next(samples).seconds * 1e3,
            "count": next(samples).seconds * 1e6,
        }


def measure(run: LabRun) -> Iterator[Row]:
    """Yield a row for each pattern and form."""
    count = run.scaled(ENTRIES, minimum=1200)
    forms = dict(FORMS)
    pyroaring = run.import_optional("pyroaring")
    if pyroaring is not None:
        forms["roaring"] = roaring_form(pyroaring)
    run.expect_steps(len(PATTERNS))
    for pattern, make_ids in PATTERNS.items():
        run.report_progress(pattern)
        yield from _rows(run, pattern, forms, make_ids(count, run.seed), count)


def summarize(rows: Rows) -> list[str]:
    """Return the findings, one sentence each, that follow from the rows."""
    row_of = {(row["pattern"], row["form"]): row for row in rows}
    # A stripe: two of three bookies have each entry.
    stripe, bookkeepers = row_of["2 of 3", "grouped"], row_of["2 of 3", "BookKeeper's"]
    patterns_of_smallest: dict[str, list[str]] = {}  # by form: where it has the fewest bytes
    for pattern in PATTERNS:
        pattern_rows = [row for row in rows if row["pattern"] == pattern]
        smallest = min(pattern_rows, key=lambda row: row["bytes"])
        patterns_of_smallest.setdefault(smallest["form"], []).append(pattern)
    grouped_patterns = patterns_of_smallest.pop("grouped", [])
    elsewhere = "; ".join(
        f"{form} ({'; '.join(patterns)})" for form, patterns in patterns_of_smallest.items()
    )
    encode_ratio = stripe["encode"] / row_of["2 of 3", "bit vector"]["encode"]
    return [
        f"A stripe of {as_text(stripe['entries'])} entries takes {as_text(stripe['bytes'])} bytes "
        f"as groups, {as_text(bookkeepers['bytes'])} as BookKeeper encodes it, "
        f"{as_text(row_of['2 of 3', 'bit vector']['bytes'])} as bits.",
        f"Groups are the smallest form of: {'; '.join(grouped_patterns) or 'none'}. "
        f"Elsewhere: {elsewhere or 'nothing'}.",
        f"Making groups of the stripe takes {compare(encode_ratio, 'long')} as making bits. The "
        f"set of what is missing takes {_list_forms(row_of, 'missing', 'ms')}; counting it "
        f"{_list_forms(row_of, 'count', 'us')}.",
    ]


def _list_forms(row_of: dict[tuple[str, str], Row], column: str, unit: str) -> str:
    """Return a figure of the stripe for each form: "0.1 ms as groups and 2 ms as bits"."""
    words = {"grouped": "as groups", "bit vector": "as bits", "roaring": "as a roaring bitmap"}
    return join_words(
        [
            f"{as_text(row_of['2 of 3', form][column])} {unit} {text}"
            for form, text in words.items()
            if ("2 of 3", form) in row_of
        ]
    )


EXPERIMENT = Experiment(
    name="availability",
    question="In which form should a bookie say which entries it has?",
    method=(
        "Encoding goes from sorted int64 ids to bytes, decoding from bytes to what can be asked; "
        "then the set of what is missing of all entries, in the same form (groups, bits, a "
        "bitmap), and how many these are, by each form's fastest way: a roaring bitmap is made "
        "through array('I'), complemented by flip, and has its length at hand. CPU time of the "
        "thread, medians of the rounds. The answers of all forms are compared."
    ),
    data=(
        "A ledger of 300,000 entries at scale 1: all of them, stripes (W of E bookies have an "
        "entry), stripes and runs of which some got lost at random, one entry in 100."
    ),
    columns=(
        ResultColumn("pattern", "entries here", kind="given"),
        ResultColumn("form", "form", kind="given"),
        ResultColumn("entries", "entries", kind="count"),
        ResultColumn("groups", "groups", kind="count"),
        ResultColumn("bytes", "size", "bytes", "count"),
        ResultColumn("encode", "encoding", "ms"),
        ResultColumn("decode", "decoding", "ms"),
        ResultColumn("missing", "what is missing", "ms"),
        ResultColumn("count", "how many are missing", "us"),
    ),
    panels=(
        Panel("Bytes", "pattern", "bytes", "form", log="y"),
        Panel("Encoding", "pattern", "encode", "form", log="y"),
        Panel("Decoding", "pattern", "decode", "form", log="y"),
        Panel("What is missing", "pattern", "missing", "form", log="y"),
        Panel("How many are missing", "pattern", "count", "form", log="y"),
    ),
    measure=measure,
    summarize=summarize,
)
