"""A bookie's journal: what is written ahead, so that nothing acknowledged is lost.

`writer` appends records to journal files and `scan` reads one file: read these two first.
`group_commit` lets many threads that wait share one fsync.
`last_mark` knows the files of a journal directory and the mark up to which ledger storage has it
all; `replay` does again what came after it, but for torn records: `blank_sectors` finds what a
crash left of those that were not synced. `ledger_journals` are all journals of a bookie, with which
ledger's records go where. The bytes are `bkstore.formats.journal`'s.
"""

from __future__ import annotations

from bkstore.formats.journal import LogMark
from bkstore.storage.journal.last_mark import (
    NO_MARK,
    delete_journals_before,
    journal_files,
    journal_name,
    last_mark_name,
    read_last_mark,
    write_last_mark,
)
from bkstore.storage.journal.ledger_journals import journal_of
from bkstore.storage.journal.scan import JournalScan, ScannedRecord, scan_journal
from bkstore.storage.journal.writer import JournalWriter

__all__ = [
    "NO_MARK",
    "JournalScan",
    "JournalWriter",
    "LogMark",
    "ScannedRecord",
    "delete_journals_before",
    "journal_files",
    "journal_name",
    "journal_of",
    "last_mark_name",
    "read_last_mark",
    "scan_journal",
    "write_last_mark",
]
