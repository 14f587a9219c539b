"""The data of `bkstore demo`: three bookies of three storages, striped ledgers, and faults.

A real cluster in this process writes it: a bookie with sorted, one with interleaved and one with
db storage. Then entries are lost as disks and bugs lose them, and what was lost is remembered.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bkstore.cluster import Cluster, LedgerHandle, snapshot
from bkstore.formats.metadata.json_file import encode_file
from bkstore.ids import LedgerId

ENTRIES = 3_000
"""Entries of each ledger."""

_SCOPED = LedgerId.from_uuid(uuid.UUID("c0ffee00-feed-4bad-9e55-0123456789ab"))
_PAYLOAD = 100

Lost = dict[tuple[LedgerId, str], set[int]]


class DemoCluster(NamedTuple):
    """Where the cluster lies, and what is wrong with it.

    `lost` are replicas that are missing, by ledger and bookie; `orphan` is a ledger whose
    metadata are gone.
    """

    metadata: Path
    bookies: dict[str, Path]
    lost: Lost
    orphan: LedgerId


def make_cluster(top: Path) -> DemoCluster:
    """Write the cluster below `top`, which is new; return where it is, and what was lost."""
    with Cluster.open(top / "cluster", 3, ["sorted", "interleaved", "db"]) as cluster:
        names = [handle.ledger for handle in _ledgers(cluster)]
        lost = dict(_break(cluster, names))
        orphan = names[5]
        cluster.delete_ledger(orphan)
        paths = {name: cluster.path_of(name) for name in cluster.bookies}
        metadata = encode_file(snapshot(cluster.store))
    (top / "metadata.json").write_bytes(metadata)
    return DemoCluster(top / "metadata.json", paths, lost, orphan)


def _ledgers(cluster: Cluster) -> Iterator[LedgerHandle]:
    """Write striped ledgers, one to all three bookies, one with 128 bits; the last stays open."""
    for number in range(8):
        quorum = 3 if number == 4 else 2
        ledger = None if number != 6 else _SCOPED
        handle = cluster.create_ledger(3, quorum, 2, ledger=ledger)
        handle.append_many(
            b"entry %d of the demo".ljust(_PAYLOAD, b".") % at for at in range(ENTRIES)
        )
        if number != 7:
            handle.close()
        yield handle


def _break(
    cluster: Cluster, names: list[LedgerId]
) -> Iterator[tuple[tuple[LedgerId, str], set[int]]]:
    """Lose a stretch at one bookie, an entry at both, a whole ledger, and some of a scope."""
    bookies = sorted(cluster.bookies)
    stretch = cluster.lose(bookies[0], names[2], range(1000, 1200))
    yield (names[2], bookies[0]), set(stretch.tolist())
    for bookie in bookies:
        gone = cluster.lose(bookie, names[3], [77])
        if gone.size:
            yield (names[3], bookie), set(gone.tolist())
    held = set(cluster.bookie(bookies[1]).entries(names[4]).tolist())
    cluster.lose_ledger(bookies[1], names[4])
    yield (names[4], bookies[1]), held
    few = cluster.lose(bookies[2], names[6], range(0, ENTRIES, 100))
    yield (names[6], bookies[2]), set(few.tolist())
