"""The footer of a table file: its last 53 bytes. Source: `table/format.cc` (`Footer`).

u8              checksum type
40 bytes        up to format version 5: handles of metaindex and index (varints), zeros
                from 6 on: magic 3e007a00, checksum of the footer, base checksum, size of the
                metaindex (u32 each); 16 reserved bytes, 8 zeros
u32, u64        format version, magic
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from bkstore.errors import CorruptionError, UnsupportedLayout
from bkstore.formats.rocksdb.checksums import ChecksumType, checksum_of, context_modifier
from bkstore.formats.rocksdb.coding import encode_varint, read_uint, read_varint

FOOTER_BYTES = 53
TRAILER_BYTES = 5  # after each block: u8 compression, u32 checksum

MAGIC = 0x88E241B785F4CFF7
_OTHER_MAGICS = {
    0xDB4775248B80FB57: "a block-based table of RocksDB before 2.8 or LevelDB",
    0x8242229663BF9564: "a plain table",
    0x4F3418EB7A8F13B8: "a plain table",
    0x926789D0C5F17873: "a cuckoo table",
}
_EXTENDED_MAGIC = bytes.fromhex("3e007a00")
_FIRST_VERSION, _FIRST_EXTENDED_VERSION, _LAST_VERSION = 2, 6, 6
_CHECKSUM, _BASE, _METAINDEX_SIZE, _RESERVED = 5, 9, 13, 33
_VERSION, _MAGIC = 41, 45


class BlockHandle(NamedTuple):
    """Where a block is in its file, and the size of its contents as stored, without trailer."""

    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Footer:
    """The fields of a footer. `index` is None from format version 6 on: the metaindex has its
    handle. `base_checksum` is part of the checksums of those versions' blocks, else 0."""

    checksum_type: ChecksumType
    format_version: int
    metaindex: BlockHandle
    index: BlockHandle | None
    base_checksum: int


def read_handle(data: bytes, offset: int) -> tuple[BlockHandle, int]:
    """Return (handle, offset after it). Raises `CorruptionError` if it is not there.

    >>> read_handle(bytes([0x80, 0x01, 0x05]), 0)
    (BlockHandle(offset=128, size=5), 3)
    """
    block_offset, position = read_varint(data, offset)
    size, position = read_varint(data, position)
    return BlockHandle(block_offset, size), position


def decode_footer(tail: bytes, file_bytes: int) -> Footer:
    """Return the footer of a table file of `file_bytes` bytes that ends with `tail`: the type of
    checksums, and the handles (offset and size) of the blocks from which all others are found.
    Raises `CorruptionError` (offsets in the file) if it is invalid or its blocks are outside the
    file, and `UnsupportedLayout` for other kinds of tables and for unknown format versions."""
    start = file_bytes - FOOTER_BYTES
    if len(tail) < FOOTER_BYTES or start < 0:
        raise CorruptionError(None, 0, f"table file of {file_bytes} bytes has no footer")
    footer = tail[-FOOTER_BYTES:]
    magic = read_uint(footer, _MAGIC, 8)
    if magic != MAGIC:
        if magic in _OTHER_MAGICS:
            raise UnsupportedLayout(f"{_OTHER_MAGICS[magic]} is not supported")
        raise CorruptionError(None, start + _MAGIC, f"not a table file: magic {magic:#x}")
    version = read_uint(footer, _VERSION, 4)
    if not _FIRST_VERSION <= version <= _LAST_VERSION:
        raise UnsupportedLayout(f"table file of format version {version} is not supported")
    try:
        checksum_type = ChecksumType(footer[0])
    except ValueError:
        raise CorruptionError(None, start, f"unknown checksum type {footer[0]}") from None
    # Later format versions have a checksum in the footer, and one handle in place of two.
    try:
        if version < _FIRST_EXTENDED_VERSION:
            decoded = _decode_handles(footer, checksum_type, version)
        else:
            decoded = _decode_extended(footer, checksum_type, version, start)
    except CorruptionError as error:
        raise CorruptionError(None, start, error.reason) from None
    for handle in (decoded.metaindex, decoded.index):
        check_handle(handle, start)
    return decoded


def check_handle(handle: BlockHandle | None, end: int) -> None:
    """Raise `CorruptionError` if the block, with its trailer, is not before offset `end`."""
    if handle is not None and not (0 <= handle.offset <= end - TRAILER_BYTES - handle.size):
        reason = f"block of {handle.size} bytes at {handle.offset} is not inside the file"
        raise CorruptionError(None, end, reason)


def _decode_handles(footer: bytes, checksum_type: ChecksumType, version: int) -> Footer:
    """Return a footer of format version 5 or before."""
    metaindex, position = read_handle(footer[:_VERSION], 1)
    index, _ = read_handle(footer[:_VERSION], position)
    return Footer(checksum_type, version, metaindex, index, 0)


def _decode_extended(
    footer: bytes, checksum_type: ChecksumType, version: int, start: int
) -> Footer:
    """Return a footer of format version 6 or later, which begins at offset `start` of its file. It
    states only the size of the metaindex block, which is directly before it; that block has the
    handle of the index."""
    if footer[1:_CHECKSUM] != _EXTENDED_MAGIC:
        raise CorruptionError(None, None, f"footer has magic {footer[1:_CHECKSUM].hex()}")
    base_checksum = read_uint(footer, _BASE, 4)
    if base_checksum == 0:
        raise CorruptionError(None, None, "footer has no base checksum")
    without_checksum = footer[:_CHECKSUM] + bytes(4) + footer[_BASE:]
    computed = checksum_of(checksum_type, without_checksum)
    computed = computed + context_modifier(base_checksum, start) & 0xFFFFFFFF
    if computed != read_uint(footer, _CHECKSUM, 4):
        raise CorruptionError(None, None, "footer fails its checksum")
    if any(footer[_RESERVED:_VERSION]):
        raise UnsupportedLayout("table file with a feature of a later RocksDB is not supported")
    size = read_uint(footer, _METAINDEX_SIZE, 4)
    metaindex = BlockHandle(start - TRAILER_BYTES - size, size)
    return Footer(checksum_type, version, metaindex, None, base_checksum)


def encode_handle(handle: BlockHandle) -> bytes:
    """Return a handle as it stands in a footer or a block.

    >>> encode_handle(BlockHandle(128, 5)).hex()
    '800105'
    """
    return encode_varint(handle.offset) + encode_varint(handle.size)


def encode_footer(footer: Footer) -> bytes:
    """Return the bytes of a footer of format version 5 or before."""
    if footer.format_version >= _FIRST_EXTENDED_VERSION or footer.index is None:
        raise ValueError(f"footers of format version {footer.format_version} are not written")
    handles = encode_handle(footer.metaindex) + encode_handle(footer.index)
    version_and_magic = footer.format_version.to_bytes(4, "little") + MAGIC.to_bytes(8, "little")
    return bytes([footer.checksum_type]) + handles.ljust(_VERSION - 1, b"\0") + version_and_magic
