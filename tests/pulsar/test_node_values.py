"""Values of Pulsar's nodes: all forms are decoded, all others are refused with their offset."""

from __future__ import annotations

import contextlib
import struct
import tracemalloc

import pytest
from hypothesis import given, strategies as st

from bkstore.errors import CorruptionError
from bkstore.pulsar.node_values import (
    CursorValue,
    ListedLedger,
    SchemaVersions,
    decode_cursor,
    decode_managed_ledger,
    decode_schema_locator,
)
from tests.docs.format_pages import shown_bytes
from tests.pulsar.samples import (
    CODECS,
    cursor,
    field,
    listed,
    locator,
    managed_ledger,
    packed,
    varint,
)

LEDGERS = managed_ledger(
    7,
    listed(2**40, offloaded=True),
    listed(9, offloaded=True, deleted=True),
    listed(0, offloaded=False, deleted=True),
)
EXPECTED = [
    ListedLedger(7),
    ListedLedger(2**40, offloaded=True),
    ListedLedger(9, offloaded=True, bookkeeper_deleted=True),
    ListedLedger(0, bookkeeper_deleted=True),
]


def test_managed_ledger() -> None:
    """The ledgers are listed in order; fields that newer versions have are passed over."""
    terminated = field(2, field(1, 9) + field(2, 3)) + field(3, field(1, "key") + field(2, "value"))
    newer = field(17, "x") + field(1, listed(5) + field(30, 1))

    assert EXPECTED == decode_managed_ledger(LEDGERS)
    assert EXPECTED == decode_managed_ledger(LEDGERS + terminated)
    assert [*EXPECTED, ListedLedger(5)] == decode_managed_ledger(LEDGERS + newer)
    assert [] == decode_managed_ledger(b"")
    assert [] == decode_managed_ledger(terminated)


@pytest.mark.parametrize("codec", CODECS)
def test_compressed(codec: str) -> None:
    """Each of the five compressions, of short and long values."""
    many = managed_ledger(*range(1000))

    assert EXPECTED == decode_managed_ledger(packed(LEDGERS, codec))
    assert [ListedLedger(number) for number in range(1000)] == decode_managed_ledger(
        packed(many, codec)
    )
    assert [] == decode_managed_ledger(packed(b"", codec))
    assert CursorValue(5, 6) == decode_cursor(packed(cursor(5, 6), codec))


def test_cursor() -> None:
    """A cursor's ledger, the compacted one, and the buckets of delayed messages."""
    buckets = {
        "#pulsar.internal.delayed.bucket_1_5": "77",
        "#pulsar.internal.delayed.bucket_6_9": "78",
        "note": "79",
    }
    other = field(5, field(1, "other") + field(2, 8))

    assert CursorValue(9) == decode_cursor(cursor(9))
    assert CursorValue(0, 0) == decode_cursor(cursor(0, 0))
    assert CursorValue(None, 12) == decode_cursor(cursor(-1, 12) + other)
    assert CursorValue(None) == decode_cursor(cursor(-1, -1))
    assert CursorValue(9, None, (77, 78)) == decode_cursor(cursor(9, **buckets))
    with pytest.raises(CorruptionError, match="has no ledger"):
        decode_cursor(cursor(9, **{"#pulsar.internal.delayed.bucket_1_5": "x"}))
    largest = {"#pulsar.internal.delayed.bucket_1_5": str(2**63 - 1)}

    assert (2**63 - 1,) == decode_cursor(cursor(9, **largest)).buckets
    with pytest.raises(CorruptionError, match="has ledger 9223372036854775808"):
        decode_cursor(cursor(9, **{"#pulsar.internal.delayed.bucket_1_5": str(2**63)}))


def test_schema_locator() -> None:
    """Each version's ledger, once; -1 is no ledger."""
    assert SchemaVersions((8, 6, 7), 0) == decode_schema_locator(locator(6, 7, 8))
    assert SchemaVersions((6,), 3) == decode_schema_locator(locator(6, 6, first_version=3))
    assert SchemaVersions((0,), 0) == decode_schema_locator(locator(-1, 0))
    for data in (b"", packed(locator(6), "none")):  # locators are not compressed
        with pytest.raises(CorruptionError):
            decode_schema_locator(data)


@pytest.mark.parametrize(
    ("data", "offset", "reason"),
    [
        (b"garbage", 0, "does not parse"),
        (LEDGERS[:-1], 0, "does not parse"),
        (b"\x4778", 0, "does not parse"),
        (field(1, 7), 0, "with another type"),
        (field(1, field(1, "x")), 0, "with another type"),
        (field(1, field(1, 7) + field(5, 1)), 0, "with another type"),
        (field(1, field(2, 7)), 0, "lacks"),
        (field(19, 7), 0, "no known field"),
        (field(1, field(1, -7)), None, "negative"),
        (b"\x47\x78", 2, "ends in the size"),
        (b"\x47\x78\x00\x00\x00", 2, "ends in the size"),
        (b"\x47\x78\x00\x00\x00\x05\x08\x01", 2, "head of 5 bytes"),
        (b"\x47\x78\xff\xff\xff\xff", 2, "head of 4294967295 bytes"),
        (b"\x47\x78\x00\x00\x00\x01\x0f", 6, "head does not parse"),
        (b"\x47\x78" + struct.pack(">I", 2) + field(1, 5), 6, "unknown compression type 5"),
        (b"\x47\x78" + struct.pack(">I", 6) + field(2, 2**31 - 1), 6, "not valid"),
        (packed(LEDGERS, "none") + b"x", 10, "the head states"),
    ],
)
def test_damage(data: bytes, offset: int | None, reason: str) -> None:
    """Bytes that are no managed ledger are refused, also where the parser accepts them."""
    with pytest.raises(CorruptionError, match=reason) as caught:
        decode_managed_ledger(data)

    assert offset == caught.value.offset


@pytest.mark.parametrize("codec", [name for name in CODECS if name != "none"])
def test_damaged_bodies(codec: str) -> None:
    """A compressed body that is cut, too long, or garbage is refused; so is a false size."""
    data = packed(LEDGERS, codec)
    number = CODECS[codec][0]
    head = field(1, number)
    for size in (0, len(LEDGERS) - 1, len(LEDGERS) + 1):
        false_head = head + field(2, size)
        false = b"\x47\x78" + struct.pack(">I", len(false_head)) + false_head + data[10:]
        with pytest.raises(CorruptionError):
            decode_managed_ledger(false)
    for cut in (data[:-1], data[:10], data[:10] + b"\x00garbage"):
        with pytest.raises(CorruptionError):
            decode_managed_ledger(cut)


@pytest.mark.parametrize("codec", sorted(CODECS))
def test_compressible_values(codec: str) -> None:
    """The most compressible value is decoded, and a size that its body cannot have is refused
    before so many bytes are allocated."""
    value = field(3, field(1, "k") + field(2, "x" * 1_000_000))

    assert [] == decode_managed_ledger(packed(value, codec))
    head = field(1, CODECS[codec][0]) + field(2, 256 << 20)
    claim = b"\x47\x78" + struct.pack(">I", len(head)) + head + b"\0" * 50
    tracemalloc.start()
    with pytest.raises(CorruptionError, match="size 268435456 is not valid for 50 bytes"):
        decode_managed_ledger(claim)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


@pytest.mark.parametrize("text", [b"\xff", b"x\xc3"])
def test_strings_that_are_not_utf8(text: bytes) -> None:
    """A name that is not UTF-8 is damage, in each message that has names."""
    for decode, value in (
        (decode_cursor, field(1, 5) + field(5, field(1, text) + field(2, 1))),
        (decode_cursor, field(1, 5) + field(8, field(1, text) + field(2, "7"))),
        (decode_cursor, field(1, 5) + field(8, field(1, "k") + field(2, text))),
        (decode_managed_ledger, field(1, field(1, 5)) + field(3, field(1, text) + field(2, "v"))),
    ):
        with pytest.raises(CorruptionError, match=r"does not parse: .*utf-8"):
            decode(value)


@given(st.binary(max_size=40))
def test_any_bytes(data: bytes) -> None:
    """Any bytes are decoded or refused; nothing else is raised."""
    for value in (data, b"\x47\x78" + data, packed(data, "none")):
        for decode in (decode_managed_ledger, decode_cursor, decode_schema_locator):
            with contextlib.suppress(CorruptionError):
                decode(value)


def test_varints() -> None:
    """The samples' own encoder writes what protobuf's page on encoding shows."""
    assert (b"\x96\x01", b"\x08\x96\x01") == (varint(150), field(1, 150))
    assert bytes.fromhex("120774657374696e67") == field(2, "testing")


def test_page() -> None:
    """The examples of the page are what it says."""
    topic = shown_bytes("pulsar.md", "managed-ledger")
    expected = [ListedLedger(7), ListedLedger(300, offloaded=True, bookkeeper_deleted=True)]

    assert expected == decode_managed_ledger(topic)
    assert expected == decode_managed_ledger(shown_bytes("pulsar.md", "compressed"))
    assert CursorValue(9, 12) == decode_cursor(shown_bytes("pulsar.md", "cursor"))
