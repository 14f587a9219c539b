"""Replay: what journals say since the last mark, done again in a ledger storage.

Source: `bookie/BookieImpl.readJournal`, `bookie/Journal.replay`. Records that were in storage
already are found there again; storage keeps one of equal entries.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from bkstore.errors import (
    CorruptionError,
    InvalidArgument,
    NoSuchLedger,
    TooManyRequests,
    UnauthorizedAccess,
)
from bkstore.formats.journal import JournalRecord, LogMark
from bkstore.index.api import Finding
from bkstore.index.damage_runs import DamageRuns
from bkstore.storage.journal.last_mark import journal_files, journal_name, read_last_mark
from bkstore.storage.journal.scan import scan_journal
from bkstore.storage.journal.torn_records import blank_sectors, is_unwritten, why_torn
from bkstore.storage.ledger_storage import LedgerStorage

__all__ = ["Replay"]

_log = logging.getLogger("bkstore")


class Replay:
    """Brings a ledger storage up to what the journals say.

    `findings` tells in runs what was odd: torn ends, unknown records. `records` counts what
    was done; records of ledgers that are not known (deleted ones) are counted in `skipped`.
    Cost: about 5 us a record.
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
        scan = scan_journal(path, start, skip_invalid=self._skip_invalid)
        for offset, record in scan.records():
            if self._is_torn(record, path, offset):
                continue
            try:
                self._apply(record, path, offset)
            except NoSuchLedger:  # deleted since, as no record before it brought its key
                self.skipped += 1
            except (InvalidArgument, UnauthorizedAccess) as error:
                raise CorruptionError(path, offset + 4, f"cannot be replayed: {error}") from error
        self.findings += scan.findings
        return scan.stop

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
        if record.kind == "master_key":
            storage.set_master_key(ledger, record.body)
        elif record.kind == "fence":
            storage.fence(ledger)
        elif record.kind == "explicit_lac":
            storage.set_explicit_lac(ledger, record.body)
        else:
            self._add(record.body)

    def _add(self, record: bytes) -> None:
        try:
            self._storage.add_entry(record, recovery=True)
        except TooManyRequests:  # the cache may not flush itself
            self._storage.flush()
            self._storage.add_entry(record, recovery=True)
