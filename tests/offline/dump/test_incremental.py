"""Incremental dumps: equal to a full dump, and made of the earlier dump's files."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from bkstore import LedgerId, LedgerStorage
from bkstore.cli.main import main
from bkstore.errors import BkstoreError, CorruptionError, InvalidArgument, UnsupportedLayout
from bkstore.files.disk_changes import Files, UnsyncedFiles
from bkstore.formats.entry import Coder
from bkstore.index.api import LedgerState
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.index.rocks import RocksIndex
from bkstore.offline.dump import DumpResult, dump
from bkstore.offline.dump.incremental import SOURCES
from bkstore.offline.reading.open_dump import open_dump
from bkstore.storage.options import StorageKind, StorageOptions
from bkstore.tables.dump import DUMP_TABLES

pytest.importorskip("pyarrow")

Capsys = pytest.CaptureFixture[str]
ROWS = 3300
"""Rows of a piece: the bookie of twelve ledgers has four, of three ledgers each."""


def _make_idx(top: Path, ledgers: Iterable[int] = range(12), entries: int = 40) -> Path:
    """Make a bookie of index files, with entry logs 0 and 1; ledger L's rows are in log L mod 2."""
    with HierarchicalIndex(top, writable=True) as index:
        for ledger in ledgers:
            location = (ledger % 2 << 32) + 1028
            index.put_many(ledger, range(entries), range(location, location + entries))
    for number in range(2):
        (top / "current" / f"{number}.log").write_bytes(b"BKLO" + bytes(1020))
    return top


def _dump(top: Path, name: str, since: str | None = None, **options: Any) -> DumpResult:
    bookies = options.pop("bookies", ["b"])
    earlier = None if since is None else top / since
    sources = [top / bookie for bookie in bookies]
    defaults = {"piece_rows": ROWS, "files": UnsyncedFiles()}
    return dump(sources, top / name, since=earlier, **defaults | options)


def _rows(path: Path) -> dict[str, list[dict[str, Any]]]:
    opened = open_dump(path)
    return {table: opened.read(table).to_pylist() for table in DUMP_TABLES}


def _check_equal(top: Path, name: str, **options: Any) -> None:
    """Compare the dump with a full one: all rows of all tables, in their order, and the bookies."""
    _dump(top, "full", **options)
    full, incremental = (
        json.loads((top / n / "manifest.json").read_bytes()) for n in ("full", name)
    )

    assert _rows(top / "full") == _rows(top / name)
    assert full["bookies"] == incremental["bookies"]
    assert full["complete"] == incremental["complete"]
    open_dump(top / name).check(*DUMP_TABLES)
    shutil.rmtree(top / "full")


def _linked(top: Path, first: str, second: str) -> set[str]:
    """Return the files of the second dump that are files of the first."""
    known = {(path.stat().st_dev, path.stat().st_ino) for path in (top / first).rglob("*.parquet")}
    return {
        str(path.relative_to(top / second))
        for path in (top / second).rglob("*.parquet")
        if (path.stat().st_dev, path.stat().st_ino) in known
    }


def test_nothing_changed(tmp_path: Path) -> None:
    """All files but those of findings are the earlier dump's, which may then be removed."""
    _make_idx(tmp_path / "b")
    first = _dump(tmp_path, "one")
    second = _dump(tmp_path, "two", "one")
    files = {
        str(path.relative_to(tmp_path / "two")) for path in (tmp_path / "two").rglob("*.parquet")
    }

    assert first.pieces == second.pieces == second.unchanged_pieces > 3
    assert 0 == first.unchanged_pieces
    assert {name for name in files if "findings" not in name} == _linked(tmp_path, "one", "two")
    assert (tmp_path / "one" / SOURCES).read_bytes() == (tmp_path / "two" / SOURCES).read_bytes()
    shutil.rmtree(tmp_path / "one")
    _check_equal(tmp_path, "two")
    third = _dump(tmp_path, "three", "two")
    assert third.pieces == third.unchanged_pieces


def _put(top: Path, ledger: int, entry: int) -> None:
    with HierarchicalIndex(top / "b", writable=True) as index:
        index.put(ledger, entry, 5000)


def _fence(top: Path) -> None:
    with HierarchicalIndex(top / "b", writable=True) as index:
        index.set_state(7, LedgerState(master_key=b"k" * 20, fenced=True))


def _delete(top: Path, ledger: int) -> None:
    with HierarchicalIndex(top / "b", writable=True) as index:
        index.delete(ledger)


def _remove_log(top: Path) -> None:
    (top / "b" / "current" / "1.log").unlink()


def _grow_log(top: Path) -> None:
    with (top / "b" / "current" / "1.log").open("ab") as file:
        file.write(bytes(1))


def _grow_log_within_a_tick(top: Path) -> None:
    """Grow the log without a new modification time, as clocks of file systems are coarse."""
    path = top / "b" / "current" / "1.log"
    before = path.stat()
    _grow_log(top)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def _touch(top: Path) -> None:
    path = next((top / "b").rglob("7.idx"))
    os.utime(path, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns + 1))


# The dump of twelve ledgers has four pieces of three ledgers, and one of logs.
CHANGES: dict[str, tuple[Any, int]] = {
    "an entry": (lambda top: _put(top, 7, 40), 4),
    "a location": (lambda top: _put(top, 7, 0), 4),
    "a state": (_fence, 4),
    "a time": (_touch, 4),
    "a new last ledger": (lambda top: _put(top, 99, 0), 4),
    "a new first ledger of a piece": (lambda top: _put(top, 3, 77), 4),
    "a deleted ledger": (lambda top: _delete(top, 7), 4),
    "the first of a piece deleted": (lambda top: _delete(top, 6), 4),
    "the first of all deleted": (lambda top: _delete(top, 0), 4),
    "a new log": (lambda top: _new_log(top), 4),
    "a log that grew": (_grow_log, 4),
    "a log that grew at the same time": (_grow_log_within_a_tick, 4),
    "a log removed": (_remove_log, 0),
    "nothing": (lambda _: None, 5),
}


def _new_log(top: Path) -> None:
    (top / "b" / "current" / "7.log").write_bytes(b"BKLO" + bytes(1020))


@pytest.mark.parametrize("name", CHANGES)
def test_changes(tmp_path: Path, name: str) -> None:
    """What changed is read again, and only that; rows whose log was removed changed too."""
    change, unchanged = CHANGES[name]
    _make_idx(tmp_path / "b")
    first = _dump(tmp_path, "one")
    change(tmp_path)
    second = _dump(tmp_path, "two", "one")

    assert 5 == first.pieces == second.pieces
    assert unchanged == second.unchanged_pieces
    _check_equal(tmp_path, "two")


def test_growth_is_cut_further(tmp_path: Path) -> None:
    """A piece that grew to more than twice its size is cut; the earlier cuts stay."""
    _make_idx(tmp_path / "b")
    _dump(tmp_path, "one")
    _make_idx(tmp_path / "b", range(20, 40))
    second = _dump(tmp_path, "two", "one")

    assert (3, True) == (second.unchanged_pieces, second.pieces > 9)
    _check_equal(tmp_path, "two")
    third = _dump(tmp_path, "three", "two")
    assert third.pieces == third.unchanged_pieces == second.pieces


def test_a_copy_elsewhere(tmp_path: Path) -> None:
    """A copy that keeps times is the same, wherever it is; one that does not is read again."""
    _make_idx(tmp_path / "b")
    _dump(tmp_path, "one")
    (tmp_path / "copies").mkdir()
    shutil.copytree(tmp_path / "b", tmp_path / "copies" / "b")
    kept = dump(
        [tmp_path / "copies" / "b"], tmp_path / "two", since=tmp_path / "one", piece_rows=ROWS
    )

    assert kept.pieces == kept.unchanged_pieces
    shutil.copytree(tmp_path / "b", tmp_path / "new" / "b", copy_function=shutil.copyfile)
    again = dump(
        [tmp_path / "new" / "b"], tmp_path / "three", since=tmp_path / "one", piece_rows=ROWS
    )
    assert 0 == again.unchanged_pieces


def test_lengths_depend_on_the_logs(tmp_path: Path) -> None:
    """With --length, rows of the index are read again if a log that they name has changed."""
    with LedgerStorage.open(tmp_path / "b", "sorted") as storage:
        records = Coder("CRC32C").encode_many(7, range(3), [b"x"] * 3)
        storage.add_entries(records, master_key=b"k" * 20)
    pieces = _dump(tmp_path, "one", length=True).pieces
    assert pieces == _dump(tmp_path, "two", "one", length=True).unchanged_pieces

    (path,) = (tmp_path / "b").rglob("*.log")
    os.utime(path, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns + 1))

    assert 0 == _dump(tmp_path, "three", "two", length=True).unchanged_pieces


def test_every_file_of_a_database_counts(tmp_path: Path) -> None:
    """A bookie that runs on changes tables and logs without new options, which a start writes."""
    with RocksIndex(tmp_path / "b" / "ledgers", writable=True) as index:
        index.put_many(7, range(40), range(1028, 1068))
    pieces, since = _dump(tmp_path, "one").pieces, "one"
    for name in ("*.sst", "*.log", "MANIFEST-*", "CURRENT"):
        (path,) = (tmp_path / "b" / "ledgers" / "current" / "locations").glob(name)
        os.utime(path, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns + 1))
        result = _dump(tmp_path, f"after {path.name}", since)

        assert pieces - 1 == result.unchanged_pieces
        since = f"after {path.name}"


def test_rocksdb(tmp_path: Path) -> None:
    """A change in one directory's databases leaves the pieces of the other; info logs are none."""
    for number in range(2):
        with RocksIndex(tmp_path / "b" / f"ledgers{number}", writable=True) as index:
            for ledger in range(number, 24, 2):
                index.put_many(ledger, range(40), range(1028, 1068))
    first = _dump(tmp_path, "one", piece_rows=300)
    for path in (tmp_path / "b").rglob("LOG*"):
        path.write_bytes(b"another start")
    second = _dump(tmp_path, "two", "one", piece_rows=300)
    with RocksIndex(tmp_path / "b" / "ledgers1", writable=True) as index:
        index.put(1, 40, 1068)
    third = _dump(tmp_path, "three", "two", piece_rows=300)

    assert first.pieces == second.unchanged_pieces > 5
    assert 0 < third.unchanged_pieces < third.pieces
    _check_equal(tmp_path, "three")


@pytest.mark.parametrize("storage", ["sorted", "db"])
def test_rounds(tmp_path: Path, storage: StorageKind) -> None:
    """Whatever is added, deleted and collected between dumps, each equals a full one."""
    rng, coder, unchanged = random.Random(5), Coder("CRC32C", "pw"), 0
    options = StorageOptions(entry_log_size=6000)
    sizes = dict.fromkeys(range(1, 15), 0)
    for turn in range(4):
        with LedgerStorage.open(tmp_path / "b" / "ledgers", storage, options=options) as opened:
            for ledger in list(sizes) if turn == 0 else rng.sample(sorted(sizes), 3):
                span = range(sizes[ledger], sizes[ledger] + rng.randrange(1, 60))
                records = coder.encode_many(ledger, span, [bytes(20)] * len(span))
                opened.add_entries(records, master_key=b"k" * 20)
                sizes[ledger] = span.stop
            if turn == 2:
                gone = rng.choice(sorted(sizes))
                del sizes[gone]
                opened.delete_ledger(LedgerId.of(gone))
            opened.checkpoint()
        result = _dump(tmp_path, f"{turn}", f"{turn - 1}" if turn else None, length=True)
        unchanged += result.unchanged_pieces
        _check_equal(tmp_path, f"{turn}", length=True)

    assert storage == "db" or unchanged


def test_findings_are_found_again(tmp_path: Path) -> None:
    """A piece with findings is always read again: they name the files of today."""
    _make_idx(tmp_path / "b")
    next((tmp_path / "b").rglob("7.idx")).write_bytes(b"torn")
    _dump(tmp_path, "one")
    (tmp_path / "b").rename(tmp_path / "c")
    second = _dump(tmp_path, "two", "one", bookies=["c"])

    assert 0 == second.unchanged_pieces  # of another bookie
    third = _dump(tmp_path, "three", "two", bookies=["c"])
    assert third.pieces - 1 == third.unchanged_pieces
    assert {str(next((tmp_path / "c").rglob("7.idx")))} == {
        finding.file for finding in third.findings
    }
    _check_equal(tmp_path, "three", bookies=["c"])


def test_lengths(tmp_path: Path) -> None:
    """With lengths a log that rows name is a source; a dump without lengths has no use for it."""
    _make_idx(tmp_path / "b")
    _dump(tmp_path, "plain")
    _dump(tmp_path, "one", length=True)
    second = _dump(tmp_path, "two", "one", length=True)

    assert 1 == _dump(tmp_path, "none", "plain", length=True).unchanged_pieces  # that of logs
    # The records are not there: every index piece has findings.
    assert 1 == second.unchanged_pieces
    _check_equal(tmp_path, "two", length=True)


def test_live_directories(tmp_path: Path) -> None:
    """What is read live is neither taken from an earlier dump nor a source of a later one."""
    from bkstore.offline.dump import DumpSource

    _make_idx(tmp_path / "b")
    _dump(tmp_path, "one")
    source = DumpSource(tmp_path / "b", live=True)
    live = dump([source], tmp_path / "live", since=tmp_path / "one", piece_rows=ROWS)

    assert 0 == live.unchanged_pieces
    pieces = json.loads((tmp_path / "live" / SOURCES).read_bytes())["pieces"]
    assert [None] * 5 == [piece["digest"] for piece in pieces]
    assert 0 == _dump(tmp_path, "two", "live").unchanged_pieces


@pytest.mark.parametrize("damage", ["missing", "truncated", "other rows"])
def test_damaged_files_are_not_taken(tmp_path: Path, damage: str) -> None:
    """A file of the earlier dump that is not as its manifest says is made again."""
    _make_idx(tmp_path / "b")
    _dump(tmp_path, "one")
    path = tmp_path / "one" / "groups" / "b-00001.parquet"
    other = (tmp_path / "one" / "log_ledgers" / "b-00000.parquet").read_bytes()
    data = path.read_bytes()
    path.unlink()
    if damage != "missing":
        path.write_bytes(data[:-1] if damage == "truncated" else other.ljust(len(data), b"\0"))
    second = _dump(tmp_path, "two", "one")

    assert second.pieces - 1 == second.unchanged_pieces
    _check_equal(tmp_path, "two")


class _NoLinks(Files):
    def link(self, source: object, target: object) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))


def test_copies_where_links_are_impossible(tmp_path: Path) -> None:
    """Files are copied to another file system, with their modes: `ledgers` has master keys."""
    _make_idx(tmp_path / "b")
    _dump(tmp_path, "one")
    second = _dump(tmp_path, "two", "one", files=_NoLinks())

    assert second.pieces == second.unchanged_pieces
    assert set() == _linked(tmp_path, "one", "two")
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "two" / "ledgers").iterdir()}
    assert {0o600} == modes
    _check_equal(tmp_path, "two")


class _FullDisk(Files):
    def link(self, source: object, target: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk(tmp_path: Path) -> None:
    """Nothing is published; the next run goes on."""
    _make_idx(tmp_path / "b")
    _dump(tmp_path, "one")
    with pytest.raises(BkstoreError, match="No space left"):
        _dump(tmp_path, "two", "one", files=_FullDisk())

    assert not (tmp_path / "two").exists()
    again = _dump(tmp_path, "two", "one")
    assert again.pieces == again.unchanged_pieces + again.reused_pieces


def test_bookies_come_and_go(tmp_path: Path) -> None:
    """Bookies that the earlier dump lacks are read, those that are gone are not in the dump."""
    for name in ("b", "c", "d"):
        _make_idx(tmp_path / name)
    _dump(tmp_path, "one", bookies=["b", "c"])
    second = _dump(tmp_path, "two", "one", bookies=["d", "c"])

    assert (10, 5) == (second.pieces, second.unchanged_pieces)
    _check_equal(tmp_path, "two", bookies=["d", "c"])


def _write_sources(top: Path, **fields: Any) -> None:
    path = top / "one" / SOURCES
    path.write_text(json.dumps({**json.loads(path.read_bytes()), **fields}))


def _with_record(top: Path, **fields: Any) -> None:
    pieces = json.loads((top / "one" / SOURCES).read_bytes())["pieces"]
    _write_sources(top, pieces=[{**pieces[0], **fields}])


REFUSALS: dict[str, tuple[Any, type[BkstoreError], str]] = {
    "no dump": (lambda top: shutil.rmtree(top / "one"), InvalidArgument, "no such directory"),
    "no sources": (lambda top: (top / "one" / SOURCES).unlink(), InvalidArgument, "in full once"),
    "not sources": (lambda top: _write_sources(top, kind="x"), InvalidArgument, "not the sources"),
    "a later format": (lambda top: _write_sources(top, format=2), UnsupportedLayout, "format 2"),
    "no pieces": (lambda top: _write_sources(top, pieces=None), CorruptionError, "does not fit"),
    "no list": (lambda top: _write_sources(top, pieces=7), CorruptionError, "does not fit"),
    "a lost file": (
        lambda top: _with_record(top, files={"entries": "entries/x"}),
        CorruptionError,
        "does not fit",
    ),
    "no ledger": (
        lambda top: _with_record(top, first_ledger="x"),
        CorruptionError,
        "does not fit",
    ),
    "no JSON": (lambda top: (top / "one" / SOURCES).write_text("{"), CorruptionError, SOURCES),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refused(tmp_path: Path, name: str) -> None:
    """A dump that cannot be used is named, before anything is read."""
    spoil, error, reason = REFUSALS[name]
    _make_idx(tmp_path / "b")
    _dump(tmp_path, "one")
    spoil(tmp_path)
    with pytest.raises(error, match=reason):
        _dump(tmp_path, "two", "one")

    assert ["b", "one"] == sorted(path.name for path in tmp_path.iterdir()) or name == "no dump"


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capsys) -> None:
    """--since counts unchanged pieces; a URI, and an output in that dump, are refused."""
    _make_idx(tmp_path / "b")
    monkeypatch.chdir(tmp_path)
    main(["dump", "b", "one"])
    capsys.readouterr()

    assert 0 == main(["dump", "b", "two", "--since", "one"])
    assert capsys.readouterr().err.endswith("2 of 2 pieces unchanged since one\n")
    assert 0 == main(["dump", "b", "new=b", "both", "--since", "one"])
    assert capsys.readouterr().err.endswith("\nnew: is not in one, and was read in full\n")
    assert 2 == main(["dump", "b", "one/more", "--since", "one"])
    assert "one/more is inside one" in capsys.readouterr().err
    assert 2 == main(["dump", "b", "three", "--since", "s3://bucket/one"])
