"""A pool of pages of index files in memory."""

from __future__ import annotations

import os
import struct
from functools import lru_cache

from bkstore.formats.idxfile import HEADER_SIZE, SLOT_SIZE
from bkstore.ids import LedgerId
from bkstore.index.hierarchical import HierarchicalIndex

_SLOT = struct.Struct(">q")


class PagePool:
    """Slots of index files, through pages of which `most` stay in memory."""

    def __init__(self, index: HierarchicalIndex, page_size: int, most: int) -> None:
        self._index = index
        self._slots = page_size // SLOT_SIZE
        self._fds: dict[LedgerId, int] = {}
        self.bytes_read = 0
        self.page = lru_cache(most)(self._read)

    def _read(self, ledger: LedgerId, number: int) -> bytes:
        fd = self._fds.get(ledger)
        if fd is None:
            path = self._index.path(ledger)
            assert path is not None
            fd = self._fds[ledger] = os.open(path, os.O_RDONLY)
        size = self._slots * SLOT_SIZE
        data = os.pread(fd, size, HEADER_SIZE + number * size)
        self.bytes_read += len(data)
        return data

    def get(self, ledger: LedgerId, entry: int) -> int:
        """Return the location of one entry, 0 if absent."""
        number, slot = divmod(entry, self._slots)
        location: int = _SLOT.unpack_from(self.page(ledger, number), slot * SLOT_SIZE)[0]
        return location

    def close(self) -> None:
        """Close the files."""
        while self._fds:
            os.close(self._fds.popitem()[1])
