"""Clusters whose disks are damaged, with a record of what was written and what is left of it.

Each record has a payload that occurs nowhere else. So a copy is left exactly where a file of a
bookie still has all bytes of the record, as this module encoded them: the expected values do not
depend on how records are found or verified.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bkstore import Bookie
from bkstore.files.disk_changes import UnsyncedFiles
from bkstore.formats.entry import Coder, RecordBatch, master_key
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerMetadata, Segment
from bkstore.storage.options import JournalOptions, StorageKind

STORAGES: tuple[StorageKind, ...] = ("sorted", "interleaved", "db")
_DIGESTS = ("CRC32C", "CRC32", "HMAC")


@dataclass
class WrittenLedger:
    """A ledger as it was written: its metadata in the store, and the record of each entry."""

    metadata: LedgerMetadata
    records: dict[int, bytes] = field(default_factory=dict)
    payloads: dict[int, bytes] = field(default_factory=dict)

    def owners(self, entry: int) -> list[str]:
        """Return the bookies of an entry's write set, by the rule of round robin."""
        ensemble: tuple[str, ...] = ()
        for first, bookies in self.metadata.segments:
            if first <= entry:
                ensemble = bookies
        size = self.metadata.ensemble_size
        return [ensemble[(entry + w) % size] for w in range(self.metadata.write_quorum_size)]


class RescueWorld:
    """Bookies with some ledgers, each in a folder of its own below `top`, by a seed."""

    def __init__(
        self,
        top: Path,
        seed: int,
        *,
        scopes: bool = True,
        digests: Sequence[str] = _DIGESTS,
        password: bytes | None = None,
    ) -> None:
        self._scopes, self._digests, self._password = (0, 0, 0, 5 * scopes), digests, password
        self.random = random.Random(seed)
        self.top = top
        self.bookies = [f"bookie-{number}:3181" for number in range(self.random.randint(1, 5))]
        self.storage_of = {each: self.random.choice(STORAGES) for each in self.bookies}
        self.ledgers = dict(
            self._make_ledger(number) for number in range(self.random.randint(1, 4))
        )
        for bookie in self.bookies:
            self._write_bookie(bookie)

    def path(self, bookie: str) -> Path:
        """Return a bookie's folder."""
        return self.top / bookie.partition(":")[0]

    def _make_ledger(self, number: int) -> tuple[LedgerId, WrittenLedger]:
        choose = self.random.randint
        size = choose(1, len(self.bookies))
        write = choose(1, size)
        count = choose(0, 40)
        starts = sorted({0, *(choose(1, 40) for _ in range(choose(0, 2)))})
        segments = [
            Segment(start, tuple(self.random.sample(self.bookies, size)))
            for start in starts
            if start <= count
        ]
        ledger_id = LedgerId(self.random.choice(self._scopes), 10 * number + choose(0, 9))
        password = self._password or f"password {number}".encode()
        digest_type = self.random.choice(self._digests)
        payloads = [self.random.randbytes(choose(16, 200)) for _ in range(count)]
        metadata = LedgerMetadata(
            ledger_id,
            size,
            write,
            choose(1, write),
            tuple(segments),
            state="CLOSED",
            last_entry_id=count - 1,
            length=sum(map(len, payloads)),
            digest_type=digest_type,
            password=password,
            ctime=1_700_000_000_000 + number,
            store_ctime=True,
            custom_metadata={"application": b"test", "number": b"%d" % number},
        )
        encoded = Coder(digest_type, password).encode_many(ledger_id, range(count), payloads)
        written = dict(enumerate(encoded))
        return ledger_id, WrittenLedger(metadata, written, dict(enumerate(payloads)))

    def _write_bookie(self, bookie: str) -> None:
        """Write a bookie's share, in rounds, each flushed or not; the last may be lost in a crash
        of the process, so that only the journal has it."""
        rounds = self.random.randint(1, 3)
        for number in range(rounds):
            with Bookie.open(
                self.path(bookie),
                self.storage_of[bookie],
                bookie_id=bookie,
                instance_id="world",
                journal=JournalOptions(preallocate=4096),
                files=UnsyncedFiles(),
            ) as opened:
                for ledger in self.ledgers.values():
                    self._add_share(opened, bookie, ledger, number, rounds)
                opened.sync()
                if number + 1 < rounds or self.random.random() < 0.5:
                    opened.checkpoint()
                opened.close(checkpoint=False)

    def _add_share(
        self, opened: Bookie, bookie: str, ledger: WrittenLedger, number: int, rounds: int
    ) -> None:
        count = len(ledger.records)
        entries = range(count * number // rounds, count * (number + 1) // rounds)
        share = [entry for entry in entries if bookie in ledger.owners(entry)]
        if share:
            batch = RecordBatch.of([ledger.records[entry] for entry in share], share)
            password = ledger.metadata.password
            assert password is not None
            opened.add_batch(batch, master_key(password))

    # -- what is left

    def data_files(self, bookie: str) -> list[Path]:
        """Return a bookie's entry logs and journals."""
        folder = self.path(bookie)
        return sorted([*folder.rglob("*.log"), *folder.rglob("*.txn")])

    def copies(self) -> dict[tuple[LedgerId, int], set[str]]:
        """Return for each entry the bookies that still have its record."""
        left: dict[tuple[LedgerId, int], set[str]] = {
            (ledger_id, entry): set()
            for ledger_id, ledger in self.ledgers.items()
            for entry in ledger.records
        }
        for bookie in self.bookies:
            for path in self.data_files(bookie) if self.path(bookie).exists() else []:
                if "locations" in path.parts or "ledgers" in path.parts[-2:-1]:
                    continue  # a write-ahead log of RocksDB
                data = path.read_bytes()
                for ledger_id, ledger in self.ledgers.items():
                    for entry, record in ledger.records.items():
                        if record in data:
                            left[ledger_id, entry].add(bookie)
        return left

    # -- damage

    def flip(self, bookie: str, record: bytes) -> None:
        """Flip a bit of a record in every file of a bookie that has it."""
        for path in self.data_files(bookie):
            data = bytearray(path.read_bytes())
            at = bytes(data).find(record)
            while at >= 0:
                data[at + self.random.randrange(16, len(record))] ^= 1 << self.random.randrange(8)
                at = bytes(data).find(record)
            path.write_bytes(data)

    def erase(self, bookie: str, record: bytes) -> None:
        """Overwrite a record with zeros, its size too, in every file of a bookie that has it."""
        for path in self.data_files(bookie):
            data = path.read_bytes()
            path.write_bytes(
                data.replace(len(record).to_bytes(4, "big") + record, bytes(len(record) + 4))
            )

    def lose_index(self, bookie: str) -> None:
        """Remove a bookie's index: index files, or the databases."""
        for path in [*self.path(bookie).rglob("*.idx")]:
            path.unlink()
        for folder in [
            *self.path(bookie).rglob("locations*"),
            *self.path(bookie).rglob("ledgers*"),
        ]:
            if folder.parent.name == "current" and folder.is_dir():
                shutil.rmtree(folder)

    def lose_journals(self, bookie: str) -> None:
        """Remove a bookie's journals."""
        for path in self.path(bookie).rglob("*.txn"):
            path.unlink()

    def lose_log(self, bookie: str) -> None:
        """Remove one of a bookie's entry logs."""
        logs = sorted(self.path(bookie).rglob("current/*.log"))
        if logs:
            self.random.choice(logs).unlink()

    def truncate(self, bookie: str) -> None:
        """Cut off the end of one of a bookie's data files, if it has any left."""
        files = self.data_files(bookie)
        if not files:
            return
        path = self.random.choice(files)
        data = path.read_bytes()
        path.write_bytes(data[: self.random.randrange(len(data) + 1)])

    def lose_bookie(self, bookie: str) -> None:
        """Remove all of a bookie."""
        shutil.rmtree(self.path(bookie))
        self.bookies.remove(bookie)
