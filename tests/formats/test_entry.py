"""Entries and explicit LACs: bytes by the specification, digests, the order of checks."""

from __future__ import annotations

import hashlib
import hmac
import random
import re
import zlib
from typing import Any

import numpy as np
import pytest
from google_crc32c import value as crc32c
from hypothesis import given, strategies as st

from bkstore import CorruptionError, InvalidArgument, LedgerId
from bkstore.formats.entry import (
    Coder,
    Entry,
    decode,
    decode_explicit_lac,
    encode,
    encode_explicit_lac,
    is_v2,
    record_header,
    record_ids,
)
from bkstore.formats.entry.digest import digest_name, master_key, new_digest
from bkstore.formats.syntax.framing import find_frames, run_end
from tests.docs.format_pages import hex_bytes, shown_bytes, shown_text

KINDS = ("CRC32", "HMAC", "CRC32C", "DUMMY")
PASSWORD = "testPasswd"
V1_HEX = "0000000000000001 0000000000000000 ffffffffffffffff 0000000000000005"
SCOPED = LedgerId(0x550E8400E29B41D4, 0xA716446655440000)
V2_HEX = "550e8400e29b41d4 a716446655440000 0000000000000003 0000000000000002 0000000000000028"

ledger_ids = st.one_of(
    st.integers(0, 2**63 - 1).map(LedgerId.of),
    st.builds(LedgerId, st.integers(1, 2**64 - 1), st.integers(0, 2**64 - 1)),
)
entries = st.builds(
    Entry,
    ledger_ids,
    st.integers(0, 2**63 - 2),
    st.integers(-1, 2**63 - 2),
    st.integers(0, 2**63 - 1),
    st.binary(max_size=100),
)


def _digest(kind: str, data: bytes) -> bytes:
    """Return the digest of header and payload, computed without the code under test."""
    if kind == "CRC32":
        return zlib.crc32(data).to_bytes(8, "big")
    if kind == "CRC32C":
        return int(crc32c(data)).to_bytes(4, "big")
    if kind == "HMAC":
        key = hashlib.sha1(b"mac" + PASSWORD.encode()).digest()
        return hmac.new(key, data, "sha1").digest()
    return b""


# -- bytes


@pytest.mark.parametrize(
    ("kind", "digest"),
    [
        ("CRC32", "00000000 30a56872"),
        ("CRC32C", "e3a5f74d"),
        ("HMAC", "1fc10b7ef25ddc35686904654653862deb5d2933"),
        ("DUMMY", ""),
    ],
)
def test_version_1(kind: str, digest: str) -> None:
    """The reference's vector: header, digest, payload, for each digest type."""
    record = bytes.fromhex(V1_HEX + digest) + b"hello"
    entry = Entry(LedgerId.of(1), 0, -1, 5, b"hello")

    assert record == encode(entry, kind, PASSWORD)
    assert entry == decode(record, kind, PASSWORD)
    assert not is_v2(record)


@pytest.mark.parametrize(
    ("kind", "flags"), [("CRC32", 1), ("HMAC", 2), ("CRC32C", 3), ("DUMMY", 4)]
)
def test_version_2(kind: str, flags: int) -> None:
    """Another scope: flags 0xA0 | digest number, five i64, digest over all 41 bytes, payload."""
    header = bytes([0xA0 | flags]) + bytes.fromhex(V2_HEX)
    record = header + _digest(kind, header + b"payload") + b"payload"
    entry = Entry(SCOPED, 3, 2, 40, b"payload")

    assert 41 == len(header)
    assert record == encode(entry, kind, PASSWORD)
    assert entry == decode(record, kind, PASSWORD)
    assert entry == decode(record)  # the first byte says how long the digest is
    assert is_v2(record)


def test_overhead_of_a_scope() -> None:
    """A scope costs 9 bytes an entry, whatever the digest."""
    for kind in KINDS:
        sizes = [len(encode(Entry(n, 0, -1, 5, b"hello"), kind, "")) for n in (7, SCOPED)]

        assert 9 == sizes[1] - sizes[0]


@given(entries, st.sampled_from(KINDS))
def test_round_trip(entry: Entry, kind: str) -> None:
    """Whatever is encoded decodes to the same, and the digest is that of header and payload."""
    record = encode(entry, kind, PASSWORD)
    header = record_header(record)
    size = {"CRC32": 8, "HMAC": 20, "CRC32C": 4, "DUMMY": 0}[kind]
    covered = record[: header.size] + entry.payload

    assert entry == decode(record, kind, PASSWORD)
    assert entry[:4] == header[:4]
    assert _digest(kind, covered) == record[header.size : header.size + size]
    assert entry.payload == record[header.size + size :]


def test_unverified() -> None:
    """Without a digest type, version 1 gives what stands behind the header, digest included."""
    record = encode(Entry(1, 0, -1, 5, b"hello"), "CRC32C", PASSWORD)

    assert bytes.fromhex("e3a5f74d") + b"hello" == decode(record).payload


def test_master_keys() -> None:
    """SHA-1 of "ledger" and the password, 20 bytes."""
    assert "850bf1071c5e3d8c24235676f8816ae0cbe2f14f" == master_key("").hex()
    assert "2e2a69d870796fe05c0e77c52a29ce5e4222b758" == master_key(PASSWORD).hex()
    assert master_key("é") == master_key("é".encode())


def test_digest_types() -> None:
    """Types go by the metadata's names and numbers, and MAC; HMAC needs a password."""
    assert list(KINDS) == [digest_name(number) for number in (1, 2, 3, 4)]
    assert "HMAC" == digest_name("MAC") == digest_name("hmac")
    for unknown in (0, 5, "MD5", ""):
        with pytest.raises(InvalidArgument):
            new_digest(unknown)
    with pytest.raises(InvalidArgument, match="password"):
        new_digest("HMAC")

    assert bytes.fromhex("e3069283") == new_digest("CRC32C").compute(b"1234", b"56789")


# -- many


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ledger", [7, SCOPED])
def test_encode_many(ledger: int | LedgerId, kind: str) -> None:
    """Many at once are those one by one: LAC the highest before, length summed."""
    coder = Coder(kind, PASSWORD)
    ids, payloads = [4, 2, 3, 9], [b"", b"x", b"yy", b"zzz"]
    expected = [
        coder.encode(Entry(ledger, entry, lac, length, payload))
        for entry, lac, length, payload in zip(ids, (1, 4, 4, 4), (10, 11, 13, 16), payloads)
    ]

    assert expected == coder.encode_many(ledger, ids, payloads, lac=1, length=10)


def test_record_ids() -> None:
    """Ids of many records in one buffer, scopes mixed, in two's complement."""
    names = [LedgerId.of(5), SCOPED, LedgerId.of(2**63 - 1), LedgerId(2**64 - 1, 1)]
    records = [encode(Entry(name, n, -1, 0, b"p" * n), "DUMMY") for n, name in enumerate(names)]
    offsets = np.cumsum([0, *map(len, records[:-1])])
    data = np.frombuffer(b"".join(records), np.uint8)
    scopes, ledgers, numbers = record_ids(data, offsets)

    assert [name.signed for name in names] == list(zip(scopes.tolist(), ledgers.tolist()))
    assert [0, 1, 2, 3] == numbers.tolist()


# -- framing


def _plain_loop(data: bytes, at: int, smallest: int) -> tuple[list[int], list[int], int]:
    offsets, sizes = [], []
    while at + 4 <= len(data):
        size = int.from_bytes(data[at : at + 4], "big", signed=True)
        if size < smallest or at + 4 + size > len(data):
            break
        offsets.append(at + 4)
        sizes.append(size)
        at += 4 + size
    return offsets, sizes, at


@pytest.mark.parametrize("seed", range(20))
def test_find_frames(seed: int) -> None:
    """Chains with long and short runs of equal sizes, cut or not, are followed as a loop would."""
    rng = random.Random(seed)
    sizes: list[int] = []
    while len(sizes) < 20_000 * (seed == 0) + rng.randrange(1, 500):
        sizes += [rng.randrange(2, 40)] * rng.choice([1, 1, 1, 63, 64, 65, 200, 5000 * (seed < 3)])
    data = b"".join(size.to_bytes(4, "big") + bytes(size) for size in sizes)
    data = b"\xff" * 3 + data[: rng.choice([None, -3, -5])]
    frames = find_frames(np.frombuffer(data, np.uint8), 3, 3)

    assert _plain_loop(data, 3, 3) == (frames.offsets.tolist(), frames.sizes.tolist(), frames.end)


@pytest.mark.parametrize("seed", range(40))
def test_find_frames_with_padding(seed: int) -> None:
    """Whole paddings are passed by, wherever they stand; one that is cut or negative ends it."""
    rng = random.Random(seed)
    data, expected = b"", []
    while len(expected) < rng.choice([20, 300, 9000]):
        size = rng.randrange(1, 40)
        for _ in range(rng.choice([1, 1, 63, 64, 65, 5000])):
            expected.append((len(data) + 4, size))
            data += size.to_bytes(4, "big") + bytes(size)
            if rng.random() < (0.005, 0.7)[seed % 5 == 0]:
                zeros = rng.choice([0, 1, 30])
                data += b"\xff\xff\xff\0" + zeros.to_bytes(4, "big") + bytes(zeros)
    end = len(data)
    ends = ["", "ff", "ffffff00", "ffffff00000000", "ffffff0000000001", "ffffff00ffffffff00"]
    data += bytes.fromhex(rng.choice(ends))
    frames = find_frames(np.frombuffer(data, np.uint8), padding=-0x100)

    assert expected == list(zip(frames.offsets.tolist(), frames.sizes.tolist()))
    assert end == frames.end
    assert find_frames(np.frombuffer(data, np.uint8)).end <= end


@pytest.mark.parametrize("hex_data", ["", "00", "000000", "00000000", "ffffffff", "0000000501"])
def test_no_frames(hex_data: str) -> None:
    """No bytes, zero, negative and cut sizes are no frames."""
    frames = find_frames(np.frombuffer(bytes.fromhex(hex_data), np.uint8))

    assert ([], 0) == (frames.offsets.tolist(), frames.end)


@pytest.mark.parametrize("length", [0, 1, 4095, 4096, 4097, 50_000])
def test_run_end(length: int) -> None:
    """A run of equal bytes ends before the first other one, or with the data."""
    data = np.frombuffer(b"x" + b"\xf0" * length + b"yx", np.uint8)

    assert 1 + length == run_end(data, 1, 0xF0)
    assert 1 + length == run_end(data[: 1 + length], 1, 0xF0)


# -- refusals


def test_order_of_checks() -> None:
    """Length, then digest, then ledger, then entry id, as `verifyDigest` has it."""
    coder = Coder("CRC32C", PASSWORD)
    record = coder.encode(Entry(1, 0, -1, 5, b"hello"))
    flipped = record[:40] + b"\0" + record[41:]

    with pytest.raises(
        CorruptionError, match="entry of 35 bytes: header and CRC32C digest need 36"
    ):
        coder.decode(record[:35], 2, 1)
    with pytest.raises(CorruptionError, match="CRC32C digest of entry 0 does not match"):
        coder.decode(flipped, 2, 1)
    with pytest.raises(CorruptionError, match="entry of ledger 1, not 2"):
        coder.decode(record, 2, 1)
    with pytest.raises(CorruptionError, match="entry 0, not 1"):
        coder.decode(record, 1, 1)

    assert b"hello" == coder.decode(record, 1, 0).payload


@pytest.mark.parametrize("kind", ["CRC32", "HMAC", "CRC32C"])
@pytest.mark.parametrize("ledger", [1, SCOPED])
def test_every_flipped_bit_is_noticed(ledger: int | LedgerId, kind: str) -> None:
    """No bit of a record can change without the digest, or the form, telling."""
    record = encode(Entry(ledger, 2, 1, 5, b"hello"), kind, PASSWORD)
    for bit in range(8 * len(record)):
        damaged = bytearray(record)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptionError):
            decode(bytes(damaged), kind, PASSWORD)


def test_wrong_password_and_type() -> None:
    """HMAC tells another password; another type does not match; version 2 says which it is."""
    record = encode(Entry(1, 0, -1, 5, b"hello"), "HMAC", PASSWORD)
    with pytest.raises(CorruptionError, match="HMAC digest"):
        decode(record, "HMAC", "other")
    with pytest.raises(CorruptionError, match="CRC32 digest"):
        decode(record, "CRC32")
    with pytest.raises(CorruptionError, match="entry has digest HMAC, not CRC32C"):
        decode(encode(Entry(SCOPED, 0, -1, 5, b"hello"), "HMAC", PASSWORD), "CRC32C")


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (b"", "entry of 0 bytes: its header needs 32"),
        (bytes(31), "entry of 31 bytes: its header needs 32"),
        (b"\xa3" + bytes(39), "entry of 40 bytes: its header needs 41"),
        (b"\xa0" + bytes(40), "first byte 0xa0"),
        (b"\xa5" + bytes(40), "first byte 0xa5"),
        (b"\x83" + bytes(40), "first byte 0x83"),
        (b"\xff" + bytes(40), "first byte 0xff"),
        (b"\xa3" + bytes(40), "version 2 record of scope 0"),
    ],
)
def test_no_entries(record: bytes, reason: str) -> None:
    """What is no entry's form is damage with that reason; nothing is guessed."""
    with pytest.raises(CorruptionError, match=re.escape(reason)):
        record_header(record)
    with pytest.raises(CorruptionError, match=re.escape(reason)):
        decode(record)


@given(st.binary(max_size=80))
def test_any_bytes(data: bytes) -> None:
    """Any bytes decode, or are `CorruptionError`."""
    for kind in (None, *KINDS):
        try:
            entry = decode(data, kind, PASSWORD)
        except CorruptionError:
            continue
        if kind is not None and entry.entry_id >= 0 and entry.lac >= -1 and entry.length >= 0:
            assert data == encode(entry, kind, PASSWORD)


@pytest.mark.parametrize(
    "entry",
    [
        Entry(1, -1, -1, 0, b""),
        Entry(1, 2**63 - 1, -1, 0, b""),
        Entry(1, 0, -2, 0, b""),
        Entry(1, 0, 2**63 - 1, 0, b""),
        Entry(1, 0, -1, -1, b""),
        Entry(1, 0, -1, 2**63, b""),
        Entry(2**63, 0, -1, 0, b""),
    ],
)
def test_what_is_not_encoded(entry: Entry) -> None:
    """Numbers outside their ranges are the caller's error."""
    with pytest.raises(InvalidArgument):
        encode(entry, "DUMMY")


# -- explicit LACs


@given(ledger_ids, st.integers(-1, 2**63 - 2), st.sampled_from(KINDS))
def test_explicit_lac(ledger: LedgerId, lac: int, kind: str) -> None:
    """Ledger, LAC, digest over these; flags and scope first for other scopes; both ways."""
    body = encode_explicit_lac(ledger, lac, kind, PASSWORD)
    fields = ledger.ledger.to_bytes(8, "big") + lac.to_bytes(8, "big", signed=True)
    if ledger.scope:
        flags = bytes([0xA1 + KINDS.index(kind)])
        fields = flags + ledger.scope.to_bytes(8, "big") + fields

    assert fields + _digest(kind, fields) == body
    assert (ledger, lac) == decode_explicit_lac(body, kind, PASSWORD) == decode_explicit_lac(body)


def test_explicit_lac_damage() -> None:
    """Cut bodies, digests that do not match, impossible first bytes and LACs are refused."""
    body = encode_explicit_lac(1, 4, "CRC32C")
    for damaged in (
        body[:15],
        body[:-1],
        body[:-1] + b"\0",
        b"\xa0" + bytes(30),
        b"\xa3" + bytes(5),
    ):
        with pytest.raises(CorruptionError):
            decode_explicit_lac(damaged, "CRC32C")
    for lac in (-2, 2**63 - 1):
        with pytest.raises(InvalidArgument):
            encode_explicit_lac(1, lac, "DUMMY")


# -- the page


@pytest.mark.parametrize("kind", KINDS)
def test_page_version_1(kind: str) -> None:
    """The page's records of scope 0 are what is encoded, and decode."""
    entry = Entry(LedgerId.of(0x1234), 0, -1, 5, b"hello")
    shown = shown_bytes("entry.md", f"v1-{kind.lower()}")

    assert shown == encode(entry, kind, PASSWORD)
    assert entry == decode(shown, kind, PASSWORD)


def test_page_version_2() -> None:
    """So is that of another scope, and so are the explicit LACs."""
    entry = Entry(SCOPED, 3, 2, 40, b"hello")
    lacs: Any = {"explicit-lac": LedgerId.of(0x1234), "explicit-lac-v2": SCOPED}

    assert shown_bytes("entry.md", "v2") == encode(entry, "CRC32C", PASSWORD)
    for name, ledger in lacs.items():
        assert shown_bytes("entry.md", name) == encode_explicit_lac(ledger, 2, "CRC32C", PASSWORD)


def test_page_refusals() -> None:
    """Each record that the page says is refused is refused with that reason."""
    rows = [line.split(" ; ") for line in shown_text("entry.md", "refused").splitlines()]

    assert 4 <= len(rows)
    for shown, reason in rows:
        with pytest.raises(CorruptionError, match=re.escape(reason)):
            decode(hex_bytes(shown), "CRC32C")
