"""Checksums of RocksDB's files, against published values and the rules of `table/format.cc`."""

from __future__ import annotations

import pytest

from bkstore.formats.rocksdb.checksums import (
    ChecksumType,
    checksum_of,
    context_modifier,
    masked_crc32c,
)


def test_masked_crc() -> None:
    """RFC 3720's CRC-32C of 32 zeros, rotated right by 15 bits, plus the constant."""
    crc = 0x8A9136AA
    rotated = int(f"{crc:032b}"[-15:] + f"{crc:032b}"[:-15], 2)

    assert (rotated + 0xA282EAD8) % 2**32 == masked_crc32c(bytes(32))


# Of the empty string and "abc", from the published test vectors of each function.
PUBLISHED = {
    ChecksumType.NONE: (0, 0),
    ChecksumType.XXH32: (0x02CC5D05, 0x32D153FF),
    ChecksumType.XXH64: (0xEF46DB3751D8E999 % 2**32, 0x44BC2CF5AD770999 % 2**32),
}


@pytest.mark.parametrize("checksum_type", PUBLISHED)
def test_published_values(checksum_type: ChecksumType) -> None:
    """The low 32 bits of the function, over all bytes."""
    assert PUBLISHED[checksum_type] == (
        checksum_of(checksum_type, b""),
        checksum_of(checksum_type, memoryview(b"abc")),
    )


def test_xxh3_mixes_the_last_byte_in() -> None:
    """XXH3 of all bytes but the last; the last one times a prime is mixed in. XXH3 of nothing is
    0x2d06800538d394c2."""
    assert 0 == checksum_of(ChecksumType.XXH3, b"")
    assert 0x38D394C2 == checksum_of(ChecksumType.XXH3, b"\x00")
    assert 0x38D394C2 ^ 0x6B9083D9 == checksum_of(ChecksumType.XXH3, b"\x01")
    assert 0x38D394C2 ^ (0x6B9083D9 * 255 % 2**32) == checksum_of(ChecksumType.XXH3, b"\xff")


def test_crc_of_a_block() -> None:
    """The checksum of a block is masked too."""
    assert masked_crc32c(b"block") == checksum_of(ChecksumType.CRC32C, memoryview(b"block"))


def test_context_modifiers() -> None:
    """Base ^ (low word of the offset + high word); nothing without a base."""
    assert 0 == context_modifier(0, 12345)
    assert 0xFFFFFFFF ^ 7 == context_modifier(0xFFFFFFFF, 7)
    assert 1 ^ 8 == context_modifier(1, (3 << 32) + 5)
    assert 1 ^ 0 == context_modifier(1, (1 << 32) + 0xFFFFFFFF)  # the sum overflows
