"""RecordBatch: many records as one buffer, with where each begins, how long it is, its entry id.

The currency between encoder, journal, write cache, entry log and batch reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from bkstore.arguments import data, each
from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.formats.syntax.framing import PREFIX, bytes_at, words_at
from bkstore.ids import Int64Array, as_int64

_NONE = np.empty(0, np.int64)

_LONG = 16
"""Records that stretches of frames have on average, for copies by stretch to be quicker than by
record: some 100 ns a stretch, 15 a record."""


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
    _chained: bool = field(default=False, repr=False, compare=False)
    """Whether the records are known to be frames one behind the other, in a buffer that nobody
    else changes, so that `framed` need not look."""

    @classmethod
    def of_frames(
        cls,
        entries: Int64Array,
        buffer: bytes | memoryview,
        offsets: Int64Array,
        sizes: Int64Array,
    ) -> RecordBatch:
        """Return a batch of records that a scan or an encoder put or found in frames.

        That they are so is not checked again; `framed` of it is a slice.
        """
        return cls(entries, buffer, offsets, sizes, None, True)

    @classmethod
    def of(cls, records: Sequence[bytes], entries: Sequence[int] | Int64Array) -> RecordBatch:
        """Return a framed batch of separate records; copies them once."""
        if not {bytes}.issuperset(map(type, each("records", records))):
            records = [data(f"records[{at}]", record) for at, record in enumerate(records)]
        ids = as_int64(entries, "entry ids")
        if ids.size != len(records):
            raise InvalidArgument(f"{len(records)} records, but {ids.size} entry ids")
        sizes = np.fromiter(map(len, records), np.int64, len(records))
        ends = np.cumsum(sizes + PREFIX)
        return cls.of_frames(ids, _in_frames(records, sizes), ends - sizes, sizes)

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
        columns = self.entries[part], self.buffer, self.offsets[part], self.sizes[part]
        return RecordBatch(*columns, None, self._chained)

    def at(self, rows: Int64Array) -> RecordBatch:
        """Return the records of these numbers, in this order; shares the buffer."""
        return RecordBatch(self.entries[rows], self.buffer, self.offsets[rows], self.sizes[rows])

    # -- frames

    def framed(self) -> RecordBatch:
        """Return the same records with a buffer that is their frames, one behind the other.

        A frame is the record's size (i32) and the record, as journals and entry logs have it.
        No copy where the records stand so already: some 10 ns a record to see it, none for those
        of `Coder.encode_batch`, of a scan, or of `framed` itself. Else one copy: some 30 ns a
        record where all are of one size, 200 where not.

        >>> batch = RecordBatch.of([b"first", b"second"], [0, 1]).framed()
        >>> batch.buffer.hex(" ", 5), batch.offsets.tolist()
        ('00000005 6669727374 0000000673 65636f6e64', [4, 13])
        """
        if not len(self):
            return RecordBatch.of_frames(self.entries, b"", self.offsets, self.sizes)
        if not (self._chained or self._is_chain()):
            return self._with_frames()
        start = int(self.offsets[0]) - PREFIX
        stop = int(self.offsets[-1]) + int(self.sizes[-1])
        if start == 0 and stop == len(self.buffer):
            columns = self.entries, self.buffer, self.offsets, self.sizes
            return self if self._chained else RecordBatch.of_frames(*columns)
        part = memoryview(self.buffer)[start:stop]
        return RecordBatch.of_frames(self.entries, part, self.offsets - start, self.sizes)

    def _is_chain(self) -> bool:
        """Return whether the records are frames, one behind the other."""
        ends = self.offsets + self.sizes
        apart = (ends[:-1] + PREFIX != self.offsets[1:]).any()
        return not apart and int(self.offsets[0]) >= PREFIX and self._sized()

    def _sized(self) -> bool:
        """Return whether each record has its size before it."""
        said = words_at(np.frombuffer(self.buffer, np.uint8), ">i4")[self.offsets - PREFIX]
        return bool((said == self.sizes).all())

    def _with_frames(self) -> RecordBatch:
        ends = np.cumsum(self.sizes + PREFIX)
        buffer = self._gathered() if self._is_in_frames() else self._written()
        return RecordBatch.of_frames(self.entries, buffer, ends - self.sizes, self.sizes)

    def _gathered(self) -> bytes | memoryview:
        """Return frames that are there already one behind the other."""
        size, chains = int(self.sizes[0]), self._chains()
        if len(chains) * _LONG <= len(self) or (self.sizes != size).any():
            return self._joined_chains(chains)
        data = np.frombuffer(self.buffer, np.uint8)
        return bytes_at(data, self.offsets - PREFIX, PREFIX + size).reshape(-1).data

    def _written(self) -> bytes | memoryview:
        """Return the records one behind the other, each with its size before it."""
        size = int(self.sizes[0])
        if (self.sizes != size).any():
            return _in_frames(self.records(), self.sizes)
        table = np.empty((len(self), PREFIX + size), np.uint8)
        table[:, :PREFIX] = np.frombuffer(size.to_bytes(PREFIX, "big"), np.uint8)
        table[:, PREFIX:] = bytes_at(np.frombuffer(self.buffer, np.uint8), self.offsets, size)
        return table.reshape(-1).data

    def _is_in_frames(self) -> bool:
        """Return whether each record is a frame, wherever it stands."""
        return int(self.offsets.min()) >= PREFIX and self._sized()

    def _chains(self) -> Int64Array:
        """Return at which records something else than the next frame stands before, 0 too."""
        behind = (self.offsets + self.sizes)[:-1]
        return np.append(0, np.flatnonzero(self.offsets[1:] - PREFIX != behind) + 1)

    def _joined_chains(self, chains: Int64Array) -> bytes:
        """Return frames by stretches of them, which begin at the records `chains`."""
        view, last = memoryview(self.buffer), np.append(chains[1:] - 1, len(self) - 1)
        starts, stops = self.offsets[chains] - PREFIX, (self.offsets + self.sizes)[last]
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
            all(part._fills_its_buffer() for part in parts),
        )

    def _fills_its_buffer(self) -> bool:
        """Return whether it is known to be frames, and the buffer has nothing else."""
        if not len(self):
            return not len(self.buffer)
        stop = int(self.offsets[-1]) + int(self.sizes[-1])
        return self._chained and int(self.offsets[0]) == PREFIX and stop == len(self.buffer)


def _in_frames(records: Sequence[bytes], sizes: Int64Array) -> bytes:
    """Return records one behind the other, each with its size before it."""
    if not sizes.size:
        return b""
    if (sizes == sizes[0]).all():
        return int(sizes[0]).to_bytes(PREFIX, "big").join((b"", *records))
    parts: list[bytes] = [b""] * (2 * sizes.size)
    parts[::2], parts[1::2] = sizes.astype(">i4").view("V4").tolist(), records
    return b"".join(parts)
