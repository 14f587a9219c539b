"""Bloom filters over 64-bit ids, in Guava's layout: whether an object may have a stream.

Modules: `murmur3` (the hash, of one key or of arrays), `bit_array` (sets and tests bits for arrays
of hashes), `filter` (`BloomFilter`), `filter_set` (`FilterSet`: one for each object). Bytes and
rules: `docs/formats/bloom.md`.

>>> from bkstore.bloom import BloomFilter, hash_key
>>> filters = [BloomFilter.of([420000, 7]), BloomFilter.of([8, 9])]
>>> h1, h2 = hash_key(420000)  # hashed once for all filters
>>> [bloom.contains_hash(h1, h2) for bloom in filters]
[True, False]
"""

from bkstore.bloom.filter import BloomFilter, FilterSize, filter_size
from bkstore.bloom.filter_set import FilterSet
from bkstore.bloom.murmur3 import hash_key, hash_keys

__all__ = ["BloomFilter", "FilterSet", "FilterSize", "filter_size", "hash_key", "hash_keys"]
