"""LeakBytes: what the ledgers of `bkstore leaks` take on the disks of bookies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from bkstore.counts import format_count, size_text
from bkstore.ids import LedgerId
from bkstore.index.api import Finding
from bkstore.offline.usage.ledger_bytes import (
    LedgersOfLog,
    StoredBytes,
    directory_logs,
    dump_logs,
    sum_bytes,
)
from bkstore.pulsar.deletion import DELETABLE
from bkstore.pulsar.ledger_classes import LEDGER_CLASSES, ClassifiedLedger
from bkstore.storage.read_only.bookie_dir import BookieDir


class LeakBytes:
    """The bytes of some ledgers, in bookies' directories or a dump; without paths none are known.
    `findings` are entry logs that cannot be read."""

    def __init__(
        self,
        paths: list[Path],
        every_ledger: Iterable[ClassifiedLedger],
        shown: Iterable[ClassifiedLedger],
    ) -> None:
        """Read the entry logs, and sum up the bytes of the ledgers that are `shown`."""
        self.findings: list[Finding] = []
        self._is_known = bool(paths)
        shown = list(shown)
        self._deletable = {each.ledger for each in shown if each.ledger_class in DELETABLE}
        stored = {each.ledger for each in every_ledger if each.stored is not None}
        wanted = {each.ledger for each in shown}
        logs = (log for path in paths for log in self._logs(path))
        # A log that has none of the ledgers that stay is freed as a whole.
        self._sums = sum_bytes(logs, wanted, stored - self._deletable)

    def _logs(self, path: Path) -> Iterator[LedgersOfLog]:
        """Yield the entry logs of a dump or of a bookie's directory, with the bytes by ledger."""
        from bkstore.offline.diff import is_dump

        if is_dump(path):
            from bkstore.offline.reading.open_dump import open_dump

            yield from dump_logs(open_dump(path))
            return
        with BookieDir(path, needs_index=False) as bookie:
            yield from directory_logs(bookie, self.findings)
            bookie.check_unchanged()

    def of(self, ledger: LedgerId) -> StoredBytes | None:
        """Return the bytes of a ledger, none of them if no bookie has it; None without paths."""
        return self._sums.get(ledger, StoredBytes()) if self._is_known else None

    def order(self, each: ClassifiedLedger) -> tuple[int, int, LedgerId]:
        """Return a row's sort key: the worst class first, in it the largest ledger."""
        stored = self._sums.get(each.ledger)
        size = 0 if stored is None else stored.total
        return LEDGER_CLASSES.index(each.ledger_class), -size, each.ledger

    def summary(self) -> str:
        """Return what deleting the leaks and offloaded copies gives back, in a line."""
        sums = [stored for ledger, stored in self._sums.items() if ledger in self._deletable]
        total = sum(stored.total for stored in sums)
        removable = sum(stored.removable for stored in sums)
        bookies = len({bookie for stored in sums for bookie in stored.by_bookie})
        return (
            f"leaked ledgers and offloaded copies take {size_text(total)} on "
            f"{format_count(bookies, 'bookie')}: deleting them frees {size_text(removable)}, and "
            f"compaction {size_text(total - removable)}"
        )
