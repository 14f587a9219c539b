"""The numbers that analyses must find in a synthetic cluster, counted from its arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from tools.synthesize.cluster import (
    BELOW_ACK,
    BELOW_WRITE,
    HOMELESS,
    LEFTOVER_STRIPES,
    LEFTOVERS,
    NO_REPLICA,
    ORPHAN,
    UNCLOSED,
    SyntheticCluster,
)


def count_planted(cluster: SyntheticCluster) -> dict[str, Any]:
    """Return the numbers by analysis; `violations` and `missing_entries` by category."""
    shape, kinds, lost = cluster.shape, cluster.kinds, cluster.lost
    homeless = kinds == HOMELESS
    # Violations by category: a row for each loss, and one for each segment and slot of homeless
    # ledgers, of which every replica is missing.
    rows, missing = {}, {}
    for category, kind in (
        ("below_write_quorum", BELOW_WRITE),
        ("below_ack_quorum", BELOW_ACK),
        ("no_replica", NO_REPLICA),
    ):
        is_of_kind = kinds[lost.ledger] == kind
        rows[category] = int(is_of_kind.sum())
        missing[category] = int(lost.stripes[is_of_kind].sum())
    rows["no_replica"] += int(cluster.segments[homeless].sum()) * shape.ensemble_size
    missing["no_replica"] += int(cluster.sizes[homeless].sum()) * shape.write_quorum
    stored = cluster.stored_ranges
    is_orphan = kinds[stored.ledger] == ORPHAN
    bookie_ledger_pairs = np.unique(stored.bookie * kinds.size + stored.ledger).size
    leftovers = int((kinds == LEFTOVERS).sum())
    return {
        "violations": {name: count for name, count in rows.items() if count},
        "missing_entries": {name: count for name, count in missing.items() if count},
        "homeless": int(homeless.sum()),
        "surplus": leftovers,
        "surplus_entries": leftovers * shape.write_quorum * LEFTOVER_STRIPES,
        "orphans": int(is_orphan.sum()),
        "orphan_ledgers": shape.orphans,
        "not_judged": int((kinds == UNCLOSED).sum()),
        "ledgers": shape.ledgers,
        "bookies": shape.bookies,
        "sequences": int(bookie_ledger_pairs),
    }
