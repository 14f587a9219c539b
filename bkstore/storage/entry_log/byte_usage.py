"""LogByteUsage: what every byte of an entry log is used for, as found by a scan: how much of the
file is damaged, and that the rest was read. Format: `docs/formats/entrylog.md`."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from bkstore.errors import CorruptionError
from bkstore.formats.entrylog import DIRECT_HEADER_SIZE, HEADER_SIZE, decode_map_batch
from bkstore.formats.syntax.framing import SIZE_FIELD_BYTES
from bkstore.ids import LedgerId
from bkstore.storage.entry_log.resynchronization import ENTRY, FILLER, MAP, FrameRun


@dataclass
class LogByteUsage:
    """Bytes of an entry log by their use; `skipped_ranges` has the (start, end) of damaged ranges.

    `header_bytes` counts the 1024 bytes, and the filler after them in a log of the direct-IO
    logger. Records and batches of the ledgers map count with the 4 bytes of their size.
    `padding_bytes` is 0xF0 up to a multiple of 4096, and zeros at the end. `map_offset` is that of
    the map's first batch, `map_ledger_bytes` its bytes per ledger; `map_errors`: (offset, reason).
    """

    header_bytes: int = 0
    record_count: int = 0
    record_bytes: int = 0
    map_bytes: int = 0
    padding_bytes: int = 0
    skipped_ranges: list[tuple[int, int]] = field(default_factory=list)
    map_offset: int | None = None
    map_ledger_bytes: dict[LedgerId, int] = field(default_factory=dict)
    map_errors: list[tuple[int, str]] = field(default_factory=list)

    @property
    def known_bytes(self) -> int:
        """The bytes with a known use; with those in `skipped_ranges`, the file's size."""
        return self.header_bytes + self.record_bytes + self.map_bytes + self.padding_bytes

    def count_frames(self, run: FrameRun) -> None:
        """Count the bytes of a run (adjacent frames, each a size and a record) by what its frames
        are: entries, the filler of a long header, or batches of the ledgers map."""
        is_entry = run.kinds == ENTRY
        self.record_count += int(np.count_nonzero(is_entry))
        self.record_bytes += int(run.sizes[is_entry].sum()) + SIZE_FIELD_BYTES * int(is_entry.sum())
        for frame in np.flatnonzero(~is_entry).tolist():
            size = int(run.sizes[frame])
            if run.kinds[frame] == FILLER:  # it makes the header as long as direct I/O requires
                self.header_bytes += DIRECT_HEADER_SIZE - HEADER_SIZE
            elif run.kinds[frame] == MAP:
                self.map_bytes += SIZE_FIELD_BYTES + size
                self._count_map_batch(run, frame, size)

    def _count_map_batch(self, run: FrameRun, frame: int, size: int) -> None:
        """Count a batch of the ledgers map: its sizes by ledger, or why it cannot be decoded."""
        batch_offset = run.start_of(frame)  # in the file
        start = int(run.offsets[frame])  # of the record, in `run.data`
        if self.map_offset is None:
            self.map_offset = batch_offset
        try:
            pairs = decode_map_batch(run.data[start : start + size].tobytes())
        except CorruptionError as error:
            self.map_errors.append((batch_offset, error.reason))
            return
        sums = self.map_ledger_bytes
        for ledger_id, ledger_bytes in pairs:
            sums[ledger_id] = sums.get(ledger_id, 0) + ledger_bytes
