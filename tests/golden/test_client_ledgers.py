"""Ledgers that the real client wrote to real bookies, read and recovered by this client."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from bkstore.cluster import Cluster, MemoryStore
from bkstore.errors import NoSuchEntry
from bkstore.formats.metadata.serialized import decode
from bkstore.ids import LedgerId
from bkstore.storage.batch_limits import DEFAULT_MAX_SIZE
from tests.golden.data import expand_runs


def payload(ledger: int, entry: int) -> bytes:
    """Return what the golden data's README says was written."""
    size = 20 + (7 * entry + ledger) % 41
    return bytes((31 * ledger + 17 * entry + 7 * at) % 256 for at in range(size))


@pytest.fixture
def real(cluster: tuple[Path, Any], tmp_path: Path) -> Any:
    """Yield (cluster, document): the real bookies' directories and metadata, opened here."""
    folder, document = cluster
    top = tmp_path / "cluster"
    shutil.copytree(folder, top)
    store = MemoryStore()
    for answer in document["after"]["state"]["ledgers"]:
        name = LedgerId.of(answer["ledger"])
        store.create(decode(bytes.fromhex(answer["metadata_hex"]), name))
    for mark in top.rglob("lastMark"):
        mark.unlink()  # it names a journal, and the journals are not among the golden data
    with Cluster.open(top, document["bookies"], document["storage"], store=store) as opened:
        yield opened, document


def test_reading(real: Any) -> None:
    """Every entry that a bookie of its write set still has is read and verified, singly and in
    batches; one that none has is told as such."""
    opened, document = real
    for answer in document["after"]["state"]["ledgers"]:
        if answer["state"] != "CLOSED":
            continue
        ledger, last = answer["ledger"], answer["last_entry"]
        runs = [answer["bookies"][name].get("held") or [] for name in answer["bookies"]]
        held = {entry for found in runs for entry in expand_runs(found)}
        handle = opened.open_ledger(ledger, password=b"golden")

        assert (last, answer["length"]) == (handle.last_add_confirmed, handle.length)
        for entry in range(last + 1):
            if entry in held:
                assert payload(ledger, entry) == handle.read_entry(entry).payload
            else:
                with pytest.raises(NoSuchEntry):
                    handle.read_entry(entry)
        start = 0
        while start <= last:
            if start not in held:
                start += 1
                continue
            batch = handle.read_batch_with_fallback(start, 0, DEFAULT_MAX_SIZE)

            assert [payload(ledger, start + at) for at in range(len(batch))] == [
                entry.payload for entry in batch
            ]

            start += len(batch)


def test_recovery(real: Any) -> None:
    """A ledger that the real client left open ends at its last entry, with its length."""
    opened, document = real
    (answer,) = [
        found for found in document["after"]["state"]["ledgers"] if found["state"] == "OPEN"
    ]
    ledger = answer["ledger"]
    runs = [answer["bookies"][name].get("held") or [] for name in answer["bookies"]]
    last = max(entry for found in runs for entry in expand_runs(found))
    length = sum(len(payload(ledger, entry)) for entry in range(last + 1))
    handle = opened.open_ledger(ledger, password=b"golden")

    assert (last, length) == (handle.metadata.last_entry_id, handle.metadata.length)
    assert [payload(ledger, entry) for entry in range(last + 1)] == [
        entry.payload for entry in handle.read(0, last)
    ]
