"""Entry logs of known entries, by storages or record by record, and a finder over them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np

from bkstore import BookieDir, LedgerId
from bkstore.formats import entrylog
from bkstore.formats.entry import Entry
from bkstore.formats.entrylog import LogHeader
from bkstore.storage.ledger_storage import LedgerStorage
from bkstore.storage.options import StorageOptions
from bkstore.storage.read_only.find_logs import FoundLog, LogFinder
from tests.worlds.entry_logs import CODER, HEADER, SCOPED

KEY = b"k" * 20


def fill_storage(top: Path, storage: Any, folders: int = 1) -> None:
    """Write striped ledgers beside each other over many small logs, and some entries again."""
    options = StorageOptions(entry_log_size=9000, choose=lambda n: random.Random(n).randrange(n))
    tops = [top / f"ledgers{number}" for number in range(folders)]
    payloads = np.random.default_rng(5).bytes(200)
    with LedgerStorage.open(tops, storage, options=options) as made:
        names = [LedgerId.of(7), LedgerId.of(8), LedgerId(5, 7), LedgerId(2**63 + 5, 2**63 + 7)]
        for name in names:
            made.set_master_key(name, KEY)
        for turn in range(3):
            for entry in range(100 * turn, 100 * turn + 140):
                for at, name in enumerate(names):
                    if (entry + at) % 3:
                        payload = payloads[: 20 + entry % 50]
                        made.add_entry(CODER.encode(Entry(name, entry, entry - 1, 9, payload)))
                if entry % 35 == 0:
                    made.checkpoint()  # where sorted storage begins a new log


def framed_record(name: Any, entry: int) -> bytes:
    """Return an entry's record behind its length, as it lies in a log."""
    record = CODER.encode(Entry(name, entry, entry - 1, 9, b"payload"))
    return len(record).to_bytes(4, "big") + record


def write_log(top: Path, log_id: int, entries: dict[Any, list[int]], closed: bool = True) -> Path:
    """Write a log of these entries, in the order given, and return its path."""
    records = {
        LedgerId.of(key): [framed_record(key, e) for e in ids] for key, ids in entries.items()
    }
    body = b"".join(b"".join(parts) for parts in records.values())
    header = LogHeader()
    if closed:
        sizes = {name: sum(map(len, parts)) for name, parts in records.items()}
        header = LogHeader(2 if SCOPED in records else 1, HEADER + len(body), len(sizes))
        body += entrylog.encode_ledgers_map(sizes)
    current = top / "current"
    current.mkdir(parents=True, exist_ok=True)
    path = current / entrylog.log_name(log_id)
    path.write_bytes(entrylog.encode_header(header) + body)
    return path


def finder_of(top: Path, **options: Any) -> LogFinder:
    """Return a finder over the logs of a directory."""
    with BookieDir(top) as bookie:
        return LogFinder(bookie.entry_logs, **options)


def ids_by_log(found: list[FoundLog]) -> dict[int, list[int]]:
    """Return the entry ids found, by log id."""
    return {log.log_id: log.entries.entries().tolist() for log in found}
