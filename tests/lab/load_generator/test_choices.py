"""What a load does and reads: the mix of operations, the draws of keys, latencies. No times."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from bkstore.errors import InvalidArgument
from bkstore.ids import LedgerId
from bkstore.lab.load_generator.key_draws import EntryKeys, KeyDraws, KeyOrder, entry_ids_of
from bkstore.lab.load_generator.latencies import PERCENTILES, LatencyHistogram
from bkstore.lab.load_generator.operations import OperationMix
from bkstore.testing.generators import striped

KEYS = EntryKeys([LedgerId(0, number) for number in range(4)], np.arange(25))


@pytest.mark.parametrize(
    ("names", "shares", "expected"),
    [
        ("read", None, {"read": 1.0}),
        ("read,write", None, {"read": 0.5, "write": 0.5}),
        ("write,read", "1:3", {"write": 0.25, "read": 0.75}),
        (
            "read,batch,add,delete",
            "5:2.5:2.5:10",
            {"read": 0.25, "batch": 0.125, "add": 0.125, "delete": 0.5},
        ),
    ],
)
def test_a_mix_is_parsed(names: str, shares: str | None, expected: dict[str, float]) -> None:
    """Shares are relative, in the order of the operations; without them all are equal."""
    mix = OperationMix.parse(names, shares)

    assert expected == dict(zip(mix.names, mix.shares))


@pytest.mark.parametrize(
    ("names", "shares"),
    [
        ("", None),
        ("reed", None),
        ("read,read", None),
        ("read,", None),
        ("read,write", "80"),
        ("read", "80:20"),
        ("read,write", "80:0"),
        ("read,write", "80:-1"),
        ("read,write", "80:x"),
        ("read,write", "1:inf"),
        ("read,write", "1:nan"),
    ],
)
def test_no_mix(names: str, shares: str | None) -> None:
    """Unknown or repeated operations, and shares that are not positive numbers, are refused."""
    with pytest.raises(InvalidArgument):
        OperationMix.parse(names, shares)


def test_operations_have_their_shares() -> None:
    """Of many steps each operation has its share."""
    mix = OperationMix.parse("read,write,delete", "80:19:1")
    counts = np.bincount(mix.draw(100_000, np.random.default_rng(1)), minlength=3) / 100_000

    assert [0.8, 0.19, 0.01] == pytest.approx(counts.tolist(), abs=0.006)
    assert "80 % read, 19 % write, 1 % delete" == str(mix)


def test_zipf_has_favorites() -> None:
    """The k-th most frequent row is drawn 1 / k as often as the first, by every client alike."""
    total = sum(1 / k for k in range(1, 101))
    favorites = []
    for client in (0, 1):
        counts = Counter(KeyDraws("zipf", KEYS, 7, client).draw(200_000).tolist())
        ranked = counts.most_common()
        favorites.append([row for row, _ in ranked[:5]])
        for rank in (1, 2, 10):
            share = 1 / rank / total
            assert share == pytest.approx(ranked[rank - 1][1] / 200_000, rel=0.08)

    assert favorites[0] == favorites[1]
    assert favorites[0] != [0, 1, 2, 3, 4]


def test_uniform_draws_all_rows() -> None:
    """Each of the rows has its hundredth, the last one too."""
    counts = np.bincount(KeyDraws("uniform", KEYS, 7, 0).draw(100_000), minlength=100)

    assert 100 == counts.size
    assert 700 < counts.min() <= counts.max() < 1_300


def test_a_stripe_is_read_in_order() -> None:
    """A client reads row after row, from ledger to ledger, and begins again after the last."""
    draws = KeyDraws("stripe", KEYS, 7, 0)
    rows = np.concatenate([draws.draw(30), draws.draw(130)])
    ledgers, entries = KEYS.split_rows(rows)

    assert {1, -99} == set(np.diff(rows).tolist())
    assert rows.tolist() == (ledgers * 25 + entries).tolist()
    assert (3, 24) == (ledgers.max(), entries.max())


@pytest.mark.parametrize(("order", "expected"), [("stripe", striped(90, 0, 3, 2)), ("zipf", None)])
def test_entries_of_a_ledger(order: KeyOrder, expected: object) -> None:
    """A stripe has the entries that the schedule gives to bookie 0, other orders have all."""
    ids = np.concatenate([entry_ids_of(order, 0, 7), entry_ids_of(order, 7, 50)])
    due = np.arange(57) if expected is None else np.asarray(expected)[:57]

    assert due.tolist() == ids.tolist()


@pytest.mark.parametrize("count", [1, 2, 9, 10, 99, 100, 999, 1_000, 10_000])
def test_percentiles(count: int) -> None:
    """They are those of the sorted latencies, to three digits; the unknown are absent."""
    latencies = np.random.default_rng(count).permutation(np.arange(1, count + 1) * 1_234)
    histogram = LatencyHistogram()
    for part in np.array_split(latencies, 3):
        other = LatencyHistogram()
        other.record(part)
        histogram.merge(other)
    percentiles = histogram.percentiles_us()
    ordered = np.sort(latencies) / 1e3

    assert count == histogram.count
    assert [n for n, one_in in PERCENTILES.items() if one_in <= count] == list(percentiles)[:-1]
    for name, one_in in PERCENTILES.items():
        if name in percentiles:
            rank = count - count // one_in  # HdrHistogram rounds the rank to the nearest
            bounds = ordered[max(rank - 2, 0)] * 0.998, ordered[rank - 1] * 1.002
            assert bounds[0] <= percentiles[name] <= bounds[1]
    assert ordered[-1] == pytest.approx(percentiles["max"], rel=0.001)


def test_latencies_out_of_range_count_at_its_ends() -> None:
    """A clock that stands still, or hours, are counted, as a nanosecond and an hour."""
    histogram = LatencyHistogram()
    histogram.record(np.array([0, -5, 10**15]))

    assert 3 == histogram.count
    assert 3.6e9 == pytest.approx(histogram.percentiles_us()["max"], rel=0.001)


def test_a_histogram_can_be_read_elsewhere() -> None:
    """Its text is HdrHistogram's own form."""
    from hdrh.histogram import HdrHistogram

    histogram = LatencyHistogram()
    histogram.record(np.array([1_000, 2_000, 2_000]))
    decoded = HdrHistogram.decode(histogram.encode())

    assert 3 == decoded.get_total_count()
    assert 2_000 == pytest.approx(decoded.get_max_value(), rel=0.001)
