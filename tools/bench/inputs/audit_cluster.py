"""A cluster for the audit rows, and the baseline that checks it entry by entry.

`python -m tools.bench.inputs.audit_cluster LEDGERS ENTRIES` audits a cluster in a process of its
own and prints peak memory and seconds as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from bkstore.availability import Availability
from bkstore.cluster import MemoryStore
from bkstore.cluster.audit import AuditOptions, Auditor, AvailabilitySource
from bkstore.cluster.store.api import MetadataStore, Versioned
from bkstore.durability.missing_entries import ExpectedEntries, HeldEntries, missing_entries
from bkstore.errors import InvalidArgument
from bkstore.files.disk_changes import UnsyncedFiles
from bkstore.ids import LedgerId
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.index.rocks import RocksIndex
from bkstore.ledger_metadata import LedgerMetadata, Segment
from bkstore.schedule import expected, write_set
from tools.bench.inputs.own_memory import measure_peak

BOOKIES = ("bookie-1", "bookie-2", "bookie-3")
QUORUM = 2

Missing = set[tuple[int, str, int]]
"""(ledger, bookie, entry) of each replica that is missing."""

Bookies = Mapping[str, AvailabilitySource]
"""The bookies of a cluster, by id."""


class AuditCluster:
    """Closed, striped ledgers on three bookies, with encoded availabilities and lost entries. Every
    hundredth ledger has lost one replica of one entry."""

    def __init__(self, ledgers: int, entries: int, seed: int) -> None:
        self.ledgers, self.entries = ledgers, entries
        self.store = MemoryStore()
        self.lost: Missing = set()
        rng = np.random.default_rng(seed)
        expected_per_bookie = [
            expected(0, entries - 1, bookie_index, len(BOOKIES), QUORUM)
            for bookie_index in range(len(BOOKIES))
        ]
        self._complete_answers = [answer.to_bytes() for answer in expected_per_bookie]
        self._incomplete_answers: dict[tuple[str, int], bytes] = {}
        for ledger in range(ledgers):
            self.store.create(_make_metadata(ledger, entries))
            if ledger % 100 == 0:  # one bookie loses one entry
                bookie_index = int(rng.integers(len(BOOKIES)))
                complete = expected_per_bookie[bookie_index]
                entry = int(rng.choice(complete.entries()))
                incomplete = complete - Availability.from_entries([entry])
                self._incomplete_answers[BOOKIES[bookie_index], ledger] = incomplete.to_bytes()
                self.lost.add((ledger, BOOKIES[bookie_index], entry))

    def bookies(self) -> dict[str, AvailabilitySource]:
        """Return each bookie's availability source; it decodes every answer."""
        return {bookie: _Encoded(self, bookie) for bookie in BOOKIES}

    def encoded_availability(self, bookie: str, ledger: int) -> bytes:
        """Return a bookie's encoded answer."""
        incomplete = self._incomplete_answers.get((bookie, ledger))
        return self._complete_answers[BOOKIES.index(bookie)] if incomplete is None else incomplete


class DecodedStore(MemoryStore):
    """A store with decoded metadata, so that an audit consists of the check alone."""

    def __init__(self, cluster: AuditCluster) -> None:
        super().__init__()
        self._metadata_of_ledger = {
            ledger_id: cluster.store.read(ledger_id) for ledger_id in cluster.store.ledgers()
        }
        self._ledger_ids = list(self._metadata_of_ledger)

    def read(self, ledger: int | LedgerId) -> Versioned:
        """Return the decoded metadata."""
        return self._metadata_of_ledger[LedgerId.of(ledger)]

    def ledgers(self, scope: int | None = None) -> list[LedgerId]:
        """Return all ledgers."""
        return self._ledger_ids


class DecodedBookie:
    """A bookie with decoded availabilities."""

    def __init__(self, cluster: AuditCluster, bookie_id: str) -> None:
        bookie = _Encoded(cluster, bookie_id)
        self._answers = {ledger: bookie.availability(ledger) for ledger in range(cluster.ledgers)}

    def availability(self, ledger: int | LedgerId) -> Availability:
        """Return the decoded availability."""
        return self._answers[LedgerId.of(ledger).ledger]


class _Encoded:
    def __init__(self, cluster: AuditCluster, name: str) -> None:
        self.cluster, self.name = cluster, name

    def availability(self, ledger: int | LedgerId) -> Availability:
        encoded = self.cluster.encoded_availability(self.name, LedgerId.of(ledger).ledger)
        return Availability.from_bytes(encoded)


def _make_metadata(ledger: int, entries: int) -> LedgerMetadata:
    return LedgerMetadata(
        LedgerId.of(ledger),
        ensemble_size=len(BOOKIES),
        write_quorum_size=QUORUM,
        ack_quorum_size=QUORUM,
        segments=(Segment(0, BOOKIES),),
        state="CLOSED",
        last_entry_id=entries - 1,
        length=100 * entries,
        digest_type="CRC32C",
        password=b"",
    )


def run_audit(store: MetadataStore, bookies: Bookies) -> Missing:
    """Return what the auditor finds missing; it asks from the calling thread, whose time counts."""
    report = Auditor(store, bookies, options=AuditOptions(rechecks=0, concurrency=1)).run()
    return {
        (violation.ledger.ledger, violation.bookie or "", entry)
        for violation in report.violations
        if violation.ledger is not None
        for entry in violation.missing or ()
    }


class DurabilityCheck:
    """The durability check alone: expected and stored entries of each bookie, as columns."""

    def __init__(self, cluster: AuditCluster) -> None:
        bookies = cluster.bookies()
        ledgers = range(cluster.ledgers)
        self._due, self._held = {}, {}
        for bookie_index, bookie in enumerate(BOOKIES):
            last_entry = cluster.entries - 1
            rows = [(n, 0, last_entry, bookie_index, len(BOOKIES), QUORUM) for n in ledgers]
            self._due[bookie] = ExpectedEntries(
                *np.array(rows, np.int64).T
            )  # a row for each ledger
            self._held[bookie] = HeldEntries.from_availabilities(
                [(ledger, bookies[bookie].availability(ledger)) for ledger in ledgers]
            )

    def missing(self) -> Missing:
        """Return the missing replicas of all bookies."""
        return {
            (ledger, bookie, entry)
            for bookie in BOOKIES
            for ledger, missing_ids in missing_entries(self._due[bookie], self._held[bookie])
            for entry in missing_ids
        }


def find_missing_by_entry(store: MetadataStore, bookies: Bookies) -> Missing:
    """Return the missing replicas, from sets of stored entries and each entry's write set."""
    missing: Missing = set()
    for segment in _segments(store, bookies):
        size, quorum, stored = len(segment.ensemble), segment.quorum, segment.stored
        for entry in range(segment.first, segment.last + 1):
            for bookie_index in write_set(entry, size, quorum):
                if entry not in stored[bookie_index]:
                    missing.add((segment.ledger, segment.ensemble[bookie_index], entry))
    return missing


def find_missing_inline(store: MetadataStore, bookies: Bookies) -> Missing:
    """Return what `find_missing_by_entry` returns, with the write set computed inline."""
    missing: Missing = set()
    for segment in _segments(store, bookies):
        size, quorum, stored = len(segment.ensemble), segment.quorum, segment.stored
        for entry in range(segment.first, segment.last + 1):
            for replica in range(quorum):
                if entry not in stored[(entry + replica) % size]:
                    missing.add((segment.ledger, segment.ensemble[(entry + replica) % size], entry))
    return missing


class _SegmentEntries(NamedTuple):
    """A segment, and the entries that each bookie of its ensemble stores."""

    ledger: int
    quorum: int
    first: int
    last: int
    ensemble: tuple[str, ...]
    stored: list[set[int]]


def _segments(store: MetadataStore, bookies: Bookies) -> Iterator[_SegmentEntries]:
    for ledger_id in store.ledgers():
        metadata = store.read(ledger_id).metadata
        entries_of_bookie = {
            bookie: set(bookies[bookie].availability(ledger_id).entries().tolist())
            for bookie in metadata.bookies
        }
        for first, last, ensemble in metadata.segments_with_ends():
            stored = [entries_of_bookie[bookie] for bookie in ensemble]
            quorum = metadata.write_quorum_size
            yield _SegmentEntries(ledger_id.ledger, quorum, first, last, ensemble, stored)


Layout = Literal["idx", "rocksdb"]
LAYOUTS: tuple[Layout, ...] = ("idx", "rocksdb")
MIXED_LAYOUTS: Mapping[str, Layout] = dict(zip(BOOKIES, ("idx", "rocksdb", "idx")))


def write_directories(
    cluster: AuditCluster, directory: Path, layouts: Mapping[str, Layout] = MIXED_LAYOUTS
) -> dict[str, Path]:
    """Write each bookie's index, as RocksDB or index files; return their directories."""
    for bookie in BOOKIES:
        index_class = RocksIndex if layouts[bookie] == "rocksdb" else HierarchicalIndex
        with index_class(directory / bookie, writable=True, files=UnsyncedFiles()) as index:
            for ledger in range(cluster.ledgers):
                availability = Availability.from_bytes(cluster.encoded_availability(bookie, ledger))
                entries = availability.entries()
                index.put_many(ledger, entries, 1028 + 104 * entries)
    return {bookie: directory / bookie for bookie in BOOKIES}


class SingleCallBookie:
    """A bookie without `availability_many`, which is called once per ledger."""

    def __init__(self, bookie: AvailabilitySource) -> None:
        self.availability = bookie.availability


def main(arguments: list[str]) -> dict[str, Any]:
    """Audit a cluster of the given size; return bytes and seconds."""
    if len(arguments) != 2:
        raise InvalidArgument("python -m tools.bench.inputs.audit_cluster LEDGERS ENTRIES")
    cluster = AuditCluster(int(arguments[0]), int(arguments[1]), seed=1)
    with measure_peak() as figures:
        missing = run_audit(cluster.store, cluster.bookies())
    assert missing == cluster.lost
    return {**figures, "missing": len(missing)}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1:])))
