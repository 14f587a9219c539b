"""Damaged entry logs: a named error, or a finding; every record around the damage still comes.

What a scan must give is told here from the undamaged file: the records whose bytes (size field
included) the damage did not touch. It may give touched ones too, as only the digests can tell.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkstore import BookieDir, CorruptionError, LedgerId, NoSuchEntry
from bkstore.errors import BkstoreError, UnsupportedLayout
from bkstore.formats import entrylog
from bkstore.formats.entry import Coder, Entry
from bkstore.formats.entrylog import LogHeader
from bkstore.index.api import Finding
from bkstore.storage.ledger_storage import LedgerStorage
from bkstore.storage.log_scan import LogBatch, read_log_metadata, scan_log

SCOPED = LedgerId(0xF00D, 0x8000000000000001)
HEADER = entrylog.HEADER_SIZE
CODER = Coder("CRC32C", "pw")
HMAC = Coder("HMAC", "pw")


class Log(NamedTuple):
    """An undamaged log: its bytes, and each record by the offset of its size field."""

    data: bytes
    records: dict[int, bytes]
    map_offset: int


def _payload(rng: random.Random) -> bytes:
    """Return bytes of one of the kinds that can look like framing: zeros, 0xF0, small numbers."""
    size = rng.randrange(120)
    kind = rng.randrange(4)
    if kind == 0:
        return rng.randbytes(size)
    return (b"\0", b"\xf0", b"\0\0\0\x21")[kind - 1] * (size // (1 if kind < 3 else 4))


NAMES = (LedgerId.of(1), LedgerId.of(2**62), SCOPED)


def _log(
    seed: int = 1,
    count: int = 60,
    closed: bool = True,
    coder: Coder = CODER,
    names: Sequence[LedgerId] = NAMES,
) -> Log:
    rng = random.Random(seed)
    body, records, sizes = b"", {}, dict.fromkeys(names, 0)
    for number in range(count):
        name = rng.choice(names)
        payload = _payload(rng) if coder is CODER else rng.randbytes(rng.randrange(120))
        record = coder.encode(Entry(name, number, number - 1, 50 * number, payload))
        records[HEADER + len(body)] = record
        sizes[name] += 4 + len(record)
        body += len(record).to_bytes(4, "big") + record
    end = HEADER + len(body)
    ledgers_map = entrylog.encode_ledgers_map(sizes) if closed else b""
    version = 2 if any(name.scope for name in names) else 1
    header = LogHeader(version, end if closed else 0, len(sizes) if closed else 0)
    return Log(entrylog.encode_header(header) + body + ledgers_map, records, end)


def _scanned(path: Path, findings: list[Finding] | None) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    _scan_into(found, path, findings)
    return found


def _scan_into(found: dict[int, bytes], path: Path, findings: list[Finding] | None) -> None:
    for batch in scan_log(path, findings):
        for at in range(len(batch)):
            found[int(batch.position[at]) - 4] = batch.record(at)


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
    found = _scanned(path, findings)
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
        _scan_into(found, path, None)
    return found


# -- families of damage


def test_undamaged(tmp_path: Path) -> None:
    """The log of these tests scans to its records, without a finding, closed or not."""
    for log in (_log(), _log(closed=False)):
        path = tmp_path / "0.log"
        path.write_bytes(log.data)
        findings: list[Finding] = []

        assert log.records == _scanned(path, findings) == _scanned(path, None)
        assert [] == findings


@pytest.mark.parametrize("step", [13, pytest.param(1, marks=pytest.mark.long)])
def test_cut_anywhere(tmp_path: Path, step: int) -> None:
    """Cut at any byte, a closed log gives the records before the cut, and a finding."""
    log, path = _log(), tmp_path / "0.log"
    for size in range(1, len(log.data), step):
        findings = _check(path, log, log.data[:size], size, len(log.data))
        before = {at: r for at, r in log.records.items() if at + 4 + len(r) <= size}

        assert ["damage"] * len(findings) == [finding.severity for finding in findings] != []
        assert before == _raises(path)


def test_unclosed_log_cut_anywhere(tmp_path: Path) -> None:
    """Without a ledgers map, a cut between two records cannot be seen, any other is told."""
    log, path = _log(closed=False), tmp_path / "0.log"
    ends = {HEADER} | {at + 4 + len(record) for at, record in log.records.items()}
    for size in sorted(ends | set(range(HEADER, len(log.data), 11))):
        path.write_bytes(log.data[:size])
        findings: list[Finding] = []
        before = {at: r for at, r in log.records.items() if at + 4 + len(r) <= size}

        assert before == _scanned(path, findings)
        assert (size not in ends) == bool(findings)


@pytest.mark.parametrize("value", [b"\0", b"\xf0", b"\xff", b"\x01"])
@pytest.mark.parametrize("width", [1, 8, 300])
@pytest.mark.parametrize("kind", ["CRC32C", "HMAC"])
def test_overwritten_anywhere(tmp_path: Path, value: bytes, width: int, kind: str) -> None:
    """Bytes overwritten anywhere: all other records come, none is lost without a word.

    Without a digest that can be computed too, where payloads do not look like framing.
    """
    log, path = _log(coder=CODER if kind == "CRC32C" else HMAC), tmp_path / "0.log"
    for first in range(HEADER, log.map_offset - width, 61):
        damaged = log.data[:first] + value * width + log.data[first + width :]
        _check(path, log, damaged, first, first + width - 1)


@pytest.mark.parametrize("seed", range(3))
def test_flipped_bits(tmp_path: Path, seed: int) -> None:
    """One flipped bit costs one record at most, and a lost one is told of."""
    log, path, rng = _log(seed + 10), tmp_path / "0.log", random.Random(seed)
    for _ in range(80):
        at = rng.randrange(HEADER, log.map_offset)
        damaged = bytearray(log.data)
        damaged[at] ^= 1 << rng.randrange(8)
        _check(path, log, bytes(damaged), at, at)


@pytest.mark.parametrize("size", [0, 1, 31, 32, 60, 300, 1000, 2**20, 2**31 - 1, -1, -(2**31)])
def test_sizes_that_lie(tmp_path: Path, size: int) -> None:
    """Whatever a record's size is made to say, the records before and behind it come."""
    log, path = _log(), tmp_path / "0.log"
    for at, record in log.records.items():
        if size == len(record):
            continue
        damaged = log.data[:at] + size.to_bytes(4, "big", signed=True) + log.data[at + 4 :]
        findings = _check(path, log, damaged, at, at + 3)

        assert [finding for finding in findings if at <= (finding.offset or 0) <= at + 4 + 120]


def test_size_that_ends_where_another_record_begins(tmp_path: Path) -> None:
    """The one damage that framing cannot show: the digest of what comes is wrong then."""
    log, path = _log(), tmp_path / "0.log"
    first, second, third = list(log.records)[:3]
    size = (third - first - 4).to_bytes(4, "big")
    path.write_bytes(log.data[:first] + size + log.data[first + 4 :])
    found = _scanned(path, [])

    assert second not in found
    assert first not in _verified(found)
    assert list(log.records)[2:] == list(_verified(found))


@given(st.data())
def test_any_bytes(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Any bytes behind a header scan without another error than `CorruptionError`."""
    path = tmp_path_factory.mktemp("any") / "0.log"
    pieces = st.sampled_from([r[:n] for r in list(_log().records.values())[:8] for n in (20, 500)])
    body = data.draw(st.lists(st.one_of(st.binary(max_size=40), pieces), max_size=8))
    sized = [len(p).to_bytes(4, "big") + p if data.draw(st.booleans()) else p for p in body]
    path.write_bytes(entrylog.encode_header(LogHeader()) + b"".join(sized))
    findings: list[Finding] = []
    found = _scanned(path, findings)

    assert found.items() >= _scanned_until_damage(path).items()
    if not findings:
        assert found == _scanned(path, None)


def _scanned_until_damage(path: Path) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    with contextlib.suppress(CorruptionError):
        _scan_into(found, path, None)
    return found


# -- several places, windows, long records


@pytest.mark.parametrize("window", [97, 1000, 4096])
def test_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window: int) -> None:
    """How much is read at a time changes no answer, damaged or not."""
    log, path, rng = _log(count=200), tmp_path / "0.log", random.Random(window)
    path.write_bytes(log.data)
    damaged = bytearray(log.data)
    for _ in range(4):
        at = rng.randrange(HEADER, log.map_offset - 300)
        damaged[at : at + 100] = rng.randbytes(100)
    other = tmp_path / "1.log"
    other.write_bytes(damaged)
    expected: list[Finding] = []
    answer = _scanned(other, expected)
    monkeypatch.setattr("bkstore.storage.log_search.WINDOW", window)
    findings: list[Finding] = []

    assert log.records == _scanned(path, None)
    assert answer == _scanned(other, findings)
    assert expected == findings != []


def test_records_longer_than_a_window(tmp_path: Path) -> None:
    """A record longer than a window comes whole; one that claims to be is not read at all."""
    long = CODER.encode(Entry(1, 0, -1, 0, random.Random(1).randbytes(9 << 20)))
    short = CODER.encode(Entry(1, 1, 0, 0, b"x"))
    frames = b"".join(len(r).to_bytes(4, "big") + r for r in (long, short, short))
    path = tmp_path / "0.log"
    path.write_bytes(entrylog.encode_header(LogHeader()) + frames)

    assert [long, short, short] == list(_scanned(path, None).values())

    with path.open("r+b") as file:
        file.seek(HEADER)
        file.write((2**31 - 1).to_bytes(4, "big"))
    findings: list[Finding] = []
    batches = list(scan_log(path, findings))

    assert [short, short] == [batch.record(at) for batch in batches for at in range(len(batch))]
    assert [HEADER] == [finding.offset for finding in findings]


def test_record_that_holds_a_log(tmp_path: Path) -> None:
    """A payload that is itself a chain of records is not taken for records, damage or not."""
    inner = _log(count=30)
    outer = CODER.encode(Entry(9, 0, -1, 0, inner.data[HEADER : inner.map_offset]))
    after = [CODER.encode(Entry(9, n, n - 1, 0, b"x" * n)) for n in range(1, 6)]
    frames = [len(r).to_bytes(4, "big") + r for r in (outer, *after)]
    path = tmp_path / "0.log"
    head = entrylog.encode_header(LogHeader())
    path.write_bytes(head + b"".join(frames))

    assert [outer, *after] == list(_scanned(path, None).values())

    path.write_bytes(head + frames[0] + b"\xff" * len(frames[1]) + b"".join(frames[2:]))
    findings: list[Finding] = []

    assert [outer, *after[1:]] == list(_scanned(path, findings).values())
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

    assert [records[0], *records[2:]] == list(_scanned(path, []).values())


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

        assert [*records[:bad], *records[bad + 1 :]] == list(_scanned(path, findings).values())
        assert [len(head + b"".join(frames[:bad]))] == [finding.offset for finding in findings]


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
    log, path = _log(), tmp_path / "0.log"
    path.write_bytes(log.data[:at] + value + log.data[at + len(value) :])
    findings: list[Finding] = []

    assert log.records == _scanned(path, findings)
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

    assert {} == _scanned(path, None)
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

    assert records == list(_scanned(path, findings).values())
    assert [] == findings


def test_zeros_that_a_crash_left(tmp_path: Path) -> None:
    """Zeros to the end of another logger's file are an oddity; between records, damage."""
    log, path = _log(closed=False), tmp_path / "0.log"
    path.write_bytes(log.data + bytes(5000))
    findings: list[Finding] = []

    assert log.records == _scanned(path, findings) == _scanned(path, None)
    assert [("oddity", len(log.data))] == [(f.severity, f.offset) for f in findings]

    at = list(log.records)[30]
    path.write_bytes(log.data[:at] + bytes(5000) + log.data[at:])
    findings = []

    assert list(log.records.values()) == list(_scanned(path, findings).values())
    assert [("damage", at)] == [(f.severity, f.offset) for f in findings]
    assert "5000 bytes up to" in findings[0].detail


def test_padding_where_none_belongs(tmp_path: Path) -> None:
    """0xF0 that does not end at a multiple of 4096 has taken a record's place."""
    log, path = _log(), tmp_path / "0.log"
    at = list(log.records)[20]
    end = list(log.records)[22]

    assert end % 4096

    damaged = log.data[:at] + b"\xf0" * (end - at) + log.data[end:]
    findings = _check(path, log, damaged, at, end - 1)

    assert [at] == [finding.offset for finding in findings]


def test_broken_ledgers_map(tmp_path: Path) -> None:
    """Whatever is wrong with a ledgers map, the records are counted instead, and it is told."""
    log, path = _log(names=NAMES[:2]), tmp_path / "0.log"
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
    """A batch that claims more than a batch can have is refused before it is read."""
    log, path = _log(), tmp_path / "0.log"
    size = (300_000).to_bytes(4, "big")
    path.write_bytes(
        log.data[: log.map_offset] + size + log.data[log.map_offset + 4 :] + bytes(10**6)
    )
    findings: list[Finding] = []
    metadata, source = read_log_metadata(path, 0, findings)

    assert ("scan", log.map_offset - HEADER) == (source, metadata.total_size)
    assert "ledgers map batch of 300000 bytes" in findings[0].detail


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
    assert [f"entry {n} of ledger 7" for n in bad] == [f.detail.split(":")[0] for f in findings]


def test_nothing_is_written(tmp_path: Path) -> None:
    """Reading damaged logs changes no file."""
    log, path = _log(), tmp_path / "0.log"
    path.write_bytes(log.data[:2000] + bytes(100) + log.data[2100:])
    before = path.read_bytes(), path.stat().st_mtime_ns
    batches: list[LogBatch] = list(scan_log(path, []))
    read_log_metadata(path, 0, [])

    assert batches
    assert before == (path.read_bytes(), path.stat().st_mtime_ns)
    assert [path] == list(tmp_path.iterdir())
