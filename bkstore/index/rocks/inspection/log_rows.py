"""Write-ahead logs as what they hold: counts, and ranges of sequences and keys."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bkstore.errors import CorruptionError, UnsupportedLayout
from bkstore.formats.rocksdb.keys import DELETIONS, ValueType
from bkstore.formats.rocksdb.log.write_batch import BatchRows
from bkstore.index.api import Finding
from bkstore.index.rocks.files.log_file import FramedLogReader


@dataclass(slots=True)
class RowSummary:
    """Counts of internal rows, and their ranges of sequence numbers and keys, None without rows.
    The keys of range deletes count, their ends do not."""

    rows: int = 0
    tombstones: int = 0
    range_tombstones: int = 0
    smallest_sequence: int | None = None
    largest_sequence: int | None = None
    first_key: bytes | None = None
    last_key: bytes | None = None

    def add(self, rows: BatchRows) -> None:
        """Add rows of the log to the counts, and to the ranges of keys and sequence numbers."""
        if not rows.sequences.size:
            return
        self.rows += rows.sequences.size
        self.tombstones += sum(int((rows.kinds == kind).sum()) for kind in DELETIONS)
        self.range_tombstones += int((rows.kinds == ValueType.RANGE_DELETION).sum())
        first, last = int(rows.sequences.min()), int(rows.sequences.max())
        # Extend the range of keys and of sequence numbers by those of these rows.
        keys = [rows.key(row) for row in range(rows.sequences.size)]
        first_key, last_key = min(keys), max(keys)
        if self.first_key is not None and self.last_key is not None:
            first_key, last_key = min(first_key, self.first_key), max(last_key, self.last_key)
        if self.smallest_sequence is not None and self.largest_sequence is not None:
            first, last = min(first, self.smallest_sequence), max(last, self.largest_sequence)
        self.smallest_sequence, self.largest_sequence = first, last
        self.first_key, self.last_key = first_key, last_key


def summarize_log(path: Path, findings: list[Finding], live: bool = False) -> RowSummary:
    """Return the counts and ranges of a write-ahead log's rows. It is read up to damage, which
    becomes a finding; so does an incomplete last record, unless the log is `live`: then a writer
    may be about to complete it. One read of the file."""
    summary = RowSummary()
    reader = FramedLogReader(path)
    try:
        for rows in reader.rows():
            summary.add(rows)
    except (CorruptionError, UnsupportedLayout) as error:
        findings.append(Finding.of(error))
    if reader.torn_offset is not None and not live:
        findings.append(Finding("oddity", reader.torn_detail, str(path), reader.torn_offset))
    return summary
