"""HierarchicalIndex: the tree of .idx files that interleaved and sorted storage keep.

Formats: `docs/formats/idxfile.md`. `reader` has the reading half; here is what changes files.
"""

from __future__ import annotations

from typing import Literal

from bkstore.errors import (
    InvalidArgument,
    NoSuchLedger,
    ReadOnlyError,
    UnsupportedLayout,
)
from bkstore.files.os_errors import writing
from bkstore.formats import idxfile
from bkstore.formats.idxfile import FENCED_BIT, IdxHeader, index_path
from bkstore.ids import IntArrayLike, LedgerId
from bkstore.index.api import (
    LedgerLike,
    LedgerState,
    check_put,
    check_state,
    sorted_distinct,
)
from bkstore.index.hierarchical import file_slots
from bkstore.index.hierarchical.file_tree import find_index_file
from bkstore.index.hierarchical.reader import HierarchicalReader


class HierarchicalIndex(HierarchicalReader):
    """Index files below the ``current/`` of one or more index directories.

    Reading: every directory is searched in the given order, the first hit wins; the header is
    checked at each open. Writing (`writable=True`): entries go straight into whole pages of
    the file, the operating system's page cache being the page pool; `flush` makes them
    durable. A new file goes to directory ``ledger mod n`` (a bookie picks one at random);
    the first flush gives it its name, until then only its writer knows it. The writer changes
    the disk through `files`; after `SyncFailed` it takes no more writes.

    `page_size` matters for writing, and for ``compat="bookkeeper"``, which lists as the real
    class does: whole pages only, and last entry 0 for "none". `header_version` is what new
    files get; a version 0 file becomes version 1 when an explicit LAC is set on it. A file of
    more than `max_pages` pages is refused (`InvalidArgument`).

    Threads: one lock guards the open files, reads of different ledgers run beside each other.
    Fork: one that writes is closed in the child, one that reads goes on. Processes: one writer,
    any number of readers.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as top, HierarchicalIndex(top, writable=True) as index:
    ...     index.put_many(7, [0, 1, 3], [1028, 1100, 1200])
    ...     index.entries(7).tolist(), index.get(7, 2)
    ([0, 1, 3], None)
    """

    def _check_writable(self) -> None:
        self._check_open()
        if not self._writable:
            raise ReadOnlyError("this index was opened for reading")
        self._changes.check()

    def _file_to_write(self, name: LedgerId) -> tuple[int, str]:
        held = self._held(name)
        if held is not None:
            return held
        current = self._currents[name.ledger % len(self._currents)]
        header = idxfile.encode_header(IdxHeader(version=self._header_version))
        fd, path = self._changes.create(current, name, header)
        if self._tree is not None:
            self._tree.files[name] = self._changes.name_of(name)
        return self._hold(name, fd, path)

    def put_many(self, ledger: LedgerLike, entries: IntArrayLike, locations: IntArrayLike) -> None:
        """Store locations; the last of equal entries wins. Rewrites the pages they lie in.

        `InvalidArgument` where the file would need more than `max_pages` pages; `WriteFailed`
        where the system refuses: the pages it refused are as they were.
        """
        self._check_writable()
        ids, places = sorted_distinct(*check_put(entries, locations), "last")
        if ids.size and int(ids[-1]) // self._page_slots >= self._max_pages:
            raise InvalidArgument(
                f"entry {int(ids[-1])} needs page {int(ids[-1]) // self._page_slots}, "
                f"this index takes {self._max_pages} pages a file (max_pages)"
            )
        with self._lock:
            fd, path = self._file_to_write(LedgerId.of(ledger))
            if ids.size:
                self._changes.wrote(path)
                with writing(path):
                    file_slots.write_slots(fd, ids, places, self._page_slots, self._files)

    def set_state(self, ledger: LedgerLike, state: LedgerState) -> None:
        """Rewrite the header block; the ledger's entries stay."""
        self._check_writable()
        check_state(state)
        if state.limbo:
            raise UnsupportedLayout("index files have no place for the limbo state")
        name = LedgerId.of(ledger)
        with self._lock:
            held = self._held(name)
            old = IdxHeader(version=self._header_version)
            if held is not None:
                old = file_slots.read_header(*held, self._compat)
            data = idxfile.encode_header(
                _changed_header(old, state, self._header_version, self._compat)
            )
            fd, path = self._file_to_write(name)
            self._changes.wrote(path)
            with writing(path):
                file_slots.overwrite(fd, data, 0, self._files)

    def can_store_explicit_lac(self, ledger: LedgerLike) -> bool:
        """Return False for a ledger whose header has version 0 and keeps it; reads the header."""
        name = LedgerId.of(ledger)
        if self._header_version != idxfile.VERSION_0:
            return True
        try:
            return self.header(name).version != idxfile.VERSION_0
        except NoSuchLedger:
            return False

    def delete(self, ledger: LedgerLike) -> None:
        """Remove the ledger's file, leftovers and second copies too; directories stay."""
        self._check_writable()
        name = LedgerId.of(ledger)
        with self._lock:
            held = self._open.pop(name, None)
            if held is not None:
                self._files.close(held[0])
            self._changes.drop_new(name)
            relative = index_path(name)
            while (path := find_index_file(self._currents, relative)) is not None:
                self._changes.remove(path)
            if self._tree is not None:
                self._tree.files.pop(name, None)

    def flush(self) -> None:
        """Make every change since the last flush durable: bytes, names, removals.

        One sync for each file and folder that changed. `SyncFailed` where the system could
        not; open the index again then.
        """
        with self._lock:
            self._changes.flush(self._named)

    def _named(self, name: LedgerId, path: str) -> None:
        if name in self._open:
            self._open[name] = (self._open[name][0], path)

    def close(self) -> None:
        """Flush, then close every file, also where the flush fails."""
        with self._lock:
            try:
                if not self._closed:
                    self.flush()
            finally:
                self._closed = True
                while self._open:
                    self._files.close(self._open.popitem()[1][0])


def _changed_header(
    old: IdxHeader, state: LedgerState, newest: int, compat: Literal["bookkeeper"] | None
) -> IdxHeader:
    """Return the header for a new state; other state bits stay as they were read.

    A header of version 0 becomes one of version 1 for an explicit LAC, if `newest` allows it.
    """
    bits = old.state_bits | FENCED_BIT if state.fenced else old.state_bits & ~FENCED_BIT
    lac, version = state.explicit_lac, old.version
    if lac is not None and version == idxfile.VERSION_0:
        if compat:  # upstream keeps version 0 and loses the LAC at restart
            lac = None
        elif newest >= idxfile.VERSION_1:
            version = idxfile.VERSION_1
    return IdxHeader(state.master_key, bits, lac, version)
