"""The worst entry of each of many ledgers, by set algebra over all of them at once."""

from __future__ import annotations

import numpy as np

from bkstore.durability import Shortage
from bkstore.ids import Int64Array
from bkstore.offline.analyses.kernels.ledgers_side_by_side import Owned, combined
from bkstore.offline.reading.ledger_ranges import run_starts


def shortages(ledger: Int64Array, place: Int64Array, missing: Owned) -> dict[int, Shortage]:
    """Return how many replicas the worst entry of each ledger lacks, as `durability.shortage`.

    `missing.owner` is a row: which `ledger`, and at which `place` in a segment's ensemble.
    Segments of a ledger do not overlap, so that what is missing at one place does not either.
    O(groups x E x W) array work, however many ledgers there are.
    """
    layers: list[Owned] = []  # layer k: the entries of each ledger that k + 1 bookies lack
    whose, where = ledger[missing.owner], place[missing.owner]
    for at in np.unique(where).tolist():
        rows = np.flatnonzero(where == at)
        rows = rows[np.lexsort((missing.groups.first[rows], whose[rows]))]
        carry = Owned(whose[rows], missing.groups.take(rows))
        for number, layer in enumerate(layers):
            layers[number], carry = combined(layer, carry, "or"), combined(layer, carry, "and")
        if carry.owner.size:
            layers.append(carry)
    found: dict[int, Shortage] = {}
    for depth, layer in enumerate(layers, 1):
        heads = run_starts(layer.owner)
        firsts = layer.groups.first[heads].tolist()
        for name, first in zip(layer.owner[heads].tolist(), firsts):
            found[name] = Shortage(depth, first)
    return found
