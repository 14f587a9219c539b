"""Usage: the disk usage of a bookie, from one pass over its index and its entry logs. A scope is
the upper half of a 128-bit ledger id, 0 for BookKeeper's own ids."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from bkstore.arguments import integer, number
from bkstore.errors import BkstoreError
from bkstore.formats.idxfile import DEFAULT_PAGE_SIZE, check_page_size
from bkstore.ids import Int64Array, LedgerId
from bkstore.index.api import Finding
from bkstore.index.bulk_listing import iterate_results
from bkstore.offline.usage.cache_needs import DEFAULT_READ_AHEAD, CacheNeed, cache_needs
from bkstore.offline.usage.entry_logs import LogUsage, log_usages
from bkstore.offline.usage.index_size import IndexPart, index_parts
from bkstore.offline.usage.live_ledgers import LiveLedgers
from bkstore.storage.ledgers.garbage_pass import MAJOR_THRESHOLD, MINOR_THRESHOLD
from bkstore.storage.read_only.bookie_dir import BookieDir

_check_share = number(0, 1)
_check_count = integer(1)
Progress = Callable[[str, int, int, int], None]


@dataclass(slots=True)
class LedgerUsage:
    """Disk usage of a ledger: `bytes` of its records, in `logs` entry logs. `live_bytes` is all or
    none of them, except that bytes in a wrong directory of db storage are not live. `entries` is
    the number of entries in the index, None if the index does not know the ledger or cannot read
    it. `pinned_logs` is the number of pinned logs that the ledger keeps."""

    ledger: LedgerId
    live: bool
    entries: int | None = None
    logs: int = 0
    bytes: int = 0
    live_bytes: int = 0
    pinned_logs: int = 0


@dataclass(slots=True)
class ScopeUsage:
    """Disk usage of all ledgers of a scope."""

    scope: int
    ledgers: int = 0
    live_ledgers: int = 0
    entries: int = 0
    bytes: int = 0
    live_bytes: int = 0


@dataclass(slots=True)
class Totals:
    """Sums over the entry logs; `moved_bytes` are those that compaction would have to copy.
    `other_bytes` are not in records: headers, ledgers maps, padding, bytes hidden by damage."""

    logs: int = 0
    file_bytes: int = 0
    record_bytes: int = 0
    live_bytes: int = 0
    pinned_logs: int = 0
    pinned_bytes: int = 0
    removable_logs: int = 0
    compactable_logs: int = 0
    damaged_logs: int = 0
    moved_bytes: int = 0
    given_back: int = 0

    @property
    def garbage_bytes(self) -> int:
        """Bytes of records that are not live."""
        return self.record_bytes - self.live_bytes

    @property
    def other_bytes(self) -> int:
        """Bytes of files that are in no record that was counted."""
        return self.file_bytes - self.record_bytes


class Usage:
    """Disk usage of one bookie, computed from its files.

    `listed` are the live ledgers (None: all that the index knows, or may know where it is damaged).
    Logs of an occupancy below `threshold` would be compacted; logs of a positive occupancy below
    `pinned` count as pinned. The constructor reads the index once. `logs` reads the entry logs, or
    only their ledgers maps, and has to be exhausted before the sums are used. Damage is appended to
    `findings`. Memory: some 300 bytes per ledger; the ledgers of a log.

    >>> import tempfile
    >>> from bkstore import LedgerStorage
    >>> with tempfile.TemporaryDirectory() as top:
    ...     with LedgerStorage.open(top, "sorted") as storage:
    ...         for ledger in (7, 8):
    ...             record = ledger.to_bytes(8, "big") + bytes(56)
    ...             _ = storage.add_entry(record, master_key=b"k" * 20)
    ...     with BookieDir(top) as bookie:
    ...         usage = Usage(bookie, listed=[LedgerId.of(7)])
    ...         [(log.record_bytes, log.live_bytes, log.fate) for log in usage.logs()]
    [(136, 68, 'compact')]
    >>> usage.totals.garbage_bytes, [each.live for each in usage.ledgers()]
    (68, [True, False])
    """

    def __init__(
        self,
        bookie: BookieDir,
        listed: Iterable[LedgerId] | None = None,
        threshold: float = MAJOR_THRESHOLD,
        pinned: float = MINOR_THRESHOLD,
        progress: Progress | None = None,
    ) -> None:
        """Read the index. `threshold` and `pinned` are occupancies: shares of live bytes in a log.
        Raises what the index raises, and `InvalidArgument` for shares outside 0..1."""
        self._bookie = bookie
        self._threshold = float(_check_share("threshold", threshold))
        self._pinned = float(_check_share("pinned", pinned))
        self._progress = progress
        self.findings: list[Finding] = bookie.unknown_files()
        self.totals = Totals()
        listing = bookie.index.list_readable_ledgers()
        self.findings += listing.findings
        # With RocksDB each ledger has a directory of its own; otherwise it may be in any of them.
        directories = len(bookie.folders.ledger) if bookie.layout == "rocksdb" else 1
        self.live_ledgers = LiveLedgers(listing.ledgers, listed, directories, listing.unknown)
        self.indexed_count = len(listing.ledgers)
        """Number of ledgers that the index lists."""
        self._ledgers = dict(self._count_entries(listing.ledgers))

    def _count_entries(self, known: list[LedgerId]) -> Iterator[tuple[LedgerId, LedgerUsage]]:
        """Yield the usage of each ledger with its entry count; unreadable ones become findings."""
        for ledger_id, availability in iterate_results(self._bookie.index, known):
            usage = LedgerUsage(ledger_id, live=ledger_id in self.live_ledgers)
            if isinstance(availability, BkstoreError):
                self.findings.append(Finding.of(availability, ledger_id))
            else:
                usage.entries = len(availability)
            yield ledger_id, usage

    def logs(self) -> Iterator[LogUsage]:
        """Yield the usage of each entry log, by directory and log id, and add it to the sums, which
        each call begins anew."""
        bookie = self._bookie
        self.totals = Totals()
        for ledger in self._ledgers.values():
            ledger.logs = ledger.bytes = ledger.live_bytes = ledger.pinned_logs = 0
        total_bytes, done_bytes = sum(log.bytes for log in bookie.entry_logs), 0
        for usage in log_usages(bookie, self.live_ledgers, self._threshold, self.findings):
            self._add_log(usage)
            file = usage.log
            done_bytes += file.bytes
            if self._progress is not None:
                self._progress(f"log {file.log_id}", done_bytes, total_bytes, self.totals.logs)
            yield usage

    def freed_by_deleting(self, log: LogUsage, sizes: Int64Array) -> Int64Array:
        """Return int64[n]: how many bytes of a log garbage collection frees if ledgers with `sizes`
        of its live bytes are deleted, each for itself, beside what it frees anyway. A damaged log
        is left alone."""
        if log.fate == "damaged":
            return np.zeros(sizes.size, np.int64)
        remaining = log.live_bytes - sizes
        is_freed = (remaining == 0) | (remaining < self._threshold * log.record_bytes)
        freed = np.maximum(log.log.bytes - remaining, 0) - log.given_back
        return np.where(is_freed & (sizes > 0), freed, 0)

    def is_pinned(self, log: LogUsage) -> bool:
        """Return whether a few live bytes keep a log."""
        return log.is_pinned(self._pinned)

    def _add_log(self, log: LogUsage) -> None:
        """Add a log to the totals and to the usage of its ledgers."""
        totals, is_pinned = self.totals, self.is_pinned(log)
        totals.logs += 1
        totals.file_bytes += log.log.bytes
        totals.record_bytes += log.record_bytes
        totals.live_bytes += log.live_bytes
        totals.pinned_logs += is_pinned
        totals.pinned_bytes += log.log.bytes if is_pinned else 0
        totals.removable_logs += log.fate == "remove"
        totals.compactable_logs += log.fate == "compact"
        totals.damaged_logs += log.fate == "damaged"
        totals.moved_bytes += log.live_bytes if log.fate == "compact" else 0
        totals.given_back += log.given_back
        for ledger_id, byte_count in log.ledgers.items():
            usage = self._ledgers.get(ledger_id)
            if usage is None:  # not in the index, or damage hides whether it is
                is_live = ledger_id in self.live_ledgers
                usage = self._ledgers[ledger_id] = LedgerUsage(ledger_id, is_live)
            usage.logs += 1
            usage.bytes += byte_count
            usage.live_bytes += log.live_ledgers.get(ledger_id, 0)
            usage.pinned_logs += is_pinned and ledger_id in log.live_ledgers

    # -- sums, complete after `logs`

    def ledgers(self) -> list[LedgerUsage]:
        """Return the usage of each ledger in the index or a log, in unsigned order."""
        return [self._ledgers[ledger_id] for ledger_id in sorted(self._ledgers)]

    def scopes(self) -> list[ScopeUsage]:
        """Return the sums of each scope, in unsigned order."""
        by_scope: dict[int, ScopeUsage] = {}
        for usage in self.ledgers():
            scope_id = usage.ledger.scope
            scope = by_scope.setdefault(scope_id, ScopeUsage(scope_id))
            scope.ledgers += 1
            scope.live_ledgers += usage.live
            scope.entries += usage.entries or 0
            scope.bytes += usage.bytes
            scope.live_bytes += usage.live_bytes
        return list(by_scope.values())

    def index(self, page_size: int = DEFAULT_PAGE_SIZE) -> list[IndexPart]:
        """Return the parts of the index, by directory. A `stat` per file; does not need `logs`.
        `page_size` is the page size of index files, which do not record it."""
        check_page_size("page_size", page_size)
        known = self._bookie.index.list_readable_ledgers().ledgers
        entry_counts = {ledger_id: self._ledgers[ledger_id].entries for ledger_id in known}
        return list(index_parts(self._bookie, entry_counts, page_size))

    def cache_needs(
        self, readers: int = 1, read_ahead: int = DEFAULT_READ_AHEAD
    ) -> list[CacheNeed]:
        """Return the cache sizes for `readers` concurrent readers that read `read_ahead` records
        ahead. Exhaust `logs` first: it counts the bytes of records, and without their mean size the
        need of the read-ahead cache is unknown. Raises `InvalidArgument` for a number below 1."""
        _check_count("readers", readers)
        _check_count("read_ahead", read_ahead)
        # Only ledgers of which both the entries and the record bytes are known count.
        counted = [usage for usage in self._ledgers.values() if usage.entries and usage.bytes]
        entries = sum(usage.entries or 0 for usage in counted)
        mean_record_bytes = sum(usage.bytes for usage in counted) / entries if entries else None
        directories = len(self._bookie.folders.ledger)
        return cache_needs(self.index(), mean_record_bytes, directories, readers, read_ahead)
