"""Reading records of entry logs at known locations: one by one, and many in few reads.

A location points at the record, 4 bytes behind its size. What is read is checked as upstream
checks it (`DefaultEntryLogger.validateEntry`): size, ledger and entry id must fit, anything
else is damage and never "not found". Digests are not checked here: a bookie has no password.
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
from bkstore.files.os_errors import unreadable
from bkstore.formats.entry import V1_HEADER, V2_HEADER, RecordBatch, record_ids
from bkstore.formats.entrylog import PREFIX
from bkstore.formats.syntax.framing import words_at
from bkstore.ids import Int64Array, LedgerId
from bkstore.index.api import Closing

_SHORT, _GUESS = 512, 2048
"""Bytes that one read of size and record takes: of a log whose records so far were short, else."""

_SIZE = Struct(">i").unpack_from
_IDS_V1 = Struct(">qq").unpack_from
_START_V1 = Struct(">iqq").unpack_from  # the size, and the ids behind it
_START = np.dtype([("size", ">i4"), ("ledger", ">i8"), ("entry", ">i8")])
_START_BYTES = np.dtype(f"V{_START.itemsize}")
_LEAST = PREFIX + V1_HEADER
_IDS_V2 = Struct(">qqq")
_OPEN_LOGS = 64
WINDOW = 8 << 20
"""Bytes read at a time by a batch: a whole one of the default limit, with nothing to join."""

_SPARSE = 4
"""Of a window of which less than one byte in so many is wanted, only those are kept."""

_WIDEST_GAP = 16384
"""From one wanted record to the next: up to that, one read for both is cheaper than two."""

_FEW = 4  # fewer neighbours are read one by one: an array read costs some 40 us of its own
_MANY_LONELY = 64

_NONE = np.empty(0, np.int64)


class OpenFile:
    """A file that is open for reading, as `fd`.

    Closed when the last reader lets go, so that leaving a pool never pulls it away from one.
    """

    __slots__ = ("fd", "guess", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self.guess = _SHORT
        self.fd = open_regular(path)

    def __del__(self) -> None:
        fd = getattr(self, "fd", None)
        if fd is not None:
            os.close(fd)


class LogReader(Closing):
    """Reads records by location from the logs that `find` gives the paths of.

    `find(log_id)` returns a path, None if there is no such log. Keeps up to 64 logs open.
    Threads: safe, without a lock. Fork: safe (reads by position).
    """

    def __init__(self, find: Callable[[int], str | os.PathLike[str] | None]) -> None:
        self._find = find
        self._handles: dict[int, OpenFile] = {}

    def close(self) -> None:
        """Close the logs; a later read opens them again."""
        self._handles.clear()

    def forget(self, log_id: int) -> None:
        """Close one log, which is being removed."""
        self._handles.pop(log_id, None)

    def _handle(self, log_id: int) -> OpenFile:
        handle = self._handles.get(log_id)
        if handle is not None:
            return handle
        path = self._find(log_id)
        if path is None:
            raise CorruptionError(f"{log_id:x}.log", None, "no such entry log")
        try:
            handle = OpenFile(os.fspath(path))
        except FileNotFoundError:
            raise CorruptionError(path, None, "no such entry log") from None
        except OSError as error:
            raise unreadable(error, path) from error
        self._handles[log_id] = handle
        while len(self._handles) > _OPEN_LOGS:
            self._handles.pop(next(iter(self._handles)), None)
        return handle

    def lost(self, locations: Int64Array) -> int:
        """Return how many locations, from the first on, point into no log or behind its end.

        All of them into the same log: what is wrong with one is wrong with each.
        """
        if not locations.size:
            return 0
        log_id, least = int(locations[0]) >> 32, 0
        with suppress(CorruptionError):
            least = os.fstat(self._handle(log_id).fd).st_size
        low, stop, look = (log_id << 32) + least, 0, _GUESS
        while stop < locations.size:
            part = locations[stop : stop + look]
            readable = (part < low) | (part >> 32 != log_id)
            if readable.any():
                return stop + int(np.argmax(readable))
            stop, look = stop + part.size, 2 * look
        return stop

    # -- one record

    def read(self, location: int, ledger: LedgerId, entry_id: int) -> bytes:
        """Return the record at a location: one read, two for a long one.

        Raises `CorruptionError` if there is none, or it is another ledger's or entry's.
        """
        log_id, position = location >> 32, location & 0xFFFFFFFF
        handle = self._handles.get(log_id) or self._handle(log_id)
        try:
            data = os.pread(handle.fd, handle.guess, position - PREFIX if position > PREFIX else 0)
        except OSError as error:
            raise unreadable(error, handle.path) from error
        if len(data) >= _LEAST:  # the common case first, with few steps
            size, number, entry = _START_V1(data)
            end = PREFIX + size
            if _LEAST <= end <= len(data) and entry == entry_id and ledger == (0, number):
                return data[PREFIX:end]
        return self._uncommon(handle, data, position, ledger, entry_id)

    def _uncommon(
        self, handle: OpenFile, data: bytes, position: int, ledger: LedgerId, entry_id: int
    ) -> bytes:
        """Return a record of a scope, or one that is longer than what was read; or raise."""
        size = _SIZE(data)[0] if len(data) >= PREFIX else 0
        if V1_HEADER <= size <= len(data) - PREFIX:
            record = data[PREFIX : PREFIX + size]
        else:
            record = self._long(handle, position, size, len(data))
        if ledger.scope == 0:
            same = _IDS_V1(record) == (ledger.ledger, entry_id)
        else:
            same = record[0] >= 0x80 and record[1:25] == _IDS_V2.pack(*ledger.signed, entry_id)
        if not same:
            raise _foreign(handle, position, ledger, entry_id)
        return record

    def _long(self, handle: OpenFile, position: int, size: int, got: int) -> bytes:
        """Read a record that did not fit the first read, if its size is possible at all."""
        handle.guess = _GUESS  # copying four times as much is cheaper than to read twice
        left = os.fstat(handle.fd).st_size - position
        if position < PREFIX or got < PREFIX or left <= 0:
            reason = f"location points behind the end of the log ({left + position} bytes)"
            raise CorruptionError(handle.path, position, reason)
        if not V1_HEADER <= size <= left:
            reason = f"record of {size} bytes, {left} are left in the log"
            raise CorruptionError(handle.path, position - PREFIX, reason)
        record = os.pread(handle.fd, size, position)
        if len(record) < size:
            raise CorruptionError(handle.path, position, "log ended while it was read")
        return record

    # -- many records

    def read_many(
        self,
        ledger: LedgerId,
        entries: Int64Array,
        locations: Int64Array,
        max_bytes: int | None = None,
    ) -> RecordBatch:
        """Return the records of `entries` in their order, coalescing reads of neighbours.

        Ends early once the records passed by make more than `max_bytes` (4 + size each; the
        first one always comes), or at damage, which `stopped` then holds. Damage at the first
        entry raises. Cost: one read a MiB where records lie together.
        """
        parts: list[RecordBatch] = []
        left = max_bytes
        window = WINDOW if left is None else min(max(left, _GUESS) + _WIDEST_GAP, WINDOW)
        # Most batches lie in one piece: one read brings all, and nothing has to be joined.
        if _in_one_read(locations, window):
            first = self._window(ledger, entries, locations, window)
            if len(first) == len(entries):
                return first
            parts.append(first)
            entries, locations = entries[len(first) :], locations[len(first) :]
            left = None if left is None else left - _frames(first)
            if left is not None and left < 0:
                return first
        # The rest lies in several pieces, or the first read met something odd: it is taken piece
        # by piece, up to the limit or to damage.
        for part in self._windows(ledger, entries, locations, window):
            parts.append(part)
            if part.stopped is not None:
                break
            if left is not None:
                left -= _frames(part)
                if left < 0:
                    break
        batch = RecordBatch.joined(parts)
        if not len(batch) and batch.stopped is not None:
            raise batch.stopped
        return batch

    def _windows(
        self, ledger: LedgerId, entries: Int64Array, locations: Int64Array, window: int
    ) -> Iterator[RecordBatch]:
        """Yield batches that one read each brings; lonely records are gathered into one batch."""
        lonely: list[int] = []
        try:
            for start, stop in _runs(locations):
                # Lonely records wait for others, which must not overtake them: those that wait
                # come out before a longer stretch does.
                if stop - start < _FEW:
                    lonely.extend(range(start, stop))
                    if len(lonely) < _MANY_LONELY and stop < entries.size:
                        continue
                if lonely:
                    yield from self._singles(ledger, entries, locations, lonely)
                    lonely.clear()
                at = start if stop - start >= _FEW else stop
                while at < stop:
                    end = int(np.searchsorted(locations[at:stop], locations[at] + window)) + at
                    part = self._window(ledger, entries[at:end], locations[at:end], window)
                    yield part
                    at += len(part)
        except CorruptionError as error:
            yield RecordBatch(_NONE, b"", _NONE, _NONE, error)

    def _singles(
        self, ledger: LedgerId, entries: Int64Array, locations: Int64Array, numbers: list[int]
    ) -> Iterator[RecordBatch]:
        records: list[bytes] = []
        damage: CorruptionError | None = None
        for at in numbers:
            try:
                records.append(self.read(int(locations[at]), ledger, int(entries[at])))
            except CorruptionError as error:
                damage = error
                break
        if records:
            yield RecordBatch.of(records, entries[numbers[0] : numbers[0] + len(records)])
        if damage is not None:
            raise damage

    def _window(
        self, ledger: LedgerId, entries: Int64Array, locations: Int64Array, window: int
    ) -> RecordBatch:
        """Return the records that one read brings; at least one, or the damage is raised."""
        location = int(locations[0])
        handle, base = self._handle(location >> 32), (location & 0xFFFFFFFF) - PREFIX
        span = _GUESS
        if len(locations) > 1:  # the last record is likely as long as the one before it
            step = int(locations[-1] - locations[-2])
            span = min(int(locations[-1]) - location + max(_GUESS, step), window)
        try:
            data = os.pread(handle.fd, span, max(base, 0))
        except OSError as error:
            raise unreadable(error, handle.path) from error
        offsets = locations - (location - PREFIX)
        sizes = _all_sizes(data, offsets, ledger, entries) if base >= 0 else None
        if sizes is None:
            return self._some(handle, base, data, offsets, ledger, entries)
        return _kept(RecordBatch(entries, data, offsets, sizes))

    def _some(
        self,
        handle: OpenFile,
        base: int,
        data: bytes,
        offsets: Int64Array,
        ledger: LedgerId,
        entries: Int64Array,
    ) -> RecordBatch:
        """Return those records of one read that are whole, up to the first that is not wanted."""
        # Offsets behind the bytes that were read belong to the next read.
        fit = offsets <= len(data)
        if base < 0 or not fit[0]:
            raise self._ended(handle, base)
        offsets = offsets if fit.all() else offsets[: int(np.argmin(fit))]
        # Of the others those count that are whole; a first one that is cut is read by itself, as
        # it may be longer than a window, or damaged.
        raw = np.frombuffer(data, np.uint8)
        sizes = _sizes(raw, offsets)
        whole = (sizes >= V1_HEADER) & (offsets + sizes <= len(data))
        count = int(whole.size if whole.all() else np.argmin(whole))
        if count == 0:
            record = self._uncommon(handle, data, base + PREFIX, ledger, int(entries[0]))
            return RecordBatch.of([record], entries[:1])
        # Ids are compared last, where a whole header is known to stand.
        offsets, sizes, entries = offsets[:count], sizes[:count], entries[:count]
        wrong = _other_ids(raw, offsets, ledger, entries)
        if wrong == 0:
            raise _foreign(handle, base + PREFIX, ledger, int(entries[0]))
        if wrong is not None:
            offsets, sizes, entries = offsets[:wrong], sizes[:wrong], entries[:wrong]
        return _kept(RecordBatch(entries, data, offsets, sizes))

    def _ended(self, handle: OpenFile, base: int) -> CorruptionError:
        size = os.fstat(handle.fd).st_size
        reason = f"location points behind the end of the log ({size} bytes)"
        return CorruptionError(handle.path, base + PREFIX, reason)


def _frames(batch: RecordBatch) -> int:
    """Return the bytes of the batch's records with their sizes, as a limit counts them."""
    return int(batch.sizes.sum()) + PREFIX * len(batch)


def _in_one_read(locations: Int64Array, window: int) -> bool:
    """Whether the records lie one behind the other, and all in one window."""
    if locations.size < _FEW or not 0 < int(locations[-1]) - int(locations[0]) < window:
        return False
    steps = locations[1:] - locations[:-1]
    return int(steps.min()) > 0 and int(steps.max()) <= _WIDEST_GAP


def _runs(locations: Int64Array) -> Iterator[tuple[int, int]]:
    """Yield (start, stop) of stretches of locations that ascend, near each other, in one log."""
    steps = np.diff(locations)  # from log to log: far away, or descending
    breaks = (np.flatnonzero((steps <= 0) | (steps > _WIDEST_GAP)) + 1).tolist()
    return zip([0, *breaks], [*breaks, int(locations.size)])


def _kept(batch: RecordBatch) -> RecordBatch:
    """Return the batch; of a buffer that is mostly other bytes only the records."""
    if _SPARSE * int(batch.sizes.sum()) < len(batch.buffer):
        return RecordBatch.of(batch.records(), batch.entries)
    return batch


def _all_sizes(
    data: bytes, offsets: Int64Array, ledger: LedgerId, entries: Int64Array
) -> Int64Array | None:
    """Return the sizes of version 1 records if all are whole and the ones wanted, else None.

    One gather brings size and ids together: each start of a record is touched once.
    """
    if ledger.scope or int(offsets[-1]) + V1_HEADER > len(data):
        return None
    starts = np.ndarray(len(data) - _START.itemsize + 1, _START_BYTES, data, strides=(1,))
    found = starts[offsets - PREFIX].view(_START)
    sizes: Int64Array = found["size"].astype(np.int64)
    whole = int(sizes.min()) >= V1_HEADER and int((offsets + sizes).max()) <= len(data)
    same = (found["ledger"] == ledger.ledger).all() and (found["entry"] == entries).all()
    return sizes if whole and same else None


def _sizes(raw: np.ndarray[tuple[int], np.dtype[np.uint8]], offsets: Int64Array) -> Int64Array:
    """Return the sizes that stand before the records at `offsets`."""
    sizes: Int64Array = words_at(raw, ">i4")[offsets - PREFIX].astype(np.int64)
    return sizes


def _other_ids(
    raw: np.ndarray[tuple[int], np.dtype[np.uint8]],
    offsets: Int64Array,
    ledger: LedgerId,
    entries: Int64Array,
) -> int | None:
    """Return the number of the first record that is not the one wanted, None if all are."""
    if offsets[-1] + V2_HEADER > raw.size:  # room for the gather of version 2 ids
        raw = np.concatenate((raw, np.zeros(V2_HEADER, np.uint8)))
    scopes, ledgers, found = record_ids(raw, offsets)
    scope, number = ledger.signed
    wrong = (scopes != scope) | (ledgers != number) | (found != entries)
    return int(np.argmax(wrong)) if wrong.any() else None


def _foreign(handle: OpenFile, position: int, ledger: LedgerId, entry_id: int) -> CorruptionError:
    reason = f"the record here is not entry {entry_id} of ledger {ledger}"
    return CorruptionError(Path(handle.path), position, reason)
