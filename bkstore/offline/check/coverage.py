"""What a check has read, and what it has left out, which does not count as passed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from bkstore.counts import format_count

_NOTHING = "nothing was checked: there are no index rows, ledgers or records"


@dataclass
class LogCoverage:
    """What was read of one entry log. The byte counts add up to the file's size. Of the `records`
    read, index rows point at `indexed`; `copies` are of entries whose row points elsewhere,
    `unindexed` of known ledgers without a row, `garbage` of ledgers not in the index, `others` of
    ledgers outside of the request, and `unjudged` could not be looked up. `rows` counts index rows
    that point into the log. `unaccounted` has (start, end) of unknown structures."""

    dir_index: int
    log_id: int
    file: str
    bytes: int
    header_bytes: int = 0
    record_bytes: int = 0
    map_bytes: int = 0
    padding_bytes: int = 0
    unaccounted: list[tuple[int, int]] = field(default_factory=list)
    records: int = 0
    indexed: int = 0
    copies: int = 0
    unindexed: int = 0
    garbage: int = 0
    garbage_bytes: int = 0
    others: int = 0
    unjudged: int = 0
    rows: int = 0
    digests: int = 0

    @property
    def unaccounted_bytes(self) -> int:
        """The number of bytes that are not header, record, ledgers map or padding."""
        return sum(end - start for start, end in self.unaccounted)


@dataclass
class Coverage:
    """What a check has read so far; it is complete when the check ends. `rows` counts the index
    rows read, `rows_checked` those compared with a log or found without one, `states` the ledger
    states and `journal_records` the journal records read. `not_checked` describes each part that
    was not checked. `logs` has the coverage of each entry log."""

    rows: int = 0
    rows_checked: int = 0
    ledgers: int = 0
    states: int = 0
    journal_records: int = 0
    logs: list[LogCoverage] = field(default_factory=list)
    not_checked: list[str] = field(default_factory=list)

    def total(self, attribute: str) -> int:
        """Return the sum of an attribute over the logs.

        >>> Coverage(logs=[LogCoverage(0, 0, "0.log", 1024), LogCoverage(0, 1, "1.log", 8)]).total(
        ...     "bytes"
        ... )
        1032
        """
        return sum(getattr(log, attribute) for log in self.logs)

    @classmethod
    def sum(cls, coverages: Iterable[Coverage]) -> Coverage:
        """Return the coverage of several checks together, without `not_checked`.

        >>> Coverage.sum([Coverage(rows=2, ledgers=1), Coverage(rows=3, ledgers=1)])
        Coverage(rows=5, rows_checked=0, ledgers=2, states=0, journal_records=0, logs=[], \
not_checked=[])
        """
        total = cls()
        for part in coverages:
            total.rows += part.rows
            total.rows_checked += part.rows_checked
            total.ledgers += part.ledgers
            total.states += part.states
            total.journal_records += part.journal_records
            total.logs += part.logs
        return total

    @property
    def is_empty(self) -> bool:
        """Whether no row, state or requested record was read; such a check has not passed."""
        records = self.total("records") - self.total("others")
        return not (self.rows or self.states or self.journal_records or records)

    def describe(self) -> list[str]:
        """Return lines of text that say what was checked and what was not."""
        if self.is_empty:
            return [_NOTHING]
        shares = (
            ("in the index", "indexed"),
            ("older copies", "copies"),
            ("not in the index", "unindexed"),
            ("of unknown ledgers", "garbage"),
            ("of ledgers not requested", "others"),
            ("not judged", "unjudged"),
        )
        counts = [f"{self.total(name):,} {label}" for label, name in shares if self.total(name)]
        lost, size = self.total("unaccounted_bytes"), self.total("bytes")
        lines = [
            self._describe_index_part(),
            self._describe_records() + (f": {', '.join(counts)}" if counts else ""),
            f"{size - lost:,} of {format_count(size, 'byte', grouped=True)} of logs accounted for",
        ]
        if self.journal_records:
            lines.append(format_count(self.journal_records, "journal record", grouped=True))
        return lines + [f"not checked: {part}" for part in self.not_checked]

    def describe_briefly(self) -> str:
        """Return a line that says how much was checked.

        >>> Coverage(rows=9, rows_checked=9, ledgers=2, states=2).describe_briefly()
        'checked 9 of 9 index rows, 2 states of 2 ledgers, 0 records in 0 entry logs'
        """
        if self.is_empty:
            return _NOTHING
        return f"{self._describe_index_part()}, {self._describe_records()}"

    def _describe_index_part(self) -> str:
        rows = format_count(self.rows, "index row", grouped=True)
        states = format_count(self.states, "state", grouped=True)
        ledgers = format_count(self.ledgers, "ledger")
        return f"checked {self.rows_checked:,} of {rows}, {states} of {ledgers}"

    def _describe_records(self) -> str:
        records = format_count(self.total("records"), "record", grouped=True)
        return f"{records} in {format_count(len(self.logs), 'entry log', grouped=True)}"
