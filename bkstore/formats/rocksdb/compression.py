"""The compressions of table files' blocks. From format version 2 on the size of the contents comes
first, as a varint; Snappy has it in its own form. Source: `util/compression.h`."""

from __future__ import annotations

import bz2
import zlib
from enum import IntEnum
from typing import Any

import cramjam
import numpy as np
import numpy.typing as npt

from bkstore.errors import CorruptionError, UnsupportedLayout
from bkstore.formats.rocksdb.coding import encode_varint, read_varint

_RAW_DEFLATE = -15  # no header, the largest window

ByteArray = npt.NDArray[np.uint8]


class CompressionType(IntEnum):
    """How a block is compressed; persisted in the byte after its contents."""

    NONE = 0
    SNAPPY = 1
    ZLIB = 2
    BZIP2 = 3
    LZ4 = 4
    LZ4HC = 5
    ZSTD = 7


_UNSUPPORTED = {6: "Xpress", 0x40: "ZSTD of a draft version"}


def parse_compression(code: int) -> CompressionType:
    """Return the compression with this persisted number. Raises `UnsupportedLayout` for one that
    is not read here, `CorruptionError` for a number that RocksDB does not have."""
    try:
        return CompressionType(code)
    except ValueError:
        pass
    if code in _UNSUPPORTED or 0x80 <= code < 0xFF:  # from 0x80 on: a custom compression manager
        what = _UNSUPPORTED.get(code, "a custom compression")
        raise UnsupportedLayout(f"compression type {code} ({what}) is not supported")
    raise CorruptionError(None, None, f"unknown compression type {code}")


def contents_size(compression: CompressionType, data: bytes | memoryview) -> tuple[int, int]:
    """Return (size of the contents of a compressed block, offset where its compressed bytes begin).
    Raises `CorruptionError` if the size is not there.

    >>> contents_size(CompressionType.LZ4, bytes([0x80, 0x20, 0]))
    (4096, 2)
    """
    if compression is CompressionType.NONE:
        return len(data), 0
    size, offset = read_varint(data, 0)
    return size, 0 if compression is CompressionType.SNAPPY else offset


def decompress_into(
    compression: CompressionType, data: bytes | memoryview, output: ByteArray
) -> None:
    """Decompress `data`, the bytes from `contents_size` on, into `output`: uint8[size of the
    contents]. Allocates no more than that. Raises `CorruptionError` if `data` is invalid or its
    contents have another size.

    >>> output = np.zeros(3, np.uint8)
    >>> decompress_into(CompressionType.NONE, b"abc", output)
    >>> output.tobytes()
    b'abc'
    """
    try:
        size = _decompressed_size(compression, data, output)
    except (cramjam.DecompressionError, zlib.error, OSError, EOFError, ValueError) as error:
        reason = f"block cannot be decompressed ({compression.name}): {error}"
        raise CorruptionError(None, None, reason) from None
    if size != output.size:
        reason = f"block has {size} bytes of contents ({compression.name}), not {output.size}"
        raise CorruptionError(None, None, reason)


def _decompressed_size(
    compression: CompressionType, data: bytes | memoryview, output: ByteArray
) -> int:
    """Decompress `data` into `output`, and return the number of its bytes. If they do not fit, that
    number is greater than the size of `output`, or an exception is raised."""
    source: Any = data
    target: Any = output
    if compression in (CompressionType.LZ4, CompressionType.LZ4HC):
        return int(cramjam.lz4.decompress_block_into(source, target))
    if compression is CompressionType.SNAPPY:
        return int(cramjam.snappy.decompress_raw_into(source, target))
    if compression is CompressionType.ZSTD:
        return int(cramjam.zstd.decompress_into(source, target))
    if compression is CompressionType.NONE:
        contents, is_complete = bytes(data), True
    elif compression is CompressionType.ZLIB:
        inflater = zlib.decompressobj(_RAW_DEFLATE)
        contents = inflater.decompress(data, output.size + 1)
        is_complete = inflater.eof
    else:
        unpacker = bz2.BZ2Decompressor()
        contents = unpacker.decompress(data, output.size + 1)
        is_complete = unpacker.eof
    if not is_complete:
        raise EOFError("it ends early, or is too long")
    if len(contents) == output.size:
        output[:] = np.frombuffer(contents, np.uint8)
    return len(contents)


def compress(compression: CompressionType, contents: bytes | memoryview) -> bytes:
    """Return the contents of a block as RocksDB compresses them at its default level; compressed
    bytes have the size of the contents before them. Raises `UnsupportedLayout` for compressions
    other than none and LZ4.

    >>> compress(CompressionType.LZ4, b"abc").hex()
    '0330616263'
    """
    source: Any = contents
    if compression is CompressionType.NONE:
        return bytes(contents)
    if compression is CompressionType.LZ4:
        import lz4.block  # only writers need it

        # With a dictionary, even an empty one, LZ4 searches matches by a table of 32-bit positions,
        # as in RocksDB. Without one it uses 16 bits for less than 64 KiB, and blocks of rows become
        # a third larger.
        packed: bytes = lz4.block.compress(source, store_size=False, dict=b"")
        return encode_varint(len(contents)) + packed
    raise UnsupportedLayout(f"blocks are not written with compression {compression.name}")
