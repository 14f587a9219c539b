"""A journal file replayed record by record, by the words of `bkstore.storage.journal.replay`."""

from __future__ import annotations

from pathlib import Path

from bkstore.errors import (
    CorruptionError,
    InvalidArgument,
    NoSuchLedger,
    TooManyRequests,
    UnauthorizedAccess,
)
from bkstore.formats.journal import JournalRecord
from bkstore.index.api import Finding
from bkstore.index.damage_runs import DamageRuns
from bkstore.storage.journal import scan_journal
from bkstore.storage.journal.torn_records import (
    find_blank_sectors,
    find_torn_reason,
    has_unwritten_sector,
)
from bkstore.storage.ledger_storage import LedgerStorage


class PlainReplay:
    """Brings a storage up to what one file says, one record after the other."""

    def __init__(self, storage: LedgerStorage) -> None:
        self.storage = storage
        self.findings: list[Finding] = []
        self.runs = DamageRuns(self.findings)
        self.record_count = 0
        self.skipped_count = 0

    def run(self, path: Path) -> int:
        """Replay from the file's beginning; return where its data end."""
        scan = scan_journal(path, skip_torn=True)
        for offset, record in scan.records():
            if self.is_torn(record, path, offset):
                continue
            try:
                self.apply(record, path, offset)
            except NoSuchLedger:
                self.skipped_count += 1
            except (InvalidArgument, UnauthorizedAccess) as error:
                raise CorruptionError(path, offset + 4, f"cannot be replayed: {error}") from error
        self.findings += scan.findings
        return scan.stop

    def is_torn(self, record: JournalRecord, path: Path, offset: int) -> bool:
        """Return whether only a part of the record was written, with a finding then."""
        blank = find_blank_sectors(offset, record)
        why = (
            find_torn_reason(record, self.storage)
            if blank and has_unwritten_sector(path, blank)
            else None
        )
        if why is not None:
            detail = f"record is torn, it ends in zeros ({why}): skipped"
            self.runs.add(Finding("damage", detail, str(path), offset, record.ledger))
        return why is not None

    def apply(self, record: JournalRecord, path: Path, offset: int) -> None:
        """Do what the record says."""
        if record.kind == "unknown":
            detail = f"record of unknown kind {record.entry_id} is skipped"
            self.runs.add(Finding("oddity", detail, str(path), offset, record.ledger))
            return
        self.runs.end_runs()
        self.record_count += 1
        if record.kind == "master_key":
            self.storage.set_master_key(record.ledger, record.body)
        elif record.kind == "fence":
            self.storage.fence(record.ledger)
        elif record.kind == "explicit_lac":
            self.storage.set_explicit_lac(record.ledger, record.body)
        else:
            self.add(record.body)

    def add(self, record: bytes) -> None:
        """Add an entry; a full cache is flushed once."""
        try:
            self.storage.add_entry(record, recovery=True)
        except TooManyRequests:
            self.storage.flush()
            self.storage.add_entry(record, recovery=True)
