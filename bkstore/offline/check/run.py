"""Checking a bookie's directories, index against logs and logs against index.

The order of work, and of what is found: the directories, the journals, the index (its own
findings, then every row, spilled by location), the states, then the logs one by one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bkstore.arguments import optional, whole
from bkstore.errors import BkstoreError, DirectoryInUse, InvalidArgument, SystemRefused
from bkstore.files.scratch import scratch_directory
from bkstore.formats.entry import Coder
from bkstore.formats.entrylog import LogMetadata
from bkstore.ids import LedgerId, log_ids
from bkstore.index.api import EntryIndex, Finding, IndexBatch, LedgerLike
from bkstore.offline.check.coverage import Coverage
from bkstore.offline.check.directories import check_directories
from bkstore.offline.check.findings import CheckFinding
from bkstore.offline.check.journals import JournalFacts, check_against_journals, read_journals
from bkstore.offline.check.log_check import LogTask
from bkstore.offline.check.states import Secret, check_other_layout, check_states
from bkstore.offline.check.workers import LogChecks, check_logs
from bkstore.offline.spilled_rows.rows_by_log import RowsByLog
from bkstore.storage.directories.file_listing import LogFile
from bkstore.storage.entry_log.scan import read_log_metadata
from bkstore.storage.read_only.bookie_dir import BookieDir

Progress = Callable[[str, int, int, int], None]
"""Called with what is at work, how many bytes of logs are done, of all, and the records so far."""


_WORTH = 64 << 20
"""Bytes of logs that are worth more than one process, which takes half a second to start."""


@dataclass
class Check:
    """A check of a bookie's directories: iterate it for findings, then look at `coverage`.

    `bookie` is open, and may have been opened with ``needs_index=False``: an index that cannot be
    opened is a finding then, and the logs are checked by themselves. With `digest_type` (and
    `password`, which HMAC needs) the digest of each record that the index points at is verified,
    and with a password the master keys. `ledger` and `log_id` check a part: rows and records of
    that ledger, rows and records in that log; directories, journals and other states are left
    out then. `live_ledgers` are ledgers that ledger metadata know of: records of one that the
    index does not know are damage then, not garbage. `jobs` processes read logs side by side
    (None: one a CPU, for few bytes one); findings come in the same order whatever their number.

    What counts as found:

    * a row is good if a record with its ids begins where it points;
    * a record is good if a row points at it, or if the index has its entry elsewhere: that is an
      older copy, of an entry added again or compacted;
    * a record of a ledger that the index does not know is garbage (a note);
    * a record of a known ledger whose entry is in no row is damage, `unindexed`; an oddity where
      it is older than all that the index has of the ledger (which may have been deleted and made
      again), or at the end of a log that is open, or in a journal behind the last mark
      (`unflushed`).

    One iteration only. Nothing is raised for what is in the files; `DirectoryInUse` is, where
    they move. Cost: a pass over the index (0.6 us a row, and 32 bytes of scratch disk), one over
    each log (0.3 us a record), a look-up for each record without a row. Memory: some 300 MB a
    process, however many rows and records there are; a few words a ledger beside that.

    >>> import tempfile
    >>> from bkstore import LedgerStorage
    >>> from bkstore.formats.entry import Coder, Entry
    >>> with tempfile.TemporaryDirectory() as top:
    ...     with LedgerStorage.open(top, storage="db") as storage:
    ...         storage.set_master_key(7, b"k" * 20)
    ...         storage.add_entry(Coder("CRC32C").encode(Entry(7, 0, -1, 5, b"hello")))
    ...         storage.flush()
    ...     with BookieDir(top) as bookie:
    ...         checking = Check(bookie, digest_type="CRC32C")
    ...         list(checking), checking.coverage.rows_checked, checking.coverage.total("records")
    0
    ([], 1, 1)
    """

    bookie: BookieDir
    digest_type: str | int | None = None
    password: bytes | str | None = field(default=None, repr=False)
    ledger: LedgerLike | None = None
    log_id: int | None = None
    live_ledgers: Collection[LedgerLike] = ()
    jobs: int | None = 1
    progress: Progress | None = None
    coverage: Coverage = field(default_factory=Coverage, init=False)

    def __post_init__(self) -> None:
        self._secret: Secret | None = None
        if self.digest_type is not None:
            Coder(self.digest_type, self.password)  # which refuses what is none
            self._secret = (self.digest_type, self.password)
        elif self.password is not None:
            raise InvalidArgument("a password verifies digests of digest_type, which is not given")
        self._only = None if self.ledger is None else LedgerId.of(self.ledger)
        self.jobs = optional(whole(1, 1 << 12))("jobs", self.jobs)
        optional(whole(0, (1 << 31) - 1))("log_id", self.log_id)
        self._index: EntryIndex | None = None
        self._known: list[LedgerId] = []
        self._lowest: dict[LedgerId, int] = {}
        self._facts = JournalFacts()

    def __iter__(self) -> Iterator[CheckFinding]:
        # Several steps meet the same damage: what is in a file is yielded by the first of them.
        reported = set()
        for found in self._steps():
            what = (found.severity, found.file, found.offset, found.detail)
            if found.file is None or what not in reported:
                reported.add(what)
                yield found

    def _steps(self) -> Iterator[CheckFinding]:
        partial = self._only is not None or self.log_id is not None
        seen = self.coverage = Coverage()
        if not partial:
            yield from check_directories(self.bookie)
            if self.bookie.folders.journal:
                yield from read_journals(self.bookie.folders, self._facts, seen)
        yield from self._open_index(partial)
        if self._index is not None:
            yield from self._states(self._index, partial)
        with scratch_directory("check") as scratch:
            yield from self._logs(scratch / "rows", partial)
        self._leave_out(partial)
        self.bookie.check_unchanged()

    # -- the index

    def _open_index(self, partial: bool) -> Iterator[CheckFinding]:
        try:
            self._index = self.bookie.index
            self._known = self._index.ledgers()
            self._lowest = dict.fromkeys(self._known, 0)
            if not partial:
                yield from (CheckFinding.of("index", each) for each in self.bookie.findings())
        except DirectoryInUse:
            raise
        except BkstoreError as error:
            self._index = None
            yield CheckFinding.of_error("index", error)
            self.coverage.left_out.append("index rows and states: the index cannot be read")

    def _states(self, index: EntryIndex, partial: bool) -> Iterator[CheckFinding]:
        if self._only is not None:
            known = [name for name in self._known if name == self._only]
            yield from check_states(index, known, self._secret, self.coverage)
        elif not partial:
            yield from check_states(index, self._known, self._secret, self.coverage)
            yield from check_other_layout(self.bookie)
            yield from check_against_journals(index, self._facts)

    def _spill(self, spill: RowsByLog, found: list[Finding]) -> None:
        """Read every row that is to be checked into `spill`."""
        for rows in self._rows(found):
            self._note_lowest(rows)
            chosen = rows
            if self.log_id is not None:
                own = log_ids(rows.location) == self.log_id
                chosen = IndexBatch(*(column[own] for column in rows))
            self.coverage.rows += chosen.entry_id.size
            if chosen.entry_id.size:
                spill.add(chosen)
        spill.finish()

    def _note_lowest(self, rows: IndexBatch) -> None:
        for ledger, _, locations in rows.by_ledger():
            if ledger in self._lowest:
                lowest = int(locations.min())
                self._lowest[ledger] = min(self._lowest[ledger] or lowest, lowest)

    def _rows(self, found: list[Finding]) -> Iterator[IndexBatch]:
        bookie, name = self.bookie, self._only
        if name is None:
            yield from bookie.scan(findings=found)
            return
        try:
            entries, numbers, locations = bookie.locate(name)
        except BkstoreError as error:
            found.append(Finding.of(error, name))
            return
        if entries.size:
            rows = IndexBatch.of_ledger(name, entries, locations)
            yield rows._replace(dir_index=numbers)

    # -- the logs

    def _logs(self, path: Path, partial: bool) -> Iterator[CheckFinding]:
        spill, found = RowsByLog(path), list[Finding]()
        if self._index is not None:
            try:
                self._spill(spill, found)
            except DirectoryInUse:
                raise
            except BkstoreError as error:
                found.append(Finding.of(error))
        yield from (CheckFinding.of("index", each) for each in found)
        if any(each.severity == "damage" for each in found):
            self.coverage.left_out.append("index rows that cannot be read: see the findings")
        cached: dict[tuple[int, int], LogMetadata] = {}
        if not partial:
            yield from self._cached(cached)
        tasks = self._tasks(spill, cached)
        checks = self._checks(path)
        done, total = 0, sum(task.log.bytes for task in tasks)
        jobs = self.jobs or (1 if total < _WORTH else os.cpu_count() or 1)
        for task, (told, seen) in zip(
            tasks, check_logs(tasks, checks, lambda: self.bookie.index, jobs)
        ):
            yield from told
            self.coverage.rows_checked += seen.rows
            if task.here:
                self.coverage.logs.append(seen)
            done += task.log.bytes
            if self.progress is not None:
                self.progress("logs", done, total, self.coverage.total("records"))

    def _checks(self, rows: Path) -> LogChecks:
        bookie = self.bookie
        return LogChecks(
            bookie.path,
            bookie.live,
            bookie.layout,
            bookie.root,
            rows,
            None if self._index is None else self._lowest,
            self._secret,
            self._only,
            frozenset(map(LedgerId.of, self.live_ledgers)),
            self._facts.replayed(),
        )

    def _tasks(self, spill: RowsByLog, cached: dict[tuple[int, int], LogMetadata]) -> list[LogTask]:
        """Return the logs to check: those that are here, then those that are only pointed at."""
        here = {(log.dir_index, log.log_id): log for log in reversed(self.bookie.entry_logs)}
        chosen = {at: log for at, log in here.items() if self.log_id in (None, log.log_id)}
        pointed = spill.logs()
        if self._only is not None:
            wanted = {*pointed, *self._may_hold(chosen)}
            chosen = {at: log for at, log in chosen.items() if at in wanted}
        tasks = [
            LogTask(chosen[at], True, spill.segments(*at), cached.get(at)) for at in sorted(chosen)
        ]
        for number, log_id in pointed:
            if (number, log_id) not in here:
                gone = LogFile(number, log_id, f"{log_id:x}.log", 0)
                tasks.append(LogTask(gone, False, spill.segments(number, log_id)))
        return tasks

    def _may_hold(self, logs: dict[tuple[int, int], LogFile]) -> set[tuple[int, int]]:
        """Return the logs that may hold records of the one ledger; their maps say it."""
        found = set()
        for at, log in logs.items():
            try:
                metadata, source = read_log_metadata(log.path, log.log_id, [])
            except SystemRefused:
                raise
            except BkstoreError:
                found.add(at)
                continue
            if source != "map" or self._only in metadata.ledgers:
                found.add(at)
        return found

    def _cached(self, cached: dict[tuple[int, int], LogMetadata]) -> Iterator[CheckFinding]:
        """Read what the bookie kept of its logs; yield what cannot be read, or is of no log."""
        here = {(log.dir_index, log.log_id) for log in self.bookie.entry_logs}
        ids = {log_id for _, log_id in here}
        for number, current in enumerate(self.bookie.folders.ledger):
            try:
                rows = self.bookie.metadata_cache(number)
            except DirectoryInUse:
                raise
            except BkstoreError as error:
                yield CheckFinding.of_error("metadata-cache", error)
                continue
            for log_id, metadata in sorted(rows.items()):
                # One cache for all directories lies in the first, where log ids are one sequence.
                at = (number, log_id)
                if at not in here and self.bookie.layout == "idx" and log_id in ids:
                    at = next(place for place in sorted(here) if place[1] == log_id)
                if at in here:
                    cached[at] = metadata
                else:
                    detail = f"has a row of log {log_id:x}, which is not here"
                    yield CheckFinding("metadata-cache", "oddity", detail, str(current))

    def _leave_out(self, partial: bool) -> None:
        """Say what was not looked at."""
        left = self.coverage.left_out
        if partial:
            left.append("directories, journals, other ledgers and logs: a part was asked for")
        elif not self.bookie.folders.journal:
            left.append("journals: none is here")
        if self._secret is None:
            left.append("digests of records: no digest type was given")
        if self._index is not None and self.coverage.states:
            left.append("fences, and limbo, of which there is no second copy")
        garbage = self.coverage.total("garbage")
        if garbage:
            left.append(f"{garbage} records of ledgers that the index does not know")
