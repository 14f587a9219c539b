"""Reading and writing the slots of one .idx file, in bounded memory.

Works on an open file descriptor and int64 slots; knows nothing of ledgers or directories. The
format is `bkstore.formats.idxfile`. Presence is judged on the raw words (zero is zero in
either byte order), and only the locations that are wanted are byte-swapped.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Literal

import numpy as np

from bkstore.availability import from_entries, grouping
from bkstore.availability.sequence_groups import Groups
from bkstore.errors import CorruptionError
from bkstore.files.disk_changes import OS_FILES, Files
from bkstore.files.opening import past_hole
from bkstore.files.os_errors import unreadable
from bkstore.formats import idxfile
from bkstore.formats.idxfile import HEADER_SIZE, SLOT_SIZE, IdxHeader
from bkstore.ids import Int64Array

CHUNK_SLOTS = 1 << 16
"""Slots read at a time: 512 KiB, one buffer, reused, so that a scan stays in the cache."""

_WRITE_SLOTS = 1 << 19
"""Slots rewritten at a time: 4 MiB."""

_SIGN_BYTE = np.int64(np.array([1 << 63], ">u8").view(np.int64)[0])
"""The sign bit of a big-endian word, in the byte order of this machine."""


def slot_count(size: int, path: str) -> int:
    """Return how many slots a file of `size` bytes has.

    Raises `CorruptionError` where the file ends inside a slot: whole pages are written always,
    so bytes are missing.
    """
    body = max(size - HEADER_SIZE, 0)
    if body % SLOT_SIZE:
        at = size - body % SLOT_SIZE
        raise CorruptionError(path, at, f"file ends inside a slot ({body % SLOT_SIZE} of 8 bytes)")
    return body // SLOT_SIZE


def read_at(fd: int, view: memoryview, offset: int, path: str) -> None:
    """Fill `view` from `offset` on; `CorruptionError` if the file ends before that."""
    done = 0
    while done < len(view):
        got = os.preadv(fd, [view[done:]], offset + done)
        if got == 0:
            raise CorruptionError(path, offset + done, "file ended while it was read")
        done += got


def _chunks(fd: int, path: str, first: int, stop: int) -> Iterator[tuple[int, Int64Array]]:
    """Yield (first slot, raw words) for slots first..stop-1; the words are reused, not kept."""
    buffer = np.empty(min(CHUNK_SLOTS, max(stop - first, 0)), np.int64)
    info = os.fstat(fd)
    sparse = info.st_blocks * 512 < info.st_size - SLOT_SIZE * CHUNK_SLOTS
    at = first
    while at < stop:
        if sparse:  # a file of few entries far apart: what was never written is not read
            data = past_hole(fd, HEADER_SIZE + SLOT_SIZE * at)
            if data is None:
                return
            at = max(at, (data - HEADER_SIZE) // SLOT_SIZE)
            if at >= stop:
                return
        words = buffer[: min(CHUNK_SLOTS, stop - at)]
        read_at(fd, words.data.cast("B"), HEADER_SIZE + SLOT_SIZE * at, path)
        if np.bitwise_or.reduce(words) & _SIGN_BYTE:
            slot = at + int(np.flatnonzero(words & _SIGN_BYTE)[0])
            raise CorruptionError(
                path, HEADER_SIZE + SLOT_SIZE * slot, f"location of entry {slot} is negative"
            )
        yield at, words
        at += words.size


def present_groups(fd: int, path: str, first: int, stop: int) -> Groups:
    """Return which of the slots first..stop-1 hold a location, as canonical groups.

    Cost: one read of the data that is there, ids inside a run are never made. Memory: one
    chunk, and the groups.
    """
    chunks = _chunks(fd, path, first, stop)
    parts = [from_entries.presence(words != 0, at) for at, words in chunks]
    return grouping.join(parts)


def read_items(
    fd: int, path: str, first: int, stop: int
) -> Iterator[tuple[Int64Array, Int64Array]]:
    """Yield (entries, locations) chunk by chunk for slots first..stop-1 that hold a location."""
    for at, words in _chunks(fd, path, first, stop):
        here = np.flatnonzero(words != 0)
        if here.size:
            yield here + at, _native(words[here])


def last_present(fd: int, path: str, stop: int) -> int | None:
    """Return the highest slot below `stop` that holds a location, None if there is none.

    Reads backwards from the end, past holes in strides that double: O(1) for a file without a
    long tail of zeros.
    """
    span = CHUNK_SLOTS
    while stop > 0:
        first = max(stop - span, 0)
        data = past_hole(fd, HEADER_SIZE + SLOT_SIZE * first)
        if data is None or data >= HEADER_SIZE + SLOT_SIZE * stop:
            stop, span = first, 2 * span
        elif span > CHUNK_SLOTS:
            span //= 2
        else:
            found = [int(entries[-1]) for entries, _ in read_items(fd, path, first, stop)]
            if found:
                return found[-1]
            stop = first
    return None


def gather(fd: int, path: str, entries: Int64Array, slots: int) -> Int64Array:
    """Return the locations of `entries` (any order), 0 where absent or past the end.

    Reads the chunks that hold entries asked for, each once.
    """
    # In ascending order, so that each chunk is read once; those past the end stay 0.
    result = np.zeros(entries.size, np.int64)
    order = np.argsort(entries, kind="stable") if _unsorted(entries) else np.arange(entries.size)
    ids = entries[order]
    ids = ids[: np.searchsorted(ids, slots)]
    at = 0
    while at < ids.size:
        # One read for all entries of a chunk's length, from the first of them on.
        first = int(ids[at])
        end = int(np.searchsorted(ids, first + CHUNK_SLOTS))
        words = np.empty(int(ids[end - 1]) - first + 1, np.int64)
        read_at(fd, words.data.cast("B"), HEADER_SIZE + SLOT_SIZE * first, path)
        found = _native(words[ids[at:end] - first])
        if found.size and int(found.min()) < 0:
            slot = int(ids[at:end][found < 0][0])
            offset = HEADER_SIZE + SLOT_SIZE * slot
            raise CorruptionError(path, offset, f"location of entry {slot} is negative")
        result[order[at:end]] = found
        at = end
    return result


def _unsorted(values: Int64Array) -> bool:
    return bool((values[1:] < values[:-1]).any())


def _native(words: Int64Array) -> Int64Array:
    return words.view(">i8").astype(np.int64)


def write_slots(
    fd: int,
    entries: Int64Array,
    locations: Int64Array,
    page_slots: int,
    files: Files = OS_FILES,
) -> None:
    """Store locations of sorted, distinct entries; whole pages are read, changed and written.

    Untouched pages in between are left alone (a hole stays a hole). A page past the end of the
    file begins as zeros. A write that fails (`OSError`) leaves its pages as they were.
    """
    pages = entries // page_slots
    span = max(_WRITE_SLOTS // page_slots, 1)
    gaps = np.flatnonzero(np.diff(pages) > 1) + 1
    for lo, hi in zip(np.concatenate(([0], gaps)), np.concatenate((gaps, [pages.size]))):
        at = int(lo)
        while at < hi:
            end = min(int(np.searchsorted(pages, pages[at] + span)), int(hi))
            offset, data = _pages(fd, entries[at:end], locations[at:end], page_slots)
            overwrite(fd, data, offset, files)
            at = end


def overwrite(fd: int, data: bytes, offset: int, files: Files = OS_FILES) -> None:
    """Write `data` at `offset`; if that fails (`OSError`), put back what was there.

    Else half a slot may stay of a location that was good.
    """
    size, old = os.fstat(fd).st_size, os.pread(fd, len(data), offset)
    try:
        files.pwrite(fd, data, offset)
    except OSError:
        files.pwrite(fd, old, offset)
        files.truncate(fd, size)
        raise


def _pages(
    fd: int, entries: Int64Array, locations: Int64Array, page_slots: int
) -> tuple[int, bytes]:
    """Return the whole pages around some entries as they are to be, and where they lie."""
    first = int(entries[0]) // page_slots * page_slots
    stop = (int(entries[-1]) // page_slots + 1) * page_slots
    offset = HEADER_SIZE + SLOT_SIZE * first
    words = np.zeros(stop - first, ">i8")
    if entries.size < stop - first:
        old = os.pread(fd, words.nbytes, offset)
        words.view(np.uint8)[: len(old)] = np.frombuffer(old, np.uint8)
    words[entries - first] = locations
    return offset, words.tobytes()


def read_header(fd: int, path: str, compat: Literal["bookkeeper"] | None) -> IdxHeader:
    """Return the header of an open index file; `CorruptionError` names `path`."""
    try:
        return idxfile.decode_header(os.pread(fd, HEADER_SIZE, 0), compat)
    except CorruptionError as error:
        raise error.within(path) from None
    except OSError as error:
        raise unreadable(error, path) from error
