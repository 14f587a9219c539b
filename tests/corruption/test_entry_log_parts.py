"""Damaged headers, padding and ledgers maps of entry logs; damage met by way of the index."""

from __future__ import annotations

from pathlib import Path

import pytest

from bkstore import BookieDir, CorruptionError, NoSuchEntry
from bkstore.errors import BkstoreError, UnsupportedLayout
from bkstore.formats import entrylog
from bkstore.formats.entry import Entry
from bkstore.formats.entrylog import LogHeader
from bkstore.index.api import Finding
from bkstore.storage.entry_log.scan import LogBatch, read_log_metadata, scan_log
from bkstore.storage.ledger_storage import LedgerStorage
from tests.worlds.entry_logs import CODER, HEADER, NAMES, make_log, scanned

# -- headers, padding, ledgers maps


@pytest.mark.parametrize(
    ("at", "value", "reason"),
    [
        (0, b"BKLG", "signature"),
        (0, bytes(24), "signature"),
        (4, b"\0\0\0\x09", "version 9"),
    ],
)
def test_broken_header(tmp_path: Path, at: int, value: bytes, reason: str) -> None:
    """A header that is none is damage; with findings all records come nevertheless."""
    log, path = make_log(), tmp_path / "0.log"
    path.write_bytes(log.data[:at] + value + log.data[at + len(value) :])
    findings: list[Finding] = []

    assert log.records == scanned(path, findings)
    assert ["damage"] == [finding.severity for finding in findings]
    assert reason in str(findings[0])
    with pytest.raises((CorruptionError, UnsupportedLayout), match=reason):
        list(scan_log(path))

    findings.clear()
    metadata, source = read_log_metadata(path, 0, findings)

    assert ("scan", log.map_offset - HEADER) == (source, metadata.total_size)
    assert 1 == len(findings)


def test_empty_and_missing_files(tmp_path: Path) -> None:
    """A file without bytes is a log without records; one that is not there is an error."""
    path = tmp_path / "0.log"
    path.touch()

    assert {} == scanned(path, None)
    assert 0 == read_log_metadata(path, 0)[0].total_size
    for place in (tmp_path / "1.log", tmp_path):
        with pytest.raises(BkstoreError, match=str(place)):
            list(scan_log(place, []))


def test_padding_is_no_damage(tmp_path: Path) -> None:
    """0xF0 up to a multiple of 4096, and zeros to the end, are as the direct-IO logger writes."""
    path = tmp_path / "0.log"
    parts = [entrylog.encode_header(LogHeader(), direct=True)]
    records = []
    for number, size in enumerate((100, 4000, 4080, 4076, 4050, 9000, 40)):
        record = CODER.encode(Entry(1, number, number - 1, 0, bytes(size - 36)))
        records.append(record)
        frame = len(record).to_bytes(4, "big") + record
        parts.append(frame + b"\xf0" * (-len(frame) % 4096))
    path.write_bytes(b"".join(parts) + bytes(8192))
    findings: list[Finding] = []

    assert records == list(scanned(path, findings).values())
    assert [] == findings


@pytest.mark.parametrize("left", [1, 3, 4, 100])
def test_padding_that_is_cut_off(tmp_path: Path, left: int) -> None:
    """A kill may cut the file inside its padding: no record is lost by that, nothing is odd."""
    path = tmp_path / "0.log"
    record = CODER.encode(Entry(1, 0, -1, 0, bytes(100)))
    head = entrylog.encode_header(LogHeader(), direct=True)
    path.write_bytes(head + len(record).to_bytes(4, "big") + record + b"\xf0" * left)
    findings: list[Finding] = []

    assert [record] == list(scanned(path, findings).values())
    assert [] == findings


def test_zeros_that_a_crash_left(tmp_path: Path) -> None:
    """Zeros to the end of another logger's file are an oddity; between records, damage."""
    log, path = make_log(closed=False), tmp_path / "0.log"
    path.write_bytes(log.data + bytes(5000))
    findings: list[Finding] = []

    assert log.records == scanned(path, findings) == scanned(path, None)
    assert [("oddity", len(log.data))] == [(f.severity, f.offset) for f in findings]

    at = list(log.records)[30]
    path.write_bytes(log.data[:at] + bytes(5000) + log.data[at:])
    findings = []

    assert list(log.records.values()) == list(scanned(path, findings).values())
    assert [("damage", at)] == [(f.severity, f.offset) for f in findings]
    assert "5000 bytes up to" in findings[0].detail


def test_broken_ledgers_map(tmp_path: Path) -> None:
    """Whatever is wrong with a ledgers map, the records are counted instead, and it is told."""
    log, path = make_log(names=NAMES[:2]), tmp_path / "0.log"
    path.write_bytes(log.data)
    expected, source = read_log_metadata(path, 5)

    assert ("map", 5) == (source, expected.log_id)

    edits = [(log.map_offset + n, b"\x7f") for n in (0, 2, 4, 12, 20, 23, 32)]
    edits += [(8, b"\x7f"), (16, b"\1"), (8, (HEADER).to_bytes(8, "big"))]
    for at, value in edits:
        path.write_bytes(log.data[:at] + value + log.data[at + len(value) :])
        findings: list[Finding] = []
        found, source = read_log_metadata(path, 5, findings)

        assert "scan" == source, at
        assert expected == found, at
        assert {str(path)} == {finding.file for finding in findings}, at


def test_oversized_ledgers_map_is_not_read(tmp_path: Path) -> None:
    """A batch that claims more than a batch can have is refused before it is read; what it hides of
    the log is the damage that is told."""
    log, path = make_log(), tmp_path / "0.log"
    size = (300_000).to_bytes(4, "big")
    path.write_bytes(
        log.data[: log.map_offset] + size + log.data[log.map_offset + 4 :] + bytes(10**6)
    )
    findings: list[Finding] = []
    metadata, source = read_log_metadata(path, 0, findings)

    assert ("scan", log.map_offset - HEADER) == (source, metadata.total_size)
    assert ["damage"] == [finding.severity for finding in findings]
    assert "record of 300000 bytes" in findings[0].detail


# -- reading by the index


def _storage(top: Path) -> dict[int, bytes]:
    records = CODER.encode_many(7, range(50), [b"%d" % n * 30 for n in range(50)])
    with LedgerStorage.open(top, "sorted") as storage:
        storage.add_entries(records, master_key=b"k" * 20)
    return dict(enumerate(records))


@pytest.mark.parametrize("damage", ["cut", "size", "ids", "gone"])
def test_read_by_index(tmp_path: Path, damage: str) -> None:
    """A located entry that is not there is damage, never "no such entry"; others are read."""
    records = _storage(tmp_path)
    (path,) = (tmp_path / "current").glob("*.log")
    data = bytearray(path.read_bytes())
    at = data.index(records[20])
    if damage == "cut":
        del data[at + 10 :]
    elif damage == "size":
        data[at - 4 : at] = b"\x7f\xff\xff\xff"
    else:
        data[at + 8 : at + 16] = b"\xff" * 8
    path.write_bytes(data)
    if damage == "gone":
        path.unlink()
    bad = {"cut": range(20, 50), "gone": range(50)}.get(damage, range(20, 21))
    findings: list[Finding] = []
    with BookieDir(tmp_path) as bookie:
        found = {
            int(batch.entries[n]): bytes(batch[n])
            for batch in bookie.scan_ledger(7, findings=findings)
            for n in range(len(batch))
        }
        for entry in bad:
            with pytest.raises(CorruptionError, match=r"\.log"):
                bookie.read_entry(7, entry)
            with pytest.raises(CorruptionError, match=r"\.log"):
                bookie.read_entries(7, entry)
        with pytest.raises(CorruptionError):
            list(bookie.scan_ledger(7))
        with pytest.raises(NoSuchEntry):
            bookie.read_entry(7, 50)
        if 0 not in bad:
            batch = bookie.read_entries(7, 5)

            assert [records[n] for n in range(5, 20)] == batch.records()
            assert batch.stopped is not None

    assert {n: record for n, record in records.items() if n not in bad} == found
    told = [n for f in findings for n in range(f.first_entry or 0, (f.last_entry or 0) + 1)]
    assert list(bad) == told
    assert len(bad) == sum(found.entries or 0 for found in findings)


def test_nothing_is_written(tmp_path: Path) -> None:
    """Reading damaged logs changes no file."""
    log, path = make_log(), tmp_path / "0.log"
    path.write_bytes(log.data[:2000] + bytes(100) + log.data[2100:])
    before = path.read_bytes(), path.stat().st_mtime_ns
    batches: list[LogBatch] = list(scan_log(path, []))
    read_log_metadata(path, 0, [])

    assert batches
    assert before == (path.read_bytes(), path.stat().st_mtime_ns)
    assert [path] == list(tmp_path.iterdir())
