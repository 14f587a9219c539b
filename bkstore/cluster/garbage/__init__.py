"""Garbage of a bookie that belongs to a cluster: collected by itself, beside its work.

`collector` has `BackgroundCollector`, a thread that runs passes of garbage collection now and
then: read it first. `deleted_ledgers` decides which ledgers count as deleted, by what the metadata
store says; `schedule` when entry logs are compacted; `options` are a bookie's settings of all
this; `figures` counts what was done, and `metrics` shows it to Prometheus. The passes themselves
are the storage's (`bkstore.storage.ledgers.garbage_collection`).
"""

from __future__ import annotations

from bkstore.cluster.garbage.collector import BackgroundCollector
from bkstore.cluster.garbage.options import GarbageOptions

__all__ = ["BackgroundCollector", "GarbageOptions"]
