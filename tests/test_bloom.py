"""Bloom filters: hashes, sizes, adding and asking by arrays and one by one, union, damage."""

from __future__ import annotations

import copy
import math
import pickle
import re
import subprocess
import sys
import threading
import tracemalloc
from typing import Any

import mmh3
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkstore.bloom import BloomFilter, filter_size, hash_key, hash_keys
from bkstore.bloom import bits as bits_module
from bkstore.bloom.murmur3 import BLOCK
from bkstore.errors import CorruptionError, IllegalOperation, InvalidArgument
from tests.format_pages import FORMATS, hex_bytes, shown_bytes, shown_text

LOWEST, HIGHEST = -(2**63), 2**63 - 1
PAGE = "bloom.md"

ids = st.integers(LOWEST, HIGHEST)
many_ids = st.lists(ids, min_size=70, max_size=300)
"""More than the few ids for which arrays are taken apart."""


class Model:
    """The rules of the page, on Python ints: an oracle that shares no code with the package."""

    def __init__(self, size: int, hash_count: int) -> None:
        self.size, self.hash_count = size, hash_count
        self.set: set[int] = set()

    def positions(self, key: int) -> list[int]:
        """Return the positions of a key."""
        digest = mmh3.hash_bytes((key % 2**64).to_bytes(8, "little"))
        h1, h2 = (int.from_bytes(digest[at : at + 8], "little") for at in (0, 8))
        sums = [(h1 + nth * h2) % 2**64 for nth in range(self.hash_count)]
        return [(c & HIGHEST) % self.size for c in sums]

    def add(self, key: int) -> None:
        """Set the bits of a key."""
        self.set.update(self.positions(key))

    def __contains__(self, key: int) -> bool:
        return self.set.issuperset(self.positions(key))

    def to_bytes(self) -> bytes:
        """Return Guava's bytes."""
        words = [0] * (self.size // 64)
        for position in self.set:
            words[position // 64] |= 1 << position % 64
        header = bytes((1, self.hash_count)) + len(words).to_bytes(4, "big")
        return header + b"".join(word.to_bytes(8, "big") for word in words)


def like(made: BloomFilter) -> Model:
    """Return an empty model of the filter's size."""
    return Model(made.bit_size, made.hash_count)


def random_ids(count: int, seed: int = 1) -> Any:
    """Return int64 ids from the whole range."""
    return np.random.default_rng(seed).integers(LOWEST, HIGHEST, count, endpoint=True)


# -- the page


def test_page_positions() -> None:
    """The worked example's hashes and positions are those of its ids."""
    for line in shown_text(PAGE, "positions").splitlines():
        key, h1, h2, *positions = line.split()

        assert (int(h1, 16), int(h2, 16)) == hash_key(int(key))
        assert [int(position) for position in positions] == Model(64, 7).positions(int(key))


def test_page_file() -> None:
    """The worked example's file is what two expected insertions and its ids make."""
    made = BloomFilter(2, 0.01)
    made.add_many([420000, 7])

    assert shown_bytes(PAGE, "file") == made.to_bytes()
    assert made == BloomFilter.from_bytes(shown_bytes(PAGE, "file"))


def test_page_constants() -> None:
    """The page's table of sizes: 112, 1080 and 10784 bytes for 90, 900 and 9000 ids."""
    text = (FORMATS / PAGE).read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| ([\d.]+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$", text, re.M)

    assert ["112", "1080", "10784"] == [row[4] for row in rows]
    for count, fpp, hash_count, words, nbytes, stored in rows:
        made = BloomFilter.of(range(int(count)), float(fpp))

        assert (int(words), int(hash_count)) == filter_size(int(count), float(fpp))
        assert (int(nbytes), int(stored)) == (made.nbytes, len(made.to_bytes()))


def test_page_refusals() -> None:
    """Each of the page's bad bytes is refused with its offset and reason."""
    lines = shown_text(PAGE, "refused").splitlines()

    assert 8 <= len(lines)
    for line in lines:
        data, _, told = line.partition(";")
        offset, _, reason = told.strip().partition(": ")
        with pytest.raises(CorruptionError) as raised:
            BloomFilter.from_bytes(hex_bytes(data))

        assert (int(offset), reason) == (raised.value.offset, raised.value.reason)


# -- hashes


@given(st.lists(ids, max_size=50))
def test_array_hashes_are_the_single_ones(keys: list[int]) -> None:
    """Arrays hash bit for bit as single keys, which hash as mmh3 says."""
    expected = [mmh3.hash64(k.to_bytes(8, "little", signed=True), signed=False) for k in keys]
    h1, h2 = hash_keys(keys)

    assert expected == list(zip(h1.tolist(), h2.tolist()))
    assert expected == [hash_key(key) for key in keys]
    assert (np.uint64, np.uint64) == (h1.dtype, h2.dtype)


@pytest.mark.parametrize("count", [BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 5])
def test_hashes_across_blocks(count: int) -> None:
    """Keys on both sides of a block's end are hashed, and asked, like any other."""
    keys = random_ids(count)
    ends = [*range(3), *range(BLOCK - 3, min(BLOCK + 3, count)), count - 2, count - 1]
    h1, h2 = hash_keys(keys)
    made = BloomFilter.of(keys)

    assert count == h1.size == h2.size
    assert [hash_key(int(keys[n])) for n in ends] == [(int(h1[n]), int(h2[n])) for n in ends]
    assert made.contains_many(keys).all()


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", ">i8", ">u4"])
def test_integers_of_any_width(dtype: str) -> None:
    """Ids may come in any integer type and stride; their value counts."""
    values = np.array([0, 1, 77, 127], dtype)
    expected = [hash_key(int(value)) for value in values]
    strided = np.repeat(values, 3)[::3]

    assert expected == list(zip(*(half.tolist() for half in hash_keys(values))))
    assert expected == list(zip(*(half.tolist() for half in hash_keys(strided))))
    assert expected == [hash_key(value) for value in values]


@pytest.mark.parametrize(
    "bad",
    [
        np.array([1.0, 2.0]),
        np.array([True, False]),
        np.array([1, 2**63], np.uint64),
        np.array([[1, 2]]),
        np.int64(5),
        [1, 2**63],
        [-1, 2**63],
        [2**64],
        ["7"],
        "7",
        b"7",
        [None],
        np.array(["2026-01-01"], "M8[D]"),
    ],
    ids=repr,
)
def test_arrays_that_are_no_ids(bad: Any) -> None:
    """Floats, bools, text, wide or nested values are refused, never cast or wrapped."""
    made = BloomFilter(100)
    for call in (hash_keys, made.add_many, made.contains_many, BloomFilter.of):
        with pytest.raises(InvalidArgument):
            call(bad)

    assert 0 == made.bits_set


@pytest.mark.parametrize("bad", [2**63, -(2**63) - 1, 1.0, True, np.True_, "7", None, b"7"])
def test_values_that_are_no_ids(bad: Any) -> None:
    """A single value that is no id is refused by every call, `in` too: no is certain."""
    made = BloomFilter(100)
    for call in (hash_key, made.add, made.__contains__):
        with pytest.raises(InvalidArgument):
            call(bad)

    assert 0 == made.bits_set


# -- adding and asking


@given(many_ids, many_ids, st.integers(0, 400), st.sampled_from([0.3, 0.03, 0.01, 1e-6]))
def test_arrays_do_what_single_calls_do(
    keys: list[int], asked: list[int], expected_insertions: int, fpp: float
) -> None:
    """Filled and asked by arrays, one by one, and by the page's rules: equal bits and answers."""
    by_array, by_one = (BloomFilter(expected_insertions, fpp) for _ in range(2))
    model = like(by_array)
    by_array.add_many(np.array(keys))
    for key in keys:
        by_one.add(key)
        model.add(key)
    asked = keys[:20] + asked

    assert model.to_bytes() == by_array.to_bytes() == by_one.to_bytes()
    assert [key in model for key in asked] == by_array.contains_many(asked).tolist()
    assert [key in model for key in asked] == [key in by_one for key in asked]


@pytest.mark.parametrize("fpp", [0.5, 0.01, 1e-9, 2.0**-255])
@pytest.mark.parametrize("room", [1, 1000, 200_000])
def test_small_and_large_filters_get_the_same_bits(
    room: int, fpp: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With and without a byte of scratch for each bit, adding sets the model's bits."""
    keys = random_ids(500)
    made, direct = BloomFilter(room, fpp), BloomFilter(room, fpp)
    model = like(made)
    for key in keys.tolist():
        model.add(key)
    made.add_many(keys)
    monkeypatch.setattr(bits_module, "MOST_FLAGS", 0)
    direct.add_many(keys)

    assert model.to_bytes() == made.to_bytes()
    assert model.to_bytes() == direct.to_bytes()


def test_adding_keeps_what_is_there() -> None:
    """Ids added in portions, large and small, make the filter of all of them."""
    keys = random_ids(3000)
    made = BloomFilter(3000)
    for part in np.split(keys, [1, 5, 105, 1200]):
        made.add_many(part)

    assert BloomFilter.of(keys) == made


def test_absent_ids_are_refused_at_the_promised_rate() -> None:
    """Of ids that were not added, about the wanted share is answered yes, and no added one no."""
    keys, absent = np.split(random_ids(120_000, seed=7), [20_000])
    made = BloomFilter.of(keys)

    assert made.contains_many(keys).all()
    assert 0.008 < made.contains_many(absent).mean() < 0.012
    assert pytest.approx(0.01, rel=0.05) == made.expected_fpp
    assert pytest.approx(20_000, rel=0.01) == made.approximate_count


def test_nothing_asked_and_nothing_added() -> None:
    """No ids: nothing changes, the answer is empty, and a filter of none refuses all."""
    made = BloomFilter.of([])
    open_one = BloomFilter(10)
    open_one.add_many([])

    assert 8 == made.nbytes
    assert (0, 0, 0.0) == (open_one.bits_set, open_one.approximate_count, open_one.expected_fpp)
    assert (0,) == made.contains_many([]).shape
    assert np.bool_ == made.contains_many([]).dtype
    assert not made.contains_many(random_ids(100)).any()


def test_a_hash_serves_filters_of_every_size() -> None:
    """One (h1, h2) asks and fills filters of different size and k like the id does."""
    filters = [BloomFilter(n, fpp) for n in (1, 90, 9000) for fpp in (0.1, 0.001)]
    h1, h2 = hash_key(420000)
    before = [one.contains_hash(h1, h2) for one in filters]
    for one in filters:
        assert one.add_hash(h1, h2)
        assert not one.add_hash(h1, h2)

    assert [False] * 6 == before
    assert [True] * 6 == [one.contains_hash(h1, h2) for one in filters]
    assert [True] * 6 == [420000 in one for one in filters]


def test_full_filter() -> None:
    """With every bit set all ids are answered yes, at a rate of 1, and the count is infinite."""
    made = BloomFilter.from_bytes(bytes.fromhex("010300000002") + b"\xff" * 16)

    assert (128, 1.0, math.inf) == (made.bits_set, made.expected_fpp, made.approximate_count)
    assert made.contains_many(random_ids(100)).all()
    assert 7 in made
    assert not made.add(7)


@given(many_ids, many_ids)
def test_union(first: list[int], second: list[int]) -> None:
    """The union is the filter of both sets of ids, in place or not; its parts stay as they are."""
    a, b, both = (BloomFilter(400) for _ in range(3))
    a.add_many(first)
    b.add_many(second)
    both.add_many(first + second)
    before = a.to_bytes(), b.to_bytes()
    united = a | b

    assert both == united
    assert before == (a.to_bytes(), b.to_bytes())

    united |= b
    a |= b

    assert both == a == united


@pytest.mark.parametrize(
    "other",
    [BloomFilter(300), BloomFilter.from_bytes(bytes.fromhex("01060000000e") + bytes(112))],
    ids=repr,
)
def test_union_of_unlike_filters(other: BloomFilter) -> None:
    """Another size or hash count does not unite; the message says both, nothing changes."""
    made = BloomFilter(90)
    with pytest.raises(InvalidArgument, match="896 bits, 7 hashes and"):
        made | other
    with pytest.raises(InvalidArgument, match="896 bits, 7 hashes and"):
        made |= other
    with pytest.raises(TypeError):
        made | {7}  # type: ignore[operator]

    assert 0 == made.bits_set


def test_equality() -> None:
    """Equal: same size, same k, same bits, frozen or not; a filter is no dictionary key."""
    made = BloomFilter.of([1, 2, 3])
    same = BloomFilter(3)
    same.add_many([3, 2, 1])
    one_word = bytes.fromhex("00000001") + bytes(8)

    assert made == same
    assert made != BloomFilter(3)
    assert made != made.to_bytes()
    assert BloomFilter.from_bytes(b"\1\1" + one_word) != BloomFilter.from_bytes(b"\1\2" + one_word)
    with pytest.raises(TypeError, match="unhashable"):
        hash(made)


def test_frozen() -> None:
    """A frozen filter answers and takes nothing more; a union with it is a new, open one."""
    made = BloomFilter.of([1, 2, 3])
    data = made.to_bytes()
    for call in (lambda: made.add(4), lambda: made.add_many([4]), lambda: made.add_many([])):
        with pytest.raises(IllegalOperation, match="frozen"):
            call()
    with pytest.raises(IllegalOperation, match="frozen"):
        made.__ior__(BloomFilter(3))
    united = made | BloomFilter(3)

    assert (True, False, False) == (made.frozen, united.frozen, BloomFilter(3).frozen)
    assert data == made.to_bytes()
    assert united.add(4)
    assert data == made.to_bytes()
    assert "frozen" in repr(made)
    assert "<BloomFilter: 64 bits, 7 hashes>" == repr(united)


@pytest.mark.parametrize("frozen", [False, True])
def test_copies_stand_alone(frozen: bool) -> None:
    """Pickled, copied and stored filters are equal, as frozen as before, and share no bits."""
    made = BloomFilter(100)
    made.add_many(range(50))
    if frozen:
        made.freeze()
    for other in (pickle.loads(pickle.dumps(made)), copy.copy(made), copy.deepcopy(made)):
        assert made == other
        assert frozen is other.frozen
    data = bytearray(made.to_bytes())
    read = BloomFilter.from_bytes(data)
    data[6:] = bytes(len(data) - 6)

    assert made == read
    assert not read.frozen


# -- sizes


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ((-1, 0.01), "outside 0..2^63-1"),
        ((2**63, 0.01), "outside 0..2^63-1"),
        ((1.5, 0.01), "not an integer"),
        ((10, 0), "not between"),
        ((10, 1), "not between"),
        ((10, -0.5), "not between"),
        ((10, math.nan), "not between"),
        ((10, math.inf), "not between"),
        ((10, "low"), "not a number"),
        ((1, 0.9), "no bits"),
        ((0, 0.9), "no bits"),
        ((2**63 - 1, 0.01), "are the most"),
        ((14_340_000_000, 0.01), "are the most"),
        ((1, 5e-324), "1074 hashes, 255"),
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
    with pytest.raises(InvalidArgument, match="only 'guava-31"):
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
