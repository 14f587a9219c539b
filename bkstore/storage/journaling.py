"""A bookie's journal: append, scan, lastMark. The names to import; the parts lie beside it.

`journal_writer` appends, `journal_scan` reads one file, `last_mark` knows the files of a journal
directory and the mark from which a replay begins.
"""

from __future__ import annotations

from bkstore.formats.journal import LogMark
from bkstore.storage.journal_scan import JournalScan, ScannedRecord, scan_journal
from bkstore.storage.journal_writer import JournalWriter
from bkstore.storage.last_mark import (
    NO_MARK,
    delete_journals_before,
    journal_files,
    journal_name,
    journal_of,
    last_mark_name,
    read_last_mark,
    write_last_mark,
)

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
