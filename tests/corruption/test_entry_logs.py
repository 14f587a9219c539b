"""Damaged entry logs: a named error, or a finding; every record around the damage still comes.

What a scan must give is told here from the undamaged file: the records whose bytes (size field
included) the damage did not touch. It may give touched ones too, as only the digests can tell.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from bkstore import CorruptionError
from bkstore.formats import entrylog
from bkstore.formats.entry import Coder, Entry
from bkstore.formats.entrylog import LogHeader
from bkstore.index.api import Finding
from bkstore.storage.entry_log.scan import scan_log
from tests.worlds.entry_logs import CODER, HEADER, HMAC, Log, make_log, scan_into, scanned


def _verified(records: dict[int, bytes]) -> dict[int, bytes]:
    good = {}
    for at, record in records.items():
        try:
            CODER.decode(record)
        except CorruptionError:
            continue
        good[at] = record
    return good


def _check(path: Path, log: Log, damaged: bytes, first: int, last: int) -> list[Finding]:
    """Scan `damaged`, which differs in first..last: what is untouched comes, the rest is told of.

    A touched record is in a finding's range or comes as it stands now, under its old offset.
    """
    path.write_bytes(damaged)
    findings: list[Finding] = []
    found = scanned(path, findings)
    intact = {
        at: record
        for at, record in log.records.items()
        if at + 4 + len(record) <= first or at > last
    }

    assert intact == {at: found[at] for at in intact if at in found}
    lost = [at for at in log.records if at not in found]
    assert not lost or [finding for finding in findings if finding.severity == "damage"]
    assert _verified(found).items() <= log.records.items()
    for finding in findings:
        assert str(path) == finding.file
        assert 0 <= (finding.offset or 0) <= len(damaged)
    return findings


def _raises(path: Path) -> dict[int, bytes]:
    """Scan without findings, which raises; return the records before the damage."""
    found: dict[int, bytes] = {}
    with pytest.raises(CorruptionError, match=f"^{path}: offset [0-9]+: "):
        scan_into(found, path, None)
    return found


# -- families of damage


def test_undamaged(tmp_path: Path) -> None:
    """The log of these tests scans to its records, without a finding, closed or not."""
    for log in (make_log(), make_log(closed=False)):
        path = tmp_path / "0.log"
        path.write_bytes(log.data)
        findings: list[Finding] = []

        assert log.records == scanned(path, findings) == scanned(path, None)
        assert [] == findings


@pytest.mark.parametrize("step", [13, pytest.param(1, marks=pytest.mark.long)])
def test_cut_anywhere(tmp_path: Path, step: int) -> None:
    """Cut at any byte, a closed log gives the records before the cut, and a finding."""
    log, path = make_log(), tmp_path / "0.log"
    for size in range(1, len(log.data), step):
        findings = _check(path, log, log.data[:size], size, len(log.data))
        before = {at: r for at, r in log.records.items() if at + 4 + len(r) <= size}

        assert ["damage"] * len(findings) == [finding.severity for finding in findings] != []
        assert before == _raises(path)


def test_unclosed_log_cut_anywhere(tmp_path: Path) -> None:
    """Without a ledgers map, a cut between two records cannot be seen, any other is told."""
    log, path = make_log(closed=False), tmp_path / "0.log"
    ends = {HEADER} | {at + 4 + len(record) for at, record in log.records.items()}
    for size in sorted(ends | set(range(HEADER, len(log.data), 11))):
        path.write_bytes(log.data[:size])
        findings: list[Finding] = []
        before = {at: r for at, r in log.records.items() if at + 4 + len(r) <= size}

        assert before == scanned(path, findings)
        assert (size not in ends) == bool(findings)


@pytest.mark.parametrize("value", [b"\0", b"\xf0", b"\xff", b"\x01"])
@pytest.mark.parametrize("width", [1, 8, 300])
@pytest.mark.parametrize("kind", ["CRC32C", "HMAC"])
def test_overwritten_anywhere(tmp_path: Path, value: bytes, width: int, kind: str) -> None:
    """Bytes overwritten anywhere: all other records come, none is lost without a word.

    Without a digest that can be computed too, where payloads do not look like framing.
    """
    log, path = make_log(coder=CODER if kind == "CRC32C" else HMAC), tmp_path / "0.log"
    for first in range(HEADER, log.map_offset - width, 61):
        damaged = log.data[:first] + value * width + log.data[first + width :]
        _check(path, log, damaged, first, first + width - 1)


@pytest.mark.parametrize("seed", range(3))
def test_flipped_bits(tmp_path: Path, seed: int) -> None:
    """One flipped bit costs one record at most, and a lost one is told of."""
    log, path, rng = make_log(seed + 10), tmp_path / "0.log", random.Random(seed)
    for _ in range(80):
        at = rng.randrange(HEADER, log.map_offset)
        damaged = bytearray(log.data)
        damaged[at] ^= 1 << rng.randrange(8)
        _check(path, log, bytes(damaged), at, at)


@pytest.mark.parametrize("size", [0, 1, 31, 32, 60, 300, 1000, 2**20, 2**31 - 1, -1, -(2**31)])
def test_sizes_that_lie(tmp_path: Path, size: int) -> None:
    """Whatever a record's size is made to say, the records before and behind it come."""
    log, path = make_log(), tmp_path / "0.log"
    for at, record in log.records.items():
        if size == len(record):
            continue
        damaged = log.data[:at] + size.to_bytes(4, "big", signed=True) + log.data[at + 4 :]
        findings = _check(path, log, damaged, at, at + 3)

        assert [finding for finding in findings if at <= (finding.offset or 0) <= at + 4 + 120]


def test_size_that_ends_where_another_record_begins(tmp_path: Path) -> None:
    """The one damage that framing cannot show: the digest of what comes is wrong then."""
    log, path = make_log(), tmp_path / "0.log"
    first, second, third = list(log.records)[:3]
    size = (third - first - 4).to_bytes(4, "big")
    path.write_bytes(log.data[:first] + size + log.data[first + 4 :])
    found = scanned(path, [])

    assert second not in found
    assert first not in _verified(found)
    assert list(log.records)[2:] == list(_verified(found))


@given(st.data())
def test_any_bytes(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Any bytes behind a header scan without another error than `CorruptionError`."""
    path = tmp_path_factory.mktemp("any") / "0.log"
    pieces = st.sampled_from(
        [r[:n] for r in list(make_log().records.values())[:8] for n in (20, 500)]
    )
    body = data.draw(st.lists(st.one_of(st.binary(max_size=40), pieces), max_size=8))
    sized = [len(p).to_bytes(4, "big") + p if data.draw(st.booleans()) else p for p in body]
    path.write_bytes(entrylog.encode_header(LogHeader()) + b"".join(sized))
    findings: list[Finding] = []
    found = scanned(path, findings)

    assert found.items() >= _scanned_until_damage(path).items()
    if not findings:
        assert found == scanned(path, None)


def _scanned_until_damage(path: Path) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    with contextlib.suppress(CorruptionError):
        scan_into(found, path, None)
    return found


# -- several places, windows, long records


@pytest.mark.parametrize("window", [97, 1000, 4096])
def test_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window: int) -> None:
    """How much is read at a time changes no answer, damaged or not."""
    log, path, rng = make_log(count=200), tmp_path / "0.log", random.Random(window)
    path.write_bytes(log.data)
    damaged = bytearray(log.data)
    for _ in range(4):
        at = rng.randrange(HEADER, log.map_offset - 300)
        damaged[at : at + 100] = rng.randbytes(100)
    other = tmp_path / "1.log"
    other.write_bytes(damaged)
    expected: list[Finding] = []
    answer = scanned(other, expected)
    monkeypatch.setattr("bkstore.storage.entry_log.resynchronization.WINDOW_BYTES", window)
    findings: list[Finding] = []

    assert log.records == scanned(path, None)
    assert answer == scanned(other, findings)
    assert expected == findings != []


def test_first_entries_behind_damage(tmp_path: Path) -> None:
    """Records that confirm nothing yet (LAC -1) are records, also where no digest tells so."""
    coder = Coder("HMAC", "pw")
    records = [coder.encode(Entry(ledger, 0, -1, 5, b"first")) for ledger in range(1, 9)]
    frames = [len(record).to_bytes(4, "big") + record for record in records]
    head = entrylog.encode_header(LogHeader())
    path = tmp_path / "0.log"
    path.write_bytes(head + frames[0] + b"\x7f" * len(frames[1]) + b"".join(frames[2:]))
    findings: list[Finding] = []

    assert [records[0], *records[2:]] == list(scanned(path, findings).values())
    assert [len(head) + len(frames[0])] == [finding.offset for finding in findings]


def test_records_longer_than_a_window(tmp_path: Path) -> None:
    """A record longer than a window comes whole; one that claims to be is not read at all."""
    long = CODER.encode(Entry(1, 0, -1, 0, random.Random(1).randbytes(9 << 20)))
    short = CODER.encode(Entry(1, 1, 0, 0, b"x"))
    frames = b"".join(len(r).to_bytes(4, "big") + r for r in (long, short, short))
    path = tmp_path / "0.log"
    path.write_bytes(entrylog.encode_header(LogHeader()) + frames)

    assert [long, short, short] == list(scanned(path, None).values())

    with path.open("r+b") as file:
        file.seek(HEADER)
        file.write((2**31 - 1).to_bytes(4, "big"))
    findings: list[Finding] = []
    batches = list(scan_log(path, findings))

    assert [short, short] == [batch.record(at) for batch in batches for at in range(len(batch))]
    assert [HEADER] == [finding.offset for finding in findings]


def test_record_that_holds_a_log(tmp_path: Path) -> None:
    """A payload that is itself a chain of records is not taken for records, damage or not."""
    inner = make_log(count=30)
    outer = CODER.encode(Entry(9, 0, -1, 0, inner.data[HEADER : inner.map_offset]))
    after = [CODER.encode(Entry(9, n, n - 1, 0, b"x" * n)) for n in range(1, 6)]
    frames = [len(r).to_bytes(4, "big") + r for r in (outer, *after)]
    path = tmp_path / "0.log"
    head = entrylog.encode_header(LogHeader())
    path.write_bytes(head + b"".join(frames))

    assert [outer, *after] == list(scanned(path, None).values())

    path.write_bytes(head + frames[0] + b"\xff" * len(frames[1]) + b"".join(frames[2:]))
    findings: list[Finding] = []

    assert [outer, *after[1:]] == list(scanned(path, findings).values())
    assert [HEADER + len(frames[0])] == [finding.offset for finding in findings]


def test_record_that_holds_padding(tmp_path: Path) -> None:
    """A record and padding within a payload end no chain: it must lead out of the record."""
    inner = HMAC.encode(Entry(1, 0, -1, 0, b"inner"))
    payload = len(inner).to_bytes(4, "big") + inner
    start = HEADER + 4 + 32 + 20
    payload += b"\xf0" * (4096 - start - len(payload)) + b"\1" * 50
    records = [HMAC.encode(Entry(2, 0, -1, 0, payload))]
    records += [HMAC.encode(Entry(2, n, n - 1, 0, b"x" * n)) for n in range(1, 6)]
    frames = [len(r).to_bytes(4, "big") + r for r in records]
    path = tmp_path / "0.log"
    damaged = [frames[0], b"\xff" * len(frames[1]), *frames[2:]]
    path.write_bytes(entrylog.encode_header(LogHeader()) + b"".join(damaged))

    assert [records[0], *records[2:]] == list(scanned(path, []).values())


@pytest.mark.parametrize("coder", [CODER, HMAC])
@pytest.mark.parametrize("order", [range(100, 0, -1), [n ^ 1 for n in range(100)]])
def test_records_out_of_order(tmp_path: Path, coder: Coder, order: Sequence[int]) -> None:
    """A LAC above the entry id, as a ledger added in reverse has it, makes no record doubtful."""
    records = coder.encode_many(5, order, [b"p" * (n % 50) for n in range(100)])
    frames = [len(r).to_bytes(4, "big") + r for r in records]
    path = tmp_path / "0.log"
    head = entrylog.encode_header(LogHeader())
    for bad in range(1, 90):
        damaged = [*frames[:bad], b"\xff" * len(frames[bad]), *frames[bad + 1 :]]
        path.write_bytes(head + b"".join(damaged))
        findings: list[Finding] = []

        assert [*records[:bad], *records[bad + 1 :]] == list(scanned(path, findings).values())
        assert [len(head + b"".join(frames[:bad]))] == [finding.offset for finding in findings]


def test_padding_where_none_belongs(tmp_path: Path) -> None:
    """0xF0 that does not end at a multiple of 4096 has taken a record's place."""
    log, path = make_log(), tmp_path / "0.log"
    at = list(log.records)[20]
    end = list(log.records)[22]

    assert end % 4096

    damaged = log.data[:at] + b"\xf0" * (end - at) + log.data[end:]
    findings = _check(path, log, damaged, at, end - 1)

    assert [at] == [finding.offset for finding in findings]
