"""Garbage that is collected as a bookie does it by itself, at random or all the time."""

from __future__ import annotations

import random

from bkstore.cluster.garbage import BackgroundCollector, GarbageOptions
from bkstore.cluster.store.key_value_store import MemoryStore
from bkstore.ledger_metadata import LedgerMetadata
from bkstore.storage.bookie import Bookie
from bkstore.storage.ledger_storage import LedgerStorage
from bkstore.storage.ledgers.compaction_throttle import CompactionThrottle
from bkstore.storage.ledgers.garbage_pass import CompactionOptions, GarbagePass

__all__ = ["collect", "collecting"]


def collect(store: LedgerStorage, rnd: random.Random) -> None:
    """Collect garbage as somebody asks for it, or as a bookie does by itself.

    That closes logs, tells the index of a few copies at a time, and is given up now and then.
    """
    transactional = rnd.random() < 0.5
    if rnd.random() < 0.5:
        store.collect_garbage(threshold=0.9, transactional=transactional)
        return
    slices = iter(range(rnd.randint(0, 40)))
    throttle = CompactionThrottle(30, clock=lambda: 0.0, wait=lambda _: next(slices, None) is None)
    compaction = CompactionOptions(
        threshold=0.9,
        transactional=transactional,
        max_outstanding=rnd.choice((None, 5)),
        throttle=throttle,
    )
    store.run_garbage_pass(GarbagePass(compaction=compaction, close_logs=True))


def collecting(bookie: Bookie) -> BackgroundCollector:
    """Return what collects garbage and compacts all the time, beside the adds."""
    store = MemoryStore()
    for ledger in (1, 2, 3):
        store.create(LedgerMetadata(ledger, 1, 1, 1, [(0, ["b"])], digest_type="CRC32C"))
    options = GarbageOptions(
        gc_wait_time=0.001,
        minor_compaction_threshold=0,
        major_compaction_threshold=1.0,
        major_compaction_interval=0.001,
        compaction_rate_by_entries=10**6,
        compaction_max_outstanding_requests=20,
    )
    made = BackgroundCollector(bookie, store, options)
    made.start()
    return made
