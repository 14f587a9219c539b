"""What a check has looked at, and what not: nothing that was left out counts as passed."""

from __future__ import annotations

from dataclasses import dataclass, field

from bkstore.counts import counted


@dataclass
class LogCoverage:
    """What was read of one entry log. Bytes by what they are for add up to the file's.

    `records` were read, `indexed` of them are where an index row points; `copies` are of entries
    whose row points elsewhere, `unindexed` of known ledgers and in no row, `garbage` of ledgers
    that the index does not know, `others` of ledgers that were not asked for, `unjudged` could not
    be looked up. `rows` is how many rows
    point into the log. `unaccounted` has the (start, end) of bytes that are nothing known.
    """

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
        """The bytes that are no header, record, map or padding."""
        return sum(end - start for start, end in self.unaccounted)


@dataclass
class Coverage:
    """What a check has looked at; it grows while the check goes on, and is whole at its end.

    `rows` index rows were read, `rows_checked` of them held against a log or its absence.
    `states` ledger states were read. `journal_records` were read. `left_out` names in words each
    part that was not checked. `logs` has an account of each entry log.
    """

    rows: int = 0
    rows_checked: int = 0
    ledgers: int = 0
    states: int = 0
    journal_records: int = 0
    logs: list[LogCoverage] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def total(self, name: str) -> int:
        """Return the sum of a number over the logs.

        >>> Coverage(logs=[LogCoverage(0, 0, "0.log", 1024), LogCoverage(0, 1, "1.log", 8)]).total(
        ...     "bytes"
        ... )
        1032
        """
        return sum(getattr(log, name) for log in self.logs)

    @property
    def nothing(self) -> bool:
        """Whether no row, no state and no record was looked at: such a check has not passed."""
        return not (self.rows or self.states or self.journal_records or self.total("records"))

    def lines(self) -> list[str]:
        """Return what was checked and what not, for people."""
        if self.nothing:
            return ["nothing was checked: no index row, no ledger and no record is here"]
        shares = (
            ("in the index", "indexed"),
            ("older copies", "copies"),
            ("not in the index", "unindexed"),
            ("of ledgers it does not know", "garbage"),
            ("of ledgers not asked for", "others"),
            ("not judged", "unjudged"),
        )
        told = [f"{self.total(name):,} {words}" for words, name in shares if self.total(name)]
        rows = counted(self.rows, "index row", grouped=True)
        records = counted(self.total("records"), "record", grouped=True)
        logs = counted(len(self.logs), "entry log", grouped=True)
        lost, size = self.total("unaccounted_bytes"), self.total("bytes")
        lines = [
            f"checked {self.rows_checked:,} of {rows}, "
            f"{counted(self.states, 'state', grouped=True)} of {counted(self.ledgers, 'ledger')}",
            f"{records} in {logs}" + (f": {', '.join(told)}" if told else ""),
            f"{size - lost:,} of {counted(size, 'byte', grouped=True)} of logs accounted for",
        ]
        if self.journal_records:
            lines.append(counted(self.journal_records, "journal record", grouped=True))
        return lines + [f"not checked: {part}" for part in self.left_out]
