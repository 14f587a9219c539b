"""OpenLog: one entry log that takes records, with its write buffer and ledgers map."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bkstore.files.disk_changes import Files
from bkstore.files.os_errors import convert_sync_errors, convert_write_errors
from bkstore.formats import entrylog
from bkstore.formats.entry import BatchLedgers, RecordBatch
from bkstore.formats.entrylog import HEADER_SIZE, MAP_FIELDS_OFFSET, SIZE_FIELD_BYTES, LogMetadata
from bkstore.ids import Int64Array, LedgerId, make_locations

MAX_LOG_BYTES = 2**31 - 1
"""Largest size of a log: positions are 32-bit, and BookKeeper reads them as signed."""

_BUFFER_SIZE = 64 << 10  # writeBufferSizeBytes


class OpenLog:
    """A log that takes records: its file, the number of bytes written, and the write buffer. After
    `WriteFailed` (such as on a full disk) the buffer stays, and the next attempt writes at the same
    position. Threads: the caller holds the `EntryLogger`'s lock."""

    def __init__(self, log_id: int, path: Path, fd: int, files: Files) -> None:
        self.log_id = log_id
        self.path = path
        self.fd = fd
        self.version = entrylog.VERSION_1
        self.written_bytes = HEADER_SIZE
        self.buffer = bytearray()
        self._metadata = LogMetadata(log_id)
        self._uncounted_ledger: LedgerId | None = None
        self._uncounted_bytes = 0
        """Bytes of the latest records, all of `_uncounted_ledger`, that `_metadata` lacks."""
        self._files = files

    @property
    def end(self) -> int:
        """The position after the last record, buffered or not."""
        return self.written_bytes + len(self.buffer)

    @property
    def metadata(self) -> LogMetadata:
        """The ledgers of the log, with the bytes of each."""
        if self._uncounted_ledger is not None:
            self._metadata.add(self._uncounted_ledger, self._uncounted_bytes)
            self._uncounted_ledger = None
        return self._metadata

    # -- appending

    def try_add(self, ledger: LedgerId, record: bytes, limit: int) -> int:
        """Append one record and return its location; 0, without appending, if the buffer is full or
        the log would exceed `limit`."""
        size, buffer = len(record), self.buffer
        buffered = len(buffer)
        position = self.written_bytes + buffered + SIZE_FIELD_BYTES
        if buffered >= _BUFFER_SIZE or position + size > limit:
            return 0
        buffer += size.to_bytes(SIZE_FIELD_BYTES, "big") + record
        # Comparing objects is fastest; an equal id in another object only closes the sum early.
        if ledger is not self._uncounted_ledger:
            self._start_sum_of(ledger)
        self._uncounted_bytes += SIZE_FIELD_BYTES + size
        return self.log_id << 32 | position

    def add(self, ledger: LedgerId, record: bytes) -> int:
        """Append one record, buffered, and return its location."""
        self.write_if_full()
        return self.try_add(ledger, record, limit=1 << 32)  # the caller has checked the size

    def _start_sum_of(self, ledger: LedgerId) -> None:
        """Start to sum the bytes of another ledger; add the last ledger's sum to the metadata."""
        if self._uncounted_ledger is not None:
            self._metadata.add(self._uncounted_ledger, self._uncounted_bytes)
        self._uncounted_ledger, self._uncounted_bytes = ledger, 0

    def add_batch(self, batch: RecordBatch, ledgers: BatchLedgers) -> Int64Array:
        """Append the records of a framed batch and return their locations, int64[n]. A batch that
        exceeds the write buffer is written without a copy."""
        positions = self.end + batch.offsets  # of the records themselves, as locations have them
        if len(self.buffer) + len(batch.buffer) < _BUFFER_SIZE:
            self.buffer += batch.buffer
        else:
            self.write_buffered()
            with convert_write_errors(self.path):
                self._files.pwrite(self.fd, batch.buffer, self.written_bytes)
            self.written_bytes += len(batch.buffer)
        self.metadata.add_all(_bytes_by_ledger(batch, ledgers))
        return make_locations(self.log_id, positions)

    def write_if_full(self) -> None:
        """Write the buffer if it is full."""
        if len(self.buffer) >= _BUFFER_SIZE:
            self.write_buffered()

    def write_buffered(self) -> None:
        """Write the buffer to the file, without a sync."""
        if self.buffer:
            with convert_write_errors(self.path):
                self._files.pwrite(self.fd, self.buffer, self.written_bytes)
            self.written_bytes += len(self.buffer)
            self.buffer = bytearray()

    def set_version_2(self) -> None:
        """Change the log to version 2, which a record needs if its ledger id has a scope (an upper
        half) other than 0."""
        if self.version != entrylog.VERSION_2:
            with convert_write_errors(self.path):
                # In the header the version, a 4-byte integer, follows the 4 bytes "BKLO".
                self._files.pwrite(self.fd, entrylog.VERSION_2.to_bytes(4, "big"), 4)
            self.version = entrylog.VERSION_2

    # -- the end

    def write_ledgers_map(self) -> None:
        """Append the ledgers map, then point the header at it, so never at a partial map. A log
        without records has none; nor has one that the map would make longer than 2^31-1 bytes."""
        self.write_buffered()
        sizes = self.metadata.ledgers
        ledgers_map = entrylog.encode_ledgers_map(sizes)
        if ledgers_map and self.written_bytes + len(ledgers_map) <= MAX_LOG_BYTES:
            fields = entrylog.encode_map_fields(self.written_bytes, len(sizes))
            with convert_write_errors(self.path):
                self._files.pwrite(self.fd, ledgers_map, self.written_bytes)
                self._files.pwrite(self.fd, fields, MAP_FIELDS_OFFSET)

    def sync(self) -> None:
        """Write the buffer and sync the file, but not its directory."""
        self.write_buffered()
        with convert_sync_errors(self.path):
            self._files.fsync(self.fd)

    def close(self) -> None:
        """Close the file as it is. Idempotent."""
        if self.fd >= 0:
            self._files.close(self.fd)
            self.fd = -1


def _bytes_by_ledger(batch: RecordBatch, ledgers: BatchLedgers) -> list[tuple[LedgerId, int]]:
    """Return (ledger id, bytes of its frames), in the order of first appearance."""
    if ledgers.numbers is None:  # all frames are of one ledger, if there are any
        return [(ledger_id, len(batch.buffer)) for ledger_id in ledgers.ledger_ids]
    ledger_bytes = np.zeros(len(ledgers.ledger_ids), np.int64)
    np.add.at(ledger_bytes, ledgers.numbers, batch.sizes + SIZE_FIELD_BYTES)
    return list(zip(ledgers.ledger_ids, ledger_bytes.tolist()))
