"""The data of `bkstore demo`: three bookies, striped ledgers, and faults.

An in-process cluster writes it: one bookie each with sorted, interleaved and db storage. The
ledgers are those of Pulsar's topics, as their custom metadata state. Then entries are lost as disks
and bugs lose them, which is recorded.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from bkstore.cluster import Cluster, LedgerHandle, snapshot
from bkstore.cluster.store.owners import read_owners
from bkstore.formats.metadata.json_file import encode_file
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerOwners

ENTRIES = 3_000
"""Number of entries in each ledger."""

_SCOPED_LEDGER_ID = LedgerId.from_uuid(uuid.UUID("c0ffee00-feed-4bad-9e55-0123456789ab"))
_PAYLOAD_BYTES = 100

_ORDERS, _BILLING = "shop/orders/persistent", "shop/billing/persistent"
_OWNERS = (
    (f"{_ORDERS}/created", None),
    (f"{_ORDERS}/created", "warehouse"),
    (f"{_ORDERS}/shipped-partition-0", None),
    (f"{_ORDERS}/paid", None),
    (f"{_BILLING}/invoices", None),
    (f"{_ORDERS}/paid", None),
    None,
    (f"{_ORDERS}/paid", None),
)
"""The managed ledger, and the cursor if any, that each ledger belongs to; no ledger of Pulsar's has
an id of 128 bits."""

LostReplicas = dict[tuple[LedgerId, str], set[int]]
"""The lost entries by ledger id and bookie id."""


class DemoCluster(NamedTuple):
    """The paths and faults of the demo cluster: `lost` has the missing replicas by ledger and
    bookie, `orphan` is a ledger whose metadata were deleted, `owners` are those of the others."""

    metadata: Path
    bookies: dict[str, Path]
    lost: LostReplicas
    orphan: LedgerId
    owners: LedgerOwners


def make_cluster(top: Path) -> DemoCluster:
    """Write the cluster below the new directory `top`; return its paths and what was lost."""
    with Cluster.open(top / "cluster", 3, ["sorted", "interleaved", "db"]) as cluster:
        ledger_ids = [handle.ledger for handle in _write_ledgers(cluster)]
        lost = _lose_replicas(cluster, ledger_ids)
        orphan = ledger_ids[5]  # one that lost nothing
        cluster.delete_ledger(orphan)
        owners = read_owners(cluster.store)
        paths = {bookie_id: cluster.path_of(bookie_id) for bookie_id in cluster.bookies}
        metadata = encode_file(snapshot(cluster.store))
    (top / "metadata.json").write_bytes(metadata)
    return DemoCluster(top / "metadata.json", paths, lost, orphan, owners)


def _write_ledgers(cluster: Cluster) -> Iterator[LedgerHandle]:
    """Write and yield eight ledgers: number 4 on all bookies, 6 with a 128-bit id, 7 left open."""
    for number, owner in enumerate(_OWNERS):
        handle = cluster.create_ledger(
            ensemble_size=3,
            write_quorum=3 if number == 4 else 2,
            ack_quorum=2,
            ledger=_SCOPED_LEDGER_ID if number == 6 else None,
            custom_metadata=None if owner is None else _custom_metadata(*owner),
        )
        handle.append_many(
            b"entry %d of the demo".ljust(_PAYLOAD_BYTES, b".") % entry_id
            for entry_id in range(ENTRIES)
        )
        if number != 7:
            handle.close()
        yield handle


def _custom_metadata(managed_ledger: str, cursor: str | None) -> dict[str, bytes]:
    """Return what Pulsar writes into the metadata of a ledger."""
    values = {
        "application": "pulsar",
        "component": "managed-ledger",
        "pulsar/managed-ledger": managed_ledger,
        "pulsar/cursor": cursor,
    }
    return {key: value.encode() for key, value in values.items() if value is not None}


def _lose_replicas(cluster: Cluster, ledger_ids: list[LedgerId]) -> LostReplicas:
    """Delete replicas: a range and a whole ledger at one bookie, a range at all, every hundredth
    entry of a ledger with a scope."""
    lost: LostReplicas = {}

    def lose(bookie_id: str, ledger: LedgerId, entries: Sequence[int]) -> None:
        lost_entries = cluster.lose(bookie_id, ledger, entries)
        if lost_entries.size:
            lost[ledger, bookie_id] = set(lost_entries.tolist())

    first, second, third = sorted(cluster.bookies)
    lose(first, ledger_ids[2], range(1000, 1200))
    for bookie_id in (first, second, third):
        lose(bookie_id, ledger_ids[3], range(700, 777))
    lost[ledger_ids[4], second] = set(cluster.bookie(second).entries(ledger_ids[4]).tolist())
    cluster.lose_ledger(second, ledger_ids[4])
    lose(third, ledger_ids[6], range(0, ENTRIES, 100))
    return lost
