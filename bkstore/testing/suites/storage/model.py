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

IdPair = tuple[int, int]
"""(scope, ledger)."""

NO_ENTRY = -1

_CODER = Coder("CRC32C", "model")
_FRAME_BYTES = 36
_PREFIX_BYTES = 4


def master_key_of(id_pair: IdPair) -> bytes:
    """Return the master key that the machine uses for a ledger.

    >>> master_key_of((0, 7)) == master_key_of((1, 7)), len(master_key_of((0, 7)))
    (False, 20)
    """
    return b"k:" + id_pair[1].to_bytes(9, "big") + id_pair[0].to_bytes(9, "big")


def lac_of(entry: int) -> int:
    """Return the LAC field of an entry; each copy of the entry has the same.

    >>> [lac_of(entry) for entry in (0, 1, 4, 7)]
    [-1, -1, 3, 3]
    """
    return max(NO_ENTRY, entry - 1 - entry % 4)


def count_batch_records(sizes: Sequence[int], max_count: int, max_size: int) -> int:
    """Return how many records of these sizes fit into one batch (BP-62), counted by a loop.

    >>> count_batch_records([100, 100, 100], 0, 36 + 104 + 104)
    2
    >>> count_batch_records([100, 100], 0, 1)
    1
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

    `flushed` has those of the last flush, `unflushed` those added since, in order; `journalled` has
    those added since the last checkpoint of a bookie. The LAC is within
    `lowest_lac`..`highest_lac`.
    """

    key: bytes
    fenced: bool = False
    encoded_explicit_lac: bytes | None = None
    explicit_lac: int = NO_ENTRY
    lowest_lac: int = NO_ENTRY
    highest_lac: int = NO_ENTRY
    flushed: dict[int, list[bytes]] = field(default_factory=dict)
    unflushed: dict[int, list[bytes]] = field(default_factory=dict)
    journalled: dict[int, list[bytes]] = field(default_factory=dict)

    def entries(self) -> list[int]:
        """Return the entry ids, ascending."""
        return sorted(self.flushed.keys() | self.unflushed.keys())

    def stored_lac(self) -> int:
        """Return the LAC after a reopen: the higher of the last entry's and the explicit one."""
        return max([self.explicit_lac, *map(lac_of, self.entries()[-1:])])

    def raise_lac_bounds(self, lac: int) -> None:
        """Raise the bounds of the LAC to `lac`."""
        self.lowest_lac, self.highest_lac = max(self.lowest_lac, lac), max(self.highest_lac, lac)

    def copy(self) -> LedgerModel:
        """Return a copy with its own dicts and lists."""
        return replace(
            self,
            flushed=dict(self.flushed),
            unflushed={entry: list(added) for entry, added in self.unflushed.items()},
            journalled={entry: list(added) for entry, added in self.journalled.items()},
        )


class StorageModel:
    """Ledgers by (scope, ledger), and their durable state.

    With `duplicates` "first" the first copy since the last flush counts, with "last" the last one.
    `never_flushes_alone` is False for a storage that flushes by itself. `journaled` is True for a
    bookie, whose journal has no record of a deletion: it checkpoints when a deleted ledger is
    created again, after the first record or state of the new one.
    """

    def __init__(
        self,
        duplicates: Literal["first", "last"],
        never_flushes_alone: bool = True,
        journaled: bool = False,
    ) -> None:
        self.duplicates = duplicates
        self.never_flushes_alone = never_flushes_alone
        self.journaled = journaled
        self.deleted: set[IdPair] = set()
        """Ledgers deleted since the last checkpoint, known or not."""
        self.ledgers: dict[IdPair, LedgerModel] = {}
        self.deleted_records: dict[IdPair, dict[int, set[bytes]]] = {}
        """Ledgers deleted since the last checkpoint, which a crash may bring back."""
        self._flushed: dict[IdPair, LedgerModel] = {}
        self._serial = 0

    def record(self, id_pair: IdPair, entry: int, size: int) -> bytes:
        """Return a new record; unless `never_flushes_alone`, its length depends on `size` and
        `entry` only."""
        self._serial += 1
        extra = self._serial % 7 if self.never_flushes_alone else entry % 7
        payload = self._serial.to_bytes(8, "big") + bytes([self._serial % 256]) * (size + extra)
        return _CODER.encode(Entry(LedgerId(*id_pair), entry, lac_of(entry), 10 * entry, payload))

    def open(self, id_pair: IdPair) -> LedgerModel:
        """Return a ledger; create it if it is unknown."""
        return self.ledgers.setdefault(id_pair, LedgerModel(master_key_of(id_pair)))

    def add(self, id_pair: IdPair, entry: int, record: bytes) -> None:
        """Add one record."""
        ledger = self.open(id_pair)
        ledger.unflushed.setdefault(entry, []).append(record)
        ledger.raise_lac_bounds(lac_of(entry))
        self.log_key(id_pair)
        ledger.journalled.setdefault(entry, []).append(record)

    def log_key(self, id_pair: IdPair) -> None:
        """Checkpoint where a bookie does: it logs the key of a ledger that was deleted before."""
        if self.journaled and id_pair in self.deleted:
            self.checkpoint()

    def set_explicit_lac(self, id_pair: IdPair, lac: int) -> bytes:
        """Set an explicit LAC; return its encoded form."""
        ledger = self.open(id_pair)
        ledger.encoded_explicit_lac = encode_explicit_lac(
            LedgerId(*id_pair), lac, "CRC32C", "model"
        )
        ledger.explicit_lac = lac
        ledger.raise_lac_bounds(lac)
        return ledger.encoded_explicit_lac

    def delete(self, id_pair: IdPair) -> None:
        """Delete a ledger; its records become a ghost, as the deletion may not be durable."""
        self.deleted.add(id_pair)
        ledger = self.ledgers.pop(id_pair, None)
        self._flushed.pop(id_pair, None)
        if ledger is not None:
            ghost = self.deleted_records.setdefault(id_pair, {})
            for records in (ledger.flushed, ledger.unflushed, ledger.journalled):
                for entry, copies in records.items():
                    ghost.setdefault(entry, set()).update(copies)

    def keep_only(self, id_pairs: Iterable[IdPair]) -> list[IdPair]:
        """Delete all other ledgers; return the deleted ones in order."""
        deleted = sorted(self.ledgers.keys() - set(id_pairs))
        for name in deleted:
            self.delete(name)
        return deleted

    def flush(self) -> None:
        """Make everything durable."""
        for ledger in self.ledgers.values():
            for entry in ledger.unflushed:
                ledger.flushed[entry] = self.readable_copies(ledger, entry)
            ledger.unflushed.clear()
        self._flushed = {name: ledger.copy() for name, ledger in self.ledgers.items()}

    def checkpoint(self) -> None:
        """Make everything durable; the journal is no longer needed."""
        self.flush()
        self.deleted_records.clear()
        self.deleted.clear()
        for ledger in (*self.ledgers.values(), *self._flushed.values()):
            ledger.journalled.clear()

    def reopen(self) -> None:
        """Reset the ledgers to their durable state; the LAC is the stored one."""
        self.ledgers = {name: ledger.copy() for name, ledger in self._flushed.items()}
        for ledger in self.ledgers.values():
            ledger.lowest_lac = ledger.highest_lac = ledger.stored_lac()

    def crash(self) -> dict[IdPair, dict[int, set[bytes]]]:
        """Replay the journal; return the records of deleted ledgers that may have come back.

        The replay adds records in their former order to an empty cache: where the first copy is
        kept, it is now the first since the checkpoint, even if a flush came between.
        """
        ghosts = dict(self.deleted_records)  # `checkpoint` empties it
        for ledger in self.ledgers.values():
            if self.duplicates == "first":
                for entry, copies in ledger.journalled.items():
                    ledger.unflushed.pop(entry, None)
                    ledger.flushed[entry] = copies[:1] if self.never_flushes_alone else list(copies)
            ledger.lowest_lac = ledger.stored_lac()
        self.checkpoint()
        return ghosts

    def readable_copies(self, ledger: LedgerModel, entry: int) -> list[bytes]:
        """Return the records that a read of the entry may return; none if it is missing."""
        added = ledger.unflushed.get(entry)
        if not added:
            return ledger.flushed.get(entry, [])
        if self.duplicates == "last":
            return added[-1:]
        return added[:1] if self.never_flushes_alone else list(added)

    def readable_run(self, id_pair: IdPair, start: int) -> list[list[bytes]]:
        """Return the possible records of `start`, `start` + 1, ... up to the first gap."""
        candidates: list[list[bytes]] = []
        ledger = self.ledgers.get(id_pair)
        while ledger is not None:
            copies = self.readable_copies(ledger, start + len(candidates))
            if not copies:
                break
            candidates.append(copies)
        return candidates
