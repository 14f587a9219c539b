"""Fold: slices of neighboring stream set objects, joined where that cannot change an answer.

A slice is the range of offsets that an object has of one stream. Two slices may be joined if the
second begins at the end of the first, at an offset that the node itself owns: a lookup would
continue there anyway. The result, a piece, may become a stream object, which is found no matter who
owns its offsets, only if the node owns all of it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bkstore.ids import Int64Array
from bkstore.streams.image.object_ranges import ObjectRanges
from bkstore.streams.image.stream_image import StreamImage
from bkstore.streams.image.streams_and_nodes import Stream

BoolArray = npt.NDArray[np.bool_]


class Fold:
    """Slices of neighboring objects joined to pieces: `streams`, `starts`, `ends` have one item a
    piece, sorted by stream and start.

    Unreadable slices before a stream's start are dropped. `is_only_piece` is true for the only
    piece of a stream. `usable_count` is how many objects, from the first on, may become one.
    """

    def __init__(self, image: StreamImage, node_id: int, objects: list[ObjectRanges]) -> None:
        """Join the slices of some neighbors in a node's list of objects."""
        self._image = image
        self._node_id = node_id
        # All slices of all objects, sorted by stream and start, without trimmed ones.
        object_indexes = np.repeat(np.arange(len(objects)), [len(ranges) for ranges in objects])
        streams, starts, ends = (
            np.concatenate([getattr(ranges, name) for ranges in objects])
            for name in ("streams", "starts", "ends")
        )
        order = np.lexsort((starts, streams))
        order = order[ends[order] > self._start_offsets(streams[order])]
        streams, starts, ends = streams[order], starts[order], ends[order]
        # A piece begins at each slice that does not join the one before it.
        piece_starts = np.flatnonzero(~self._find_joins(streams, starts, ends))
        self.streams, self.starts = streams[piece_starts], starts[piece_starts]
        # It ends with the slice before the next piece, the last piece with the last slice. The cut
        # to the number of pieces matters only if there are none.
        piece_stops = np.append(piece_starts[1:], len(ends))[: len(piece_starts)]
        self.ends = ends[piece_stops - 1]
        _, piece_streams, counts = np.unique(self.streams, return_inverse=True, return_counts=True)
        self.is_only_piece = counts[piece_streams] == 1
        self.usable_count = self._count_usable(object_indexes[order][piece_starts], len(objects))

    def _get_stream(self, stream: int) -> Stream | None:
        return self._image.streams.get(int(stream))

    def _start_offsets(self, streams: Int64Array) -> Int64Array:
        """Return the start offset of each row's stream, before which it is trimmed."""
        distinct, rows = np.unique(streams, return_inverse=True)
        known_streams = map(self._get_stream, distinct.tolist())
        offsets = [0 if stream is None else stream.start_offset for stream in known_streams]
        return np.array(offsets, np.int64)[rows]

    def _find_joins(self, streams: Int64Array, starts: Int64Array, ends: Int64Array) -> BoolArray:
        """Return for each slice whether it joins the previous one: whether it begins where that
        ends, in the same stream, at an offset that this node owns."""
        joins = np.zeros(len(streams), np.bool_)
        joins[1:] = (streams[1:] == streams[:-1]) & (starts[1:] == ends[:-1])
        # Only in streams that other nodes own in part, look up the owner of the offset.
        for row in np.flatnonzero(joins & self._has_other_owners_per_row(streams)).tolist():
            stream = self._get_stream(streams[row])
            joins[row] = stream is None or stream.node_at(starts.item(row)) == self._node_id
        return joins

    def _has_other_owners_per_row(self, streams: Int64Array) -> BoolArray:
        """Return for each row whether others than this node, or none, own offsets of its stream."""
        distinct, rows = np.unique(streams, return_inverse=True)
        is_shared = [
            self._has_other_owners(self._get_stream(stream)) for stream in distinct.tolist()
        ]
        return np.array(is_shared, np.bool_)[rows]

    def _has_other_owners(self, stream: Stream | None) -> bool:
        if stream is None:
            return False  # a stream without metadata is unreadable
        first = stream.ranges[0] if len(stream.ranges) == 1 else None
        return first is None or first.start != 0 or first.node_id != self._node_id

    def _count_usable(self, object_indexes: Int64Array, object_count: int) -> int:
        """Return how many of the objects, from the first on, may become one.

        A stream set object has one range a stream, so a stream in several pieces must go into
        stream objects. A piece that the node owns only in part is not allowed there, so its stream
        must not have a second piece: the usable objects end before the one in which that begins.
        `object_indexes` has for each piece the index of the object in which it begins.
        """
        # Pieces that cannot become stream objects: one of several, and owned only in part.
        is_fixed = ~self.is_only_piece & self._has_other_owners_per_row(self.streams)
        for row in np.flatnonzero(is_fixed).tolist():
            stream = self._get_stream(self.streams[row])
            start, end = self.starts.item(row), self.ends.item(row)
            is_fixed[row] = stream is not None and not _owns_range(
                self._node_id, stream, start, end
            )
        # End before the object with the second piece of the stream of such a piece.
        for stream_id in np.unique(self.streams[is_fixed]).tolist():
            _first_piece, second_piece, *_ = np.flatnonzero(self.streams == stream_id)
            object_count = min(object_count, int(object_indexes[second_piece]))
        return object_count


def _owns_range(node_id: int, stream: Stream, start: int, end: int) -> bool:
    """Return whether a node owns each offset of [start, end)."""
    offset = start
    while offset < end:
        range_index = stream.range_at(offset)
        if range_index is None or stream.ranges[range_index].node_id != node_id:
            return False
        is_last = range_index == len(stream.ranges) - 1
        offset = end if is_last else stream.ranges[range_index].end  # the last range has no end yet
    return True
