"""BloomFilter: a set of 64-bit ids with false positives, but without false negatives.

Sizes, bytes and answers are Guava's, bit for bit
(`BloomFilter.create(Funnels.longFunnel(), n, fpp)`, strategy MURMUR128_MITZ_64):

    offset  type     field
    0       u8       strategy, 1
    1       u8       hash count k, 1..255
    2       i32      number of words, at least 1
    6       u64 x n  words; bit i is bit i mod 64, from the low end, of word i div 64

Big-endian. Persisted format: do not renumber. Derivation, worked example: `docs/formats/bloom.md`.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from bkstore.arguments import bytes_like as as_data, choice, integer, number
from bkstore.bloom.bit_array import BitArray, count_ones, set_key_bits, test_key_bits
from bkstore.bloom.murmur3 import hash_key
from bkstore.errors import CorruptionError, IllegalOperation, InvalidArgument
from bkstore.ids import IntArrayLike, as_int64, check_integer

HEADER_SIZE = 6
STRATEGY = 1
_MAX_HASHES = 255
_MAX_WORDS = 2**31 - 1

Compat = Literal["guava-31.1"]

_LOW_63 = 2**63 - 1
_LN_2 = math.log(2)
_MAX_SCALAR_KEYS = 64  # more keys than this are faster in array code, which has a fixed cost


class FilterSize(NamedTuple):
    """Guava's size for expected insertions and fpp: 64-bit words, and bits set per key."""

    words: int
    hash_count: int


def filter_size(
    expected_insertions: int, fpp: float = 0.01, *, compat: Compat | None = None
) -> FilterSize:
    """Return Guava's size and hash count without creating a filter. O(1). The hash count is that of
    Guava 33.6; ``compat="guava-31.1"`` uses the rule of that version, which differs for a few
    insertions. Raises `InvalidArgument` where Guava refuses: negative insertions, fpp outside 0..1
    (exclusive), no bits (1 insertion at 0.9), more than 2^31-1 words or 255 hashes.

    >>> filter_size(9000), filter_size(9000).words * 8
    (FilterSize(words=1348, hash_count=7), 10784)
    """
    _check_compat("compat", compat)
    insertions = max(integer()("expected_insertions", expected_insertions), 1)
    rate = float(number(0, 1, above=True)("fpp", fpp))
    if rate == 1:
        raise InvalidArgument("fpp must be below 1")
    # The optimal numbers of bits and hashes, as Guava rounds them. The rule of its version 31.1
    # computed the hashes from the truncated number of bits.
    bits = math.trunc(-insertions * math.log(rate) / (_LN_2 * _LN_2))
    hashes = -math.log(rate) / _LN_2 if compat is None else bits / insertions * _LN_2
    hash_count = max(1, math.floor(hashes + 0.5))
    words = -(-bits // 64)
    request = f"{expected_insertions} insertions at fpp {fpp}"
    if words == 0:
        raise InvalidArgument(f"{request} make a filter without bits")
    if words > _MAX_WORDS:
        raise InvalidArgument(f"{request} need {words} words, the limit is {_MAX_WORDS}")
    if hash_count > _MAX_HASHES:
        raise InvalidArgument(f"{request} need {hash_count} hashes, the limit is {_MAX_HASHES}")
    return FilterSize(words, hash_count)


_check_compat = choice(None, "guava-31.1")


class BloomFilter:
    """A bloom filter over ids in -2^63 .. 2^63-1, equal to Guava's in size, bytes and answers.

    Constructors: the class (an empty filter), `of` (a frozen one for these ids), `from_bytes`.
    Adding: `add`, `add_many`, `add_hash`, ``|=``. Queries: ``in``, `contains_many`,
    `contains_hash`. Properties: `bit_size`, `hash_count`, `nbytes`, `bits_set`,
    `approximate_count`, `expected_fpp`. Ids of other types raise `InvalidArgument`, also with
    ``in``: a negative answer must be certain.

    Memory is the bit array, and some 20 MB more at most while many ids are added. The filter does
    not store its expected insertions; with more than these, false positives exceed `fpp`.

    Threads: any number may query concurrently. Adding needs exclusive access: two threads that add
    may lose bits, and a concurrent query may miss an id that is being added. A frozen filter is
    immutable and safe to share. Processes: a filter is pickled as its bytes.

    >>> seen = BloomFilter(900)
    >>> seen.add(420000)
    True
    >>> 420000 in seen, 420001 in seen, seen.nbytes
    (True, False, 1080)
    """

    __slots__ = ("_bits", "_data", "_hash_count", "_size")

    def __init__(
        self, expected_insertions: int, fpp: float = 0.01, *, compat: Compat | None = None
    ) -> None:
        words, hash_count = filter_size(expected_insertions, fpp, compat=compat)
        self._set_up(np.zeros(words * 8, np.uint8), hash_count)

    def _set_up(self, bits: BitArray, hash_count: int) -> None:
        """Take the bits of a new filter."""
        self._bits = bits
        self._data = memoryview(bits)  # type: ignore[arg-type] # reads a byte in a third of the time
        self._size = bits.size * 8
        self._hash_count = hash_count

    @classmethod
    def _from_bits(cls, bits: BitArray, hash_count: int) -> BloomFilter:
        bloom = BloomFilter.__new__(BloomFilter)
        bloom._set_up(bits, hash_count)
        return bloom

    @classmethod
    def of(cls, keys: IntArrayLike, fpp: float = 0.01) -> BloomFilter:
        """Return a frozen (read-only) filter with these keys, sized for their number, in which
        repeated keys count repeatedly. Without keys it has the size for one. O(n).

        >>> BloomFilter.of(range(90)).nbytes
        112
        """
        ids = as_int64(keys, "keys")
        bloom = cls(ids.size, fpp)
        bloom.add_many(ids)
        return bloom.freeze()

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview) -> BloomFilter:
        """Return the filter from Guava's bytes; the hash count is that of the header. O(bytes).
        Raises `CorruptionError` with the offset of the field at fault: a short header, a strategy
        other than 1, no hashes, a word count below 1 or not that of the bytes."""
        view = memoryview(as_data("data", data)).cast("B")
        if len(view) < HEADER_SIZE:
            reason = f"bloom filter header needs {HEADER_SIZE} bytes, {len(view)} are there"
            raise CorruptionError(None, len(view), reason)
        # The header: strategy u8, hash count u8, word count i32.
        strategy, hash_count = view[0], view[1]
        words = int.from_bytes(view[2:HEADER_SIZE], "big", signed=True)
        if strategy != STRATEGY:
            variant = "the old 32-bit variant" if strategy == 0 else "unknown"
            raise CorruptionError(None, 0, f"bloom filter strategy {strategy} is {variant}, not 1")
        if hash_count == 0:
            raise CorruptionError(None, 1, "bloom filter without hashes")
        if words < 1:
            raise CorruptionError(None, 2, f"bloom filter of {words} words")
        # After it that many words, and nothing else.
        body_bytes = len(view) - HEADER_SIZE
        if body_bytes < words * 8:
            reason = f"bloom filter of {words} words, but bytes for {body_bytes // 8} are there"
            raise CorruptionError(None, len(view), reason)
        if body_bytes > words * 8:
            reason = f"{body_bytes - words * 8} bytes after a bloom filter of {words} words"
            raise CorruptionError(None, HEADER_SIZE + words * 8, reason)
        big_endian = np.frombuffer(view, ">u8", words, HEADER_SIZE)
        return cls._from_bits(big_endian.astype("<u8").view(np.uint8), hash_count)

    def to_bytes(self) -> bytes:
        """Return Guava's bytes: a header of 6, then `nbytes`. O(bytes).

        >>> filter = BloomFilter(2)
        >>> filter.add_many([420000, 7])
        >>> filter.to_bytes().hex(" ", 4)
        '0107 00000001 00070aa0 180005c0'
        """
        header = bytes((STRATEGY, self._hash_count)) + (self.nbytes // 8).to_bytes(4, "big")
        return header + self._bits.view("<u8").astype(">u8").tobytes()

    def add(self, key: int) -> bool:
        """Add one id; return whether a bit changed (if not, it may be present already). O(k)."""
        return self.add_hash(*hash_key(key))

    def add_hash(self, h1: int, h2: int) -> bool:
        """Add the id whose `hash_key` is (h1, h2); return whether a bit changed. O(k)."""
        self._check_not_frozen()
        h1, h2 = check_integer(h1, "h1"), check_integer(h2, "h2")
        data, changed = self._data, False
        for _ in range(self._hash_count):
            position = (h1 & _LOW_63) % self._size  # of the bit of this hash function
            bit, index = 1 << (position & 7), position >> 3
            if not data[index] & bit:
                data[index] |= bit
                changed = True
            h1 += h2
        return changed

    def add_many(self, keys: IntArrayLike) -> None:
        """Add ids, any one-dimensional integers that fit int64. O(n k)."""
        self._check_not_frozen()
        ids = as_int64(keys, "keys")
        if ids.size > _MAX_SCALAR_KEYS:  # array operations are slower for a few ids
            set_key_bits(self._bits, self._hash_count, ids)
            return
        for key in ids.tolist():
            self.add_hash(*hash_key(key))

    def freeze(self) -> BloomFilter:
        """Make all further adds raise `IllegalOperation`; return the filter itself."""
        self._bits.flags.writeable = False
        self._data = self._data.toreadonly()
        return self

    @property
    def frozen(self) -> bool:
        """Whether adding is refused."""
        return self._data.readonly

    def _check_not_frozen(self) -> None:
        if self._data.readonly:
            raise IllegalOperation("the bloom filter is frozen: nothing can be added")

    def __contains__(self, key: int) -> bool:
        return self.contains_hash(*hash_key(key))

    def contains_hash(self, h1: int, h2: int) -> bool:
        """Return whether the id whose `hash_key` is (h1, h2) may be present; no is certain. O(k).
        One hash serves all filters of a look-up."""
        if type(h1) is not int or type(h2) is not int:
            h1, h2 = check_integer(h1, "h1"), check_integer(h2, "h2")
        data, size = self._data, self._size
        for _ in range(self._hash_count):
            position = (h1 & _LOW_63) % size  # of the bit of this hash function
            if not data[position >> 3] >> (position & 7) & 1:
                return False
            h1 += h2
        return True

    def contains_many(self, keys: IntArrayLike) -> npt.NDArray[np.bool_]:
        """Return bool[n]: whether each id may be present; False is certain. O(n k)."""
        ids = as_int64(keys, "keys")
        if ids.size > _MAX_SCALAR_KEYS:
            return test_key_bits(self._bits, self._hash_count, ids)
        return np.array([key in self for key in ids.tolist()], np.bool_)

    @property
    def bit_size(self) -> int:
        """Bits of the filter, a multiple of 64."""
        return self._size

    @property
    def hash_count(self) -> int:
        """Bits set per key, k."""
        return self._hash_count

    @property
    def nbytes(self) -> int:
        """Bytes of the bit array, without the header's 6."""
        return self._bits.size

    @property
    def bits_set(self) -> int:
        """The number of bits set. O(bytes)."""
        return count_ones(self._bits)

    @property
    def approximate_count(self) -> int | float:
        """Guava's estimate of the number of distinct ids added. O(bytes). `math.inf` if every bit
        is set: any number may have been added. Guava throws an error then."""
        set_share = self.bits_set / self._size
        if set_share == 1:
            return math.inf
        return math.floor(-math.log1p(-set_share) * self._size / self._hash_count + 0.5)

    @property
    def expected_fpp(self) -> float:
        """The rate of false positives, as filled now. O(bytes)."""
        return float((self.bits_set / self._size) ** self._hash_count)

    def __or__(self, other: BloomFilter) -> BloomFilter:
        if not isinstance(other, BloomFilter):
            return NotImplemented
        self._check_same_shape(other)
        return self._from_bits(self._bits | other._bits, self._hash_count)

    def __ior__(self, other: BloomFilter) -> BloomFilter:
        if not isinstance(other, BloomFilter):
            return NotImplemented
        self._check_not_frozen()
        self._check_same_shape(other)
        np.bitwise_or(self._bits, other._bits, out=self._bits)
        return self

    def _check_same_shape(self, other: BloomFilter) -> None:
        """Raise `InvalidArgument` unless both filters have the same size and hash count."""
        if (self._size, self._hash_count) != (other._size, other._hash_count):
            raise InvalidArgument(
                "only filters of the same size and hash count can be united, not "
                f"{self._size} bits, {self._hash_count} hashes and "
                f"{other._size} bits, {other._hash_count} hashes"
            )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BloomFilter):
            return NotImplemented
        same = (self._size, self._hash_count) == (other._size, other._hash_count)
        return same and np.array_equal(self._bits.view(np.uint64), other._bits.view(np.uint64))

    __hash__ = None  # type: ignore[assignment] # its value changes

    def __reduce__(self) -> tuple[object, ...]:
        return _unpickle_filter, (self.to_bytes(), self.frozen)

    def __repr__(self) -> str:
        frozen = ", frozen" if self.frozen else ""
        return f"<BloomFilter: {self._size} bits, {self._hash_count} hashes{frozen}>"


def _unpickle_filter(data: bytes, frozen: bool) -> BloomFilter:
    bloom = BloomFilter.from_bytes(data)
    return bloom.freeze() if frozen else bloom
