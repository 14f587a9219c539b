"""LogAccount: what every byte of an entry log is used for, as found by a scan: how much of the file
is damaged, and that the rest was read. Format: `docs/formats/entrylog.md`."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from bkstore.errors import CorruptionError
from bkstore.formats.entrylog import DIRECT_HEADER_SIZE, HEADER_SIZE, decode_map_batch
from bkstore.formats.syntax.framing import PREFIX
from bkstore.ids import LedgerId
from bkstore.storage.entry_log.resynchronization import ENTRY, FILLER, MAP, Run


@dataclass
class LogAccount:
    """Bytes of an entry log by their use; `passed_over` has the (start, end) of damaged ranges.

    `header` counts the 1024 bytes, and the filler after them in a log of the direct-IO logger.
    Records and batches of the ledgers map count with the 4 bytes of their size. `padding` is 0xF0
    up to a multiple of 4096, and zeros at the end. `map_at` is the offset of the map's first batch,
    `map_sizes` its bytes per ledger, `map_errors` its errors as (offset, reason).
    """

    header: int = 0
    records: int = 0
    record_bytes: int = 0
    map: int = 0
    padding: int = 0
    passed_over: list[tuple[int, int]] = field(default_factory=list)
    map_at: int | None = None
    map_sizes: dict[LedgerId, int] = field(default_factory=dict)
    map_errors: list[tuple[int, str]] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        """The bytes with a known use; with those in `passed_over`, the file's size."""
        return self.header + self.record_bytes + self.map + self.padding

    def take(self, run: Run) -> None:
        """Count the frames of a run."""
        is_entry = run.kinds == ENTRY
        self.records += int(np.count_nonzero(is_entry))
        self.record_bytes += int(run.sizes[is_entry].sum()) + PREFIX * int(is_entry.sum())
        for frame in np.flatnonzero(~is_entry).tolist():
            size = int(run.sizes[frame])
            if run.kinds[frame] == FILLER:
                self.header += DIRECT_HEADER_SIZE - HEADER_SIZE
            elif run.kinds[frame] == MAP:
                self.map += PREFIX + size
                self._count_map_batch(run, frame, size)

    def _count_map_batch(self, run: Run, frame: int, size: int) -> None:
        batch_offset, start = run.start(frame), int(run.offsets[frame])
        if self.map_at is None:
            self.map_at = batch_offset
        try:
            pairs = decode_map_batch(run.data[start : start + size].tobytes())
        except CorruptionError as error:
            self.map_errors.append((batch_offset, error.reason))
            return
        for ledger_id, ledger_bytes in pairs:
            self.map_sizes[ledger_id] = self.map_sizes.get(ledger_id, 0) + ledger_bytes
