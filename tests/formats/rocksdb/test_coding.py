"""Integers and strings of RocksDB's files, against the rules of `util/coding.h`."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from bkstore.errors import CorruptionError
from bkstore.formats.rocksdb.coding import (
    encode_varint,
    read_signed_varint,
    read_string,
    read_uint,
    read_varint,
)

# The protocol buffers' documentation has 150; the others are the ends of each length.
VARINTS = {
    0: "00",
    127: "7f",
    128: "8001",
    150: "9601",
    16383: "ff7f",
    2**32 - 1: "ffffffff0f",
    2**64 - 1: "ffffffffffffffffff01",
}


@pytest.mark.parametrize("value", VARINTS)
def test_varints(value: int) -> None:
    """Seven bits a byte, the lowest first, the top bit set in all but the last."""
    encoded = bytes.fromhex(VARINTS[value])

    assert encoded == encode_varint(value)
    assert (value, len(encoded) + 1) == read_varint(b"\x01" + encoded + b"\x00", 1)


@given(st.integers(0, 2**64 - 1))
def test_varints_come_back(value: int) -> None:
    """Each 64-bit integer comes back; its prefixes do not."""
    encoded = encode_varint(value)

    assert (value, len(encoded)) == read_varint(encoded, 0)
    with pytest.raises(CorruptionError, match="runs past its record"):
        read_varint(encoded[:-1], 0)


@pytest.mark.parametrize("encoded", ["ffffffffffffffffff02", "80" * 10 + "01"])
def test_varints_of_more_than_64_bits(encoded: str) -> None:
    """An integer beyond 64 bits is refused."""
    with pytest.raises(CorruptionError, match="runs past its record"):
        read_varint(bytes.fromhex(encoded), 0)


@pytest.mark.parametrize(("zigzag", "value"), [(0, 0), (1, -1), (2, 1), (3, -2), (4, 2)])
def test_signed_varints(zigzag: int, value: int) -> None:
    """Even codes are 0, 1, 2...; odd ones -1, -2..."""
    assert (value, 1) == read_signed_varint(bytes([zigzag]), 0)


def test_lowest_signed_varint() -> None:
    """The lowest 64-bit integer has the highest code."""
    assert (-(2**63), 10) == read_signed_varint(bytes.fromhex(VARINTS[2**64 - 1]), 0)


def test_strings_end_inside() -> None:
    """A string that ends with the data is read; one that is a byte longer is not."""
    assert (b"ab", 4) == read_string(b"!\x02ab", 1)
    assert (b"", 1) == read_string(b"\x00", 0)
    with pytest.raises(CorruptionError, match="text of 3 bytes") as caught:
        read_string(b"!\x03ab", 1)
    assert 1 == caught.value.offset


def test_fixed_integers_end_inside() -> None:
    """Four little-endian bytes, all of which must exist."""
    assert 0x04030201 == read_uint(bytes([9, 1, 2, 3, 4]), 1, 4)
    for offset in (-1, 2, 5):
        with pytest.raises(CorruptionError, match="integer of 4 bytes"):
            read_uint(bytes([9, 1, 2, 3, 4]), offset, 4)
