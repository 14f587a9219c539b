"""Bytes that upstream's classes fix, written out by hand: what real bookies read and write."""

from __future__ import annotations

import hashlib
import hmac

import pytest

from bkstore.errors import CorruptionError, InvalidArgument, UnsupportedLayout
from bkstore.formats import entrylog, idxfile, journal, ledgerdata
from bkstore.formats.entry import Entry, encode, encode_explicit_lac, master_key
from bkstore.formats.entry.digest import DIGEST_NUMBERS, new_digest
from bkstore.formats.metadata import serialized, underreplication
from bkstore.ids import LedgerId

ZERO, ONE = bytes(4), b"\0\0\0\1"
KEY = bytes(range(20))
LAC = b"\0\0\0\0\0\0\0\7" + b"\0\0\0\0\0\0\0\5"


# -- entries: `DigestManager`


@pytest.mark.parametrize(
    ("kind", "number", "digest"),
    [
        ("CRC32", 1, "0000000030a56872"),
        ("HMAC", 2, "1fc10b7ef25ddc35686904654653862deb5d2933"),
        ("CRC32C", 3, "e3a5f74d"),
        ("DUMMY", 4, ""),
    ],
)
def test_an_entry_of_each_digest(kind: str, number: int, digest: str) -> None:
    """Header, digest, payload; vectors made by the JDK's classes."""
    header = "00000000000000010000000000000000ffffffffffffffff0000000000000005"
    found = encode(Entry(LedgerId.of(1), 0, -1, 5, b"hello"), kind, "testPasswd")

    assert header + digest + b"hello".hex() == found.hex()
    assert number == DIGEST_NUMBERS[kind] == new_digest(number, "testPasswd").number


@pytest.mark.parametrize("password", ["", "testPasswd", "p\u00e4ss"])
def test_keys_of_a_password(password: str) -> None:
    """A master key is SHA-1 of "ledger" and the password, an HMAC's key of "mac" and it."""
    raw = password.encode()
    mac = hmac.new(hashlib.sha1(b"mac" + raw).digest(), LAC, "sha1").digest()

    assert hashlib.sha1(b"ledger" + raw).digest() == master_key(password)
    assert LAC + mac == encode_explicit_lac(7, 5, "HMAC", password)


# -- index files: `FileInfo`


def test_header_of_an_index_file() -> None:
    """Version 1 unless another is asked for: key and explicit LAC with their lengths, bit 0 of
    the state is the fence; 1024 bytes."""
    body = LAC + b"\1\2\3\4"
    found = idxfile.encode_header(idxfile.IdxHeader(KEY, 1, body))
    fields = b"BKLE" + ONE + b"\0\0\0\x14" + KEY + ONE + b"\0\0\0\x14" + body

    assert fields.ljust(1024, b"\0") == found
    assert idxfile.IdxHeader(KEY, 1, body, 1) == idxfile.decode_header(found)
    assert idxfile.decode_header(found).fenced
    for bits, fenced in ((0, False), (2, False), (3, True), (0xFFFFFFFE, False)):
        again = idxfile.decode_header(idxfile.encode_header(idxfile.IdxHeader(KEY, bits)))
        assert (bits, fenced, None) == (again.state_bits, again.fenced, again.explicit_lac)


def test_header_of_version_0() -> None:
    """Version 0 ends with the state bits; an explicit LAC has no place there."""
    fields = b"BKLE" + ZERO + b"\0\0\0\x14" + KEY + ONE
    found = idxfile.decode_header(fields.ljust(1024, b"\xff"))

    assert idxfile.IdxHeader(KEY, 1, None, 0) == found
    assert fields.ljust(1024, b"\0") == idxfile.encode_header(found)
    with pytest.raises(UnsupportedLayout):
        idxfile.encode_header(idxfile.IdxHeader(KEY, 1, LAC, 0))


def test_least_explicit_lac() -> None:
    """An explicit LAC has its ids, 16 bytes, at least; with DUMMY that is all."""
    assert (
        LAC
        == idxfile.decode_header(idxfile.encode_header(idxfile.IdxHeader(KEY, 0, LAC))).explicit_lac
    )
    with pytest.raises(InvalidArgument):
        idxfile.encode_header(idxfile.IdxHeader(KEY, 0, LAC[:15]))
    short = b"BKLE" + ONE + ZERO + ZERO + b"\0\0\0\x0f" + LAC
    with pytest.raises(CorruptionError, match="length 15 is less than 16"):
        idxfile.decode_header(short.ljust(1024, b"\0"))


@pytest.mark.parametrize("size", [0, 20, 980])
def test_master_keys_of_any_length(size: int) -> None:
    """A key that leaves room for lengths and state, 984 bytes at most with 20 of them."""
    header = idxfile.IdxHeader(b"k" * size, 1, LAC)

    assert header == idxfile.decode_header(idxfile.encode_header(header))
    with pytest.raises(InvalidArgument):
        idxfile.encode_header(idxfile.IdxHeader(b"k" * 989, 1, LAC))


@pytest.mark.parametrize(
    ("ledger", "path"),
    [
        (0, "0/0/0.idx"),
        (0xA, "0/a/a.idx"),
        (0x1234, "12/34/1234.idx"),
        (0x12345678, "56/78/12345678.idx"),
        (2**63 - 1, "ff/ff/7fffffffffffffff.idx"),
    ],
)
def test_paths_of_index_files(ledger: int, path: str) -> None:
    """`IndexPersistenceMgr.getLedgerName`: two levels of a byte each, then the id, unpadded."""
    assert path == idxfile.index_path(LedgerId.of(ledger))
    assert LedgerId.of(ledger) == idxfile.parse_index_path(tuple(path.split("/")))


# -- journals: `JournalChannel`, `BookieImpl`


def test_headers_of_journals() -> None:
    """ "BKLG" and the version; 512 bytes from version 5 on, 8 before."""
    for version, size in ((4, 8), (5, 512), (6, 512)):
        header = (b"BKLG" + version.to_bytes(4, "big")).ljust(size, b"\0")

        assert header == journal.encode_header(version)
        assert (version, size) == journal.decode_header(header)
    for version in (2, 3):
        assert (version, 8) == journal.decode_header(b"BKLG" + version.to_bytes(4, "big"))
    for data in (b"", b"BKLG\0\0\0", b"\0\0\0\x20" + bytes(40)):
        assert (1, 0) == journal.decode_header(data)
    for version in (0, 1, 7):
        with pytest.raises(CorruptionError, match=r"outside 2\.\.6"):
            journal.decode_header(b"BKLG" + version.to_bytes(4, "big"))


@pytest.mark.parametrize(
    ("kind", "entry", "body", "oldest"),
    [
        ("master_key", "fffffffffffff000", KEY, 3),
        ("fence", "ffffffffffffe000", b"", 4),
        ("explicit_lac", "ffffffffffff8000", LAC, 6),
    ],
)
def test_special_records(kind: str, entry: str, body: bytes, oldest: int) -> None:
    """Ledger, -0x1000, -0x2000 or -0x8000, and the body with its length; each from a version on."""
    length = b"" if kind == "fence" else len(body).to_bytes(4, "big")
    data = bytes.fromhex("0000000000000007" + entry) + length + body

    assert data == journal.encode_special(kind, 7, body)
    for version in range(oldest, 7):
        found = journal.decode_record(data, version)
        assert (kind, LedgerId.of(7), body) == (found.kind, found.ledger, found.body)
    with pytest.raises(CorruptionError, match=f"allowed from {oldest} on"):
        journal.decode_record(data, oldest - 1)


@pytest.mark.parametrize(
    ("position", "zeros"), [(0, None), (512, None), (1, 503), (504, 0), (505, 511), (511, 505)]
)
def test_padding_of_journals(position: int, zeros: int | None) -> None:
    """-0x100, a length and zeros up to the next 512 bytes; where the 8 bytes in front do not fit,
    to the one behind."""
    expected = b"" if zeros is None else bytes.fromhex("ffffff00") + zeros.to_bytes(4, "big")
    found = journal.padding_record(position)

    assert expected + bytes(zeros or 0) == found
    assert 0 == (position + len(found)) % 512


# -- entry logs: `EntryLogger`, `EntryLogMetadata.EntryLogMetadataRecyclable`


def test_entry_logs() -> None:
    """The header; the ledgers map, of ledger -1 and entry -2; a row of `metadata-cache`."""
    header = b"BKLO" + ONE + b"\0\0\0\0\0\0\x10\0" + b"\0\0\0\2"
    items = bytes.fromhex("00000000000000030000000000000064000000000000000400000000000000c8")
    batch = bytes.fromhex("00000034fffffffffffffffffffffffffffffffe00000002") + items
    sizes = {LedgerId.of(3): 100, LedgerId.of(4): 200}
    metadata = entrylog.LogMetadata(9, 400, 300, sizes)
    row = b"\0\0" + b"".join(n.to_bytes(8, "big") for n in (9, 400, 300, 2)) + items

    assert header.ljust(1024, b"\0") == entrylog.encode_header(entrylog.LogHeader(1, 4096, 2))
    assert entrylog.LogHeader(1, 4096, 2) == entrylog.decode_header(header)
    assert batch == entrylog.encode_ledgers_map(sizes)
    assert list(sizes.items()) == entrylog.decode_map_batch(batch[4:])
    assert row == metadata.to_bytes()
    assert metadata == entrylog.LogMetadata.from_bytes(row)
    assert {"0.log": 0, "a.log": 10, "0a.log": None, "A.log": None, "80000000.log": None} == {
        name: entrylog.parse_log_name(name)
        for name in ("0.log", "a.log", "0a.log", "A.log", "80000000.log")
    }


def test_metadata_with_a_digest_type_and_no_password() -> None:
    """`LedgerMetadataFormat`: quorumSize 1, ensembleSize 2, length 3, lastEntryId 4, state 5,
    segment 6 (member 1, firstEntryId 2), digestType 7; what is there is told."""
    body = bytes.fromhex("0802100318072005280332060a02623110003803")
    data = b"BookieMetadataFormatVersion\t3\n" + bytes([len(body)]) + body
    found = serialized.decode(data, 7)

    assert ("CRC32C", None, "CLOSED", 5, 7) == (
        found.digest_type,
        found.password,
        found.state,
        found.last_entry_id,
        found.length,
    )
    assert (3, 2, 2) == (found.ensemble_size, found.write_quorum_size, found.ack_quorum_size)
    assert [(0, ("b1",))] == [tuple(segment) for segment in found.segments]


@pytest.mark.parametrize(
    ("state", "end", "last", "length"),
    [
        ("OPEN", b"", -1, 0),
        ("IN_RECOVERY", b"-102\tCLOSED", -1, 0),
        ("CLOSED", b"9\tCLOSED", 9, 70),
    ],
)
def test_metadata_of_version_1(state: str, end: bytes, last: int, length: int) -> None:
    """Write quorum, ensemble size and length a line each, then segments; the last line is of a
    ledger that is not open: its last entry, -102 in recovery."""
    told = b"%d\n" % length
    data = (
        b"BookieMetadataFormatVersion\t1\n2\n3\n" + told + b"0\tb1\tb2\tb3\n4\tb1\tb4\tb3\n" + end
    )
    found = serialized.decode(data, 7)

    assert (state, last, length) == (found.state, found.last_entry_id, found.length)
    assert (3, 2, 2) == (found.ensemble_size, found.write_quorum_size, found.ack_quorum_size)
    assert [0, 4] == [segment[0] for segment in found.segments]
    assert data == serialized.encode(found)


def test_ledger_rows() -> None:
    """`DbLedgerStorageDataFormats.LedgerData`: exists 1, fenced 2, masterKey 3, explicitLac 4,
    limbo 5; the storage flags' key is -0xEEFD."""
    rows = {
        "080110001a016b": ledgerdata.LedgerData(b"k"),
        "080110011a016b": ledgerdata.LedgerData(b"k", fenced=True),
        "080110001a002210" + LAC.hex(): ledgerdata.LedgerData(b"", explicit_lac=LAC),
        "080110001a002801": ledgerdata.LedgerData(b"", limbo=True),
        "080110001a002800": ledgerdata.LedgerData(b"", limbo=False),
        "080010001a00": ledgerdata.LedgerData(b"", exists=False),
    }
    for data, row in rows.items():
        assert data == ledgerdata.encode(row).hex()
        assert row == ledgerdata.decode(bytes.fromhex(data))
    assert "ffffffffffff1103" == ledgerdata.FLAGS_KEY.hex()


# -- underreplication: `ZkLedgerUnderreplicationManager`


def test_check_times_and_locks() -> None:
    """A check time is field 1, a varint of 64 bits: -1, never, takes ten bytes. A lock is named by
    ten digits of its ledger."""
    for value, data in ((0, "0800"), (300, "08ac02"), (-1, "08" + "ff" * 9 + "01")):
        assert data == underreplication.encode_check_time(value).hex()
        assert value == underreplication.decode_check_time(bytes.fromhex(data))
    assert -1 == underreplication.decode_check_time(b"")
    assert "/underreplication/locks/urL0000000007" == underreplication.lock_path(7)
