"""OpenLog: one entry log that takes records; its write buffer, its ledgers, its end."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bkstore.files.disk_changes import Files
from bkstore.files.os_errors import syncing, writing
from bkstore.formats import entrylog
from bkstore.formats.entry import BatchLedgers, RecordBatch
from bkstore.formats.entrylog import HEADER_SIZE, MAP_FIELDS_OFFSET, PREFIX, LogMetadata
from bkstore.ids import Int64Array, LedgerId, make_locations

HARD_LIMIT = 2**31 - 1
"""Bytes that a log can have: positions are 32-bit, and upstream takes them for signed."""

_BUFFER = 64 << 10  # writeBufferSizeBytes


class OpenLog:
    """A log that takes records: its file, what is written, what is still buffered.

    A write that fails (`WriteFailed`, a full disk say) takes nothing: what was buffered stays so,
    and the next try writes at the same place. Threads: those of its `EntryLogger`'s lock.
    """

    def __init__(self, log_id: int, path: Path, fd: int, files: Files) -> None:
        self.log_id = log_id
        self.path = path
        self.fd = fd
        self.version = entrylog.VERSION_1
        self.written = HEADER_SIZE
        self.buffer = bytearray()
        self._metadata = LogMetadata(log_id)
        self._last: LedgerId | None = None
        self._last_bytes = 0
        self._files = files

    @property
    def end(self) -> int:
        """The position behind the last record, buffered ones included."""
        return self.written + len(self.buffer)

    @property
    def metadata(self) -> LogMetadata:
        """Which ledgers the log has, with their bytes."""
        if self._last is not None:
            self._metadata.add(self._last, self._last_bytes)
            self._last = None
        return self._metadata

    # -- appending

    def try_add(self, ledger: LedgerId, record: bytes, limit: int) -> int:
        """Append one record and return its location; 0 where the buffer or the log is full.

        Full is a log that would grow past `limit`.
        """
        size, buffer = len(record), self.buffer
        buffered = len(buffer)
        position = self.written + buffered + PREFIX
        if buffered >= _BUFFER or position + size > limit:
            return 0
        buffer += size.to_bytes(PREFIX, "big") + record
        if ledger is not self._last:
            self._count(ledger)
        self._last_bytes += PREFIX + size
        return self.log_id << 32 | position

    def add(self, ledger: LedgerId, record: bytes) -> int:
        """Append one record, buffered, and return its location."""
        self.push_if_full()
        return self.try_add(ledger, record, 1 << 32)

    def _count(self, ledger: LedgerId) -> None:
        """Begin to count the bytes of another ledger: those of many single adds in one sum."""
        if self._last is not None:
            self._metadata.add(self._last, self._last_bytes)
        self._last, self._last_bytes = ledger, 0

    def add_batch(self, batch: RecordBatch, ledgers: BatchLedgers) -> Int64Array:
        """Append the records of a framed batch and return their locations, int64[n].

        What fits into the write buffer waits there; more is written at once, without a copy.
        """
        positions = self.end + batch.offsets
        if len(self.buffer) + len(batch.buffer) < _BUFFER:
            self.buffer += batch.buffer
        else:
            self.push()
            with writing(self.path):
                self._files.pwrite(self.fd, batch.buffer, self.written)
            self.written += len(batch.buffer)
        self.metadata.add_all(_bytes_of_each(batch, ledgers))
        return make_locations(self.log_id, positions)

    def push_if_full(self) -> None:
        """Write the buffer if it is full."""
        if len(self.buffer) >= _BUFFER:
            self.push()

    def push(self) -> None:
        """Hand what is buffered to the operating system. No sync."""
        if self.buffer:
            with writing(self.path):
                self._files.pwrite(self.fd, self.buffer, self.written)
            self.written += len(self.buffer)
            self.buffer = bytearray()

    def mark_wide(self) -> None:
        """Make the log one of version 2, before a record of another scope than 0."""
        if self.version != entrylog.VERSION_2:
            with writing(self.path):
                self._files.pwrite(self.fd, entrylog.VERSION_2.to_bytes(4, "big"), 4)
            self.version = entrylog.VERSION_2

    # -- the end

    def finish(self) -> None:
        """Append the ledgers map, then point the header at it; a cut-off map is not named."""
        self.push()
        sizes = self.metadata.ledgers
        ledgers_map = entrylog.encode_ledgers_map(sizes)
        if ledgers_map and self.written + len(ledgers_map) <= HARD_LIMIT:
            fields = entrylog.encode_map_fields(self.written, len(sizes))
            with writing(self.path):
                self._files.pwrite(self.fd, ledgers_map, self.written)
                self._files.pwrite(self.fd, fields, MAP_FIELDS_OFFSET)

    def sync(self) -> None:
        """Write what is buffered, and make all of it durable; not the file's name."""
        self.push()
        with syncing(self.path):
            self._files.fsync(self.fd)

    def close(self) -> None:
        """Close the file as it is. Idempotent."""
        if self.fd >= 0:
            self._files.close(self.fd)
            self.fd = -1


def _bytes_of_each(batch: RecordBatch, ledgers: BatchLedgers) -> list[tuple[LedgerId, int]]:
    """Return the bytes of each ledger's frames, in the order in which they first appear."""
    if ledgers.numbers is None:
        return [(name, len(batch.buffer)) for name in ledgers.names]
    sums = np.zeros(len(ledgers.names), np.int64)
    np.add.at(sums, ledgers.numbers, batch.sizes + PREFIX)
    return list(zip(ledgers.names, sums.tolist()))
