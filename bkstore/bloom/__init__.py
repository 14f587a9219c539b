"""Could this object hold stream S? Bloom filters over 64-bit ids, in Guava's layout.

Modules: `murmur3` (the hash, one key or arrays), `bit_array` (bits set and tested for arrays
of hashes), `filter` (`BloomFilter`), `filter_set` (`FilterSet`: one for each object). Bytes and
rules: `docs/formats/bloom.md`.

>>> from bkstore.bloom import BloomFilter, hash_key
>>> filters = [BloomFilter.of([420000, 7]), BloomFilter.of([8, 9])]
>>> h1, h2 = hash_key(420000)  # hashed once, asked everywhere
>>> [one.contains_hash(h1, h2) for one in filters]
[True, False]
"""

from bkstore.bloom.filter import BloomFilter, FilterSize, filter_size
from bkstore.bloom.filter_set import FilterSet
from bkstore.bloom.murmur3 import hash_key, hash_keys

__all__ = ["BloomFilter", "FilterSet", "FilterSize", "filter_size", "hash_key", "hash_keys"]
