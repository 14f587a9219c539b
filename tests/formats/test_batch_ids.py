"""Ids and ledgers of a batch against those of its records one by one."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from hypothesis import example, given, strategies as st

from bkstore.errors import CorruptionError
from bkstore.formats.entry import BatchLedgers, read_batch_ids, record_header
from bkstore.ids import LedgerId
from tests.worlds.batches import SHAPES, shaped

_V1 = struct.Struct(">qqqq")
_V2 = struct.Struct(">Bqqqqq")
_i64 = st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 2)
_tail = st.binary(max_size=12)
_flags = st.integers(0xA1, 0xA4) | st.integers(0, 255)

_plain = st.builds(lambda *ids: _V1.pack(*ids), st.integers(0, 2**63 - 1), _i64, _i64, _i64)
_wide = st.builds(lambda flags, *ids: _V2.pack(flags, *ids), _flags, _i64, _i64, _i64, _i64, _i64)
_record = (
    st.builds(bytes.__add__, _plain | _wide, _tail)
    | (_plain | _wide).flatmap(lambda made: st.integers(0, len(made)).map(lambda at: made[:at]))
    | st.binary(max_size=60)
)


def one_by_one(records: list[bytes]) -> list[tuple[LedgerId, int, int]]:
    """Return ledger, entry and LAC of the records before the first that is none."""
    found = []
    for record in records:
        try:
            found.append(record_header(record)[:3])
        except CorruptionError:
            break
    return found


@given(records=st.lists(_record, max_size=10), shape=st.sampled_from(sorted(SHAPES)))
@example(records=[_V1.pack(7, 1, 0, 0), _V2.pack(0xA1, 5, 7, 1, 0, 0)[:40]], shape="bare")
@example(records=[_V2.pack(0xA4, 5, -7, 1, 0, 0), _V2.pack(0xA5, 5, 7, 1, 0, 0)], shape="of")
@example(records=[_V2.pack(0xA0, 5, 7, 1, 0, 0), _V1.pack(7, 1, 0, 0)], shape="of")
@example(records=[_V1.pack(7, 1, 0, 0)[:31], _V1.pack(7, 1, 0, 0)], shape="bare")
def test_ids_are_those_of_the_headers(records: list[bytes], shape: str) -> None:
    """Ledgers, entries and LACs up to the first record that is none, garbage included."""
    ids = read_batch_ids(shaped(shape, records, range(len(records))))

    expected = one_by_one(records)
    pairs = zip(ids.scopes.tolist(), ids.ledgers.tolist())
    assert [name for name, _, _ in expected] == [LedgerId.from_signed(*pair) for pair in pairs]
    assert [entry for _, entry, _ in expected] == ids.entries.tolist()
    assert [lac for _, _, lac in expected] == ids.lacs.tolist()


_names = st.lists(
    st.sampled_from([(0, 0), (0, 7), (0, 2**63 - 1), (1, 7), (7, 1), (-1, -(2**63)), (-1, 7)]),
    max_size=14,
)


@given(names=_names, data=st.data())
def test_ledgers_in_order_of_their_first_record(names: list[tuple[int, int]], data: Any) -> None:
    """Names, numbers, rows, first records, highest values and runs are those of a loop.

    Of a stretch of the batch too, and of a stretch of that.
    """
    scopes, ledgers = (np.array([pair[at] for pair in names], np.int64) for at in (0, 1))
    found, start, stop = BatchLedgers.of(scopes, ledgers), 0, len(names)
    for _ in range(3):
        _same_as_a_loop([LedgerId.from_signed(*pair) for pair in names[start:stop]], found, data)
        if start == stop:
            break
        first = data.draw(st.integers(0, stop - start - 1))
        last = data.draw(st.integers(first + 1, stop - start))
        found, start, stop = found.between(first, last), start + first, start + last


def _same_as_a_loop(owners: list[LedgerId], found: BatchLedgers, data: Any) -> None:
    order = list(dict.fromkeys(owners))
    rows = [[at for at, owner in enumerate(owners) if owner == name] for name in order]
    lacs = data.draw(st.lists(_i64, min_size=len(owners), max_size=len(owners)))

    assert order == found.ledger_ids
    assert (len(order) > 1) == (found.numbers is not None)
    if owners:
        assert rows == [list(map(int, some)) for some in found.rows_by_ledger(len(owners))]
        assert [some[0] for some in rows] == [found.first_row(at) for at in range(len(order))]
        highest = [(name, max(lacs[at] for at in some)) for name, some in zip(order, rows)]
        assert highest == found.highest_by_ledger(np.array(lacs, np.int64))
    assert _runs(owners) == found.runs(len(owners))


def _runs(owners: list[LedgerId]) -> list[tuple[LedgerId, int, int]]:
    """Return the stretches of one owner."""
    found: list[tuple[LedgerId, int, int]] = []
    for at, owner in enumerate(owners):
        if found and found[-1][0] == owner:
            found[-1] = (owner, found[-1][1], at + 1)
        else:
            found.append((owner, at, at + 1))
    return found
