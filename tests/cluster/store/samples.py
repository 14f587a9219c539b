"""Ledger ids at the ends of the key space, and metadata to put under them."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

from bkstore.cluster import Versioned
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerMetadata, Segment

if TYPE_CHECKING:
    from bkstore.testing.zookeeper_server import ZooKeeperServer

_roots = count()

IDS = [
    LedgerId.of(0),
    LedgerId.of(7),
    LedgerId.of(2**31),
    LedgerId.of(2**63 - 1),
    LedgerId(1, 0),
    LedgerId(1, 2**63),
    LedgerId(2**63, 5),
    LedgerId(2**64 - 1, 2**64 - 1),
]


def fitting(layout: str) -> list[LedgerId]:
    """Return the ids that a layout has a place for; flat names have ten digits."""
    return [name for name in IDS if name.scope or layout != "flat" or name.ledger < 10**10]


def metadata_of(name: int | LedgerId, **change: Any) -> LedgerMetadata:
    """Return sound metadata of a ledger, with these fields changed."""
    made = LedgerMetadata(
        LedgerId.of(name),
        2,
        2,
        1,
        (Segment(0, ("b1", "b2")),),
        digest_type="CRC32C",
        password=b"pw",
    )
    return replace(made, **change)


def said(versioned: Versioned) -> Versioned:
    """Return what was read without what a store adds: a token, its time of creation."""
    metadata, version = versioned
    ctime = metadata.ctime if metadata.store_ctime else -1
    return Versioned(replace(metadata, c_token=0, ctime=ctime), version)


def new_uri(server: ZooKeeperServer, manager: str = "hierarchical") -> str:
    """Return the service URI of a root that nobody had before."""
    return server.uri(f"/cluster-{next(_roots)}/ledgers", manager)
