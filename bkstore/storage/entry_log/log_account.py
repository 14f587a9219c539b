"""What every byte of an entry log is for, as a scan met it.

A scan that names its findings says what was wrong; the account says how much of the file that is,
and that the rest was read. Format: `docs/formats/entrylog.md`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from bkstore.errors import CorruptionError
from bkstore.formats.entrylog import DIRECT_HEADER_SIZE, HEADER_SIZE, decode_map_batch
from bkstore.formats.syntax.framing import PREFIX
from bkstore.ids import LedgerId
from bkstore.storage.entry_log.resync import ENTRY, FILLER, MAP, Run


@dataclass
class LogAccount:
    """Bytes of an entry log by what they are for; `passed_over` has the (start, end) of the rest.

    `header` counts the 1024 bytes, and the filler behind them in a log of the direct-IO logger.
    Records and batches of the ledgers map count with the 4 bytes of their size. `padding` is
    0xF0 up to a multiple of 4096, and zeros at the end. `map_at` is where the first batch of the
    map begins, `map_sizes` what the batches say, `map_errors` what is wrong in them as (offset,
    reason).
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
        """The bytes that are for something; with those passed over, the file's size."""
        return self.header + self.record_bytes + self.map + self.padding

    def take(self, run: Run) -> None:
        """Count the frames of a run."""
        entries = run.kinds == ENTRY
        self.records += int(np.count_nonzero(entries))
        self.record_bytes += int(run.sizes[entries].sum()) + PREFIX * int(entries.sum())
        for at in np.flatnonzero(~entries).tolist():
            size = int(run.sizes[at])
            if run.kinds[at] == FILLER:
                self.header += DIRECT_HEADER_SIZE - HEADER_SIZE
            elif run.kinds[at] == MAP:
                self.map += PREFIX + size
                self._take_map(run, at, size)

    def _take_map(self, run: Run, at: int, size: int) -> None:
        place, start = run.start(at), int(run.offsets[at])
        if self.map_at is None:
            self.map_at = place
        try:
            pairs = decode_map_batch(run.data[start : start + size].tobytes())
        except CorruptionError as error:
            self.map_errors.append((place, error.reason))
            return
        for ledger, count in pairs:
            self.map_sizes[ledger] = self.map_sizes.get(ledger, 0) + count
