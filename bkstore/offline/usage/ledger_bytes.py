"""The bytes of ledgers in entry logs, and what deleting some of them gives back.

The bytes of a deleted ledger stay on the disk until garbage collection removes the entry log. It
removes a log as a whole when no ledger in it lives any more; as long as one does, only compaction
gives the other bytes back.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from bkstore.errors import BkstoreError
from bkstore.ids import LedgerId
from bkstore.index.api import Finding
from bkstore.storage.entry_log.scan import read_log_metadata
from bkstore.storage.read_only.bookie_dir import BookieDir

if TYPE_CHECKING:
    import pyarrow as pa

    from bkstore.offline.reading.open_dump import Dump

_COLUMNS = ["bookie", "dir_index", "log_id", "scope_id", "ledger_id", "bytes"]
_BATCH_ROWS = 1 << 16


class LedgersOfLog(NamedTuple):
    """An entry log of a bookie: the bytes of each ledger in it."""

    bookie: str
    ledgers: Mapping[LedgerId, int]


@dataclass(slots=True)
class StoredBytes:
    """The bytes of a ledger by bookie. `removable` are in logs that garbage collection removes as
    soon as the ledgers to be deleted are; the others need compaction."""

    by_bookie: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    removable: int = 0

    @property
    def total(self) -> int:
        """The bytes on all bookies."""
        return sum(self.by_bookie.values())


def directory_logs(bookie: BookieDir, findings: list[Finding]) -> Iterator[LedgersOfLog]:
    """Yield the entry logs of a bookie's directories; damage is appended to `findings`. Cost: some
    reads for a log with a ledgers map, else a scan of it."""
    for log in bookie.entry_logs:
        try:
            metadata, _ = read_log_metadata(log.path, log.log_id, findings)
        except BkstoreError as error:
            findings.append(Finding.of(error))
            continue
        yield LedgersOfLog(bookie.bookie_id, metadata.ledgers)


def dump_logs(dump: Dump) -> Iterator[LedgersOfLog]:
    """Yield the entry logs of all bookies of a dump, from its table `log_ledgers`. Memory: a batch
    of rows, and the ledgers of a log. Raises `CorruptionError` if a file is damaged."""
    from bkstore.offline.reading.file_locations import opened_parquet

    dump.check("log_ledgers")
    for file in dump.files["log_ledgers"]:
        with opened_parquet(file.path) as parquet_file:
            batches = parquet_file.iter_batches(_BATCH_ROWS, columns=_COLUMNS, use_threads=False)
            yield from _merge_rows(batches)


def _merge_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[LedgersOfLog]:
    """Yield each log with its ledgers, from rows of `log_ledgers` that are ordered by log."""
    current: tuple[str, int, int] | None = None
    ledgers: dict[LedgerId, int] = {}
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in _COLUMNS)
        for bookie, dir_index, log_id, scope_id, ledger_id, size in zip(*columns):
            log = bookie, dir_index, log_id
            if log != current:
                if current is not None:
                    yield LedgersOfLog(current[0], ledgers)
                current, ledgers = log, {}
            ledgers[LedgerId(scope_id, ledger_id)] = size
    if current is not None:
        yield LedgersOfLog(current[0], ledgers)


def sum_bytes(
    logs: Iterable[LedgersOfLog],
    wanted: Collection[LedgerId],
    needed: Collection[LedgerId],
) -> dict[LedgerId, StoredBytes]:
    """Return the bytes of the `wanted` ledgers that are in the logs. A log that has no ledger of
    `needed`, those that stay, is removed as a whole. O(ledgers of all logs).

    >>> one, two = LedgerId.of(1), LedgerId.of(2)
    >>> logs = [LedgersOfLog("b", {one: 10}), LedgersOfLog("b", {one: 5, two: 7})]
    >>> stored = sum_bytes(logs, {one}, {two})[one]
    >>> stored.total, stored.removable
    (15, 10)
    """
    sums: dict[LedgerId, StoredBytes] = {}
    for log in logs:
        chosen = [ledger_id for ledger_id in log.ledgers if ledger_id in wanted]
        is_removable = not any(ledger_id in needed for ledger_id in log.ledgers)
        for ledger_id in chosen:
            stored = sums.setdefault(ledger_id, StoredBytes())
            stored.by_bookie[log.bookie] += log.ledgers[ledger_id]
            stored.removable += log.ledgers[ledger_id] if is_removable else 0
    return sums
