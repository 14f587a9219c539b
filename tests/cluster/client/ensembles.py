"""Who is in a writer's ensemble now, and who has an entry."""

from __future__ import annotations

from bkstore.cluster import Cluster, LedgerHandle


def ensemble(ledger: LedgerHandle) -> tuple[str, ...]:
    """Return the bookies that take entries now."""
    return ledger.metadata.segments[-1].ensemble


def holders(cluster: Cluster, ledger: LedgerHandle, entry: int) -> set[str]:
    """Return the bookies that have an entry, the reachable ones."""
    return {
        name
        for name, client in cluster.bookies.items()
        if client.server.is_running
        and client.server.bookie.ledger_exists(ledger.ledger)
        and client.server.bookie.entry_exists(ledger.ledger, entry)
    }
