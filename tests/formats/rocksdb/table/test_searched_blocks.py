"""Single keys in a data block by its restart points: as if all entries were decoded."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from hypothesis import given, strategies as st

from bkstore.errors import CorruptionError, UnsupportedLayout
from bkstore.formats.rocksdb.table.entries import FEATURE_BITS, FoundRow, SearchableBlock
from tests.formats.rocksdb.table.block_building import block, internal_key

Versions = dict[bytes, list[int]]
"""The sequence numbers of each key's rows."""

_user_keys = st.binary(max_size=3) | st.sampled_from([b"k" * 130, b"k" * 131])
_versions = st.dictionaries(_user_keys, st.sets(st.integers(1, 60), min_size=1), min_size=1)


def _searchable(
    versions: Versions, restart_interval: int, buckets: int | None = None
) -> SearchableBlock:
    """Return a block with a row of each version: by key, of one key newest first."""
    entries = [
        (internal_key(key, sequence), b"%d" % sequence)
        for key in sorted(versions)
        for sequence in sorted(versions[key], reverse=True)
    ]
    return SearchableBlock(block(entries, restart_interval, buckets))


@given(_versions, st.sampled_from([1, 2, 3, 16]), st.none() | st.just(7), st.lists(_user_keys))
def test_newest_and_last(
    versions: dict[bytes, set[int]], interval: int, buckets: int | None, others: list[bytes]
) -> None:
    """Of keys that are there and that are not, whatever lies between two restart points."""
    lists = {key: sorted(numbers) for key, numbers in versions.items()}
    searchable = _searchable(lists, interval, buckets)
    for key in {*versions, *others, b"", b"\xff" * 4}:
        newest = max(versions.get(key, ()), default=None)
        row = None if newest is None else FoundRow(key, newest, 1, b"%d" % newest)
        assert row == searchable.find_newest(key)
        assert max(
            (each for each in versions if each < key), default=None
        ) == searchable.last_key_before(key)


def test_rows_of_one_key_over_restart_points() -> None:
    """The newest of them lies before the restart points that have the key, too."""
    searchable = _searchable({b"a": [1], b"b": list(range(1, 20)), b"c": [1]}, 2)

    assert searchable.find_newest(b"b") == FoundRow(b"b", 19, 1, b"19")
    last_keys = [searchable.last_key_before(key) for key in (b"a", b"b", b"c", b"d")]
    assert last_keys == [None, b"a", b"b", b"c"]


def _share_bytes(contents: bytearray) -> None:
    contents[0] = 1  # shared bytes of the first entry, which has a restart point


def _point_past_entries(contents: bytearray) -> None:
    contents[-16:-12] = struct.pack("<I", len(contents) - 16)  # the first restart point


def _shorten_key(contents: bytearray) -> None:
    contents[1] = 7  # bytes of the first key: fewer than a trailer has


def _lengthen_key(contents: bytearray) -> None:
    contents[1] = 0x7F  # more than there are


@pytest.mark.parametrize("damage", [_share_bytes, _point_past_entries, _shorten_key, _lengthen_key])
def test_impossible_restart_points(damage: Callable[[bytearray], None]) -> None:
    """An entry with a restart point that has no whole key is damage."""
    contents = bytearray(block([(internal_key(key, 1), b"v") for key in (b"a", b"b", b"c")], 1))
    damage(contents)
    searchable = SearchableBlock(bytes(contents))

    with pytest.raises(CorruptionError):
        searchable.find_newest(b"a")
    with pytest.raises(CorruptionError):
        searchable.last_key_before(b"a")


def test_features_of_later_versions() -> None:
    """They are refused by name."""
    contents = bytearray(block([(internal_key(b"a", 1), b"v")]))
    contents[-4:] = struct.pack("<I", FEATURE_BITS | 1)

    with pytest.raises(UnsupportedLayout, match="features"):
        SearchableBlock(bytes(contents))
