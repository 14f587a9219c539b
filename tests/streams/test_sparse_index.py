"""Parts of stream look-ups: the sparse index, the options."""

from __future__ import annotations

from typing import Any

import pytest

from bkstore.errors import InvalidArgument
from bkstore.streams import (
    ImageReader,
    LookupOptions,
    ObjectRanges,
    StreamImage,
    StreamLookup,
)
from bkstore.streams.lookup.sparse_index import ENTRY_BYTES, SparseRangeIndex
from tests.streams.small_world import S, opened, trace, world

# -- the sparse index


def _sparse(room: int) -> SparseRangeIndex:
    return SparseRangeIndex(room * ENTRY_BYTES)


def _known(index: SparseRangeIndex, stream: int, starts: range) -> list[int]:
    """Return the starts that are known, an object being called after its start."""
    found = {index.floor(stream, start) for start in starts}
    return sorted(one for one in found if one is not None)


def test_sparse_eviction_spares_the_ends() -> None:
    """The middle of the longest-served streams goes first, first and last three stay."""
    index = _sparse(16)
    for at in range(10):
        index.add(at, ObjectRanges.of([(7, at, at + 1), (8, at, at + 1)]))

    assert 16 == index.entries
    assert 4 == index.evictions
    for stream in (7, 8):
        known = _known(index, stream, range(10))

        assert 8 == len(known)
        assert {0, 1, 2, 7, 8, 9} <= set(known)


def test_sparse_eviction_spares_short_streams() -> None:
    """A stream with a few entries keeps them while another has more than its ends."""
    index = _sparse(8)
    index.add(50, ObjectRanges.of([(8, 0, 1)]))
    for at in range(12):
        index.add(at, ObjectRanges.of([(7, at, at + 1)]))

    assert 5 == index.evictions
    assert 50 == index.floor(8, 0)
    assert [0, 1, 2, 9, 10, 11] == [
        at for at in _known(index, 7, range(12)) if at not in range(3, 9)
    ]


def test_sparse_eviction_takes_ends_when_nothing_else_is_left() -> None:
    """Short streams lose entries only once no stream has more than its ends."""
    index = _sparse(12)
    for stream in (7, 8):
        for at in range(6):
            index.add(at, ObjectRanges.of([(stream, at, at + 1)]))

    assert 0 == index.evictions

    index.add(0, ObjectRanges.of([(9, 0, 1)]))

    assert 12 == index.entries
    assert 1 == index.evictions
    assert 0 == index.floor(9, 5)
    assert [0, 1, 2, 4, 5] == _known(index, 7, range(6))
    assert list(range(6)) == _known(index, 8, range(6))


def test_sparse_with_room_for_one() -> None:
    """With room for one entry the newest stream's is there."""
    index = _sparse(1)
    for stream in range(5):
        index.add(stream, ObjectRanges.of([(stream, 0, 1)]))

    assert [None] * 4 + [4] == [index.floor(stream, 0) for stream in range(5)]
    with pytest.raises(InvalidArgument, match=r"max_bytes must be .* 40 or more"):
        SparseRangeIndex(ENTRY_BYTES - 1)


def test_sparse_removal() -> None:
    """Objects that are gone leave no entry; a start that is taken again names the new object."""
    index = _sparse(100)
    for at in range(4):
        index.add(at, ObjectRanges.of([(7, at, at + 1)]))
    index.remove([1, 2, 99])

    assert 2 == index.entries
    assert 0 == index.floor(7, 2)

    index.add(5, ObjectRanges.of([(7, 0, 3)]))

    assert 5 == index.floor(7, 2)
    index.remove([5, 3])
    assert 0 == index.entries
    assert index.floor(7, 9) is None


# -- options


@pytest.mark.parametrize(
    "options",
    [
        {"batch": 0},
        {"batch": 2.5},
        {"spread": 0},
        {"tail": 0},
        {"preloads": -1},
        {"keep_objects": -1},
        {"workers": 0},
        {"load_timeout": 0},
        {"growth": "fast"},
        {"preload": "late"},
    ],
    ids=str,
)
def test_bad_options(options: dict[str, Any]) -> None:
    """Settings that make no wave, or that nobody knows, are refused."""
    with pytest.raises(InvalidArgument, match=next(iter(options))):
        LookupOptions(**options)


def test_unknown_strategy() -> None:
    """A strategy that nobody knows is refused with the list."""
    with pytest.raises(InvalidArgument, match=r"strategy must be 'load-all' or .* not 'magic'"):
        opened(world(), "magic")


@pytest.mark.parametrize(
    ("growth", "expected"),
    [
        ("fixed", [2] * 20),
        ("growing", [2] * 5 + [3] * 5 + [4] * 3 + [3]),
        ("doubling", [2, 4, 8, 16, 10]),
    ],
)
def test_growth(growth: Any, expected: list[int]) -> None:
    """Waves stay, grow by one after every five, or double while the place is not found."""
    document = world(1, other=39)
    document["nodes"][0]["objects"][0]["order_id"] = 99  # the wanted one is the last of 40
    with opened(document, "partial", batch=2, growth=growth) as lookup:
        stats = lookup.get_objects(S, 0, 10, 1).stats

    assert expected == [len(wave.searched) for wave in stats.trace]


def test_doubling_falls_back_when_the_place_is_found() -> None:
    """Once the place is found the next wave has the size of the first again."""
    with opened(world(9, 5, others_first=True), "partial", batch=2, growth="doubling") as lookup:
        stats = lookup.get_objects(S, 0, 90, 9).stats

    assert "[10,11] [12,13,14,1] [2,3] [4,5] [6,7] [8,9]" == trace(stats)


def test_tail_first() -> None:
    """A tail read that begins with the tail preload needs that wave alone."""
    with opened(world(20), "preload", tail_first=True) as lookup:
        assert "P[16,17,18,19,20]" == trace(lookup.get_objects(S, 195, -1, 4).stats)
        assert "[1,2,3,4,5]" == trace(lookup.get_objects(S, 5, 9, 4).stats)


def test_tail_preloads_go_back() -> None:
    """Tail preloads take the last five, then the five before, four times at most."""
    document = world(1, other=60)
    document["nodes"][0]["objects"][0]["order_id"] = 36  # in the middle, where no preload comes
    document["nodes"][0]["objects"][35] |= {"order_id": 1, "ranges": []}
    with opened(document, "preload") as lookup:
        stats = lookup.get_objects(S, 0, -1, 1).stats

    ahead = [wave.preloaded for wave in stats.trace if wave.preloaded]
    assert [tuple(range(at, at + 5)) for at in (57, 52, 47, 42)] == ahead


@pytest.mark.parametrize(("cut", "wave"), [(False, "[6,7,9,10,11]"), (True, "[6,7]")])
def test_cut_waves(cut: bool, wave: str) -> None:
    """A wave may end before an object that is known to begin behind the offset."""
    with opened(world(20), "preload", cut_waves=cut) as lookup:
        found = lookup.get_objects(S, 65, 70, 1)

    assert [7] == [one.object_id for one in found.objects]
    assert f"[1,2,3,4,5] P[8,12,16,20] {wave}" == trace(found.stats)


def test_keep_objects() -> None:
    """Objects that are kept are not loaded again, up to their number, until they are gone."""
    image = StreamImage.from_json(world(4))
    reader = ImageReader(image)
    options = LookupOptions(keep_objects=3)
    with StreamLookup(image, reader, "partial", options=options) as lookup:
        assert 4 == lookup.get_objects(S, 0, 40, 9).stats.loads
        again = lookup.get_objects(S, 15, 40, 9).stats

        assert (1, 3) == (again.loads, again.kept)

        removed = {"op": "compact", "node_id": 1, "removed": [3, 4], "added": []}
        image = image.apply({**removed, "added_stream_objects": []})
        lookup.update(image)

        assert [None] * 2 == [lookup._loader.get_cached(one) for one in (3, 4)]
    assert reader.loads == 5
