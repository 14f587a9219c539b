"""The model behind `storage_machine`: what a ledger storage must answer, kept in dicts.

It derives expected values from the rules and the added records, never from a storage. Two rules
need more than a dict of dicts: which copy of an entry is kept (`duplicates`), and what a bookie
still has after a crash. If a storage flushes by itself, at times that the model does not know,
several answers are right; the model then has all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from bkstore.formats.entry import Coder, Entry, encode_explicit_lac
from bkstore.ids import LedgerId

Name = tuple[int, int]
"""(scope, ledger)."""

NO_ENTRY = -1

_CODER = Coder("CRC32C", "model")
_FRAME_BYTES = 36
_PREFIX_BYTES = 4


def key_of(name: Name) -> bytes:
    """Return the master key that the machine uses for a ledger.

    >>> key_of((0, 7)) == key_of((1, 7)), len(key_of((0, 7)))
    (False, 20)
    """
    return b"k:" + name[1].to_bytes(9, "big") + name[0].to_bytes(9, "big")


def lac_of(entry: int) -> int:
    """Return the LAC field of an entry; each copy of the entry has the same.

    >>> [lac_of(entry) for entry in (0, 1, 4, 7)]
    [-1, -1, 3, 3]
    """
    return max(NO_ENTRY, entry - 1 - entry % 4)


def count_batch_records(sizes: Sequence[int], max_count: int, max_size: int) -> int:
    """Return how many records of these sizes fit into one batch (BP-62), counted by a loop.

    >>> count_batch_records([100, 100, 100], 0, 36 + 104 + 104), count_batch_records([100, 100], 0, 1)
    (2, 1)
    """
    count, frame_bytes = 0, _FRAME_BYTES
    for size in sizes:
        frame_bytes += _PREFIX_BYTES + size
        if count and (frame_bytes > max_size or count == max_count):
            break
        count += 1
    return count


@dataclass(slots=True)
class LedgerModel:
    """One ledger: its state and, by entry id, the records that a read may return.

    `kept` has those of the last flush, `fresh` those added since, in order; `journalled` has
    those added since the last checkpoint of a bookie. The LAC is within `low`..`high`.
    """

    key: bytes
    fenced: bool = False
    explicit: bytes | None = None
    explicit_lac: int = NO_ENTRY
    low: int = NO_ENTRY
    high: int = NO_ENTRY
    kept: dict[int, list[bytes]] = field(default_factory=dict)
    fresh: dict[int, list[bytes]] = field(default_factory=dict)
    journalled: dict[int, list[bytes]] = field(default_factory=dict)

    def entries(self) -> list[int]:
        """Return the entry ids, ascending."""
        return sorted(self.kept.keys() | self.fresh.keys())

    def stored_lac(self) -> int:
        """Return the LAC after a reopen: the higher of the last entry's and the explicit one."""
        return max([self.explicit_lac, *map(lac_of, self.entries()[-1:])])

    def confirm(self, lac: int) -> None:
        """Raise the bounds of the LAC to `lac`."""
        self.low, self.high = max(self.low, lac), max(self.high, lac)

    def copy(self) -> LedgerModel:
        """Return a copy with its own dicts and lists."""
        return replace(
            self,
            kept=dict(self.kept),
            fresh={entry: list(added) for entry, added in self.fresh.items()},
            journalled={entry: list(added) for entry, added in self.journalled.items()},
        )


class StorageModel:
    """Ledgers by (scope, ledger), and their durable state.

    With `duplicates` "first" the first copy since the last flush counts, with "last" the last
    one. `exact` is False for a storage that flushes by itself. `journaled` is True for a bookie,
    whose journal has no record of a deletion: it checkpoints when a deleted ledger is created
    again, after the first record or state of the new one.
    """

    def __init__(
        self, duplicates: Literal["first", "last"], exact: bool = True, journaled: bool = False
    ) -> None:
        self.duplicates = duplicates
        self.exact = exact
        self.journaled = journaled
        self.deleted: set[Name] = set()
        """Ledgers deleted since the last checkpoint, known or not."""
        self.ledgers: dict[Name, LedgerModel] = {}
        self.ghosts: dict[Name, dict[int, set[bytes]]] = {}
        """Ledgers deleted since the last checkpoint, which a crash may bring back."""
        self._flushed: dict[Name, LedgerModel] = {}
        self._serial = 0

    def record(self, name: Name, entry: int, size: int) -> bytes:
        """Return a new record; unless `exact`, its length depends on `size` and `entry` only."""
        self._serial += 1
        extra = self._serial % 7 if self.exact else entry % 7
        payload = self._serial.to_bytes(8, "big") + bytes([self._serial % 256]) * (size + extra)
        return _CODER.encode(Entry(LedgerId(*name), entry, lac_of(entry), 10 * entry, payload))

    def open(self, name: Name) -> LedgerModel:
        """Return a ledger; create it if it is unknown."""
        return self.ledgers.setdefault(name, LedgerModel(key_of(name)))

    def add(self, name: Name, entry: int, record: bytes) -> None:
        """Add one record."""
        ledger = self.open(name)
        ledger.fresh.setdefault(entry, []).append(record)
        ledger.confirm(lac_of(entry))
        self.log_key(name)
        ledger.journalled.setdefault(entry, []).append(record)

    def log_key(self, name: Name) -> None:
        """Checkpoint where a bookie does: it logs the key of a ledger that was deleted before."""
        if self.journaled and name in self.deleted:
            self.checkpoint()

    def set_explicit_lac(self, name: Name, lac: int) -> bytes:
        """Set an explicit LAC; return its encoded form."""
        ledger = self.open(name)
        ledger.explicit = encode_explicit_lac(LedgerId(*name), lac, "CRC32C", "model")
        ledger.explicit_lac = lac
        ledger.confirm(lac)
        return ledger.explicit

    def delete(self, name: Name) -> None:
        """Delete a ledger; its records become a ghost, as the deletion may not be durable."""
        self.deleted.add(name)
        ledger = self.ledgers.pop(name, None)
        self._flushed.pop(name, None)
        if ledger is not None:
            ghost = self.ghosts.setdefault(name, {})
            for records in (ledger.kept, ledger.fresh, ledger.journalled):
                for entry, copies in records.items():
                    ghost.setdefault(entry, set()).update(copies)

    def keep_only(self, names: Iterable[Name]) -> list[Name]:
        """Delete all other ledgers; return the deleted ones in order."""
        deleted = sorted(self.ledgers.keys() - set(names))
        for name in deleted:
            self.delete(name)
        return deleted

    def flush(self) -> None:
        """Make everything durable."""
        for ledger in self.ledgers.values():
            for entry in ledger.fresh:
                ledger.kept[entry] = self.copies(ledger, entry)
            ledger.fresh.clear()
        self._flushed = {name: ledger.copy() for name, ledger in self.ledgers.items()}

    def checkpoint(self) -> None:
        """Make everything durable; the journal is no longer needed."""
        self.flush()
        self.ghosts.clear()
        self.deleted.clear()
        for ledger in (*self.ledgers.values(), *self._flushed.values()):
            ledger.journalled.clear()

    def reopen(self) -> None:
        """Reset the ledgers to their durable state; the LAC is the stored one."""
        self.ledgers = {name: ledger.copy() for name, ledger in self._flushed.items()}
        for ledger in self.ledgers.values():
            ledger.low = ledger.high = ledger.stored_lac()

    def crash(self) -> dict[Name, dict[int, set[bytes]]]:
        """Replay the journal; return the records of deleted ledgers that may have come back.

        The replay adds records in their former order to an empty cache: where the first copy is
        kept, it is now the first since the checkpoint, even if a flush came between.
        """
        ghosts = dict(self.ghosts)  # `checkpoint` empties it
        for ledger in self.ledgers.values():
            if self.duplicates == "first":
                for entry, copies in ledger.journalled.items():
                    ledger.fresh.pop(entry, None)
                    ledger.kept[entry] = copies[:1] if self.exact else list(copies)
            ledger.low = ledger.stored_lac()
        self.checkpoint()
        return ghosts

    def copies(self, ledger: LedgerModel, entry: int) -> list[bytes]:
        """Return the records that a read of the entry may return; none if it is missing."""
        added = ledger.fresh.get(entry)
        if not added:
            return ledger.kept.get(entry, [])
        if self.duplicates == "last":
            return added[-1:]
        return added[:1] if self.exact else list(added)

    def run(self, name: Name, start: int) -> list[list[bytes]]:
        """Return the possible records of `start`, `start` + 1, ... up to the first gap."""
        candidates: list[list[bytes]] = []
        ledger = self.ledgers.get(name)
        while ledger is not None:
            copies = self.copies(ledger, start + len(candidates))
            if not copies:
                break
            candidates.append(copies)
        return candidates
