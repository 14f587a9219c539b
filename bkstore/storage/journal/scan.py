"""Scanning a journal file: its records in order, and where and how its data end.

A journal has no checksums; each record's length leads to the next record. So the data end where
a length is missing (end of file), zero (preallocated space) or invalid. What the real scanner
(`Journal.scanJournal`) skips silently is a finding here. Format: `docs/formats/journal.md`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bkstore.counts import format_count
from bkstore.errors import CorruptionError, DirectoryInUse, InvalidArgument
from bkstore.files.opening import open_regular, read_fully
from bkstore.files.os_errors import convert_read_errors
from bkstore.formats.entry import RecordBatch
from bkstore.formats.journal import (
    ALIGNMENT,
    PADDED_VERSION,
    PADDING_MASK,
    JournalRecord,
    decode_header,
    decode_record,
    entry_ids_of_records,
)
from bkstore.formats.syntax.framing import SIZE_FIELD_BYTES, Frames, find_frames
from bkstore.ids import Int64Array
from bkstore.index.api import Finding, Severity
from bkstore.storage.journal.torn_records import has_unwritten_ids

CHUNK_BYTES = 1 << 20
"""Bytes read at once. More is no quicker: a MiB stays in the processor's cache."""

_TAIL_SEARCH_BYTES = 16 << 20
"""How far after a zero length to look for data: one step of preallocation."""


class ScannedRecord(NamedTuple):
    """One record: the offset of its length field, and its bytes without the length."""

    offset: int
    data: bytes


class _Window:
    """A file read forward in large chunks: `data` is the chunk at offset `base`."""

    def __init__(self, fd: int, path: Path) -> None:
        """Read a file through a window: `data` is at offset `base`."""
        self.fd = fd
        self.path = path
        self.size = os.fstat(fd).st_size
        self.base = 0
        self.data = b""

    def read(self, offset: int, count: int) -> bytes:
        """Return `count` bytes, which lie within the file's size."""
        start = self.load(offset, count)
        return self.data[start : start + count]

    def load(self, offset: int, count: int) -> int:
        """Load `count` bytes at `offset` into `data`; return their index there."""
        start = offset - self.base
        if start < 0 or start + count > len(self.data):
            self.data = b""  # free it before reading as much again
            with convert_read_errors(self.path):
                self.data = read_fully(self.fd, max(count, CHUNK_BYTES), offset)
            self.base, start = offset, 0
            if len(self.data) < count:
                raise DirectoryInUse(f"{self.path}: was truncated while it was read")
        return start


class JournalScan:
    """The records of one journal file, from `start` (0 = the first) to the end of its data.

    Iterating yields `ScannedRecord`; `records()` yields decoded records, `batches()` entries in
    arrays. Each iteration reads the file again, in chunks of 1 MiB (a longer record is read whole,
    after its length is checked against the file's size). About 0.5 microseconds a record, 2 if
    decoded; in batches 0.1 if records have one size, else 0.3. Threads: one iteration at a time.

    `version` is the file's format version. After an iteration, `stop` is the position at which it
    ended, as the real scanner returns it and as lastMark is set after a replay: after the length
    field that ended the data, or the end of the file. `findings` lists what was odd: a truncated
    record or length, a `start` beyond the end, data after the end (searched for in 16 MiB),
    negative lengths with `skip_invalid`, and with `skip_torn` records that a crash cut at a sector
    boundary inside their ids; the decoding iterators skip those.

    Raises `BkstoreError` if the file is missing or cannot be opened, and `CorruptionError` with
    file and offset: at once if it is not a journal file or of an unknown version; during an
    iteration if a read fails, or for a negative length that is not a padding mark (with
    `skip_invalid` the scan ends there, as with BookKeeper's `skipReplayJournalInvalidRecord`).
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        start: int = 0,
        *,
        skip_invalid: bool = False,
        skip_torn: bool = False,
    ) -> None:
        """Read the file's header. Raises `CorruptionError` if it is invalid."""
        if start < 0:
            raise InvalidArgument(f"a scan cannot start at position {start}")
        self.path = Path(path)
        self.skip_invalid = skip_invalid
        self.skip_torn = skip_torn
        with self._open_file() as fd, convert_read_errors(self.path):
            header_bytes = os.pread(fd, 8, 0)  # magic word and version
        try:
            header = decode_header(header_bytes)
        except CorruptionError as error:
            raise error.relocate(self.path) from None
        self.version = header.version
        self.start = start or header.size  # 0 means from the first record on
        self.stop = self.start
        self.findings: list[Finding] = []

    def __iter__(self) -> Iterator[ScannedRecord]:
        for base, data, frames in self._read_frames():
            for start, size in zip(frames.offsets.tolist(), frames.sizes.tolist()):
                yield ScannedRecord(base + start - SIZE_FIELD_BYTES, data[start : start + size])

    def _read_frames(self) -> Iterator[tuple[int, bytes, Frames]]:
        """Yield (file offset, bytes, frames within them) of each chunk; reset `findings`."""
        self.stop, self.findings = self.start, []
        with self._open_file() as fd:
            yield from self._walk_frames(_Window(fd, self.path))

    @contextmanager
    def _open_file(self) -> Iterator[int]:
        """Open the file for reading, and close it after the ``with`` block."""
        with convert_read_errors(self.path):
            fd = open_regular(self.path)
        try:
            yield fd
        finally:
            os.close(fd)

    def records(self) -> Iterator[tuple[int, JournalRecord]]:
        """Yield (offset of the length field, decoded record). Raises `CorruptionError` for a
        malformed record, or a kind that the file's version lacks. Digests are not verified."""
        for offset, data in self:
            record = self._decode_or_skip(offset, data)
            if record is not None:
                yield offset, record

    def _decode_or_skip(self, offset: int, data: bytes) -> JournalRecord | None:
        """Return the decoded record, or None with a finding if it is torn and `skip_torn`."""
        try:
            return decode_record(data, self.version)
        except CorruptionError as error:
            if self.skip_torn and has_unwritten_ids(self.path, offset, data):
                detail = f"record is torn, its ids end in zeros ({error.reason}): skipped"
                self.findings.append(Finding("damage", detail, str(self.path), offset))
                return None
            raise error.relocate(self.path, offset + SIZE_FIELD_BYTES) from None

    def batches(self) -> Iterator[tuple[Int64Array, RecordBatch | JournalRecord]]:
        """Yield (offsets of the length fields, int64[n]; n entries as a batch), in order.

        Other records are yielded singly, decoded, with one offset. Yields and raises the same as
        `records()`, but n entries at a time: as many as are adjacent in a chunk of the file, of
        any ledgers. The batch shares the chunk's memory; `entries` has the entry ids.

        >>> import tempfile
        >>> from bkstore.formats.journal import encode_header, encode_record, encode_special
        >>> records = [encode_special("fence", 7), bytes(32), bytes(40)]
        >>> with tempfile.NamedTemporaryFile(suffix=".txn") as file:
        ...     data = encode_header(6) + b"".join(map(encode_record, records))
        ...     file.write(data), file.flush()
        ...     for offsets, found in scan_journal(file.name).batches():
        ...         print(offsets.tolist(), type(found).__name__)
        (612, None)
        [512] JournalRecord
        [532, 568] RecordBatch
        """
        for base, data, (offsets, sizes, _) in self._read_frames():
            entry_ids = entry_ids_of_records(np.frombuffer(data, np.uint8), offsets, sizes)
            file_offsets = offsets + (base - SIZE_FIELD_BYTES)
            # Entry id -1 marks records of other kinds: runs of entries become batches.
            for start, stop in _runs_of_equal(entry_ids >= 0):
                run = slice(start, stop)
                batch = _batch_of_frames(entry_ids[run], data, offsets[run], sizes[run])
                if entry_ids[start] >= 0:
                    yield file_offsets[run], batch
                    continue
                for row, record_bytes in zip(range(start, stop), batch.records()):
                    record = self._decode_or_skip(int(file_offsets[row]), record_bytes)
                    if record is not None:
                        yield file_offsets[row : row + 1], record

    def _walk_frames(self, window: _Window) -> Iterator[tuple[int, bytes, Frames]]:
        """Yield (file offset of a chunk, the chunk, the frames in it), in order. At the end of the
        data set `stop`, and add a finding unless they end as a bookie leaves them."""
        size, position = window.size, self.start
        padding = PADDING_MASK if self.version >= PADDED_VERSION else None
        while position + SIZE_FIELD_BYTES <= size:
            # The length tells what follows: a record, the end of the data, padding, or damage.
            length = int.from_bytes(window.read(position, SIZE_FIELD_BYTES), "big", signed=True)
            if length > size - position - SIZE_FIELD_BYTES:
                left_bytes = format_count(size - position - SIZE_FIELD_BYTES, "is", "are")
                detail = f"record of {format_count(length, 'byte')} is cut off: {left_bytes} left"
                return self._stop_with_finding(size, "damage", detail, position)
            if length > 0:  # take all adjacent records in the window at once
                first_frame = window.load(position, SIZE_FIELD_BYTES + length)
                data = np.frombuffer(window.data, np.uint8)
                frames = find_frames(data, first_frame, padding=padding)
                yield window.base, window.data, frames
                position = window.base + frames.end
            elif length == 0:
                return self._stop_at_zero_length(window, position + SIZE_FIELD_BYTES)
            elif length == padding:
                next_position = self._skip_padding(window, position)
                if next_position is None:
                    return None
                position = next_position
            else:
                reason = f"record length {length} is negative"
                return self._stop_at_invalid(position, position + SIZE_FIELD_BYTES, reason)
        return self._stop_at_file_end(window, position)

    def _skip_padding(self, window: _Window, position: int) -> int | None:
        """Return the position after a padding record; None, with a finding, if it is invalid."""
        length_offset = position + SIZE_FIELD_BYTES  # after the mask that marks padding
        size, stop = window.size, length_offset + SIZE_FIELD_BYTES
        if stop > size:
            detail = "padding record is cut off in its length"
            self._stop_with_finding(size, "oddity", detail, position)
            return None
        length_bytes = window.read(length_offset, SIZE_FIELD_BYTES)
        length = int.from_bytes(length_bytes, "big", signed=True)
        if length < 0:
            self._stop_at_invalid(position, stop, f"padding length {length} is negative")
            return None
        if length > size - stop:
            left_bytes = format_count(size - stop, "is", "are")
            detail = f"padding of {format_count(length, 'byte')} is cut off: {left_bytes} left"
            self._stop_with_finding(size, "oddity", detail, position)
            return None
        return stop + length

    def _stop_at_file_end(self, window: _Window, position: int) -> None:
        """Stop where fewer than four bytes are left; add a finding unless that is regular."""
        size = window.size
        self.stop = max(position, size)  # `position` is larger if the scan started beyond the end
        if position < size and not self._is_preallocated(window, position):
            detail = f"record length is cut off: {format_count(size - position, 'byte')}"
            return self._stop_with_finding(size, "damage", detail, position)
        if position > size:
            detail = f"file ends at {size}, the scan was to begin at {position}"
            self.findings.append(Finding("damage", detail, str(self.path), size))
        return None

    def _is_preallocated(self, window: _Window, position: int) -> bool:
        """Return whether the last bytes of a file are preallocated space after its records: only in
        unpadded versions can records leave fewer than four bytes of a preallocated block."""
        if self.version >= PADDED_VERSION or window.size % ALIGNMENT:
            return False
        return not any(window.read(position, window.size - position))

    def _stop_at_zero_length(self, window: _Window, position: int) -> None:
        """Stop at `position`, after a zero length; add a finding if data follow soon after it."""
        self.stop = position
        search_stop = min(window.size, position + _TAIL_SEARCH_BYTES)
        for chunk_start in range(position, search_stop, CHUNK_BYTES):
            chunk = window.read(chunk_start, min(CHUNK_BYTES, search_stop - chunk_start))
            if np.frombuffer(chunk, np.uint8).max():
                data_offset = chunk_start + len(chunk) - len(chunk.lstrip(b"\0"))
                place = "after the zero length that ends the file's records"
                detail = f"data at {data_offset}, {place}"
                self._stop_with_finding(position, "damage", detail, position - SIZE_FIELD_BYTES)
                return

    def _stop_at_invalid(self, offset: int, stop: int, reason: str) -> None:
        """Raise `CorruptionError`, or with `skip_invalid` stop with a finding."""
        if not self.skip_invalid:
            raise CorruptionError(self.path, offset, reason)
        self._stop_with_finding(stop, "damage", reason, offset)

    def _stop_with_finding(self, stop: int, severity: Severity, detail: str, offset: int) -> None:
        self.stop = stop
        self.findings.append(Finding(severity, detail, str(self.path), offset))


def _batch_of_frames(
    entry_ids: Int64Array, data: bytes, offsets: Int64Array, sizes: Int64Array
) -> RecordBatch:
    """Return frames as a batch, marked as framed unless there is padding between them."""
    has_padding = (offsets[1:] != offsets[:-1] + sizes[:-1] + SIZE_FIELD_BYTES).any()
    make_batch = RecordBatch if has_padding else RecordBatch.of_frames
    return make_batch(entry_ids, data, offsets, sizes)


def _runs_of_equal(values: npt.NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    edges = np.flatnonzero(values[1:] != values[:-1]) + 1
    return pairwise([0, *edges.tolist(), values.size])


def scan_journal(
    path: str | os.PathLike[str],
    start: int = 0,
    *,
    skip_invalid: bool = False,
    skip_torn: bool = False,
) -> JournalScan:
    """Return a scan of one journal file; see `JournalScan`.

    >>> import tempfile
    >>> from bkstore.formats.journal import encode_header, encode_record, encode_special
    >>> with tempfile.NamedTemporaryFile(suffix=".txn") as file:
    ...     data = encode_header(6) + encode_record(encode_special("fence", 7)) + bytes(100)
    ...     file.write(data), file.flush()
    ...     scan = scan_journal(file.name)
    ...     [(offset, record.kind) for offset, record in scan.records()]
    ...     scan.stop, scan.findings
    (632, None)
    [(512, 'fence')]
    (536, [])
    """
    return JournalScan(path, start, skip_invalid=skip_invalid, skip_torn=skip_torn)
