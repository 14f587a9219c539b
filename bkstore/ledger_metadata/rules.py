"""What sound ledger metadata keeps to, and a sentence for each way in which it does not.

Source: the checks of `client/LedgerMetadataBuilder`, `client/LedgerMetadataImpl` and of the
client when it creates a ledger; what follows from how segments come about
(`docs/formats/ledgermetadata.md`).
"""

from __future__ import annotations

from collections.abc import Iterator

from bkstore.ids import MAX_ENTRY_ID
from bkstore.ledger_metadata.fields import NEWEST_VERSION, NO_ENTRY, MetadataFields


def problems(metadata: MetadataFields) -> Iterator[str]:
    """Yield what contradicts itself: sizes, then segments, then the end. O(segments x E)."""
    yield from _size_problems(metadata)
    yield from _segment_problems(metadata)
    yield from _end_problems(metadata)


def _size_problems(metadata: MetadataFields) -> Iterator[str]:
    size, write, ack = (
        metadata.ensemble_size,
        metadata.write_quorum_size,
        metadata.ack_quorum_size,
    )
    if size < 1:
        yield f"ensemble size {size} is below 1"
    if not 1 <= write <= size:
        yield f"write quorum {write} is outside 1..{size}, the ensemble size"
    if not 1 <= ack <= write:
        yield f"ack quorum {ack} is outside 1..{write}, the write quorum"
    if metadata.digest_type is None and metadata.password is not None:
        yield "there is a password, but no digest type"
    if not 1 <= metadata.version <= NEWEST_VERSION:
        yield f"metadata format version {metadata.version} is outside 1..{NEWEST_VERSION}"


def _segment_problems(metadata: MetadataFields) -> Iterator[str]:
    if not metadata.segments:
        yield "there is no segment"
    before = None
    for first, ensemble in metadata.segments:
        if before is None and first != 0:
            yield f"the first segment begins at entry {first}, not at 0"
        if before is not None and first <= before:
            yield f"segment {first} does not begin after the one before it, {before}"
        if not 0 <= first <= MAX_ENTRY_ID + 1:
            yield f"segment {first} begins outside 0..{MAX_ENTRY_ID + 1}"
        if len(ensemble) != metadata.ensemble_size:
            yield f"segment {first} has {len(ensemble)} bookies, not {metadata.ensemble_size}"
        if len(set(ensemble)) < len(ensemble):
            yield f"segment {first} names a bookie twice"
        if "" in ensemble:
            yield f"segment {first} has a bookie without a name"
        before = first


def _end_problems(metadata: MetadataFields) -> Iterator[str]:
    last, length = metadata.last_entry_id, metadata.length
    if not metadata.closed:
        if (last, length) != (NO_ENTRY, 0):
            yield f"{metadata.state}, but with a last entry ({last}) or a length ({length})"
        return
    if not NO_ENTRY <= last <= MAX_ENTRY_ID:
        yield f"last entry {last} is outside -1..{MAX_ENTRY_ID}"
    if length < 0:
        yield f"length {length} is negative"
    if last == NO_ENTRY and length > 0:
        yield f"length {length} without an entry"
    begins = max((part.first_entry for part in metadata.segments), default=0)
    if last + 1 < begins:  # a change of ensemble begins at most one past the last entry
        yield f"last entry {last} lies before segment {begins}"
