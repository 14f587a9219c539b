"""The iteration order of Java's HashMap, in which the bookie shell prints custom metadata."""

from __future__ import annotations

from collections.abc import Iterable


def hash_map_order(keys: Iterable[str]) -> list[str]:
    """Return the keys in the iteration order of a Java HashMap that has them."""
    key_list = list(keys)
    bucket_count = 16  # doubled when more than 3/4 full, as in Java
    while len(key_list) > bucket_count * 3 // 4:
        bucket_count *= 2
    # The sort is stable: within a bucket the keys stay in the order of their insertion.
    return sorted(key_list, key=lambda key: _spread_hash(key) % bucket_count)


def _spread_hash(text: str) -> int:
    """Return Java's `HashMap.hash` of a string: its hash code, with the upper bits mixed in."""
    hash_code = 0
    utf16 = text.encode("utf-16-be", "surrogatepass")
    for offset in range(0, len(utf16), 2):
        hash_code = (31 * hash_code + int.from_bytes(utf16[offset : offset + 2], "big")) % 2**32
    return hash_code ^ hash_code >> 16
