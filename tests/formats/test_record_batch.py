"""RecordBatch against a plain list of bytes: whatever is cut, chosen, framed or joined."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from bkstore.formats.entry import RecordBatch
from tests.worlds.batches import SHAPES, shaped

PREFIX = 4

_shapes = st.sampled_from(sorted(SHAPES))
_sizes = st.integers(0, 9).flatmap(lambda size: st.binary(min_size=size, max_size=size))
_equal = st.integers(0, 9).flatmap(
    lambda size: st.lists(st.binary(min_size=size, max_size=size), max_size=12)
)
_records = st.lists(_sizes, max_size=12) | _equal


def frames(records: list[bytes]) -> bytes:
    """Return records as journals and entry logs have them, byte by byte."""
    return b"".join(len(record).to_bytes(PREFIX, "big") + record for record in records)


def says(records: list[bytes], entries: list[int], batch: RecordBatch) -> None:
    """Assert that a batch has these records, whichever way it is asked."""
    assert entries == batch.entries.tolist()
    assert records == batch.records()
    assert records == [bytes(record) for record in batch]
    assert len(records) == len(batch)
    assert [len(record) for record in records] == batch.sizes.tolist()


def is_framed(records: list[bytes], entries: list[int], batch: RecordBatch) -> None:
    """Assert that a batch has these records, and its whole buffer is their frames."""
    says(records, entries, batch)
    assert frames(records) == bytes(batch.buffer)
    ends = list(accumulate(PREFIX + len(record) for record in records))
    starts = [end - len(record) for end, record in zip(ends, records, strict=True)]
    assert starts == batch.offsets.tolist()


@given(records=_records, shape=_shapes)
def test_framed(records: list[bytes], shape: str) -> None:
    """The same records, and a buffer that is their frames and nothing else; done once."""
    entries = list(range(100, 100 + len(records)))
    batch = shaped(shape, records, entries)
    framed = batch.framed()

    says(records, entries, batch)
    is_framed(records, entries, framed)
    is_framed(records, entries, framed.framed())


@pytest.mark.parametrize("shape", ["of", "framed", "changeable", "array"])
@pytest.mark.parametrize("sizes", [[5] * 6, [5, 0, 7, 7, 1]], ids=["equal", "mixed"])
def test_framed_copies_nothing_where_frames_are_there(shape: str, sizes: list[int]) -> None:
    """A framed batch and a part of it share its bytes; one that is known to be framed is itself."""
    records = [bytes([at]) * size for at, size in enumerate(sizes)]
    batch = shaped(shape, records, range(len(records)))
    part = batch.between(1, 4).framed()

    framed = batch.framed()
    assert framed is framed.framed()
    assert batch.buffer is framed.buffer
    assert np.shares_memory(np.frombuffer(part.buffer, np.uint8), _bytes_of(batch))
    is_framed(records[1:4], [1, 2, 3], part)


def test_framed_looks_again_where_the_caller_may_change_the_bytes() -> None:
    """A batch over a buffer of the caller's, framed once, is not taken for framed later."""
    buffer = bytearray(frames([b"first", b"second"]))
    whole = memoryview(buffer)
    batch = RecordBatch(np.arange(2), whole, np.array([4, 13]), np.array([5, 6]))
    batch.framed()
    buffer[12] = 9  # the size before the second record

    is_framed([b"first", b"second"], [0, 1], batch.framed())


def _bytes_of(batch: RecordBatch) -> Any:
    return np.frombuffer(batch.buffer, np.uint8)


@given(records=_records, shape=_shapes, data=st.data())
def test_between(records: list[bytes], shape: str, data: Any) -> None:
    """A half open stretch, and a stretch of a stretch; framed, it is its own frames."""
    entries = list(range(len(records)))
    ends = st.integers(0, len(records))
    start, stop = sorted((data.draw(ends), data.draw(ends)))
    batch = shaped(shape, records, entries)
    part = batch.between(start, stop)
    inner = sorted((data.draw(st.integers(0, stop - start)), stop - start))

    says(records[start:stop], entries[start:stop], part)
    is_framed(records[start:stop], entries[start:stop], part.framed())
    is_framed(
        records[start:stop], entries[start:stop], batch.framed().between(start, stop).framed()
    )
    cut = part.framed().between(*inner)
    is_framed(records[start:stop][slice(*inner)], entries[start:stop][slice(*inner)], cut.framed())
    says(records[:stop], entries[:stop], batch.first(stop))


@given(records=_records.filter(bool), shape=_shapes, data=st.data())
def test_at(records: list[bytes], shape: str, data: Any) -> None:
    """Records by number, in any order, some again; framed, they are their own frames."""
    rows = data.draw(st.lists(st.integers(0, len(records) - 1), max_size=20))
    batch = shaped(shape, records, range(len(records))).take(np.array(rows, np.int64))

    says([records[at] for at in rows], rows, batch)
    is_framed([records[at] for at in rows], rows, batch.framed())


@given(records=_records.filter(bool), shape=_shapes, most=st.integers(0, 200))
def test_within(records: list[bytes], shape: str, most: int) -> None:
    """Records up to the one whose frame passes the limit, that one included."""
    count, size = 0, 0
    for record in records:
        count += 1
        size += PREFIX + len(record)
        if size > most:
            break
    batch = shaped(shape, records, range(len(records))).limit_bytes(most)

    says(records[:count], list(range(count)), batch)


@given(parts=st.lists(st.tuples(_records, _shapes), max_size=5), framed=st.booleans())
def test_joined(parts: list[tuple[list[bytes], str]], framed: bool) -> None:
    """Batches one behind the other are the records of all; framed ones make a framed one."""
    records = [record for some, _ in parts for record in some]
    ends = [0, *accumulate(len(some) for some, _ in parts)]
    batches = [
        shaped(shape, some, range(*ids)) for (some, shape), ids in zip(parts, pairwise(ends))
    ]
    joined = RecordBatch.concatenate([batch.framed() for batch in batches] if framed else batches)

    says(records, list(range(len(records))), joined)
    is_framed(records, list(range(len(records))), joined.framed())
    if framed:
        is_framed(records, list(range(len(records))), joined)


def test_framed_does_not_take_sizes_on_trust() -> None:
    """Records that lie as frames do, but with other sizes before them, are framed anew.

    Of equal sizes and of different ones, the wrong size at the beginning, inside, at the end.
    """
    for sizes in ([6] * 5, [6, 3, 8, 0, 2]):
        records = [bytes([65 + at]) * size for at, size in enumerate(sizes)]
        for wrong in range(5):
            buffer = bytearray(frames(records))
            good = shaped("framed", records, range(5))
            buffer[int(good.offsets[wrong]) - 1] ^= 1
            batch = RecordBatch(good.entries, bytes(buffer), good.offsets, good.sizes)

            is_framed(records, list(range(5)), batch.framed())


@pytest.mark.parametrize("different", [False, True], ids=["equal", "different"])
@pytest.mark.parametrize("wrong", [None, 0, 30, 39, 40, 79, 80, 99])
def test_framed_by_long_stretches(different: bool, wrong: int | None) -> None:
    """Frames with other bytes between a hundred of them, as in journals, come out as they are;
    where a record has another size before it, that is put right."""
    records = [bytes([at]) * (20 + at % 3 * different) for at in range(100)]
    buffer, offsets = bytearray(b"before"), []
    for at, record in enumerate(records):
        buffer += b"\xff" * 60 if at in (40, 80) else b""
        offsets.append(len(buffer) + PREFIX)
        buffer += frames([record])
    if wrong is not None:
        buffer[offsets[wrong] - 1] ^= 1
    columns = (np.array(offsets), np.array([len(record) for record in records]))
    batch = RecordBatch(np.arange(100), bytes(buffer + b"behind"), *columns)

    is_framed(records, list(range(100)), batch.framed())
