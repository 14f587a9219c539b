"""Finds the entry logs that hold given entries, from the logs alone, without an index.

The cheapest check comes first: a bloom filter of each log's ledgers, built from the ledgers map at
the end of a closed log (some reads); then the map itself; then one scan of the log, whose result is
cached, within bounds. Every log is checked: the next entry of a striped ledger may be in a later
log, and logs of several ledgers are written concurrently.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np

from bkstore.availability import Availability
from bkstore.bloom import FilterSet, hash_key, hash_keys
from bkstore.errors import BkstoreError, CorruptionError, UnsupportedLayout
from bkstore.formats.entrylog import HEADER_SIZE, LogMetadata, decode_header
from bkstore.ids import MAX_ENTRY_ID, Int64Array, LedgerId, check_entry_id
from bkstore.index.api import Finding
from bkstore.storage.entry_log.contents import LogContents, scan_contents
from bkstore.storage.entry_log.resynchronization import LogBytes
from bkstore.storage.entry_log.scan import read_log_metadata

if TYPE_CHECKING:
    from bkstore.storage.directories.file_listing import LogFile
from bkstore.storage.directories.log_order import sort_by_creation

DEFAULT_CONTENTS_BYTES = 64 << 20
"""Cache size for contents of scanned logs; a log of 10,000 regular ledgers takes 0.6 MB."""

_LogKey = tuple[int, int]  # directory index, log id


@dataclass(frozen=True, slots=True)
class FoundLog:
    """An entry log, with those of the requested entries that it holds."""

    dir_index: int
    log_id: int
    path: str
    entries: Availability


class LogFinder:
    """Finds the logs that hold entries of a ledger, among `logs`, which must not change once read.

    `directory_count` is the number of directories over which ledgers are distributed, ledger L
    being in ``L mod directories`` as in db storage; 1 if any log may have it. Caches filters, and
    up to `contents_bytes` of the contents of scanned logs, least recently used first out (the last
    scanned are always cached). Threads: safe; one call at a time.
    """

    def __init__(
        self,
        logs: Sequence[LogFile],
        directory_count: int = 1,
        *,
        filters: FilterSet | None = None,
        contents_bytes: int = DEFAULT_CONTENTS_BYTES,
    ) -> None:
        self._logs = _newest_first(logs, each_directory=directory_count > 1)
        self._directory_count = directory_count
        self.filters = FilterSet() if filters is None else filters
        self.contents_bytes = contents_bytes
        self._lock = Lock()
        self._contents: OrderedDict[_LogKey, LogContents] = OrderedDict()
        self._cached_bytes = 0
        self.scan_count = 0

    @property
    def nbytes(self) -> int:
        """Bytes used by filters and cached contents."""
        return self.filters.nbytes + self._cached_bytes

    def find(
        self,
        ledger: LedgerId,
        first: int = 0,
        last: int | None = None,
        *,
        copies: bool = False,
        findings: list[Finding] | None = None,
    ) -> list[FoundLog]:
        """Return the logs that hold any of first..last; see `BookieDir.find_logs`."""
        first_entry = check_entry_id(first)
        last_entry = MAX_ENTRY_ID if last is None else check_entry_id(last)
        found_logs: list[FoundLog] = []
        if last_entry < first_entry:
            return found_logs
        (filter_id,) = _filter_ids(np.array([ledger.signed]))  # the ledger's key in bloom filters
        ledger_hash = hash_key(int(filter_id))
        newer_entries = _FoundEntries()
        with self._lock:
            for log in self._logs_of(ledger):  # newest first
                entries = self._entries_in_log(log, ledger, ledger_hash, findings)
                entries = _clip_entries(entries, first_entry, last_entry)
                if not copies:
                    entries = newer_entries.add_new(entries)
                if entries:
                    found_logs.append(FoundLog(log.dir_index, log.log_id, log.path, entries))
                if newer_entries.count > last_entry - first_entry:  # all entries are found
                    break
        return sorted(found_logs, key=lambda log: (log.dir_index, log.log_id))

    def _logs_of(self, ledger: LedgerId) -> Iterator[LogFile]:
        """Return the logs that may have entries of the ledger, newest first."""
        dir_index = ledger.ledger % self._directory_count
        return (
            log for log in self._logs if self._directory_count == 1 or log.dir_index == dir_index
        )

    def _entries_in_log(
        self,
        log: LogFile,
        ledger: LedgerId,
        ledger_hash: tuple[int, int],
        findings: list[Finding] | None,
    ) -> Availability:
        """Return the entries of a ledger in one log; add damage to `findings`, or raise it. The
        log's bloom filter is asked first, then its cached contents; else the log is scanned."""
        log_key = (log.dir_index, log.log_id)
        if self.filters.excludes(log_key, ledger_hash):
            return Availability()
        try:
            contents = self._contents.get(log_key) or self._load_contents(log_key, log, ledger)
        except BkstoreError as error:
            if findings is None:
                raise
            findings.append(Finding.of(error, ledger))
            return Availability()
        if contents is None:  # the log does not have the ledger
            return Availability()
        self._contents.move_to_end(log_key)  # used last, so dropped last
        if findings is not None:
            findings.extend(contents.findings)
        elif contents.first_damage is not None:
            raise _error_of(contents.first_damage)
        return contents.entries(ledger)

    def _load_contents(self, key: _LogKey, log: LogFile, ledger: LedgerId) -> LogContents | None:
        """Scan and cache a log's contents; None if its ledgers map does not have the ledger."""
        oddities: list[Finding] = []
        metadata = _read_map(log, oddities)
        if metadata is not None:
            ledger_ids = np.array([ledger_id.signed for ledger_id in metadata.ledgers], np.int64)
            self.filters.build(key, _filter_ids(ledger_ids))
            if ledger not in metadata.ledgers:
                return None
        contents = scan_contents(log.path, oddities)
        self.scan_count += 1
        if contents.first_damage is None:  # else the filter might miss ledgers that damage hides
            self.filters.build(key, _filter_ids(contents.ledgers))
        self._cache_contents(key, contents)
        return contents

    def _cache_contents(self, log_key: _LogKey, contents: LogContents) -> None:
        """Keep a log's contents; drop the oldest beyond the limit of bytes."""
        self._contents[log_key] = contents
        self._cached_bytes += contents.nbytes
        while self._cached_bytes > self.contents_bytes and len(self._contents) > 1:
            self._cached_bytes -= self._contents.popitem(last=False)[1].nbytes


class _FoundEntries:
    """The entries found in newer logs. Most ranges are disjoint: bounds are compared first."""

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int, Availability]] = []
        self.count = 0

    def add_new(self, entries: Availability) -> Availability:
        """Return the entries that were not found before, and add them."""
        first_entry, last_entry = _first_and_last(entries)
        for known_first, known_last, known_entries in self._ranges:
            if known_first <= last_entry and first_entry <= known_last:
                entries = entries - known_entries
        if entries:
            self._ranges.append((*_first_and_last(entries), entries))
            self.count += len(entries)
        return entries


def _first_and_last(entries: Availability) -> tuple[int, int]:
    """Return the first entry and the last; (0, -1) if there is none."""
    first, last = entries.first_entry, entries.last_entry
    return (0, -1) if first is None or last is None else (first, last)


def _newest_first(logs: Sequence[LogFile], *, each_directory: bool) -> list[LogFile]:
    """Return logs by creation, newest first; if `each_directory` has log ids of its own, as in db
    storage, directory by directory."""
    groups: list[list[LogFile]] = [list(logs)]
    if each_directory:
        numbers = sorted({log.dir_index for log in logs})
        groups = [[log for log in logs if log.dir_index == number] for number in numbers]
    return [log for group in groups for log in reversed(sort_by_creation(group))]


def _clip_entries(entries: Availability, low: int, high: int) -> Availability:
    """Return the entries of low..high; O(1) if all or none are."""
    first, last = _first_and_last(entries)
    if low <= first and last <= high:
        return entries
    if last < low or high < first:
        return Availability()
    return entries & Availability.from_ranges([(low, high)])


def _read_map(log: LogFile, oddities: list[Finding]) -> LogMetadata | None:
    """Return the metadata in the ledgers map, None if it is missing or broken."""
    # Without a map `read_log_metadata` would scan the log, so look at the header first.
    with LogBytes(log.path) as data:
        try:
            header = decode_header(data.read(0, HEADER_SIZE))
        except (CorruptionError, UnsupportedLayout):
            return None  # the scan reports it
    if header.version == 0 or header.map_offset <= 0:
        return None
    scan_findings: list[Finding] = []
    metadata, source = read_log_metadata(log.path, log.log_id, scan_findings)
    if source == "map":
        return metadata
    # The map is broken. Damage found by this scan is found again by that for the contents.
    oddities.extend(finding for finding in scan_findings if finding.severity == "oddity")
    return None


def _filter_ids(ledgers: Int64Array) -> Int64Array:
    """Return the key in bloom filters, int64[n], of each ledger in int64[n, 2], (scope, ledger): in
    scope 0 the ledger itself, else a mixture of both. Two ledgers may have one key: then a filter
    excludes less than it could, and the log is read."""
    scopes, numbers = ledgers[:, 0], ledgers[:, 1]
    mixed = hash_keys(scopes)[0].view(np.int64) ^ numbers
    return np.where(scopes == 0, numbers, mixed)


def _error_of(damage: Finding) -> BkstoreError:
    if damage.file is None:
        return UnsupportedLayout(damage.detail)
    return CorruptionError(damage.file, damage.offset, damage.detail)
