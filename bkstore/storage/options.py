"""StorageOptions and JournalOptions: settings with a bookie's names and defaults."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from bkstore.arguments import (
    boolean,
    check_compat,
    check_fields,
    choice,
    function,
    integer,
    optional,
)
from bkstore.errors import InvalidArgument
from bkstore.formats.entrylog import HEADER_SIZE
from bkstore.formats.idxfile import (
    DEFAULT_PAGE_SIZE,
    VERSION_1,
    check_header_version,
    check_page_size,
)
from bkstore.formats.journal import ALIGNMENT, NEWEST_VERSION, OLDEST_WRITABLE_VERSION
from bkstore.ids import MAX_ENTRY_ID

StorageKind = Literal["sorted", "interleaved", "db"]

_MIB = 1 << 20
_INT32 = 2**31 - 1

DEFAULT_LOG_SIZE = 1 << 30
"""The default and maximum of `logSizeLimit`."""

check_storage = choice("sorted", "interleaved", "db")
check_log_size = integer(HEADER_SIZE + 1, DEFAULT_LOG_SIZE)


@dataclass(frozen=True, kw_only=True)
class StorageOptions:
    """Settings of `LedgerStorage`. Sizes in bytes.

    `write_cache` is `skipListSizeLimit` (sorted) or `dbStorage_writeCacheMaxSizeMb` (db), which is
    divided among the directories and halved, as two caches take turns. An add that finds the cache
    full flushes it first; with ``auto_flush=False`` it raises `TooManyRequests` and stores nothing.
    `pending_locations` is how many index rows may wait in memory for a flush (a bookie's
    `pageLimit`, in entries). `max_index_pages` limits an index file (sorted and interleaved): an
    add of an entry id beyond it is refused. File systems limit the size of sparse files too; the
    default allows 2 TiB. With `entry_log_per_ledger`, at most `max_active_logs` logs are open for
    entries (`maximumNumberOfActiveEntryLogs`); the least recently used are closed.

    `flush_order` applies to sorted and interleaved storage: "log-first" syncs entry logs before the
    index is written; "index-first" is BookKeeper's order, implied by ``compat``, with which a crash
    in between leaves index rows that point past a log's end, until a replay of the journal corrects
    the acknowledged ones. (Db storage is always log first.)

    `choose(n)` returns the index of the directory, of n, for a new entry log; the default is
    random, as in a bookie. ``compat="bookkeeper"`` reproduces the oddities in `docs/parity.md`.
    """

    entry_log_size: int = DEFAULT_LOG_SIZE
    entry_log_per_ledger: bool = False
    max_active_logs: int = 500
    write_cache: int = 64 * _MIB
    auto_flush: bool = True
    pending_locations: int = 1 << 18
    max_entry_size: int = 5 * _MIB
    page_size: int = DEFAULT_PAGE_SIZE
    index_header_version: int = VERSION_1
    max_index_pages: int = 1 << 28
    max_batch_size: int = 5 * _MIB
    flush_order: Literal["log-first", "index-first"] = "log-first"
    choose: Callable[[int], int] | None = None
    compat: Literal["bookkeeper"] | None = None

    def __post_init__(self) -> None:
        check_fields(self, _STORAGE_CHECKS)

    @property
    def index_first(self) -> bool:
        """Whether sorted and interleaved storage sync the index before the logs."""
        return self.compat is not None or self.flush_order == "index-first"

    def max_entry_id(self, storage: StorageKind) -> int:
        """Return the highest entry id that a storage with these settings accepts."""
        if storage == "db":
            return MAX_ENTRY_ID
        return min(self.max_index_pages * (self.page_size // 8) - 1, MAX_ENTRY_ID)


@dataclass(frozen=True, kw_only=True)
class JournalOptions:
    """Settings of a bookie's journals, with a bookie's defaults. Sizes in bytes.

    `version` is 6, or 5 or 4, which have no explicit LAC records. `max_backups` is how many files
    before the mark are kept. With `skip_invalid_records`, a replay skips the rest of a file after
    an invalid length (`skipReplayJournalInvalidRecord`). `clock` gives the id of the first file.
    """

    version: int = NEWEST_VERSION
    max_size: int = 2048 * _MIB
    preallocate: int = 16 * _MIB
    alignment: int = ALIGNMENT
    write_buffer: int = 64 << 10
    max_backups: int = 5
    skip_invalid_records: bool = False
    clock: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        check_fields(self, _JOURNAL_CHECKS)
        if self.preallocate % self.alignment:
            rule = f"a multiple of alignment, {self.alignment}"
            raise InvalidArgument(f"preallocate must be {rule}, not {self.preallocate}")


_STORAGE_CHECKS = {
    "entry_log_size": check_log_size,
    "entry_log_per_ledger": boolean,
    "max_active_logs": integer(1),
    "write_cache": integer(1),
    "auto_flush": boolean,
    "pending_locations": integer(1),
    "max_entry_size": integer(1, _INT32),  # a record's size is an i32
    "page_size": check_page_size,
    "index_header_version": check_header_version,
    "max_index_pages": integer(1),
    "max_batch_size": integer(1, _INT32),
    "flush_order": choice("log-first", "index-first"),
    "choose": optional(function),
    "compat": check_compat,
}

_JOURNAL_CHECKS = {
    "version": integer(OLDEST_WRITABLE_VERSION, NEWEST_VERSION),
    "max_size": integer(1),
    "preallocate": integer(0),
    "alignment": integer(ALIGNMENT, 1 << 30, ALIGNMENT),
    "write_buffer": integer(0),
    "max_backups": integer(0),
    "skip_invalid_records": boolean,
    "clock": function,
}
