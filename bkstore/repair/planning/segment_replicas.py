"""SegmentReplicas: which bookies of one segment have which of its entries, as far as is known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from bkstore.availability import Availability
from bkstore.ledger_metadata.model import SegmentRange
from bkstore.schedule import expected


@dataclass
class SegmentReplicas:
    """The replicas of one segment, by the indexes of its bookies in the ensemble.

    `lacking` has the entries that a bookie should have and does not; a bookie in `departed` is not
    registered. One in `silent` is, but gave no answer, and one in `unlisted` cannot list its
    entries: both with the reason. All others have what they should have.

    >>> segment = SegmentReplicas(SegmentRange(0, 5, ("b1", "b2", "b3")), 2)
    >>> segment.lacking[1] = Availability.from_entries([0, 3, 4])
    >>> segment.departed.add(2)
    >>> shares, remaining = segment.choose_sources(segment.lacking[1], 1)
    >>> [(segment.bookie_at(index), share.entries().tolist()) for index, share in shares]
    [('b1', [0, 3])]
    >>> remaining.entries().tolist()
    [4]
    """

    segment: SegmentRange
    write_quorum: int
    lacking: dict[int, Availability] = field(default_factory=dict)
    departed: set[int] = field(default_factory=set)
    silent: dict[int, str] = field(default_factory=dict)
    unlisted: dict[int, str] = field(default_factory=dict)

    @property
    def first_entry(self) -> int:
        """The segment's first entry."""
        return self.segment.first_entry

    def bookie_at(self, index: int) -> str:
        """Return the id of the bookie at an index of the ensemble."""
        return self.segment.ensemble[index]

    def expected_at(self, index: int) -> Availability:
        """Return the entries that the bookie at an index should have."""
        first, last, ensemble = self.segment
        if self.segment.is_empty:
            return Availability()
        return expected(first, last, index, len(ensemble), self.write_quorum)

    def choose_sources(
        self, needed: Availability, index: int, *, include_own: bool = False
    ) -> tuple[list[tuple[int, Availability]], Availability]:
        """Return bookies that have `needed` entries, each with its share, and the entries that no
        bookie is known to have. Bookies that gave no answer come last, as they may lack them.

        The bookie at `index` needs them; with `include_own` it is the first source, because it is
        to be replaced. The others follow in the order of the ensemble from there on.
        """
        shares, remaining = [], needed
        for source in self._source_order(index, include_own):
            if not remaining:
                break
            share = remaining & (
                self.expected_at(source) - self.lacking.get(source, Availability())
            )
            if share:
                shares.append((source, share))
                remaining -= share
        return shares, remaining

    def _source_order(self, index: int, include_own: bool) -> Iterator[int]:
        """Yield the indexes of possible sources; see `choose_sources`."""
        size = len(self.segment.ensemble)
        # from `index` on, or with `include_own` False (distance 1) from the one after it
        ring = [(index + distance) % size for distance in range(1 - include_own, size)]
        available = [source for source in ring if source not in self.departed]
        yield from (source for source in available if self.reason_unknown(source) is None)
        yield from (source for source in available if self.reason_unknown(source) is not None)

    def reason_unknown(self, index: int) -> str | None:
        """Return why it is unknown which entries a registered bookie has, None if it is known."""
        return self.silent.get(index, self.unlisted.get(index))

    def expected_bookies(self, entries: Availability, indexes: set[int]) -> list[str]:
        """Return those of the bookies at `indexes` that should have any of the entries."""
        return [
            self.bookie_at(index) for index in sorted(indexes) if self.expected_at(index) & entries
        ]
