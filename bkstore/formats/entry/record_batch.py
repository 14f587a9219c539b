"""RecordBatch: many records as one buffer, with where each begins, how long it is, its entry id."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bkstore.errors import CorruptionError
from bkstore.ids import Int64Array

__all__ = ["RecordBatch"]

_PREFIX = 4
"""What stands before a record in entry logs and frames: its size."""

_NONE = np.empty(0, np.int64)


@dataclass(frozen=True)
class RecordBatch(Sequence[memoryview]):
    """Records of one ledger as one buffer: record i is ``buffer[offsets[i]:][:sizes[i]]``.

    `entries`, `offsets` and `sizes` are int64[n]. Between the records other bytes may stand.
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
    def of(
        cls,
        records: Sequence[bytes],
        entries: Sequence[int] | Int64Array,
        max_bytes: int | None = None,
    ) -> RecordBatch:
        """Return a batch of separate records; copies them once.

        It ends with the record that passes `max_bytes` (4 + size each).
        """
        sizes = np.fromiter(map(len, records), np.int64, len(records))
        ends, ids = np.cumsum(sizes), np.asarray(entries, np.int64)
        if max_bytes is not None and ends.size and ends[-1] + _PREFIX * ends.size > max_bytes:
            frames = ends + _PREFIX * np.arange(1, ends.size + 1)
            count = int(np.searchsorted(frames, max_bytes, "right")) + 1
            records, ids, sizes, ends = records[:count], ids[:count], sizes[:count], ends[:count]
        return cls(ids, b"".join(records), ends - sizes, sizes)

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
        if count >= len(self):
            return self
        return RecordBatch(
            self.entries[:count], self.buffer, self.offsets[:count], self.sizes[:count]
        )

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
