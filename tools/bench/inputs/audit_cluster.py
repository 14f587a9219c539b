"""A cluster for the audit rows, and the same check done entry by entry.

`python -m tools.bench.inputs.audit_cluster LEDGERS ENTRIES` audits it in a process of its own and
prints peak memory and seconds as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from bkstore.availability import Availability
from bkstore.cluster import MemoryStore
from bkstore.cluster.audit import AuditOptions, Auditor, EntriesOfLedger
from bkstore.cluster.store.api import MetadataStore, Versioned
from bkstore.durability import Due, Held, missing_entries
from bkstore.errors import InvalidArgument
from bkstore.files.disk_changes import Files
from bkstore.ids import Int64Array, LedgerId
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.index.rocks import RocksIndex
from bkstore.ledger_metadata import LedgerMetadata, Segment
from bkstore.schedule import expected, write_set
from tools.bench.inputs.own_memory import peak_memory

BOOKIES = ("bookie-1", "bookie-2", "bookie-3")
QUORUM = 2

Missing = set[tuple[int, str, int]]
"""(ledger, bookie, entry) of each replica that is missing."""


class Cluster:
    """Striped closed ledgers on three bookies, some entries lost; answers are kept encoded.

    One replica of one entry is lost of every hundredth ledger.
    """

    def __init__(self, ledgers: int, entries: int, seed: int) -> None:
        """Make metadata and answers."""
        self.ledgers, self.entries = ledgers, entries
        self.store = MemoryStore()
        self.lost: Missing = set()
        chance = np.random.default_rng(seed)
        whole = [expected(0, entries - 1, at, len(BOOKIES), QUORUM) for at in range(len(BOOKIES))]
        self._whole = [each.to_bytes() for each in whole]
        self._short: dict[tuple[str, int], bytes] = {}
        for ledger in range(ledgers):
            self.store.create(_metadata(ledger, entries))
            if ledger % 100 == 0:
                at = int(chance.integers(len(BOOKIES)))
                entry = int(chance.choice(whole[at].entries()))
                short = whole[at] - Availability.from_entries([entry])
                self._short[BOOKIES[at], ledger] = short.to_bytes()
                self.lost.add((ledger, BOOKIES[at], entry))

    def bookies(self) -> dict[str, EntriesOfLedger]:
        """Return who answers for each bookie."""
        return {name: _Encoded(self, name) for name in BOOKIES}

    def answer(self, bookie: str, ledger: int) -> bytes:
        """Return a bookie's encoded answer."""
        short = self._short.get((bookie, ledger))
        return self._whole[BOOKIES.index(bookie)] if short is None else short


class AtHand(MemoryStore):
    """A store that has its metadata decoded: what is left of an audit is the check."""

    def __init__(self, cluster: Cluster) -> None:
        """Decode the metadata of all ledgers."""
        super().__init__()
        self._at_hand = {name: cluster.store.read(name) for name in cluster.store.ledgers()}
        self._names = list(self._at_hand)

    def read(self, ledger: int | LedgerId) -> Versioned:
        """Return what was decoded."""
        return self._at_hand[LedgerId.of(ledger)]

    def ledgers(self, scope: int | None = None) -> list[LedgerId]:
        """Return all ledgers."""
        return self._names


class Answered:
    """A bookie whose answers are decoded."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        """Decode the answers of one bookie."""
        asked = _Encoded(cluster, name)
        self._answers = {each: asked.availability(each) for each in range(cluster.ledgers)}

    def availability(self, ledger: int | LedgerId) -> Availability:
        """Return what was decoded."""
        return self._answers[LedgerId.of(ledger).ledger]


class _Encoded:
    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster, self.name = cluster, name

    def availability(self, ledger: int | LedgerId) -> Availability:
        """Decode the bookie's answer."""
        return Availability.from_bytes(self.cluster.answer(self.name, LedgerId.of(ledger).ledger))


def _metadata(ledger: int, entries: int) -> LedgerMetadata:
    return LedgerMetadata(
        LedgerId.of(ledger),
        len(BOOKIES),
        QUORUM,
        QUORUM,
        (Segment(0, BOOKIES),),
        state="CLOSED",
        last_entry_id=entries - 1,
        length=100 * entries,
        digest_type="CRC32C",
        password=b"",
    )


def audited(store: MetadataStore, bookies: Mapping[str, EntriesOfLedger]) -> Missing:
    """Return what the auditor finds missing; the calling thread asks, so that its time counts."""
    report = Auditor(store, bookies, options=AuditOptions(looks=0, concurrency=1)).run()
    return {
        (each.ledger.ledger, each.bookie or "", entry)
        for each in report.violations
        if each.ledger is not None
        for entry in each.missing or ()
    }


class Columns:
    """The durability check alone: what is due at each bookie, and what it holds, as columns."""

    def __init__(self, cluster: Cluster) -> None:
        """Lay out rows and groups, as tables of a dump have them."""
        asked = cluster.bookies()
        names = range(cluster.ledgers)
        self._due, self._held = {}, {}
        for at, bookie in enumerate(BOOKIES):
            rows = [(n, 0, cluster.entries - 1, at, len(BOOKIES), QUORUM) for n in names]
            self._due[bookie] = Due(*np.array(rows, np.int64).T)
            self._held[bookie] = Held.of([(n, asked[bookie].availability(n)) for n in names])

    def missing(self) -> Missing:
        """Return what is missing at all bookies."""
        return {
            (row, bookie, entry)
            for bookie in BOOKIES
            for row, gone in missing_entries(self._due[bookie], self._held[bookie])
            for entry in gone
        }


def by_entry(store: MetadataStore, bookies: Mapping[str, EntriesOfLedger]) -> Missing:
    """Return the same, a ledger at a time: sets of entries, and each entry's write set."""
    missing: Missing = set()
    for part in _parts(store, bookies):
        size, quorum, here = len(part.ensemble), part.quorum, part.here
        for entry in range(part.first, part.last + 1):
            for index in write_set(entry, size, quorum):
                if entry not in here[index]:
                    missing.add((part.ledger, part.ensemble[index], entry))
    return missing


def by_entry_in_line(store: MetadataStore, bookies: Mapping[str, EntriesOfLedger]) -> Missing:
    """Return the same, the write set counted out in the loop."""
    missing: Missing = set()
    for part in _parts(store, bookies):
        size, quorum, here = len(part.ensemble), part.quorum, part.here
        for entry in range(part.first, part.last + 1):
            for w in range(quorum):
                if entry not in here[(entry + w) % size]:
                    missing.add((part.ledger, part.ensemble[(entry + w) % size], entry))
    return missing


class _Part(NamedTuple):
    """A segment, and the entries that each bookie of its ensemble holds."""

    ledger: int
    quorum: int
    first: int
    last: int
    ensemble: tuple[str, ...]
    here: list[set[int]]


def _parts(store: MetadataStore, bookies: Mapping[str, EntriesOfLedger]) -> Iterator[_Part]:
    for name in store.ledgers():
        metadata = store.read(name).metadata
        held = {
            bookie: set(bookies[bookie].availability(name).entries().tolist())
            for bookie in metadata.bookies
        }
        for first, last, ensemble in metadata.segments_with_ends():
            here = [held[bookie] for bookie in ensemble]
            yield _Part(name.ledger, metadata.write_quorum_size, first, last, ensemble, here)


class _Unsynced(Files):
    """Files that nobody needs after a crash."""

    def fsync(self, fd: int) -> None:
        """Do nothing."""

    def sync_dir(self, path: object) -> None:
        """Do nothing."""


Layout = Literal["idx", "rocksdb"]
LAYOUTS: tuple[Layout, ...] = ("idx", "rocksdb")
MIXED: Mapping[str, Layout] = dict(zip(BOOKIES, ("idx", "rocksdb", "idx")))


def directories(
    cluster: Cluster, top: Path, layouts: Mapping[str, Layout] = MIXED
) -> dict[str, Path]:
    """Write each bookie's index, as RocksDB or index files."""
    for name in BOOKIES:
        kind = RocksIndex if layouts[name] == "rocksdb" else HierarchicalIndex
        with kind(top / name, writable=True, files=_Unsynced()) as index:
            for ledger, entries in _held(cluster, name):
                index.put_many(ledger, entries, 1028 + 104 * entries)
    return {name: top / name for name in BOOKIES}


class OneByOne:
    """A bookie that is asked for each ledger on its own."""

    def __init__(self, bookie: EntriesOfLedger) -> None:
        """Take the bookie."""
        self.availability = bookie.availability


def _held(cluster: Cluster, name: str) -> Iterable[tuple[int, Int64Array]]:
    for ledger in range(cluster.ledgers):
        yield ledger, Availability.from_bytes(cluster.answer(name, ledger)).entries()


def main(words: list[str]) -> dict[str, Any]:
    """Audit a cluster of the given size; return bytes and seconds."""
    if len(words) != 2:
        raise InvalidArgument("python -m tools.bench.inputs.audit_cluster LEDGERS ENTRIES")
    cluster = Cluster(int(words[0]), int(words[1]), seed=1)
    start, begin = peak_memory(), time.perf_counter()
    found = audited(cluster.store, cluster.bookies())
    seconds = time.perf_counter() - begin
    assert found == cluster.lost
    return {"start": start, "peak": peak_memory(), "seconds": seconds, "missing": len(found)}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1:])))
