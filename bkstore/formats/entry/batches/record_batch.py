"""RecordBatch: many records as one buffer, with where each begins, how long it is, its entry id.

The currency between encoder, journal, write cache, entry log and batch reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bkstore.errors import CorruptionError
from bkstore.formats.syntax.framing import PREFIX, bytes_at, words_at
from bkstore.ids import Int64Array

__all__ = ["RecordBatch"]

_NONE = np.empty(0, np.int64)


@dataclass(frozen=True)
class RecordBatch(Sequence[memoryview]):
    """Records as one buffer: record i is ``buffer[offsets[i]:][:sizes[i]]``.

    `entries`, `offsets` and `sizes` are int64[n]. Between the records other bytes may stand; in
    a `framed` batch each has its size before it, as in journals and entry logs, and nothing else.
    `stopped` is the damage that ended the batch early, None where it ended for another reason.
    As a sequence it gives a memoryview of each record, without a copy.

    >>> batch = RecordBatch.of([b"first", b"second"], [0, 1])
    >>> len(batch), bytes(batch[1])
    (2, b'second')
    """

    entries: Int64Array
    buffer: bytes | memoryview
    offsets: Int64Array
    sizes: Int64Array
    stopped: CorruptionError | None = None

    @classmethod
    def of(cls, records: Sequence[bytes], entries: Sequence[int] | Int64Array) -> RecordBatch:
        """Return a framed batch of separate records; copies them once."""
        sizes = np.fromiter(map(len, records), np.int64, len(records))
        ends = np.cumsum(sizes + PREFIX)
        return cls(np.asarray(entries, np.int64), _in_frames(records, sizes), ends - sizes, sizes)

    def __len__(self) -> int:
        return int(self.entries.size)

    def __getitem__(self, at: int) -> memoryview:  # type: ignore[override]
        start = int(self.offsets[at])
        return memoryview(self.buffer)[start : start + int(self.sizes[at])]

    def records(self) -> list[bytes]:
        """Return a copy of each record."""
        buffer = bytes(self.buffer)  # slices of bytes are cheaper; itself, where it is bytes
        places = zip(self.offsets.tolist(), self.sizes.tolist())
        return [bytes(buffer[start : start + size]) for start, size in places]

    def first(self, count: int) -> RecordBatch:
        """Return the first `count` records; shares the buffer."""
        return self if count >= len(self) else self.between(0, count)

    def within(self, max_bytes: int) -> RecordBatch:
        """Return the records up to the one whose frame passes `max_bytes`, that one included."""
        ends = np.cumsum(self.sizes + PREFIX)
        return self.first(int(ends.searchsorted(max_bytes, "right")) + 1)

    def between(self, start: int, stop: int) -> RecordBatch:
        """Return the records start..stop (half open); shares the buffer."""
        part = slice(start, stop)
        return RecordBatch(self.entries[part], self.buffer, self.offsets[part], self.sizes[part])

    def at(self, rows: Int64Array) -> RecordBatch:
        """Return the records of these numbers, in this order; shares the buffer."""
        return RecordBatch(self.entries[rows], self.buffer, self.offsets[rows], self.sizes[rows])

    # -- frames

    def framed(self) -> RecordBatch:
        """Return the same records with a buffer that is their frames, one behind the other.

        A frame is the record's size (i32) and the record, as journals and entry logs have it.
        No copy where the records stand so already, as those of `Coder.encode_batch`, of a scan
        and of a batch read from an entry log do: some 10 ns a record. Else one copy: some 30 ns
        a record where all are of one size, 200 where not.

        >>> batch = RecordBatch.of([b"first", b"second"], [0, 1]).framed()
        >>> batch.buffer.hex(" ", 5), batch.offsets.tolist()
        """
        if not len(self):
            return RecordBatch(self.entries, b"", self.offsets, self.sizes)
        start = int(self.offsets[0]) - PREFIX
        ends = self.offsets + self.sizes
        if start < 0 or (ends[:-1] + PREFIX != self.offsets[1:]).any() or not self._sized():
            return self._with_frames()
        stop = int(ends[-1])
        if start == 0 and stop == len(self.buffer):
            return self
        part = memoryview(self.buffer)[start:stop]
        return RecordBatch(self.entries, part, self.offsets - start, self.sizes)

    def _sized(self) -> bool:
        """Return whether each record has its size before it."""
        said = words_at(np.frombuffer(self.buffer, np.uint8), ">i4")[self.offsets - PREFIX]
        return bool((said == self.sizes).all())

    def _with_frames(self) -> RecordBatch:
        size = int(self.sizes[0])
        if (self.sizes == size).all():
            table = np.empty((len(self), PREFIX + size), np.uint8)
            table[:, :PREFIX] = np.frombuffer(size.to_bytes(PREFIX, "big"), np.uint8)
            table[:, PREFIX:] = bytes_at(np.frombuffer(self.buffer, np.uint8), self.offsets, size)
            buffer: bytes | memoryview = table.reshape(-1).data
        elif int(self.offsets.min()) >= PREFIX and self._sized():
            buffer = self._joined_frames()
        else:
            buffer = _in_frames(self.records(), self.sizes)
        ends = np.cumsum(self.sizes + PREFIX)
        return RecordBatch(self.entries, buffer, ends - self.sizes, self.sizes)

    def _joined_frames(self) -> bytes:
        """Return frames that are there already one behind the other, by stretches of them."""
        ends, view = self.offsets + self.sizes, memoryview(self.buffer)
        breaks = np.flatnonzero(self.offsets[1:] - PREFIX != ends[:-1])
        starts = self.offsets[np.concatenate(([0], breaks + 1))] - PREFIX
        stops = ends[np.append(breaks, len(self) - 1)]
        return b"".join([view[at:to] for at, to in zip(starts.tolist(), stops.tolist())])

    @classmethod
    def joined(cls, parts: Sequence[RecordBatch]) -> RecordBatch:
        """Return batches one behind the other; a single one as it is."""
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return cls(_NONE, b"", _NONE, _NONE)
        lengths = np.array([len(part.buffer) for part in parts])
        starts = np.cumsum(lengths) - lengths
        return cls(
            np.concatenate([part.entries for part in parts]),
            b"".join(part.buffer for part in parts),
            np.concatenate([part.offsets + at for part, at in zip(parts, starts)]),
            np.concatenate([part.sizes for part in parts]),
            parts[-1].stopped,
        )


def _in_frames(records: Sequence[bytes], sizes: Int64Array) -> bytes:
    """Return records one behind the other, each with its size before it."""
    if not sizes.size:
        return b""
    if (sizes == sizes[0]).all():
        return int(sizes[0]).to_bytes(PREFIX, "big").join((b"", *records))
    parts: list[bytes] = [b""] * (2 * sizes.size)
    parts[::2], parts[1::2] = sizes.astype(">i4").view("V4").tolist(), records
    return b"".join(parts)
