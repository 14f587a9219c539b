"""Check a bookie's directories: the index against the logs, and the logs against the index. The
steps and their findings come in this order: directories, journals, the index's own findings, ledger
states, index rows (spilled by location), and then each log."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bkstore.arguments import integer, optional
from bkstore.counts import format_count
from bkstore.errors import BkstoreError, DirectoryInUse, InvalidArgument, SystemRefused
from bkstore.files.scratch import scratch_directory
from bkstore.formats.entry import Coder
from bkstore.formats.entrylog import LogMetadata
from bkstore.ids import LedgerId, keys_of_ledgers, log_ids_of
from bkstore.index.api import EntryIndex, Finding, IndexBatch, LedgerLike, LedgerListing
from bkstore.offline.check.coverage import Coverage
from bkstore.offline.check.directories import check_directories
from bkstore.offline.check.findings import CheckFinding
from bkstore.offline.check.journals import JournalFacts, check_against_journals, read_journals
from bkstore.offline.check.ledger_states import ClientSecret, check_other_layout, check_states
from bkstore.offline.check.log_check import LogTask
from bkstore.offline.check.workers import LogCheckContext, check_logs
from bkstore.offline.spilled_rows.rows_by_log import RowsByLog
from bkstore.storage.directories.file_listing import LogFile
from bkstore.storage.entry_log.scan import read_log_metadata
from bkstore.storage.read_only.bookie_dir import BookieDir

Progress = Callable[[str, int, int, int], None]
"""Called with the step, the bytes of logs done, the bytes of all logs, and the records read."""

_LogKey = tuple[int, int]  # a log's directory number and id
_CachedMetadata = dict[_LogKey, LogMetadata]

_MIN_PARALLEL_BYTES = 64 << 20
"""The bytes of logs from which on processes are used; each takes half a second to start."""


@dataclass
class Check:
    """A check of a bookie's directories: iterate it for findings, then look at `coverage`.

    `bookie` is open. If it was opened with ``needs_index=False``, an index that cannot be opened is
    a finding, and the logs are checked alone. With `digest_type` (and `password`, which HMAC
    needs), the digest of each record that the index points at is verified; with a password, the
    master keys are, too. `ledger`, or several `ledgers`, and `log_id` select a part: rows and
    records of these, or in that log; directories, journals and other states are left out then.
    `live_ledgers` are the ledgers in the metadata: their records are damage, not garbage, if the
    index lacks the ledger. `jobs` processes read logs in parallel (None: one for each CPU, or one
    if there are few bytes); the findings and their order do not depend on it. The rules:

    * a row is good if a record with its ids begins where it points;
    * a record is good if a row points at it, or if the index has its entry elsewhere: then it is
      an older copy of an entry that was added again or compacted;
    * a record of a ledger that is not in the index is garbage (a note);
    * a record of a known ledger whose entry is in no row is damage (`unindexed`). It is an oddity
      if it is older than all rows of its ledger (which may have been deleted and made again), or
      if it is at the end of an open log or in a journal after the last mark (`unflushed`).

    May be iterated once. Damage in files never raises; `DirectoryInUse` is raised if the files
    change. Cost: a pass over the index (0.6 us a row, and 32 bytes of scratch disk), one over each
    log (0.3 us a record), a look-up for each record without a row. Memory: some 300 MB a process,
    however many rows and records there are; a few words a ledger beside that.

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
    ledgers: Collection[LedgerLike] | None = None
    coverage: Coverage = field(default_factory=Coverage, init=False)

    def __post_init__(self) -> None:
        """Validate the options, and make the state of the run."""
        self._client_secret: ClientSecret | None = None
        if self.digest_type is not None:
            Coder(self.digest_type, self.password)  # raises if there is no such type
            self._client_secret = (self.digest_type, self.password)
        elif self.password is not None:
            raise InvalidArgument("a password requires digest_type")
        if self.ledger is not None and self.ledgers is not None:
            raise InvalidArgument("ledger and ledgers exclude each other")
        chosen = self.ledgers if self.ledger is None else (self.ledger,)
        self._chosen = None if chosen is None else frozenset(map(LedgerId.of, chosen))
        self.jobs = optional(integer(1, 1 << 12))("jobs", self.jobs)
        optional(integer(0, (1 << 31) - 1))("log_id", self.log_id)
        self._index: EntryIndex | None = None
        self._listing = LedgerListing([])
        self._lowest_locations: dict[LedgerId, int] = {}  # 0: no location found yet
        self._journal_facts = JournalFacts()

    def __iter__(self) -> Iterator[CheckFinding]:
        """Run the check and yield its findings, as they are found."""
        # Several steps may find the same damage in a file: only the first finding is yielded.
        # Findings that name no file, such as those on states, are not compared.
        reported = set()
        for finding in self._run_steps():
            identity = (finding.severity, finding.file, finding.offset, finding.detail)
            if finding.file is None or identity not in reported:
                reported.add(identity)
                yield finding

    def _run_steps(self) -> Iterator[CheckFinding]:
        """Check directories, journals, ledger states and entry logs, in this order."""
        # A check of some ledgers or one log leaves out directories, journals and other states.
        is_partial = self._chosen is not None or self.log_id is not None
        coverage = self.coverage = Coverage()
        if not is_partial:
            yield from check_directories(self.bookie)
            if self.bookie.folders.journal:
                yield from read_journals(self.bookie.folders, self._journal_facts, coverage)
        yield from self._open_index(is_partial)
        if self._index is not None:
            yield from self._check_states(self._index, is_partial)
        with scratch_directory("check") as scratch:
            yield from self._check_logs(scratch / "rows", is_partial)
        self._record_unchecked_parts(is_partial)
        self.bookie.check_unchanged()

    # -- the index

    def _open_index(self, is_partial: bool) -> Iterator[CheckFinding]:
        """Open the index; if it cannot be read, yield that as a finding and check without it."""
        try:
            self._index = self.bookie.index
            self._listing = self._index.list_readable_ledgers()
            self._lowest_locations = dict.fromkeys(self._listing.ledgers, 0)
            if not is_partial:
                yield from CheckFinding.from_findings("index", self.bookie.findings())
        except DirectoryInUse:
            raise
        except BkstoreError as error:
            self._index = None
            yield CheckFinding.from_error("index", error)
            self.coverage.not_checked.append("index rows and states: the index cannot be read")
            return
        if self._listing.unknown:
            ranges = format_count(len(self._listing.unknown), "unknown range")
            unread = f"ledgers that cannot be listed, in {ranges} of ids: see the findings"
            self.coverage.not_checked.append(unread)
            if self._chosen is None:  # else the states of chosen ledgers report it
                yield from CheckFinding.from_findings("index", self._listing.findings)

    def _check_states(self, index: EntryIndex, is_partial: bool) -> Iterator[CheckFinding]:
        """Check ledger states, of chosen ledgers or all, and compare all with the journals."""
        if self._chosen is not None:
            yield from check_states(
                index, self._known_chosen_ledgers(), self._client_secret, self.coverage
            )
        elif not is_partial:
            yield from check_states(
                index, self._listing.ledgers, self._client_secret, self.coverage
            )
            yield from check_other_layout(self.bookie)
            yield from check_against_journals(index, self._journal_facts)

    def _known_chosen_ledgers(self) -> list[LedgerId]:
        """Return the chosen ledgers that the index has or may have, in its order."""
        chosen, listing = self._chosen or frozenset(), self._listing
        return sorted({*chosen.intersection(listing.ledgers), *filter(listing.may_include, chosen)})

    def _spill_rows(self, spill: RowsByLog, findings: list[Finding]) -> None:
        """Read the index rows to check into `spill`, and note each ledger's lowest location."""
        for rows in self._read_rows(findings):
            self._note_lowest_locations(rows)
            chosen_rows = rows
            if self.log_id is not None:
                is_in_log = log_ids_of(rows.location) == self.log_id
                chosen_rows = IndexBatch(*(column[is_in_log] for column in rows))
            self.coverage.rows += chosen_rows.entry_id.size
            if chosen_rows.entry_id.size:
                spill.add(chosen_rows)
        spill.finish()

    def _note_lowest_locations(self, rows: IndexBatch) -> None:
        """Lower each ledger's lowest location to the lowest of these rows; 0 means none yet."""
        for ledger, _, locations in rows.by_ledger():
            lowest, known = int(locations.min()), self._lowest_locations.get(ledger)
            if known is not None:
                self._lowest_locations[ledger] = min(known or lowest, lowest)

    def _read_rows(self, findings: list[Finding]) -> Iterator[IndexBatch]:
        """Yield the index rows of all ledgers, or of the chosen ones."""
        if self._chosen is None:
            yield from self.bookie.scan(findings=findings)
            return
        for ledger_id in self._known_chosen_ledgers():
            try:
                entries, dir_indexes, locations = self.bookie.locate(ledger_id)
            except BkstoreError as error:
                findings.append(Finding.of(error, ledger_id))
                continue
            if entries.size:
                rows = IndexBatch.of_ledger(ledger_id, entries, locations)
                yield rows._replace(dir_index=dir_indexes)

    # -- the logs

    def _check_logs(self, rows_path: Path, is_partial: bool) -> Iterator[CheckFinding]:
        """Compare the entry logs with the index rows, which are spilled to `rows_path`."""
        # First spill the index rows to a file, sorted by the log that they point into.
        spill, findings = RowsByLog(rows_path), list[Finding]()
        if self._index is not None:
            try:
                self._spill_rows(spill, findings)
            except DirectoryInUse:
                raise
            except BkstoreError as error:
                findings.append(Finding.of(error))
        yield from CheckFinding.from_findings("index", findings)
        damaged = sum(finding.severity == "damage" for finding in findings)
        if damaged:
            where = format_count(damaged, "place")
            unread = f"index rows that cannot be read, in {where}: see the findings"
            self.coverage.not_checked.append(unread)
        # Then compare each log with its rows.
        cached_metadata: _CachedMetadata = {}
        if not is_partial:
            yield from self._read_metadata_cache(cached_metadata)
        tasks = self._log_tasks(spill, cached_metadata)
        context = self._log_check_context(rows_path)
        bytes_done, total_bytes = 0, sum(task.log.bytes for task in tasks)
        jobs = self.jobs or (1 if total_bytes < _MIN_PARALLEL_BYTES else os.cpu_count() or 1)
        for task, (log_findings, log_coverage) in zip(
            tasks, check_logs(tasks, context, lambda: self.bookie.index, jobs)
        ):
            yield from log_findings
            self.coverage.rows_checked += log_coverage.rows
            if task.exists:
                self.coverage.logs.append(log_coverage)
            bytes_done += task.log.bytes
            if self.progress is not None:
                self.progress("logs", bytes_done, total_bytes, self.coverage.total("records"))

    def _log_check_context(self, rows_path: Path) -> LogCheckContext:
        """Return what a process needs to check a log."""
        bookie = self.bookie
        return LogCheckContext(
            bookie.path,
            bookie.live,
            bookie.layout,
            bookie.root,
            rows_path,
            lowest_locations=None if self._index is None else self._lowest_locations,
            unknown_ledgers=tuple(self._listing.unknown),
            secret=self._client_secret,
            only_ledgers=None if self._chosen is None else keys_of_ledgers(self._chosen),
            live_ledgers=frozenset(map(LedgerId.of, self.live_ledgers)),
            replayed=self._journal_facts.replayed_ranges(),
        )

    def _log_tasks(self, spill: RowsByLog, cached_metadata: _CachedMetadata) -> list[LogTask]:
        """Return the logs to check: existing ones, then those that only index rows name."""
        # `segments` say where the rows of a log are in the spilled file. Logs are reversed, so that
        # of several files with one key the first one counts.
        present = {(log.dir_index, log.log_id): log for log in reversed(self.bookie.entry_logs)}
        chosen = {key: log for key, log in present.items() if self.log_id in (None, log.log_id)}
        indexed_logs = spill.logs()
        if self._chosen is not None:
            wanted_logs = {*indexed_logs, *self._logs_with_chosen(chosen)}
            chosen = {key: log for key, log in chosen.items() if key in wanted_logs}
        tasks = []
        for key, log in sorted(chosen.items()):
            segments, cached = spill.segments(*key), cached_metadata.get(key)
            tasks.append(LogTask(log, exists=True, segments=segments, cached_metadata=cached))
        for dir_index, log_id in indexed_logs:
            if (dir_index, log_id) not in present:
                missing_log = LogFile(dir_index, log_id, f"{log_id:x}.log", bytes=0)
                segments = spill.segments(dir_index, log_id)
                tasks.append(LogTask(missing_log, exists=False, segments=segments))
        return tasks

    def _logs_with_chosen(self, logs: dict[_LogKey, LogFile]) -> set[_LogKey]:
        """Return the logs that may hold records of the chosen ledgers: all but those with a
        readable ledgers map that names none of them."""
        chosen_ledgers = self._chosen or frozenset()
        log_keys = set()
        for key, log in logs.items():
            try:
                metadata, source = read_log_metadata(log.path, log.log_id, [])
            except SystemRefused:
                raise
            except BkstoreError:
                log_keys.add(key)
                continue
            if source != "map" or not chosen_ledgers.isdisjoint(metadata.ledgers):
                log_keys.add(key)
        return log_keys

    def _read_metadata_cache(self, cached_metadata: _CachedMetadata) -> Iterator[CheckFinding]:
        """Read the bookie's caches of log metadata; yield findings on damage and missing logs."""
        logs = {(log.dir_index, log.log_id) for log in self.bookie.entry_logs}
        log_ids = {log_id for _, log_id in logs}
        for dir_index, current in enumerate(self.bookie.folders.ledger):
            try:
                rows = self.bookie.metadata_cache(dir_index)
            except DirectoryInUse:
                raise
            except BkstoreError as error:
                yield CheckFinding.from_error("metadata-cache", error)
                continue
            for log_id, metadata in sorted(rows.items()):
                # With index files, the first directory has the cache of all directories.
                key = (dir_index, log_id)
                if key not in logs and self.bookie.layout == "idx" and log_id in log_ids:
                    key = min(log_key for log_key in logs if log_key[1] == log_id)
                if key in logs:
                    cached_metadata[key] = metadata
                else:
                    detail = f"has a row of log {log_id:x}, which is not here"
                    yield CheckFinding("metadata-cache", "oddity", detail, str(current))

    def _record_unchecked_parts(self, is_partial: bool) -> None:
        """Note in the coverage what this check did not look at, and why."""
        unchecked = self.coverage.not_checked
        if is_partial:
            unchecked.append("directories, journals, other ledgers and logs: a part was requested")
        elif not self.bookie.folders.journal:
            unchecked.append("journals: there are none")
        if self._client_secret is None:
            unchecked.append("digests of records: no digest type was given")
        if self._index is not None and self.coverage.states:
            unchecked.append("fences and limbo: there is no second copy to compare")
        garbage = self.coverage.total("garbage")
        if garbage:
            records = format_count(garbage, "record")
            unchecked.append(f"{records} of ledgers not in the index")
