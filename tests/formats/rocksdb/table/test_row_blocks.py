"""The arrays that data blocks are written from, against bytes compared one by one."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from bkstore.formats.rocksdb.table.row_blocks import BlockShape, count_shared_bytes, end_blocks
from bkstore.formats.rocksdb.table.table_builder import TableBuilder, TableFileSettings


@pytest.mark.parametrize("words", [1, 2, 3])
def test_shared_bytes(words: int) -> None:
    """Also where the numbers that differ have more bits than a float."""
    for bits in range(64 * words):
        for last in (2**bits, 2 ** (bits + 1) - 1):
            numbers = [0, last]
            encoded = [number.to_bytes(8 * words, "big") for number in numbers]
            keys = np.frombuffer(b"".join(encoded), ">u8").reshape(-1, words).T.astype(np.uint64)
            expected = [
                next(i for i in range(8 * words) if one[i] != other[i])
                for one, other in pairwise(encoded)
            ]
            assert [0, *expected] == count_shared_bytes(keys).tolist()


def test_last_block_is_full() -> None:
    """A block that its last row fills ends with the file: no block without rows follows."""
    shape = BlockShape(block_bytes=1)
    assert [1, 2] == end_blocks(np.zeros(3, np.int64), 1, shape).tolist()

    builder = TableBuilder(1, TableFileSettings(shape))
    builder.add(np.array([[5, 6, 7]], np.uint64), np.array([1, 2, 3]))
    assert builder.finish()
    assert 3 == builder.rows
