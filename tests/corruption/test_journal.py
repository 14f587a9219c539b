"""Damaged journals: cuts, wrong lengths, zeros, garbage, things that are no files.

Rule of the family: every record before the damage comes back, and the damage is a finding or one
`CorruptionError` with file and offset; never another exception, never memory for bytes that do
not exist, nothing modified.
"""

from __future__ import annotations

import os
import struct
import tracemalloc
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import example, given, strategies as st

from bkstore.cli.main import main
from bkstore.errors import (
    BkstoreError,
    CorruptionError,
    DirectoryInUse,
    InvalidArgument,
    NoSuchEntry,
    NoSuchLedger,
)
from bkstore.storage.journal import JournalScan, scan_journal
from tests.models.journal_scan import assert_as_a_plain_loop

MASK = bytes.fromhex("ffffff00")
HEADER = bytes.fromhex("424b4c47 00000006") + bytes(504)
IDS = bytes(7) + b"\7"
END, SIZE = 2560, 3072  # where the preallocated zeros begin, and end


class Record(NamedTuple):
    """A record of the file and the offset of its length."""

    offset: int
    data: bytes


def _entry(number: int, size: int) -> bytes:
    head = IDS + struct.pack(">qqq", number, number - 1, size)
    return head + bytes(1 + n % 255 for n in range(size))


def _build() -> tuple[bytes, list[Record], list[int]]:
    """Return a file by hand: its bytes, its records, the offsets of its padding records."""
    data, records, pads = HEADER, [], []
    key = IDS + bytes.fromhex("fffffffffffff000 00000003 6b6579")
    fence = IDS + bytes.fromhex("ffffffffffffe000")
    lac = IDS + bytes.fromhex("ffffffffffff8000 00000014") + IDS + bytes(7) + b"\1\1\2\3\4"
    for group in ((key, _entry(0, 50), _entry(1, 300)), (fence, _entry(2, 700)), (lac,)):
        for record in group:
            records.append(Record(len(data), record))
            data += struct.pack(">i", len(record)) + record
        pads.append(len(data))
        zeros = -(len(data) + 8) % 512
        data += MASK + struct.pack(">i", zeros) + bytes(zeros)
    return data.ljust(SIZE, b"\0"), records, pads


DATA, RECORDS, PADS = _build()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return the path of the undamaged file."""
    path = tmp_path / "a.txn"
    path.write_bytes(DATA)
    return path


def _scan(path: Path, data: bytes, skip: bool = False) -> tuple[list[Record], JournalScan]:
    """Return what a scan of these bytes gives; they are not modified by it."""
    path.write_bytes(data)
    assert_as_a_plain_loop(scan_journal(path))
    assert_as_a_plain_loop(scan_journal(path, skip_invalid=True))
    scan = scan_journal(path, skip_invalid=skip)
    found = [Record(*record) for record in scan]

    assert data == path.read_bytes()
    assert all(str(path) == finding.file for finding in scan.findings)
    return found, scan


def _findings(scan: JournalScan) -> list[tuple[str, int | None, str]]:
    return [(finding.severity, finding.offset, finding.detail) for finding in scan.findings]


def _ends_before(place: int) -> list[Record]:
    return [r for r in RECORDS if r.offset + 4 + len(r.data) <= place]


def _with(offset: int, data: bytes) -> bytes:
    return DATA[:offset] + data + DATA[offset + len(data) :]


def test_undamaged(file: Path) -> None:
    """The file that this family damages is sound: six records, then a zero length."""
    found, scan = _scan(file, DATA)

    assert RECORDS == found
    assert (6, END + 4, []) == (scan.version, scan.stop, scan.findings)


# -- cuts


def _expected_of_cut(cut: int) -> list[tuple[str, int | None, str]]:
    """Return the findings that a file of `cut` bytes has."""
    if cut < 8:  # too short for a header: version 1, whose first bytes are a length
        return [("damage", 0, "record")] if cut else []
    if cut < len(HEADER):
        return [("damage", cut, f"file ends at {cut}, the scan was to begin at 512")]
    starts = [(r.offset, 4 + len(r.data), "damage") for r in RECORDS]
    starts += [(at, 8 + int.from_bytes(DATA[at + 4 : at + 8], "big"), "oddity") for at in PADS]
    starts.append((END, 4, "damage"))
    for at, size, severity in starts:
        if at < cut < at + size:
            short = cut - at < 4
            return [("damage" if short else severity, at, "cut off")]
    return []


def test_every_cut(file: Path) -> None:
    """A file cut at any byte gives the records before the cut, and says what is cut off."""
    for cut in range(SIZE + 1):
        found, scan = _scan(file, DATA[:cut])
        expected = _expected_of_cut(cut)
        stop = 512 if 8 <= cut < 512 else min(cut, END + 4)

        assert _ends_before(cut) == found, cut
        assert [row[:2] for row in expected] == [row[:2] for row in _findings(scan)], cut
        assert all(row[2] in told[2] for row, told in zip(expected, _findings(scan))), cut
        assert stop == scan.stop, cut


@pytest.mark.parametrize(
    ("version", "end", "behind", "told"),
    [
        (4, 1024, bytes(3), False),
        (4, 1024, bytes(1), False),
        (4, 1024, b"\0\0\1", True),
        (4, 1000, bytes(3), True),
        (6, 1024, bytes(3), True),
    ],
)
def test_last_bytes(file: Path, version: int, end: int, behind: bytes, told: bool) -> None:
    """One to three bytes are a length cut off, but zeros that fill a unit without padding."""
    header = HEADER if version == 6 else HEADER[:7] + b"\4"
    record = bytes(end - len(header) - 4 - len(behind))
    found, scan = _scan(file, header + struct.pack(">i", len(record)) + record + behind)

    assert [(len(header), record)] == found
    assert end == scan.stop
    assert [("damage", end - len(behind))] * told == [row[:2] for row in _findings(scan)]


# -- lengths


def _flips(offset: int) -> list[tuple[int, bytes]]:
    """Return (value, file) for each bit of the 32-bit number at `offset` that is turned over."""
    now = int.from_bytes(DATA[offset : offset + 4], "big")
    values = [(now ^ 1 << bit).to_bytes(4, "big") for bit in range(32)]
    return [(int.from_bytes(v, "big", signed=True), _with(offset, v)) for v in values]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: str(record.offset))
def test_flipped_record_lengths(file: Path, record: Record) -> None:
    """A negative length raises, a zero or oversize one is found, another one is taken as it is."""
    at = record.offset
    for value, data in _flips(at):
        if value < 0:
            with pytest.raises(CorruptionError, match=f"record length {value} is neg") as caught:
                _scan(file, data)
            assert (str(file), at) == (caught.value.file, caught.value.offset)
        elif value > SIZE - at - 4:
            found, scan = _scan(file, data)
            detail = f"record of {value} bytes is cut off: {SIZE - at - 4} are left"

            assert _ends_before(at) == found
            assert [("damage", at, detail)] == _findings(scan)
        elif value == 0:
            found, scan = _scan(file, data)

            assert _ends_before(at) == found
            assert [("damage", at)] == [row[:2] for row in _findings(scan)]
        else:
            file.write_bytes(data)
            expected = [*_ends_before(at), Record(at, data[at + 4 : at + 4 + value])]

            assert expected == [Record(*found) for _, found in zip(expected, scan_journal(file))]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: str(record.offset))
@pytest.mark.parametrize("length", [0x7FFFFFFF, SIZE, -1, -(1 << 31), -0xFF, -0x101, 0])
def test_lengths_that_cannot_be(file: Path, record: Record, length: int) -> None:
    """With `skip_invalid` every impossible length ends the scan with one finding, at its place."""
    at = record.offset
    found, scan = _scan(file, _with(at, struct.pack(">i", length)), skip=True)

    assert _ends_before(at) == found
    assert [("damage", at)] == [row[:2] for row in _findings(scan)]
    assert (at + 4 if length <= 0 else SIZE) == scan.stop


@pytest.mark.parametrize("pad", PADS)
def test_flipped_padding(file: Path, pad: int) -> None:
    """A mask or a padding length that cannot be is damage; one too long for the file is found."""
    for value, data in _flips(pad):
        if value < 0:
            with pytest.raises(CorruptionError, match=str(value)) as caught:
                _scan(file, data)
            assert (str(file), pad) == (caught.value.file, caught.value.offset)
        else:
            found, scan = _scan(file, data)

            assert _ends_before(pad) == found
            assert [("damage", pad)] == [row[:2] for row in _findings(scan)]
    for value, data in _flips(pad + 4):
        if value < 0:
            with pytest.raises(CorruptionError, match=f"padding length {value}") as caught:
                _scan(file, data)
            assert (str(file), pad) == (caught.value.file, caught.value.offset)
        elif value > SIZE - pad - 8:
            found, scan = _scan(file, data)

            assert _ends_before(pad) == found
            assert [("oddity", pad)] == [row[:2] for row in _findings(scan)]


def test_padding_too_short_or_cut(file: Path) -> None:
    """A padding length that is too small leads to a zero length, and what is behind it is found."""
    found, scan = _scan(file, _with(PADS[0] + 4, bytes(4)))

    assert RECORDS[:3] == found
    assert [("damage", PADS[0] + 8)] == [row[:2] for row in _findings(scan)]
    assert f"data at {RECORDS[3].offset + 3}" in _findings(scan)[0][2]


@pytest.mark.parametrize("version", [2, 3, 4])
def test_padding_in_an_old_version(file: Path, version: int) -> None:
    """Below version 5 there is no padding: its mask is a negative length."""
    data = HEADER[:7] + bytes([version]) + struct.pack(">i", 16) + IDS * 2 + MASK + bytes(4)
    with pytest.raises(CorruptionError, match="-256") as caught:
        _scan(file, data)

    assert 28 == caught.value.offset


# -- zeros and garbage


@given(st.integers(8, SIZE - 1), st.integers(1, 700))
def test_zeroed_ranges(tmp_path_factory: pytest.TempPathFactory, start: int, size: int) -> None:
    """Records before zeros come back; where the zeros end the scan, what lies behind is found."""
    file = tmp_path_factory.getbasetemp() / "zeroed.txn"
    data = _with(start, bytes(min(size, SIZE - start)))
    found, scan = _scan(file, data, skip=True)
    intact = _ends_before(start)

    assert intact == found[: len(intact)]
    assert len(RECORDS) == len(found) or scan.findings or not any(data[start:])
    assert all(severity == "damage" for severity, _, _ in _findings(scan))


VERSIONS = [struct.pack(">i", version) for version in range(2, 7)]


@given(
    st.sampled_from([b"", *(HEADER[:7] + bytes([v]) + bytes(504 * (v > 4)) for v in range(2, 7))]),
    st.lists(
        st.binary(max_size=40)
        | st.integers(0, 60).map(lambda n: struct.pack(">i", n) + bytes(range(1, n + 1)))
        | st.integers(0, 60).map(lambda n: MASK + struct.pack(">i", n) + bytes(n)),
        max_size=8,
    ),
)
@example(b"", [b"BKLG", bytes(4)])
def test_arbitrary_files(
    tmp_path_factory: pytest.TempPathFactory, header: bytes, parts: list[bytes]
) -> None:
    """Any bytes scan to records that lie there, one behind the other, or to the named error."""
    file = tmp_path_factory.getbasetemp() / "arbitrary.txn"
    data = header + b"".join(parts)
    if data.startswith(b"BKLG") and len(data) >= 8 and data[4:8] not in VERSIONS:
        with pytest.raises(CorruptionError, match=r"offset 4: journal version -?\d+ is outside"):
            _scan(file, data, skip=True)
        return
    found, scan = _scan(file, data, skip=True)
    at = len(header)
    for offset, record in found:
        assert at <= offset
        assert struct.pack(">i", len(record)) + record == data[offset : offset + 4 + len(record)]
        at = offset + 4 + len(record)
    try:
        strict = [Record(*record) for record in scan_journal(file)]
    except CorruptionError as error:
        strict, place = found, (error.file, error.offset)
        told = [(finding.file, finding.offset) for finding in scan.findings]
        assert [place] == told
    assert found == strict


@pytest.mark.parametrize("position", [END + 4, END + 200, SIZE - 1])
def test_garbage_behind_the_end(file: Path, position: int) -> None:
    """Bytes behind the zero length that ends the records are found, with the place."""
    found, scan = _scan(file, _with(position, b"x"))

    assert RECORDS == found
    detail = f"data at {position}, after the zero length that ends the file's records"
    assert [("damage", END, detail)] == _findings(scan)
    assert END + 4 == scan.stop


@pytest.mark.parametrize(("mebibytes", "told"), [(15, True), (17, False)])
def test_garbage_far_behind_the_end(file: Path, mebibytes: int, told: bool) -> None:
    """16 MiB behind the end are looked at, in pieces."""
    with file.open("r+b") as stream:
        stream.seek(END + (mebibytes << 20))
        stream.write(b"x")
    scan = scan_journal(file)
    peak = _peak_of(scan)

    assert told == bool(scan.findings)
    assert peak < 4 << 20


def test_records_that_are_none(file: Path) -> None:
    """A record whose own fields are wrong raises with its place in the file, where decoded."""
    file.write_bytes(_with(RECORDS[0].offset + 4 + 16, struct.pack(">i", 4)))
    with pytest.raises(CorruptionError, match="says 4 bytes of body, 3 are there") as caught:
        list(scan_journal(file).records())

    assert (str(file), RECORDS[0].offset + 4 + 16) == (caught.value.file, caught.value.offset)
    assert RECORDS[0].offset == next(iter(scan_journal(file))).offset


# -- memory


def _peak_of(scan: JournalScan) -> int:
    tracemalloc.start()
    try:
        for _ in scan:
            pass
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_no_memory_for_bytes_that_do_not_exist(file: Path) -> None:
    """A length of 2 GiB in a small file is checked against its size before anything is read."""
    file.write_bytes(_with(RECORDS[1].offset, b"\x7f\xff\xff\xff"))
    scan = scan_journal(file)

    assert _peak_of(scan) < 4 << 20
    assert 1 == len(scan.findings)


def test_long_padding_is_not_read(file: Path) -> None:
    """Padding is passed by, however long the file says it is."""
    record = struct.pack(">i", 16) + IDS * 2
    zeros = (1 << 31) - 512
    with file.open("wb") as stream:
        stream.write(HEADER + MASK + struct.pack(">i", zeros))
        stream.seek(520 + zeros)
        stream.write(record)
    scan = scan_journal(file)

    assert _peak_of(scan) < 4 << 20
    assert [(520 + zeros, IDS * 2)] == list(scan)


# -- what is no journal file


@pytest.mark.parametrize("version", [0, 1, 7, -1])
def test_versions_that_do_not_exist(file: Path, version: int) -> None:
    """A file of another version is refused at once, with file and offset."""
    file.write_bytes(b"BKLG" + struct.pack(">i", version) + DATA[8:])
    with pytest.raises(CorruptionError, match=f"version {version} ") as caught:
        scan_journal(file)

    assert (str(file), 4) == (caught.value.file, caught.value.offset)


def test_missing_file(file: Path) -> None:
    """A file that is not there is named; it is not "not found" of an entry or ledger."""
    file.unlink()
    with pytest.raises(BkstoreError, match=f"{file}: cannot be read") as caught:
        scan_journal(file)

    assert not isinstance(caught.value, NoSuchEntry | NoSuchLedger | CorruptionError)


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_no_regular_file(tmp_path: Path, make: object) -> None:
    """A directory or a pipe in place of the file is damage; nothing waits for a writer."""
    path = tmp_path / "5.txn"
    assert callable(make)
    make(path)
    with pytest.raises(CorruptionError, match=f"{path}: cannot be read"):
        scan_journal(path)


def test_file_that_goes_or_shrinks(file: Path) -> None:
    """A file that changes between or during readings is named, not taken for a shorter one."""
    file.write_bytes(HEADER + (struct.pack(">i", 60000) + bytes(60000)) * 40)
    scan = scan_journal(file)
    records = iter(scan)
    next(records)
    os.truncate(file, 1 << 20)
    with pytest.raises(DirectoryInUse, match="was truncated"):
        list(records)
    file.unlink()
    with pytest.raises(BkstoreError, match=str(file)):
        list(scan)


def test_start_outside_the_file(file: Path) -> None:
    """A start beyond the end is a finding and gives nothing; a negative one is refused."""
    scan = scan_journal(file, SIZE + 1)

    assert [] == list(scan)
    detail = f"file ends at {SIZE}, the scan was to begin at {SIZE + 1}"
    assert [("damage", SIZE, detail)] == _findings(scan)
    assert SIZE + 1 == scan.stop
    with pytest.raises(InvalidArgument, match="-1"):
        scan_journal(file, -1)


# -- the command


def test_command_tells_of_damage(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`readjournal` prints the records it could read, names the damage, and exits with 1."""
    file.write_bytes(_with(RECORDS[4].offset, b"\xff\xff\xff\xff"))
    code = main(["readjournal", str(file), "--format", "jsonl"])
    out, err = capsys.readouterr()

    assert 1 == code
    assert 4 == len(out.splitlines())
    assert f"offset {RECORDS[4].offset}: record length -1 is negative" in err


def test_command_refuses_other_versions(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that cannot be read at all gives one line on stderr and exit code 2."""
    file.write_bytes(b"BKLG" + bytes(508))
    code = main(["readjournal", str(file)])
    out, err = capsys.readouterr()

    assert (2, "") == (code, out)
    assert 1 == len(err.splitlines())
    assert "journal version 0 is outside 2..6" in err
