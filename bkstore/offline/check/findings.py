"""The kinds and severities of a check's findings, and one dataclass for all of them.

There are three severities. Damage: a response of the bookie would be lost or wrong. Oddity: the
bookie works, or its journal makes up for it, but an operator wants to know. Note: these files
cannot decide it, and it must not count as checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from bkstore.availability import Availability
from bkstore.errors import BkstoreError
from bkstore.ids import LedgerId
from bkstore.index.api import Finding

Severity = Literal["damage", "oddity", "note"]

CheckKind = Literal[
    "index",
    "state",
    "no-log",
    "no-record",
    "wrong-record",
    "bad-digest",
    "unindexed",
    "unflushed",
    "unknown-ledger",
    "log",
    "log-header",
    "ledgers-map",
    "metadata-cache",
    "leftover",
    "last-id",
    "cookie",
    "journal",
    "journal-entry",
    "last-mark",
]

KINDS: dict[CheckKind, str] = {
    "index": "damage or oddities that the index reports: a file, a row, a database",
    "state": "a ledger's master key, fence, limbo or explicit LAC contradicts itself or a copy",
    "no-log": "index rows that point to a missing entry log",
    "no-record": "index rows that point to a position where no record begins",
    "wrong-record": "index rows that point to the record of another entry",
    "bad-digest": "records that the index points to, but whose digest does not match",
    "unindexed": "records of a ledger in the index, of entries without an index row",
    "unflushed": "the same, after the last record in the index, in an open log",
    "unknown-ledger": "records of a ledger not in the index: deleted, or lost",
    "log": "bytes of an entry log outside records, ledgers map and padding",
    "log-header": "an entry log's header that does not match its file",
    "ledgers-map": "a ledgers map whose sizes differ from the records of its log",
    "metadata-cache": "sizes cached for garbage collection that differ from the log",
    "leftover": "files of an interrupted compaction, and files unknown to bookies",
    "last-id": "a lastId file that differs from the highest entry log",
    "cookie": "directories without the cookie that the others have",
    "journal": "a journal file that cannot be read, or with skipped bytes",
    "journal-entry": "records before the last mark, of entries not in the index",
    "last-mark": "a last mark that points outside the existing journals",
}
"""The kinds of findings, and what each is about."""


@dataclass(frozen=True, slots=True)
class CheckFinding:
    """One finding: its kind and severity, its description, and the file and ledger it is about.

    Entries of one ledger with the same fault are one finding: `entries` of them lie within
    `first_entry`..`last_entry`, and `entry_set` has their ids, None if they are not known. The
    lowest of their offsets in `file` is `offset`.

    >>> print(CheckFinding("unindexed", "damage", "not in the index", "0.log", 1028))
    unindexed: 0.log: offset 1028: not in the index
    """

    kind: CheckKind
    severity: Severity
    detail: str
    file: str | None = None
    offset: int | None = None
    ledger: LedgerId | None = None
    first_entry: int | None = None
    last_entry: int | None = None
    entries: int | None = None
    entry_set: Availability | None = None

    @classmethod
    def from_findings(cls, kind: CheckKind, findings: Iterable[Finding]) -> Iterator[CheckFinding]:
        """Yield a reader's findings as check findings of this kind."""
        for finding in findings:
            location = (finding.file, finding.offset, finding.ledger)
            entries = (finding.first_entry, finding.last_entry, finding.entries)
            yield cls(kind, finding.severity, finding.detail, *location, *entries)

    @classmethod
    def from_error(
        cls, kind: CheckKind, error: BkstoreError, ledger: LedgerId | None = None
    ) -> CheckFinding:
        """Return an error as a finding of this kind."""
        (finding,) = cls.from_findings(kind, [Finding.of(error, ledger)])
        return finding

    def __str__(self) -> str:
        parts: list[str] = [self.kind] if self.file is None else [self.kind, self.file]
        if self.offset is not None:
            parts.append(f"offset {self.offset}")
        return ": ".join([*parts, self.detail])
