"""Runs of entries and rows by location, against plain sets and sorted lists."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from bkstore.ids import LedgerId
from bkstore.index.api import IndexBatch
from bkstore.offline.check.entry_runs import EntryRuns
from bkstore.offline.spilled_rows import rows_by_log
from bkstore.offline.spilled_rows.rows_by_log import LogRows, RowsByLog

ROWS = st.lists(st.tuples(st.integers(0, 1), st.integers(-2, 3), st.integers(0, 30)), max_size=60)


def _columns(rows: list[tuple[int, int, int]]) -> list[np.ndarray]:
    table = np.array(rows, np.int64).reshape(-1, 3)
    return [*table.T, 1000 + table[:, 2]]


@given(st.lists(ROWS, max_size=4))
def test_runs_hold_the_entries(parts: list[list[tuple[int, int, int]]]) -> None:
    """Runs are sorted, do not touch, and hold exactly the entries that were added, once."""
    runs = EntryRuns()
    for part in parts:
        runs.add(*_columns(part))
    held = [
        (scope, ledger, entry)
        for scope, ledger, first, last, _, _ in runs.rows().tolist()
        for entry in range(first, last + 1)
    ]
    unsigned = [(s, ledger % 2**64, entry) for s, ledger, entry in held]

    assert sorted({row for part in parts for row in part}) == sorted(held)
    assert sorted(unsigned) == unsigned
    assert len(held) == runs.entry_count
    assert [1000 + row[2] for row in runs.rows().tolist()] == runs.rows()[:, 5].tolist()
    for one, other in zip(runs.rows().tolist(), runs.rows().tolist()[1:]):
        assert one[:2] != other[:2] or one[3] + 1 < other[2]


def test_a_stripe_is_one_finding() -> None:
    """All runs of a ledger are one finding, whatever their number: it has the entries as groups."""
    runs = EntryRuns()
    runs.add(*_columns([(0, 8, 3)]))
    runs.add(*_columns([(0, 7, 3 * index) for index in reversed(range(34))]))
    first, second = runs.findings("no-log", "damage", "no such entry log", "1.log")

    assert "entries 0, 3, 6, ..., 99 (34 entries) of ledger 7: no such entry log" == first.detail
    assert (0, 99, 34, 1000) == (
        first.first_entry,
        first.last_entry,
        first.entries,
        first.offset,
    )
    assert first.entry_set is not None
    assert [[0, 99, 1, 3]] == first.entry_set.groups.tolist()
    assert "entry 3 of ledger 8: no such entry log" == second.detail


def test_ids_beyond_the_last_entry_are_counted() -> None:
    """A record may carry an id that no entry has: the finding has its ends, and no groups."""
    runs = EntryRuns()
    runs.add(*_columns([(0, 7, 4)]))
    runs.add(*(np.array([value]) for value in (0, 7, 2**63 - 1, 2000)))
    (finding,) = runs.findings("no-record", "damage", "gone", "0.log")

    assert f"2 entries of ledger 7 within 4..{2**63 - 1}: gone" == finding.detail
    assert (None, 2) == (finding.entry_set, finding.entries)


def test_many_ledgers_end_in_one() -> None:
    """Of more ledgers than are told apart, the last finding has the rest, none is left out."""
    runs = EntryRuns()
    runs.add(*_columns([(0, ledger, 5) for ledger in range(10_050)]))
    found = list(runs.findings("no-record", "damage", "gone", "0.log"))

    assert 10_001 == len(found)
    assert (50, None) == (found[-1].entries, found[-1].ledger)
    assert "50 entries of 50 more ledgers, from 10000 on" in found[-1].detail
    assert LedgerId.of(0) == found[0].ledger


def _batch(rows: list[tuple[int, int]]) -> IndexBatch:
    numbers, locations = (np.array(column, np.int64) for column in zip(*rows))
    entries = np.arange(len(rows))
    zero = np.zeros(len(rows), np.int64)
    return IndexBatch(numbers, zero, zero + 7, entries, locations)


@pytest.mark.parametrize("piece", [1, 64, 1 << 20])
def test_rows_come_back_by_location(
    tmp_path: Path, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the pieces, each log's rows come back once, in ascending positions."""
    monkeypatch.setattr(rows_by_log, "PIECE_ROWS", piece)
    random = np.random.default_rng(3)
    spill = RowsByLog(tmp_path / "rows")
    wanted: dict[tuple[int, int], list[int]] = {}
    for _ in range(20):
        logs = random.integers(0, 3, 40)
        places = random.integers(1028, 1 << 26, 40)
        numbers = random.integers(0, 2, 40)
        for number, log, place in zip(numbers.tolist(), logs.tolist(), places.tolist()):
            wanted.setdefault((number, log), []).append(place)
        spill.add(_batch(list(zip(numbers.tolist(), ((logs << 32) + places).tolist()))))
    spill.finish()

    assert sorted(wanted) == spill.logs()
    assert 800 == spill.row_count
    for at, places in wanted.items():
        rows = LogRows(spill.path, spill.segments(*at))
        middle = sorted(places)[len(places) // 2]
        before = rows.read_up_to(middle)[:, 3].tolist()
        rest = [place for part in rows.read_rest() for place in part[:, 3].tolist()]

        assert len(places) == rows.row_count
        assert sorted(place for place in places if place <= middle) == before
        assert sorted(place for place in places if place > middle) == rest
