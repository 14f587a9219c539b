"""Reads records of entry logs at known locations: one by one, or many in few reads.

A location points at the record, 4 bytes after its size. Records are checked as BookKeeper checks
them (`DefaultEntryLogger.validateEntry`): size, ledger and entry id must match; anything else is
damage and never "not found". Digests are not checked: a bookie has no password.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from struct import Struct

import numpy as np

from bkstore.errors import CorruptionError
from bkstore.files.opening import open_regular
from bkstore.files.os_errors import read_error
from bkstore.formats.entry import V1_HEADER, V2_HEADER, RecordBatch, record_ids
from bkstore.formats.entrylog import SIZE_FIELD_BYTES
from bkstore.formats.syntax.framing import Bytes, integers_at_every_offset
from bkstore.ids import Int64Array, LedgerId
from bkstore.index.api import Closeable

_MIN_READ_SIZE, _READ_SIZE = 512, 2048
"""Bytes of a first read: while all records of a log were short, and after a longer one."""

_unpack_size = Struct(">i").unpack_from
_unpack_ids_v1 = Struct(">qq").unpack_from
_unpack_frame_start = Struct(">iqq").unpack_from  # the size, then the ids
_FRAME_START = np.dtype([("size", ">i4"), ("ledger", ">i8"), ("entry", ">i8")])
_FRAME_START_BYTES = np.dtype(f"V{_FRAME_START.itemsize}")
_MIN_FRAME_SIZE = SIZE_FIELD_BYTES + V1_HEADER
_IDS_V2 = Struct(">qqq")
_MAX_OPEN_LOGS = 64
WINDOW_BYTES = 8 << 20
"""Bytes that a batch read takes at once: enough for a batch of the default size limit."""

_SPARSE_FACTOR = 4
"""If less than one byte in so many of a buffer is needed, only the records are kept."""

_MAX_GAP = 16384
"""Largest distance of two records at which one read for both is cheaper than two."""

_MIN_RUN_LENGTH = 4  # shorter runs are read singly: an array read costs some 40 us
_MAX_SINGLES = 64

_NO_ENTRIES = np.empty(0, np.int64)


class OpenFile:
    """A file open for reading, as `fd`; closed with its last reference."""

    __slots__ = ("fd", "path", "read_size")

    def __init__(self, path: str) -> None:
        self.path = path
        self.read_size = _MIN_READ_SIZE
        self.fd = open_regular(path)

    def __del__(self) -> None:
        fd = getattr(self, "fd", None)
        if fd is not None:
            os.close(fd)


class LogReader(Closeable):
    """Reads records by location; `find_path(log_id)` returns a log's path, or None. Keeps up to 64
    logs open. Threads: safe, without a lock. Fork: safe (reads by position)."""

    def __init__(self, find_path: Callable[[int], str | os.PathLike[str] | None]) -> None:
        self._find_path = find_path
        self._open_files: dict[int, OpenFile] = {}

    def close(self) -> None:
        """Close the logs; a later read opens them again."""
        self._open_files.clear()

    def close_log(self, log_id: int) -> None:
        """Close one log, because it is being removed."""
        self._open_files.pop(log_id, None)

    def _open_log(self, log_id: int) -> OpenFile:
        """Return a log opened for reading; close the oldest beyond the limit."""
        handle = self._open_files.get(log_id)
        if handle is not None:
            return handle
        path = self._find_path(log_id)
        if path is None:
            raise CorruptionError(f"{log_id:x}.log", None, "no such entry log")
        try:
            handle = OpenFile(os.fspath(path))
        except FileNotFoundError:
            raise CorruptionError(path, None, "no such entry log") from None
        except OSError as error:
            raise read_error(error, path) from error
        self._open_files[log_id] = handle
        while len(self._open_files) > _MAX_OPEN_LOGS:
            self._open_files.pop(next(iter(self._open_files)), None)
        return handle

    def count_lost(self, locations: Int64Array) -> int:
        """Return how many leading locations point into one missing log or past its end. They can be
        reported together, as the cause is the same for each."""
        if not locations.size:
            return 0
        log_id, log_size = int(locations[0]) >> 32, 0
        with suppress(CorruptionError):
            log_size = os.fstat(self._open_log(log_id).fd).st_size
        # Locations from `first_lost` on are lost: all of a missing log, whose size counts as 0.
        first_lost, stop, part_size = (log_id << 32) + log_size, 0, 2048
        # In growing parts, so that a few lost ones at the start do not cost a pass over all.
        while stop < locations.size:
            part = locations[stop : stop + part_size]
            is_other = (part < first_lost) | (part >> 32 != log_id)
            if is_other.any():
                return stop + int(np.argmax(is_other))
            stop, part_size = stop + part.size, 2 * part_size
        return stop

    # -- one record

    def read(self, location: int, ledger: LedgerId, entry_id: int) -> bytes:
        """Return the record at a location, with one read, or two for a long record. Raises
        `CorruptionError` if there is no record, or that of another entry."""
        log_id, position = location >> 32, location & 0xFFFFFFFF
        handle = self._open_files.get(log_id) or self._open_log(log_id)
        # The position is that of the record; the size field is before it.
        offset = position - SIZE_FIELD_BYTES if position > SIZE_FIELD_BYTES else 0
        try:
            data = os.pread(handle.fd, handle.read_size, offset)
        except OSError as error:
            raise read_error(error, handle.path) from error
        # Most records are complete, of version 1, and those of the entry: return them at once.
        if len(data) >= _MIN_FRAME_SIZE:
            size, ledger_number, stored_entry_id = _unpack_frame_start(data)
            end = SIZE_FIELD_BYTES + size
            is_complete = _MIN_FRAME_SIZE <= end <= len(data)
            # A `LedgerId` is the tuple (scope, ledger); version 1 is for scope 0.
            if is_complete and stored_entry_id == entry_id and ledger == (0, ledger_number):
                return data[SIZE_FIELD_BYTES:end]
        return self._check_record(handle, data, position, ledger, entry_id)

    def _check_record(
        self, handle: OpenFile, data: bytes, position: int, ledger: LedgerId, entry_id: int
    ) -> bytes:
        """Return a record that `read` could not return at once: one with a scope (the upper half of
        a 128-bit ledger id), one not read completely, or none of this entry, which raises."""
        size = _unpack_size(data)[0] if len(data) >= SIZE_FIELD_BYTES else 0
        if V1_HEADER <= size <= len(data) - SIZE_FIELD_BYTES:
            record = data[SIZE_FIELD_BYTES : SIZE_FIELD_BYTES + size]
        else:
            record = self._read_long(handle, position, size, len(data))
        if ledger.scope == 0:
            is_match = _unpack_ids_v1(record) == (ledger.ledger, entry_id)
        else:
            is_version_2 = record[0] >= 0x80  # then the ids follow this byte
            is_match = is_version_2 and record[1:25] == _IDS_V2.pack(*ledger.signed, entry_id)
        if not is_match:
            raise _mismatch_error(handle, position, ledger, entry_id)
        return record

    def _read_long(self, handle: OpenFile, position: int, size: int, read_size: int) -> bytes:
        """Return a record that is not complete in the first read, which returned `read_size` bytes;
        raise if its size is impossible."""
        handle.read_size = _READ_SIZE  # of later first reads: more bytes cost less than two reads
        bytes_left = os.fstat(handle.fd).st_size - position
        if position < SIZE_FIELD_BYTES or read_size < SIZE_FIELD_BYTES or bytes_left <= 0:
            reason = f"location points past the end of the log ({bytes_left + position} bytes)"
            raise CorruptionError(handle.path, position, reason)
        if not V1_HEADER <= size <= bytes_left:
            reason = f"record of {size} bytes, {bytes_left} are left in the log"
            raise CorruptionError(handle.path, position - SIZE_FIELD_BYTES, reason)
        record = os.pread(handle.fd, size, position)
        if len(record) < size:
            raise CorruptionError(handle.path, position, "log ended while it was read")
        return record

    # -- many records

    def read_many(
        self,
        ledger: LedgerId,
        entry_ids: Int64Array,
        locations: Int64Array,
        max_bytes: int | None = None,
    ) -> RecordBatch:
        """Return the records of `entry_ids` in their order. One read takes a window of the log (up
        to 8 MiB) with all the records in it; records far from others are read singly.

        Ends early once the records have more than `max_bytes` (4 + size each; the first is always
        returned), or at damage, which is then in `stopped`. Damage at the first entry is raised.
        """
        batches: list[RecordBatch] = []
        bytes_left, window_size = max_bytes, WINDOW_BYTES
        if bytes_left is not None:
            window_size = min(max(bytes_left, _READ_SIZE) + _MAX_GAP, WINDOW_BYTES)
        # Most batches are adjacent records: one read returns all, and nothing has to be joined.
        if _in_one_read(locations, window_size):
            first_batch = self._read_window(ledger, entry_ids, locations, window_size)
            if len(first_batch) == len(entry_ids):
                return first_batch
            batches.append(first_batch)
            entry_ids, locations = entry_ids[len(first_batch) :], locations[len(first_batch) :]
            bytes_left = None if bytes_left is None else bytes_left - _framed_size(first_batch)
            if bytes_left is not None and bytes_left < 0:
                return first_batch
        # Scattered, or something odd was met: read window by window, up to the limit or to damage.
        for batch in self._read_windows(ledger, entry_ids, locations, window_size):
            batches.append(batch)
            if batch.stopped is not None:
                break
            if bytes_left is not None:
                bytes_left -= _framed_size(batch)
                if bytes_left < 0:
                    break
        records = RecordBatch.concatenate(batches)
        if not len(records) and records.stopped is not None:
            raise records.stopped
        return records

    def _read_windows(
        self, ledger: LedgerId, entry_ids: Int64Array, locations: Int64Array, window: int
    ) -> Iterator[RecordBatch]:
        """Yield batches, each from one read. Short runs of adjacent locations are read singly and
        gathered. Damage ends the batches: the last one has it in `stopped`."""
        singles: list[int] = []
        try:
            for start, stop in _find_runs(locations):
                # Collect records of short runs; yield them before a longer run, to keep the order.
                is_short = stop - start < _MIN_RUN_LENGTH
                if is_short:
                    singles.extend(range(start, stop))
                    if len(singles) < _MAX_SINGLES and stop < entry_ids.size:
                        continue
                if singles:
                    yield from self._read_singles(ledger, entry_ids, locations, singles)
                    singles.clear()
                next_row = stop if is_short else start  # a short run was among the singles
                while next_row < stop:
                    window_end = locations[next_row] + window
                    count = int(np.searchsorted(locations[next_row:stop], window_end))
                    rows = slice(next_row, next_row + count)
                    batch = self._read_window(ledger, entry_ids[rows], locations[rows], window)
                    yield batch
                    next_row += len(batch)  # a read may return fewer records than it was to cover
        except CorruptionError as error:
            yield RecordBatch(_NO_ENTRIES, b"", _NO_ENTRIES, _NO_ENTRIES, error)

    def _read_singles(
        self, ledger: LedgerId, entry_ids: Int64Array, locations: Int64Array, rows: list[int]
    ) -> Iterator[RecordBatch]:
        """Yield adjacent `rows` as one batch, read one by one; then raise damage, if any."""
        records: list[bytes] = []
        damage: CorruptionError | None = None
        for row in rows:
            try:
                records.append(self.read(int(locations[row]), ledger, int(entry_ids[row])))
            except CorruptionError as error:
                damage = error
                break
        if records:
            yield RecordBatch.of(records, entry_ids[rows[0] : rows[0] + len(records)])
        if damage is not None:
            raise damage

    def _read_window(
        self, ledger: LedgerId, entry_ids: Int64Array, locations: Int64Array, window_size: int
    ) -> RecordBatch:
        """Return the intact records in one read from the first location on, at least one; raise
        `CorruptionError` if the first record is damaged. The locations ascend in one log."""
        location = int(locations[0])
        handle = self._open_log(location >> 32)
        file_offset = (location & 0xFFFFFFFF) - SIZE_FIELD_BYTES  # negative: an invalid location
        read_size = _READ_SIZE
        if len(locations) > 1:  # the last record is probably as long as the one before it
            last_size = max(_READ_SIZE, int(locations[-1] - locations[-2]))
            read_size = min(int(locations[-1]) - location + last_size, window_size)
        try:
            # For an invalid location any read will do: `_take_intact` reports it.
            data = os.pread(handle.fd, read_size, max(file_offset, 0))
        except OSError as error:
            raise read_error(error, handle.path) from error
        offsets = locations - (location - SIZE_FIELD_BYTES)  # of the records in `data`
        sizes = _sizes_if_all_match(data, offsets, ledger, entry_ids) if file_offset >= 0 else None
        if sizes is None:  # a record is damaged, or the read is too short for the last ones
            return self._take_intact(handle, file_offset, data, offsets, ledger, entry_ids)
        return _drop_sparse_buffer(RecordBatch(entry_ids, data, offsets, sizes))

    def _take_intact(
        self,
        handle: OpenFile,
        file_offset: int,
        data: bytes,
        offsets: Int64Array,
        ledger: LedgerId,
        entry_ids: Int64Array,
    ) -> RecordBatch:
        """Return the leading complete records of one read, up to one with other ids. `offsets` are
        those of the records in `data`, which begins at `file_offset`."""
        # Offsets past the bytes read belong to the next read.
        is_inside = offsets <= len(data)
        if file_offset < 0 or not is_inside[0]:
            raise self._past_end_error(handle, file_offset)
        offsets = offsets if is_inside.all() else offsets[: int(np.argmin(is_inside))]
        # Keep complete records. If the first is not, read it alone: it may be long, or damaged.
        raw = np.frombuffer(data, np.uint8)
        sizes = _read_sizes(raw, offsets)
        is_complete = (sizes >= V1_HEADER) & (offsets + sizes <= len(data))
        count = int(is_complete.size if is_complete.all() else np.argmin(is_complete))
        if count == 0:
            position = file_offset + SIZE_FIELD_BYTES
            record = self._check_record(handle, data, position, ledger, int(entry_ids[0]))
            return RecordBatch.of([record], entry_ids[:1])
        # Compare ids last, as the headers are known to be complete now.
        offsets, sizes, entry_ids = offsets[:count], sizes[:count], entry_ids[:count]
        mismatch = _first_mismatch(raw, offsets, ledger, entry_ids)
        if mismatch == 0:
            raise _mismatch_error(handle, file_offset + SIZE_FIELD_BYTES, ledger, int(entry_ids[0]))
        if mismatch is not None:
            offsets, sizes, entry_ids = offsets[:mismatch], sizes[:mismatch], entry_ids[:mismatch]
        return _drop_sparse_buffer(RecordBatch(entry_ids, data, offsets, sizes))

    def _past_end_error(self, handle: OpenFile, file_offset: int) -> CorruptionError:
        size = os.fstat(handle.fd).st_size
        reason = f"location points past the end of the log ({size} bytes)"
        return CorruptionError(handle.path, file_offset + SIZE_FIELD_BYTES, reason)


def _framed_size(batch: RecordBatch) -> int:
    """Return the size of the batch's frames, as `max_bytes` counts them."""
    return int(batch.sizes.sum()) + SIZE_FIELD_BYTES * len(batch)


def _in_one_read(locations: Int64Array, window_size: int) -> bool:
    """Return whether the locations ascend with small gaps within one window."""
    if locations.size < _MIN_RUN_LENGTH:
        return False
    if not 0 < int(locations[-1]) - int(locations[0]) < window_size:
        return False
    distances = locations[1:] - locations[:-1]
    return int(distances.min()) > 0 and int(distances.max()) <= _MAX_GAP


def _find_runs(locations: Int64Array) -> Iterator[tuple[int, int]]:
    """Yield (start, stop) of runs of locations that ascend with small gaps in one log."""
    distances = np.diff(locations)  # between logs: large, or negative
    breaks = (np.flatnonzero((distances <= 0) | (distances > _MAX_GAP)) + 1).tolist()
    return zip([0, *breaks], [*breaks, int(locations.size)])


def _drop_sparse_buffer(batch: RecordBatch) -> RecordBatch:
    """Return the batch, with a copy of the records if the buffer is mostly other bytes."""
    if _SPARSE_FACTOR * int(batch.sizes.sum()) < len(batch.buffer):
        return RecordBatch.of(batch.records(), batch.entries)
    return batch


def _sizes_if_all_match(
    data: bytes, offsets: Int64Array, ledger: LedgerId, entry_ids: Int64Array
) -> Int64Array | None:
    """Return the sizes of version 1 records if all are complete and have these ids, else None."""
    if ledger.scope or int(offsets[-1]) + V1_HEADER > len(data):
        return None
    # A view with a frame start at every byte: one gather reads the sizes and ids at the offsets.
    count = len(data) - _FRAME_START.itemsize + 1
    starts = np.ndarray(count, _FRAME_START_BYTES, data, strides=(1,))
    heads = starts[offsets - SIZE_FIELD_BYTES].view(_FRAME_START)
    sizes: Int64Array = heads["size"].astype(np.int64)
    is_complete = int(sizes.min()) >= V1_HEADER and int((offsets + sizes).max()) <= len(data)
    is_match = (heads["ledger"] == ledger.ledger).all() and (heads["entry"] == entry_ids).all()
    return sizes if is_complete and is_match else None


def _read_sizes(raw: Bytes, offsets: Int64Array) -> Int64Array:
    """Return the sizes stored before the records at `offsets`."""
    integers = integers_at_every_offset(raw, ">i4")
    sizes: Int64Array = integers[offsets - SIZE_FIELD_BYTES].astype(np.int64)
    return sizes


def _first_mismatch(
    raw: Bytes, offsets: Int64Array, ledger: LedgerId, entry_ids: Int64Array
) -> int | None:
    """Return the index of the first record with other ids than given, None if all match."""
    if offsets[-1] + V2_HEADER > raw.size:  # version 2 ids may be read past the last record
        raw = np.concatenate((raw, np.zeros(V2_HEADER, np.uint8)))
    scopes, ledgers, record_entries = record_ids(raw, offsets)
    scope, number = ledger.signed
    is_mismatch = (scopes != scope) | (ledgers != number) | (record_entries != entry_ids)
    return int(np.argmax(is_mismatch)) if is_mismatch.any() else None


def _mismatch_error(file: OpenFile, position: int, ledger: LedgerId, entry: int) -> CorruptionError:
    reason = f"the record here is not entry {entry} of ledger {ledger}"
    return CorruptionError(Path(file.path), position, reason)
