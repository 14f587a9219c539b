"""Ledger ids at the ends of the key space, and metadata to put under them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerMetadata, Segment

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
