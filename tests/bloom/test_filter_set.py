"""One static filter for each object: answers, bounds by bytes, order of leaving, threads."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from bkstore.bloom import FilterSet, hash_key
from bkstore.errors import InvalidArgument


def _ids(*numbers: int) -> Any:
    return np.array(numbers, np.int64)


def test_a_no_is_certain() -> None:
    """No id that an object holds is refused, of any size of object."""
    filters = FilterSet()
    held = {size: np.arange(size, dtype=np.int64) * 7 - 3 for size in (1, 2, 90, 900)}
    for key, ids in held.items():
        filters.build(key, ids)

    for key, ids in held.items():
        assert [False] * ids.size == [filters.excludes(key, hash_key(i)) for i in ids.tolist()]


def test_a_yes_is_rarely_wrong() -> None:
    """Of ids that are not held about one in a hundred is not refused, as asked for."""
    filters = FilterSet()
    filters.build("object", np.arange(9000, dtype=np.int64))
    passed = [filters.excludes("object", hash_key(i)) for i in range(10**6, 10**6 + 20_000)]

    assert 0.005 < passed.count(False) / len(passed) < 0.015


def test_without_a_filter() -> None:
    """None is neither yes nor no."""
    assert None is FilterSet().excludes(5, hash_key(1))


def test_filters_are_static() -> None:
    """A second build of an object changes nothing."""
    filters = FilterSet()
    filters.build(5, _ids(1, 2, 3))
    filters.build(5, np.arange(1000, 2000))

    assert not filters.excludes(5, hash_key(2))
    assert filters.excludes(5, hash_key(1500))
    assert (1, 8) == (len(filters), filters.nbytes)


def test_an_object_without_ids() -> None:
    """It counts as one insertion, one word, and refuses every id."""
    filters = FilterSet()
    filters.build(5, _ids())

    assert 8 == filters.nbytes
    assert [True] * 100 == [filters.excludes(5, hash_key(i)) for i in range(100)]


@pytest.mark.parametrize(
    ("objects", "bytes_of_one"),
    [(50, 10_784), pytest.param(5000, 10_784, marks=pytest.mark.long)],
)
def test_bytes_of_the_seed(objects: int, bytes_of_one: int) -> None:
    """5,000 filters of 9,000 ids are 53.9 million bytes of bits, and all fit the default."""
    filters = FilterSet()
    for key in range(objects):
        filters.build(key, np.arange(key, key + 9000))

    assert objects == len(filters)
    assert objects * bytes_of_one == filters.nbytes
    assert 53_920_000 == 5000 * bytes_of_one
    assert 0 == filters.evictions
    assert 5000 * (bytes_of_one + 8) <= filters.max_bytes


@pytest.mark.parametrize(("ids", "size"), [(9000, 10_784), (900, 1080), (90, 112)])
def test_bytes_of_one(ids: int, size: int) -> None:
    """Filters of 9000, 900 and 90 ids take what the seed says."""
    filters = FilterSet()
    filters.build(0, np.arange(ids))

    assert size == filters.nbytes


# -- room


def test_the_least_recently_used_leaves() -> None:
    """A filter counts 8 bytes beside its bits; being asked is a use, being built again is not."""
    filters = FilterSet(max_bytes=3 * (112 + 8))
    for key in "abc":
        filters.build(key, np.arange(90))
    filters.excludes("a", hash_key(1))
    filters.build("b", np.arange(90))

    assert ["b", "c", "a"] == filters.keys()

    filters.build("d", np.arange(90))

    assert ["c", "a", "d"] == filters.keys()
    assert None is filters.excludes("b", hash_key(1))
    assert (3, 336, 1) == (len(filters), filters.nbytes, filters.evictions)


def test_one_byte_short() -> None:
    """One byte less than three filters count holds two."""
    filters = FilterSet(max_bytes=3 * (112 + 8) - 1)
    for key in "abc":
        filters.build(key, np.arange(90))

    assert ["b", "c"] == filters.keys()


def test_a_large_one_makes_room() -> None:
    """As many leave as are in its way."""
    filters = FilterSet(max_bytes=1080 + 8 + 112 + 8)
    for key in range(5):
        filters.build(key, np.arange(90))
    filters.build("large", np.arange(900))

    assert [4, "large"] == filters.keys()
    assert (4, 112 + 1080) == (filters.evictions, filters.nbytes)


def test_one_that_never_fits() -> None:
    """A filter larger than all room is not kept, and drives nobody out."""
    filters = FilterSet(max_bytes=200)
    filters.build("small", np.arange(90))
    filters.build("large", np.arange(900))

    assert ["small"] == filters.keys()
    assert None is filters.excludes("large", hash_key(1))
    assert 0 == filters.evictions


def test_drop_and_clear() -> None:
    """Dropped filters free their bytes, are counted, and are no evictions."""
    filters = FilterSet()
    for key in range(4):
        filters.build(key, np.arange(90))

    assert 2 == filters.drop([1, 3, 3, 77])
    assert [0, 2] == filters.keys()
    assert 2 * 112 == filters.nbytes
    assert 1 not in filters
    assert 2 in filters

    filters.clear()

    assert (0, 0, 0) == (len(filters), filters.nbytes, filters.evictions)
    assert None is filters.excludes(2, hash_key(1))


def test_built_again_after_a_drop() -> None:
    """An object that comes back is built from what it holds now."""
    filters = FilterSet()
    filters.build(5, _ids(1))
    filters.drop([5])
    filters.build(5, _ids(2))

    assert filters.excludes(5, hash_key(1))
    assert not filters.excludes(5, hash_key(2))


# -- wrong use, threads


@pytest.mark.parametrize("options", [{"fpp": 0.0}, {"fpp": 1.0}, {"fpp": 0.9}, {"max_bytes": -1}])
def test_refused_options(options: dict[str, Any]) -> None:
    """An fpp that makes no filter of one id, and less room than none, are refused at once."""
    with pytest.raises(InvalidArgument):
        FilterSet(**options)


def test_threads() -> None:
    """Beside each other, builds, questions and drops keep the bytes right and never say a wrong
    no."""
    filters, wrong = FilterSet(max_bytes=20 * (112 + 8)), list[object]()
    hashes = [hash_key(i) for i in range(60 * 90)]

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for turn in range(600):
            key = int(rng.integers(60))
            filters.build(key, np.arange(90 * key, 90 * key + 90))
            if filters.excludes(key, hashes[90 * key + turn % 90]):
                wrong.append((key, turn))
            if turn % 5 == 0:
                filters.drop([int(rng.integers(60))])
            if filters.nbytes > 20 * 112:
                wrong.append("room")

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [] == wrong
    assert 112 * len(filters) == 112 * len(filters.keys()) == filters.nbytes
