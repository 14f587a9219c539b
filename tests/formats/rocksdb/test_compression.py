"""Compressed blocks, made by other encoders: pyarrow's, zlib's and bzip2's."""

from __future__ import annotations

import bz2
import zlib

import numpy as np
import pyarrow as pa
import pytest

from bkstore.errors import CorruptionError, UnsupportedLayout
from bkstore.formats.rocksdb.coding import encode_varint
from bkstore.formats.rocksdb.compression import (
    CompressionType,
    contents_size,
    decompress_into,
    parse_compression,
)

CONTENTS = np.random.default_rng(1).integers(0, 3, 3000, np.uint8).tobytes()


def _deflate(data: bytes) -> bytes:
    deflater = zlib.compressobj(wbits=-14)
    return deflater.compress(data) + deflater.flush()


ENCODERS = {
    CompressionType.NONE: bytes,
    CompressionType.SNAPPY: lambda data: pa.Codec("snappy").compress(data).to_pybytes(),
    CompressionType.ZLIB: _deflate,
    CompressionType.BZIP2: bz2.compress,
    CompressionType.LZ4: lambda data: pa.Codec("lz4_raw").compress(data).to_pybytes(),
    CompressionType.LZ4HC: lambda data: pa.Codec("lz4_raw", 9).compress(data).to_pybytes(),
    CompressionType.ZSTD: lambda data: pa.Codec("zstd").compress(data).to_pybytes(),
}


def _compress(compression: CompressionType, data: bytes) -> bytes:
    has_size = compression not in (CompressionType.NONE, CompressionType.SNAPPY)
    return (encode_varint(len(data)) if has_size else b"") + ENCODERS[compression](data)


def _decompress(compression: CompressionType, block: bytes, size: int | None = None) -> bytes:
    stated_size, offset = contents_size(compression, block)
    output = np.zeros(stated_size if size is None else size, np.uint8)
    decompress_into(compression, memoryview(block)[offset:], output)
    return output.tobytes()


@pytest.mark.parametrize("compression", CompressionType)
@pytest.mark.parametrize("contents", [CONTENTS, b"", b"a"], ids=["long", "empty", "byte"])
def test_blocks_come_back(compression: CompressionType, contents: bytes) -> None:
    """The size stands in front, or in Snappy's own form; the contents come back."""
    assert contents == _decompress(compression, _compress(compression, contents))


@pytest.mark.parametrize("compression", CompressionType)
@pytest.mark.parametrize("by", [-1, 1])
def test_another_size_is_refused(compression: CompressionType, by: int) -> None:
    """Contents longer or shorter than stated are damage."""
    with pytest.raises(CorruptionError, match=r"cannot be decompressed|bytes of contents"):
        _decompress(compression, _compress(compression, CONTENTS), len(CONTENTS) + by)


@pytest.mark.parametrize("compression", set(CompressionType) - {CompressionType.NONE})
def test_truncated_blocks_are_refused(compression: CompressionType) -> None:
    """A block that lost bytes at its end is damage, not shorter contents."""
    block = _compress(compression, CONTENTS)
    for length in {0, 1, 2, 3, len(block) // 2, len(block) - 1}:
        with pytest.raises(CorruptionError):
            _decompress(compression, block[:length], len(CONTENTS))


def test_persisted_numbers() -> None:
    """The numbers of `include/rocksdb/compression_type.h`."""
    expected = {0: "NONE", 1: "SNAPPY", 2: "ZLIB", 3: "BZIP2", 4: "LZ4", 5: "LZ4HC", 7: "ZSTD"}

    assert expected == {code: parse_compression(code).name for code in expected}
    for code in (6, 0x40, 0x80, 0xFE):
        with pytest.raises(UnsupportedLayout, match="not supported"):
            parse_compression(code)
    for code in (8, 0x7F, 0xFF):
        with pytest.raises(CorruptionError, match="unknown compression"):
            parse_compression(code)
