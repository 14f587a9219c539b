"""What dead writers left: entries at single bookies, metadata in the store."""

from __future__ import annotations

from typing import Any

from bkstore.cluster import Cluster
from bkstore.formats.entry import Entry, encode, master_key
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerMetadata

KEY = master_key(b"")


def put(cluster: Cluster, bookie: str, ledger: int, entry: int, lac: int, data: bytes) -> None:
    """Store an entry of a dead writer at one bookie; its length is 10 a payload byte before."""
    record = encode(Entry(ledger, entry, lac, 10 * entry + len(data), data), "CRC32C", b"")
    cluster.bookies[bookie].add_entry(record, KEY)


def made(
    cluster: Cluster,
    numbers: tuple[int, int, int],
    *segments: tuple[int, tuple[str, ...]],
    **fields: Any,
) -> LedgerId:
    """Put the metadata of a ledger into the store, as its writer left them."""
    name = cluster.store.next_id()
    metadata = LedgerMetadata(
        name, *numbers, segments, digest_type="CRC32C", password=b"", **fields
    )
    cluster.store.create(metadata)
    return name


def held(cluster: Cluster, bookie: str, ledger: LedgerId) -> list[int]:
    """Return the entries that a bookie has."""
    return cluster.bookie(bookie).entries(ledger).tolist()


ABC = ("bookie-1", "bookie-2", "bookie-3")
