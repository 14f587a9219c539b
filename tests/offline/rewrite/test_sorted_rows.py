"""The order of rows: by key, one a key, the heaviest and then the last of equal ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from bkstore import LedgerId
from bkstore.index.api import IndexBatch
from bkstore.offline.rewrite.log_names import LogNames
from bkstore.offline.spilled_rows.rows_by_key import RowsByKey
from bkstore.offline.spilled_rows.rows_by_log import RowsByLog
from bkstore.storage.directories.file_listing import LogFile
from bkstore.storage.directories.log_order import sort_by_creation

_SCOPES = st.sampled_from([0, 1, 2**63, 2**64 - 1])
_ROWS = st.lists(
    st.tuples(_SCOPES, st.integers(0, 3), st.integers(0, 5), st.integers(0, 1)), max_size=60
)


def _batch(rows: list[tuple[int, int, int, int]], start: int) -> tuple[IndexBatch, np.ndarray]:
    """Return rows of (scope, ledger, entry, weight) as a batch with rising locations."""
    names = [LedgerId(scope, ledger).signed for scope, ledger, _, _ in rows]
    columns = [
        np.zeros(len(rows)),
        [scope for scope, _ in names],
        [ledger for _, ledger in names],
        [entry for _, _, entry, _ in rows],
        np.arange(start, start + len(rows)) + 1,
    ]
    batch = IndexBatch(*(np.asarray(column, np.int64) for column in columns))
    return batch, np.array([weight for *_, weight in rows], np.int64)


@settings(max_examples=60)
@given(rows=_ROWS, run=st.integers(1, 20), cut=st.integers(1, 9))
def test_any_rows(
    rows: list[tuple[int, int, int, int]],
    run: int,
    cut: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Runs of any size give what a dict of the greatest (weight, arrival) gives, each time."""
    sorter = RowsByKey(tmp_path_factory.mktemp("sorter"), "rows", run_rows=run)
    best: dict[tuple[int, int, int], tuple[int, int]] = {}
    for at in range(0, len(rows), cut):
        part = rows[at : at + cut]
        sorter.add(*_batch(part, at))
        for number, (scope, ledger, entry, weight) in enumerate(part, at + 1):
            key = (scope, ledger, entry)
            best[key] = max(best.get(key, (0, 0)), (weight, number))
    expected = [(*key, best[key][1]) for key in sorted(best)]
    for _ in range(2):
        found = [
            (*map(int, (scope % 2**64, ledger, entry)), int(place))
            for batch in sorter
            for scope, ledger, entry, place in zip(*(c.tolist() for c in batch[1:]))
        ]

        assert expected == found
        assert len(rows) - len(best) == sorter.duplicates


def test_pieces_are_bounded(tmp_path: Path) -> None:
    """However many rows there are, no piece is much larger than a run."""
    rng = np.random.default_rng(4)
    sorter, count = RowsByKey(tmp_path, "rows", run_rows=2000), 60_000
    ids = rng.permutation(count)
    for part in np.array_split(ids, 40):
        sorter.add(IndexBatch.of_ledger(LedgerId.of(7), part, part + 1))
    sizes = [batch.entry_id.size for batch in sorter]

    assert count == sum(sizes)
    assert max(sizes) < 3 * 2000


def test_rows_by_log(tmp_path: Path) -> None:
    """Rows come back by the log that they point into, in the order of positions."""
    rows = RowsByLog(tmp_path / "logs")
    for directory in (0, 1, -1):
        entries = np.arange(6)
        places = np.array([3, 1, 3, 1, 3, 3], np.int64) << 32 | np.array([9, 8, 7, 6, 5, 4])
        rows.add(IndexBatch.of_ledger(LedgerId(5, 2**63), entries, places, directory))
    rows.finish()
    found = rows.rows_of_log(1, 3)

    assert [(-1, 1), (-1, 3), (0, 1), (0, 3), (1, 1), (1, 3)] == rows.logs()
    assert [5, 4, 2, 0] == found.entry_id.tolist()
    assert [(3 << 32) + place for place in (4, 5, 7, 9)] == found.location.tolist()
    assert {5} == set(found.scope_id.tolist())
    assert 0 == rows.rows_of_log(7, 7).location.size


# -- names of logs


@pytest.mark.parametrize(
    ("ids", "order"),
    [
        ([], []),
        ([0, 1, 5], [0, 1, 5]),
        ([3, 2**31 - 2, 2**31 - 1, 0], [2**31 - 2, 2**31 - 1, 0, 3]),
        ([2**30, 2**30 + 1], [2**30, 2**30 + 1]),
        ([2**30, 0], [0, 2**30]),
    ],
    ids=["none", "plain", "wrapped", "high", "equal gaps"],
)
def test_log_order(ids: list[int], order: list[int]) -> None:
    """Logs come in the order in which ids are given out, which begin again behind 2^31-1."""
    logs = [LogFile(0, number, "", 0) for number in ids]

    assert order == [log.log_id for log in sort_by_creation(logs)]


def _file(top: Path, directory: int, log_id: int, text: str) -> LogFile:
    path = top / f"{directory}-{log_id:x}.log"
    path.write_text(text)
    return LogFile(directory, log_id, str(path), len(text))


def test_new_names(tmp_path: Path) -> None:
    """A log keeps its id unless an earlier directory has another log of that id.

    A row into a log that is not here gets an id that no log has.
    """
    logs = [
        _file(tmp_path, 0, 1, "one"),
        _file(tmp_path, 0, 2, "two"),
        _file(tmp_path, 1, 1, "one"),
        _file(tmp_path, 1, 2, "TWO"),
        _file(tmp_path, 1, 4, "four"),
    ]
    names = LogNames(logs, True, "idx", 2)
    places = np.array([1, 2, 4, 9, 2], np.int64) << 32 | 1028
    rows = IndexBatch.of_ledger(LedgerId.of(1), np.arange(5), places)
    rows = rows._replace(dir_index=np.array([1, 1, 1, 1, 0]))
    located = names.relocate(rows).location

    assert [1, 5, 4, 9, 2] == (located >> 32).tolist()
    assert {1028} == set((located & 0xFFFFFFFF).tolist())
    assert [logs[0], logs[1], logs[3], logs[4]] == names.distinct_logs
    assert 1 == names.renamed
    assert 10 == names.new_id(0, 5)


def test_names_beyond_the_highest(tmp_path: Path) -> None:
    """Where the highest id is taken, a new one is the lowest that is free."""
    last = 2**31 - 1
    logs = [
        _file(tmp_path, 0, last, "a"),
        _file(tmp_path, 0, 0, "b"),
        _file(tmp_path, 1, last, "c"),
    ]
    names = LogNames(logs, True, "idx", 2)

    assert 1 == names.new_id(1, last)
