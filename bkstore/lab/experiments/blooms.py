"""Bloom filters: bits, false positives and time by rate and by ids: `bkstore lab blooms`. An
object of a stream store holds some streams; its filter answers "no" for the others. The filters are
compared with those of rbloom and fastbloom-rs, if these are installed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Self

import numpy as np

from bkstore.bloom import BloomFilter, filter_size
from bkstore.ids import Int64Array
from bkstore.lab.experiment import Experiment, LabRun, Panel, ResultColumn, Row, Rows
from bkstore.lab.measuring.timing import TimedSide, run_samples
from bkstore.lab.number_format import as_text, compare

_IDS = (10, 100, 1_000, 10_000, 100_000)
_RATES = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.001, 0.0001)
_ABSENT_IDS = 200_000  # the number of queries for ids that are not in the filter
_USUAL_IDS, _USUAL_RATE = 9_000, 0.01
_OURS = "bkstore"


class FilterLibrary(NamedTuple):
    """The interface of a library: build a filter of ids at a rate, query it, return its size.
    `to_native` converts an array, untimed, into the form that the library reads fastest."""

    build: Callable[[Any, float], Any]
    count_positives: Callable[[Any, Any], int]
    bytes: Callable[[Any], int]
    to_native: Callable[[Int64Array], Any] = np.ndarray.tolist


def _count_positives(bloom_filter: BloomFilter, ids: Int64Array) -> int:
    return int(np.count_nonzero(bloom_filter.contains_many(ids)))


def _rbloom_filter(module: Any) -> FilterLibrary:
    """Return the operations on rbloom's filters."""

    def build(ids: list[int], rate: float) -> Any:
        bloom_filter = module.Bloom(len(ids), rate)
        bloom_filter.update(ids)
        return bloom_filter

    def count_positives(bloom_filter: Any, ids: list[int]) -> int:
        return sum(map(bloom_filter.__contains__, ids))

    return FilterLibrary(build, count_positives, bytes=lambda built: built.size_in_bits // 8)


def _fastbloom_filter(module: Any) -> FilterLibrary:
    """Return the operations on fastbloom's filters, which take ids in batches."""

    def build(ids: list[int], rate: float) -> Any:
        bloom_filter = module.FilterBuilder(len(ids), rate).build_bloom_filter()
        bloom_filter.add_int_batch(ids)
        return bloom_filter

    def count_positives(bloom_filter: Any, ids: list[int]) -> int:
        return sum(bloom_filter.contains_int_batch(ids))

    return FilterLibrary(build, count_positives, bytes=lambda built: len(built.get_bytes()))


def _installed_filters(run: LabRun) -> dict[str, FilterLibrary]:
    """Return this package's filter, and those of the other libraries that are installed."""
    ours = FilterLibrary(
        BloomFilter.of,
        _count_positives,
        bytes=lambda built: built.nbytes,
        to_native=np.asarray,
    )
    filters = {_OURS: ours}
    for name, make_filter in (("rbloom", _rbloom_filter), ("fastbloom_rs", _fastbloom_filter)):
        module = run.import_optional(name)
        if module is not None:
            filters[name] = make_filter(module)
    return filters


def _random_ids(count: int, absent_count: int, seed: int) -> tuple[Int64Array, Int64Array]:
    """Return distinct random ids: those to add, and absent ones to query."""
    rng = np.random.default_rng((seed, count))
    ids = rng.choice(1 << 40, count + absent_count, replace=False, shuffle=False).astype(np.int64)
    return ids[:count], ids[count:]


def _rows(run: LabRun, filters: dict[str, FilterLibrary], count: int, rate: float) -> Iterator[Row]:
    """Yield a row for each library's filter of `count` ids at a false-positive rate, which is
    measured as the share of absent ids that the filter takes for present."""
    ids, absent_ids = _random_ids(count, run.scaled(_ABSENT_IDS, minimum=2000), run.seed)
    built_filters = {name: BuiltFilter.of(filters[name], ids, absent_ids, rate) for name in filters}
    # Each filter has two timed steps: making it, and asking it for the absent ids.
    steps = [step for built in built_filters.values() for step in built.timed_steps]
    samples = iter(run_samples(steps, run.rounds, run.min_sample_seconds))
    for name, built in built_filters.items():
        library, bloom_filter = built.library, built.bloom_filter
        if library.count_positives(bloom_filter, built.ids) != ids.size:
            raise RuntimeError(f"{name} says no to an id that was added")
        row = {
            "side": name,
            "ids": count,
            "rate": rate,
            "bits_per_id": 8 * library.bytes(bloom_filter) / count,
            "measured": library.count_positives(bloom_filter, built.absent) / absent_ids.size,
            "make": next(samples).seconds / count * 1e9,
            "ask": next(samples).seconds / absent_ids.size * 1e9,
        }
        if name == _OURS:
            size = filter_size(count, rate)
            row |= {"bytes": 8 * size.words, "hashes": size.hash_count}
            row["filled"] = bloom_filter.expected_fpp
        yield row


class BuiltFilter(NamedTuple):
    """A filter of some ids, with these and the absent ids in the form that its library reads."""

    library: FilterLibrary
    bloom_filter: Any
    ids: Any
    absent: Any
    rate: float

    @classmethod
    def of(cls, library: FilterLibrary, ids: Int64Array, absent: Int64Array, rate: float) -> Self:
        """Build the filter from `ids`."""
        native_ids, native_absent = library.to_native(ids), library.to_native(absent)
        return cls(library, library.build(native_ids, rate), native_ids, native_absent, rate)

    @property
    def timed_steps(self) -> list[TimedSide]:
        """Building the filter and querying it, in this order, each timed by itself."""
        library, absent = self.library, self.absent
        return [
            TimedSide("make", run=lambda: library.build(self.ids, self.rate)),
            TimedSide("ask", run=lambda: library.count_positives(self.bloom_filter, absent)),
        ]


def measure(run: LabRun) -> Iterator[Row]:
    """Yield a row for each false-positive rate with the usual number of ids, then for each number
    of ids at the usual rate."""
    filters = _installed_filters(run)
    counts = sorted({run.scaled(count, minimum=4) for count in _IDS})
    run.expect_steps(len(_RATES) + len(counts))
    for rate in _RATES:
        run.report_progress(f"{_USUAL_IDS} ids at {rate}")
        for row in _rows(run, filters, _USUAL_IDS, rate):
            yield {"series": "rate", **row}
    for count in counts:
        run.report_progress(f"{count} ids at {_USUAL_RATE}")
        for row in _rows(run, filters, count, _USUAL_RATE):
            yield {"series": "ids", **row}


def summarize(rows: Rows) -> list[str]:
    """Return the findings, one sentence each, that follow from the rows. The column "side" is the
    library, "rate" the false-positive rate that was asked for, "measured" the real one."""

    def deviation(row: Row) -> float:
        """Return by how much the measured rate differs, as a factor in either direction."""
        return abs(math.log(row["measured"] / row["rate"]))

    ours = [row for row in rows if row["side"] == _OURS]
    row_of_rate = {row["rate"]: row for row in ours if row["series"] == "rate"}
    worst = max((row for row in row_of_rate.values() if row["measured"]), key=deviation)
    usual, lowest_rate = row_of_rate[_USUAL_RATE], min(row_of_rate)
    sentences = [
        f"At {_USUAL_RATE:.0%} a filter takes {usual['bits_per_id']:.2f} bits an id, at "
        f"{lowest_rate:.2%} {row_of_rate[lowest_rate]['bits_per_id']:.1f}; {_USUAL_IDS:,} ids take "
        f"{as_text(usual['bytes'])} bytes.",
        f"False positives at a target of {_USUAL_RATE:.0%}: {usual['measured']:.2%} measured, "
        f"{usual['filled']:.2%} by the bits set. Furthest from its target is {worst['rate']:g}: "
        f"{worst['measured']:.4g} measured.",
    ]
    peers = [row for row in rows if row["side"] != _OURS and row["series"] == "rate"]
    return sentences + [
        f"Against {peer['side']}, given a list that was made before, making takes "
        f"{compare(usual['make'] / peer['make'], 'long')}, asking "
        f"{compare(usual['ask'] / peer['ask'], 'long')}; its filter takes "
        f"{peer['bits_per_id']:.2f} bits an id and measures {peer['measured']:.2%}."
        for peer in peers
        if peer["rate"] == _USUAL_RATE
    ]


EXPERIMENT = Experiment(
    name="blooms",
    question="What does a bloom filter cost, and how often does it give a false positive?",
    method=(
        "A filter is made for random ids and asked for 200,000 others at scale 1; false "
        "positives are the share of these that it contains. 'By the bits set' is (bits set / "
        "bits) to the power of the hash count. "
        "Making and asking are by CPU time of the thread, medians of the rounds, all in one call. "
        "Ids come as each library takes them fastest, made before: bkstore an array, the others "
        "a list."
    ),
    data=(
        f"{_USUAL_IDS:,} ids (streams of an object) by rate; 10 to 100,000 ids at scale 1 at "
        f"{_USUAL_RATE:.0%}. Ids are random below 2^40."
    ),
    columns=(
        ResultColumn("series", "series", kind="given"),
        ResultColumn("side", "filter", kind="given"),
        ResultColumn("ids", "ids", kind="given"),
        ResultColumn("rate", "target false positive rate", kind="given"),
        ResultColumn("bytes", "bits in memory", "bytes", "count"),
        ResultColumn("hashes", "hashes", kind="count"),
        ResultColumn("bits_per_id", "filter", "bits an id", "count"),
        ResultColumn("filled", "false positives by the bits set", "share", "count"),
        ResultColumn("measured", "false positives", "share"),
        ResultColumn("make", "making", "ns an id"),
        ResultColumn("ask", "asking", "ns an id"),
    ),
    panels=(
        Panel("Bits by target rate", "rate", "bits_per_id", "side", {"series": "rate"}, log="x"),
        Panel(
            "False positives by target rate",
            "rate",
            "measured",
            "side",
            {"series": "rate"},
            log="xy",
        ),
        Panel("Making by ids", "ids", "make", "side", {"series": "ids"}, log="xy"),
        Panel("Asking by ids", "ids", "ask", "side", {"series": "ids"}, log="xy"),
    ),
    measure=measure,
    summarize=summarize,
)
