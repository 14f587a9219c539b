"""Replace bookies in a segment of a ledger's metadata, but not for entries that only they may have.

BookKeeper replaces the whole ensemble of a fragment, and gives up on it if one entry cannot be
read. Here such an entry keeps the old bookie: it gets a segment of its own, so that it is found
when that bookie comes back, and all other entries are at their full quorum."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from bkstore.availability import Availability
from bkstore.errors import IllegalOperation
from bkstore.ledger_metadata import LedgerMetadata
from bkstore.ledger_metadata.model import Segment, SegmentRange

MAX_KEPT_RANGES = 100
"""Up to this many ranges of entries keep a bookie that is replaced for the others."""


def replace_bookies(
    metadata: LedgerMetadata,
    segment: SegmentRange,
    changes: Mapping[int, str],
    kept: Mapping[int, Availability],
) -> LedgerMetadata:
    """Return the metadata with other bookies at some indexes of a segment's ensemble; entries in
    `kept`, by index, keep the bookie that they have there.

    Raises `IllegalOperation` if the metadata have another segment there by now, if it may still
    grow, or if `kept` has more than 100 ranges.

    >>> ledger = LedgerMetadata(7, 2, 2, 1, [(0, ["b1", "b2"])], state="CLOSED", last_entry_id=9)
    >>> segment = ledger.segments_with_ends()[0]
    >>> changed = replace_bookies(ledger, segment, {1: "b3"}, {1: Availability.from_entries([4])})
    >>> [(first, ensemble) for first, ensemble in changed.segments]
    [(0, ('b1', 'b3')), (4, ('b1', 'b2')), (5, ('b1', 'b3'))]
    """
    position = _find_segment(metadata, segment)
    ranges = {
        index: entries.ranges(MAX_KEPT_RANGES + 1).tolist() for index, entries in kept.items()
    }
    if sum(map(len, ranges.values())) > MAX_KEPT_RANGES:
        raise IllegalOperation(
            f"ledger {metadata.ledger}: entries that only a bookie that is gone may have are in "
            f"more than {MAX_KEPT_RANGES} ranges; it is not replaced"
        )
    # The segment is split where a range of entries that keep a bookie begins or ends.
    starts = {segment.first_entry}
    for index_ranges in ranges.values():
        starts.update(start for first, last in index_ranges for start in (first, last + 1))
    pieces: list[Segment] = []
    # An empty segment ends before its first entry, but keeps that as its start.
    for start in sorted(start for start in starts if start <= segment.last_entry) or [
        segment.first_entry
    ]:
        ensemble = list(segment.ensemble)
        for index, bookie in changes.items():
            if index not in kept or start not in kept[index]:
                ensemble[index] = bookie
        if not pieces or pieces[-1].ensemble != tuple(ensemble):  # else the piece before goes on
            pieces.append(Segment(start, tuple(ensemble)))
    segments = (*metadata.segments[:position], *pieces, *metadata.segments[position + 1 :])
    return replace(metadata, segments=segments)


def _find_segment(metadata: LedgerMetadata, segment: SegmentRange) -> int:
    """Return the position of a segment that cannot grow any more; raises `IllegalOperation`."""
    stored = Segment(segment.first_entry, segment.ensemble)
    if stored not in metadata.segments:
        message = f"ledger {metadata.ledger}: its ensembles have changed meanwhile"
        raise IllegalOperation(message)
    position = metadata.segments.index(stored)
    if not metadata.closed and position == len(metadata.segments) - 1:
        raise IllegalOperation(f"ledger {metadata.ledger}: its last segment may still grow")
    return position
