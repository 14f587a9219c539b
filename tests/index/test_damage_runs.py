"""Damage is told in runs: a finding for entries that follow each other and say the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bkstore import BookieDir, LedgerId
from bkstore.cli.main import main
from bkstore.formats.entry import Coder, Entry
from bkstore.formats.journal import encode_record
from bkstore.index.api import Finding
from bkstore.index.damage_runs import DamageRuns
from bkstore.storage.bookie import Bookie
from bkstore.storage.entry_log.reader import LogReader
from bkstore.storage.entry_log.scan import scan_log
from bkstore.storage.ledger_storage import LedgerStorage

KEY = b"k" * 20
COUNT = 21_000
LOST = 5_080
CODER = Coder("CRC32C", "secret")
CODER_ENTRY = Entry(7, 0, -1, 5, b"hello")


def _bookie(top: Path, entries: range) -> Path:
    """Write ledger 7009 into one log; return the log."""
    with LedgerStorage.open(top, "db") as storage:
        records = CODER.encode_many(7009, entries, [b"x" * 20] * len(entries))
        storage.add_entries(records, master_key=KEY)
    (path,) = (top / "current").glob("*.log")
    return path


def _place(top: Path, entry: int) -> int:
    with BookieDir(top) as bookie:
        return (bookie.index.get(7009, entry) or 0) & 0xFFFFFFFF


def _cut(top: Path, path: Path, entry: int) -> int:
    """Cut the log before an entry's record; return its new size."""
    end = _place(top, entry) - 4
    with path.open("r+b") as file:
        file.truncate(end)
    return end


def _told(err: str) -> list[str]:
    return [line for line in err.splitlines() if line.startswith("damage: ")]


def test_truncated_log(tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """15,920 entries behind the end of a log are one line, and not read one by one."""
    path = _bookie(tmp_path, range(COUNT))
    last = _place(tmp_path, COUNT - 1)
    end = _cut(tmp_path, path, LOST)
    tries: list[int] = []
    read_many = LogReader.read_many
    monkeypatch.setattr(LogReader, "read_many", lambda *words: tries.append(1) or read_many(*words))
    code = main(["readledger", str(tmp_path), "--ledger-id", "7009", "--format", "jsonl"])
    out = capsys.readouterr()

    assert (1, LOST) == (code, len(out.out.splitlines()))
    assert [
        f"damage: {path}: offset {end + 4}: entries {LOST}-{COUNT - 1} of ledger 7009, up to "
        f"offset {last}: location points past the end of the log ({end} bytes)"
    ] == _told(out.err)
    assert 20 > len(tries)


@pytest.mark.parametrize("how", ["gone", "cut"])
def test_stripe(tmp_path: Path, how: str) -> None:
    """Of a stripe the entries that are here count: 2 of 3 follow each other all the same."""
    here = [entry for entry in range(3_000) if entry % 3 != 1]
    with LedgerStorage.open(tmp_path, "interleaved") as storage:
        records = CODER.encode_many(7, here, [b"x" * 20] * len(here))
        storage.add_entries(records, master_key=KEY)
    (path,) = (tmp_path / "current").glob("*.log")
    if how == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:1030])
    findings: list[Finding] = []
    with BookieDir(tmp_path) as bookie:
        assert 0 == sum(map(len, bookie.scan_ledger(7, findings=findings)))
    told = {(f.ledger, f.first_entry, f.last_entry, f.entries) for f in findings}

    if how == "gone":
        assert {(LedgerId.of(7), 0, 2999, len(here))} == told
    else:  # the first has a size that leads out of the log, the others are behind its end
        assert [(0, 0, 1), (2, 2999, len(here) - 1)] == [
            (f.first_entry, f.last_entry, f.entries) for f in findings
        ]
    first = "0, 2-3, 5-6, 8-9" if how == "gone" else "2-3, 5-6, 8-9"
    stripe = f"entries {first}, ..., 2996-2997, 2999 ({findings[-1].entries:,} entries) of ledger 7"
    assert stripe in findings[-1].detail


def test_blank_middle(tmp_path: Path, capsys: Any) -> None:
    """Zeros in the middle are one run, whose reasons differ in numbers; all others are read."""
    path = _bookie(tmp_path, range(1000))
    first, behind = _place(tmp_path, 300), _place(tmp_path, 700)
    with path.open("r+b") as file:
        file.seek(first - 4)
        file.write(bytes(behind - first))
    code = main(["readledger", str(tmp_path), "--ledger-id", "7009", "--format", "jsonl"])
    out = capsys.readouterr()
    (line,) = _told(out.err)

    assert [*range(300), *range(700, 1000)] == [
        json.loads(row)["entry_id"] for row in out.out.splitlines()
    ]
    assert 1 == code
    assert f"offset {first - 4}: entries 300-699 of ledger 7009, up to offset" in line
    assert "record of 0 bytes" in line
    assert line.endswith("(the first; the others are alike)")


def test_digests(tmp_path: Path, capsys: Any) -> None:
    """Digests that do not match are told in runs too; a good one in between ends a run."""
    _bookie(tmp_path, range(100))
    words = ["readledger", str(tmp_path), "--ledger-id", "7009", "--format", "jsonl"]
    code = main([*words, "--digest-type", "CRC32"])

    (line,) = _told(capsys.readouterr().err)
    assert (1, True) == (code, "entries 0-99 of ledger 7009" in line)

    path = tmp_path / "current" / "0.log"
    data = bytearray(path.read_bytes())
    for entry in (10, 11, 13):
        data[_place(tmp_path, entry) + 50] ^= 1
    path.write_bytes(data)
    main([*words, "--digest-type", "CRC32C"])
    told = [line.split(" of ledger")[0].split(": ")[-1] for line in _told(capsys.readouterr().err)]

    assert ["entries 10-11", "entry 13"] == told


def test_dump_with_lengths(tmp_path: Path) -> None:
    """`dump --length` tells of a cut log by ledger: first, last, how many, in the table too."""
    pq = pytest.importorskip("pyarrow.parquet")
    from bkstore.offline.dump import dump

    path = _bookie(tmp_path / "b", range(COUNT))
    end = _cut(tmp_path / "b", path, LOST)
    (finding,) = dump([tmp_path / "b"], tmp_path / "out", length=True).findings
    (file,) = (tmp_path / "out" / "findings").glob("*.parquet")
    (row,) = pq.read_table(file).to_pylist()

    assert f"entries {LOST}-{COUNT - 1} of ledger 7009, up to offset" in finding.detail
    assert finding.detail.endswith(
        f"no length: location points past the end of the log ({end} bytes)"
    )
    assert (LOST, COUNT - 1, COUNT - LOST) == tuple(
        row[name] for name in ("first_entry", "last_entry", "entries")
    )


def test_many_ledgers_without_lengths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a reason that more ledgers share than are told apart, one finding counts the rest."""
    pytest.importorskip("pyarrow")
    from bkstore.offline.dump import dump, record_lengths

    monkeypatch.setattr(record_lengths, "_MAX_LEDGERS", 3)
    with LedgerStorage.open(tmp_path / "b", "db") as storage:
        for ledger in range(10):
            records = CODER.encode_many(ledger, range(5), [b"x" * 20] * 5)
            storage.add_entries(records, master_key=KEY)
    (tmp_path / "b" / "current" / "0.log").unlink()
    found = dump([tmp_path / "b"], tmp_path / "out", length=True).findings

    assert [5, 5, 5, None] == [finding.entries for finding in found]
    assert found[-1].detail.startswith("35 entries of more ledgers, from 3 on: no length")


def test_replay(tmp_path: Path, capsys: Any) -> None:
    """Records of unknown kind, one behind the other, are one finding of a replay."""
    with Bookie.open(tmp_path) as bookie:
        bookie.add_entry(CODER.encode(CODER_ENTRY), KEY)
        bookie.close(checkpoint=False)
    (path,) = (tmp_path / "journal" / "current").glob("*.txn")
    data = path.read_bytes()
    end = _records_end(path)
    unknown = b"".join(
        encode_record((100 + n).to_bytes(8, "big") + (-77).to_bytes(8, "big", signed=True))
        for n in range(500)
    )
    path.write_bytes(data[:end] + unknown + bytes(4))
    with Bookie.open(tmp_path) as bookie:
        (finding,) = bookie.findings

    assert ("oddity", str(path), end, None) == (
        finding.severity,
        finding.file,
        finding.offset,
        finding.ledger,
    )
    assert (
        f"500 records, up to offset {end + 499 * 20}: record of unknown kind -77 is skipped"
    ) == finding.detail


def _records_end(path: Path) -> int:
    from bkstore.storage.journal.scan import scan_journal

    scan = scan_journal(path)
    offsets = [(offset, len(data)) for offset, data in scan]
    return offsets[-1][0] + 4 + offsets[-1][1]


def _added(entries: list[int], good: set[int], most: int = 64) -> list[Finding]:
    findings: list[Finding] = []
    runs = DamageRuns(findings, most)
    for entry in entries:
        if entry in good:
            runs.end_runs()
        else:
            damage = Finding("damage", f"bad at {entry}", "a.log", entry, LedgerId.of(7))
            runs.add(damage, np.array([entry]))
    return findings


def test_runs_end_where_something_is_read() -> None:
    """A run ends at an entry that is read, not at one that is not here."""
    findings = _added([0, 1, 3, 4, 5, 9], {4})

    assert [(0, 3, 3), (5, 9, 2)] == [(f.first_entry, f.last_entry, f.entries) for f in findings]
    assert [0, 5] == [f.offset for f in findings]


def test_runs_are_bounded() -> None:
    """Of more runs than are told apart the last takes the rest, and says how many entries."""
    findings = _added(list(range(1000)), set(range(0, 1000, 2)), most=5)

    assert 5 == len(findings)
    assert [(n, n, 1) for n in (1, 3, 5, 7)] == [
        (f.first_entry, f.last_entry, f.entries) for f in findings[:-1]
    ]
    assert (9, 999, 496) == (
        findings[-1].first_entry,
        findings[-1].last_entry,
        findings[-1].entries,
    )
    assert findings[-1].detail.startswith(
        "entries 9, 11, 13, ..., 999 (496 entries) of ledger 7, up to offset 999"
    )


def test_irregular_runs_are_counted() -> None:
    """Entries of too many groups to keep are told by their number and ends."""
    squares = {number**2 for number in range(3, 100)}
    findings = _added(list(range(10_000)), set(range(10_000)) - squares, most=1)

    assert 1 == len(findings)
    assert (9, 9801, 97) == (
        findings[0].first_entry,
        findings[0].last_entry,
        findings[0].entries,
    )
    assert findings[0].detail.startswith("97 entries of ledger 7 within 9-9801, up to offset 9801")


def test_other_reasons_are_other_runs() -> None:
    """File, ledger, severity and words tell runs apart; others' findings stay where they are."""
    findings: list[Finding] = []
    runs = DamageRuns(findings)
    one = Finding("damage", "cut", "a.log", 1, LedgerId.of(7))
    others = [
        Finding("damage", "cut", "b.log", 1, LedgerId.of(7)),
        Finding("damage", "cut", "a.log", 1, LedgerId.of(8)),
        Finding("oddity", "cut", "a.log", 1, LedgerId.of(7)),
        Finding("damage", "torn", "a.log", 1, LedgerId.of(7)),
    ]
    foreign = Finding("oddity", "somebody else's")
    for each in (one, *others):
        runs.add(each, np.array([1]))
    findings.append(foreign)
    for each in (one, *others):
        runs.add(each, np.array([2]))

    assert [2] * 5 == [found.entries for found in findings[:5]]
    assert [foreign] == findings[5:]


def test_places_in_a_log_are_bounded(tmp_path: Path) -> None:
    """A log with damage in 1,000 places is told of in no more than some dozens of findings."""
    path = _bookie(tmp_path, range(5000))
    with BookieDir(tmp_path) as bookie:
        places = [place & 0xFFFFFFFF for place in bookie.index.items(7009)[1].tolist()]
    data = bytearray(path.read_bytes())
    for place in places[2::5]:
        data[place - 4 : place] = b"\xff\xff\xff\xff"  # a negative size
    path.write_bytes(data)
    findings: list[Finding] = []
    kept = sum(map(len, scan_log(path, findings)))

    assert 4000 == kept
    assert 64 == len(findings)
    assert places[2] - 4 == findings[0].offset
    assert f"{1000 - 63} places, up to offset {places[-3] - 4}: " in findings[-1].detail


def test_states_that_were_not_dumped(tmp_path: Path) -> None:
    """Ledgers without a state in a dump, one behind the other, are one finding of a load."""
    pytest.importorskip("pyarrow")
    from bkstore.index.hierarchical import HierarchicalIndex
    from bkstore.offline.dump import dump
    from bkstore.offline.load.dump_rows import open_load_source
    from bkstore.offline.load.merged_ledger_states import read_states

    with HierarchicalIndex(tmp_path / "b", writable=True) as index:
        for ledger in range(20):
            index.put_many(ledger, [0], [1028])
    for ledger in range(5, 15):
        (path,) = (tmp_path / "b").rglob(f"{ledger:x}.idx")
        path.write_bytes(b"nonsense" * 200)
    dump([tmp_path / "b"], tmp_path / "out")
    findings: list[Finding] = []
    states = read_states(open_load_source(tmp_path / "out"), findings)

    assert 20 == len(states)
    assert list(range(5, 15)) == [each.ledger for each, state in states.items() if state.fenced]
    assert [
        "10 ledgers: the state of ledger 5 is not in the dump: fenced, without a master key "
        "(the first; the others are alike)"
    ] == [finding.detail for finding in findings]
