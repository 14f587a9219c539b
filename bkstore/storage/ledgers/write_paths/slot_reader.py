"""Reads slots of open index files, without the bookkeeping of the index.

A single read from disk is two small system reads: a slot of the index file, and the record.
`HierarchicalIndex.get` checks, locks and ranks its open files each time, which takes longer than
reading the slot. This is a fast path for entries that exist; absent entries and odd files are left
to the index. Format: `docs/formats/idxfile.md`.
"""

from __future__ import annotations

import os
from struct import Struct
from threading import Lock
from typing import TYPE_CHECKING

from bkstore.formats.idxfile import HEADER_SIZE, SLOT_SIZE
from bkstore.ids import LedgerId
from bkstore.storage.entry_log.reader import OpenFile

if TYPE_CHECKING:
    from bkstore.index.hierarchical import HierarchicalIndex

_unpack_slot = Struct(">q").unpack
_MAX_OPEN_FILES = 64
_ENTRY_LIMIT = 1 << 59  # slots from here on have offsets beyond any file


class SlotReader:
    """Reads locations from a writer's index, one at a time.

    Keeps up to 64 index files open; a file is opened once the index, which checks headers, has
    found an entry in it. Call `close_file` after a file is removed. Threads, fork: safe.
    """

    def __init__(self, index: HierarchicalIndex) -> None:
        self._index = index
        self._files: dict[LedgerId, OpenFile] = {}
        self._lock = Lock()

    def get(self, ledger_id: LedgerId, entry_id: int) -> int | None:
        """Return the location of one entry, None if absent, as the index does, but by one read of 8
        bytes: from the entry's slot in the ledger's index file, if that is open."""
        file = self._files.get(ledger_id)
        if file is not None and entry_id < _ENTRY_LIMIT:
            try:
                slot = os.pread(file.fd, SLOT_SIZE, HEADER_SIZE + SLOT_SIZE * entry_id)
            except OSError:
                slot = b""  # the index meets the same error, and raises it
            # Absent entries and odd files are left to the index.
            location: int = _unpack_slot(slot)[0] if len(slot) == SLOT_SIZE else 0
            return location if location > 0 else self._index.get(ledger_id, entry_id)
        indexed_location = self._index.get(ledger_id, entry_id)
        if indexed_location is not None and file is None:
            self._keep_open(ledger_id)
        return indexed_location

    def _keep_open(self, ledger_id: LedgerId) -> None:
        """Open the ledger's index file for later reads, and close the oldest beyond the limit."""
        with self._lock:  # a file opened before its removal is in the dict before `close_file` runs
            path = self._index.path(ledger_id)
            try:
                file = None if path is None else OpenFile(path)
            except OSError:  # not yet created (next flush), or out of descriptors
                file = None
            if file is not None:
                self._files[ledger_id] = file
                if len(self._files) > _MAX_OPEN_FILES:
                    del self._files[next(iter(self._files))]

    def close_file(self, ledger_id: LedgerId) -> None:
        """Close the ledger's file, which was removed."""
        with self._lock:
            self._files.pop(ledger_id, None)

    def close(self) -> None:
        """Close all files; a later read opens them again."""
        with self._lock:
            self._files.clear()
