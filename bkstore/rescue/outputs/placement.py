"""Where rescued ledgers are placed: on the bookies that they had, or on fewer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from bkstore.errors import InvalidArgument
from bkstore.ids import Int64Array
from bkstore.ledger_metadata import LedgerMetadata, Segment


def old_bookies(ledgers: Iterable[LedgerMetadata]) -> list[str]:
    """Return all bookies of the ledgers' ensembles, in order."""
    return sorted({bookie for metadata in ledgers for bookie in metadata.bookies})


def place_on(metadata: LedgerMetadata, bookies: Sequence[str]) -> LedgerMetadata:
    """Return a ledger's metadata with one segment, on some of `bookies`: as many as its ensembles
    have, or all. Quorums that do not fit are lowered. Ledgers take turns by their ids.

    >>> old = LedgerMetadata(7, 5, 3, 2, [(0, ["a", "b", "c", "d", "e"])])
    >>> new = place_on(old, ["x", "y"])
    >>> new.segments[0].ensemble, new.write_quorum_size, new.ack_quorum_size
    (('y', 'x'), 2, 2)
    """
    size = min(metadata.ensemble_size, len(bookies))
    write = min(metadata.write_quorum_size, size)
    first = metadata.ledger_id % len(bookies)
    ensemble = tuple(bookies[(first + index) % len(bookies)] for index in range(size))
    return replace(
        metadata,
        ensemble_size=size,
        write_quorum_size=write,
        ack_quorum_size=min(metadata.ack_quorum_size, write),
        segments=(Segment(0, ensemble),),
    )


def rows_of_bookies(
    metadata: LedgerMetadata, entries: Int64Array
) -> Iterator[tuple[str, Int64Array]]:
    """Yield the bookies of the entries' write sets, each with the rows of its entries; a bookie of
    several segments comes several times.

    >>> metadata = LedgerMetadata(7, 2, 1, 1, [(0, ["a", "b"]), (2, ["c", "a"])])
    >>> [(bookie, rows.tolist()) for bookie, rows in rows_of_bookies(metadata, np.arange(4))]
    [('a', [0]), ('b', [1]), ('c', [2]), ('a', [3])]
    """
    ensemble_size, write_quorum = metadata.ensemble_size, metadata.write_quorum_size
    segment_starts = [segment.first_entry for segment in metadata.segments]
    segment_of_entry = np.searchsorted(segment_starts, entries, "right") - 1
    for number, segment in enumerate(metadata.segments):
        in_segment = segment_of_entry == number
        for index, bookie in enumerate(segment.ensemble):
            in_write_set = (index - entries) % ensemble_size < write_quorum
            rows = np.flatnonzero(in_segment & in_write_set)
            if rows.size:
                yield bookie, rows


def folder_names(bookies: Sequence[str]) -> dict[str, str]:
    """Return a folder's name for each bookie: its id, with ``-`` for what paths do not like. Raises
    `InvalidArgument` if two would have the same.

    >>> folder_names(["bookie-1:3181"])
    {'bookie-1:3181': 'bookie-1-3181'}
    """
    names = {bookie: re.sub(r"[^A-Za-z0-9._-]", "-", bookie) for bookie in bookies}
    for bookie, folder in names.items():
        if folder in ("", ".", "..", "metadata.json"):
            raise InvalidArgument(f"bookie {bookie!r}: its id cannot be a folder's name")
    if len(set(names.values())) < len(names):
        raise InvalidArgument("the ids of two bookies differ only in characters such as ':'")
    return names
