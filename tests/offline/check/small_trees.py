"""Small bookie directories made by `LedgerStorage`, and all that a bookie answers of them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Literal
from zlib import crc32

import numpy as np

from bkstore import BkstoreError, BookieDir, LedgerStorage
from bkstore.formats.entry import Coder, encode_explicit_lac, master_key
from bkstore.index.api import Finding
from bkstore.storage.options import StorageOptions

PASSWORD = "tree"
DIGEST = "CRC32C"

Kind = Literal["sorted", "interleaved", "db"]
LEDGERS = range(1, 6)

KINDS: tuple[Kind, ...] = ("sorted", "interleaved", "db")


def make_tree(top: Path, kind: Kind, entries: int = 40) -> None:
    """Make a bookie's ledger directory with several logs, states and a record added twice."""
    coder = Coder(DIGEST, PASSWORD)
    random = np.random.default_rng(7)
    options = StorageOptions(entry_log_size=6 << 10, page_size=512)
    with LedgerStorage.open(top, storage=kind, options=options) as storage:
        for ledger in LEDGERS:
            storage.set_master_key(ledger, master_key(PASSWORD))
        for part in np.array_split(np.arange(entries), 4):
            for ledger in LEDGERS:
                own = part[part % 3 != 1] if ledger == 2 else part
                payloads = [random.bytes(30 + int(entry) % 50) for entry in own]
                for record in coder.encode_many(ledger, own.tolist(), payloads):
                    storage.add_entry(record)
            storage.flush()
        storage.add_entry(coder.encode_many(3, [5], [b"again"])[0])
        storage.set_explicit_lac(4, encode_explicit_lac(4, 30, DIGEST, PASSWORD))
        storage.fence(5)


def answers(top: Path) -> dict[str, object]:
    """Return what a bookie answers: ledgers, and of each its entries, state and records.

    Where a question is refused, the reason's kind is the answer.
    """
    found: dict[str, object] = {}
    try:
        with BookieDir(top) as bookie:
            for ledger in bookie.index.ledgers():
                for what, ask in (
                    ("entries", lambda name: bookie.index.entries(name).tobytes()),
                    ("state", bookie.index.state),
                    ("records", partial(_records, bookie)),
                ):
                    try:
                        found[f"{what} of {ledger}"] = ask(ledger)  # type: ignore[operator]
                    except BkstoreError as error:
                        found[f"{what} of {ledger}"] = type(error).__name__
    except BkstoreError as error:
        found["opening"] = type(error).__name__
    return found


def _records(bookie: BookieDir, ledger: int) -> int:
    damage: list[Finding] = []
    total = 0
    for batch in bookie.scan_ledger(ledger, findings=damage):
        for record in batch:
            total = crc32(record, total)
    return total + len(damage)
