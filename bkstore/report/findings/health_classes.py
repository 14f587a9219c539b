"""How bad a ledger's state is: the order of violation categories and of classes of health."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bkstore.ids import Int64Array
from bkstore.report.findings.table_columns import number_column

if TYPE_CHECKING:
    import pyarrow as pa

DURABILITY_CLASSES = ("no_replica", "below_ack_quorum", "below_write_quorum")
HEALTH_CLASSES = (*DURABILITY_CLASSES, "in_part", "not_judged", "sound")
"""The classes of a ledger's health, the worst first. `in_part`: nothing is missing on the bookies
in the dump, but some of the ledger's bookies are not in it."""

_CATEGORIES = (*DURABILITY_CLASSES, "placement", "overdue", "bookie_unavailable", "placement_soft")
_CATEGORY_RANKS = {name: rank for rank, name in enumerate(_CATEGORIES)}


def category_ranks(table: pa.Table) -> Int64Array:
    """Return the rank of each violation's category, 0 the worst; unknown categories come last."""
    encoded = table.column("category").combine_chunks().dictionary_encode()
    names = encoded.dictionary.to_pylist()
    ranks = [_CATEGORY_RANKS.get(name, len(_CATEGORY_RANKS)) for name in names]
    return np.array(ranks, np.int64)[encoded.indices.to_numpy()] if names else np.empty(0, np.int64)


def class_ranks(health: pa.Table) -> Int64Array:
    """Return for each ledger the index of its health in `HEALTH_CLASSES`.

    A missing replica makes a ledger at least `below_write_quorum`, whatever else could not be
    judged. A ledger is not judged at all if none of its replicas could be looked for.
    """
    import pyarrow.compute as pc

    # From the mildest class to the worst: later assignments take precedence. `not_judged` has the
    # bookies outside of the dump, or why no replica was counted; then `replicas_due` is null.
    classes = np.full(health.num_rows, HEALTH_CLASSES.index("sound"), np.int64)
    with_reason = pc.is_valid(health.column("not_judged")).to_numpy()
    uncounted = pc.is_null(health.column("replicas_due")).to_numpy()
    classes[with_reason] = HEALTH_CLASSES.index("in_part")
    nothing_due = with_reason & (number_column(health, "replicas_due") == 0)
    classes[uncounted | nothing_due] = HEALTH_CLASSES.index("not_judged")
    is_missing_some = number_column(health, "replicas_missing") > 0
    classes[is_missing_some] = HEALTH_CLASSES.index("below_write_quorum")
    for rank, name in enumerate(DURABILITY_CLASSES):
        in_category = pc.fill_null(pc.equal(health.column("category"), name), False)
        classes[in_category.to_numpy()] = rank
    return classes
