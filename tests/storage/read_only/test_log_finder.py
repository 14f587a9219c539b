"""`LogFinder` over logs made record by record: the newest copy counts, scans are kept, shared."""

from __future__ import annotations

import threading
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bkstore import BookieDir, LedgerId
from bkstore.bloom import FilterSet
from bkstore.errors import BkstoreError, InvalidArgument
from bkstore.index.api import Finding
from bkstore.storage.entry_log import contents
from tests.storage.read_only.written_logs import finder_of, ids_by_log, write_log
from tests.worlds.entry_logs import CODER, NAMES, SCOPED, make_log


def test_what_a_row_says(tmp_path: Path) -> None:
    """Directory number, log id, path and entries; rows by directory, then id."""
    paths = [write_log(tmp_path, log_id, {7: [log_id, 40]}) for log_id in (10, 2, 1)]
    with BookieDir(tmp_path) as bookie:
        found = bookie.find_logs(7, copies=True)

    assert [(0, 1), (0, 2), (0, 10)] == [(log.dir_index, log.log_id) for log in found]
    assert [str(path) for path in reversed(paths)] == [log.path for log in found]
    assert [[1, 40], [2, 40], [10, 40]] == [log.entries.entries().tolist() for log in found]


def test_a_ledger_taken_apart_by_striping(tmp_path: Path) -> None:
    """The next entry may lie in a later log, and one before it again: all that overlap count."""
    write_log(tmp_path, 0, {7: [0, 3, 6, 12]})
    write_log(tmp_path, 1, {7: [1, 9, 10], 8: [5]})
    write_log(tmp_path, 2, {7: [4, 7]}, closed=False)
    finder = finder_of(tmp_path)

    assert {0: [6], 1: [9], 2: [7]} == ids_by_log(finder.find(LedgerId.of(7), 5, 9))
    assert {0: [12]} == ids_by_log(finder.find(LedgerId.of(7), 11))
    assert {} == ids_by_log(finder.find(LedgerId.of(7), 13, 99))
    assert {1: [5]} == ids_by_log(finder.find(LedgerId.of(8)))


def test_the_newest_copy_counts(tmp_path: Path) -> None:
    """An entry in several logs is told of the one with the highest id; `copies` tells of all."""
    write_log(tmp_path, 3, {7: [0, 1, 2, 3]})
    write_log(tmp_path, 0x10, {7: [2, 2, 5]})
    write_log(tmp_path, 4, {7: [1, 2]}, closed=False)
    finder = finder_of(tmp_path)

    assert {3: [0, 3], 4: [1], 16: [2, 5]} == ids_by_log(finder.find(LedgerId.of(7)))
    assert {4: [1], 16: [2]} == ids_by_log(finder.find(LedgerId.of(7), 1, 2))
    assert {3: [0, 1, 2, 3], 4: [1, 2], 16: [2, 5]} == ids_by_log(
        finder.find(LedgerId.of(7), copies=True)
    )


def test_empty_logs(tmp_path: Path) -> None:
    """A log without entries, and one whose header is not written yet, hold nothing."""
    write_log(tmp_path, 0, {}, closed=False)
    (tmp_path / "current" / "1.log").touch()
    write_log(tmp_path, 2, {7: [1]})
    findings: list[Finding] = []
    with BookieDir(tmp_path) as bookie:
        assert {2: [1]} == ids_by_log(bookie.find_logs(7, findings=findings))
    assert [] == findings


def test_batches_are_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log condensed in several goes has the entries of all of them."""
    expected: dict[LedgerId, set[int]] = defaultdict(set)
    log = make_log(count=200)
    for record in log.records.values():
        decoded = CODER.decode(record)
        expected[LedgerId.of(decoded.ledger)].add(decoded.entry_id)
    write_log(tmp_path, 0, {})
    (tmp_path / "current" / "0.log").write_bytes(log.data)
    read = contents.scan_log
    monkeypatch.setattr(contents, "_MAX_ROWS", 7)
    monkeypatch.setattr(
        contents,
        "scan_log",
        lambda *words: (b.where(np.array([n])) for b in read(*words) for n in range(len(b))),
    )
    finder = finder_of(tmp_path)

    assert set(NAMES) == set(expected)
    for name, entries in expected.items():
        assert {0: sorted(entries)} == ids_by_log(finder.find(name))


@pytest.mark.parametrize("span", [(-1, None), (0, 2**63 - 1), (0, -1)])
def test_refused_ranges(tmp_path: Path, span: tuple[int, int | None]) -> None:
    """What is no entry id is refused; an empty range is in no log."""
    write_log(tmp_path, 0, {7: [1]})
    with BookieDir(tmp_path) as bookie:
        with pytest.raises(InvalidArgument, match="entry id"):
            bookie.find_logs(7, *span)

        assert [] == bookie.find_logs(7, 2, 1)


# -- what is kept


def test_each_log_is_scanned_once(tmp_path: Path) -> None:
    """A log that has the ledger is scanned at the first question, and for all its ledgers."""
    for log_id in range(4):
        write_log(tmp_path, log_id, {7: [log_id], 8: [log_id + 50]}, closed=log_id < 3)
    write_log(tmp_path, 9, {99: [0]})
    finder = finder_of(tmp_path)
    finder.find(LedgerId.of(7))

    assert 4 == finder.scan_count
    for path in (tmp_path / "current").glob("*.log"):
        path.unlink()
    assert [{n: [n]} for n in range(4)] == [
        ids_by_log(finder.find(LedgerId.of(7), n, n)) for n in range(4)
    ]
    assert {n: [n + 50] for n in range(4)} == ids_by_log(finder.find(LedgerId.of(8)))
    assert 4 == finder.scan_count


@pytest.mark.parametrize("fpp", [0.01, 0.5])
def test_a_map_spares_the_scan(tmp_path: Path, fpp: float) -> None:
    """Closed logs whose map lacks the ledger are not scanned; a filter that says yes wrongly
    costs a look into the map."""
    for log_id in range(3):
        write_log(tmp_path, log_id, {7: [log_id], SCOPED: [5]})
    finder = finder_of(tmp_path, filters=FilterSet(fpp=fpp))
    absent = [*map(LedgerId.of, range(100, 140)), LedgerId(SCOPED.scope, 5)]

    assert [{}] * 41 == [ids_by_log(finder.find(name)) for name in absent]
    assert (0, 3) == (finder.scan_count, len(finder.filters))


def test_a_refused_log_is_not_opened(tmp_path: Path) -> None:
    """Once its filter is there, a log that has not the ledger is not touched."""
    for log_id in range(3):
        write_log(tmp_path, log_id, {7: [log_id], SCOPED: [5]})
    finder = finder_of(tmp_path)
    finder.find(LedgerId.of(8))
    for path in (tmp_path / "current").glob("*.log"):
        path.unlink()

    assert {} == ids_by_log(finder.find(LedgerId.of(8)))
    for name in (LedgerId.of(7), SCOPED):
        with pytest.raises(BkstoreError, match="cannot be read"):
            finder.find(name)


def test_an_entry_in_the_newest_log(tmp_path: Path) -> None:
    """When all entries are found, older logs are not looked at; with `copies` they are."""
    for log_id in range(5):
        write_log(tmp_path, log_id, {7: [0, log_id]})
    finder = finder_of(tmp_path)

    assert {4: [0]} == ids_by_log(finder.find(LedgerId.of(7), 0, 0))
    assert 1 == finder.scan_count
    assert 5 == len(finder.find(LedgerId.of(7), 0, 0, copies=True))
    assert 5 == finder.scan_count


def test_what_is_kept_is_bounded(tmp_path: Path) -> None:
    """Contents of scanned logs leave, least recently used first; answers stay right."""
    for log_id in range(3):
        write_log(tmp_path, log_id, {log_id: [log_id]})
    room = 2 * (16 + 16 + 32)  # a ledger, two bounds and a group each
    finder = finder_of(tmp_path, contents_bytes=room)

    def scans(ledger: int) -> int:
        before = finder.scan_count
        assert {ledger: [ledger]} == ids_by_log(finder.find(LedgerId.of(ledger)))
        assert room >= finder.nbytes - finder.filters.nbytes
        return finder.scan_count - before

    assert [1, 1, 0, 1] == [scans(0), scans(1), scans(0), scans(2)]
    assert [0, 1] == [scans(0), scans(1)]


def test_the_last_scanned_is_kept(tmp_path: Path) -> None:
    """However little room there is, one log's contents stay for the next question."""
    write_log(tmp_path, 0, {7: [0]})
    finder = finder_of(tmp_path, contents_bytes=0)
    for _ in range(3):
        assert {0: [0]} == ids_by_log(finder.find(LedgerId.of(7)))

    assert 1 == finder.scan_count


def test_threads_share_one_scan(tmp_path: Path) -> None:
    """Questions beside each other give one thread's answers, with one scan of each log."""
    for log_id in range(6):
        write_log(tmp_path, log_id, {7: list(range(log_id, 60, 6)), 8: [log_id]})
    finder = finder_of(tmp_path)
    answers: list[Any] = []
    threads = [
        threading.Thread(target=lambda: answers.append(ids_by_log(finder.find(LedgerId.of(7)))))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [{n: list(range(n, 60, 6)) for n in range(6)}] * 8 == answers
    assert 6 == finder.scan_count
