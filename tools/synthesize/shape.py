"""The parameters of a synthetic cluster."""

from __future__ import annotations

from dataclasses import dataclass

from bkstore.arguments import check_fields, integer, number
from bkstore.errors import InvalidArgument

MIN_SEGMENT_STRIPES = 4
"""The minimal number of stripes in a segment, so that each bookie has entries to lose."""

FAULTS = ("below_write", "below_ack", "no_replica", "homeless", "leftovers", "orphans")


@dataclass(frozen=True)
class ClusterShape:
    """Size and faults of a cluster. The same shape yields the same cluster.

    `entries` is the approximate number per bookie; `ledgers` are spread over all bookies. `changed`
    is the share of them with an ensemble change, `scoped` the share outside scope 0. The faults are
    numbers of ledgers: `below_write` and `below_ack` lack replicas of some entries, `no_replica`
    all replicas of some; `homeless` ones have lost all entries. `leftovers` have entries at a
    bookie that an ensemble change replaced, `orphans` have no metadata, `unclosed` ones are open.
    """

    bookies: int = 1000
    entries: int = 1_000_000
    ledgers: int = 10_000
    ensemble_size: int = 5
    write_quorum: int = 3
    ack_quorum: int = 2
    changed: float = 0.2
    scoped: float = 0.25
    below_write: int = 40
    below_ack: int = 30
    no_replica: int = 20
    homeless: int = 10
    leftovers: int = 25
    orphans: int = 50
    unclosed: int = 15
    seed: int = 1

    def __post_init__(self) -> None:
        check_fields(self, _CHECKS)
        if not self.ack_quorum <= self.write_quorum <= self.ensemble_size < self.bookies:
            raise InvalidArgument(
                "ack quorum, write quorum, ensemble and bookies must rise, with a bookie to spare: "
                f"{self.ack_quorum}, {self.write_quorum}, {self.ensemble_size}, {self.bookies}"
            )
        if self.below_write and self.ack_quorum == self.write_quorum:
            raise InvalidArgument("below_write needs an ack quorum below the write quorum")
        if self.below_ack and self.ack_quorum == 1:
            raise InvalidArgument("below_ack needs an ack quorum of 2 or more")
        if self.marked > self.ledgers:
            raise InvalidArgument(f"{self.marked} ledgers with faults, of {self.ledgers}")
        if self.bookies * self.entries < self.ledgers * self.min_ledger_entries * self.write_quorum:
            raise InvalidArgument(
                f"ledgers of {self.min_ledger_entries} entries at least: too few entries for "
                f"{self.ledgers}"
            )

    @property
    def marked(self) -> int:
        """The number of ledgers in the metadata that are faulty or open."""
        faults = sum(getattr(self, name) for name in FAULTS if name != "orphans")
        return int(faults) + self.unclosed

    @property
    def min_ledger_entries(self) -> int:
        """The minimal number of entries of a ledger: two segments of `MIN_SEGMENT_STRIPES`."""
        return 2 * MIN_SEGMENT_STRIPES * self.ensemble_size


_COUNT = integer(0, 1 << 24)
_CHECKS = {
    "bookies": integer(2, 100_000),
    "entries": integer(1, 1 << 40),
    "ledgers": integer(1, 1 << 24),
    "ensemble_size": integer(1, 100),
    "write_quorum": integer(1, 100),
    "ack_quorum": integer(1, 100),
    "changed": number(0, 1),
    "scoped": number(0, 1),
    **dict.fromkeys((*FAULTS, "unclosed"), _COUNT),
    "seed": integer(),
}
