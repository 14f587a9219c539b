"""Replay: what journals say since the last mark, done again in a ledger storage.

Source: `bookie/BookieImpl.readJournal`, `bookie/Journal.replay`. Records that were in storage
already are found there again; storage keeps one of equal entries. Records that a power loss
tore are left out.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from bkstore.errors import (
    BkstoreError,
    CorruptionError,
    InvalidArgument,
    NoSuchLedger,
    SystemRefused,
    TooManyRequests,
    UnauthorizedAccess,
)
from bkstore.formats.entry import (
    CHECKSUMS,
    BatchLedgers,
    RecordBatch,
    decode_explicit_lac,
    fitting_checksum,
    ids_of,
)
from bkstore.formats.journal import JournalRecord, LogMark, decode_record
from bkstore.formats.syntax.framing import PREFIX
from bkstore.ids import Int64Array, LedgerId
from bkstore.index.api import Finding
from bkstore.index.damage_runs import DamageRuns
from bkstore.storage.journal.blank_sectors import blank_sectors, is_unwritten, suspicious
from bkstore.storage.journal.last_mark import journal_files, journal_name, read_last_mark
from bkstore.storage.journal.scan import scan_journal
from bkstore.storage.ledger_storage import LedgerStorage

_log = logging.getLogger("bkstore")

_ZERO_TAIL = 4  # zero bytes that end a torn key: 2^-32 for a whole one


class Replay:
    """Brings a ledger storage up to what the journals say.

    `findings` tells in runs what was odd: torn ends, unknown records. `records` counts what
    was done; records of ledgers that are not known (deleted ones) are counted in `skipped`.
    Entries are added in batches, as many as follow each other in a piece of the file: what
    `LedgerStorage.add_batch` costs, and 0.1 us each; 10 us each for those of unknown ledgers.
    """

    def __init__(self, storage: LedgerStorage, *, skip_invalid: bool = False) -> None:
        self._storage = storage
        self._checks_torn = storage.options.compat is None
        self._skip_invalid = skip_invalid
        self.findings: list[Finding] = []
        self._runs = DamageRuns(self.findings)
        self.records = 0
        self.skipped = 0

    def run(self, journal: Path, ledgers: Sequence[Path], index: int | None) -> LogMark:
        """Replay one journal directory from its mark on; return the place it reached.

        Raises `CorruptionError` where the file that the mark names is missing, for a length or
        a record that cannot be, for a key that contradicts the storage's.
        """
        mark = reached = read_last_mark(ledgers, index)
        todo = [found for found in journal_files(journal) if found[0] >= mark.journal_id]
        if mark.journal_id > 0 and (not todo or todo[0][0] != mark.journal_id):
            name = journal_name(mark.journal_id)
            raise CorruptionError(journal / name, None, "lastMark names this file; it is missing")
        for number, path in todo:
            start = mark.position if number == mark.journal_id else 0
            reached = LogMark(number, self._file(path, start))
        _log.info("%s: replayed %d records up to %s", journal, self.records, tuple(reached))
        return reached

    def _file(self, path: Path, start: int) -> int:
        scan = scan_journal(
            path, start, skip_invalid=self._skip_invalid, skip_torn=self._checks_torn
        )
        for offsets, found in scan.batches():
            if isinstance(found, RecordBatch):
                self._stretch(path, offsets, found)
            elif not self._is_torn(found, path, int(offsets[0])):
                self._apply(found, path, int(offsets[0]))
        self.findings += scan.findings
        return scan.stop

    # -- entries

    def _stretch(self, path: Path, offsets: Int64Array, batch: RecordBatch) -> None:
        """Add entries that follow each other, but for torn ones.

        Whether one is torn may be for the storage to say, which has all those before it then.
        """
        start = 0
        for row in suspicious(offsets, batch).tolist() if self._checks_torn else ():
            record = decode_record(bytes(batch[row]))
            if has_crc(record):
                continue
            self._add(path, offsets[start:row], batch.between(start, row))
            start = row + self._is_torn(record, path, int(offsets[row]))
        self._add(path, offsets[start:], batch.between(start, len(batch)))

    def _add(self, path: Path, offsets: Int64Array, batch: RecordBatch) -> None:
        self.records += len(batch)
        flushed = False  # and nothing was added since
        while len(batch):
            self._runs.end()
            try:
                self._storage.add_batch(batch, recovery=True)
                return
            except TooManyRequests as error:  # the cache may not flush itself
                done = error.stored or 0
                if flushed and not done:
                    raise
                self._storage.flush()
                flushed = True
            except NoSuchLedger as error:
                done = error.stored or 0
                rows = done + self._without_unknown(batch.between(done, len(batch)))
                offsets, batch, done, flushed = offsets[rows], batch.at(rows), 0, False
            except (InvalidArgument, UnauthorizedAccess) as error:
                raise _contradiction(path, int(offsets[error.stored or 0]), error) from error
            offsets, batch = offsets[done:], batch.between(done, len(batch))

    def _without_unknown(self, batch: RecordBatch) -> Int64Array:
        """Return which records are left to be added, the first being of an unknown ledger.

        Records of all unknown ledgers are counted and left out at once. The first of them that
        no ledger could take stays, to be refused in its turn.
        """
        ids = ids_of(batch)
        ledgers = BatchLedgers.of(ids.scopes, ids.ledgers)
        known = np.array([self._storage.ledger_exists(name) for name in ledgers.names])
        left = np.repeat(known, len(batch)) if ledgers.numbers is None else known[ledgers.numbers]
        left[0] = False
        for row in np.flatnonzero(~left).tolist():
            try:
                self._add_one(bytes(batch[row]))
            except NoSuchLedger:  # deleted since, as no record before it brought its key
                self.skipped += 1
            except InvalidArgument:
                left[row:] = False
                left[row] = True
                break
        return np.flatnonzero(left)

    def _add_one(self, record: bytes) -> None:
        try:
            self._storage.add_entry(record, recovery=True)
        except TooManyRequests:
            self._storage.flush()
            self._storage.add_entry(record, recovery=True)

    # -- records of other kinds

    def _is_torn(self, record: JournalRecord, path: Path, offset: int) -> bool:
        """Return whether a crash left only a part of the record, with a finding then."""
        if not self._checks_torn:
            return False
        blank = blank_sectors(offset, record)
        if not blank or not is_unwritten(path, blank):
            return False
        why = why_torn(record, self._storage)
        if why is not None:
            detail = f"record is torn, it ends in zeros ({why}): passed over"
            self._runs.add(Finding("damage", detail, str(path), offset, record.ledger))
        return why is not None

    def _apply(self, record: JournalRecord, path: Path, offset: int) -> None:
        storage, ledger = self._storage, record.ledger
        if record.kind == "unknown":
            detail = f"record of unknown kind {record.entry_id} is passed over"
            self._runs.add(Finding("oddity", detail, str(path), offset, ledger))
            return
        self._runs.end()
        self.records += 1
        try:
            if record.kind == "master_key":
                storage.set_master_key(ledger, record.body)
            elif record.kind == "fence":
                storage.fence(ledger)
            else:
                storage.set_explicit_lac(ledger, record.body)
        except NoSuchLedger:  # deleted since, as its entries
            self.skipped += 1
        except (InvalidArgument, UnauthorizedAccess) as error:
            raise _contradiction(path, offset, error) from error


def _contradiction(path: Path, offset: int, error: BkstoreError) -> CorruptionError:
    return CorruptionError(path, offset + PREFIX, f"cannot be replayed: {error}")


# -- torn records: which of those with an unwritten sector are not to be replayed
#
# A journal has no checksums. Where a power loss took the last sectors of a record that was not
# synced yet, they read as zeros, and the record looks whole: upstream replays it, under whatever
# ids are left of it, over an entry that was acknowledged long ago. Entries with a CRC can be
# checked without a password, though; where that does not help, what is there already stays.


def why_torn(record: JournalRecord, storage: LedgerStorage) -> str | None:
    """Return why a record with an unwritten sector is not to be replayed, None if it is.

    An entry whose CRC fits is whole. One whose does not is torn if its ledger's last entry has
    a CRC; else (HMAC, no digest) it must not replace what is there.
    """
    if record.kind == "master_key":
        key = record.body
        return "key" if key and not any(key[-_ZERO_TAIL:]) else None
    if record.kind not in ("add", "explicit_lac") or has_crc(record):
        return None
    if _ledger_has_crcs(storage, record.ledger):
        return "digest"
    if record.kind == "add" and _is_there(storage, record):
        return "entry that is there"
    return None


def has_crc(record: JournalRecord) -> bool:
    """Return whether an entry or explicit LAC has a CRC that fits: it is whole then."""
    if record.kind == "add":
        return fitting_checksum(record.body) is not None
    for digest_type in CHECKSUMS:
        with suppress(CorruptionError):
            decode_explicit_lac(record.body, digest_type)
            return True
    return False


def _ledger_has_crcs(storage: LedgerStorage, ledger: LedgerId) -> bool:
    try:
        last = storage.read_entry(ledger)
    except SystemRefused:
        raise
    except BkstoreError:  # unknown, empty, unreadable: it says nothing
        return False
    return fitting_checksum(last) is not None


def _is_there(storage: LedgerStorage, record: JournalRecord) -> bool:
    return bool(storage.entries(record.ledger, record.entry_id, record.entry_id).size)
