"""`BookieDir.find_logs`: the logs that hold entries, told by the logs alone.

Two oracles: the index, which the finder never asks, on trees of the real BookKeeper and on ours;
and a scan of all logs that keeps every copy of every entry in dictionaries.
"""

from __future__ import annotations

import random
import shutil
import threading
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bkstore import BookieDir, LedgerId
from bkstore.bloom import FilterSet
from bkstore.errors import BkstoreError, CorruptionError, InvalidArgument, UnsupportedLayout
from bkstore.formats import entrylog
from bkstore.formats.entry import Entry
from bkstore.formats.entrylog import LogHeader
from bkstore.ids import MAX_ENTRY_ID
from bkstore.index.api import Finding
from bkstore.storage.entry_log import contents
from bkstore.storage.ledger_storage import LedgerStorage
from bkstore.storage.options import StorageOptions
from bkstore.storage.read_only.find_logs import FoundLog, LogFinder
from tests.worlds.entry_logs import CODER, HEADER, NAMES, SCOPED, make_log

Places = dict[tuple[int, int], list[int]]
"""(directory number, log id) -> entries."""

RANGES = [(0, None), (5, 5), (3, 300)]
KEY = b"k" * 20


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


# -- storages of ours


def _fill(top: Path, storage: Any, folders: int = 1) -> None:
    """Write striped ledgers beside each other over many small logs, and some entries again."""
    options = StorageOptions(entry_log_size=9000, choose=lambda n: random.Random(n).randrange(n))
    tops = [top / f"ledgers{number}" for number in range(folders)]
    payloads = np.random.default_rng(5).bytes(200)
    with LedgerStorage.open(tops, storage, options=options) as made:
        names = [LedgerId.of(7), LedgerId.of(8), LedgerId(5, 7), LedgerId(2**63 + 5, 2**63 + 7)]
        for name in names:
            made.set_master_key(name, KEY)
        for turn in range(3):
            for entry in range(100 * turn, 100 * turn + 140):
                for at, name in enumerate(names):
                    if (entry + at) % 3:
                        payload = payloads[: 20 + entry % 50]
                        made.add_entry(CODER.encode(Entry(name, entry, entry - 1, 9, payload)))
                if entry % 35 == 0:
                    made.checkpoint()  # where sorted storage begins a new log


@pytest.mark.parametrize("folders", [1, 3])
@pytest.mark.parametrize("storage", ["sorted", "interleaved", "db"])
def test_our_storages(tmp_path: Path, storage: str, folders: int) -> None:
    """Before and after a compaction: the logs of the index, for 128-bit ids too."""
    _fill(tmp_path, storage, folders)
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


def test_ledgers_of_one_number(tmp_path: Path) -> None:
    """Ledger 7 of scope 0 and of scope 5 are two."""
    _fill(tmp_path, "sorted")
    with BookieDir(tmp_path) as bookie:
        for name in (LedgerId.of(7), LedgerId(5, 7)):
            assert _by_index(bookie, name) == _places(bookie.find_logs(name))

        assert _places(bookie.find_logs(7)) != _places(bookie.find_logs(LedgerId(5, 7)))
        assert [] == bookie.find_logs(LedgerId(6, 7))


@pytest.mark.parametrize("storage", ["sorted", "db"])
def test_without_an_index(tmp_path: Path, storage: str) -> None:
    """The answer is the same when the index is gone."""
    _fill(tmp_path, storage)
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
    _fill(tmp_path, "db", 2)
    stray = tmp_path / "ledgers0" / "current" / "ff.log"
    stray.write_bytes(make_log(names=[LedgerId.of(7)]).data)
    with BookieDir(tmp_path) as bookie:
        found = bookie.find_logs(7)

        assert {1} == {log.dir_index for log in found}
        assert _by_index(bookie, 7) == _places(found)


# -- logs made record by record


def _record(name: Any, entry: int) -> bytes:
    record = CODER.encode(Entry(name, entry, entry - 1, 9, b"payload"))
    return len(record).to_bytes(4, "big") + record


def _write(top: Path, log_id: int, entries: dict[Any, list[int]], closed: bool = True) -> Path:
    """Write a log of these entries, in the order given, and return its path."""
    records = {LedgerId.of(key): [_record(key, e) for e in ids] for key, ids in entries.items()}
    body = b"".join(b"".join(parts) for parts in records.values())
    header = LogHeader()
    if closed:
        sizes = {name: sum(map(len, parts)) for name, parts in records.items()}
        header = LogHeader(2 if SCOPED in records else 1, HEADER + len(body), len(sizes))
        body += entrylog.encode_ledgers_map(sizes)
    current = top / "current"
    current.mkdir(parents=True, exist_ok=True)
    path = current / entrylog.log_name(log_id)
    path.write_bytes(entrylog.encode_header(header) + body)
    return path


def _finder(top: Path, **options: Any) -> LogFinder:
    with BookieDir(top) as bookie:
        return LogFinder(bookie.entry_logs, **options)


def _ids(found: list[FoundLog]) -> dict[int, list[int]]:
    return {log.log_id: log.entries.entries().tolist() for log in found}


def test_what_a_row_says(tmp_path: Path) -> None:
    """Directory number, log id, path and entries; rows by directory, then id."""
    paths = [_write(tmp_path, log_id, {7: [log_id, 40]}) for log_id in (10, 2, 1)]
    with BookieDir(tmp_path) as bookie:
        found = bookie.find_logs(7, copies=True)

    assert [(0, 1), (0, 2), (0, 10)] == [(log.dir_index, log.log_id) for log in found]
    assert [str(path) for path in reversed(paths)] == [log.path for log in found]
    assert [[1, 40], [2, 40], [10, 40]] == [log.entries.entries().tolist() for log in found]


def test_a_ledger_taken_apart_by_striping(tmp_path: Path) -> None:
    """The next entry may lie in a later log, and one before it again: all that overlap count."""
    _write(tmp_path, 0, {7: [0, 3, 6, 12]})
    _write(tmp_path, 1, {7: [1, 9, 10], 8: [5]})
    _write(tmp_path, 2, {7: [4, 7]}, closed=False)
    finder = _finder(tmp_path)

    assert {0: [6], 1: [9], 2: [7]} == _ids(finder.find(LedgerId.of(7), 5, 9))
    assert {0: [12]} == _ids(finder.find(LedgerId.of(7), 11))
    assert {} == _ids(finder.find(LedgerId.of(7), 13, 99))
    assert {1: [5]} == _ids(finder.find(LedgerId.of(8)))


def test_the_newest_copy_counts(tmp_path: Path) -> None:
    """An entry in several logs is told of the one with the highest id; `copies` tells of all."""
    _write(tmp_path, 3, {7: [0, 1, 2, 3]})
    _write(tmp_path, 0x10, {7: [2, 2, 5]})
    _write(tmp_path, 4, {7: [1, 2]}, closed=False)
    finder = _finder(tmp_path)

    assert {3: [0, 3], 4: [1], 16: [2, 5]} == _ids(finder.find(LedgerId.of(7)))
    assert {4: [1], 16: [2]} == _ids(finder.find(LedgerId.of(7), 1, 2))
    assert {3: [0, 1, 2, 3], 4: [1, 2], 16: [2, 5]} == _ids(
        finder.find(LedgerId.of(7), copies=True)
    )


def test_empty_logs(tmp_path: Path) -> None:
    """A log without entries, and one whose header is not written yet, hold nothing."""
    _write(tmp_path, 0, {}, closed=False)
    (tmp_path / "current" / "1.log").touch()
    _write(tmp_path, 2, {7: [1]})
    findings: list[Finding] = []
    with BookieDir(tmp_path) as bookie:
        assert {2: [1]} == _ids(bookie.find_logs(7, findings=findings))
    assert [] == findings


def test_batches_are_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log condensed in several goes has the entries of all of them."""
    expected: dict[LedgerId, set[int]] = defaultdict(set)
    log = make_log(count=200)
    for record in log.records.values():
        decoded = CODER.decode(record)
        expected[LedgerId.of(decoded.ledger)].add(decoded.entry_id)
    _write(tmp_path, 0, {})
    (tmp_path / "current" / "0.log").write_bytes(log.data)
    read = contents.scan_log
    monkeypatch.setattr(contents, "_ROWS", 7)
    monkeypatch.setattr(
        contents,
        "scan_log",
        lambda *words: (b.where(np.array([n])) for b in read(*words) for n in range(len(b))),
    )
    finder = _finder(tmp_path)

    assert set(NAMES) == set(expected)
    for name, entries in expected.items():
        assert {0: sorted(entries)} == _ids(finder.find(name))


@pytest.mark.parametrize("span", [(-1, None), (0, 2**63 - 1), (0, -1)])
def test_refused_ranges(tmp_path: Path, span: tuple[int, int | None]) -> None:
    """What is no entry id is refused; an empty range is in no log."""
    _write(tmp_path, 0, {7: [1]})
    with BookieDir(tmp_path) as bookie:
        with pytest.raises(InvalidArgument, match="entry id"):
            bookie.find_logs(7, *span)

        assert [] == bookie.find_logs(7, 2, 1)


# -- what is kept


def test_each_log_is_scanned_once(tmp_path: Path) -> None:
    """A log that has the ledger is scanned at the first question, and for all its ledgers."""
    for log_id in range(4):
        _write(tmp_path, log_id, {7: [log_id], 8: [log_id + 50]}, closed=log_id < 3)
    _write(tmp_path, 9, {99: [0]})
    finder = _finder(tmp_path)
    finder.find(LedgerId.of(7))

    assert 4 == finder.scans
    for path in (tmp_path / "current").glob("*.log"):
        path.unlink()
    assert [{n: [n]} for n in range(4)] == [
        _ids(finder.find(LedgerId.of(7), n, n)) for n in range(4)
    ]
    assert {n: [n + 50] for n in range(4)} == _ids(finder.find(LedgerId.of(8)))
    assert 4 == finder.scans


@pytest.mark.parametrize("fpp", [0.01, 0.5])
def test_a_map_spares_the_scan(tmp_path: Path, fpp: float) -> None:
    """Closed logs whose map lacks the ledger are not scanned; a filter that says yes wrongly
    costs a look into the map."""
    for log_id in range(3):
        _write(tmp_path, log_id, {7: [log_id], SCOPED: [5]})
    finder = _finder(tmp_path, filters=FilterSet(fpp=fpp))
    absent = [*map(LedgerId.of, range(100, 140)), LedgerId(SCOPED.scope, 5)]

    assert [{}] * 41 == [_ids(finder.find(name)) for name in absent]
    assert (0, 3) == (finder.scans, len(finder.filters))


def test_a_refused_log_is_not_opened(tmp_path: Path) -> None:
    """Once its filter is there, a log that has not the ledger is not touched."""
    for log_id in range(3):
        _write(tmp_path, log_id, {7: [log_id], SCOPED: [5]})
    finder = _finder(tmp_path)
    finder.find(LedgerId.of(8))
    for path in (tmp_path / "current").glob("*.log"):
        path.unlink()

    assert {} == _ids(finder.find(LedgerId.of(8)))
    for name in (LedgerId.of(7), SCOPED):
        with pytest.raises(BkstoreError, match="cannot be read"):
            finder.find(name)


def test_an_entry_in_the_newest_log(tmp_path: Path) -> None:
    """When all entries are found, older logs are not looked at; with `copies` they are."""
    for log_id in range(5):
        _write(tmp_path, log_id, {7: [0, log_id]})
    finder = _finder(tmp_path)

    assert {4: [0]} == _ids(finder.find(LedgerId.of(7), 0, 0))
    assert 1 == finder.scans
    assert 5 == len(finder.find(LedgerId.of(7), 0, 0, copies=True))
    assert 5 == finder.scans


def test_what_is_kept_is_bounded(tmp_path: Path) -> None:
    """Contents of scanned logs leave, least recently used first; answers stay right."""
    for log_id in range(3):
        _write(tmp_path, log_id, {log_id: [log_id]})
    room = 2 * (16 + 16 + 32)  # a ledger, two bounds and a group each
    finder = _finder(tmp_path, contents_bytes=room)

    def scans(ledger: int) -> int:
        before = finder.scans
        assert {ledger: [ledger]} == _ids(finder.find(LedgerId.of(ledger)))
        assert room >= finder.nbytes - finder.filters.nbytes
        return finder.scans - before

    assert [1, 1, 0, 1] == [scans(0), scans(1), scans(0), scans(2)]
    assert [0, 1] == [scans(0), scans(1)]


def test_the_last_scanned_is_kept(tmp_path: Path) -> None:
    """However little room there is, one log's contents stay for the next question."""
    _write(tmp_path, 0, {7: [0]})
    finder = _finder(tmp_path, contents_bytes=0)
    for _ in range(3):
        assert {0: [0]} == _ids(finder.find(LedgerId.of(7)))

    assert 1 == finder.scans


def test_threads_share_one_scan(tmp_path: Path) -> None:
    """Questions beside each other give one thread's answers, with one scan of each log."""
    for log_id in range(6):
        _write(tmp_path, log_id, {7: list(range(log_id, 60, 6)), 8: [log_id]})
    finder = _finder(tmp_path)
    answers: list[Any] = []
    threads = [
        threading.Thread(target=lambda: answers.append(_ids(finder.find(LedgerId.of(7)))))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [{n: list(range(n, 60, 6)) for n in range(6)}] * 8 == answers
    assert 6 == finder.scans


# -- damage


def _spoil(path: Path, at: int, data: bytes = b"\xff" * 12) -> None:
    found = bytearray(path.read_bytes())
    found[at : at + len(data)] = data
    path.write_bytes(found)


def test_damage_in_an_open_log(tmp_path: Path) -> None:
    """What can be read is found and the damage told, at every question, about any ledger: a log
    without a map might have had its entries in the bytes that are lost."""
    path = _write(tmp_path, 0, {7: [0, 1, 2, 3]}, closed=False)
    _spoil(path, HEADER + len(_record(7, 0)))
    with BookieDir(tmp_path) as bookie:
        for ledger, expected in ((7, {0: [0, 2, 3]}), (7, {0: [0, 2, 3]}), (99, {}), (99, {})):
            findings: list[Finding] = []

            assert expected == _ids(bookie.find_logs(ledger, findings=findings))
            assert ["damage"] == [found.severity for found in findings]
            assert [(str(path), HEADER + len(_record(7, 0)))] == [
                (found.file, found.offset) for found in findings
            ]
            with pytest.raises(CorruptionError, match=r"0\.log: offset 10\d\d: "):
                bookie.find_logs(ledger)


def test_damage_in_a_closed_log(tmp_path: Path) -> None:
    """Its map still says whose entries the lost bytes may have been, and whose not."""
    path = _write(tmp_path, 0, {7: [0, 1, 2, 3], 8: [5]})
    _spoil(path, HEADER + len(_record(7, 0)))
    for _ in range(2):
        findings: list[Finding] = []
        with BookieDir(tmp_path) as bookie:
            assert {} == _ids(bookie.find_logs(99, findings=findings))
            assert {} == _ids(bookie.find_logs(99))
            assert [] == findings
            assert {0: [5]} == _ids(bookie.find_logs(8, findings=findings))
            assert {0: [0, 2, 3]} == _ids(bookie.find_logs(7, findings=findings))
            assert ["damage"] * 2 == [found.severity for found in findings]
            with pytest.raises(CorruptionError):
                bookie.find_logs(7)


def test_a_broken_map(tmp_path: Path) -> None:
    """The records are counted instead, and the map is an oddity."""
    path = _write(tmp_path, 0, {7: [0, 1], 8: [5]})
    place = HEADER + len(_record(7, 0) + _record(7, 1) + _record(8, 5))
    _spoil(path, place + 20, (3).to_bytes(4, "big"))
    findings: list[Finding] = []
    with BookieDir(tmp_path) as bookie:
        assert {0: [0, 1]} == _ids(bookie.find_logs(7, findings=findings))
        assert {0: [5]} == _ids(bookie.find_logs(8))
        assert {} == _ids(bookie.find_logs(9))

    assert ["oddity"] == [found.severity for found in findings]
    assert "ledgers map is broken" in findings[0].detail


def test_a_map_that_is_not_there(tmp_path: Path) -> None:
    """A header that points behind the end: records may be missing, and that is said."""
    path = _write(tmp_path, 0, {7: [0, 1]})
    whole = path.read_bytes()
    path.write_bytes(whole[: HEADER + len(_record(7, 0))])
    for ledger, expected in ((7, {0: [0]}), (8, {})):
        findings: list[Finding] = []
        with BookieDir(tmp_path) as bookie:
            assert expected == _ids(bookie.find_logs(ledger, findings=findings))

        assert "damage" in [found.severity for found in findings]


@pytest.mark.parametrize(
    ("header", "error"),
    [(b"WHAT", CorruptionError), (b"BKLO\0\0\0\x09", UnsupportedLayout)],
)
def test_a_broken_header(tmp_path: Path, header: bytes, error: type[BkstoreError]) -> None:
    """The map cannot be found then; the records are, and the header is told of."""
    path = _write(tmp_path, 0, {7: [0, 1]})
    _spoil(path, 0, header)
    with BookieDir(tmp_path) as bookie:
        findings: list[Finding] = []

        assert {0: [0, 1]} == _ids(bookie.find_logs(7, findings=findings))
        assert ["damage"] == [found.severity for found in findings]
        for ledger in (7, 8):
            with pytest.raises(error, match=r"0\.log"):
                bookie.find_logs(ledger)


def test_an_entry_beyond_the_last_id(tmp_path: Path) -> None:
    """Entry id 2^63-1 is none: it is told of, and the others are found."""
    path = _write(tmp_path, 0, {7: [0, 1, 2]}, closed=False)
    place = HEADER + len(_record(7, 0))
    _spoil(path, place + 4 + 8, (2**63 - 1).to_bytes(8, "big"))
    findings: list[Finding] = []
    with BookieDir(tmp_path) as bookie:
        assert {0: [0, 2]} == _ids(bookie.find_logs(7, findings=findings))

    assert [(str(path), place + 4)] == [(found.file, found.offset) for found in findings]
    assert "beyond id 9223372036854775806" in findings[0].detail


def test_a_log_that_cannot_be_opened(tmp_path: Path) -> None:
    """It is no "not found": told or raised, and tried again at the next question."""
    path = _write(tmp_path, 1, {7: [1]})
    _write(tmp_path, 0, {7: [0]})
    data = path.read_bytes()
    finder = _finder(tmp_path)
    path.unlink()
    findings: list[Finding] = []

    assert {0: [0]} == _ids(finder.find(LedgerId.of(7), findings=findings))
    assert ["damage"] == [found.severity for found in findings]
    assert "1.log" in str(findings[0])
    with pytest.raises(BkstoreError, match=r"1\.log: cannot be read"):
        finder.find(LedgerId.of(7))

    path.write_bytes(data)

    assert {0: [0], 1: [1]} == _ids(finder.find(LedgerId.of(7)))


def test_damage_elsewhere_is_no_matter(tmp_path: Path) -> None:
    """Logs that need not be looked at may be damaged."""
    path = _write(tmp_path, 0, {7: [0, 1]}, closed=False)
    _spoil(path, HEADER)
    _write(tmp_path, 1, {7: [0, 1]})
    with BookieDir(tmp_path) as bookie:
        assert {1: [0, 1]} == _ids(bookie.find_logs(7, 0, 1))
        with pytest.raises(CorruptionError):
            bookie.find_logs(7)


def test_nothing_is_written(tmp_path: Path) -> None:
    """Looking leaves every file as it was."""
    _fill(tmp_path, "sorted")

    def files() -> dict[str, tuple[int, int]]:
        found = (path for path in tmp_path.rglob("*") if path.is_file())
        return {str(p): (p.stat().st_size, p.stat().st_mtime_ns) for p in found}

    before = files()
    with BookieDir(tmp_path) as bookie:
        assert bookie.find_logs(7)
        bookie.check_unchanged()

    assert before == files()
