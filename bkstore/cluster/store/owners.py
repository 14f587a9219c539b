"""Read the owners of the ledgers in a metadata store."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator

from bkstore.cluster.store.api import MetadataStore
from bkstore.errors import CorruptionError
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerOwner, LedgerOwners, read_owner
from bkstore.ledger_metadata.owners import UNKNOWN_OWNER


def read_owners(
    store: MetadataStore,
    ledgers: Iterable[LedgerId] | None = None,
    unreadable: list[tuple[LedgerId, CorruptionError]] | None = None,
) -> LedgerOwners:
    """Return the owners of ledgers (None: all) that are in the store. O(ledgers), a read of each.

    `entry_counts` are those of closed ledgers, 0 for others. A ledger whose metadata cannot be
    read has an unknown owner; with `unreadable`, it is appended there with its error.

    >>> from bkstore.cluster import MemoryStore
    >>> from bkstore.ledger_metadata import LedgerMetadata
    >>> store = MemoryStore()
    >>> custom = {"application": b"pulsar", "component": b"schema",
    ...           "pulsar/schemaId": b"shop/orders/paid"}
    >>> _ = store.create(LedgerMetadata(7, 1, 1, 1, [(0, ["b1"])], custom_metadata=custom))
    >>> read_owners(store).get(LedgerId.of(7)).namespace
    'shop/orders'
    """

    entry_counts = array("q")

    def owner_pairs() -> Iterator[tuple[LedgerId, LedgerOwner]]:
        """Yield (ledger, owner), and append the ledger's entry count to `entry_counts`."""
        ledger_ids = store.ledgers() if ledgers is None else ledgers
        for ledger_id, versioned in store.read_many(ledger_ids):
            if isinstance(versioned, CorruptionError):
                if unreadable is not None:
                    unreadable.append((ledger_id, versioned))
                entry_counts.append(0)
                yield ledger_id, UNKNOWN_OWNER
                continue
            metadata = versioned.metadata
            entry_counts.append(max(metadata.last_entry_id + 1, 0) if metadata.closed else 0)
            yield ledger_id, read_owner(metadata.custom_metadata)

    return LedgerOwners(owner_pairs(), entry_counts)
