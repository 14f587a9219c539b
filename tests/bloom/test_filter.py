"""Bloom filters: hashes, sizes, adding and asking by arrays and one by one, union, damage."""

from __future__ import annotations

import copy
import math
import pickle
import re
from typing import Any

import mmh3
import numpy as np
import pytest
from hypothesis import given, strategies as st

from bkstore.bloom import BloomFilter, bit_array as bits_module, filter_size, hash_key, hash_keys
from bkstore.bloom.murmur3 import BLOCK_KEYS
from bkstore.errors import CorruptionError, IllegalOperation, InvalidArgument
from tests.bloom.filter_model import PAGE, Model, ids, like, many_ids, random_ids
from tests.docs.format_pages import FORMATS, hex_bytes, shown_bytes, shown_text

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


@pytest.mark.parametrize("count", [BLOCK_KEYS - 1, BLOCK_KEYS, BLOCK_KEYS + 1, 2 * BLOCK_KEYS + 5])
def test_hashes_across_blocks(count: int) -> None:
    """Keys on both sides of a block's end are hashed, and asked, like any other."""
    keys = random_ids(count)
    ends = [*range(3), *range(BLOCK_KEYS - 3, min(BLOCK_KEYS + 3, count)), count - 2, count - 1]
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
    monkeypatch.setattr(bits_module, "MAX_FLAG_BYTES", 0)
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
