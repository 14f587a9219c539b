"""Each kind of finding: made on purpose, found, and told where and whose."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from bkstore import Bookie, BookieDir, LedgerId, LedgerStorage
from bkstore.formats.cookie import Cookie, encode as encode_cookie
from bkstore.formats.entry import Coder, encode_explicit_lac, master_key
from bkstore.formats.entrylog import LogMetadata
from bkstore.formats.journal import LogMark, encode_mark
from bkstore.index.api import LedgerState
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.index.rocks import RocksIndex
from bkstore.offline.check import KINDS, Check, CheckFinding, log_check
from bkstore.offline.check.findings import CheckKind
from bkstore.storage.entry_log import resynchronization
from bkstore.storage.entry_log.metadata_cache import METADATA_CACHE
from tests.offline.check.small_trees import DIGEST, PASSWORD, make_tree
from tests.paths import ROOT


@pytest.fixture(params=["idx", "rocksdb"])
def top(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return a sound directory of either layout, of interleaved or db storage."""
    make_tree(tmp_path / "bookie", "db" if request.param == "rocksdb" else "interleaved")
    return tmp_path / "bookie"


@pytest.fixture
def idx(tmp_path: Path) -> Path:
    """Return a sound directory with index files."""
    make_tree(tmp_path / "bookie", "interleaved")
    return tmp_path / "bookie"


def _found(top: Path, **options: object) -> list[CheckFinding]:
    with BookieDir(top, needs_index=False) as bookie:
        return list(Check(bookie, DIGEST, PASSWORD, **options))  # type: ignore[arg-type]


def _only(top: Path, kind: CheckKind, **options: object) -> CheckFinding:
    """Return the one finding, of a kind."""
    found = _found(top, **options)

    assert [kind] == [each.kind for each in found], list(map(str, found))
    return found[0]


def _index(top: Path) -> HierarchicalIndex | RocksIndex:
    """Open the index for writing."""
    if (top / "current" / "locations").is_dir():
        return RocksIndex(top, writable=True)
    return HierarchicalIndex(top, writable=True, page_size=512)


def _place(top: Path, ledger: int, entry: int) -> int:
    with BookieDir(top) as bookie:
        location = bookie.index.get(ledger, entry)
    assert location is not None
    return location


def _log(top: Path, number: int) -> Path:
    return top / "current" / f"{number:x}.log"


def _change(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def test_sound(top: Path) -> None:
    """Nothing is found where nothing is wrong, an entry added twice included."""
    with BookieDir(top) as bookie:
        checking = Check(bookie, DIGEST, PASSWORD)

        assert [] == list(checking)
        assert 1 == checking.coverage.total("copies")


def test_every_kind_is_told() -> None:
    """The table of kinds has each that a finding may have, and so has the page."""
    page = (ROOT / "docs" / "check.md").read_text(encoding="utf-8")

    assert set(get_args(CheckKind)) == set(KINDS)
    assert [] == [kind for kind, words in KINDS.items() if f"| `{kind}` | {words} |" not in page]


# -- rows against logs


def test_row_points_at_no_record(top: Path) -> None:
    """A location one byte off is named with ledger, entry and place, and so is its record, which
    is in no row now only by that location."""
    place = _place(top, 1, 7)
    with _index(top) as index:
        index.put(1, 7, place + 1)
    found = _only(top, "no-record")
    want = (LedgerId.of(1), 7, 7, 1, (place + 1) & 0xFFFFFFFF, "damage")

    assert want == (
        found.ledger,
        found.first_entry,
        found.last_entry,
        found.entries,
        found.offset,
        found.severity,
    )


def test_row_points_behind_the_log(top: Path) -> None:
    """Behind the end of a log there is no record either."""
    with _index(top) as index:
        index.put(1, 7, 0xFFFFFFF0)
    found = _only(top, "no-record")

    assert (0xFFFFFFF0, 7) == (found.offset, found.first_entry)


def test_row_points_at_another(top: Path) -> None:
    """A row that points at another ledger's record is told, whose own row is good."""
    with _index(top) as index:
        index.put(1, 7, _place_of(index, 3, 7))
    found = _only(top, "wrong-record")

    assert (LedgerId.of(1), 7) == (found.ledger, found.first_entry)


def _place_of(index: HierarchicalIndex | RocksIndex, ledger: int, entry: int) -> int:
    location = index.get(ledger, entry)
    assert location is not None
    return location


def test_no_log(top: Path) -> None:
    """A log that is gone is a finding a ledger, with as many entries as had been in it."""
    with BookieDir(top) as bookie:
        (seen,) = [log for log in _coverage(bookie) if log.log_id == 1]
    _log(top, 1).unlink()
    found = [each for each in _found(top) if each.kind == "no-log"]

    assert seen.rows == sum(each.entries or 0 for each in found) > 20
    assert {"1.log"} == {each.file for each in found}
    assert len(found) < 10 < len({each.ledger for each in found}) * 5


def _coverage(bookie: BookieDir) -> Iterator[object]:
    checking = Check(bookie)
    list(checking)
    return iter(checking.coverage.logs)


def test_bad_digest(top: Path) -> None:
    """A byte of a payload that changed is found by the digest, and by nothing else."""
    place = _place(top, 1, 7)
    path = _log(top, place >> 32)
    at = (place & 0xFFFFFFFF) + 40
    _change(path, at, bytes([path.read_bytes()[at] ^ 1]))
    found = _only(top, "bad-digest")

    assert (str(path), place & 0xFFFFFFFF, 7) == (found.file, found.offset, found.first_entry)
    with BookieDir(top) as bookie:
        assert [] == list(Check(bookie))


# -- logs against rows


def test_unindexed(idx: Path) -> None:
    """A row that is gone is found by the record, while later ones of its ledger are there."""
    with BookieDir(idx) as bookie:
        path = bookie.index.path(1)  # type: ignore[attr-defined]
    _change(Path(path), 1024 + 8 * 20, bytes(16))
    found = _only(idx, "unindexed")

    assert (LedgerId.of(1), 20, 21, "damage") == (
        found.ledger,
        found.first_entry,
        found.last_entry,
        found.severity,
    )


def test_unindexed_between_windows(idx: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands at the end of one window of a log is no tail of the log, if rows point behind."""
    monkeypatch.setattr(resynchronization, "WINDOW_BYTES", 1)  # a record at a time
    monkeypatch.setattr(log_check, "_LOOK_UP_BATCH", 1)
    with BookieDir(idx) as bookie:
        path = bookie.index.path(5)  # type: ignore[attr-defined]
        last = bookie.entry_logs[-1].log_id
    at = [entry for entry in range(40) if _place(idx, 5, entry) >> 32 == last]
    _change(Path(path), 1024 + 8 * at[1], bytes(8))
    found = _only(idx, "unindexed")

    assert (at[1], "damage") == (found.first_entry, found.severity)


def test_made_again(idx: Path) -> None:
    """Records that are all older than what the index has of a ledger may be from before it was
    deleted: an oddity."""
    with BookieDir(idx) as bookie:
        path = bookie.index.path(1)  # type: ignore[attr-defined]
    _change(Path(path), 1024, bytes(8 * 10))
    found = _only(idx, "unindexed")

    assert (0, 9, "oddity") == (found.first_entry, found.last_entry, found.severity)


def test_unflushed(idx: Path) -> None:
    """Records at the end of the open log, in no row: a flush had not come to them."""
    coder = Coder(DIGEST, PASSWORD)
    with LedgerStorage.open(idx, storage="interleaved") as storage:
        storage.add_entry(coder.encode_many(1, [100], [b"flushed"])[0])
        storage.flush()
        for record in coder.encode_many(1, [101, 102], [b"not", b"flushed"]):
            storage.add_entry(record)
        storage.flush()
    with BookieDir(idx) as bookie:
        path = bookie.index.path(1)  # type: ignore[attr-defined]
    _change(Path(path), 1024 + 8 * 101, bytes(16))
    found = _only(idx, "unflushed")

    assert (101, 102, "oddity") == (found.first_entry, found.last_entry, found.severity)


def test_unknown_ledger(top: Path) -> None:
    """Records of a ledger that the index does not know are a note; damage if metadata have it."""
    with _index(top) as index:
        index.delete(2)
    noted = _found(top)
    known = _found(top, live_ledgers=[2])

    assert {("unknown-ledger", "note", LedgerId.of(2))} == {
        (each.kind, each.severity, each.ledger) for each in noted
    }
    assert {"damage"} == {each.severity for each in known}
    assert sum(each.entries or 0 for each in noted) == 27  # two of three of forty


# -- logs by themselves


def test_log_bytes(top: Path) -> None:
    """Bytes that are no record are named with their place, the rows into them as well."""
    place = _place(top, 1, 7)
    path, at = _log(top, place >> 32), (place & 0xFFFFFFFF) - 4
    _change(path, at, b"\xff" * 30)
    found = _found(top)
    kinds = {each.kind: each for each in found}

    assert {"log", "no-record"} == {*kinds}
    assert (str(path), at) == (kinds["log"].file, kinds["log"].offset)
    assert 7 == kinds["no-record"].first_entry


def test_log_header(top: Path) -> None:
    """A header that does not say where the map is, or how many ledgers it has, and more bytes."""
    path = _log(top, 0)
    header = path.read_bytes()[:20]
    _change(path, 8, bytes(8))
    lost = _only(top, "log-header")
    _change(path, 8, header[8:16] + (99).to_bytes(4, "big"))
    miscounted = _only(top, "log-header")
    _change(path, 16, header[16:20])
    _change(path, 500, b"x")
    more = _only(top, "log-header")

    assert [8, 16, 500] == [lost.offset, miscounted.offset, more.offset]
    assert "the header says 99 ledgers" in miscounted.detail


def test_ledgers_map(top: Path) -> None:
    """A map that counts other bytes for a ledger than its records have."""
    path = _log(top, 0)
    at = int.from_bytes(path.read_bytes()[8:16], "big")
    said = path.read_bytes()[at + 24 : at + 40]
    ledger, size = int.from_bytes(said[:8], "big"), int.from_bytes(said[8:], "big")
    _change(path, at + 32, (size - 5).to_bytes(8, "big"))
    found = _only(top, "ledgers-map")

    assert (at, LedgerId.of(ledger)) == (found.offset, found.ledger)
    assert f"{size} bytes of records here, {size - 5} are stated there" in found.detail


def test_metadata_cache(idx: Path) -> None:
    """What garbage collection keeps of a log: other bytes, and a log that is not here."""
    from bkstore.index.rocks.database import Database
    from bkstore.index.rocks.options import database_options

    one, gone = LogMetadata(0), LogMetadata(77)
    one.add(LedgerId.of(1), 11)
    gone.add(LedgerId.of(1), 11)
    database = Database(idx / "current" / METADATA_CACHE, database_options("ledgers"))
    for each in (one, gone):
        database.put(each.log_id.to_bytes(8, "big"), each.to_bytes())
    database.close()
    found = _found(idx)

    assert ["metadata-cache"] * 3 == [each.kind for each in found]
    assert ["row of log 4d", "are stated", "the cache counts 11 bytes"] == [
        part
        for each, part in zip(found, ("row of log 4d", "are stated", "the cache counts 11 bytes"))
        if part in each.detail
    ]


# -- states


def test_state(top: Path) -> None:
    """Another master key, none, and an explicit LAC whose digest does not fit."""
    key = master_key(PASSWORD)
    body = encode_explicit_lac(4, 30, DIGEST, PASSWORD)
    with _index(top) as index:
        index.set_state(1, LedgerState(bytes(19) + b"x"))
        index.set_state(2, LedgerState(b""))
        index.set_state(4, LedgerState(key, explicit_lac=body[:-1] + b"\0"))
    found = _found(top)

    assert ["state"] * 3 == [each.kind for each in found]
    assert [1, 2, 4] == [each.ledger.ledger for each in found if each.ledger]
    assert ["oddity", "oddity", "damage"] == [each.severity for each in found]


def test_two_layouts(idx: Path) -> None:
    """Where an interrupted conversion left both layouts, states that differ are told."""
    with RocksIndex(idx, writable=True) as index:
        index.set_state(1, LedgerState(master_key(PASSWORD), fenced=True))
    with BookieDir(idx, layout="idx") as bookie:
        found = [each for each in Check(bookie) if "layouts" in each.detail]

    assert [1, 2, 3, 4, 5] == [each.ledger.ledger for each in found if each.ledger]
    assert "fenced=False" in found[0].detail
    assert "fenced=True" in found[0].detail


# -- the index by itself


def test_index(top: Path) -> None:
    """An index that cannot be read is one finding, and the logs are checked all the same."""
    if (top / "current" / "locations").is_dir():
        (top / "current" / "locations" / "CURRENT").unlink()
        want = None
    else:
        with BookieDir(top) as bookie:
            path = bookie.index.path(3)  # type: ignore[attr-defined]
        _change(Path(path), 0, b"XXXX")
        want = LedgerId.of(3)
    with BookieDir(top, needs_index=False) as bookie:
        checking = Check(bookie)
        found = [each for each in checking if each.kind in ("index", "state")]

    assert [want] == [each.ledger for each in found]
    assert 188 == checking.coverage.total("records")
    assert checking.coverage.total("unjudged") >= 40
    assert any("index rows" in part for part in checking.coverage.not_checked)


# -- directories


def test_leftovers(top: Path) -> None:
    """Outputs of compactions, names that no location leads to, and strangers."""
    current = top / "current"
    names = ("7.log.compacting", "8.log.1.compacted", "0a.log", "notes.txt")
    for name in (*names, "9.idx"):  # which the index tells of
        (current / name).write_bytes(b"")
    found = [each for each in _found(top) if each.kind == "leftover"]

    assert sorted(names) == sorted(Path(each.file or "").name for each in found)
    assert any("log 1 to 8" in each.detail for each in found)


def test_last_id(top: Path) -> None:
    """The id of the last log: behind the logs that are here, or none."""
    (top / "current" / "lastId").write_text("1\n")
    behind = _only(top, "last-id")
    (top / "current" / "lastId").write_text("?\n")
    none = _only(top, "last-id")

    assert ("oddity", "damage") == (behind.severity, none.severity)
    assert "says 1, but 3.log is here" in behind.detail


def test_cookie(idx: Path, tmp_path: Path) -> None:
    """A directory without the cookie that others have."""
    journal = tmp_path / "journal"
    (journal / "current").mkdir(parents=True)
    cookie = Cookie(5, "b:1", (str(journal),), (str(idx),))
    (journal / "current" / "VERSION").write_bytes(encode_cookie(cookie))
    (journal / "current" / "1.txn").write_bytes(b"")
    found = [each for each in _found(tmp_path) if each.kind == "cookie"]

    assert [str(idx / "current" / "VERSION")] == [each.file for each in found]


# -- journals


@pytest.fixture
def bookie(tmp_path: Path) -> Path:
    """Return a bookie with a journal, all of which lies before the last mark."""
    coder = Coder(DIGEST, PASSWORD)
    with Bookie.open(tmp_path, "db") as made:
        for ledger in (1, 2):
            for record in coder.encode_many(ledger, range(20), [b"payload"] * 20):
                made.add_entry(record, master_key(PASSWORD))
        made.fence(2, master_key(PASSWORD))
        made.checkpoint()
    return tmp_path


def test_sound_bookie(bookie: Path) -> None:
    """Journal, mark and index of a bookie that was closed agree."""
    with BookieDir(bookie) as opened:
        checking = Check(opened, DIGEST, PASSWORD)

        assert [] == list(checking)
        assert 43 == checking.coverage.journal_records  # two keys, a fence


def test_journal_against_index(bookie: Path) -> None:
    """An entry, a fence and a key before the mark that the index does not have."""
    with RocksIndex(bookie / "ledgers", writable=True) as index:
        entries, locations = index.items(1)
        index.delete(1)
        index.put_many(1, entries[:-2], locations[:-2])
        index.set_state(1, LedgerState(b"another"))
        index.set_state(2, LedgerState(master_key(PASSWORD)))
    with BookieDir(bookie) as opened:
        found = list(Check(opened))
    lost = [each for each in found if each.kind == "journal-entry"]

    assert [(LedgerId.of(1), 18, 19)] == [(e.ledger, e.first_entry, e.last_entry) for e in lost]
    assert [1, 2] == [e.ledger.ledger for e in found if e.kind == "state" and e.ledger]


def test_replayed(bookie: Path) -> None:
    """What lies behind the mark is not lost: a replay brings it."""
    mark = bookie / "ledgers" / "current" / "lastMark"
    mark.write_bytes(encode_mark(LogMark(0, 0)))
    with RocksIndex(bookie / "ledgers", writable=True) as index:
        entries, locations = index.items(1)
        index.delete(1)
        index.put_many(1, entries[5:], locations[5:])
        index.set_state(1, LedgerState(master_key(PASSWORD)))
    found = _only(bookie, "unflushed")

    assert (0, 4) == (found.first_entry, found.last_entry)
    assert "a replay adds them" in found.detail


def test_last_mark(bookie: Path) -> None:
    """A mark into a journal that is not here, and one behind a journal's end."""
    mark = bookie / "ledgers" / "current" / "lastMark"
    (journal,) = (bookie / "journal" / "current").glob("*.txn")
    mark.write_bytes(encode_mark(LogMark(5, 0)))
    gone = [each for each in _found(bookie) if each.kind == "last-mark"]
    mark.write_bytes(encode_mark(LogMark(int(journal.stem, 16), 1 << 40)))
    behind = _only(bookie, "last-mark")

    assert ["points to journal 5.txn, which is not here"] == [each.detail for each in gone]
    assert "past the end" in behind.detail


def test_journal(bookie: Path) -> None:
    """A journal whose records end in bytes that are none."""
    (journal,) = (bookie / "journal" / "current").glob("*.txn")
    data = bytearray(journal.read_bytes())
    data[512:516] = (1 << 30).to_bytes(4, "big")
    journal.write_bytes(data)
    found = [each for each in _found(bookie) if each.kind == "journal"]

    assert [(str(journal), 512)] == [(each.file, each.offset) for each in found]


def test_ids_of_128_bits(tmp_path: Path) -> None:
    """Ledgers of other scopes are held against their records as those of scope 0 are."""
    name, coder = LedgerId(5, 7), Coder(DIGEST, PASSWORD)
    with LedgerStorage.open(tmp_path, storage="db") as storage:
        storage.set_master_key(name, master_key(PASSWORD))
        for record in coder.encode_many(name, range(9), [b"payload"] * 9):
            storage.add_entry(record)
    with RocksIndex(tmp_path, writable=True) as index:
        entries, locations = index.items(name)
        moved = np.append(locations[:-1], locations[0])
        index.put_many(name, entries, moved)
    found = _only(tmp_path, "wrong-record")

    assert (name, 8) == (found.ledger, found.first_entry)
