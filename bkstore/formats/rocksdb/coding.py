"""The integers and strings of RocksDB's files: little-endian, or base-128 ("varints"), low bits
first. Source: `util/coding.h`."""

from __future__ import annotations

from bkstore.errors import CorruptionError

MAX_VARINT_BYTES = 10  # of 64 bits


def read_varint(data: bytes | memoryview, offset: int) -> tuple[int, int]:
    """Return (value, offset after it) of a base-128 integer of at most 64 bits. Raises
    `CorruptionError` if it runs past the end of `data`, or is longer.

    >>> read_varint(bytes([0x96, 0x01]), 0)
    (150, 2)
    """
    value = shift = 0
    for position in range(offset, min(offset + MAX_VARINT_BYTES, len(data))):
        value |= (data[position] & 0x7F) << shift
        if data[position] < 0x80:
            if value >> 64:
                break
            return value, position + 1
        shift += 7
    raise CorruptionError(None, offset, "integer runs past its record")


def read_signed_varint(data: bytes | memoryview, offset: int) -> tuple[int, int]:
    """Return (value, offset after it) of a signed integer, in zigzag form. Raises as `read_varint`.

    >>> read_signed_varint(bytes([3]), 0)
    (-2, 1)
    """
    zigzag, end = read_varint(data, offset)
    return (zigzag >> 1) ^ -(zigzag & 1), end


def read_string(data: bytes | memoryview, offset: int) -> tuple[bytes, int]:
    """Return (bytes, offset after them) of a string: its length as a varint, then its bytes.
    Raises `CorruptionError` if it runs past the end of `data`.

    >>> read_string(b"\\x02ab!", 0)
    (b'ab', 3)
    """
    length, start = read_varint(data, offset)
    if length > len(data) - start:
        raise CorruptionError(None, offset, f"text of {length} bytes runs past its record")
    return bytes(data[start : start + length]), start + length


def read_uint(data: bytes | memoryview, offset: int, size: int) -> int:
    """Return the little-endian integer of `size` bytes at `offset`. Raises `CorruptionError` if it
    runs past the end of `data`.

    >>> read_uint(bytes([1, 2, 0, 0]), 0, 4)
    513
    """
    if not 0 <= offset <= len(data) - size:
        raise CorruptionError(None, offset, f"integer of {size} bytes runs past its record")
    return int.from_bytes(data[offset : offset + size], "little")


def encode_varint(value: int) -> bytes:
    """Return the base-128 form of an integer of at most 64 bits.

    >>> encode_varint(150).hex()
    '9601'
    """
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
