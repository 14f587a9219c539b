"""RecordBatch: many records as one buffer, with the offset, size and entry id of each. Encoder,
journal, write cache, entry log and batch reads exchange records in this form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from bkstore.arguments import bytes_like, iterable
from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.formats.syntax.framing import (
    SIZE_FIELD_BYTES,
    Bytes,
    bytes_at,
    integers_at_every_offset,
)
from bkstore.ids import Int64Array, as_int64

_EMPTY = np.empty(0, np.int64)

_MIN_MEAN_CHAIN = 16
"""Mean records in a chain of consecutive frames from which copying whole chains (some 100 ns each)
is faster than copying each record (15 ns)."""


@dataclass(frozen=True)
class RecordBatch(Sequence[memoryview]):
    """Records as one buffer: record i is ``buffer[offsets[i]:][:sizes[i]]``.

    `entries`, `offsets` and `sizes` are int64[n]. Other bytes may lie between the records; in a
    `framed` batch only each record's size lies before it. `stopped` is the damage that ended the
    batch early, or None. As a sequence it gives a memoryview of each record, without a copy.

    >>> batch = RecordBatch.of([b"first", b"second"], [0, 1])
    >>> len(batch), bytes(batch[1])
    (2, b'second')
    """

    entries: Int64Array
    buffer: bytes | memoryview
    offsets: Int64Array
    sizes: Int64Array
    stopped: CorruptionError | None = None
    _known_chained: bool = field(default=False, repr=False, compare=False)
    """Whether the records are consecutive frames in a buffer that nobody else changes."""

    @classmethod
    def of_frames(
        cls, entries: Int64Array, buffer: bytes | memoryview, offsets: Int64Array, sizes: Int64Array
    ) -> RecordBatch:
        """Return a batch of records that are consecutive frames, which is not checked."""
        return cls(entries, buffer, offsets, sizes, _known_chained=True)

    @classmethod
    def of(cls, records: Sequence[bytes], entries: Sequence[int] | Int64Array) -> RecordBatch:
        """Return a framed batch of separate records; copies them once."""
        if not {bytes}.issuperset(map(type, iterable("records", records))):
            records = [bytes_like(f"records[{i}]", record) for i, record in enumerate(records)]
        ids = as_int64(entries, "entry ids")
        if ids.size != len(records):
            raise InvalidArgument(f"{len(records)} records, but {ids.size} entry ids")
        sizes = np.fromiter(map(len, records), np.int64, len(records))
        ends = np.cumsum(sizes + SIZE_FIELD_BYTES)
        return cls.of_frames(ids, _frame_records(records, sizes), ends - sizes, sizes)

    @property
    def octets(self) -> Bytes:
        """The buffer as an array of uint8, not copied."""
        return np.frombuffer(self.buffer, np.uint8)

    def __len__(self) -> int:
        return int(self.entries.size)

    def __getitem__(self, index: int) -> memoryview:  # type: ignore[override]
        start = int(self.offsets[index])
        return memoryview(self.buffer)[start : start + int(self.sizes[index])]

    def records(self) -> list[bytes]:
        """Return a copy of each record."""
        buffer = bytes(self.buffer)  # no copy if it is bytes; slices of bytes are cheaper
        spans = zip(self.offsets.tolist(), self.sizes.tolist())
        return [bytes(buffer[start : start + size]) for start, size in spans]

    def first(self, count: int) -> RecordBatch:
        """Return the first `count` records; shares the buffer."""
        return self if count >= len(self) else self.between(0, count)

    def limit_bytes(self, max_bytes: int) -> RecordBatch:
        """Return the first records, up to the one with which the frames exceed `max_bytes`."""
        ends = np.cumsum(self.sizes + SIZE_FIELD_BYTES)
        return self.first(int(ends.searchsorted(max_bytes, "right")) + 1)

    def between(self, start: int, stop: int) -> RecordBatch:
        """Return the records start..stop (half open); shares the buffer."""
        rows = slice(start, stop)
        columns = self.entries[rows], self.buffer, self.offsets[rows], self.sizes[rows]
        return RecordBatch(*columns, None, self._known_chained)

    def take(self, rows: Int64Array) -> RecordBatch:
        """Return the records at `rows`, in this order; shares the buffer."""
        return RecordBatch(self.entries[rows], self.buffer, self.offsets[rows], self.sizes[rows])

    def framed(self) -> RecordBatch:
        """Return the same records in a buffer that consists of their frames, consecutively. A frame
        is the record's size (i32) and the record, as in journals and entry logs. Records that lie
        so already are not copied: checking takes 10 ns a record, nothing for batches of
        `Coder.encode_batch`, a scan or `framed`. A copy takes 30 ns a record, 200 if sizes differ.

        >>> batch = RecordBatch.of([b"first", b"second"], [0, 1]).framed()
        >>> batch.buffer.hex(" ", 5), batch.offsets.tolist()
        ('00000005 6669727374 0000000673 65636f6e64', [4, 13])
        """
        if not len(self):
            return RecordBatch.of_frames(self.entries, b"", self.offsets, self.sizes)
        if not (self._known_chained or self._is_chained()):
            return self._with_consecutive_frames()
        # The frames are consecutive; other bytes may be before and after them.
        start = int(self.offsets[0]) - SIZE_FIELD_BYTES
        stop = int(self.offsets[-1]) + int(self.sizes[-1])
        if start == 0 and stop == len(self.buffer):
            columns = self.entries, self.buffer, self.offsets, self.sizes
            return self if self._known_chained else RecordBatch.of_frames(*columns)
        frames = memoryview(self.buffer)[start:stop]
        return RecordBatch.of_frames(self.entries, frames, self.offsets - start, self.sizes)

    def _is_chained(self) -> bool:
        """Return whether the records are consecutive frames; compares offsets and sizes."""
        ends = self.offsets + self.sizes
        has_gap = (ends[:-1] + SIZE_FIELD_BYTES != self.offsets[1:]).any()
        return not has_gap and self._is_framed()

    def _is_framed(self) -> bool:
        """Return whether each record has its size as prefix."""
        size_offsets = self.offsets - SIZE_FIELD_BYTES
        if int(size_offsets.min()) < 0:
            return False
        stored_sizes = integers_at_every_offset(self.octets, ">i4")[size_offsets]
        return bool((stored_sizes == self.sizes).all())

    def _with_consecutive_frames(self) -> RecordBatch:
        ends = np.cumsum(self.sizes + SIZE_FIELD_BYTES)
        buffer = self._copy_frames() if self._is_framed() else self._write_frames()
        return RecordBatch.of_frames(self.entries, buffer, ends - self.sizes, self.sizes)

    def _copy_frames(self) -> bytes | memoryview:
        """Return a copy of the frames. Long chains (adjacent frames in the buffer) are copied
        whole, frames of one size in short chains by a single indexing."""
        record_size, chain_starts = int(self.sizes[0]), self._chain_starts()
        if len(chain_starts) * _MIN_MEAN_CHAIN <= len(self) or (self.sizes != record_size).any():
            return self._join_chains(chain_starts)
        frame_starts, frame_size = self.offsets - SIZE_FIELD_BYTES, SIZE_FIELD_BYTES + record_size
        return bytes_at(self.octets, frame_starts, frame_size).reshape(-1).data

    def _write_frames(self) -> bytes | memoryview:
        """Return the records as consecutive frames in a new buffer: each after its size."""
        size = int(self.sizes[0])
        if (self.sizes != size).any():
            return _frame_records(self.records(), self.sizes)
        frames = np.empty((len(self), SIZE_FIELD_BYTES + size), np.uint8)
        frames[:, :SIZE_FIELD_BYTES] = list(size.to_bytes(SIZE_FIELD_BYTES, "big"))
        frames[:, SIZE_FIELD_BYTES:] = bytes_at(self.octets, self.offsets, size)
        return frames.reshape(-1).data

    def _chain_starts(self) -> Int64Array:
        """Return the indexes of the records that do not directly follow the previous one, and 0."""
        ends = (self.offsets + self.sizes)[:-1]
        return np.append(0, np.flatnonzero(self.offsets[1:] - SIZE_FIELD_BYTES != ends) + 1)

    def _join_chains(self, chain_starts: Int64Array) -> bytes:
        """Return the frames, copied chain by chain; a chain is of frames adjacent in the buffer."""
        view, last_rows = memoryview(self.buffer), np.append(chain_starts[1:], len(self)) - 1
        starts = self.offsets[chain_starts] - SIZE_FIELD_BYTES
        stops = (self.offsets + self.sizes)[last_rows]
        return b"".join([view[start:stop] for start, stop in zip(starts.tolist(), stops.tolist())])

    @classmethod
    def concatenate(cls, parts: Sequence[RecordBatch]) -> RecordBatch:
        """Return the concatenation of batches; a single one is returned itself."""
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return cls(_EMPTY, b"", _EMPTY, _EMPTY)
        buffer_sizes = np.array([len(batch.buffer) for batch in parts])
        starts = np.cumsum(buffer_sizes) - buffer_sizes
        return cls(
            np.concatenate([batch.entries for batch in parts]),
            b"".join(batch.buffer for batch in parts),
            np.concatenate([batch.offsets + start for batch, start in zip(parts, starts)]),
            np.concatenate([batch.sizes for batch in parts]),
            parts[-1].stopped,  # only the last batch can have ended early
            _known_chained=all(batch._fills_its_buffer() for batch in parts),
        )

    def _fills_its_buffer(self) -> bool:
        """Return whether the buffer is known to be the records' frames and nothing else."""
        if not len(self):
            return not len(self.buffer)
        first, stop = int(self.offsets[0]), int(self.offsets[-1]) + int(self.sizes[-1])
        return self._known_chained and first == SIZE_FIELD_BYTES and stop == len(self.buffer)


def _frame_records(records: Sequence[bytes], sizes: Int64Array) -> bytes:
    """Return the records, of these sizes, each with its size before it."""
    if not sizes.size:
        return b""
    if (sizes == sizes[0]).all():  # the same size prefix before all records, so a join does it
        return int(sizes[0]).to_bytes(SIZE_FIELD_BYTES, "big").join((b"", *records))
    parts: list[bytes] = [b""] * (2 * sizes.size)  # size and record in turn
    parts[::2], parts[1::2] = sizes.astype(">i4").view("V4").tolist(), records
    return b"".join(parts)
