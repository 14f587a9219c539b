"""Reading and writing the int64 slots of one open .idx file, in bounded memory. Presence is tested
on the raw words (zero is zero in either byte order); only the requested locations are byte-swapped.
The format is `bkstore.formats.idxfile`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Literal

import numpy as np

from bkstore.availability import from_entries, grouping
from bkstore.availability.sequence_groups import Groups
from bkstore.errors import CorruptionError
from bkstore.files.disk_changes import OS_FILES, Files
from bkstore.files.opening import next_data_offset
from bkstore.files.os_errors import read_error
from bkstore.formats import idxfile
from bkstore.formats.idxfile import HEADER_SIZE, SLOT_SIZE, IdxHeader
from bkstore.ids import EntryLocations, Int64Array

CHUNK_SLOTS = 1 << 16
"""Slots read at a time: 512 KiB in one reused buffer, so that a scan stays in the CPU cache."""

_WRITE_SLOTS = 1 << 19
"""Slots rewritten at a time: 4 MiB."""

_SIGN_BYTE = np.int64(np.array([1 << 63], ">u8").view(np.int64)[0])
"""The sign bit of a big-endian word, in the byte order of this machine."""


def count_slots(size: int, path: str) -> int:
    """Return how many slots, 8-byte locations behind the header, a file of `size` bytes has. Raises
    `CorruptionError` if it ends inside a slot: only whole pages are ever written, so bytes are
    missing."""
    body = max(size - HEADER_SIZE, 0)
    if body % SLOT_SIZE:
        reason = f"file ends inside a slot ({body % SLOT_SIZE} of 8 bytes)"
        raise CorruptionError(path, size - body % SLOT_SIZE, reason)
    return body // SLOT_SIZE


def read_exactly(fd: int, view: memoryview, offset: int, path: str) -> None:
    """Fill `view` from `offset` on; `CorruptionError` if the file ends before that."""
    filled = 0
    while filled < len(view):
        read_bytes = os.preadv(fd, [view[filled:]], offset + filled)
        if read_bytes == 0:
            raise CorruptionError(path, offset + filled, "file ended while it was read")
        filled += read_bytes


def _read_chunks(fd: int, path: str, first: int, stop: int) -> Iterator[tuple[int, Int64Array]]:
    """Yield (first slot, words as stored, big-endian) for chunks of the slots first..stop-1. Large
    holes of the file, which no entry was ever written to, are passed over. The next chunk is read
    into the same array. Raises `CorruptionError` for a negative location."""
    buffer = np.empty(min(CHUNK_SLOTS, max(stop - first, 0)), np.int64)
    # `st_blocks` counts 512 bytes that have space on disk: a chunk or more has none.
    file_stat = os.fstat(fd)
    has_large_holes = file_stat.st_blocks * 512 < file_stat.st_size - SLOT_SIZE * CHUNK_SLOTS
    slot = first
    while slot < stop:
        if has_large_holes:  # few entries far apart: skip what was never written
            data_offset = next_data_offset(fd, HEADER_SIZE + SLOT_SIZE * slot)
            if data_offset is None:
                return
            slot = max(slot, (data_offset - HEADER_SIZE) // SLOT_SIZE)
            if slot >= stop:
                return
        words = buffer[: min(CHUNK_SLOTS, stop - slot)]
        read_exactly(fd, words.data.cast("B"), HEADER_SIZE + SLOT_SIZE * slot, path)
        if np.bitwise_or.reduce(words) & _SIGN_BYTE:  # the sign of any word is set
            bad_slot = slot + int(np.flatnonzero(words & _SIGN_BYTE)[0])
            raise _negative_location_error(path, bad_slot)
        yield slot, words
        slot += words.size


def read_present_groups(fd: int, path: str, first: int, stop: int) -> Groups:
    """Return which of the slots first..stop-1 hold a location, as the sequence groups of an
    `Availability` (rows of ranges at equal distances). Cost: one read of the data, without
    expanding ranges to ids. Memory: one chunk, and the groups."""
    chunks = _read_chunks(fd, path, first, stop)
    parts = [from_entries.groups_of_mask(words != 0, first_slot) for first_slot, words in chunks]
    return grouping.canonicalize_parts(parts)


def read_items(fd: int, path: str, first: int, stop: int) -> Iterator[EntryLocations]:
    """Yield (entries, locations) chunk by chunk for slots first..stop-1 that hold a location."""
    for first_slot, words in _read_chunks(fd, path, first, stop):
        present = np.flatnonzero(words != 0)
        if present.size:
            yield present + first_slot, _to_native(words[present])


def find_last_present(fd: int, path: str, stop: int) -> int | None:
    """Return the highest slot below `stop` that holds a location, None if there is none. Reads
    backwards, skipping holes in doubling strides: O(1) unless the file has a long tail of zeros."""
    stride = CHUNK_SLOTS  # the number of slots before `stop` that are searched at once
    while stop > 0:
        first = max(stop - stride, 0)
        data_offset = next_data_offset(fd, HEADER_SIZE + SLOT_SIZE * first)
        if data_offset is None or data_offset >= HEADER_SIZE + SLOT_SIZE * stop:
            stop, stride = first, 2 * stride  # all a hole: try twice as much before it
        elif stride > CHUNK_SLOTS:
            stride //= 2  # data somewhere in the stride: try its second half
        else:  # few enough to read; zeros that were written are not a hole
            last_entries = [int(entries[-1]) for entries, _ in read_items(fd, path, first, stop)]
            if last_entries:
                return last_entries[-1]
            stop = first
    return None


def read_locations(fd: int, path: str, entry_ids: Int64Array, slot_count: int) -> Int64Array:
    """Return the locations of `entry_ids` (any order), 0 where absent or past the end. Reads the
    chunks that hold these entries, each once."""
    # Go through the ids in ascending order, so that each chunk is read once. Ids past the end of
    # the file stay 0.
    result = np.zeros(entry_ids.size, np.int64)
    is_unsorted = bool((entry_ids[1:] < entry_ids[:-1]).any())
    sort_order = entry_ids.argsort(kind="stable") if is_unsorted else np.arange(entry_ids.size)
    sorted_ids = entry_ids[sort_order]
    sorted_ids = sorted_ids[: np.searchsorted(sorted_ids, slot_count)]
    start = 0
    while start < sorted_ids.size:
        # One read covers all entries within a chunk's length of the first unread one.
        first = int(sorted_ids[start])
        stop = int(np.searchsorted(sorted_ids, first + CHUNK_SLOTS))
        words = np.empty(int(sorted_ids[stop - 1]) - first + 1, np.int64)
        read_exactly(fd, words.data.cast("B"), HEADER_SIZE + SLOT_SIZE * first, path)
        locations = _to_native(words[sorted_ids[start:stop] - first])
        if locations.size and int(locations.min()) < 0:
            slot = int(sorted_ids[start:stop][locations < 0][0])
            raise _negative_location_error(path, slot)
        result[sort_order[start:stop]] = locations
        start = stop
    return result


def _negative_location_error(path: str, slot: int) -> CorruptionError:
    offset = HEADER_SIZE + SLOT_SIZE * slot
    return CorruptionError(path, offset, f"location of entry {slot} is negative")


def _to_native(words: Int64Array) -> Int64Array:
    return words.view(">i8").astype(np.int64)


def write_slots(
    fd: int, entry_ids: Int64Array, locations: Int64Array, page_slots: int, files: Files = OS_FILES
) -> None:
    """Store locations of sorted, distinct entries by rewriting the pages that hold them, as bookies
    read whole pages. A page past the end of the file starts as zeros. A write that fails
    (`OSError`) leaves its pages as they were."""
    # Split the entries at gaps between their pages, then write each run of pages in parts.
    pages = entry_ids // page_slots
    pages_per_write = max(_WRITE_SLOTS // page_slots, 1)
    run_starts = (np.flatnonzero(np.diff(pages) > 1) + 1).tolist()  # without the first run, at 0
    for start, run_stop in zip([0, *run_starts], [*run_starts, pages.size]):
        while start < run_stop:
            stop = min(int(np.searchsorted(pages, pages[start] + pages_per_write)), run_stop)
            rows_of_write = slice(start, stop)
            offset, data = _changed_pages(
                fd, entry_ids[rows_of_write], locations[rows_of_write], page_slots
            )
            overwrite(fd, data, offset, files)
            start = stop


def overwrite(fd: int, data: bytes, offset: int, files: Files = OS_FILES) -> None:
    """Write `data` at `offset`; if that fails (`OSError`), restore the previous bytes and raise, so
    that no partly written slot replaces a good location."""
    size, previous = os.fstat(fd).st_size, os.pread(fd, len(data), offset)
    try:
        files.pwrite(fd, data, offset)
    except OSError:
        files.pwrite(fd, previous, offset)
        files.truncate(fd, size)  # the write may have made the file longer
        raise


def _changed_pages(
    fd: int, entry_ids: Int64Array, locations: Int64Array, page_slots: int
) -> tuple[int, bytes]:
    """Return (offset, new contents) of the whole pages that hold these entries."""
    first = int(entry_ids[0]) // page_slots * page_slots
    stop = (int(entry_ids[-1]) // page_slots + 1) * page_slots
    offset = HEADER_SIZE + SLOT_SIZE * first
    words = np.zeros(stop - first, ">i8")
    if entry_ids.size < stop - first:  # some slots stay as they are, or zero past the file's end
        stored = os.pread(fd, words.nbytes, offset)
        words.view(np.uint8)[: len(stored)] = np.frombuffer(stored, np.uint8)
    words[entry_ids - first] = locations
    return offset, words.tobytes()


def read_header(fd: int, path: str, compat: Literal["bookkeeper"] | None) -> IdxHeader:
    """Return the header of an open index file. Raises `CorruptionError`, with `path`, if it is
    invalid; ``compat="bookkeeper"`` accepts what BookKeeper accepts."""
    try:
        return idxfile.decode_header(os.pread(fd, HEADER_SIZE, 0), compat)
    except CorruptionError as error:
        raise error.relocate(path) from None
    except OSError as error:
        raise read_error(error, path) from error
