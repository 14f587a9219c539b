"""HierarchicalIndex: the tree of .idx files that interleaved and sorted storage keep. `reader` has
the reading half; this module changes files. Formats: `docs/formats/idxfile.md`."""

from __future__ import annotations

from typing import Literal

from bkstore.errors import InvalidArgument, NoSuchLedger, ReadOnlyError, UnsupportedLayout
from bkstore.files.os_errors import convert_write_errors
from bkstore.formats import idxfile
from bkstore.formats.idxfile import FENCED_BIT, IdxHeader, index_path
from bkstore.ids import IntArrayLike, LedgerId
from bkstore.index.api import LedgerLike, LedgerState, check_put, check_state, sorted_distinct
from bkstore.index.hierarchical.file_slots import overwrite, read_header, write_slots
from bkstore.index.hierarchical.file_tree import find_index_file
from bkstore.index.hierarchical.reader import HierarchicalReader


class HierarchicalIndex(HierarchicalReader):
    """Index files below the ``current/`` of one or more index directories.

    Reading: the directories are searched in the given order, the first hit wins; the header is
    checked at each open. Writing (`writable=True`): entries go straight into whole pages of
    the file, with the operating system's page cache as the page pool; `flush` makes them
    durable. A new file goes to directory ``ledger mod n`` (a bookie picks one at random) under a
    temporary name; the first flush renames it. The writer changes the disk through `files`;
    after `SyncFailed` it takes no more writes.

    `page_size` matters for writing, and for ``compat="bookkeeper"``, which lists as BookKeeper's
    class does: whole pages only, and last entry 0 for "none". `header_version` is that of new
    files; a version 0 file becomes version 1 when an explicit LAC is set on it. A file of
    more than `max_pages` pages is refused (`InvalidArgument`).

    Threads: one lock guards the open files, reads of different ledgers run concurrently. Fork: a
    writable index is closed in the child, a read-only one stays usable. Processes: one writer.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as top, HierarchicalIndex(top, writable=True) as index:
    ...     index.put_many(7, [0, 1, 3], [1028, 1100, 1200])
    ...     index.entries(7).tolist(), index.get(7, 2)
    ([0, 1, 3], None)
    """

    def _check_writable(self) -> None:
        self._check_open()
        if not self._writable:
            raise ReadOnlyError("this index was opened read-only")
        self._changes.check_writable()

    def _open_to_write(self, ledger_id: LedgerId) -> tuple[int, str]:
        """Return (descriptor, path) of the ledger's file, creating it if there is none."""
        open_file = self._open_file(ledger_id)
        if open_file is not None:
            return open_file
        current_dir = self._current_dirs[ledger_id.ledger % len(self._current_dirs)]
        header = idxfile.encode_header(IdxHeader(version=self._header_version))
        fd, path = self._changes.create(current_dir, ledger_id, header)
        if self._tree is not None:  # the scanned files are listed by their final paths
            self._tree.files[ledger_id] = self._changes.final_path_of(ledger_id)
        return self._keep_open(ledger_id, fd, path)

    def put_many(self, ledger: LedgerLike, entries: IntArrayLike, locations: IntArrayLike) -> None:
        """Store locations; the last of equal entries wins. Rewrites the pages that hold them.
        Raises `InvalidArgument` if the file would need more than `max_pages` pages; after
        `WriteFailed` the pages are as they were."""
        self._check_writable()
        entry_ids, new_locations = sorted_distinct(*check_put(entries, locations), "last")
        last = int(entry_ids[-1]) if entry_ids.size else 0
        if last // self._page_slots >= self._max_pages:
            limit = f"this index has at most {self._max_pages} pages per file (max_pages)"
            raise InvalidArgument(f"entry {last} needs page {last // self._page_slots}, {limit}")
        with self._lock:
            # Makes the file also if there are no entries: then the index lists the ledger.
            fd, path = self._open_to_write(LedgerId.of(ledger))
            if entry_ids.size:
                self._changes.note_changed(path)
                with convert_write_errors(path):
                    write_slots(fd, entry_ids, new_locations, self._page_slots, self._files)

    def set_state(self, ledger: LedgerLike, state: LedgerState) -> None:
        """Rewrite the header of the ledger's file; its entries stay. An unknown ledger gets a file.
        Raises `UnsupportedLayout` for the limbo state (the bookie may have lost entries), which
        index files cannot store."""
        self._check_writable()
        check_state(state)
        if state.limbo:
            raise UnsupportedLayout("index files cannot store the limbo state")
        ledger_id = LedgerId.of(ledger)
        with self._lock:
            open_file = self._open_file(ledger_id)
            header = IdxHeader(version=self._header_version)
            if open_file is not None:
                header = read_header(*open_file, self._compat)
            header = _changed_header(header, state, self._header_version, self._compat)
            data = idxfile.encode_header(header)  # first, as it may raise: then no file is created
            fd, path = self._open_to_write(ledger_id)
            self._changes.note_changed(path)
            with convert_write_errors(path):
                overwrite(fd, data, offset=0, files=self._files)

    def can_store_explicit_lac(self, ledger: LedgerLike) -> bool:
        """Return whether `set_state` can store an explicit LAC (a last add confirmed sent without
        an entry). A header of version 0 has no field for it, and is changed to version 1 only if
        this index's `header_version` allows that. Reads the header."""
        ledger_id = LedgerId.of(ledger)
        if self._header_version != idxfile.VERSION_0:
            return True
        try:
            return self.header(ledger_id).version != idxfile.VERSION_0
        except NoSuchLedger:
            return False

    def delete(self, ledger: LedgerLike) -> None:
        """Remove the ledger's file, its leftovers and second copies; directories stay."""
        self._check_writable()
        ledger_id = LedgerId.of(ledger)
        with self._lock:
            open_file = self._open_files.pop(ledger_id, None)
            if open_file is not None:
                self._files.close(open_file[0])
            self._changes.drop_new(ledger_id)
            relative = index_path(ledger_id)
            # Once a file is removed, the search finds the next copy, then leftovers of moves.
            while (path := find_index_file(self._current_dirs, relative)) is not None:
                self._changes.remove(path)
            if self._tree is not None:
                self._tree.files.pop(ledger_id, None)

    def flush(self) -> None:
        """Make every change since the last flush durable: bytes, names, removals. One sync for each
        file and folder that changed. After `SyncFailed`, open the index again."""
        with self._lock:
            self._changes.flush(self._note_final_path)

    def _note_final_path(self, ledger_id: LedgerId, path: str) -> None:
        if ledger_id in self._open_files:
            self._open_files[ledger_id] = (self._open_files[ledger_id][0], path)

    def close(self) -> None:
        """Flush, then close every file, even if the flush fails."""
        with self._lock:
            try:
                if not self._closed:
                    self.flush()
            finally:
                self._closed = True
                while self._open_files:
                    _, (fd, _path) = self._open_files.popitem()
                    self._files.close(fd)


def _changed_header(
    header: IdxHeader, state: LedgerState, max_version: int, compat: Literal["bookkeeper"] | None
) -> IdxHeader:
    """Return the header for a new state; state bits other than "fenced" stay. An explicit LAC turns
    a header of version 0, which has no field for it, into version 1 if `max_version` allows it."""
    bits = header.state_bits & ~FENCED_BIT | (FENCED_BIT if state.fenced else 0)
    lac, version = state.explicit_lac, header.version
    if lac is not None and version == idxfile.VERSION_0:
        if compat:  # BookKeeper keeps version 0 and loses the LAC at restart
            lac = None
        elif max_version >= idxfile.VERSION_1:
            version = idxfile.VERSION_1
    return IdxHeader(state.master_key, bits, lac, version)
