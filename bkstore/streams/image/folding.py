"""Fold: slices of neighbouring stream set objects, joined where no answer can show it.

Two slices may be one where the second begins at the end of the first, at an offset that the node
itself owns: a look-up that is at the joint goes on there anyway. A piece may be set free as a
stream object, which counts whoever owns an offset, where the node owns all of it.
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
    """The slices of neighbours, joined to pieces: `streams`, `starts`, `ends`, in that order.

    Slices before a stream's start, which nobody may read, are left out. `single` tells of each
    piece whether it is the only one of its stream. `usable` is how many of the objects, from
    the first, may become one.
    """

    def __init__(self, image: StreamImage, node_id: int, objects: list[ObjectRanges]) -> None:
        self._image = image
        self._node_id = node_id
        at = np.concatenate([np.full(len(one), at) for at, one in enumerate(objects)])
        streams, starts, ends = (
            np.concatenate([getattr(one, name) for one in objects])
            for name in ("streams", "starts", "ends")
        )
        order = np.lexsort((starts, streams))
        order = order[ends[order] > self._trimmed(streams[order])]
        streams, starts, ends = streams[order], starts[order], ends[order]
        heads = np.flatnonzero(~self._joins(streams, starts, ends))
        self.streams, self.starts = streams[heads], starts[heads]
        self.ends = ends[np.append(heads[1:], len(ends))[: len(heads)] - 1]
        _, rows, counts = np.unique(self.streams, return_inverse=True, return_counts=True)
        self.single = counts[rows] == 1
        self.usable = self._usable(at[order][heads], len(objects))

    def _stream(self, stream: int) -> Stream | None:
        return self._image.streams.get(int(stream))

    def _trimmed(self, streams: Int64Array) -> Int64Array:
        """Return the start offset of each row's stream."""
        known, rows = np.unique(streams, return_inverse=True)
        found = map(self._stream, known.tolist())
        return np.array([one.start_offset if one else 0 for one in found], np.int64)[rows]

    def _joins(self, streams: Int64Array, starts: Int64Array, ends: Int64Array) -> BoolArray:
        """Return of each row whether it goes on where the row before it ends, on this node."""
        joins = np.zeros(len(streams), np.bool_)
        joins[1:] = (streams[1:] == streams[:-1]) & (starts[1:] == ends[:-1])
        for row in np.flatnonzero(joins & self._shared(streams)).tolist():
            stream = self._stream(streams[row])
            joins[row] = stream is None or stream.node_at(starts.item(row)) == self._node_id
        return joins

    def _shared(self, streams: Int64Array) -> BoolArray:
        """Return of each row whether its stream belonged to others as well."""
        known, rows = np.unique(streams, return_inverse=True)
        found = [self._is_shared(self._stream(one)) for one in known.tolist()]
        return np.array(found, np.bool_)[rows]

    def _is_shared(self, stream: Stream | None) -> bool:
        if stream is None:
            return False  # nobody may read it
        ranges = stream.ranges
        return not (len(ranges) == 1 and ranges[0][2:] == (0, ranges[0].end, self._node_id))

    def _usable(self, at: Int64Array, count: int) -> int:
        """Return the first object whose piece can neither be folded nor be set free."""
        fixed = ~self.single & self._shared(self.streams)
        for row in np.flatnonzero(fixed).tolist():
            stream = self._stream(self.streams[row])
            span = self.starts.item(row), self.ends.item(row)
            fixed[row] = stream is not None and not _owns(self._node_id, stream, *span)
        for stream_id in np.unique(self.streams[fixed]).tolist():
            count = min(count, int(at[self.streams == stream_id][1]))  # its second piece
        return count


def _owns(node_id: int, stream: Stream, start: int, end: int) -> bool:
    """Return whether a node owns each offset of a range."""
    reached = start
    while reached < end:
        at = stream.range_at(reached)
        if at is None or stream.ranges[at].node_id != node_id:
            return False
        reached = end if at == len(stream.ranges) - 1 else stream.ranges[at].end
    return True
