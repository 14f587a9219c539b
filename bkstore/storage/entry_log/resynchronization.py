"""Classifies the bytes at an offset of an entry log, and finds the next record after damage.

A frame is a record with its size before it. Entry logs have no sync marks: a record is recognized
by a plausible size and ids, by a chain of such records after it, and by a matching digest (of a
type that needs no password). The scope is the upper half of a 128-bit ledger id. BookKeeper
(`DefaultEntryLogger`) trusts the size alone, and advances byte by byte if it is invalid.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from bkstore.errors import DirectoryInUse
from bkstore.files.opening import next_data_offset, open_regular, read_fully
from bkstore.files.os_errors import convert_read_errors
from bkstore.formats.entry import V1_HEADER, V2_HEADER, matching_checksum, record_header, record_ids
from bkstore.formats.entrylog import DIRECT_HEADER_SIZE, HEADER_SIZE
from bkstore.formats.syntax.framing import (
    SIZE_FIELD_BYTES,
    Bytes,
    find_frames,
    integers_at_every_offset,
    read_int64s,
    run_end,
)
from bkstore.ids import Int64Array
from bkstore.index.api import Closeable

WINDOW_BYTES = 4 << 20
"""Bytes read at a time."""

ENTRY, MAP, FILLER, NONE = 1, 2, 3, 0
"""What a frame holds: an entry, a batch of the ledgers map, the filler of a direct-IO header."""

_HEAD_SIZE = SIZE_FIELD_BYTES + V2_HEADER
_ALIGNMENT = 4096  # of the direct-IO logger
_PADDING = 0xF0
_MIN_FOLLOWERS = 2  # plausible records that must follow one
_MAX_DOUBTFUL = 8  # frames searched backward for a valid digest
_TRUSTED_CHAIN_LENGTH = 1000  # a chain this long is believed wherever it leads
_MAX_VERIFIED_SIZE = 1 << 20
_MAP_FIRST_BYTE = 0xFF  # the first byte of ledger -1
_ZEROS = b"\0\0\0\0"
_MAP_BATCH_HEADER = 20  # bytes of a batch before its ledgers


class LogBytes(Closeable):
    """One entry log file, open for reading; `size` is that at opening."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Open the file; what is appended later is not read."""
        self.path = Path(path)
        with convert_read_errors(self.path):
            self._fd = open_regular(self.path)
            self.size = os.fstat(self._fd).st_size

    def close(self) -> None:
        """Close the file. Idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def read(self, offset: int, count: int) -> bytes:
        """Return `count` bytes at `offset`, fewer at the end of the file."""
        read_size = max(min(count, self.size - offset), 0)
        with convert_read_errors(self.path):
            data = read_fully(self._fd, read_size, offset)
        if len(data) < read_size:
            raise DirectoryInUse(f"{self.path}: was truncated while it was read")
        return data

    def read_array(self, offset: int, count: int | None = None) -> Bytes:
        """Return `count` bytes from `offset` on (None: a window) as an array; fewer at the end."""
        return np.frombuffer(self.read(offset, WINDOW_BYTES if count is None else count), np.uint8)

    def run_end(self, offset: int, value: int) -> int:
        """Return the offset of the first byte other than `value` from `offset` on, or `size`."""
        while offset < self.size:
            if value == 0:  # skip the hole of a sparse file
                offset = self._next_data_offset(offset)
            data = self.read_array(offset, 1 << 16)
            run_length = run_end(data, 0, value)
            offset += run_length
            if run_length < data.size:
                break
        return offset

    def _next_data_offset(self, offset: int) -> int:
        with convert_read_errors(self.path):
            data_offset = next_data_offset(self._fd, offset)
        return self.size if data_offset is None else min(data_offset, self.size)


@dataclass(frozen=True)
class FrameRun:
    """Adjacent frames in `data`, which is at file offset `data_offset`; `offsets` are those of the
    records in it, int64[n], `end` the file offset after the last frame. `kinds` has what each frame
    holds; ids are valid for entries only."""

    data: Bytes
    data_offset: int
    offsets: Int64Array
    sizes: Int64Array
    scopes: Int64Array
    ledgers: Int64Array
    entries: Int64Array
    kinds: npt.NDArray[np.uint8]
    end: int

    @property
    def count(self) -> int:
        """The number of frames."""
        return int(self.offsets.size)

    def start_of(self, frame_index: int) -> int:
        """Return the file offset of a frame's size; `end` for the index after the last."""
        if frame_index >= self.count:
            return self.end
        return self.data_offset + int(self.offsets[frame_index]) - SIZE_FIELD_BYTES

    def first(self, count: int) -> FrameRun:
        """Return the first `count` frames."""
        ids = self.scopes[:count], self.ledgers[:count], self.entries[:count]
        offsets, sizes, kinds = self.offsets[:count], self.sizes[:count], self.kinds[:count]
        end = self.start_of(count)
        return FrameRun(self.data, self.data_offset, offsets, sizes, *ids, kinds, end)


class Region(NamedTuple):
    """The region at an offset: a frame or padding up to `end`, zeros up to the file's end, the
    file's end, or garbage, with the `reason`."""

    kind: Literal["frame", "padding", "zeros", "end", "garbage"]
    end: int
    reason: str = ""


def _classify_frames(
    data: Bytes, offsets: Int64Array, sizes: Int64Array, data_offset: int
) -> tuple[Int64Array, Int64Array, Int64Array, npt.NDArray[np.uint8]]:
    """Return (scopes, ledgers, entries, kinds) of complete frames of at least 32 bytes. Their
    records are at `offsets` of `data`, which begins at `data_offset` of the log. The kind is ENTRY,
    MAP (a batch of the ledgers map), FILLER (it lengthens a header for direct I/O) or NONE."""
    first_words, second_words = read_int64s(data, offsets), read_int64s(data, offsets, 8)
    # In version 1 the two words are the ids: ENTRY (1) if none is negative, else NONE (0) for now.
    kinds = ((first_words >= 0) & (second_words >= 0)).astype(np.uint8)
    version_2 = np.flatnonzero(first_words < 0)
    if not version_2.size:
        return np.zeros(offsets.size, np.int64), first_words, second_words, kinds
    scopes, ledgers, entries = record_ids(data, offsets)
    # A leading bit of 1 marks version 2 entries, and ledger -1: map batches and the filler. A batch
    # of entry id -2 has 16 bytes for each ledger, one of id -3 has 24, with the scope.
    is_entry = _is_v2_flags(data[offsets[version_2]]) & (sizes[version_2] >= V2_HEADER)
    is_entry &= (scopes[version_2] != 0) & (entries[version_2] >= 0)
    is_ledger_minus_1 = first_words[version_2] == -1
    ledgers_size = sizes[version_2] - _MAP_BATCH_HEADER
    is_map = is_ledger_minus_1 & (second_words[version_2] == -2) & (ledgers_size % 16 == 0)
    is_map |= is_ledger_minus_1 & (second_words[version_2] == -3) & (ledgers_size % 24 == 0)
    log_offsets = offsets[version_2] + data_offset
    is_filler = is_ledger_minus_1 & (log_offsets == HEADER_SIZE + SIZE_FIELD_BYTES)
    is_filler &= sizes[version_2] == DIRECT_HEADER_SIZE - HEADER_SIZE - SIZE_FIELD_BYTES
    kinds[version_2] = np.select([is_entry, is_map, is_filler], [ENTRY, MAP, FILLER], NONE)
    return scopes, ledgers, entries, kinds


def read_frames(log: LogBytes, offset: int) -> FrameRun:
    """Return the frames from `offset` on, up to an implausible one; `classify_at` must have
    returned a frame for `offset`. Reads a window, or one frame that is longer."""
    size = int.from_bytes(log.read(offset, SIZE_FIELD_BYTES), "big")
    data = log.read_array(offset, max(WINDOW_BYTES, SIZE_FIELD_BYTES + size))
    frames = find_frames(data, min_size=V1_HEADER)
    scopes, ledgers, entries, kinds = _classify_frames(data, frames.offsets, frames.sizes, offset)
    end = offset + frames.end
    run = FrameRun(data, offset, frames.offsets, frames.sizes, scopes, ledgers, entries, kinds, end)
    return run if kinds.all() else run.first(int(kinds.argmin()))


def classify_at(log: LogBytes, offset: int) -> Region:
    """Return what begins at `offset`, and where it ends: a record's frame, padding before the next
    page, zeros up to the log's end, garbage, or the end itself. Reads a few bytes, and all of
    padding and zeros."""
    bytes_left = log.size - offset
    if bytes_left <= 0:
        return Region("end", offset)
    head_bytes = log.read(offset, _HEAD_SIZE)
    size = int.from_bytes(head_bytes[:SIZE_FIELD_BYTES], "big", signed=True)
    if bytes_left > SIZE_FIELD_BYTES and size > 0:
        return _check_frame(log, offset, head_bytes, size)
    if head_bytes[0] == _PADDING:
        end = log.run_end(offset, _PADDING)
        if end % _ALIGNMENT == 0 or end == log.size:
            return Region("padding", end)
    if head_bytes.startswith(_ZEROS[: min(bytes_left, SIZE_FIELD_BYTES)]):
        end = log.run_end(offset, 0)
        if end == log.size:
            return Region("zeros", end)
        return Region("garbage", end, f"{end - offset} zero bytes")
    has_size = bytes_left > SIZE_FIELD_BYTES
    reason = "no size" if has_size else f"{bytes_left} bytes, less than a size"
    return Region("garbage", offset, reason)


def _check_frame(log: LogBytes, offset: int, head_bytes: bytes, size: int) -> Region:
    """Return the frame of `size` bytes at `offset`, or garbage if it is implausible."""
    bytes_left = log.size - offset - SIZE_FIELD_BYTES
    record = f"record of {size} bytes"
    if size > bytes_left:
        return Region("garbage", offset, f"{record}, {bytes_left} are left in the log")
    if size < V1_HEADER:
        return Region("garbage", offset, f"{record}, too short for an entry")
    data, record_offsets = np.frombuffer(head_bytes, np.uint8), np.array([SIZE_FIELD_BYTES])
    *_, kinds = _classify_frames(data, record_offsets, np.array([size]), data_offset=offset)
    if kinds[0] == NONE:
        return Region("garbage", offset, f"{record} that does not begin with an entry's ids")
    return Region("frame", offset + SIZE_FIELD_BYTES + size)


def find_doubtful_frame(log: LogBytes, run: FrameRun) -> int:
    """Return the index of the first doubtful frame of a run that ends in garbage.

    A wrong size may skip over the starts of other records, to a frame that looks right by chance.
    A valid digest clears a frame and all before it. If none of the last frames has one, the last
    frame is doubtful, and those before it up to one that is in order (`_is_in_order`).
    """
    last_frame = run.count - 1
    for frame in range(last_frame, max(last_frame - _MAX_DOUBTFUL, -1), -1):
        if _has_valid_digest(log, run.start_of(frame)):
            return frame + 1
    frame = last_frame
    while frame > max(last_frame - _MAX_DOUBTFUL, 0) and not _is_in_order(log, run.start_of(frame)):
        frame -= 1
    return frame


def find_next_record(log: LogBytes, bad_offset: int, start: int) -> int:
    """Return the offset of the next record, given that none is at `bad_offset`; else the file size.

    The search starts after `start`, the offset of the first doubtful frame before `bad_offset`
    (`bad_offset` if there is none); a result below `bad_offset` confirms that this frame is wrong.
    The first offset of a record with a valid digest is returned. If there is none, it is the first
    that begins a chain: records each of which begins where the one before ends, at least three of
    them, that lead past `bad_offset`; fewer if the log ends after them and all are in order (LAC
    below entry id). A chain that begins with a record in order is preferred.
    """
    dead_ends: set[int] = set()  # offsets from which no chain leads far enough
    record_end = _end_by_size_field(log, bad_offset, dead_ends)
    if record_end is not None:
        return record_end
    # No offset in the header of a doubtful frame at `start` is tried.
    first_offset = start + 1 if start == bad_offset else start + SIZE_FIELD_BYTES + V1_HEADER
    return _search_all_offsets(log, first_offset, bad_offset, dead_ends)


def _end_by_size_field(log: LogBytes, bad_offset: int, dead_ends: set[int]) -> int | None:
    """Return the end of the record at `bad_offset` by its size field, None if that is wrong too.
    The size is right, and only the record damaged, if other records or the file's end follow."""
    size = int.from_bytes(log.read(bad_offset, SIZE_FIELD_BYTES), "big", signed=True)
    record_end = bad_offset + SIZE_FIELD_BYTES + size
    if size < V1_HEADER:
        return None
    if record_end == log.size or _follow_chain(log, record_end, bad_offset, dead_ends):
        return record_end
    return None


def _search_all_offsets(
    log: LogBytes, first_offset: int, bad_offset: int, dead_ends: set[int]
) -> int:
    """Return the offset of the record that `find_next_record` describes, trying every offset from
    `first_offset` on, whatever the size fields before it say; else the file size."""
    candidates = CandidateOffsets(log, first_offset, search_end=log.size)
    best_chain: list[int] = []
    offsets_in_chain: set[int] = set()
    is_in_order = False  # whether the best chain starts with a record that is in order
    for offset in candidates:
        if _has_valid_digest(log, offset):
            return offset
        # Once a chain in order is known, only a valid digest is better.
        if is_in_order or offset in offsets_in_chain:
            continue
        chain = _follow_chain(log, offset, bad_offset, dead_ends)
        if not chain:
            continue
        is_in_order = _is_in_order(log, offset)
        if not best_chain:
            # Search no further than the chain's first record with a valid digest, else its end.
            followers = chain[1 : 1 + _MAX_DOUBTFUL]
            valid = (follower for follower in followers if _has_valid_digest(log, follower))
            candidates.search_end = next(valid, chain[-1])
        if is_in_order or not best_chain:
            best_chain, offsets_in_chain = chain, set(chain)
    return best_chain[0] if best_chain else log.size


@dataclass
class CandidateOffsets:
    """The offsets from `first_offset` on where a record might start, in order and below
    `search_end`, which may be lowered during the iteration. Reads window by window."""

    log: LogBytes
    first_offset: int
    search_end: int

    def __iter__(self) -> Iterator[int]:
        """Yield the offsets of plausible records; the caller may lower `search_end` meanwhile."""
        window_start = self.first_offset
        while window_start < self.search_end:
            data = self.log.read_array(window_start)
            for index in _find_candidates(data, self.log.size - window_start).tolist():
                if window_start + index >= self.search_end:
                    return
                yield window_start + index
            if window_start + data.size >= min(self.search_end, self.log.size):
                return
            window_start += data.size - _HEAD_SIZE  # the windows overlap, so that no head is split


def _has_valid_digest(log: LogBytes, offset: int) -> bool:
    """Return whether the frame at `offset` has a valid digest of a type that can be verified
    without the ledger's password."""
    head_bytes = log.read(offset, SIZE_FIELD_BYTES + 1)
    size = int.from_bytes(head_bytes[:SIZE_FIELD_BYTES], "big", signed=True)
    if not V1_HEADER <= size <= min(_MAX_VERIFIED_SIZE, log.size - offset - SIZE_FIELD_BYTES):
        return False
    record = log.read(offset + SIZE_FIELD_BYTES, size)
    return matching_checksum(record) is not None


def _is_v2_flags(first_bytes: Bytes) -> npt.NDArray[np.bool_]:
    """Return whether each first byte is that of a version 2 entry with one of the four digests."""
    return (first_bytes >= 0xA1) & (first_bytes <= 0xA4)


def _find_candidates(data: Bytes, bytes_left: int) -> Int64Array:
    """Return the offsets of plausible sizes followed by plausible ids, int64[n]."""
    count = data.size - SIZE_FIELD_BYTES - V1_HEADER + 1
    if count <= 0:
        return np.empty(0, np.int64)
    # The size alone rules out most offsets: it must fit a record and the file.
    sizes = integers_at_every_offset(data, ">i4")[:count].astype(np.int64)
    max_sizes = bytes_left - SIZE_FIELD_BYTES - np.arange(count)
    offsets = np.flatnonzero((sizes >= V1_HEADER) & (sizes <= max_sizes))
    # Version 1: the first four words are ledger, entry, LAC and length.
    word_offsets = range(SIZE_FIELD_BYTES, SIZE_FIELD_BYTES + 32, 8)
    words = (read_int64s(data, offsets, word_offset) for word_offset in word_offsets)
    first_words, second_words, lac, length = words
    is_version_1 = (first_words >= 0) & (second_words >= 0) & (lac >= -1) & (length >= 0)
    # Later checks accept it only for a LAC below its entry id, or for a valid digest.
    is_version_1 &= (lac < second_words) | (sizes[offsets] <= _MAX_VERIFIED_SIZE)
    is_version_2 = _is_v2_flags(data[offsets + SIZE_FIELD_BYTES])
    is_map = (first_words == -1) & ((second_words == -2) | (second_words == -3))
    candidates: Int64Array = offsets[is_version_1 | is_version_2 | is_map]
    return candidates


def _follow_chain(log: LogBytes, offset: int, beyond: int, dead_ends: set[int]) -> list[int]:
    """Return the offsets of adjacent records, each where the one before it ends, from `offset` to
    past `beyond` (at least three, at most a thousand), and the end of the last one. Empty if the
    chain breaks; its offsets are then added to `dead_ends`, so that it is followed only once."""
    chain: list[int] = []
    # On until it has records enough, and is past `beyond` or too long to be chance.
    while len(chain) <= _MIN_FOLLOWERS or (offset <= beyond and len(chain) < _TRUSTED_CHAIN_LENGTH):
        region = classify_at(log, offset)
        if region.kind != "frame" or offset in dead_ends:
            # Fewer records do at the end of the log, if all are in order.
            is_at_end = region.kind in ("end", "padding") and offset > beyond
            if is_at_end and chain and all(_is_in_order(log, each) for each in chain):
                break
            dead_ends.update(chain)
            return []
        chain.append(offset)
        offset = region.end
    return [*chain, offset]


def _is_in_order(log: LogBytes, offset: int) -> bool:
    """Return whether the LAC of the record at `offset` is below its id; True for map batches."""
    head_bytes = log.read(offset + SIZE_FIELD_BYTES, V2_HEADER)
    if head_bytes[0] == _MAP_FIRST_BYTE:
        return True
    header = record_header(head_bytes)
    return header.lac < header.entry_id
