"""Bloom filters: their sizes, damaged bytes, threads, what is imported."""

from __future__ import annotations

import math
import re
import subprocess
import sys
import threading
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from bkstore.bloom import BloomFilter, filter_size
from bkstore.errors import CorruptionError, InvalidArgument
from tests.bloom.filter_model import like, many_ids, random_ids

# -- sizes


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ((-1, 0.01), "must be a whole number"),
        ((2**63, 0.01), "must be a whole number"),
        ((1.5, 0.01), "must be a whole number"),
        ((10, 0), "must be a number"),
        ((10, 1), "must be below 1"),
        ((10, -0.5), "must be a number"),
        ((10, math.nan), "must be a number"),
        ((10, math.inf), "must be a number"),
        ((10, "low"), "must be a number"),
        ((1, 0.9), "without bits"),
        ((0, 0.9), "without bits"),
        ((2**63 - 1, 0.01), "the limit is"),
        ((14_340_000_000, 0.01), "the limit is"),
        ((1, 5e-324), "1074 hashes, the limit is 255"),
    ],
)
def test_sizes_that_are_refused(arguments: Any, reason: str) -> None:
    """What Guava refuses is refused with the reason, before anything is allocated."""
    for made in (filter_size, BloomFilter):
        with pytest.raises(InvalidArgument, match=re.escape(reason)):
            made(*arguments)


def test_largest_filter_has_a_size() -> None:
    """Up to 2^31-1 words are allowed; the rule gives their number without making them."""
    words = filter_size(14_338_000_000).words

    assert 2**31 - 150_000 < words <= 2**31 - 1
    assert filter_size(1, 2.0**-255).hash_count == 255


def test_unknown_compat() -> None:
    """A rule for the hash count that is not known is refused."""
    with pytest.raises(InvalidArgument, match=r"None or 'guava-31.1"):
        BloomFilter(1, compat="guava-1")  # type: ignore[arg-type]


def test_header_says_the_hash_count() -> None:
    """A reader takes k from the header: bytes of the older rule keep theirs."""
    old, new = BloomFilter(1, compat="guava-31.1"), BloomFilter(1)

    assert (6, 7) == (old.hash_count, new.hash_count)
    assert (6, 7) == tuple(BloomFilter.from_bytes(f.to_bytes()).hash_count for f in (old, new))


def test_memory_is_the_bit_array() -> None:
    """Adding to a filter takes its bytes, some blocks, and never a byte for each bit of a large
    one; 1e9 expected insertions allocate their 1.2 GB only.
    """
    keys = random_ids(200_000)
    tracemalloc.start()
    made = BloomFilter(2_000_000)
    base = tracemalloc.get_traced_memory()[1]
    made.add_many(keys)
    made.contains_many(keys[:40_000])
    peak = tracemalloc.get_traced_memory()[1]
    made_bytes = made.nbytes
    del made
    tracemalloc.reset_peak()
    largest = BloomFilter(1_000_000_000)
    whole = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert 2_396_272 == made_bytes
    assert made_bytes <= base < made_bytes + 100_000
    assert peak < base + 4_000_000
    assert largest.nbytes <= whole < largest.nbytes + 100_000


# -- damage


def test_truncated_everywhere() -> None:
    """Every shorter piece of a filter is refused where its bytes end."""
    data = BloomFilter.of(range(90)).to_bytes()
    for length in range(len(data)):
        with pytest.raises(CorruptionError) as raised:
            BloomFilter.from_bytes(data[:length])

        assert length == raised.value.offset


def test_flipped_header() -> None:
    """Any flipped bit of the header is refused, except in k, which says nothing of itself."""
    data = BloomFilter.of(range(90)).to_bytes()
    for bit in range(6 * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        if bit // 8 == 1:
            assert 7 ^ 1 << bit % 8 == BloomFilter.from_bytes(damaged).hash_count
            continue
        with pytest.raises(CorruptionError) as raised:
            BloomFilter.from_bytes(damaged)

        words = int.from_bytes(damaged[2:6], "big", signed=True)
        end = 2 if words < 1 else min(6 + 8 * words, len(data))
        assert (0 if bit < 8 else end) == raised.value.offset


def test_word_counts_that_lie_allocate_nothing() -> None:
    """A header of 16 GiB over eight bytes is refused before memory is asked for."""
    tracemalloc.start()
    with pytest.raises(CorruptionError, match="bytes for 1 are there"):
        BloomFilter.from_bytes(bytes.fromhex("01077fffffff") + bytes(8))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < 100_000


@given(
    st.binary(max_size=80)
    | st.binary(max_size=24).map(lambda body: b"\1\7\0\0\0" + bytes((len(body) // 8,)) + body)
)
def test_random_bytes(data: bytes) -> None:
    """Random bytes are a filter with exactly these bytes, or a `CorruptionError`."""
    words = int.from_bytes(data[2:6], "big")
    if data[:1] == b"\1" and len(data) > 6 and data[1] and len(data) == 6 + 8 * words:
        assert data == BloomFilter.from_bytes(data).to_bytes()
        return
    with pytest.raises(CorruptionError) as raised:
        BloomFilter.from_bytes(data)

    assert 0 <= (raised.value.offset or 0) <= len(data)


@given(st.integers(1, 255), st.binary(min_size=8, max_size=8 * 9), many_ids)
def test_any_words_answer_alike(hash_count: int, words: bytes, asked: list[int]) -> None:
    """Whatever the bits and k, arrays and single ids get the model's answers."""
    words = words[: len(words) // 8 * 8]
    count = len(words) // 8
    made = BloomFilter.from_bytes(bytes((1, hash_count)) + count.to_bytes(4, "big") + words)
    model = like(made)
    for nth in range(count):
        word = int.from_bytes(words[nth * 8 : nth * 8 + 8], "big")
        model.set.update(64 * nth + bit for bit in range(64) if word >> bit & 1)
    expected = [key in model for key in asked]

    assert expected == made.contains_many(asked).tolist()
    assert expected == [key in made for key in asked]
    assert len(model.set) == made.bits_set


# -- threads, imports


def test_threads_share_a_frozen_filter() -> None:
    """Many threads that ask one filter at a time get the answers of one."""
    keys, absent = np.split(random_ids(40_000), [20_000])
    made = BloomFilter.of(keys)
    asked = np.concatenate((keys, absent))
    expected = made.contains_many(asked).tolist()
    found: list[list[bool]] = []

    def ask() -> None:
        found.append(made.contains_many(asked).tolist())

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [expected] * 8 == found


def test_import_is_light() -> None:
    """`import bkstore` loads neither the filters nor mmh3."""
    script = "import sys, bkstore; print(*(n for n in sys.modules if 'bloom' in n or 'mmh3' in n))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )

    assert "" == done.stdout.strip()


@pytest.mark.parametrize(
    ("bits", "hashes", "count", "rate"),
    [
        (0, 1, 0, 0.0),
        (1, 1, 1, 1 / 64),
        (8, 1, 9, 0.125),
        (16, 1, 18, 0.25),
        (20, 1, 24, 0.3125),
        (63, 1, 266, 63 / 64),
        (20, 2, 12, 0.3125**2),
        (16, 3, 6, 0.25**3),
        (8, 7, 1, 0.125**7),
    ],
)
def test_estimates_of_what_was_added(bits: int, hashes: int, count: int, rate: float) -> None:
    """Guava's: -ln(1 - share) x bits / hashes, rounded half up; and the share to the power of the
    hashes. By hand, of one word."""
    word = ((1 << bits) - 1).to_bytes(8, "big")
    made = BloomFilter.from_bytes(bytes((1, hashes)) + (1).to_bytes(4, "big") + word)

    assert (bits, hashes, count) == (made.bits_set, made.hash_count, made.approximate_count)
    assert rate == made.expected_fpp
