"""Rows of RocksDB indexes that are no bookie's: odd keys and values, states, foreign databases.

Rule: as in `test_files`; rows that say nothing are findings or one error, never entries.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from rocksdict import Options, Rdict, WriteBatch

from bkstore import (
    BookieDir,
    CorruptionError,
    LedgerId,
    NoSuchLedger,
    UnsupportedLayout,
    open_index,
)
from bkstore.formats import ledgerdata
from bkstore.index.api import Finding
from bkstore.index.rocks import RocksIndex
from bkstore.index.rocks.keys import entry_key, ledger_key
from bkstore.index.rocks.options import database_options
from bkstore.offline.dump import dump
from bkstore.offline.reading.open_dump import open_dump
from bkstore.offline.rewrite.recovered_ledger_states import read_source_ledgers

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
    """A key of another size in the middle is refused; numpy would cut or pad it in silence."""
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


ODD_LEDGER_KEYS = {
    "9 bytes": b"\0" * 7 + b"\x08\0",
    "16 bytes": b"\0" * 7 + b"\x08" + b"\1" * 8,
    "the first": b"\0\0",
    "the last": b"\x7f" * 60,
}


@pytest.mark.parametrize("flush", [True, False], ids=["table", "log"])
@pytest.mark.parametrize("key", ODD_LEDGER_KEYS.values(), ids=ODD_LEDGER_KEYS)
def test_ledger_key_of_another_shape(tmp_path: Path, key: bytes, flush: bool) -> None:
    """A row of `ledgers` whose key is no ledger's is one finding. It hides no ledger: all are
    listed, with their states; a caller that needs sound rows alone gets an error."""
    _with_rows(tmp_path, "ledgers", [(key, _row())], flush)
    detail = f"key of {len(key)} bytes is not a ledger's: {key[:40].hex()}"
    finding = Finding("damage", detail, str(tmp_path / "current" / "ledgers"))
    with RocksIndex(tmp_path) as index:
        listing = index.list_readable_ledgers()

        assert [5, 7, 9] == [each.ledger for each in listing.ledgers]
        assert [finding] == listing.findings == index.findings()
        assert [] == listing.unknown
        assert [b"", b""] == [index.state(ledger).master_key for ledger in (5, 9)]
        assert (True, False) == (index.has_ledger(7), index.has_ledger(8))
        with pytest.raises(CorruptionError, match=detail):
            index.ledgers()


def test_ledgers_of_others_beside_a_scope(tmp_path: Path) -> None:
    """Rows of scope 0 in the databases of other scopes are no ledger's there."""
    with RocksIndex(tmp_path, writable=True) as index:
        index.put_many(LedgerId(1, 7), [0], [1])
        index._writable_database("ledgers", is_scoped=True).put(bytes(8) + PREFIX[:8], _row())
        index._writable_database("locations", is_scoped=True).put(bytes(8) + PREFIX, b"\1" * 8)
    findings: list[Finding] = []
    with RocksIndex(tmp_path) as index:
        listing = index.list_readable_ledgers()
        list(index.scan(findings=findings))

        assert [LedgerId(1, 7)] == listing.ledgers == index.ledgers_with_entries()
        assert listing.findings == index.findings()
        assert [PREFIX[:8].hex() in finding.detail for finding in listing.findings] == [True]
    assert [PREFIX.hex() in finding.detail for finding in findings] == [True]


def test_states_of_a_lost_index_beside_an_odd_row(tmp_path: Path) -> None:
    """Where `ledgers` is read alone, because `locations` is gone, the row is a finding too."""
    key = ODD_LEDGER_KEYS["9 bytes"]
    _with_rows(tmp_path, "ledgers", [(key, _row())], True)
    (tmp_path / "current" / "locations" / "CURRENT").unlink()
    findings: list[Finding] = []
    with BookieDir(tmp_path, needs_index=False) as bookie:
        known = read_source_ledgers(bookie, findings)

    assert ([5, 7, 9], True) == ([each.ledger for each in known.indexed], known.has_listing)
    assert 1 == sum(key.hex() in finding.detail for finding in findings)


def test_a_dump_names_an_odd_row_once(tmp_path: Path) -> None:
    """It hides no ledger of any piece."""
    key = ODD_LEDGER_KEYS["16 bytes"]
    _with_rows(tmp_path / "b", "ledgers", [(key, _row())], True)
    dump([tmp_path / "b"], tmp_path / "dump", piece_rows=300)
    opened = open_dump(tmp_path / "dump")
    (finding,) = opened.read("findings").to_pylist()

    assert 3 == len(opened.files["entries"])
    assert key.hex() in finding["detail"]
    assert [5, 7, 9] == [row["ledger_id"] for row in opened.read("ledgers").to_pylist()]


@pytest.mark.parametrize("ends", [[b"\0", b"\x7f" * 9], [b""]])
def test_a_writer_refuses_odd_rows_at_an_end(tmp_path: Path, ends: list[bytes]) -> None:
    """It has to be sure that the database is a bookie's; a reader, if both end rows are odd."""
    _with_rows(tmp_path, "ledgers", [(key, _row()) for key in ends], True)

    with pytest.raises(CorruptionError, match="not a bookie's database: ledgers row"):
        RocksIndex(tmp_path, writable=True)
    if len(ends) == 2:
        with pytest.raises(CorruptionError, match="not a bookie's database: ledgers row"):
            RocksIndex(tmp_path)


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
    """128-bit databases whose marker is gone are not skipped."""
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
