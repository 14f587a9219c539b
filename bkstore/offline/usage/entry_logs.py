"""What of an entry log is live, and what garbage collection would do with it.

The rule is that of `bkstore.storage.ledgers.garbage_collection`, run on the directory as it is: a
log with no live ledger goes, one of which less than a threshold is live is compacted. Bytes are
those of ledgers maps, 4 + record, or of a scan where there is no map, so old copies of live
entries count as live, there and here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from bkstore.errors import BkstoreError
from bkstore.formats.entrylog import LogMetadata
from bkstore.ids import LedgerId
from bkstore.index.api import Finding
from bkstore.offline.usage.live_ledgers import LiveLedgers
from bkstore.storage.directories.file_listing import LogFile
from bkstore.storage.entry_log.scan import read_log_metadata
from bkstore.storage.entry_log.torn_end import cut_at, is_pointed_at
from bkstore.storage.read_only.bookie_dir import BookieDir

Fate = Literal["keep", "compact", "remove", "damaged"]


@dataclass(frozen=True, slots=True)
class LogUsage:
    """One entry log: its bytes by what they are, and what a garbage collection would do.

    `source` is "map" (its ledgers map) or "scan" (its records), None where neither can be read.
    `ledgers` has the bytes of each ledger, `live` those of live ones. `fate` is "damaged" where
    damage makes garbage collection leave the log as it is. `given_back` is the file without what
    stays of it: all of a log that goes, all but the live bytes of one that is compacted.
    """

    log: LogFile
    source: Literal["map", "scan"] | None
    ledgers: dict[LedgerId, int] = field(default_factory=dict)
    live: dict[LedgerId, int] = field(default_factory=dict)
    fate: Fate = "keep"
    given_back: int = 0

    @property
    def record_bytes(self) -> int:
        """The bytes of all records: 4 + size of each."""
        return sum(self.ledgers.values())

    @property
    def live_bytes(self) -> int:
        """The bytes of records of live ledgers."""
        return sum(self.live.values())

    @property
    def occupancy(self) -> float:
        """The live share of the record bytes; 0.0 of a log without records."""
        return self.live_bytes / self.record_bytes if self.record_bytes else 0.0

    def is_pinned(self, below: float) -> bool:
        """Return whether little, but some of it is live: less than `below` of its records."""
        return 0 < self.live_bytes and self.occupancy < below


def log_usages(
    bookie: BookieDir, live: LiveLedgers, threshold: float, findings: list[Finding]
) -> Iterator[LogUsage]:
    """Yield what of each entry log is live, by directory and log id.

    Logs below the occupancy `threshold` are to be compacted. Damage goes to `findings`, and the
    next log follows. Memory: the ledgers of a log. Cost: some reads for a log with a ledgers map,
    else a scan of it; for one that ends inside a record, and would go, a scan of the index.
    """
    for log in bookie.entry_logs:
        damage: list[Finding] = []
        try:
            metadata, source = read_log_metadata(log.path, log.log_id, damage)
        except BkstoreError as error:
            findings.append(Finding.of(error))
            yield LogUsage(log, None, fate="damaged")
            continue
        findings += damage
        harmed = source == "scan" and any(found.severity == "damage" for found in damage)
        yield _judged(bookie, log, metadata, source, live, threshold, damage if harmed else [])


def _judged(
    bookie: BookieDir,
    log: LogFile,
    metadata: LogMetadata,
    source: Literal["map", "scan"],
    live: LiveLedgers,
    threshold: float,
    damage: list[Finding],
) -> LogUsage:
    ledgers = metadata.ledgers
    wanted = {
        name: size for name, size in ledgers.items() if live.in_directory(name, log.dir_index)
    }
    kept = sum(wanted.values())
    total = sum(ledgers.values())
    fate: Fate = "remove"
    if wanted:
        fate = "compact" if not total or kept / total < threshold else "keep"
    if damage and (fate != "keep" or cut_at(Path(log.path), damage) is None):
        fate = fate if _is_whole(bookie, log, damage) else "damaged"
    given_back = max(log.bytes - kept, 0) if fate in ("remove", "compact") else 0
    return LogUsage(log, source, ledgers, wanted, fate, given_back)


def _is_whole(bookie: BookieDir, log: LogFile, damage: list[Finding]) -> bool:
    """Return whether the log was only cut inside its last record, which no row points at."""
    at = cut_at(Path(log.path), damage)
    return at is not None and not is_pointed_at(bookie.index, log.log_id, at)
