"""Reading slots of index files that are open already, without the index's own book-keeping.

A single read from disk is two small reads of the system: a slot of the index file, and the
record. `HierarchicalIndex.get` checks, locks and ranks its open files for each; that takes
longer than the slot itself. Here is the short way for the entry that is there. Whatever is
absent or odd is asked of the index, which knows what to say. Format: `docs/formats/idxfile.md`.
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

_WORD = Struct(">q").unpack
_OPEN_FILES = 64
_FAR = 1 << 59  # slots from here on lie where no file reaches


class SlotReader:
    """The locations that an index gives, one at a time; `index` is its writer's.

    Keeps up to 64 index files open, each from the moment on when the index, which checks
    headers, has found an entry in it. `forget` must follow the removal of a ledger's file.
    Threads: safe. Fork: safe (reads by position).
    """

    def __init__(self, index: HierarchicalIndex) -> None:
        self._index = index
        self._files: dict[LedgerId, OpenFile] = {}
        self._lock = Lock()

    def get(self, name: LedgerId, entry: int) -> int | None:
        """Return the location of one entry, None if absent: one 8-byte read.

        Raises what `HierarchicalIndex.get` raises.
        """
        file = self._files.get(name)
        if file is not None and entry < _FAR:
            try:
                word = os.pread(file.fd, SLOT_SIZE, HEADER_SIZE + SLOT_SIZE * entry)
            except OSError:
                word = b""  # the index meets it too, and names it
            location: int = _WORD(word)[0] if len(word) == SLOT_SIZE else 0
            return location if location > 0 else self._index.get(name, entry)
        found = self._index.get(name, entry)
        if found is not None and file is None:
            self._keep_open(name)
        return found

    def _keep_open(self, name: LedgerId) -> None:
        with self._lock:  # so that what is opened before a removal is in the dict before `forget`
            path = self._index.path(name)
            try:
                file = None if path is None else OpenFile(path)
            except OSError:  # new, and named at the next flush; or no descriptor is left
                file = None
            if file is not None:
                self._files[name] = file
                if len(self._files) > _OPEN_FILES:
                    del self._files[next(iter(self._files))]

    def forget(self, name: LedgerId) -> None:
        """Close the ledger's file, which was removed."""
        with self._lock:
            self._files.pop(name, None)

    def close(self) -> None:
        """Close all files; a later read opens them again."""
        with self._lock:
            self._files.clear()
