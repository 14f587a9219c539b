"""Usage: one pass over the index and the entry logs of a bookie, and what it comes to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from bkstore.arguments import number, whole
from bkstore.errors import BkstoreError
from bkstore.formats.idxfile import DEFAULT_PAGE_SIZE, check_page_size
from bkstore.ids import LedgerId
from bkstore.index.api import Finding
from bkstore.index.many_ledgers import answers
from bkstore.offline.usage.caches import DEFAULT_READ_AHEAD, CacheNeed, cache_needs
from bkstore.offline.usage.entry_logs import LogUsage, log_usages
from bkstore.offline.usage.index_size import IndexPart, index_parts
from bkstore.offline.usage.live_ledgers import LiveLedgers
from bkstore.storage.ledgers.garbage_pass import MAJOR_THRESHOLD, MINOR_THRESHOLD
from bkstore.storage.read_only.bookie_dir import BookieDir

_share = number(0, 1)
_count = whole(1)
Progress = Callable[[str, int, int, int], None]


@dataclass(slots=True)
class LedgerUsage:
    """A ledger's share of the disk: `bytes` of its records in `logs` entry logs.

    `live_bytes` are the live ones of them: all or none, but for what lies in a wrong directory
    of db storage. `entries` is how many the index has, None where it does not know the ledger or
    cannot read it. `pinned_logs` is in how many logs it is among those that keep little alive.
    """

    ledger: LedgerId
    live: bool
    entries: int | None = None
    logs: int = 0
    bytes: int = 0
    live_bytes: int = 0
    pinned_logs: int = 0


@dataclass(slots=True)
class ScopeUsage:
    """The same of all ledgers of a scope."""

    scope: int
    ledgers: int = 0
    live_ledgers: int = 0
    entries: int = 0
    bytes: int = 0
    live_bytes: int = 0


@dataclass(slots=True)
class Totals:
    """What the entry logs come to.

    `other_bytes` is what is no record: headers, ledgers maps, padding, what damage hides.
    `moved_bytes` is what compaction would have to copy.
    """

    logs: int = 0
    file_bytes: int = 0
    record_bytes: int = 0
    live_bytes: int = 0
    pinned_logs: int = 0
    pinned_bytes: int = 0
    removable_logs: int = 0
    compactable_logs: int = 0
    damaged_logs: int = 0
    moved_bytes: int = 0
    given_back: int = 0

    @property
    def garbage_bytes(self) -> int:
        """Bytes of records that are not live."""
        return self.record_bytes - self.live_bytes

    @property
    def other_bytes(self) -> int:
        """Bytes of files that are in no record that was counted."""
        return self.file_bytes - self.record_bytes


class Usage:
    """What fills the disk of one bookie, from its files alone.

    `listed` are the ledgers that are live (None: all that the index knows); logs of which less
    than `threshold` is live would be compacted, less than `pinned` of a log that has some pins
    it. Opening it reads the index once; `logs` reads the entry logs, by their ledgers maps where
    they have them, and is to be gone through once before the sums are asked for.
    What is damaged goes to `findings`. Memory: some 300 bytes a ledger; the ledgers of a log.

    >>> import tempfile
    >>> from bkstore import LedgerStorage
    >>> with tempfile.TemporaryDirectory() as top:
    ...     with LedgerStorage.open(top, "sorted") as storage:
    ...         for ledger in (7, 8):
    ...             record = ledger.to_bytes(8, "big") + bytes(56)
    ...             _ = storage.add_entry(record, master_key=b"k" * 20)
    ...     with BookieDir(top) as bookie:
    ...         usage = Usage(bookie, listed=[LedgerId.of(7)])
    ...         [(log.record_bytes, log.live_bytes, log.fate) for log in usage.logs()]
    [(136, 68, 'compact')]
    >>> usage.totals.garbage_bytes, [each.live for each in usage.ledgers()]
    (68, [True, False])
    """

    def __init__(
        self,
        bookie: BookieDir,
        listed: Iterable[LedgerId] | None = None,
        threshold: float = MAJOR_THRESHOLD,
        pinned: float = MINOR_THRESHOLD,
        progress: Progress | None = None,
    ) -> None:
        """Read the index; raises `InvalidArgument` for shares outside 0..1, and what it raises."""
        self._bookie = bookie
        self._threshold = float(_share("threshold", threshold))
        self._pinned = float(_share("pinned", pinned))
        self._progress = progress
        self.findings: list[Finding] = bookie.unknown_files()
        self.totals = Totals()
        known = bookie.index.ledgers()
        several = len(bookie.folders.ledger) if bookie.layout == "rocksdb" else 1
        self.live = LiveLedgers(known, listed, several)
        self._ledgers = dict(self._counted(known))

    def _counted(self, known: list[LedgerId]) -> Iterator[tuple[LedgerId, LedgerUsage]]:
        for name, here in answers(self._bookie.index, known):
            found = LedgerUsage(name, name in self.live)
            if isinstance(here, BkstoreError):
                self.findings.append(Finding.of(here, name))
            else:
                found.entries = len(here)
            yield name, found

    def logs(self) -> Iterator[LogUsage]:
        """Yield what of each entry log is live, by directory and log id; counts them too."""
        bookie = self._bookie
        self.totals = Totals()
        for each in self._ledgers.values():
            each.logs = each.bytes = each.live_bytes = each.pinned_logs = 0
        total, done = sum(log.bytes for log in bookie.entry_logs), 0
        for log in log_usages(bookie, self.live, self._threshold, self.findings):
            self._add(log)
            done += log.log.bytes
            if self._progress is not None:
                self._progress(f"log {log.log.log_id}", done, total, self.totals.logs)
            yield log

    def is_pinned(self, log: LogUsage) -> bool:
        """Return whether a log is pinned by little."""
        return log.is_pinned(self._pinned)

    def _add(self, log: LogUsage) -> None:
        here, pinned = self.totals, self.is_pinned(log)
        here.logs += 1
        here.file_bytes += log.log.bytes
        here.record_bytes += log.record_bytes
        here.live_bytes += log.live_bytes
        here.pinned_logs += pinned
        here.pinned_bytes += log.log.bytes if pinned else 0
        here.removable_logs += log.fate == "remove"
        here.compactable_logs += log.fate == "compact"
        here.damaged_logs += log.fate == "damaged"
        here.moved_bytes += log.live_bytes if log.fate == "compact" else 0
        here.given_back += log.given_back
        for name, size in log.ledgers.items():
            found = self._ledgers.get(name)
            if found is None:
                found = self._ledgers[name] = LedgerUsage(name, False)
            found.logs += 1
            found.bytes += size
            found.live_bytes += log.live.get(name, 0)
            found.pinned_logs += pinned and name in log.live

    # -- sums, behind `logs`

    def ledgers(self) -> list[LedgerUsage]:
        """Return each ledger that the index knows or a log has, in unsigned order."""
        return [self._ledgers[name] for name in sorted(self._ledgers)]

    def scopes(self) -> list[ScopeUsage]:
        """Return the sums of each scope, in unsigned order."""
        found: dict[int, ScopeUsage] = {}
        for each in self.ledgers():
            scope = found.setdefault(each.ledger.scope, ScopeUsage(each.ledger.scope))
            scope.ledgers += 1
            scope.live_ledgers += each.live
            scope.entries += each.entries or 0
            scope.bytes += each.bytes
            scope.live_bytes += each.live_bytes
        return list(found.values())

    def index(self, page_size: int = DEFAULT_PAGE_SIZE) -> list[IndexPart]:
        """Return the parts of the index, by directory. A `stat` a file; needs no `logs`.

        `page_size` is that of index files, which they do not say.
        """
        check_page_size("page_size", page_size)
        known = {name: self._ledgers[name].entries for name in self._bookie.index.ledgers()}
        return list(index_parts(self._bookie, known, page_size))

    def caches(self, readers: int = 1, read_ahead: int = DEFAULT_READ_AHEAD) -> list[CacheNeed]:
        """Return what a bookie's caches need for this directory, for so many readers at once.

        Asks what `logs` has counted: the mean record is that of ledgers whose entries are known.
        """
        _count("readers", readers)
        _count("read_ahead", read_ahead)
        known = [each for each in self._ledgers.values() if each.entries and each.bytes]
        entries = sum(each.entries or 0 for each in known)
        mean = sum(each.bytes for each in known) / entries if entries else None
        directories = len(self._bookie.folders.ledger)
        return cache_needs(self.index(), mean, directories, readers, read_ahead)
