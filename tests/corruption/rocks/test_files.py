"""Damaged, foreign and half-written RocksDB indexes.

Rule of the family: every path gives the answer of the undamaged database or one error of ours
that names the original directory, never the scratch one; never fewer rows, never "not found".
Where RocksDB itself is silent (iterators, a manifest or log that lost its end) or hangs (a
flipped record type), bkstore must speak.

Over 500 lines because it is one family: all damage is done to the same few databases, and
checked by the same helper.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rocksdict import Options, Rdict, WriteBatch

from bkstore import (
    BkstoreError,
    CorruptionError,
    DirectoryInUse,
    IllegalOperation,
    LedgerId,
    NoSuchLedger,
    UnsupportedLayout,
    open_index,
)
from bkstore.formats import ledgerdata
from bkstore.formats.ledgerdata import FLAGS_KEY
from bkstore.index.api import Finding, LedgerState
from bkstore.index.partitioned import PartitionedIndex
from bkstore.index.rocks import RocksIndex
from bkstore.index.rocks.database import Database
from bkstore.index.rocks.keys import entry_key, ledger_key
from bkstore.index.rocks.log_framing import LogReader
from bkstore.index.rocks.options import database_options, location_options

ENTRIES = 4000
LEDGERS = range(1, 6)

Answers = dict[str, Any]
PATHS: dict[str, Callable[[RocksIndex], object]] = {
    "ledgers": lambda index: index.ledgers(),
    "scan": lambda index: [
        row for b in index.scan(1000) for row in zip(b.ledger_id.tolist(), b.entry_id.tolist())
    ],
    "ledgers_with_entries": lambda index: index.ledgers_with_entries(),
}
for _ledger in (1, 3, 5, 6):
    PATHS |= {
        f"entries {_ledger}": lambda index, n=_ledger: index.entries(n).tolist(),
        f"availability {_ledger}": lambda index, n=_ledger: index.availability(n).ranges().tolist(),
        f"some {_ledger}": lambda index, n=_ledger: index.entries(n, 3000, 3010).tolist(),
        f"items {_ledger}": lambda index, n=_ledger: [c.tolist() for c in index.items(n)],
        f"last {_ledger}": lambda index, n=_ledger: index.last_entry(n),
        f"get {_ledger}": lambda index, n=_ledger: [index.get(n, e) for e in (0, 1, 4000, 7998)],
        f"many {_ledger}": lambda index, n=_ledger: index.get_many(n, [7998, 4000, 0, 1]).tolist(),
        f"dense {_ledger}": lambda index, n=_ledger: index.get_many(n, range(90)).tolist(),
    }
for _ledger in (1, 3, 5):
    PATHS[f"state {_ledger}"] = lambda index, n=_ledger: index.state(n)


def _answers(index: RocksIndex) -> Answers:
    found: Answers = {}
    for name, ask in PATHS.items():
        try:
            found[name] = ask(index)
        except CorruptionError as error:
            found[name] = error
    return found


def _fill(index: RocksIndex) -> None:
    for ledger in LEDGERS:
        places = np.random.default_rng(ledger).integers(1, 2**62, ENTRIES)
        index.put_many(ledger, np.arange(ENTRIES) * 2, places)
        index.set_state(ledger, LedgerState(b"k" * 20, ledger % 2 == 0, ledger == 3, bytes(20)))


def _flush(index: RocksIndex) -> None:
    """Turn the memtables into table files."""
    for database in index._open.values():
        database._handle.flush()


@pytest.fixture(scope="module")
def flushed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Answers]:
    """Return a bookie whose rows are all in table files, and its answers."""
    top = tmp_path_factory.mktemp("flushed")
    with RocksIndex(top, writable=True) as index:
        _fill(index)
        _flush(index)
    with RocksIndex(top) as index:
        return top, _answers(index)


@pytest.fixture(scope="module")
def unflushed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Answers]:
    """Return a bookie whose rows are all in write-ahead logs, and its answers."""
    made, top = tmp_path_factory.mktemp("made"), tmp_path_factory.mktemp("unflushed")
    with RocksIndex(made, writable=True) as index:
        _fill(index)
        index.flush()
        shutil.copytree(made, top, dirs_exist_ok=True)  # as a crash would leave it
    with RocksIndex(top) as index:
        return top, _answers(index)


@contextmanager
def _changed(file: Path, data: bytes) -> Iterator[None]:
    """Give a file other bytes for a while; the reading must not touch it."""
    original = file.read_bytes()
    file.write_bytes(data)
    try:
        yield
        assert data == file.read_bytes()
    finally:
        file.write_bytes(original)


def _only(folder: Path, pattern: str) -> Path:
    (found,) = (path for path in folder.glob(pattern) if path.stat().st_size)
    return found


def _opened(top: Path) -> Answers | BkstoreError:
    try:
        with RocksIndex(top) as index:
            return _answers(index)
    except (CorruptionError, UnsupportedLayout) as error:
        return error


def _check(top: Path, expected: Answers) -> str:
    """Assert that each answer is right or an error; return what happened, for the caller."""
    found = _opened(top)
    if isinstance(found, BkstoreError):
        assert str(top) in str(found)
        assert "bkstore-rocksdb-" not in str(found)
        return "refused"
    wrong = {
        name: answer
        for name, answer in found.items()
        if not isinstance(answer, CorruptionError) and answer != expected[name]
    }

    assert {} == wrong
    refusals = [answer for answer in found.values() if isinstance(answer, CorruptionError)]
    for refusal in refusals:
        assert str(top) in str(refusal)
        assert "bkstore-rocksdb-" not in str(refusal)
    return "partly" if refusals else "right"


def _flip(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :]


def _zero(data: bytes, at: int) -> bytes:
    return data[:at] + bytes(len(data[at : at + 16])) + data[at + 16 :]


def _cut(data: bytes, at: int) -> bytes:
    return data[:at]


DAMAGE = [_flip, _zero, _cut]


# -- table files


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("database", ["locations", "ledgers"])
def test_table_damaged(
    flushed: tuple[Path, Answers], database: str, damage: Callable[[bytes, int], bytes]
) -> None:
    """Damage in any block, the index, the properties or the footer of a table is noticed.

    It is noticed by each path that needs the damaged block; iterators stop there in silence.
    """
    top, expected = flushed
    file = _only(top / "current" / database, "*.sst")
    data = file.read_bytes()
    places = {*np.linspace(0, len(data) - 1, 24).astype(int).tolist()}
    places |= {*range(len(data) - 60, len(data), 9)}
    seen = set()
    for at in sorted(places):
        with _changed(file, damage(data, at)):
            seen.add(_check(top, expected))

    assert seen & {"refused", "partly"}


def test_damaged_block_stops_only_what_needs_it(flushed: tuple[Path, Answers]) -> None:
    """One bad block in the middle: others are answered, and the error names table and offset."""
    top, expected = flushed
    file = _only(top / "current" / "locations", "*.sst")
    data = file.read_bytes()
    with _changed(file, _flip(data, len(data) // 2)), RocksIndex(top) as index:
        found = _answers(index)
        refused = [name for name, answer in found.items() if isinstance(answer, CorruptionError)]

        assert {"entries 3", "items 3", "scan"} <= set(refused)
        assert expected["entries 1"] == found["entries 1"]
        error = found["entries 3"]
        assert str(file) == error.file
        assert error.offset is not None
        assert error.offset <= len(data) // 2


def test_scan_goes_on_behind_a_damaged_block(flushed: tuple[Path, Answers]) -> None:
    """A bulk read yields all rows before the damage, and again from the next ledger on."""
    top, expected = flushed
    file = _only(top / "current" / "locations", "*.sst")
    data = file.read_bytes()
    findings: list[Finding] = []
    with _changed(file, _flip(data, len(data) // 2)), RocksIndex(top) as index:
        rows = [
            row
            for part in index.scan(100_000, findings)
            for row in zip(part.ledger_id.tolist(), part.entry_id.tolist())
        ]

    assert sorted(set(rows)) == rows
    assert set(rows) < set(expected["scan"])
    assert [e for n, e in expected["scan"] if n == 5] == [e for n, e in rows if n == 5]
    assert [e for n, e in rows if n == 2] == [e for n, e in expected["scan"] if n == 2]
    assert "damage" in {finding.severity for finding in findings}
    assert any("up to" in finding.detail for finding in findings)


@pytest.mark.parametrize("name", ["*.sst", "CURRENT", "MANIFEST-*"])
@pytest.mark.parametrize("database", ["locations", "ledgers"])
def test_file_missing(flushed: tuple[Path, Answers], database: str, name: str) -> None:
    """A database without one of its files is refused, with the name of that file."""
    top, _ = flushed
    file = _only(top / "current" / database, name)
    data = file.read_bytes()
    file.unlink()
    try:
        with pytest.raises(CorruptionError, match="missing") as caught:
            RocksIndex(top)
    finally:
        file.write_bytes(data)

    assert str(file) == caught.value.file


@pytest.mark.parametrize("database", ["locations", "ledgers"])
def test_half_an_index(flushed: tuple[Path, Answers], tmp_path: Path, database: str) -> None:
    """One of the two databases alone (a conversion cut short) is refused by name."""
    shutil.copytree(flushed[0], tmp_path, dirs_exist_ok=True)
    shutil.rmtree(tmp_path / "current" / database)

    with pytest.raises(UnsupportedLayout, match=database):
        open_index(tmp_path)


# -- CURRENT and MANIFEST


@pytest.mark.parametrize("damage", DAMAGE)
def test_current_damaged(
    flushed: tuple[Path, Answers], damage: Callable[[bytes, int], bytes]
) -> None:
    """Any changed byte of CURRENT is refused, at that file or at the manifest it then names."""
    top, expected = flushed
    file = top / "current" / "locations" / "CURRENT"
    data = file.read_bytes()
    for at in range(len(data)):
        with _changed(file, damage(data, at)):
            assert "refused" == _check(top, expected)


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("database", ["locations", "ledgers"])
def test_manifest_damaged(
    flushed: tuple[Path, Answers], database: str, damage: Callable[[bytes, int], bytes]
) -> None:
    """No damage to a manifest makes tables vanish: RocksDB takes a lost end for the end."""
    top, expected = flushed
    file = _only(top / "current" / database, "MANIFEST-*")
    data = file.read_bytes()
    seen = set()
    for at in range(0, len(data), 3):
        with _changed(file, damage(data, at)):
            seen.add(_check(top, expected))

    assert "refused" in seen


def test_manifest_refusal_says_where(flushed: tuple[Path, Answers]) -> None:
    """A manifest cut off before the record of a table names itself, the offset and the table."""
    top, _ = flushed
    file = _only(top / "current" / "locations", "MANIFEST-*")
    with (
        _changed(file, file.read_bytes()[:130]),
        pytest.raises(CorruptionError, match=r"\d+\.sst is here, but no record names it") as caught,
    ):
        RocksIndex(top)

    assert str(file) == caught.value.file
    assert 0 <= (caught.value.offset or 0) <= 130


def test_leftover_of_a_crash_is_a_finding(flushed: tuple[Path, Answers], tmp_path: Path) -> None:
    """A table that a crash left unfinished does not stop the reading; it is named."""
    shutil.copytree(flushed[0], tmp_path, dirs_exist_ok=True)
    leftover = tmp_path / "current" / "locations" / "000999.sst"
    leftover.write_bytes(b"half a table")

    assert "right" == _check(tmp_path, flushed[1])
    with RocksIndex(tmp_path) as index:
        assert [str(leftover)] == [finding.file for finding in index.findings()]


# -- write-ahead logs


def test_unflushed_rows_are_read(unflushed: tuple[Path, Answers], flushed: object) -> None:
    """Rows that are only in a write-ahead log are read like rows of a table."""
    assert flushed[1] == unflushed[1]  # type: ignore[index]


@pytest.mark.parametrize("damage", [_flip, _zero])
@pytest.mark.parametrize("database", ["locations", "ledgers"])
def test_log_damaged(
    unflushed: tuple[Path, Answers], database: str, damage: Callable[[bytes, int], bytes]
) -> None:
    """Damage in a write-ahead log is refused with its file and offset, wherever it lies.

    Only a last record that runs past the end may be dropped: so a crash leaves it.
    """
    top, _ = unflushed
    file = _only(top / "current" / database, "*.log")
    data = file.read_bytes()
    starts = [at for at, _ in LogReader(file).records()]
    for at in sorted({*np.linspace(0, starts[-1] - 16, 24).astype(int).tolist(), *range(12)}):
        with _changed(file, damage(data, at)):
            with pytest.raises(CorruptionError) as caught:
                RocksIndex(top)

            assert str(file) == caught.value.file
            assert caught.value.offset is not None
            assert caught.value.offset <= at + 16


def test_flipped_record_type_does_not_hang(unflushed: tuple[Path, Answers]) -> None:
    """A flipped type byte, which sends RocksDB into an endless loop, is refused before."""
    top, _ = unflushed
    file = _only(top / "current" / "ledgers", "*.log")
    data = file.read_bytes()
    starts = [at for at in range(len(data) - 7) if data[at + 4 : at + 7] == b"\x1d\0\1"]
    for start in starts:
        changed = data[: start + 6] + b"\5" + data[start + 7 :]
        with (
            _changed(file, changed),
            pytest.raises(CorruptionError, match=rf"offset {start}:"),
        ):
            RocksIndex(top)

    assert len(LEDGERS) <= len(starts)


@pytest.mark.parametrize("lost", [1, 30, 70])
def test_torn_tail_is_read_up_to_it(unflushed: tuple[Path, Answers], lost: int) -> None:
    """A log that ends inside its last record is what a crash leaves: rows before it count."""
    top, _ = unflushed
    file = _only(top / "current" / "ledgers", "*.log")
    data = file.read_bytes()
    with _changed(file, data[:-lost]), RocksIndex(top) as index:
        assert [*LEDGERS] == [name.ledger for name in index.ledgers()]
        assert b"" == index.state(5).master_key  # its row before the last write
        (finding,) = index.findings()

    assert (str(file), "oddity") == (finding.file, finding.severity)
    assert len(data) - 80 < (finding.offset or 0) < len(data) - lost


def test_zeros_behind_the_log(unflushed: tuple[Path, Answers]) -> None:
    """Space that was allocated and never written is no damage, however long."""
    top, expected = unflushed
    file = _only(top / "current" / "locations", "*.log")
    with _changed(file, file.read_bytes() + bytes(100_000)):
        assert "right" == _check(top, expected)


def test_empty_log(flushed: tuple[Path, Answers]) -> None:
    """A database that was closed in order has a log of 0 bytes, and opens."""
    logs = [*(flushed[0] / "current").glob("*/*.log")]

    assert [0, 0] == [log.stat().st_size for log in logs]


def _kill_after(top: Path, code: str) -> None:
    """Run `code` over a writable `index` in a child that is killed where it prints."""
    script = (
        "import sys\nfrom bkstore.index.rocks import RocksIndex\n"
        f"index = RocksIndex(sys.argv[1], writable=True)\n{code}\n"
        "print(flush=True)\nsys.stdin.read()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", script, str(top)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    child.stdout.readline()
    child.send_signal(signal.SIGKILL)
    child.communicate()


def test_killed_writer(tmp_path: Path) -> None:
    """What a killed process wrote is there: tables, logs, several of them, and deletes."""
    _kill_after(
        tmp_path,
        "index.put_many(7, range(3000), range(1, 3001))\n"
        "index.put_many(8, range(10), range(1, 11))\n"
        "index._database('locations', False)._handle.flush()\n"
        "index.put_many(7, range(3000, 3005), range(1, 6))\n"
        "index.delete(8)\n"
        "index.put_many(9, [1], [5])",
    )
    with RocksIndex(tmp_path) as index:
        assert list(range(3005)) == index.entries(7).tolist()
        assert [7, 9] == [name.ledger for name in index.ledgers()]
        assert [] == index.entries(8).tolist()
        assert 5 == index.get(9, 1)
        assert [] == index.findings()


@pytest.mark.parametrize("table", [True, False])
def test_copy_of_a_moving_database(tmp_path: Path, table: bool) -> None:
    """An old manifest with newer files, as a copy of a running bookie has them, is refused.

    RocksDB opens both: the rows of the log that was flushed in between are gone, whether or
    not the table that they went to was copied too.
    """
    made, copy = tmp_path / "made", tmp_path / "copy"
    with RocksIndex(made, writable=True) as index:
        index.put_many(7, range(1000), range(1, 1001))
        _flush(index)
        old = _only(made / "current" / "locations", "MANIFEST-*").read_bytes()
        index.put_many(7, range(1000, 2000), range(1, 1001))
        _flush(index)
        index.put_many(7, range(2000, 3000), range(1, 1001))
        shutil.copytree(made, copy)
    locations = copy / "current" / "locations"
    _only(locations, "MANIFEST-*").write_bytes(old)
    if not table:
        sorted(locations.glob("*.sst"))[-1].unlink()
    with pytest.raises(CorruptionError, match="missing") as caught:
        RocksIndex(copy)

    assert (caught.value.file or "").startswith(str(locations))


# -- rows that are no bookie's


def _with_rows(top: Path, database: str, rows: list[tuple[bytes, bytes]], flush: bool) -> None:
    """Write a bookie with three ledgers, then `rows` behind its back."""
    with RocksIndex(top, writable=True) as index:
        for ledger in (5, 7, 9):
            index.put_many(ledger, range(300), range(1, 301))
    options = database_options(database)
    path = str(top / "current" / database)
    db = Rdict(path, options, column_families={"default": options})
    batch = WriteBatch(raw_mode=True)
    for key, value in rows:
        batch.put(key, value)
    db.write(batch)
    if flush:
        db.flush()
        db.close()
        return
    shutil.copytree(path, f"{path}.copy")
    db.close()
    shutil.rmtree(path)
    shutil.move(f"{path}.copy", path)


PREFIX = entry_key(LedgerId(ledger=7), 100)
ODD_KEYS = {
    "9 bytes": PREFIX[:8] + b"\1",
    "12 bytes": PREFIX[:8] + b"\0\0\0\1",
    "15 bytes": PREFIX[:14] + b"\1",
    "17 bytes, zero": PREFIX + b"\0",
    "17 bytes": PREFIX + b"\1",
    "24 bytes, zeros": PREFIX + bytes(8),
    "24 bytes": PREFIX + b"\1" * 8,
    "24 bytes, alone": entry_key(LedgerId(ledger=7), 400) + bytes(8),
    "32 bytes": PREFIX * 2,
}


@pytest.mark.parametrize("flush", [True, False], ids=["table", "log"])
@pytest.mark.parametrize("key", ODD_KEYS.values(), ids=ODD_KEYS)
def test_key_of_another_width(tmp_path: Path, key: bytes, flush: bool) -> None:
    """A key of another width in the middle is refused; numpy would cut or pad it in silence."""
    _with_rows(tmp_path, "locations", [(key, b"\0" * 7 + b"\1")], flush)
    with RocksIndex(tmp_path) as index:
        for ask in (index.entries, index.availability, index.items):
            with pytest.raises(CorruptionError, match=key[:40].hex()[:30]):
                ask(7)
        with pytest.raises(CorruptionError):
            list(index.scan())

        assert list(range(300)) == index.entries(9).tolist()

        findings: list[Finding] = []
        found = [row for part in index.scan(1 << 18, findings) for row in part.ledger_id.tolist()]
        assert 300 == found.count(9)
        assert ["damage"] == [finding.severity for finding in findings]


@pytest.mark.parametrize("flush", [True, False], ids=["table", "log"])
@pytest.mark.parametrize("width", [0, 1, 7, 9, 16, 100])
def test_value_of_another_width(tmp_path: Path, width: int, flush: bool) -> None:
    """A value that is not 8 bytes wide is no location, by any path that reads it."""
    _with_rows(tmp_path, "locations", [(PREFIX, b"\1" * width)], flush)
    with RocksIndex(tmp_path) as index:
        for ask in (
            lambda: index.items(7),
            lambda: index.get(7, 100),
            lambda: index.get_many(7, range(300)),
            lambda: index.get_many(7, [0, 100]),
            lambda: list(index.scan()),
        ):
            with pytest.raises(CorruptionError, match=PREFIX.hex()):
                ask()

        assert list(range(300)) == index.items(9)[0].tolist()


@pytest.mark.parametrize("location", [0, -1, -(2**63)])
def test_location_that_is_none(tmp_path: Path, location: int) -> None:
    """A location of 0 or below is damage, by each path that reads it; never "absent"."""
    value = location.to_bytes(8, "big", signed=True)
    _with_rows(tmp_path, "locations", [(PREFIX, value)], True)
    findings: list[Finding] = []
    with RocksIndex(tmp_path) as index:
        for ask in (
            lambda: index.items(7),
            lambda: index.get(7, 100),
            lambda: index.get_many(7, [0, 100]),
            lambda: list(index.scan()),
        ):
            with pytest.raises(CorruptionError, match=PREFIX.hex()):
                ask()
        rows = sum(part.entry_id.size for part in index.scan(1000, findings))

    assert (899, 1) == (rows, len(findings))


def test_negative_ids_in_locations(tmp_path: Path) -> None:
    """Rows of negative ledgers and entries are no entries; a scan names them, listings go on."""
    rows = [(b"\xff" * 16, b"\1" * 8), (PREFIX[:8] + b"\xff" * 8, b"\1" * 8)]
    _with_rows(tmp_path, "locations", rows, True)
    findings: list[Finding] = []
    with RocksIndex(tmp_path) as index:
        assert list(range(300)) == index.entries(7).tolist()
        assert 299 == index.last_entry(7)
        assert [5, 7, 9] == [name.ledger for name in index.ledgers_with_entries()]
        assert 900 == sum(part.entry_id.size for part in index.scan(1000, findings))
        with pytest.raises(CorruptionError, match="out of range"):
            list(index.scan())

    assert ["damage"] == [finding.severity for finding in findings]


def test_orphan_rows_are_findings(tmp_path: Path) -> None:
    """Entries without a ledger row are not listed, still answer, and are named."""
    orphan = entry_key(LedgerId(ledger=8), 0)
    _with_rows(tmp_path, "locations", [(orphan, b"\0" * 7 + b"\1")], True)
    with RocksIndex(tmp_path) as index:
        assert [5, 7, 9] == [name.ledger for name in index.ledgers()]
        assert [0] == index.entries(8).tolist()
        assert [LedgerId(ledger=8)] == [finding.ledger for finding in index.findings()]
        with pytest.raises(NoSuchLedger):
            index.state(8)


# -- the `ledgers` database


def _row(**fields: Any) -> bytes:
    return ledgerdata.encode(ledgerdata.LedgerData(**fields))


def test_sixteen_byte_ledger_key(tmp_path: Path) -> None:
    """A row of `rebuild-db-ledgers-index` has a 16-byte key; it wins, and is one ledger."""
    key = ledger_key(LedgerId(ledger=7)) + bytes(8)
    _with_rows(tmp_path, "ledgers", [(key, _row(master_key=b"rebuilt"))], True)
    with RocksIndex(tmp_path) as index:
        assert [5, 7, 9] == [name.ledger for name in index.ledgers()]
        assert b"rebuilt" == index.state(7).master_key
        (finding,) = index.findings()

        assert LedgerId(ledger=7) == finding.ledger


def test_flags_row_and_negative_ids(tmp_path: Path) -> None:
    """The storage flags row is no ledger; a negative id is none either, and is named."""
    rows = [(ledgerdata.FLAGS_KEY, b"\0" * 7 + b"\1"), (b"\xff" * 8, _row())]
    _with_rows(tmp_path, "ledgers", rows, True)
    with RocksIndex(tmp_path) as index:
        assert 1 == index.storage_flags
        assert [5, 7, 9] == [name.ledger for name in index.ledgers()]
        assert ["ff" * 8] == [f.detail.split()[1] for f in index.findings()]


def test_flags_row_of_another_width(tmp_path: Path) -> None:
    """A flags row that is no i64 is refused when it is asked for."""
    _with_rows(tmp_path, "ledgers", [(ledgerdata.FLAGS_KEY, b"\1")], True)
    with RocksIndex(tmp_path) as index, pytest.raises(CorruptionError, match="flags row"):
        _ = index.storage_flags


@pytest.mark.parametrize("value", [b"", b"\xff", b"\x08\x01", _row(master_key=b"k" * 9)[:-1]])
def test_ledger_row_that_does_not_parse(tmp_path: Path, value: bytes) -> None:
    """A damaged row stops its own ledger's state; it stays listed, and is named."""
    key = ledger_key(LedgerId(ledger=7))
    _with_rows(tmp_path, "ledgers", [(key, value)], True)
    with RocksIndex(tmp_path) as index:
        with pytest.raises(CorruptionError, match=key.hex()):
            index.state(7)
        (finding,) = index.findings()

        assert [5, 7, 9] == [name.ledger for name in index.ledgers()]
        assert b"" == index.state(9).master_key
        assert (LedgerId(ledger=7), "damage") == (finding.ledger, finding.severity)


@pytest.mark.parametrize("key", [b"\0" * 7 + b"\x08\0", b"\0" * 7 + b"\x08" + b"\1" * 8])
def test_ledger_key_of_another_shape(tmp_path: Path, key: bytes) -> None:
    """A key in the middle of `ledgers` that is no ledger's stops the listing, by name."""
    _with_rows(tmp_path, "ledgers", [(key, _row())], True)
    with pytest.raises(CorruptionError, match=key.hex()), RocksIndex(tmp_path) as index:
        index.ledgers()


# -- databases of others


@pytest.mark.parametrize("database", ["locations", "ledgers"])
@pytest.mark.parametrize("rows", [{b"": b"x" * 8}, {b"a": b"b"}, {b"key" * 20: b"value"}])
def test_foreign_rows(tmp_path: Path, database: str, rows: dict[bytes, bytes]) -> None:
    """A database of somebody else's rows is refused at the opening."""
    with RocksIndex(tmp_path, writable=True):
        pass
    db = Rdict(str(tmp_path / "current" / database), Options(raw_mode=True))
    for key, value in rows.items():
        db[key] = value
    db.close()

    with pytest.raises(CorruptionError, match="not a bookie's database"):
        RocksIndex(tmp_path)


def test_foreign_comparator(tmp_path: Path) -> None:
    """A database with another key order is refused as no bookie's, its files untouched."""
    with RocksIndex(tmp_path, writable=True):
        pass
    shutil.rmtree(tmp_path / "current" / "locations")
    db = Rdict(str(tmp_path / "current" / "locations"))  # not raw: an order of rocksdict's own
    db["a"] = 1
    db.close()

    with pytest.raises((UnsupportedLayout, CorruptionError), match="locations"):
        RocksIndex(tmp_path)


def test_wide_databases_without_marker(tmp_path: Path) -> None:
    """128-bit databases whose marker is gone are not passed over."""
    with RocksIndex(tmp_path, writable=True) as index:
        index.put_many(LedgerId(1, 7), [0], [1])
    (tmp_path / "current" / "BKSTORE-128").unlink()

    with pytest.raises(CorruptionError, match="BKSTORE-128"):
        open_index(tmp_path)


@pytest.mark.parametrize("kind", ["locations-128", "ledgers-128"])
def test_half_of_the_wide_databases(tmp_path: Path, kind: str) -> None:
    """One of the two 128-bit databases alone is refused by name."""
    with RocksIndex(tmp_path, writable=True) as index:
        index.put_many(LedgerId(1, 7), [0], [1])
    shutil.rmtree(tmp_path / "current" / kind)

    with pytest.raises(UnsupportedLayout, match=kind):
        open_index(tmp_path)


# -- states of the index itself


def test_closed_index_answers_nothing(tmp_path: Path) -> None:
    """After `close` every path says so: a closed index is not an empty one."""
    for writable in (True, False):
        index = RocksIndex(tmp_path, writable=writable)
        if writable:
            index.put_many(1, [0], [5])
        index.close()
        for ask in (*PATHS.values(), lambda i: i.findings(), lambda i: i.put(1, 1, 1)):
            with pytest.raises(BkstoreError) as caught:
                ask(index)

            assert not isinstance(caught.value, NoSuchLedger | CorruptionError | DirectoryInUse)
    with pytest.raises(IllegalOperation):
        index.ledgers()


def test_rows_put_during_a_scan_are_no_damage(tmp_path: Path) -> None:
    """A scan is a snapshot: rows that are written behind its back do not look like lost ones."""
    with RocksIndex(tmp_path, writable=True) as index:
        index.put_many(1, range(100), range(1, 101))
        seen = 0
        for part in index.scan(10):
            seen += part.entry_id.size
            index.put_many(2, range(seen), range(1, seen + 1))

        assert 100 == seen
        assert list(range(100)) == index.entries(2).tolist()


def test_row_deleted_during_a_scan_is_no_damage(tmp_path: Path) -> None:
    """The look past the end asks for a row before it calls it lost: it may be deleted by now."""
    with RocksIndex(tmp_path, writable=True) as index:
        index.put_many(1, range(100), range(1, 101))
        database = index._database("locations", False)
        older = database._handle.iter()
        index.delete(1)

        assert [] == index.entries(1).tolist()
        database._check_end(older, b"", None)


def test_last_entry_passes_by_an_id_that_is_none(tmp_path: Path) -> None:
    """A row with entry id 2^63-1, which no bookie can find, does not hide the last real one."""
    with RocksIndex(tmp_path, writable=True) as index:
        index.put_many(7, [3, 4], [1028, 2000])
        index.put_many(8, [1], [1028])
    database = Database(tmp_path / "current" / "locations", location_options())
    database.put((7).to_bytes(8, "big") + (2**63 - 1).to_bytes(8, "big"), (1028).to_bytes(8, "big"))
    database.close()
    with RocksIndex(tmp_path) as index:
        assert 4 == index.last_entry(7)
        assert [3, 4] == index.entries(7).tolist()
        assert 1 == index.last_entry(8)


@pytest.mark.parametrize("levels", [7, 12])
def test_more_levels(tmp_path: Path, levels: int) -> None:
    """A database with more levels than RocksDB's default (a bookie's setting) is read."""
    with RocksIndex(tmp_path, writable=True) as index:
        index.set_state(1, LedgerState())
    shutil.rmtree(tmp_path / "current" / "locations")
    options = location_options()
    options.set_num_levels(levels)
    database = Database(tmp_path / "current" / "locations", options)
    for entry in range(500):
        database.put(entry_key(LedgerId.of(1), entry), (1028 + entry).to_bytes(8, "big"))
    database._handle.flush()
    database._handle.compact_range(None, None)
    database.close()
    with RocksIndex(tmp_path) as index:
        assert [[0, 499]] == index.availability(1).ranges().tolist()


def test_storage_flags_of_several_directories(tmp_path: Path) -> None:
    """The flags row lies in the directory of ledger 0, and is seen through all of them."""
    parts = [RocksIndex(tmp_path / f"ledgers{n}", writable=True) for n in range(2)]
    with PartitionedIndex(parts) as index:
        index.put_many(0, [0], [1028])
        index.put_many(1, [0], [1028])
    path = tmp_path / "ledgers0" / "current" / "ledgers"
    database = Database(path, database_options("ledgers"))
    database.put(FLAGS_KEY, (1).to_bytes(8, "big"))
    database.close()
    with open_index(tmp_path) as index:
        assert 1 == index.storage_flags
        assert [LedgerId.of(0), LedgerId.of(1)] == index.ledgers()
