"""Two bookies with ledgers of Pulsar's topics and of others, and the metadata that say whose.

The custom metadata are written from Pulsar's keys (`tests/pulsar/samples.py`); which ledger belongs
to whom is stated here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bkstore import LedgerStorage
from bkstore.cli.main import main
from bkstore.cluster import MemoryStore, snapshot
from bkstore.formats.entry import Coder
from bkstore.formats.metadata.json_file import encode_file
from bkstore.ledger_metadata import LedgerMetadata
from bkstore.storage.options import StorageKind
from tests.pulsar.samples import OLD, compacted_of, owned, schema_of

Capsys = pytest.CaptureFixture[str]
CODER = Coder("CRC32C", "pw")
RECORD_OVERHEAD = 4 + 32 + 4
"""Bytes of a record beside its payload: its size, the header, a CRC-32C."""


class OwnedLedger(NamedTuple):
    """A ledger: its custom metadata, None without metadata; entries of equal payloads; on which of
    the bookies they are."""

    custom: Mapping[str, bytes] | None
    entries: int
    payload_bytes: int
    bookies: str

    @property
    def record_bytes(self) -> int:
        """The bytes of its records in the entry logs of a bookie that has it."""
        return self.entries * (RECORD_OVERHEAD + self.payload_bytes)


REFUNDS = {
    "application": b"pulsar",
    "component": b"managed-ledger",
    "pulsar/managed-ledger": b"shop/returns/persistent/refunds%2Beu",
}
BANK = REFUNDS | {"pulsar/managed-ledger": b"bank/orders/persistent/paid"}
LEDGERS = {
    1: OwnedLedger(owned("paid-partition-0"), 10, 64, "12"),
    2: OwnedLedger(owned("paid-partition-1"), 20, 64, "12"),
    3: OwnedLedger(owned("paid-partition-1", "billing"), 3, 32, "12"),
    4: OwnedLedger(schema_of("paid"), 1, 100, "1"),
    5: OwnedLedger(REFUNDS, 5, 200, "2"),
    6: OwnedLedger({"application": b"distributedlog"}, 4, 50, "1"),
    7: OwnedLedger({}, 2, 10, "12"),
    8: OwnedLedger(None, 6, 16, "1"),
    9: OwnedLedger(owned("paid-partition-0"), 7, 64, ""),
    10: OwnedLedger(compacted_of("paid-partition-0"), 2, 300, "2"),
    11: OwnedLedger(BANK, 1, 8, "1"),
}
"""The ledgers by id."""

TOPICS = {
    1: "persistent://shop/orders/paid-partition-0",
    2: "persistent://shop/orders/paid-partition-1",
    3: "persistent://shop/orders/paid-partition-1",
    5: "persistent://shop/returns/refunds+eu",
    9: "persistent://shop/orders/paid-partition-0",
    10: "persistent://shop/orders/paid-partition-0",
    11: "persistent://bank/orders/paid",
}
"""The topics of those that have one: decoded, partitions by themselves."""


def make_metadata(path: Path) -> Path:
    """Write the metadata of all ledgers that have some into a file: closed, two of two replicas."""
    store = MemoryStore()
    for number, ledger in LEDGERS.items():
        if ledger.custom is not None:
            metadata = LedgerMetadata(
                number,
                2,
                2,
                2,
                [(0, ["b1", "b2"])],
                state="CLOSED",
                last_entry_id=ledger.entries - 1,
                length=ledger.entries * ledger.payload_bytes,
                digest_type="CRC32C",
                password=b"pw",
                ctime=OLD,
                store_ctime=True,
                custom_metadata=ledger.custom,
            )
            store.create(metadata)
    path.write_bytes(encode_file(snapshot(store), passwords=True))
    return path


def make_bookies(top: Path, kind: StorageKind = "interleaved") -> list[Path]:
    """Make the directories of both bookies, b1 and b2, below `top`, each with one closed log."""
    roots = [top / "b1", top / "b2"]
    for root in roots:
        with LedgerStorage.open(root / "ledgers", kind) as storage:
            for number, ledger in LEDGERS.items():
                if root.name[1] in ledger.bookies:
                    payloads = [bytes(ledger.payload_bytes)] * ledger.entries
                    records = CODER.encode_many(number, range(ledger.entries), payloads)
                    storage.add_entries(records, master_key=b"k" * 20)
    return roots


class Copies(NamedTuple):
    """The directories of b1 and b2, and the metadata."""

    b1: Path
    b2: Path
    metadata: Path


def run_command(capsys: Capsys, *words: object, code: int = 0) -> tuple[list[dict[str, Any]], str]:
    """Return (rows, what went to stderr)."""
    exit_code = main([*map(str, words), "--format", "jsonl"])
    out, err = capsys.readouterr()

    assert code == exit_code, err
    return [json.loads(line) for line in out.splitlines()], err
