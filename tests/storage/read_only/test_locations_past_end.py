"""Entry logs that end before the highest location of the index are findings of `inspect`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bkstore import BookieDir
from bkstore.cli.main import main
from bkstore.formats.entry import V1_HEADER, Coder
from bkstore.index.api import Finding
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.storage.ledger_storage import LedgerStorage
from bkstore.storage.read_only.locations_past_end import check_log_ends

KEY = b"k" * 20
LEDGERS = (6, 7, 8)
COUNT = 40


@pytest.fixture(params=["interleaved", "sorted", "db"])
def bookie(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return the directory of a bookie with three ledgers of 40 entries in one log."""
    coder = Coder("CRC32C", "secret")
    with LedgerStorage.open(tmp_path / "b", request.param) as storage:
        for ledger in LEDGERS:
            records = coder.encode_many(ledger, range(COUNT), [b"x" * 50] * COUNT)
            storage.add_entries(records, master_key=KEY)
            storage.flush()
    return tmp_path / "b"


def _log(bookie: Path) -> Path:
    (path,) = (bookie / "current").glob("*.log")
    return path


def _inspected(bookie: Path, capsys: Any, *options: str) -> tuple[int, str, str]:
    code = main(["inspect", str(bookie), "--format", "csv", *options])
    out = capsys.readouterr()
    return code, out.out, out.err


def test_whole_logs(bookie: Path, capsys: Any) -> None:
    """Of whole logs nothing is said but what was looked at."""
    code, out, err = _inspected(bookie, capsys)

    assert (0, "") == (code, err)
    assert 'index entries,"120, compared with the ends of the logs"' in out


def test_cut_log(bookie: Path, capsys: Any) -> None:
    """A log that lost its end is one finding: how many entries, of how many ledgers, the last."""
    with BookieDir(bookie) as opened:
        places = {
            (ledger, entry): opened.index.get(ledger, entry) or 0
            for ledger in LEDGERS
            for entry in range(COUNT)
        }
    end = places[7, 10] & 0xFFFFFFFF
    path = _log(bookie)
    path.write_bytes(path.read_bytes()[:end])
    lost = [key for key, place in places.items() if place & 0xFFFFFFFF >= end]
    ledgers = {ledger for ledger, _ in lost}
    last = max(places, key=places.__getitem__)
    findings: list[Finding] = []
    with BookieDir(bookie) as opened:
        rows = check_log_ends(opened, findings)
    code, _, err = _inspected(bookie, capsys)

    assert len(places) == rows
    assert [("damage", str(path), end)] == [(f.severity, f.file, f.offset) for f in findings]
    assert (
        f"the log ends at {end}, but {len(lost)} locations of {len(ledgers)} ledgers are past "
        f"that, the last one entry {last[1]} of ledger {last[0]} at {places[last] & 0xFFFFFFFF}"
    ) == findings[0].detail
    assert (1, f"damage: {findings[0]}\n") == (code, err)


def test_rows_of_several_batches(bookie: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The locations past an end are those of all batches of the scan, not of the last one."""
    path = _log(bookie)
    path.write_bytes(path.read_bytes()[:1024])
    scan = BookieDir.scan
    monkeypatch.setattr(BookieDir, "scan", lambda self, findings: scan(self, 16, findings))
    findings: list[Finding] = []
    with BookieDir(bookie) as opened:
        check_log_ends(opened, findings)

    assert ["but 120 locations of 3 ledgers are past"] == [
        finding.detail[finding.detail.index("but") : finding.detail.index(" that")]
        for finding in findings
    ]


def test_a_log_of_many_digits_is_named_as_its_file(tmp_path: Path) -> None:
    """The number of a log is hexadecimal in the name of its file."""
    with HierarchicalIndex(tmp_path, writable=True) as index:
        index.put(7, 0, 26 << 32 | 1028)
    (tmp_path / "current" / "0.log").write_bytes(b"BKLO" + bytes(1020))
    findings: list[Finding] = []
    with BookieDir(tmp_path) as opened:
        check_log_ends(opened, findings)

    assert ["1a.log"] == [finding.file for finding in findings]


def test_no_record_is_shorter_than_its_header(tmp_path: Path) -> None:
    """A stored size below that of a header does not hide that the log ends inside the record."""
    with HierarchicalIndex(tmp_path, writable=True) as index:
        index.put(7, 0, 1028)
    log = tmp_path / "current" / "0.log"
    log.write_bytes(b"BKLO" + bytes(1020) + (5).to_bytes(4, "big") + bytes(V1_HEADER - 1))
    findings: list[Finding] = []
    whole: list[Finding] = []
    with BookieDir(tmp_path) as opened:
        check_log_ends(opened, findings)
        log.write_bytes(log.read_bytes() + bytes(1))
        check_log_ends(opened, whole)

    assert [1028] == [finding.offset for finding in findings]
    assert [] == whole


def test_last_record_cut(bookie: Path, capsys: Any) -> None:
    """A log that ends inside the record of its highest location is a finding, at the record."""
    path = _log(bookie)
    with BookieDir(bookie) as opened:
        rows = [
            (int(place), int(entry), name.ledger)
            for batch in opened.scan()
            for name, entries, places in batch.by_ledger()
            for entry, place in zip(entries, places)
        ]
    place, entry, ledger = max(rows)
    path.write_bytes(path.read_bytes()[: (place & 0xFFFFFFFF) + 40])
    code, _, err = _inspected(bookie, capsys)

    assert 1 == code
    assert f"{path}: offset {place & 0xFFFFFFFF}: the log ends" in err
    assert f"inside the record of entry {entry} of ledger {ledger}" in err


def test_missing_log(bookie: Path, capsys: Any) -> None:
    """A log that is gone is one finding, where another one is here; alone it is no copy's fault."""
    path = _log(bookie)
    data = path.read_bytes()
    path.unlink()

    assert 0 == _inspected(bookie, capsys)[0]

    (bookie / "current" / "77.log").write_bytes(data[:1024])
    code, _, err = _inspected(bookie, capsys)

    assert 1 == code
    assert f"damage: {path.name}: no such entry log, but 120 locations of 3 ledgers" in err


def test_quick(bookie: Path, capsys: Any) -> None:
    """--quick leaves the pass out, and says so."""
    path = _log(bookie)
    path.write_bytes(path.read_bytes()[:1100])
    code, out, err = _inspected(bookie, capsys, "--quick")

    assert (0, "") == (code, err)
    assert "index entries,not read (--quick)" in out
