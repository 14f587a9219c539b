"""The filter of a table file: which keys it may have. A Bloom filter whose bits for one key are all
in one line of 64 bytes. Source: `util/bloom_impl.h` (`FastLocalBloomImpl`),
`table/block_based/filter_policy.cc` (`FastLocalBloomBitsBuilder`, `GetBloomBitsReader`).

    u8[64] each     lines; the low half of a key's hash selects one, the high half its bits
    u8 255, u8 0    marker of this kind
    u8              number of probes; 3 upper bits for other sizes of lines
    u16             0

Files of format versions before 5 have another kind, and there are Ribbon filters: neither is
decoded, so their files may have any key.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bkstore.formats.rocksdb.compression import ByteArray
from bkstore.formats.rocksdb.table.key_hash import UInt64Array, hash_keys
from bkstore.ids import Int64Array

_LINE_BYTES = 64
_LINE_SHIFT = 9  # of a line's first bit
_METADATA_BYTES = 5
_MARKER = b"\xff\x00"
_MAX_PROBES = 30
_MAX_FILTER_BYTES = 0xFFFF_FFC0

_NEXT_PROBE = np.uint32(0x9E3779B9)
_BIT_SHIFT = np.uint32(32 - _LINE_SHIFT)
_HALF_BITS, _LOW_HALF = np.uint64(32), np.uint64(0xFFFFFFFF)

_PROBES_BY_MILLIBITS = (
    *(2080, 3580, 5100, 6640, 8300, 10_070),
    *(11_720, 14_001, 16_050, 18_300, 22_001, 25_501),
)
"""Up to so many thousandths of a bit a key, one probe more each."""

_CHUNK_HASHES = 1 << 14
_LINES_PER_PART = 1 << 11
"""At least so many lines have their bits set at a time, a byte each: 1 to 2 MiB, which stay in the
cache of the CPU."""

_LOW_WORD = 0 if sys.byteorder == "little" else 1  # of a hash, as two words


def choose_probes(millibits: int) -> int:
    """Return how many bits each key sets (probes), as RocksDB chooses by the size of the filter:
    `millibits` thousandths of a bit a key.

    >>> choose_probes(10_000), choose_probes(2000), choose_probes(28_000)
    (6, 1, 12)
    """
    for probes, limit in enumerate(_PROBES_BY_MILLIBITS, start=1):
        if millibits <= limit:
            return probes
    # More bits than the table has: RocksDB's rule, with at most 24 probes.
    return 24 if millibits > 50_000 else (millibits - 1) // 2000 - 1


class FilterBuilder:
    """Collects the keys of a table file and makes its filter. Memory: 8 bytes a key, and as many
    again in `finish`. Some 20 ns a key to add, 20 to finish."""

    def __init__(self, bits_per_key: float) -> None:
        self._bits_per_key = bits_per_key
        self._hashes: list[UInt64Array] = []
        self.keys = 0

    def add(self, keys: UInt64Array) -> None:
        """Add keys: uint64[w, n], big-endian words."""
        self._hashes.append(hash_keys(keys))
        self.keys += keys.shape[1]

    def finish(self) -> bytes:
        """Return the filter block of all keys that were added: whole lines of 64 bytes, then the
        metadata with the kind of filter and the number of probes."""
        millibits = round(self._bits_per_key * 1000)
        wanted_bytes = min((self.keys * millibits + 7999) // 8000, _MAX_FILTER_BYTES)
        lines = -(-wanted_bytes // _LINE_BYTES)
        # By the real size: whole lines give a small filter more bits a key than were asked for.
        probes = choose_probes(lines * _LINE_BYTES * 8000 // self.keys)
        filled = np.zeros(lines * _LINE_BYTES, np.uint8)
        for hashes in _split_by_line(self._hashes, lines):
            if hashes.size:
                _set_bits(filled, hashes, probes)
        self._hashes = []
        return filled.tobytes() + _MARKER + bytes([probes, 0, 0])


def _split_by_line(hashes: list[UInt64Array], lines: int) -> list[UInt64Array]:
    """Return the hashes in parts by the line that each selects: a part has the hashes of some
    thousand lines that follow each other, so that these stay in the CPU's cache while bits are set.
    A part may share its first and last line with its neighbors."""
    part_bits = min(max(lines // _LINES_PER_PART, 1).bit_length() - 1, 16)
    if not part_bits:
        return [np.concatenate(hashes)]
    # Lines are in the order of the low halves of hashes, so these halves' upper bits divide them.
    shift, mask = np.uint64(32 - part_bits), np.uint64((1 << part_bits) - 1)
    number_type = np.uint8 if part_bits <= 8 else np.uint16
    parts: list[list[UInt64Array]] = [[] for _ in range(1 << part_bits)]
    for array in hashes:
        for start in range(0, array.size, _CHUNK_HASHES):
            chunk = array[start : start + _CHUNK_HASHES]
            numbers = (chunk >> shift & mask).astype(number_type)
            chunk = chunk[np.argsort(numbers, kind="stable")]  # a radix sort
            ends = np.cumsum(np.bincount(numbers, minlength=len(parts))).tolist()
            for part, part_start, end in zip(parts, [0, *ends], ends):
                part.append(chunk[part_start:end])
    return [np.concatenate(part) for part in parts]


def _lines_of(hashes: UInt64Array, lines: int) -> Int64Array:
    """Return the line that each hash selects."""
    selected = hashes & _LOW_HALF
    selected *= np.uint64(lines)
    selected >>= _HALF_BITS
    return selected.view(np.int64)


def _set_bits(filled: ByteArray, hashes: UInt64Array, probes: int) -> None:
    """Set the bits of these hashes in the filter's lines (`filled`). An array with a byte for each
    bit, of the lines from the first to the last that the hashes select, is set and then packed."""
    lines = filled.size // _LINE_BYTES
    low_halves = hashes.view(np.uint32)[_LOW_WORD::2]
    bounds = np.array([low_halves.min(), low_halves.max()], np.uint64)
    first_line, last_line = _lines_of(bounds, lines).tolist()
    is_set = np.zeros(last_line + 1 - first_line << _LINE_SHIFT, np.bool_)
    for start in range(0, hashes.size, _CHUNK_HASHES):
        chunk = hashes[start : start + _CHUNK_HASHES]
        first_bits = _lines_of(chunk, lines)
        first_bits -= first_line
        first_bits <<= _LINE_SHIFT
        bit_hash = (chunk >> _HALF_BITS).astype(np.uint32)
        for _ in range(probes):
            is_set[first_bits + (bit_hash >> _BIT_SHIFT)] = True
            bit_hash *= _NEXT_PROBE
    span = filled[first_line * _LINE_BYTES : (last_line + 1) * _LINE_BYTES]
    span |= np.packbits(is_set, bitorder="little")


@dataclass(frozen=True, slots=True)
class TableFilter:
    """A filter that was read: `lines` is uint8[n * 64], `probes` the bits that a key sets."""

    lines: ByteArray
    probes: int

    def may_contain(self, keys: UInt64Array) -> npt.NDArray[np.bool_]:
        """Return whether each key may be in the file, bool[n]; a false one is certainly not. `keys`
        is uint64[w, n]: the big-endian words of the keys. Some 60 ns a key."""
        may_be = np.zeros(keys.shape[1], np.bool_)
        if self.lines.size:
            for start in range(0, may_be.size, _CHUNK_HASHES):
                chunk = slice(start, start + _CHUNK_HASHES)
                may_be[chunk] = self._probe(hash_keys(keys[:, chunk]))
        return may_be

    def _probe(self, hashes: UInt64Array) -> npt.NDArray[np.bool_]:
        """Return whether all bits of each hash are set. The lower half of a hash selects a line;
        the upper half, multiplied by a constant after each probe, a bit in that line."""
        first_bytes = _lines_of(hashes, self.lines.size // _LINE_BYTES) * _LINE_BYTES
        bit_hash = (hashes >> _HALF_BITS).astype(np.uint32)
        all_set = np.full(hashes.size, 1, np.uint8)
        for _ in range(self.probes):
            bits = bit_hash >> _BIT_SHIFT
            bytes_of_bits = self.lines[first_bytes + (bits >> np.uint32(3))]
            all_set &= bytes_of_bits >> (bits & np.uint32(7)).astype(np.uint8)
            bit_hash *= _NEXT_PROBE
        return all_set.view(np.bool_)


def decode_filter(contents: bytes) -> TableFilter | None:
    """Return the filter in a filter block; None if it is of a kind that is not read here, so that
    the file may have any key.

    >>> builder = FilterBuilder(bits_per_key=10)
    >>> builder.add(np.array([[5, 5], [7, 8]], np.uint64))
    >>> made = decode_filter(builder.finish())
    >>> made.may_contain(np.array([[5, 5], [8, 9]], np.uint64)).tolist()
    [True, False]
    """
    if len(contents) <= _METADATA_BYTES:  # no key was added
        return TableFilter(np.empty(0, np.uint8), 1)
    lines, metadata = contents[:-_METADATA_BYTES], contents[-_METADATA_BYTES:]
    probes = metadata[2]
    is_known = metadata[:2] == _MARKER and metadata[3:] == bytes(2)
    if not is_known or not 1 <= probes <= _MAX_PROBES or len(lines) % _LINE_BYTES:
        return None
    return TableFilter(np.frombuffer(lines, np.uint8), probes)
