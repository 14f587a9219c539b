"""Blocks that were read last: short reads of neighboring keys need the same ones again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Sized
from typing import Generic, TypeVar

_Block = TypeVar("_Block", bound=Sized)


class BlockCache(Generic[_Block]):
    """The blocks that were read last, by any key; their lengths, such as rows or bytes, are
    together at most `max_total`. Thread-safe.

    >>> cache = BlockCache[bytes](max_total=5)
    >>> for number, block in enumerate([b"abc", b"de", b"f"]):
    ...     cache.put(number, block)
    >>> [cache.get(number) for number in range(3)]
    [None, b'de', b'f']
    """

    def __init__(self, max_total: int) -> None:
        self._max_total = max_total
        self._lock = threading.Lock()
        self._blocks: OrderedDict[Hashable, _Block] = OrderedDict()
        self._total = 0

    def get(self, key: Hashable) -> _Block | None:
        """Return a block, None if it is not here."""
        with self._lock:
            block = self._blocks.get(key)
            if block is not None:
                self._blocks.move_to_end(key)
            return block

    def put(self, key: Hashable, block: _Block) -> None:
        """Keep a block. While there is too much, drop the one that was not used for the longest
        time; the last block stays, however large."""
        with self._lock:
            if key not in self._blocks:
                self._total += len(block)
            self._blocks[key] = block
            while self._total > self._max_total and len(self._blocks) > 1:
                _, dropped = self._blocks.popitem(last=False)
                self._total -= len(dropped)
