"""The checksums of RocksDB's files: of log records (masked CRC-32C), and of the blocks and footers
of table files, by the type that the footer names. Source: `table/format.cc`
(`ComputeBuiltinChecksumWithLastByte`, `ChecksumModifierForContext`), `util/crc32c.h`."""

from __future__ import annotations

from enum import IntEnum

import google_crc32c
import xxhash

_UINT32_MASK = 0xFFFFFFFF
_MASK_DELTA = 0xA282EAD8
_LAST_BYTE_PRIME = 0x6B9083D9


class ChecksumType(IntEnum):
    """How the blocks of a table file are checked; persisted in its footer."""

    NONE = 0
    CRC32C = 1
    XXH32 = 2
    XXH64 = 3
    XXH3 = 4


def mask_crc(crc: int) -> int:
    """Return a CRC as RocksDB stores it: rotated by 15 bits, plus a constant.

    >>> hex(mask_crc(0))
    '0xa282ead8'
    """
    return ((crc >> 15 | crc << 17) & _UINT32_MASK) + _MASK_DELTA & _UINT32_MASK


def masked_crc32c(data: bytes) -> int:
    """Return the stored form of the CRC-32C of `data`.

    >>> hex(masked_crc32c(b"123456789"))  # CRC-32C 0xe3069283
    '0xc78ab0e5'
    """
    return mask_crc(google_crc32c.value(data))


def checksum_of(checksum_type: ChecksumType, data: bytes | memoryview) -> int:
    """Return the 32-bit checksum that a table file has for a block: `data` is the block as stored,
    with its compression type as last byte. 0 for `ChecksumType.NONE`.

    >>> hex(checksum_of(ChecksumType.XXH32, b"abc"))
    '0x32d153ff'
    """
    if checksum_type is ChecksumType.XXH32:
        return xxhash.xxh32_intdigest(data)
    if checksum_type is ChecksumType.CRC32C:
        return masked_crc32c(bytes(data))
    if checksum_type is ChecksumType.XXH64:
        return xxhash.xxh64_intdigest(data) & _UINT32_MASK
    if checksum_type is ChecksumType.XXH3:
        if not len(data):
            return 0
        # RocksDB hashes the block without its last byte, and mixes that in.
        low_word = xxhash.xxh3_64_intdigest(data[:-1]) & _UINT32_MASK
        return low_word ^ (data[-1] * _LAST_BYTE_PRIME & _UINT32_MASK)
    return 0


def context_modifier(base_checksum: int, offset: int) -> int:
    """Return what is added to the checksum of the block at `offset` of a file of format version 6
    or later. It depends on the file, by the `base_checksum` of its footer, and on the offset, so
    that a block in a wrong place fails. 0 if the base checksum is 0, as in older files.

    >>> context_modifier(5, 2**32 + 8), context_modifier(0, 8)
    (12, 0)
    """
    if base_checksum == 0:
        return 0
    return base_checksum ^ ((offset & _UINT32_MASK) + (offset >> 32) & _UINT32_MASK)
