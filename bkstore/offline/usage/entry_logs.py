"""The live bytes of each entry log, and what garbage collection would do with the log.

The rule is that of `bkstore.storage.ledgers.garbage_collection`: a log without a live ledger is
removed, one whose occupancy is below a threshold is compacted. As in garbage collection, old copies
of live entries count as live.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from bkstore.errors import BkstoreError, CorruptionError
from bkstore.formats.entrylog import LogMetadata
from bkstore.ids import LedgerId
from bkstore.index.api import Finding
from bkstore.offline.usage.live_ledgers import LiveLedgers
from bkstore.storage.directories.file_listing import LogFile
from bkstore.storage.entry_log.scan import read_log_metadata
from bkstore.storage.entry_log.torn_end import find_torn_record, is_indexed_from
from bkstore.storage.read_only.bookie_dir import BookieDir

Fate = Literal["keep", "compact", "remove", "damaged"]


@dataclass(frozen=True, slots=True)
class LogUsage:
    """One entry log: its live and dead bytes, and what garbage collection would do with it.
    `source` is "map" (its ledgers map) or "scan" (its records), None if neither can be read.
    `ledgers` has the bytes of each ledger, `live_ledgers` those of live ledgers. `fate` is
    "damaged" if damage makes garbage collection leave the log alone. `given_back` is the number of
    bytes freed: the whole file if the log is removed, all but the live bytes if it is compacted."""

    log: LogFile
    source: Literal["map", "scan"] | None
    ledgers: dict[LedgerId, int] = field(default_factory=dict)
    live_ledgers: dict[LedgerId, int] = field(default_factory=dict)
    fate: Fate = "keep"
    given_back: int = 0

    @property
    def record_bytes(self) -> int:
        """The bytes of all records: 4 + size of each."""
        return sum(self.ledgers.values())

    @property
    def live_bytes(self) -> int:
        """The bytes of records of live ledgers."""
        return sum(self.live_ledgers.values())

    @property
    def occupancy(self) -> float:
        """The live share of the record bytes; 0.0 for a log without records."""
        return self.live_bytes / self.record_bytes if self.record_bytes else 0.0

    def is_pinned(self, max_occupancy: float) -> bool:
        """Return whether the occupancy is positive, but less than `max_occupancy`."""
        return 0 < self.live_bytes and self.occupancy < max_occupancy


def log_usages(
    bookie: BookieDir, live: LiveLedgers, threshold: float, findings: list[Finding]
) -> Iterator[LogUsage]:
    """Yield the usage of each entry log, by directory and log id. Logs of an occupancy below
    `threshold` count as to be compacted. Damage is appended to `findings`. Memory: the ledgers of a
    log. Cost: some reads for a log with a ledgers map, else a scan of it; a scan of the index for a
    log that ends inside a record and would be removed."""
    for log in bookie.entry_logs:
        damage: list[Finding] = []
        try:
            metadata, source = read_log_metadata(log.path, log.log_id, damage)
        except BkstoreError as error:
            findings.append(Finding.of(error))
            yield LogUsage(log, None, fate="damaged")
            continue
        findings += damage
        # A ledgers map counts all records; a scan misses those that damage hides.
        hides_records = source == "scan" and any(finding.severity == "damage" for finding in damage)
        hiding_damage = damage if hides_records else []
        yield _judge_log(bookie, log, metadata, source, live, threshold, hiding_damage)


def _judge_log(
    bookie: BookieDir,
    log: LogFile,
    metadata: LogMetadata,
    source: Literal["map", "scan"],
    live: LiveLedgers,
    threshold: float,
    hiding_damage: list[Finding],
) -> LogUsage:
    """Return the usage of a log; `hiding_damage` is damage that hides records from `metadata`."""
    ledgers = metadata.ledgers
    sizes = ledgers.items()
    live_ledgers = {n: size for n, size in sizes if live.is_live_in(n, log.dir_index)}
    live_bytes = sum(live_ledgers.values())
    record_bytes = sum(ledgers.values())
    fate: Fate = "remove"
    if live_ledgers:
        fate = "compact" if not record_bytes or live_bytes / record_bytes < threshold else "keep"
    # A log of which damage hides records is left alone, unless the only damage is that its last
    # record is torn, and the log is kept anyway, or no row of the index points at that record.
    if hiding_damage:
        ends_torn = find_torn_record(Path(log.path), hiding_damage) is not None
        is_kept_torn = fate == "keep" and ends_torn
        if not is_kept_torn and not _is_complete(bookie, log, hiding_damage):
            fate = "damaged"
    given_back = max(log.bytes - live_bytes, 0) if fate in ("remove", "compact") else 0
    return LogUsage(log, source, ledgers, live_ledgers, fate, given_back)


def _is_complete(bookie: BookieDir, log: LogFile, damage: list[Finding]) -> bool:
    """Return whether only the last record is torn, and no row of the index points at it."""
    torn_offset = find_torn_record(Path(log.path), damage)
    if torn_offset is None:
        return False
    try:
        return not is_indexed_from(bookie.index, log.log_id, torn_offset)
    except CorruptionError:  # rows that cannot be read may point at it
        return False
