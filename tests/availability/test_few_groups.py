"""Answers of few groups have a way of their own through the decoder; it must tell the same."""

from __future__ import annotations

import random
import struct

import numpy as np
import pytest

from bkstore.availability import Availability, codec, grouping
from bkstore.errors import CorruptionError

Row = tuple[int, int, int, int]


def _bytes(rows: list[Row]) -> bytes:
    return struct.pack(">ii56x", 0, len(rows)) + b"".join(
        struct.pack(">qqii", *row) for row in rows
    )


def _random_rows(chance: random.Random) -> list[Row]:
    """Rows near each other: sound ones, ones that touch or overlap, ones that are wrong."""
    rows: list[Row] = []
    at = chance.choice([0, 1, -1, 5, 2**63 - 60])
    for _ in range(chance.randint(0, 4)):
        size, count = chance.choice([1, 1, 2, 3, 0, -1]), chance.choice([1, 1, 2, 3])
        period = chance.choice([size + 1, 3, 4, size, 0, 2, -1])
        first = at + chance.choice([0, 1, 2, 3, -1])
        last = first + (count - 1) * period + (chance.random() < 0.05)
        if count == 1 and chance.random() < 0.9:
            period = 0
        if max(first, last) < 2**63:
            rows.append((first, last, size, period))
            at = last + size + chance.choice([0, 1, 2, 2])
    return rows


def _ids(rows: list[Row]) -> list[int]:
    """Every entry id that the rows say, written out."""
    return sorted(
        start + nth
        for first, last, size, period in rows
        for start in range(first, last + 1, max(period, 1))
        for nth in range(size)
    )


@pytest.mark.parametrize("part", range(8))
def test_few_groups_tell_the_same(part: int) -> None:
    """Bytes of few groups are taken only if sound and canonical, and give the same set."""
    chance = random.Random(part)
    taken = 0
    for _ in range(2_000):
        rows = _random_rows(chance)
        data = _bytes(rows)
        few = codec.decode_if_few(data)
        try:
            whole = grouping.canonicalize(codec.decode(data))
        except CorruptionError:
            assert few is None
            with pytest.raises(CorruptionError):
                Availability.from_bytes(data)
            continue
        ids = _ids(rows)

        assert ids == Availability.from_bytes(data).entries().tolist()
        same = [list(row) for row in rows] == np.stack(whole, axis=1).tolist()
        assert same == (few is not None) or not rows
        if few is not None:
            taken += 1
            assert [list(row) for row in rows] == np.stack(few, axis=1).tolist()
    assert taken > 100


@pytest.mark.parametrize("size", [1, 3])
def test_groups_that_a_period_joins(size: int) -> None:
    """Two groups of one size are one up to a distance of 2^31-1; further apart they are two."""
    for distance in (size + 1, 2**31 - 2, 2**31 - 1):
        rows = [(5, 5, size, 0), (5 + distance, 5 + distance, size, 0)]

        assert [[5, 5 + distance, size, distance]] == Availability.from_bytes(
            _bytes(rows)
        ).groups.tolist()

    for distance in (2**31, 2**31 + 1):
        rows = [(5, 5, size, 0), (5 + distance, 5 + distance, size, 0)]

        assert list(map(list, rows)) == Availability.from_bytes(_bytes(rows)).groups.tolist()


def test_other_buffers_and_lengths() -> None:
    """Memory views, bytes behind the last group and missing bytes are the general way's."""
    data = Availability.from_entries([0, 1, 3, 4, 9]).to_bytes()

    assert [0, 1, 3, 4, 9] == Availability.from_bytes(memoryview(data)).entries().tolist()
    assert [0, 1, 3, 4, 9] == Availability.from_bytes(data + b"rest").entries().tolist()
    assert [0, 1, 3, 4, 9] == Availability.from_bytes(bytearray(data)).entries().tolist()
    with pytest.raises(CorruptionError, match="announced"):
        Availability.from_bytes(data[:-1])
