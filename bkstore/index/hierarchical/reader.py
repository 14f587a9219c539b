"""Finding, opening and reading index files: all of the index contract that changes nothing."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from threading import RLock
from typing import Literal, TypeVar

import numpy as np

from bkstore import forks
from bkstore.arguments import boolean, check_batch, check_compat, integer, paths
from bkstore.availability import Availability
from bkstore.availability.many_sets import from_mask_of_many, split_by_owner
from bkstore.availability.sequence_groups import list_entry_ids
from bkstore.errors import CorruptionError, NoSuchLedger, UnsupportedLayout
from bkstore.files.disk_changes import OS_FILES, Files, check_files
from bkstore.files.opening import check_regular, open_regular
from bkstore.files.os_errors import convert_read_errors, convert_write_errors, read_error
from bkstore.formats import idxfile
from bkstore.formats.idxfile import HEADER_SIZE, SLOT_SIZE, IdxHeader, index_path
from bkstore.ids import (
    EntryLocations,
    Int64Array,
    IntArrayLike,
    LedgerId,
    as_entry_ids,
    check_bounds,
    check_entry_id,
    check_scope,
    sort_ledgers,
)
from bkstore.index.api import (
    DEFAULT_BATCH,
    EntryIndex,
    Finding,
    Findings,
    IndexBatch,
    LedgerLike,
    LedgerListing,
    LedgerState,
)
from bkstore.index.bulk_listing import LedgerErrors, Listing, list_one_by_one
from bkstore.index.hierarchical import file_slots
from bkstore.index.hierarchical.file_tree import (
    IndexFileTree,
    current_directory,
    find_index_file,
    find_regular_file,
    scan_trees,
)
from bkstore.index.hierarchical.small_files import read_small_files
from bkstore.index.hierarchical.unsynced_changes import UnsyncedChanges
from bkstore.index.scope_marker import check_marker

DEFAULT_MAX_PAGES = 1 << 20
"""Pages a file may grow to: 8 GiB and 2^30 entries at the default page size."""

_MAX_OPEN_FILES = 64
_MIN_SCAN_ROWS = 1 << 10
"""The fewest rows that a scan cuts a file into, even if `batch` is smaller."""

_NO_ENTRIES = np.empty(0, np.int64)
_T = TypeVar("_T")


class HierarchicalReader(EntryIndex):
    """The reading half of `HierarchicalIndex`, which documents both."""

    layout = "idx"
    supports_limbo = False

    def __init__(
        self,
        directories: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        writable: bool = False,
        page_size: int = idxfile.DEFAULT_PAGE_SIZE,
        header_version: int = idxfile.VERSION_1,
        max_pages: int = DEFAULT_MAX_PAGES,
        compat: Literal["bookkeeper"] | None = None,
        files: Files = OS_FILES,
    ) -> None:
        """Open the index below the ``current/`` of one or more directories; if `writable`, missing
        ones are made. `page_size` (bytes) and `max_pages` limit what is written into a file,
        `header_version` is that of new files; ``compat="bookkeeper"`` lists as BookKeeper does."""
        page_size = idxfile.check_page_size("page_size", page_size)
        header_version = idxfile.check_header_version("header_version", header_version)
        max_pages = integer(1)("max_pages", max_pages)
        compat = check_compat("compat", compat)
        writable = boolean("writable", writable)
        self._current_dirs = [current_directory(each) for each in paths("directories", directories)]
        self._writable = writable
        self._page_slots = page_size // idxfile.SLOT_SIZE
        self._header_version = header_version
        self._max_pages = max_pages
        self._compat = compat
        self._tree: IndexFileTree | None = None
        self._open_files: OrderedDict[LedgerId, tuple[int, str]] = OrderedDict()
        self._files = check_files("files", files)
        self._changes = UnsyncedChanges(files)
        self._lock = RLock()
        self._closed = False
        forks.register(self)
        for current_dir in self._current_dirs:
            if writable:
                with convert_write_errors(current_dir):
                    files.makedirs(current_dir)
            elif not current_dir.is_dir():
                raise UnsupportedLayout(f"{current_dir}: no such directory")
            check_marker(current_dir)

    # -- finding and opening files

    @property
    def writable(self) -> bool:
        """Inherited."""
        return self._writable

    def _check_open(self) -> None:
        if self._closed:
            raise forks.closed_error(f"{self._current_dirs[0]}: this index")

    def _scanned_tree(self) -> IndexFileTree:
        """Return the tree of index files, scanning for them the first time."""
        self._check_open()
        if self._tree is None:
            with convert_read_errors(self._current_dirs[0]):
                self._tree = scan_trees(self._current_dirs)
            self._tree.files.update(self._changes.final_paths())
        return self._tree

    def ledgers(self, scope: int | None = None) -> list[LedgerId]:
        """Return the ledgers with an index file, in unsigned order; opens no file."""
        scope = check_scope(scope)
        with self._lock:
            files = self._scanned_tree().files
            listed = [ledger for ledger in files if scope is None or ledger[0] == scope]
        sort_ledgers(listed)
        return listed

    def list_readable_ledgers(self, scope: int | None = None) -> LedgerListing:
        """Return the ledgers with an index file, and those that may have had one in a folder that
        cannot be read, because something else is in its place."""
        ledgers = self.ledgers(scope)
        with self._lock:
            lost_folders = [
                each for each in self._scanned_tree().lost_folders if each.may_hide(scope)
            ]
        unknown = [folder.unknown for folder in lost_folders]
        return LedgerListing(ledgers, unknown, [folder.finding() for folder in lost_folders])

    def findings(self) -> list[Finding]:
        """Return misplaced files, second copies and `.rloc` leftovers."""
        with self._lock:
            return list(self._scanned_tree().findings)

    def path(self, ledger: LedgerLike) -> str | None:
        """Return the path of the ledger's index file (a new one's after a flush), or None."""
        ledger_id = LedgerId.of(ledger)
        self._check_open()
        with self._lock:
            tree = self._tree
            # If a ledger is absent, a folder that cannot be read may be why: the search below
            # raises the error of that folder.
            if tree is not None and (ledger_id in tree.files or not tree.lost_folders):
                return tree.files.get(ledger_id)
            if ledger_id in self._changes.new_paths:
                return self._changes.final_path_of(ledger_id)
        return find_index_file(self._current_dirs, index_path(ledger_id))

    def has_ledger(self, ledger: LedgerLike) -> bool:
        """Return whether the ledger has an index file; searches for that file only."""
        return self.path(ledger) is not None

    def _with_file(
        self, ledger: LedgerLike, read: Callable[[int, str], _T], *, if_missing: _T
    ) -> _T:
        """Run `read(fd, path)` on the ledger's file, or return `if_missing` if it has none."""
        with self._lock:
            open_file = self._open_file(LedgerId.of(ledger))
            if open_file is None:
                return if_missing
            shared_fd, path = open_file
            # A duplicate descriptor: another thread may close the shared one meanwhile.
            fd = os.dup(shared_fd)
        try:
            with convert_read_errors(path):
                return read(fd, path)
        finally:
            os.close(fd)

    def _open_file(self, ledger_id: LedgerId) -> tuple[int, str] | None:
        """Return (descriptor, path) of the ledger's file, None if it has none. The first call opens
        it and checks the header; the file then stays open, among those last used."""
        open_file = self._open_files.get(ledger_id)
        if open_file is not None:
            self._open_files.move_to_end(ledger_id)
            return open_file
        path = self._changes.new_paths.get(ledger_id) or self.path(ledger_id)
        if path is None:
            return None
        mode = os.O_RDWR if self._writable else os.O_RDONLY
        with convert_read_errors(path):
            check_regular(path)
            fd = self._files.open(path, mode | os.O_NONBLOCK)  # a pipe put there would not block
        try:
            file_slots.read_header(fd, path, self._compat)
        except BaseException:
            self._files.close(fd)
            raise
        return self._keep_open(ledger_id, fd, path)

    def _keep_open(self, ledger_id: LedgerId, fd: int, path: str) -> tuple[int, str]:
        """Add a file to the open ones, closing the least recently used if there are too many."""
        self._open_files[ledger_id] = (fd, path)
        if len(self._open_files) > _MAX_OPEN_FILES:
            _, (oldest_fd, _) = self._open_files.popitem(last=False)
            self._files.close(oldest_fd)
        return fd, path

    def _count_slots_to_list(self, fd: int, path: str) -> int:
        """Return how many slots of a file to read for a listing of its entries: all; with compat
        those in whole pages, as BookKeeper's `PageEntriesIterableImpl`."""
        if self._compat:
            return self._count_whole_slots(fd) // self._page_slots * self._page_slots
        return file_slots.count_slots(os.fstat(fd).st_size, path)

    @staticmethod
    def _count_whole_slots(fd: int) -> int:
        """Return how many whole slots a file has; like BookKeeper, ignores a partial one."""
        return max(os.fstat(fd).st_size - HEADER_SIZE, 0) // idxfile.SLOT_SIZE

    def _slot_range(self, fd: int, path: str, first: int, last: int) -> tuple[int, int]:
        """Return (first slot, slot after the last) to read for the entries first..last."""
        return first, min(self._count_slots_to_list(fd, path), last + 1)

    # -- reading

    def availability(self, ledger: LedgerLike) -> Availability:
        """Return which entries are stored. One read of the file; memory: the sequence groups."""

        def read(fd: int, path: str) -> Availability:
            stop = self._count_slots_to_list(fd, path)
            groups = file_slots.read_present_groups(fd, path, first=0, stop=stop)
            return Availability.from_canonical(groups)

        return self._with_file(ledger, read, if_missing=Availability())

    def availability_many(
        self, ledgers: Iterable[LedgerLike] | None = None, errors: LedgerErrors | None = None
    ) -> Iterator[tuple[LedgerId, Availability]]:
        """Return (ledger, `availability`) of many ledgers; small files are read and checked
        together, so that each costs little more than its system calls. Memory: 2 MiB."""
        self._check_open()
        return self._list_files(self._ledgers_to_list(ledgers), errors)

    def _list_files(self, ledger_ids: list[LedgerId], errors: LedgerErrors | None) -> Listing:
        """Yield the result of each ledger in order. Small files that are valid are read many at a
        time; any other is left to a call for its ledger, which reports errors."""
        for chunk in read_small_files(self._plain_files(ledger_ids), self._listed_unit_bytes):
            self._check_open()
            # A word that is not 0 is a location. The owner of a group of entries is the number of
            # its file in the chunk.
            groups, owner = from_mask_of_many(chunk.words != 0, chunk.first_words)
            sets = split_by_owner(groups, owner, len(chunk.read_indexes))
            ledgers = chunk.ledger_ids
            if len(chunk.read_indexes) == len(ledgers):
                yield from zip(ledgers, sets)
                continue
            # Ledgers whose files were not read here come between the others, in their order.
            next_index = 0
            for index, availability in zip(chunk.read_indexes, sets):
                yield from list_one_by_one(self.availability, ledgers[next_index:index], errors)
                yield ledgers[index], availability
                next_index = index + 1
            yield from list_one_by_one(self.availability, ledgers[next_index:], errors)

    @property
    def _listed_unit_bytes(self) -> int:
        """The bytes that a file's body must be a multiple of for all its slots to be listed."""
        return SLOT_SIZE * (self._page_slots if self._compat else 1)

    def _plain_files(self, ledger_ids: Iterable[LedgerId]) -> Iterator[tuple[LedgerId, str | None]]:
        """Yield (ledger id, path) for `read_small_files`; None if the file must be read alone."""
        tree = self._tree
        # If every file is known to be a regular one under its final path, no path needs a check.
        if tree and tree.has_file_types and not (tree.irregular_ledgers or self._changes.new_paths):
            return zip(ledger_ids, map(tree.files.get, ledger_ids))
        return ((ledger_id, self._find_plain_file(ledger_id)) for ledger_id in ledger_ids)

    def _find_plain_file(self, ledger_id: LedgerId) -> str | None:
        """Return the path of the ledger's file, None if it has none or must be read alone, as it is
        not a regular file or has an unusual name. Without a scan, one `lstat` for each directory.
        """
        new_path, tree = self._changes.new_paths.get(ledger_id), self._tree
        if new_path is not None:
            return new_path
        if tree is None:
            return find_regular_file(self._current_dirs, index_path(ledger_id))
        path = None if ledger_id in tree.irregular_ledgers else tree.files.get(ledger_id)
        if path is not None and not tree.has_file_types:
            return find_regular_file([Path(path).parent], os.path.basename(path))
        return path

    def entries(self, ledger: LedgerLike, first: int = 0, last: int | None = None) -> Int64Array:
        """Return the entry ids of first..last; reads that part of the file."""
        first, last = check_bounds(first, last)

        def read(fd: int, path: str) -> Int64Array:
            slots = self._slot_range(fd, path, first, last)
            return list_entry_ids(file_slots.read_present_groups(fd, path, *slots))

        return self._with_file(ledger, read, if_missing=_NO_ENTRIES)

    def items(self, ledger: LedgerLike, first: int = 0, last: int | None = None) -> EntryLocations:
        """Return (entries, locations) of first..last; reads that part of the file."""
        first, last = check_bounds(first, last)

        def read(fd: int, path: str) -> EntryLocations:
            chunks = list(file_slots.read_items(fd, path, *self._slot_range(fd, path, first, last)))
            if not chunks:
                return _NO_ENTRIES, _NO_ENTRIES
            entries, locations = zip(*chunks)
            return np.concatenate(entries), np.concatenate(locations)

        return self._with_file(ledger, read, if_missing=(_NO_ENTRIES, _NO_ENTRIES))

    def last_entry(self, ledger: LedgerLike) -> int | None:
        """Return the highest entry id, None if there is none; reads from the end. With
        ``compat="bookkeeper"`` reads the last page only and returns 0 for "none"."""

        def read(fd: int, path: str) -> int | None:
            """Return the highest entry id in the open file, None if it has none; with `compat`,
            what BookKeeper's class returns."""
            if self._compat is None:
                stop = self._count_slots_to_list(fd, path)
                return file_slots.find_last_present(fd, path, stop)
            slots = self._count_whole_slots(fd)
            if 0 < slots < self._page_slots:
                raise CorruptionError(path, HEADER_SIZE, "short read: less than a page of slots")
            # As in BookKeeper: only the last page is read, and if it is empty, the result is 0.
            first = max(slots - self._page_slots, 0)
            chunks = list(file_slots.read_items(fd, path, first, stop=slots))
            if not chunks:
                return 0
            entry_ids, _ = chunks[-1]
            return int(entry_ids[-1])

        return self._with_file(ledger, read, if_missing=None)

    def get_many(self, ledger: LedgerLike, entries: IntArrayLike) -> Int64Array:
        """Return locations, 0 where absent; reads the ranges that hold these entries."""
        entry_ids = as_entry_ids(entries)

        def read(fd: int, path: str) -> Int64Array:
            # As BookKeeper (`compat`): a look-up reads an incomplete last page, a listing does not.
            if self._compat is not None:
                slot_count = self._count_whole_slots(fd)
            else:
                slot_count = self._count_slots_to_list(fd, path)
            return file_slots.read_locations(fd, path, entry_ids, slot_count)

        return self._with_file(ledger, read, if_missing=np.zeros(entry_ids.size, np.int64))

    def get(self, ledger: LedgerLike, entry: int) -> int | None:
        """Return the location of one entry, None if absent; one 8-byte read."""
        offset = HEADER_SIZE + idxfile.SLOT_SIZE * check_entry_id(entry)
        with self._lock:
            open_file = self._open_file(LedgerId.of(ledger))
            if open_file is None or offset >= 1 << 63:  # no file is that long
                return None
            fd, path = open_file
            try:  # not `convert_read_errors`: entering it would cost as much as the read
                word = os.pread(fd, idxfile.SLOT_SIZE, offset)
            except OSError as error:
                raise read_error(error, path) from error
        if 0 < len(word) < idxfile.SLOT_SIZE:
            raise CorruptionError(path, offset, f"file ends inside the slot of entry {entry}")
        location = int.from_bytes(word, "big", signed=True)
        if location < 0:
            raise CorruptionError(path, offset, f"location of entry {entry} is negative")
        return location or None

    def header(self, ledger: LedgerLike) -> IdxHeader:
        """Return the file's header; `NoSuchLedger` if there is no file."""
        return self._read_existing(ledger, self._read_header)

    def _read_header(self, fd: int, path: str) -> IdxHeader:
        return file_slots.read_header(fd, path, self._compat)

    def _read_existing(self, ledger: LedgerLike, read: Callable[[int, str], _T]) -> _T:
        """Run `read(fd, path)` on the ledger's file; raises `NoSuchLedger` if it has none."""
        result = self._with_file(ledger, read, if_missing=None)
        if result is None:
            raise NoSuchLedger(f"ledger {LedgerId.of(ledger)} has no index file")
        return result

    def state(self, ledger: LedgerLike) -> LedgerState:
        """Return master key, fenced flag and explicit LAC from the header."""
        return _state_of(self.header(ledger))

    def checked_state(self, ledger: LedgerLike) -> tuple[LedgerState, list[Finding]]:
        """Return the state, and a finding for each oddity of the header's bytes."""
        ledger_id = LedgerId.of(ledger)

        def read(fd: int, path: str) -> tuple[LedgerState, list[Finding]]:
            header = self._read_header(fd, path)
            oddities = idxfile.header_oddities(os.pread(fd, HEADER_SIZE, 0), header, ledger_id)
            findings = [
                Finding("oddity", text, path, offset, ledger_id) for offset, text in oddities
            ]
            return _state_of(header), findings

        return self._read_existing(ledger_id, read)

    def scan(self, batch: int = DEFAULT_BATCH, findings: Findings = None) -> Iterator[IndexBatch]:
        """Return every row, ordered by ledger and entry. Memory: one batch and one file chunk."""
        return self._scan_batches(check_batch("batch", batch), findings)

    def _scan_batches(self, batch: int, findings: Findings) -> Iterator[IndexBatch]:
        """Yield the rows of `scan`, in batches of at least `batch` rows except the last. Damage is
        appended to `findings`, or raised if that is None."""
        waiting, row_count = list[IndexBatch](), 0  # the parts of the next batch, and their rows
        rows_per_part = max(batch, _MIN_SCAN_ROWS)
        # Where a file is in the place of a folder, rows may be lost: report this first, or raise.
        with self._lock:
            lost_folders = list(self._scanned_tree().lost_folders)
        for folder in lost_folders:
            if findings is None:
                raise folder.error
            findings.append(folder.finding())
        # Cut long files, join short ones.
        for file_rows in self._read_all_rows(findings):
            for start in range(0, file_rows.entry_id.size, rows_per_part):
                part = slice(start, start + rows_per_part)
                waiting.append(IndexBatch(*(column[part] for column in file_rows)))
                row_count += waiting[-1].entry_id.size
                if row_count >= batch:
                    yield IndexBatch.joined(waiting)
                    waiting, row_count = [], 0
        if waiting:
            yield IndexBatch.joined(waiting)

    def _read_all_rows(self, findings: Findings) -> Iterator[IndexBatch]:
        """Yield the rows of every file in order. Small neighboring files that are valid are read
        together, and their rows are one batch; any other file is read alone. Damage is appended to
        `findings`, or raised if that is None."""
        for chunk in read_small_files(self._plain_files(self.ledgers()), self._listed_unit_bytes):
            next_index = 0
            for first, stop, rows in chunk.rows():
                for ledger in chunk.ledger_ids[next_index:first]:
                    yield from self._read_ledger_rows(ledger, findings)
                yield rows
                next_index = stop
            for ledger in chunk.ledger_ids[next_index:]:
                yield from self._read_ledger_rows(ledger, findings)

    def _read_ledger_rows(self, ledger: LedgerId, findings: Findings) -> Iterator[IndexBatch]:
        """Yield the rows of one ledger's index file. Damage, and an error of reading, is appended
        to `findings`, or raised if that is None."""
        path = None
        try:
            with self._lock:  # so that no flush renames a new file now
                path = self._changes.new_paths.get(ledger) or self.path(ledger)
                fd = None if path is None else open_regular(path)
            if path is not None and fd is not None:
                with os.fdopen(fd):
                    file_slots.read_header(fd, path, self._compat)
                    slot_count = self._count_slots_to_list(fd, path)
                    for columns in file_slots.read_items(fd, path, first=0, stop=slot_count):
                        yield IndexBatch.of_ledger(ledger, *columns)
        except CorruptionError as error:
            if findings is None:
                raise
            findings.append(Finding.of(error, ledger))
        except OSError as error:
            if findings is None:
                raise read_error(error, path or "") from error
            detail = f"cannot be read: {error}"
            findings.append(Finding("damage", detail, path, ledger=ledger))

    def _forked(self) -> None:
        self._lock = RLock()
        if self._writable:
            self._closed = True
            self._open_files.clear()  # the descriptors go with the child


def _state_of(header: IdxHeader) -> LedgerState:
    return LedgerState(
        header.master_key, header.fenced, limbo=False, explicit_lac=header.explicit_lac
    )
