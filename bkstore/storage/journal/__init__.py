"""A bookie's journal: the write-ahead log, so that nothing acknowledged is lost.

`writer` appends records to journal files and `scan` reads one file: read these two first.
`group_commit` lets waiting threads share one fsync. `last_mark` has the files of a journal
directory and the mark before which ledger storage has everything; `replay` applies the records
after it, except torn ones, which `torn_records` detects. `ledger_journals` distributes records to
all journals of a bookie. The format is in `bkstore.formats.journal`.
"""

from __future__ import annotations

from bkstore.formats.journal import LogMark
from bkstore.storage.journal.last_mark import (
    NO_MARK,
    delete_journals_before,
    journal_name,
    last_mark_name,
    list_journal_files,
    read_last_mark,
    write_last_mark,
)
from bkstore.storage.journal.ledger_journals import journal_index_of
from bkstore.storage.journal.scan import JournalScan, ScannedRecord, scan_journal
from bkstore.storage.journal.writer import JournalWriter

__all__ = [
    "NO_MARK",
    "JournalScan",
    "JournalWriter",
    "LogMark",
    "ScannedRecord",
    "delete_journals_before",
    "journal_index_of",
    "journal_name",
    "last_mark_name",
    "list_journal_files",
    "read_last_mark",
    "scan_journal",
    "write_last_mark",
]
