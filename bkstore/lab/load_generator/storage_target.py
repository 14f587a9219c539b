"""A ledger storage, or a bookie with its journal, under load: entries are records."""

from __future__ import annotations

from pathlib import Path

from bkstore.formats.entry import Coder, RecordBatch
from bkstore.ids import Int64Array, LedgerId
from bkstore.lab.load_generator.target import LoadTarget
from bkstore.storage.bookie import Bookie
from bkstore.storage.ledger_storage import LedgerStorage
from bkstore.storage.options import StorageKind

_MASTER_KEY = bytes(20)


class StorageTarget(LoadTarget):
    """A storage; with `journal` the bookie above it, whose adds return when they are synced."""

    def __init__(
        self, directory: Path, kind: StorageKind, value_size: int, *, journal: bool
    ) -> None:
        """Open a new ledger storage, or with `journal` a bookie, which syncs each add."""
        self._payload, self._coder = bytes(value_size), Coder("CRC32C")
        self._storage: Bookie | LedgerStorage = (
            Bookie.open(directory, kind) if journal else LedgerStorage.open(directory, kind)
        )
        record = self._coder.encode_many(LedgerId(0, 0), [0], [self._payload])[0]
        self.row_bytes = len(record)

    def prepare(self, ledger: LedgerId, entry_ids: Int64Array) -> RecordBatch:
        """Return encoded records in one buffer."""
        return self._coder.encode_batch(ledger, entry_ids, [self._payload] * entry_ids.size)

    def prepare_singly(self, ledger: LedgerId, entry_ids: Int64Array) -> list[bytes]:
        """Return encoded records."""
        payloads = [self._payload] * entry_ids.size
        return self._coder.encode_many(ledger, entry_ids.tolist(), payloads)

    def write(self, prepared: RecordBatch) -> None:
        """Call `add_batch`."""
        self._storage.add_batch(prepared, master_key=_MASTER_KEY)

    def write_one(self, prepared: bytes) -> None:
        """Call `add_entry`."""
        self._storage.add_entry(prepared, master_key=_MASTER_KEY)

    def read(self, ledger: LedgerId, entry: int) -> None:
        """Call `read_entry`."""
        self._storage.read_entry(ledger, entry)

    def read_batch(self, ledger: LedgerId, entry_ids: Int64Array) -> int:
        """Call `read_entries`, which stops at a gap, as there is between pieces of a stripe."""
        return len(self._storage.read_entries(ledger, int(entry_ids[0]), len(entry_ids)))

    def delete(self, ledger: LedgerId) -> None:
        """Call `delete_ledger`."""
        self._storage.delete_ledger(ledger)

    def flush(self) -> None:
        """Call `flush`, or the bookie's `checkpoint`."""
        if isinstance(self._storage, Bookie):
            self._storage.checkpoint()
        else:
            self._storage.flush()

    def close(self) -> None:
        """Close the storage or bookie."""
        self._storage.close()
