"""A stored block: its contents, compressed or not, then a trailer of u8 compression and u32
checksum over both. Source: `table/format.cc`, `table/block_fetcher.cc`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bkstore.errors import CorruptionError
from bkstore.formats.rocksdb.checksums import ChecksumType, checksum_of, context_modifier
from bkstore.formats.rocksdb.compression import (
    ByteArray,
    CompressionType,
    compress,
    contents_size,
    decompress_into,
    parse_compression,
)
from bkstore.formats.rocksdb.table.footer import TRAILER_BYTES, Footer

MAX_CONTENTS_BYTES = 1 << 30
"""The size of contents up to which memory is allocated. RocksDB's blocks are below 4 GiB, a
bookie's are some 64 KiB, and index and filter blocks in proportion to their file."""

_MAX_RATIO = 1 << 12
"""How many times larger than their stored bytes the contents may be: more than any of the
compressions reaches, except for contents of one repeated byte."""

_MAX_COMPRESSED_PER_KIB = 896
"""The size of a KiB of contents up to which a compressed block is stored as such."""


def verify_block(stored: bytes | memoryview, offset: int, footer: Footer) -> None:
    """Raise `CorruptionError` if a block fails its checksum. `stored` is the block with its trailer
    (compression type, checksum), `offset` its offset in the file. Files with `ChecksumType.NONE`
    have no checksums."""
    if footer.checksum_type is ChecksumType.NONE:
        return
    computed = checksum_of(footer.checksum_type, stored[:-4])
    computed = computed + context_modifier(footer.base_checksum, offset) & 0xFFFFFFFF
    if computed != int.from_bytes(stored[-4:], "little"):
        raise CorruptionError(None, offset, "block fails its checksum")


class BlockDescription(NamedTuple):
    """How a block is stored: its compression, the size of its contents, and where the compressed
    bytes begin."""

    compression: CompressionType
    contents_size: int
    data_offset: int


def describe_block(stored: bytes | memoryview, offset: int) -> BlockDescription:
    """Describe a block with its trailer, which is at `offset` of its file. Raises `CorruptionError`
    for a size that is missing or impossible, and `UnsupportedLayout` for a compression that is not
    read here."""
    try:
        compression = parse_compression(stored[-TRAILER_BYTES])
        size, data_offset = contents_size(compression, stored[:-TRAILER_BYTES])
    except CorruptionError as error:
        raise CorruptionError(None, offset, error.reason) from None
    if size > min(MAX_CONTENTS_BYTES, _MAX_RATIO * max(len(stored), 1)):
        reason = f"block of {len(stored)} bytes cannot have contents of {size} bytes"
        raise CorruptionError(None, offset, reason)
    return BlockDescription(compression, size, data_offset)


def unpack_into(
    stored: bytes | memoryview,
    offset: int,
    compression: CompressionType,
    data_offset: int,
    output: ByteArray,
) -> None:
    """Decompress a stored block into `output`, as `decompress_into`. `describe_block` has returned
    its compression, the offset of its compressed bytes, and the size of `output`."""
    try:
        decompress_into(compression, stored[data_offset:-TRAILER_BYTES], output)
    except CorruptionError as error:
        raise CorruptionError(None, offset, error.reason) from None


def unpack_block(stored: bytes | memoryview, offset: int, footer: Footer) -> bytes:
    """Return the contents of a block with its trailer, verified and decompressed. Raises
    `CorruptionError` (offset in the file) for damage, `UnsupportedLayout` for a compression that is
    not read here."""
    verify_block(stored, offset, footer)
    compression, size, data_offset = describe_block(stored, offset)
    contents = np.empty(size, np.uint8)
    unpack_into(stored, offset, compression, data_offset, contents)
    return contents.tobytes()


def pack_block(
    contents: bytes | memoryview, compression: CompressionType, checksum_type: ChecksumType
) -> bytes:
    """Return a block as stored, with its trailer, for format versions up to 5. As in RocksDB it is
    stored uncompressed if compression saves less than an eighth."""
    data: bytes | memoryview = contents
    if compression is not CompressionType.NONE:
        data = compress(compression, contents)
        if len(data) > len(contents) * _MAX_COMPRESSED_PER_KIB >> 10:
            data, compression = contents, CompressionType.NONE
    stored = bytes(data) + bytes([compression])
    return stored + checksum_of(checksum_type, stored).to_bytes(4, "little")
