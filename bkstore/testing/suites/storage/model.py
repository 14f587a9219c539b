"""The model behind `storage_machine`: what a ledger storage must answer, kept in dicts.

It derives expected values from the rules and the added records, never from a storage. Two rules
need more than a dict of dicts: which copy of an entry is kept (`duplicates`), and what a bookie
still has after a crash. If a storage flushes by itself, at times that the model does not know,
several answers are right; the model then has all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, takewhile
from typing import Literal

from bkstore.formats.entry import Coder, Entry, encode_explicit_lac
from bkstore.ids import LedgerId

NO_ENTRY = -1

Duplicates = Literal["first", "last"]

_CODER = Coder("CRC32C", "model")
_FRAME_BYTES = 36
_PREFIX_BYTES = 4


def master_key_of(ledger_id: LedgerId) -> bytes:
    """Return the master key that the machine uses for a ledger.

    >>> master_key_of(LedgerId(0, 7)) == master_key_of(LedgerId(1, 7))
    False
    """
    return b"k:" + ledger_id.ledger.to_bytes(9, "big") + ledger_id.scope.to_bytes(9, "big")


def lac_of(entry: int) -> int:
    """Return the LAC field of an entry; each copy of the entry has the same.

    >>> [lac_of(entry) for entry in (0, 1, 4, 7)]
    [-1, -1, 3, 3]
    """
    return max(NO_ENTRY, entry - 1 - entry % 4)


def count_batch_records(sizes: Sequence[int], max_count: int, max_size: int) -> int:
    """Return how many records of these sizes fit into one batch (BP-62), at least the first.

    >>> count_batch_records([100, 100, 100], 0, 36 + 104 + 104)
    2
    >>> count_batch_records([100, 100], 0, 1)
    1
    """
    records, frame_bytes = 0, _FRAME_BYTES
    for size in sizes:
        frame_bytes += _PREFIX_BYTES + size
        if records and (frame_bytes > max_size or records == max_count):
            break
        records += 1
    return records


@dataclass(slots=True)
class LedgerModel:
    """One ledger: its state and, by entry id, the records that a read may return.

    `flushed` has those of the last flush, `unflushed` those added since, in order; `journalled` has
    those added since a bookie's last checkpoint. The LAC is within `lowest_lac`..`highest_lac`.
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
        """Return a copy with its own dicts, and own lists where they grow."""
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

    journaled = False

    def __init__(self, duplicates: Duplicates, never_flushes_alone: bool = True) -> None:
        """Begin as a new, empty storage that keeps the first or the last copy of an entry
        (`duplicates`)."""
        self.duplicates = duplicates
        self.never_flushes_alone = never_flushes_alone
        self.ledgers: dict[LedgerId, LedgerModel] = {}
        # The ledgers deleted since the last checkpoint; their records, which a crash may restore.
        self.deleted: set[LedgerId] = set()
        self.deleted_records: dict[LedgerId, dict[int, set[bytes]]] = {}
        self._flushed: dict[LedgerId, LedgerModel] = {}  # copies as of the last flush
        self._serial = 0  # of the last record; it makes records of the same entry differ

    def record(self, ledger_id: LedgerId, entry: int, size: int) -> bytes:
        """Return a new record; if the storage flushes by itself, copies have the same length."""
        self._serial += 1
        extra = self._serial % 7 if self.never_flushes_alone else entry % 7
        payload = self._serial.to_bytes(8, "big") + bytes([self._serial % 256]) * (size + extra)
        return _CODER.encode(Entry(ledger_id, entry, lac_of(entry), 10 * entry, payload))

    def open(self, ledger_id: LedgerId) -> LedgerModel:
        """Return a ledger; create it if it is unknown."""
        return self.ledgers.setdefault(ledger_id, LedgerModel(master_key_of(ledger_id)))

    def add(self, ledger_id: LedgerId, entry: int, record: bytes) -> None:
        """Add one record."""
        ledger = self.open(ledger_id)
        ledger.unflushed.setdefault(entry, []).append(record)
        ledger.raise_lac_bounds(lac_of(entry))
        self.checkpoint_if_recreated(ledger_id)  # before the bookie journals the record
        ledger.journalled.setdefault(entry, []).append(record)

    def checkpoint_if_recreated(self, ledger_id: LedgerId) -> None:
        """Checkpoint as a bookie does before it journals the key of a ledger that was deleted."""
        if self.journaled and ledger_id in self.deleted:
            self.checkpoint()

    def set_explicit_lac(self, ledger_id: LedgerId, lac: int) -> bytes:
        """Set an explicit LAC; return its encoded form."""
        ledger = self.open(ledger_id)
        body = encode_explicit_lac(ledger_id, lac, "CRC32C", "model")
        ledger.encoded_explicit_lac, ledger.explicit_lac = body, lac
        ledger.raise_lac_bounds(lac)
        return body

    def delete(self, ledger_id: LedgerId) -> None:
        """Delete a ledger; its records become a ghost: a replay of the journal may add them."""
        self.deleted.add(ledger_id)
        ledger = self.ledgers.pop(ledger_id, None)
        self._flushed.pop(ledger_id, None)
        if ledger is not None:
            ghost = self.deleted_records.setdefault(ledger_id, {})
            for copies_by_entry in (ledger.flushed, ledger.unflushed, ledger.journalled):
                for entry, copies in copies_by_entry.items():
                    ghost.setdefault(entry, set()).update(copies)

    def keep_only(self, ledger_ids: Iterable[LedgerId]) -> list[LedgerId]:
        """Delete all other ledgers; return the deleted ones in order."""
        deleted = sorted(self.ledgers.keys() - set(ledger_ids))
        for ledger_id in deleted:
            self.delete(ledger_id)
        return deleted

    def flush(self) -> None:
        """Make everything durable."""
        for ledger in self.ledgers.values():
            for entry in ledger.unflushed:
                ledger.flushed[entry] = self.readable_copies(ledger, entry)
            ledger.unflushed.clear()
        self._flushed = {ledger_id: ledger.copy() for ledger_id, ledger in self.ledgers.items()}

    def checkpoint(self) -> None:
        """Make everything durable; the journal is no longer needed."""
        self.flush()
        self.deleted_records.clear()
        self.deleted.clear()
        for ledger in (*self.ledgers.values(), *self._flushed.values()):
            ledger.journalled.clear()

    def reopen(self) -> None:
        """Reset the ledgers to their durable state; the LAC is the stored one."""
        self.ledgers = {ledger_id: ledger.copy() for ledger_id, ledger in self._flushed.items()}
        for ledger in self.ledgers.values():
            ledger.lowest_lac = ledger.highest_lac = ledger.stored_lac()

    def crash(self) -> dict[LedgerId, dict[int, set[bytes]]]:
        """Replay the journal; return the records of deleted ledgers that may have come back.

        The replay adds records in their former order to an empty cache: where the first copy is
        kept, it is now the first since the checkpoint, even if a flush came between.
        """
        ghosts = dict(self.deleted_records)  # `checkpoint` empties it
        for ledger in self.ledgers.values():
            if self.duplicates == "first":
                for entry, copies in ledger.journalled.items():
                    ledger.unflushed.pop(entry, None)
                    ledger.flushed[entry] = self._possible_copies(copies)
            ledger.lowest_lac = ledger.stored_lac()  # a higher LAC may have been in memory only
        self.checkpoint()  # a replay ends with one
        return ghosts

    def readable_copies(self, ledger: LedgerModel, entry: int) -> list[bytes]:
        """Return the records that a read of the entry may return; none if it is missing."""
        unflushed = ledger.unflushed.get(entry)
        return self._possible_copies(unflushed) if unflushed else ledger.flushed.get(entry, [])

    def _possible_copies(self, added: list[bytes]) -> list[bytes]:
        """Return the copies that may count of those added since the last flush, in their order."""
        if self.duplicates == "last":
            return added[-1:]
        # A flush between two of them, which the model does not notice, makes the later one count.
        return added[:1] if self.never_flushes_alone else list(added)

    def readable_run(self, ledger_id: LedgerId, start: int) -> list[list[bytes]]:
        """Return `readable_copies` of `start`, `start` + 1, ... up to the first missing entry."""
        ledger = self.ledgers.get(ledger_id)
        if ledger is None:
            return []
        copies_by_entry = (self.readable_copies(ledger, entry) for entry in count(start))
        return list(takewhile(bool, copies_by_entry))
