"""The survey of one file: all copies of wanted entries in an entry log or a journal, verified.

The file is read once, from its start to its end. Records that the scan of a log passes over,
because their sizes are damaged, are read where the index has them. After damage in a journal the
next record is searched as in a log. Sectors that cannot be read are skipped.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from bkstore.errors import BkstoreError, CorruptionError
from bkstore.files.disk_changes import OS_FILES, Files
from bkstore.formats.entry import (
    V2_HEADER,
    RecordBatch,
    decode_explicit_lac,
    read_batch_ids,
    record_header,
)
from bkstore.formats.journal import JournalRecord
from bkstore.formats.syntax.framing import SIZE_FIELD_BYTES
from bkstore.ids import Int64Array, LedgerId
from bkstore.index.api import Finding
from bkstore.offline.rewrite.salvaged_log import size_of_record
from bkstore.offline.spilled_rows.rows_by_log import LogRows, Segment
from bkstore.offline.spilled_rows.sorted_runs import RUN_ROWS, SortedRun, write_run
from bkstore.rescue.disks.copies import (
    DAMAGED,
    IN_LOG,
    NAMED_BY_INDEX,
    VERIFIED,
    locate,
    make_rows,
    sort_rows,
)
from bkstore.rescue.disks.damaged_media import PatchedLogBytes
from bkstore.rescue.disks.verification import RecordVerifier
from bkstore.rescue.disks.wanted_ledgers import LedgerSecrets
from bkstore.storage.entry_log.byte_usage import LogByteUsage
from bkstore.storage.entry_log.resynchronization import (
    ENTRY,
    CandidateOffsets,
    classify_at,
    find_next_record,
    read_frames,
)
from bkstore.storage.entry_log.scan import LogBatch, scan_log
from bkstore.storage.journal import scan_journal

FileKind = Literal["log", "journal"]
_POSITION = 3  # the column of index rows after the key


@dataclass(frozen=True)
class SourceFile:
    """An entry log or a journal: its number among all files, its bookie's number, and where the
    rows of the bookie's index that point into it are: a spill and the segments in it."""

    number: int
    bookie: int
    kind: FileKind
    path: str
    bytes: int
    index_rows: tuple[Path, list[Segment]] | None = None


@dataclass
class JournaledLedger:
    """The state of a ledger according to a journal."""

    master_key: bytes | None = None
    fenced: bool = False


@dataclass
class FileSurvey:
    """The result: sorted runs of copies (spilled, see `sorted_runs`), findings, the highest LAC of
    each ledger that is not closed, and journaled states. `may_hide_records` is True if damage may
    have destroyed records without a trace, so that the absence of an entry proves nothing;
    `is_complete` is False if bytes could not be read, which may succeed another time."""

    runs: list[SortedRun] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    lacs: dict[LedgerId, int] = field(default_factory=dict)
    states: dict[LedgerId, JournaledLedger] = field(default_factory=dict)
    may_hide_records: bool = False
    is_complete: bool = True


def run_path(folder: Path, file_number: int, run_number: int) -> Path:
    """Return the path of a spilled run of the copies that one file has."""
    return folder / f"{file_number:08x}-{run_number:04x}"


def survey_file(
    source: SourceFile, secrets: LedgerSecrets, folder: Path, files: Files = OS_FILES
) -> FileSurvey:
    """Survey one file. Its runs are written to `folder`, under names that begin with its number.

    Damage never raises. Raises `SystemRefused`. Cost: reading the file once, about 1.5 us a record.
    Memory: a window of the file, and a run of rows.
    """
    survey = _LogSurvey if source.kind == "log" else _JournalSurvey
    return survey(source, secrets, folder, files).run()


class _Survey(ABC):
    """The survey of a file of either kind: verifies batches, and writes sorted runs."""

    def __init__(
        self, source: SourceFile, secrets: LedgerSecrets, folder: Path, files: Files
    ) -> None:
        self.source = source
        self.result = FileSurvey()
        self._secrets = secrets
        self._verifier = RecordVerifier(secrets)
        self.damaged_ranges: list[tuple[int, int]] = []
        """(start, end) of the records whose digests do not match."""
        self._folder = folder
        self._files = files
        self._pending: list[Int64Array] = []
        self._pending_rows = 0

    def run(self) -> FileSurvey:
        """Survey the file and return the result."""
        try:
            with PatchedLogBytes(self.source.path) as data:
                self.read(data)
                self.result.is_complete = not data.bad_ranges
                for start, end in data.bad_ranges:
                    reason = f"{end - start} bytes cannot be read (the medium fails): skipped"
                    self.add_damage(CorruptionError(self.source.path, start, reason))
        except BkstoreError as error:
            self.result.is_complete = False
            self.add_damage(error)
            self.add_unread_rows()
        self._spill()
        return self.result

    @abstractmethod
    def read(self, data: PatchedLogBytes) -> None:
        """Read the whole file; damage is added to the findings."""

    @abstractmethod
    def add_unread_rows(self) -> None:
        """Add a damaged copy for each index row into a file that cannot be opened or read on."""

    def add_damage(self, error: BkstoreError) -> None:
        """Add a finding of damage that may have destroyed records. Raises `SystemRefused`."""
        self.result.findings.append(Finding.of(error))
        self.result.may_hide_records = True

    def add_records(
        self,
        data: PatchedLogBytes,
        records: RecordBatch,
        ids: tuple[Int64Array, Int64Array],
        positions: Int64Array,
        rank_bonus: Int64Array,
    ) -> None:
        """Verify records and add their copies. `ids` are the columns of scopes and of ledgers,
        `rank_bonus` has for each record what to add to its rank (`IN_LOG`, `NAMED_BY_INDEX`)."""
        verified, ledgers = self._verifier.verify(records, *ids)
        if not verified.row.size:
            return
        positions, sizes = positions[verified.row], records.sizes[verified.row]
        # Zeros in place of unreadable bytes may fit a digest type of no digest: never sound.
        rank = verified.rank.copy()
        rank[data.overlaps_bad(positions - SIZE_FIELD_BYTES, positions + sizes)] = DAMAGED
        is_damaged = rank == DAMAGED
        if is_damaged.any():
            starts, ends = positions[is_damaged], (positions + sizes)[is_damaged]
            self.damaged_ranges += zip(starts.tolist(), ends.tolist())
        # A writer puts a LAC below the entry into each record. Another LAC is damage that no digest
        # shows: without the password, or with DUMMY.
        gives_lac = (rank > DAMAGED) & (verified.lac < records.entries[verified.row])
        for ledger_id, rows in ledgers:
            if ledger_id in self._secrets.open_ledgers and gives_lac[rows].any():
                self._add_lac(ledger_id, int(verified.lac[rows][gives_lac[rows]].max()))
        rank += rank_bonus[verified.row]
        scopes, ledger_numbers = (column[verified.row] for column in ids)
        key = (scopes, ledger_numbers, records.entries[verified.row])
        locations = locate(self.source.number, positions)
        self.add_rows(make_rows(*key, rank, locations, sizes, verified.content))

    def add_hidden_records(self, data: PatchedLogBytes, start: int, stop: int) -> None:
        """Add the records that begin anywhere in start..stop (half open), a range that is not a
        sequence of frames: only those of wanted ledgers whose digests match."""
        next_start = start
        for offset in CandidateOffsets(data, start, stop):
            if offset < next_start:  # inside a record that was found
                continue
            frame_head = data.read(offset, SIZE_FIELD_BYTES + V2_HEADER)
            size = int.from_bytes(frame_head[:SIZE_FIELD_BYTES], "big", signed=True)
            try:
                header = record_header(frame_head[SIZE_FIELD_BYTES:])
            except CorruptionError:
                continue
            if header.ledger not in self._secrets.numbers:
                continue
            position = offset + SIZE_FIELD_BYTES
            record = RecordBatch.of([data.read(position, size)], [header.entry_id])
            scope, ledger = header.ledger.signed
            ids = (np.array([scope]), np.array([ledger]))
            verified, _ = self._verifier.verify(record, *ids)
            if verified.rank[0] >= VERIFIED:
                self.result.may_hide_records = True
                bonus = np.array([IN_LOG if self.source.kind == "log" else 0])
                self.add_records(data, record, ids, np.array([position]), bonus)
                next_start = position + size

    def add_rows(self, rows: Int64Array) -> None:
        """Add rows of copies; full runs are written."""
        self._pending.append(rows)
        self._pending_rows += rows.shape[1]
        if self._pending_rows >= RUN_ROWS:
            self._spill()

    def _add_lac(self, ledger_id: LedgerId, lac: int) -> None:
        self.result.lacs[ledger_id] = max(lac, self.result.lacs.get(ledger_id, -1))

    def add_explicit_lac(self, ledger_id: LedgerId, body: bytes) -> None:
        """Count an explicit LAC as one of the ledger's LACs if its digest matches, or cannot be
        verified."""
        if ledger_id not in self._secrets.open_ledgers:
            return
        secret = self._secrets.secret_of(ledger_id)
        digest_type = secret.digest_type if secret.is_verifiable else None
        try:
            owner, lac = decode_explicit_lac(body, digest_type, secret.password)
        except CorruptionError as error:
            self.result.findings.append(Finding.of(error.relocate(self.source.path), ledger_id))
            return
        if owner == ledger_id:
            self._add_lac(ledger_id, lac)

    def _spill(self) -> None:
        if self._pending_rows:
            rows = sort_rows(np.concatenate(self._pending, axis=1))
            self._pending, self._pending_rows = [], 0
            path = run_path(self._folder, self.source.number, len(self.result.runs))
            self.result.runs.append(write_run(path, rows, self._files))


class _LogSurvey(_Survey):
    """An entry log: its records, and those that only the index has."""

    def __init__(
        self, source: SourceFile, secrets: LedgerSecrets, folder: Path, files: Files
    ) -> None:
        super().__init__(source, secrets, folder, files)
        index_rows = source.index_rows
        self._index_rows = None if index_rows is None else LogRows(*index_rows)

    def read(self, data: PatchedLogBytes) -> None:
        """Scan the log batch by batch, each with the index rows that point into it."""
        findings: list[Finding] = []
        usage, is_wanted = LogByteUsage(), self._secrets.numbers.__contains__
        log = nullcontext(data)  # `run` closes it
        for batch in scan_log(self.source.path, findings, is_wanted, usage, lambda _: log):
            self._add_batch(data, batch)
        # Records may lie in what the scan has skipped, and in frames whose sizes are wrong.
        for start, stop in [*usage.skipped_ranges, *self.damaged_ranges]:
            self.add_hidden_records(data, start, stop)
        self._add_rows_of_index(data, None)
        self.result.findings += findings
        if any(finding.severity == "damage" for finding in findings):
            self.result.may_hide_records = True

    def add_unread_rows(self) -> None:
        if self._index_rows is not None:
            for rows in self._index_rows.read_rest():
                self._add_damaged_rows(rows)

    def _add_batch(self, data: PatchedLogBytes, batch: LogBatch) -> None:
        is_indexed = self._add_rows_of_index(data, batch)
        bonus = np.where(is_indexed, NAMED_BY_INDEX, 0) + IN_LOG
        ids = (batch.scope_id, batch.ledger_id)
        self.add_records(data, batch.records(), ids, batch.position, bonus)

    def _add_rows_of_index(
        self, data: PatchedLogBytes, batch: LogBatch | None
    ) -> npt.NDArray[np.bool_]:
        """Read the index rows up to the end of a batch (None: all that are left). Return which of
        its records they name, bool[n], and add the records of the other rows, which the scan has
        not found."""
        if self._index_rows is None:
            return np.zeros(0 if batch is None else len(batch), np.bool_)
        if batch is None:
            for rows in self._index_rows.read_rest():
                self._add_indexed_only(data, rows)
            return np.zeros(0, np.bool_)
        rows = self._index_rows.read_up_to(int(batch.position[-1]))
        # A row names a record if position, scope, ledger and entry id are equal.
        nearest = np.minimum(np.searchsorted(batch.position, rows[:, _POSITION]), len(batch) - 1)
        is_match = batch.position[nearest] == rows[:, _POSITION]
        for column, ids in enumerate((batch.scope_id, batch.ledger_id, batch.entry_id)):
            is_match &= ids[nearest] == rows[:, column]
        is_indexed = np.zeros(len(batch), np.bool_)
        is_indexed[nearest[is_match]] = True
        self._add_indexed_only(data, rows[~is_match])
        return is_indexed

    def _add_indexed_only(self, data: PatchedLogBytes, rows: Int64Array) -> None:
        """Add the records that index rows name and the scan has not found. If there is no record of
        the entry at a row's position, add a damaged copy: its bookie had the entry once."""
        is_absent = np.ones(len(rows), np.bool_)
        for row, (scope, ledger, entry_id, position) in enumerate(rows.tolist()):
            size = size_of_record(data, position, (scope, ledger, entry_id))
            if size:
                record = data.read(position, size)
                batch = RecordBatch.of([record], [entry_id])
                ids = (np.array([scope]), np.array([ledger]))
                bonus = np.array([NAMED_BY_INDEX + IN_LOG])
                self.add_records(data, batch, ids, np.array([position]), bonus)
                is_absent[row] = False
        self._add_damaged_rows(rows[is_absent])

    def _add_damaged_rows(self, rows: Int64Array) -> None:
        """Add copies that the index has in this log, but that have no sound record there; `rows`
        are scope, ledger, entry and position, int64[n, 4]."""
        if not len(rows):
            return
        rank = np.full(len(rows), DAMAGED + NAMED_BY_INDEX + IN_LOG)
        unknown = np.zeros(len(rows), np.int64)  # LAC and checksum of the content
        locations = locate(self.source.number, rows[:, _POSITION])
        scopes, ledgers, entries = rows[:, :_POSITION].T
        self.add_rows(make_rows(scopes, ledgers, entries, rank, locations, unknown, unknown))


class _JournalSurvey(_Survey):
    """A journal: its entries and states; after damage, the entries that can still be found."""

    def add_unread_rows(self) -> None:
        """Add nothing: no index row points into a journal."""

    def read(self, data: PatchedLogBytes) -> None:
        end = 0
        try:
            scan = scan_journal(self.source.path, skip_torn=True)
            for offsets, records in scan.batches():
                if isinstance(records, JournalRecord):
                    self._add_state(records)
                    size = SIZE_FIELD_BYTES
                else:
                    self._add_entries(data, offsets, records)
                    size = SIZE_FIELD_BYTES + int(records.sizes[-1])
                end = int(offsets[-1]) + size
            self.result.findings += scan.findings
            has_damage = any(finding.severity == "damage" for finding in scan.findings)
            has_damage = has_damage or self._find_data_after_zeros(data, scan.stop)
        except CorruptionError as error:
            self.add_damage(error)
            has_damage = True
        if has_damage:
            self._search_records(data, end)

    def _find_data_after_zeros(self, data: PatchedLogBytes, zeros_start: int) -> bool:
        """Return whether data follow the zeros that end the scan, however far, and add a finding:
        many zeros may be preallocated space, but may also be in place of lost records."""
        data_offset = data.run_end(zeros_start, 0)
        if data_offset >= data.size:
            return False
        reason = f"data at {data_offset}, after the zeros that end the file's records"
        error = CorruptionError(self.source.path, zeros_start, reason)
        self.result.findings.append(Finding.of(error))
        return True

    def _search_records(self, data: PatchedLogBytes, offset: int) -> None:
        """Add the entries after damage. If no entry follows, the damage is a record that was cut
        off at the end of the journal and never acknowledged; else it may hide records."""
        while offset < data.size:
            if classify_at(data, offset).kind != "frame":
                # Skip zeros but for the last four, of which no record begins with the first one.
                offset = max(offset, data.run_end(offset, 0) - SIZE_FIELD_BYTES)
                next_offset = find_next_record(data, offset, offset)
                self.add_hidden_records(data, offset, next_offset)
                offset = next_offset
                continue
            run = read_frames(data, offset)
            rows = np.flatnonzero(run.kinds == ENTRY)
            if rows.size:
                self.result.may_hide_records = True
                columns = (run.entries, run.offsets, run.sizes, run.scopes, run.ledgers)
                entries, offsets, sizes, scopes, ledgers = (column[rows] for column in columns)
                batch = RecordBatch(entries, run.data.data, offsets, sizes)
                positions = offsets + run.data_offset
                no_bonus = np.zeros(rows.size, np.int64)
                self.add_records(data, batch, (scopes, ledgers), positions, no_bonus)
            offset = run.end

    def _add_entries(
        self, data: PatchedLogBytes, offsets: Int64Array, records: RecordBatch
    ) -> None:
        ids = read_batch_ids(records)
        records, positions = records.first(ids.ledgers.size), offsets + SIZE_FIELD_BYTES
        no_bonus = np.zeros(len(records), np.int64)
        self.add_records(data, records, (ids.scopes, ids.ledgers), positions, no_bonus)

    def _add_state(self, record: JournalRecord) -> None:
        if record.ledger not in self._secrets.numbers:
            return
        state = self.result.states.setdefault(record.ledger, JournaledLedger())
        if record.kind == "master_key":
            state.master_key = bytes(record.body)
        elif record.kind == "fence":
            state.fenced = True
        elif record.kind == "explicit_lac":
            self.add_explicit_lac(record.ledger, bytes(record.body))
