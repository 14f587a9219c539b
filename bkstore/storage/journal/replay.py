"""Replay: applies the journal records since the last mark to a ledger storage.

Source: `bookie/BookieImpl.readJournal`, `bookie/Journal.replay`. Records that storage already has
are added again; storage keeps one of equal entries. Records torn by a power loss are skipped.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bkstore.errors import (
    BkstoreError,
    CorruptionError,
    InvalidArgument,
    NoSuchLedger,
    TooManyRequests,
    UnauthorizedAccess,
)
from bkstore.formats.entry import BatchLedgers, RecordBatch, read_batch_ids
from bkstore.formats.journal import JournalRecord, LogMark, decode_record
from bkstore.formats.syntax.framing import SIZE_FIELD_BYTES
from bkstore.ids import Int64Array
from bkstore.index.api import Finding
from bkstore.index.damage_runs import DamageRuns
from bkstore.storage.journal.last_mark import journal_name, list_journal_files, read_last_mark
from bkstore.storage.journal.scan import scan_journal
from bkstore.storage.journal.torn_records import (
    crc_matches,
    find_blank_sectors,
    find_suspicious_rows,
    find_torn_reason,
    has_unwritten_sector,
)
from bkstore.storage.ledger_storage import LedgerStorage

_log = logging.getLogger("bkstore")


class Replay:
    """Replays journals into a ledger storage.

    `findings` lists what was odd, adjacent findings merged: torn ends, unknown records.
    `record_count` counts replayed records; `skipped_count` counts those of unknown (deleted)
    ledgers among them. Adjacent entries of a chunk of the file are added in batches: the cost of
    `LedgerStorage.add_batch` plus 0.1 us each; 10 us each for those of unknown ledgers. With the
    option `compat`, torn records are replayed, as BookKeeper does.
    """

    def __init__(self, storage: LedgerStorage, *, skip_invalid: bool = False) -> None:
        self._storage = storage
        self._skips_torn = storage.options.compat is None  # BookKeeper replays torn records
        self._skips_invalid = skip_invalid
        self.findings: list[Finding] = []
        self._finding_runs = DamageRuns(self.findings)  # adds findings, adjacent ones merged
        self.record_count = 0
        self.skipped_count = 0

    def run(self, current: Path, ledger_dirs: Sequence[Path], mark_index: int | None) -> LogMark:
        """Replay one journal directory from its last mark on: everything before that is in the
        storage. Return the position reached. Raises `CorruptionError` if the file named by the mark
        is missing, or for an invalid length, an invalid record, or a master key that differs from
        the storage's."""
        mark = reached = read_last_mark(ledger_dirs, mark_index)
        paths = {id_: path for id_, path in list_journal_files(current) if id_ >= mark.journal_id}
        if mark.journal_id > 0 and mark.journal_id not in paths:
            missing_path = current / journal_name(mark.journal_id)
            raise CorruptionError(missing_path, None, "lastMark refers to this file; it is missing")
        for journal_id, path in paths.items():
            start = mark.position if journal_id == mark.journal_id else 0
            reached = LogMark(journal_id, self._replay_file(path, start))
        _log.info("%s: replayed %d records up to %s", current, self.record_count, tuple(reached))
        return reached

    def _replay_file(self, path: Path, start: int) -> int:
        """Replay one file from `start` on; return the position where its data end."""
        skips = {"skip_invalid": self._skips_invalid, "skip_torn": self._skips_torn}
        scan = scan_journal(path, start, **skips)
        # Entries come in batches, records of other kinds (such as a fence) one by one.
        for offsets, records in scan.batches():
            if isinstance(records, RecordBatch):
                self._add_untorn(path, offsets, records)
            elif not self._report_if_torn(records, path, int(offsets[0])):
                self._apply_special(records, path, int(offsets[0]))
        self.findings += scan.findings
        return scan.stop

    # -- entries

    def _add_untorn(self, path: Path, offsets: Int64Array, batch: RecordBatch) -> None:
        """Add adjacent entries, except torn ones: records of which a crash left only a part. A
        suspicious entry (with a sector of zeros, and no matching CRC) is checked after those before
        it are added, because the check may read them from the storage."""
        start = 0
        suspicious_rows = find_suspicious_rows(offsets, batch).tolist() if self._skips_torn else []
        for row in suspicious_rows:
            record = decode_record(bytes(batch[row]))
            if crc_matches(record):
                continue
            self._add_batch(path, offsets[start:row], batch.between(start, row))
            is_torn = self._report_if_torn(record, path, int(offsets[row]))
            start = row + 1 if is_torn else row
        self._add_batch(path, offsets[start:], batch.between(start, len(batch)))

    def _add_batch(self, path: Path, offsets: Int64Array, batch: RecordBatch) -> None:
        """Add a batch; flush if the cache is full, and skip entries of unknown ledgers. Each pass
        of the loop adds what it can; `offsets` and `batch` keep what is still to be added."""
        self.record_count += len(batch)
        is_flushed = False  # flushed, and nothing added since
        while len(batch):
            self._finding_runs.end_runs()
            try:
                self._storage.add_batch(batch, recovery=True)
                return
            except TooManyRequests as error:  # raised if the option `auto_flush` is off
                stored_count = error.stored or 0
                if is_flushed and not stored_count:
                    raise
                self._storage.flush()
                is_flushed = True
            except NoSuchLedger as error:
                stored_count = error.stored or 0
                # Skip all records of unknown ledgers at once, not one in each pass.
                unstored = batch.between(stored_count, len(batch))
                rows_left = stored_count + self._skip_unknown_ledgers(unstored)
                offsets, batch = offsets[rows_left], batch.take(rows_left)
                stored_count, is_flushed = 0, False  # all of `batch` is still to be added
            except (InvalidArgument, UnauthorizedAccess) as error:
                raise _replay_error(path, int(offsets[error.stored or 0]), error) from error
            offsets, batch = offsets[stored_count:], batch.between(stored_count, len(batch))

    def _skip_unknown_ledgers(self, batch: RecordBatch) -> Int64Array:
        """Skip, and count, the records of unknown ledgers; the first record is one of them. Return
        the rows of the others, still to be added. They end at the first malformed record of an
        unknown ledger, so that adding it raises the error after all records before it are added."""
        ids = read_batch_ids(batch)
        ledgers = BatchLedgers.of(ids.scopes, ids.ledgers)
        is_known = np.array(list(map(self._storage.ledger_exists, ledgers.ledger_ids)))
        if ledgers.numbers is None:  # all records are of one ledger
            is_left = np.repeat(is_known, len(batch))
        else:
            is_left = is_known[ledgers.numbers]
        is_left[0] = False
        # Try to add each of the others: a malformed one must raise its own error.
        for row in np.flatnonzero(~is_left).tolist():
            try:
                self._add_one(bytes(batch[row]))
            except NoSuchLedger:  # deleted since: no earlier record had its key
                self.skipped_count += 1
            except InvalidArgument:
                is_left[row:] = False
                is_left[row] = True
                break
        return np.flatnonzero(is_left)

    def _add_one(self, record: bytes) -> None:
        """Add one record; flush first if the cache is full."""
        try:
            self._storage.add_entry(record, recovery=True)
        except TooManyRequests:
            self._storage.flush()
            self._storage.add_entry(record, recovery=True)

    # -- records of other kinds

    def _report_if_torn(self, record: JournalRecord, path: Path, offset: int) -> bool:
        """Return whether a crash left only a part of the record; add a finding if so."""
        if not self._skips_torn:
            return False
        blank_offsets = find_blank_sectors(offset, record)
        if not blank_offsets or not has_unwritten_sector(path, blank_offsets):
            return False
        reason = find_torn_reason(record, self._storage)
        if reason is not None:
            detail = f"record is torn, it ends in zeros ({reason}): skipped"
            self._finding_runs.add(Finding("damage", detail, str(path), offset, record.ledger))
        return reason is not None

    def _apply_special(self, record: JournalRecord, path: Path, offset: int) -> None:
        """Replay a master key, fence or explicit LAC; skip unknown kinds with a finding."""
        storage, ledger = self._storage, record.ledger
        if record.kind == "unknown":
            detail = f"record of unknown kind {record.entry_id} is skipped"
            self._finding_runs.add(Finding("oddity", detail, str(path), offset, ledger))
            return
        self._finding_runs.end_runs()
        self.record_count += 1
        try:
            if record.kind == "master_key":
                storage.set_master_key(ledger, record.body)
            elif record.kind == "fence":
                storage.fence(ledger)
            else:
                storage.set_explicit_lac(ledger, record.body)
        except NoSuchLedger:  # deleted since, like its entries
            self.skipped_count += 1
        except (InvalidArgument, UnauthorizedAccess) as error:
            raise _replay_error(path, offset, error) from error


def _replay_error(path: Path, offset: int, error: BkstoreError) -> CorruptionError:
    return CorruptionError(path, offset + SIZE_FIELD_BYTES, f"cannot be replayed: {error}")
