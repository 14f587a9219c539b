"""The journal's bytes: headers, records, special records in both forms, padding, marks.

The expected bytes are made by hand from the tables in `docs/formats/journal.md`.
"""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import example, given, strategies as st

from bkstore import CorruptionError, InvalidArgument, LedgerId, UnsupportedLayout
from bkstore.formats import journal
from bkstore.formats.entry import Entry, encode
from bkstore.formats.journal import JournalHeader, LogMark
from bkstore.storage.journal import (
    NO_MARK,
    delete_journals_before,
    journal_index_of,
    journal_name,
    last_mark_name,
    list_journal_files,
    read_last_mark,
    write_last_mark,
)

SCOPED = LedgerId(0x550E8400E29B41D4, 0xA716446655440000)
LAC_BODY = "0000000000000007" + "0000000000000002" + "01020304"
LAC_BODY_V2 = "a3" + "550e8400e29b41d4" + "a716446655440000" + "0000000000000002" + "01020304"
IDS = "0000000000000007"
SCOPED_IDS = "a0" + "550e8400e29b41d4" + "a716446655440000"
MASTER_KEY, FENCE, FORCE, LAC = (
    "fffffffffffff000",
    "ffffffffffffe000",
    "ffffffffffffc000",
    "ffffffffffff8000",
)

# kind, ledger, body in hex, the whole record in hex
SPECIALS = [
    ("master_key", 7, "6b6579", IDS + MASTER_KEY + "00000003" + "6b6579"),
    ("master_key", 7, "", IDS + MASTER_KEY + "00000000"),
    ("fence", 7, "", IDS + FENCE),
    ("explicit_lac", 7, LAC_BODY, IDS + LAC + "00000014" + LAC_BODY),
    ("master_key", SCOPED, "6b6579", SCOPED_IDS + MASTER_KEY + "00000003" + "6b6579"),
    ("master_key", SCOPED, "", SCOPED_IDS + MASTER_KEY + "00000000"),
    ("fence", SCOPED, "", SCOPED_IDS + FENCE),
    ("explicit_lac", SCOPED, LAC_BODY_V2, SCOPED_IDS + LAC + "0000001d" + LAC_BODY_V2),
]
special_parameters = pytest.mark.parametrize(("kind", "ledger", "body", "record"), SPECIALS)


# -- header


@pytest.mark.parametrize(("version", "size"), [(4, 8), (5, 512), (6, 512)])
def test_headers_written(version: int, size: int) -> None:
    """Signature, version, and from version 5 on zeros up to 512."""
    expected = bytes.fromhex(f"424b4c47 0000000{version}").ljust(size, b"\0")

    assert expected == journal.encode_header(version)


@pytest.mark.parametrize(("version", "size"), [(2, 8), (3, 8), (4, 8), (5, 512), (6, 512)])
def test_headers_read(version: int, size: int) -> None:
    """Versions 2 to 6 are read; records begin at 8, from version 5 on at 512."""
    assert JournalHeader(version, size) == journal.decode_header(
        bytes.fromhex(f"424b4c47 0000000{version}")
    )


@pytest.mark.parametrize("data", ["", "424b4c47000000", "424b4c4600000006", "00000014" * 3])
def test_no_signature_is_version_1(data: str) -> None:
    """Without the signature, or with less than 8 bytes, a file is of version 1, all records."""
    assert JournalHeader(1, 0) == journal.decode_header(bytes.fromhex(data))


@pytest.mark.parametrize("version", ["00000000", "00000001", "00000007", "ffffffff", "06000000"])
def test_versions_that_do_not_exist(version: str) -> None:
    """Behind the signature stands 2 to 6; anything else is damage, at offset 4."""
    with pytest.raises(CorruptionError, match=r"outside 2\.\.6") as caught:
        journal.decode_header(bytes.fromhex("424b4c47" + version))

    assert 4 == caught.value.offset


@pytest.mark.parametrize("version", [-1, 0, 1, 2, 3, 7])
def test_versions_not_written(version: int) -> None:
    """Versions 4, 5 and 6 are written, no other."""
    with pytest.raises(InvalidArgument, match="4, 5 or 6"):
        journal.encode_header(version)


# -- records


@pytest.mark.parametrize("size", [16, 17, 255, 256, 70000])
def test_record_has_its_length_before_it(size: int) -> None:
    """A record is a big-endian 32-bit length and its bytes."""
    data = bytes(range(1, 17)) + bytes(size - 16)

    assert struct.pack(">I", size) + data == journal.encode_record(data)


@pytest.mark.parametrize("size", [0, 1, 15])
def test_records_without_room_for_ids(size: int) -> None:
    """An empty record would end the file, one below 16 bytes has no ids: neither is written."""
    with pytest.raises(InvalidArgument, match=f"{size} bytes"):
        journal.encode_record(bytes(size))
    with pytest.raises(CorruptionError):
        journal.decode_record(bytes(size))


@pytest.mark.parametrize("ledger", [7, SCOPED], ids=["scope 0", "a scope"])
def test_an_entry_is_a_record_as_it_is(ledger: int | LedgerId) -> None:
    """An entry's record names ledger, entry, LAC and length; its body is the whole entry."""
    data = encode(Entry(ledger, 3, 2, 40, b"hello"), "CRC32C", "pw")
    record = journal.decode_record(data)

    assert ("add", LedgerId.of(ledger), 3, data, 2, 40) == record


def test_a_scope_costs_nine_bytes() -> None:
    """Every record of a scope, entry or special, is 9 bytes longer than that of scope 0."""
    entries = [len(encode(Entry(n, 3, 2, 40, b"x"), "CRC32", "pw")) for n in (7, SCOPED)]
    fences = [len(journal.encode_special("fence", n)) for n in (7, SCOPED)]
    keys = [len(journal.encode_special("master_key", n, b"key")) for n in (7, SCOPED)]

    assert [9, 9, 9] == [wide - narrow for narrow, wide in (entries, fences, keys)]


# -- special records


@special_parameters
def test_special_records(kind: str, ledger: int | LedgerId, body: str, record: str) -> None:
    """Each special record, in both forms, is the hex that the format's tables give."""
    data = bytes.fromhex(record)
    decoded = journal.decode_record(data)

    assert data == journal.encode_special(kind, ledger, bytes.fromhex(body))
    assert (kind, LedgerId.of(ledger), bytes.fromhex(body)) == (
        decoded.kind,
        decoded.ledger,
        decoded.body,
    )
    assert journal.SPECIAL_IDS[kind] == decoded.entry_id
    assert (None, None) == (decoded.lac, decoded.length)


@special_parameters
def test_special_records_by_version(
    kind: str, ledger: int | LedgerId, body: str, record: str
) -> None:
    """Master keys are allowed from version 3 on, fences from 4, explicit LACs from 6."""
    first = {"master_key": 3, "fence": 4, "explicit_lac": 6}[kind]
    for version in range(1, first):
        with pytest.raises(CorruptionError, match=f"version {version}, allowed from {first} on"):
            journal.decode_record(bytes.fromhex(record), version)
    for version in range(first, 7):
        assert kind == journal.decode_record(bytes.fromhex(record), version).kind


@pytest.mark.parametrize("entry", [FORCE, "ffffffffffffffff", "8000000000000000"])
@pytest.mark.parametrize("ids", [IDS, SCOPED_IDS], ids=["scope 0", "a scope"])
def test_other_negative_entry_ids(ids: str, entry: str) -> None:
    """A negative entry id that is no special one is a record of unknown kind, not an error."""
    record = journal.decode_record(bytes.fromhex(ids + entry + "0102"))

    assert ("unknown", b"\1\2") == (record.kind, record.body)
    assert int.from_bytes(bytes.fromhex(entry), "big", signed=True) == record.entry_id


@pytest.mark.parametrize(
    ("kind", "body"),
    [("force", b""), ("add", bytes(40)), ("fence", b"x"), ("explicit_lac", bytes(15))],
)
def test_special_records_not_written(kind: str, body: bytes) -> None:
    """No other kinds, no fence with a body, no explicit LAC without its ids."""
    with pytest.raises(InvalidArgument):
        journal.encode_special(kind, 7, body)


@pytest.mark.parametrize(
    ("record", "offset", "reason"),
    [
        (IDS + MASTER_KEY, 16, "0 are there"),
        (IDS + MASTER_KEY + "0000", 16, "0 are there"),
        (IDS + MASTER_KEY + "00000004" + "6b6579", 16, "says 4 bytes of body, 3 are there"),
        (IDS + MASTER_KEY + "00000002" + "6b6579", 16, "says 2 bytes of body, 3 are there"),
        (IDS + MASTER_KEY + "ffffffff" + "6b6579", 16, "says -1 bytes of body, 3 are there"),
        (IDS + MASTER_KEY + "7fffffff" + "6b6579", 16, "says 2147483647 bytes of body"),
        (IDS + FENCE + "00", 16, "1 excess bytes"),
        (IDS + LAC + "0000000f" + "00" * 15, 16, "explicit LAC body of 15 bytes"),
        (IDS + "0000000000000003" + "00" * 15, 0, "entry of 31 bytes"),
        (SCOPED_IDS + FENCE[:-2], 0, "its ids need 25"),
        (SCOPED_IDS + FENCE + "00", 25, "1 excess bytes"),
        (SCOPED_IDS + MASTER_KEY + "00000004" + "6b6579", 25, "3 are there"),
        (SCOPED_IDS + "0000000000000003" + "00" * 32, 17, "special record of entry id 3"),
        ("a0" + "00" * 8 + IDS + FENCE, 1, "scope 0"),
        ("a3" + SCOPED_IDS[2:] + FENCE + "00" * 20, 17, "negative id -8192"),
        ("90" + SCOPED_IDS[2:] + FENCE + "00" * 20, 0, "0x90"),
    ],
)
def test_records_that_are_none(record: str, offset: int, reason: str) -> None:
    """A record that cannot be what its first bytes say is damage, with the place in it."""
    with pytest.raises(CorruptionError, match=reason) as caught:
        journal.decode_record(bytes.fromhex(record))

    assert offset == caught.value.offset


@given(st.binary(max_size=80), st.integers(1, 6))
@example(bytes.fromhex(SCOPED_IDS + MASTER_KEY), 6)
@example(bytes.fromhex("a1" + "00" * 60), 6)
def test_arbitrary_records(data: bytes, version: int) -> None:
    """Any bytes are a record, whose body is their end, or damage; never another exception."""
    try:
        body = journal.decode_record(data, version).body
    except CorruptionError:
        body = b""

    assert data.endswith(body)


# -- padding


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        (512, ""),
        (1000, "ffffff00 00000010" + "00" * 16),
        (1016, "ffffff00 00000000"),
        (1017, "ffffff00 000001ff" + "00" * 511),
        (1020, "ffffff00 000001fc" + "00" * 508),
        (1023, "ffffff00 000001f9" + "00" * 505),
        (1025, "ffffff00 000001f7" + "00" * 503),
    ],
)
def test_padding_bytes(position: int, expected: str) -> None:
    """A mask, a length and zeros fill the gap; one below 8 bytes takes 512 more."""
    assert bytes.fromhex(expected) == journal.padding_record(position)


@given(st.integers(0, 1 << 40), st.integers(1, 32).map(lambda units: units * 512))
def test_padding_reaches_a_multiple(position: int, alignment: int) -> None:
    """Behind the padding the position is the nearest multiple that it can reach."""
    gap = -position % alignment
    expected = gap if gap == 0 or gap >= 8 else gap + alignment
    data = journal.padding_record(position, alignment)

    assert expected == len(data)
    if data:
        assert (-0x100, len(data) - 8) == struct.unpack_from(">ii", data)
        assert len(data) - 8 == data[8:].count(0)


# -- marks


def test_mark_bytes() -> None:
    """A mark is two big-endian 64-bit numbers, id and position; more bytes are not looked at."""
    data = bytes.fromhex("000001a1fce70409 0000000000000400")

    assert data == journal.encode_mark(LogMark(0x1A1FCE70409, 1024))
    assert LogMark(0x1A1FCE70409, 1024) == journal.decode_mark(data + b"more")


def test_marks_that_are_none() -> None:
    """Fewer than 16 bytes, and negative numbers, are damage; negative ones are not written."""
    for data, offset in ((bytes(15), 0), (b"\x80" + bytes(15), 0), (bytes(8) + b"\xff" * 8, 8)):
        with pytest.raises(CorruptionError) as caught:
            journal.decode_mark(data)

        assert offset == caught.value.offset
    for mark in (LogMark(-1, 0), LogMark(0, -1), LogMark(1 << 63, 0)):
        with pytest.raises(InvalidArgument, match="not a position in a journal"):
            journal.encode_mark(mark)


def _directories(top: Path, count: int = 3) -> list[Path]:
    directories = [top / f"ledger{number}" for number in range(count)]
    for path in directories:
        path.mkdir()
    return directories


def test_names() -> None:
    """Files are named by hex ids without padding; marks have a number where journals are many."""
    assert "a.txn" == journal_name(10)
    assert "7fffffffffffffff.txn" == journal_name((1 << 63) - 1)
    assert ("lastMark", "lastMark.0", "lastMark.11") == (
        last_mark_name(),
        last_mark_name(0),
        last_mark_name(11),
    )
    for number in (-1, 1 << 63):
        with pytest.raises(InvalidArgument, match=str(number)):
            journal_name(number)


def test_journal_of() -> None:
    """A ledger's journal is its id modulo their number, unsigned, whatever its scope."""
    assert [0, 1, 2, 0] == [journal_index_of(ledger, 3) for ledger in (0, 1, 2, 3)]
    assert 0xA716446655440000 % 7 == journal_index_of(SCOPED, 7)
    with pytest.raises(InvalidArgument):
        journal_index_of(7, 0)


def test_greatest_mark_wins(tmp_path: Path) -> None:
    """The mark in force is the greatest of all directories': by id, then by position."""
    directories = _directories(tmp_path)
    marks = [LogMark(9, 512), LogMark(10, 1024), LogMark(10, 512)]
    for path, mark in zip(directories, marks):
        (path / "lastMark").write_bytes(struct.pack(">qq", *mark))

    assert LogMark(10, 1024) == read_last_mark(directories)
    assert NO_MARK == read_last_mark(directories, 0)
    assert (0, 0) == NO_MARK


def test_missing_and_short_marks_do_not_count(tmp_path: Path) -> None:
    """A file that is missing, or shorter than 16 bytes, says nothing, as upstream."""
    directories = _directories(tmp_path)
    (directories[0] / "lastMark.1").write_bytes(b"\x7f" * 15)
    (directories[1] / "lastMark.1").write_bytes(struct.pack(">qq", 3, 512))

    assert LogMark(3, 512) == read_last_mark(directories, 1)
    assert NO_MARK == read_last_mark([directories[0], directories[2]], 1)


def test_damaged_marks(tmp_path: Path) -> None:
    """A negative mark and a directory in place of the file are damage, with the file's name."""
    first, second = _directories(tmp_path, 2)
    (first / "lastMark").write_bytes(struct.pack(">qq", 5, -512))
    (second / "lastMark").mkdir()
    for path in (first, second):
        with pytest.raises(CorruptionError, match=str(path / "lastMark")):
            read_last_mark([path])


def test_marks_never_go_back(tmp_path: Path) -> None:
    """A mark is written into every directory, but a file that is ahead of it stays."""
    directories = _directories(tmp_path)
    (directories[1] / "lastMark").write_bytes(struct.pack(">qq", 8, 512))
    (directories[2] / "lastMark").write_bytes(b"short")
    write_last_mark(directories, LogMark(7, 4096))

    assert [(7, 4096), (8, 512), (7, 4096)] == [
        struct.unpack(">qq", (path / "lastMark").read_bytes()) for path in directories
    ]
    assert {"lastMark"} == {name.name for path in directories for name in path.iterdir()}


# -- files


def test_files_are_listed_by_number(tmp_path: Path) -> None:
    """Files come by id, not by name; other names than .txn are passed by."""
    for name in ("10.txn", "9.txn", "a.txn", "VERSION", "lastMark"):
        (tmp_path / name).touch()

    assert [(9, "9.txn"), (10, "a.txn"), (16, "10.txn")] == [
        (number, path.name) for number, path in list_journal_files(tmp_path)
    ]


@pytest.mark.parametrize("name", ["0a", "A", "x", "-1", "", "8" + "0" * 15, "1.2"])
def test_names_no_bookie_gives(tmp_path: Path, name: str) -> None:
    """A .txn file that no bookie made is refused, not passed by: it may hold records."""
    path = tmp_path / f"{name}.txn"
    path.touch()
    with pytest.raises(UnsupportedLayout, match=str(path)):
        list_journal_files(tmp_path)


@pytest.mark.parametrize(
    ("keep", "left"),
    [(0, [5, 6, 7]), (1, [4, 5, 6, 7]), (2, [3, 4, 5, 6, 7]), (5, [1, 2, 3, 4, 5, 6, 7])],
)
def test_deleting_keeps_the_newest(tmp_path: Path, keep: int, left: list[int]) -> None:
    """Of the files before the mark's, all but the newest `keep` go, oldest first."""
    for number in range(1, 8):
        (tmp_path / f"{number}.txn").touch()
    gone = delete_journals_before(tmp_path, LogMark(5, 512), keep)

    assert left == [number for number, _ in list_journal_files(tmp_path)]
    assert [f"{number}.txn" for number in range(1, left[0])] == [path.name for path in gone]


def test_nothing_is_deleted_without_a_mark(tmp_path: Path) -> None:
    """Where no mark was ever written every file may be needed; a negative number is refused."""
    (tmp_path / "1.txn").touch()

    assert [] == delete_journals_before(tmp_path, NO_MARK, 0)
    with pytest.raises(InvalidArgument):
        delete_journals_before(tmp_path, LogMark(5, 0), -1)
