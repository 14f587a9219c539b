"""Which entry logs hold these entries? Answered from the logs alone, without an entry index.

Cheap things first: a bloom filter of each log's ledgers, made from the ledgers map that a closed
log ends with (some reads); then the map itself; then one scan of the log, whose result is kept
for the next question. What is kept is bounded, and fills as questions come.

A log tells no chain: the next entry of a striped ledger may lie in a later log, and the log of
one ledger be written beside those of others. So every log is asked for what overlaps.
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
from bkstore.storage.entry_log.resync import LogBytes
from bkstore.storage.entry_log.scan import read_log_metadata

if TYPE_CHECKING:
    from bkstore.storage.directories.file_listing import LogFile

DEFAULT_CONTENTS_BYTES = 64 << 20
"""For what scanned logs hold; a log of 10,000 regular ledgers takes 0.6 MB."""

_Place = tuple[int, int]  # directory number, log id


@dataclass(frozen=True, slots=True)
class FoundLog:
    """An entry log, and which of the entries that were asked for it holds."""

    dir_index: int
    log_id: int
    path: str
    entries: Availability


class LogFinder:
    """Finds the logs that hold entries of a ledger, among `logs`.

    `directories` is the number of directories that ledgers are told apart by, ledger L being in
    number ``L mod directories`` as in db storage; 1 where any log may have it. Keeps filters and
    up to `contents_bytes` of what scanned logs hold, least recently used first out (what the
    last scanned one holds is kept in any case).

    Logs are taken to be as they were when first looked at. Threads: safe; one question at a time.
    """

    def __init__(
        self,
        logs: Sequence[LogFile],
        directories: int = 1,
        *,
        filters: FilterSet | None = None,
        contents_bytes: int = DEFAULT_CONTENTS_BYTES,
    ) -> None:
        # Newest first: log ids ascend with time, in each sequence of them.
        self._logs = sorted(logs, key=lambda log: log.log_id, reverse=True)
        self._directories = directories
        self.filters = FilterSet() if filters is None else filters
        self.contents_bytes = contents_bytes
        self._lock = Lock()
        self._contents: OrderedDict[_Place, LogContents] = OrderedDict()
        self._nbytes = 0
        self.scans = 0

    @property
    def nbytes(self) -> int:
        """Bytes that filters and contents take."""
        return self.filters.nbytes + self._nbytes

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
        low = check_entry_id(first)
        high = MAX_ENTRY_ID if last is None else check_entry_id(last)
        found: list[FoundLog] = []
        if high < low:
            return found
        hashed = hash_key(int(_filter_ids(np.array([ledger.signed]))[0]))
        taken = _Taken()
        with self._lock:
            for log in self._logs_of(ledger):
                entries = _clipped(self._held(log, ledger, hashed, findings), low, high)
                if not copies:
                    entries = taken.rest(entries)
                if entries:
                    found.append(FoundLog(log.dir_index, log.log_id, log.path, entries))
                if taken.count > high - low:  # every one is found
                    break
        return sorted(found, key=lambda log: (log.dir_index, log.log_id))

    def _logs_of(self, ledger: LedgerId) -> Iterator[LogFile]:
        number = ledger.ledger % self._directories
        return (log for log in self._logs if self._directories == 1 or log.dir_index == number)

    def _held(
        self,
        log: LogFile,
        ledger: LedgerId,
        hashed: tuple[int, int],
        findings: list[Finding] | None,
    ) -> Availability:
        """Return what one log holds of a ledger; damage that may hide more is told or raised."""
        place = (log.dir_index, log.log_id)
        if self.filters.refuses(place, hashed):
            return Availability()
        try:
            contents = self._contents.get(place) or self._learn(place, log, ledger)
        except BkstoreError as error:
            if findings is None:
                raise
            findings.append(Finding.of(error, ledger))
            return Availability()
        if contents is None:
            return Availability()
        self._contents.move_to_end(place)
        if findings is not None:
            findings.extend(contents.findings)
        elif contents.damage is not None:
            raise _error(contents.damage)
        return contents.entries(ledger)

    def _learn(self, place: _Place, log: LogFile, ledger: LedgerId) -> LogContents | None:
        """Return what a log holds, by a scan; None if its ledgers map does not have the ledger."""
        oddities: list[Finding] = []
        metadata = _read_map(log, oddities)
        if metadata is not None:
            names = np.array([name.signed for name in metadata.ledgers], np.int64)
            self.filters.build(place, _filter_ids(names))
            if ledger not in metadata.ledgers:
                return None
        contents = scan_contents(log.path, oddities)
        self.scans += 1
        if contents.damage is None:  # else ledgers may be in it that were not seen
            self.filters.build(place, _filter_ids(contents.ledgers))
        self._keep(place, contents)
        return contents

    def _keep(self, place: _Place, contents: LogContents) -> None:
        self._contents[place] = contents
        self._nbytes += contents.nbytes
        while self._nbytes > self.contents_bytes and len(self._contents) > 1:
            self._nbytes -= self._contents.popitem(last=False)[1].nbytes


class _Taken:
    """Which entries newer logs have been told to hold.

    Most logs of a ledger follow each other: their bounds tell them apart without set operations.
    """

    def __init__(self) -> None:
        self._taken: list[tuple[int, int, Availability]] = []
        self.count = 0

    def rest(self, entries: Availability) -> Availability:
        """Return the entries that are not taken, and take them."""
        bounds = _bounds(entries)
        for first, last, newer in self._taken:
            if first <= bounds[1] and bounds[0] <= last:
                entries = entries - newer
        if entries:
            self._taken.append((*_bounds(entries), entries))
            self.count += len(entries)
        return entries


def _bounds(entries: Availability) -> tuple[int, int]:
    """Return the first entry and the last; (0, -1) if there is none."""
    first, last = entries.first_entry, entries.last_entry
    return (0, -1) if first is None or last is None else (first, last)


def _clipped(entries: Availability, low: int, high: int) -> Availability:
    """Return the entries in low..high."""
    first, last = _bounds(entries)
    if low <= first and last <= high:
        return entries
    if last < low or high < first:
        return Availability()
    return entries & Availability.from_ranges([(low, high)])


def _read_map(log: LogFile, oddities: list[Finding]) -> LogMetadata | None:
    """Return what the ledgers map says; None where there is none, or it is broken."""
    with LogBytes(log.path) as data:
        try:
            header = decode_header(data.peek(0, HEADER_SIZE))
        except (CorruptionError, UnsupportedLayout):
            return None  # the scan tells of it
    if header.version == 0 or header.map_offset <= 0:
        return None
    scan_findings: list[Finding] = []
    metadata, source = read_log_metadata(log.path, log.log_id, scan_findings)
    if source == "map":
        return metadata
    oddities.extend(found for found in scan_findings if found.severity == "oddity")
    return None


def _filter_ids(ledgers: Int64Array) -> Int64Array:
    """Return an id for each (scope, ledger) row: the ledger itself in scope 0, else mixed.

    Two ledgers of one id only make a filter say "perhaps" for both.
    """
    scopes, numbers = ledgers[:, 0], ledgers[:, 1]
    mixed = hash_keys(scopes)[0].view(np.int64) ^ numbers
    return np.where(scopes == 0, numbers, mixed)


def _error(damage: Finding) -> BkstoreError:
    if damage.file is None:
        return UnsupportedLayout(damage.detail)
    return CorruptionError(damage.file, damage.offset, damage.detail)
