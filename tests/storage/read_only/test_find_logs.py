"""`BookieDir.find_logs`: the logs that hold entries, told by the logs alone.

Two oracles: the index, which the finder never asks, on trees of the real BookKeeper and on ours;
and a scan of all logs that keeps every copy of every entry in dictionaries.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from bkstore import BookieDir, LedgerId
from bkstore.ids import MAX_ENTRY_ID
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.index.rocks import RocksIndex
from bkstore.storage.ledger_storage import LedgerStorage
from bkstore.storage.read_only.find_logs import FoundLog
from tests.storage.read_only.written_logs import fill_storage
from tests.worlds.dumps import write_log
from tests.worlds.entry_logs import SCOPED, make_log

Places = dict[tuple[int, int], list[int]]
"""(directory number, log id) -> entries."""

RANGES = [(0, None), (5, 5), (3, 300)]


def _places(found: Iterable[FoundLog]) -> Places:
    return {(log.dir_index, log.log_id): log.entries.entries().tolist() for log in found}


def _by_index(bookie: BookieDir, ledger: Any) -> Places:
    """Return where the index says that entries are."""
    places: Places = defaultdict(list)
    rows = zip(*(column.tolist() for column in bookie.locate(ledger)))
    for entry, number, location in rows:
        places[number, location >> 32].append(entry)
    return dict(places)


def _by_scan(bookie: BookieDir) -> dict[LedgerId, Places]:
    """Return every copy of every entry, by looking at all records of all logs."""
    held: dict[LedgerId, dict[tuple[int, int], set[int]]] = defaultdict(lambda: defaultdict(set))
    for log in bookie.entry_logs:
        for batch in bookie.scan_log(log.log_id, log.dir_index):
            columns = (batch.scope_id, batch.ledger_id, batch.entry_id)
            for scope, ledger, entry in zip(*(column.tolist() for column in columns)):
                name = LedgerId.from_signed(scope, ledger)
                held[name][log.dir_index, log.log_id].add(entry)
    return {
        name: {place: sorted(entries) for place, entries in places.items()}
        for name, places in held.items()
    }


def _newest(copies: Places) -> Places:
    """Return for each place the entries of which no copy is in a log of a higher id."""
    newest = {}
    for place in sorted(copies, key=lambda place: place[1]):
        newest.update(dict.fromkeys(copies[place], place))
    places: Places = defaultdict(list)
    for entry in sorted(newest):
        places[newest[entry]].append(entry)
    return dict(places)


def _only(places: Places, wanted: Iterable[int]) -> Places:
    """Return the places without entries that are not wanted."""
    kept = {place: sorted({*ids}.intersection(wanted)) for place, ids in places.items()}
    return {place: ids for place, ids in kept.items() if ids}


# -- the real bookie's trees


def _agrees_with_index(bookie: BookieDir, ledgers: Iterable[Any]) -> None:
    for ledger in ledgers:
        told = _by_index(bookie, ledger)
        here = {entry for ids in told.values() for entry in ids}
        for first, last in RANGES:
            found = _places(bookie.find_logs(ledger, first, last))
            high = MAX_ENTRY_ID if last is None else last
            within = {entry for entry in here if first <= entry <= high}

            assert _only(told, within) == _only(found, here)


def test_the_logs_that_the_index_names(tree: Any) -> None:
    """For every ledger and range: the same logs, and the same entries in each."""
    with BookieDir(tree.root) as bookie:
        _agrees_with_index(bookie, [answer["ledger"] for answer in tree.known])


def test_the_places_that_the_real_bookie_told(tree: Any) -> None:
    """Every entry of which the golden data has a location is found in that log alone."""
    with BookieDir(tree.root) as bookie:
        for answer in tree.known:
            found = bookie.find_logs(answer["ledger"])
            for entry, location, *_ in answer["locations"][:300]:
                assert [location >> 32] == [log.log_id for log in found if entry in log.entries]


def test_clusters_too(cluster: Any) -> None:
    """Also where index entries were taken away at some bookies: the logs still have them."""
    root, document = cluster
    lost = 0
    for number in document["bookies"]:
        with BookieDir(root / number) as bookie:
            names = bookie.index.ledgers()
            _agrees_with_index(bookie, names)
            for name in names:
                found = [log.entries for log in bookie.find_logs(name)]
                lost += sum(map(len, found)) - len(bookie.index.availability(name))

    removed = [row for row in document["violations"] if row["kind"] == "index_entries_removed"]

    assert sum(len(row["entries"]) for row in removed) == lost


def test_all_copies(tree: Any) -> None:
    """Newest copies and all copies are those that a scan of all logs gives."""
    with BookieDir(tree.root) as bookie:
        for name, copies in _by_scan(bookie).items():
            assert copies == _places(bookie.find_logs(name, copies=True))
            assert _newest(copies) == _places(bookie.find_logs(name))


def test_unknown_ledgers(tree: Any) -> None:
    """A ledger that no log has is in no log."""
    with BookieDir(tree.root) as bookie:
        for ledger in (987_654_321, SCOPED):
            assert [] == bookie.find_logs(ledger)


@pytest.mark.parametrize("folders", [1, 3])
@pytest.mark.parametrize("storage", ["sorted", "interleaved", "db"])
def test_our_storages(tmp_path: Path, storage: str, folders: int) -> None:
    """Before and after a compaction: the logs of the index, for 128-bit ids too."""
    fill_storage(tmp_path, storage, folders)
    with BookieDir(tmp_path) as bookie:
        names = bookie.index.ledgers()
        logs = {(log.dir_index, log.log_id) for log in bookie.entry_logs}
        _agrees_with_index(bookie, names)
        spread = [len(bookie.find_logs(name)) for name in names]

    assert 4 == len(names)
    assert 8 < len(logs)
    assert 1 < min(spread)

    tops = [tmp_path / f"ledgers{number}" for number in range(folders)]
    with LedgerStorage.open(tops, storage) as made:
        report = made.collect_garbage(names[1:], threshold=0.95)
    with BookieDir(tmp_path) as bookie:
        _agrees_with_index(bookie, names[1:])
        for name, copies in _by_scan(bookie).items():
            assert _newest(copies) == _places(bookie.find_logs(name))

    assert [names[0]] == report.deleted_ledgers


@pytest.mark.parametrize("index_class", [HierarchicalIndex, RocksIndex])
def test_log_ids_that_overflow(tmp_path: Path, index_class: Any) -> None:
    """Log ids go on from 0 after 2^31-1: of an entry's copies, that in log 0 is the newest."""
    index_class(tmp_path, writable=True).close()
    for log_id in (2**31 - 2, 2**31 - 1, 0):
        records = [(LedgerId.of(8), 5, 60), (LedgerId.of(8), 6 + log_id % 5, 60)]
        write_log(tmp_path / "current" / f"{log_id:x}.log", iter(records))
    with BookieDir(tmp_path) as bookie:
        newest = _places(bookie.find_logs(8))
        copies = _places(bookie.find_logs(8, copies=True))

    assert {(0, 0): [5, 6], (0, 2**31 - 2): [7], (0, 2**31 - 1): [8]} == newest
    assert [[5, 6], [5, 7], [5, 8]] == sorted(copies.values())


def test_ledgers_of_one_number(tmp_path: Path) -> None:
    """Ledger 7 of scope 0 and of scope 5 are two."""
    fill_storage(tmp_path, "sorted")
    with BookieDir(tmp_path) as bookie:
        for name in (LedgerId.of(7), LedgerId(5, 7)):
            assert _by_index(bookie, name) == _places(bookie.find_logs(name))

        assert _places(bookie.find_logs(7)) != _places(bookie.find_logs(LedgerId(5, 7)))
        assert [] == bookie.find_logs(LedgerId(6, 7))


@pytest.mark.parametrize("storage", ["sorted", "db"])
def test_without_an_index(tmp_path: Path, storage: str) -> None:
    """The answer is the same when the index is gone."""
    fill_storage(tmp_path, storage)
    with BookieDir(tmp_path) as bookie:
        expected = _places(bookie.find_logs(7))
    for path in [*tmp_path.rglob("*.idx"), *tmp_path.rglob("locations*/*")]:
        path.unlink()
    for path in [*tmp_path.rglob("locations*"), *tmp_path.rglob("current/ledgers*")]:
        shutil.rmtree(path)
    with BookieDir(tmp_path) as bookie:
        assert ("idx", []) == (bookie.layout, bookie.index.entries(7).tolist())
        assert expected == _places(bookie.find_logs(7))


def test_directories_of_db_storage(tmp_path: Path) -> None:
    """Ledger L is looked for in directory L mod n alone, where the index would have it."""
    fill_storage(tmp_path, "db", 2)
    stray = tmp_path / "ledgers0" / "current" / "ff.log"
    stray.write_bytes(make_log(names=[LedgerId.of(7)]).data)
    with BookieDir(tmp_path) as bookie:
        found = bookie.find_logs(7)

        assert {1} == {log.dir_index for log in found}
        assert _by_index(bookie, 7) == _places(found)
