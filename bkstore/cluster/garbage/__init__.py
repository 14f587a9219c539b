"""Background garbage collection of a bookie in a cluster.

Read `collector` first: `BackgroundCollector` is a thread that runs passes of garbage collection on
a schedule. `deleted_ledgers` finds the ledgers that the metadata store no longer has; `schedule`
decides when entry logs are compacted; `options` are a bookie's settings; `stats` has the
counters, and `metrics` exports them to Prometheus. The storage implements the passes themselves
(`bkstore.storage.ledgers.garbage_collection`).
"""

from __future__ import annotations

from bkstore.cluster.garbage.collector import BackgroundCollector
from bkstore.cluster.garbage.options import GarbageOptions

__all__ = ["BackgroundCollector", "GarbageOptions"]
