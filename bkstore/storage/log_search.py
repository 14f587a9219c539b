"""What stands at a place of an entry log, and where records go on behind damage.

Entry logs have no checksum and no marks: only a size and ids that can be, and a chain of such
records that leads on, tell a record from other bytes. Upstream (`DefaultEntryLogger`) trusts the
size alone and steps on byte by byte where it is none; here damage is told from padding.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from bkstore.errors import DirectoryInUse
from bkstore.formats.entry import V1_HEADER, V2_HEADER, record_ids
from bkstore.formats.entrylog import DIRECT_HEADER_SIZE, HEADER_SIZE
from bkstore.formats.framing import PREFIX, Bytes, find_frames, run_end, words, words_at
from bkstore.ids import Int64Array
from bkstore.index.access import readable
from bkstore.index.api import Closing

__all__ = ["ENTRY", "FILLER", "MAP", "LogBytes", "Place", "Run", "look", "next_record", "read_run"]

WINDOW = 4 << 20
"""Bytes read at a time."""

ENTRY, MAP, FILLER, NONE = 1, 2, 3, 0
"""What a frame holds: an entry, a batch of the ledgers map, the rest of a direct-IO header."""

_HEAD = PREFIX + V2_HEADER
_ALIGNMENT = 4096  # of the direct-IO logger
_PADDING = 0xF0
_FURTHER = 2  # records that must follow one for it to be believed
_ZEROS = b"\0\0\0\0"
_MAP_ROOM = 20  # of a batch, before its ledgers


class LogBytes(Closing):
    """One entry log file, open for reading; its size is that at the opening."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        with readable(self.path):
            self._fd = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            self.size = os.fstat(self._fd).st_size

    def close(self) -> None:
        """Close the file. Idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def peek(self, at: int, count: int) -> bytes:
        """Return the bytes of at..at+count; fewer where the file ends."""
        wanted = max(min(count, self.size - at), 0)
        parts: list[bytes] = []
        got = 0
        with readable(self.path):
            while got < wanted:
                parts.append(os.pread(self._fd, wanted - got, at + got))
                got += len(parts[-1])
                if not parts[-1]:
                    raise DirectoryInUse(f"{self.path}: became shorter while it was read")
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def read(self, at: int, count: int = WINDOW) -> Bytes:
        """Return the bytes of at..at+count as an array; fewer where the file ends."""
        return np.frombuffer(self.peek(at, count), np.uint8)

    def run_end(self, at: int, value: int) -> int:
        """Return where a run of bytes `value` that begins at `at` ends; `size` at the latest."""
        while at < self.size:
            data = self.read(at, 1 << 16)
            end = run_end(data, 0, value)
            at += end
            if end < data.size:
                break
        return at


class Run(NamedTuple):
    """Frames one behind the other; offsets are those of records in `data`, int64[n].

    `base` is the file offset of `data`, `end` that behind the last frame. `kinds` says what each
    frame holds, ids mean something for entries only.
    """

    data: Bytes
    base: int
    offsets: Int64Array
    sizes: Int64Array
    scopes: Int64Array
    ledgers: Int64Array
    entries: Int64Array
    kinds: npt.NDArray[np.uint8]
    end: int

    @property
    def last_start(self) -> int:
        """The file offset of the last frame's size."""
        return self.base + int(self.offsets[-1]) - PREFIX

    def first(self, count: int) -> Run:
        """Return the first `count` frames, of more."""
        return Run(
            self.data,
            self.base,
            self.offsets[:count],
            self.sizes[:count],
            self.scopes[:count],
            self.ledgers[:count],
            self.entries[:count],
            self.kinds[:count],
            self.base + int(self.offsets[count]) - PREFIX,
        )


class Place(NamedTuple):
    """What stands at an offset: a frame or padding up to `end`, zeros up to the file's end, the
    file's end, or nothing that belongs there, for `reason`."""

    kind: Literal["frame", "padding", "zeros", "end", "garbage"]
    end: int
    reason: str = ""


def _kinds(
    data: Bytes, offsets: Int64Array, sizes: Int64Array, base: int
) -> tuple[Int64Array, Int64Array, Int64Array, npt.NDArray[np.uint8]]:
    """Return (scopes, ledgers, entries, kinds) of whole frames of 32 bytes and more."""
    first, second = words(data, offsets), words(data, offsets, 8)
    kinds = ((first >= 0) & (second >= 0)).astype(np.uint8)
    wide = np.flatnonzero(first < 0)
    if not wide.size:
        return np.zeros(offsets.size, np.int64), first, second, kinds
    scopes, ledgers, entries = record_ids(data, offsets)
    flags = data[offsets[wide]]
    entry = (flags >= 0xA1) & (flags <= 0xA4) & (sizes[wide] >= V2_HEADER)
    entry &= (scopes[wide] != 0) & (entries[wide] >= 0)
    inner, rest = first[wide] == -1, sizes[wide] - _MAP_ROOM
    of_map = inner & (second[wide] == -2) & (rest % 16 == 0)
    of_map |= inner & (second[wide] == -3) & (rest % 24 == 0)
    filler = inner & (offsets[wide] + base == HEADER_SIZE + PREFIX)
    filler &= sizes[wide] == DIRECT_HEADER_SIZE - HEADER_SIZE - PREFIX
    kinds[wide] = np.select([entry, of_map, filler], [ENTRY, MAP, FILLER], NONE)
    return scopes, ledgers, entries, kinds


def read_run(log: LogBytes, at: int) -> Run:
    """Return the frames from `at` on, as far as they hold what can be; one at least.

    A frame must stand at `at` (`look` says so). Reads a window, or one frame that is longer.
    """
    size = int.from_bytes(log.peek(at, PREFIX), "big")
    data = log.read(at, max(WINDOW, PREFIX + size))
    frames = find_frames(data, 0, V1_HEADER)
    scopes, ledgers, entries, kinds = _kinds(data, frames.offsets, frames.sizes, at)
    end = at + frames.end
    run = Run(data, at, frames.offsets, frames.sizes, scopes, ledgers, entries, kinds, end)
    return run if kinds.all() else run.first(int(kinds.argmin()))


def look(log: LogBytes, at: int) -> Place:
    """Return what stands at `at`. Costs one small read; padding and zeros are read through."""
    left = log.size - at
    if left <= 0:
        return Place("end", at)
    head = log.peek(at, _HEAD)
    size = int.from_bytes(head[:PREFIX], "big", signed=True)
    if left > PREFIX and size > 0:
        return _frame(log, at, head, size)
    if head[0] == _PADDING:
        end = log.run_end(at, _PADDING)
        if end % _ALIGNMENT == 0 or end == log.size:
            return Place("padding", end)
    if head.startswith(_ZEROS[: min(left, PREFIX)]):
        end = log.run_end(at, 0)
        if end == log.size:
            return Place("zeros", end)
        return Place("garbage", end, f"{end - at} zero bytes")
    return Place("garbage", at, "no size" if left > PREFIX else f"{left} bytes, less than a size")


def _frame(log: LogBytes, at: int, head: bytes, size: int) -> Place:
    left = log.size - at - PREFIX
    if size > left:
        return Place("garbage", at, f"record of {size} bytes, {left} are left in the log")
    if size < V1_HEADER:
        return Place("garbage", at, f"record of {size} bytes, too short for an entry")
    data = np.frombuffer(head, np.uint8)
    if _kinds(data, np.array([PREFIX]), np.array([size]), at)[3][0] == NONE:
        return Place("garbage", at, f"record of {size} bytes that begins with no entry's ids")
    return Place("frame", at + PREFIX + size)


def next_record(log: LogBytes, at: int, last_start: int | None) -> int:
    """Return where records go on, given that none stands at `at`; the file's size if nowhere.

    `last_start` is where the record that ends at `at` begins, None if there is none: its size
    may be what is wrong, and so may lead over the beginnings of others. An answer below `at`
    says that it is. A place is believed if a chain of records leads on from it, over `at` and
    two records further or to the end.
    """
    size = int.from_bytes(log.peek(at, PREFIX), "big", signed=True)
    behind = at + PREFIX + size
    dead: set[int] = set()
    if size >= V1_HEADER and (behind == log.size or _leads_on(log, behind, at, dead)):
        return behind
    start = at + 1 if last_start is None else last_start + PREFIX + V1_HEADER
    while start < log.size:
        data = log.read(start)
        for place in (_candidates(data, log.size - start) + start).tolist():
            if _leads_on(log, place, at, dead):
                return int(place)
        if start + data.size == log.size:
            break
        start += data.size - _HEAD
    return log.size


def _candidates(data: Bytes, left: int) -> Int64Array:
    """Return the offsets where a size that can be stands before ids that can be, int64[n]."""
    count = data.size - PREFIX - V1_HEADER + 1
    if count <= 0:
        return np.empty(0, np.int64)
    sizes = words_at(data, ">i4")[:count].astype(np.int64)
    found = np.flatnonzero((sizes >= V1_HEADER) & (sizes <= left - PREFIX - np.arange(count)))
    first, second = words(data, found, PREFIX), words(data, found, PREFIX + 8)
    plain = (first >= 0) & (second >= 0)
    plain &= (words(data, found, PREFIX + 16) >= -1) & (words(data, found, PREFIX + 24) >= 0)
    flags = data[found + PREFIX]
    wide = (flags >= 0xA1) & (flags <= 0xA4)
    of_map = (first == -1) & ((second == -2) | (second == -3))
    likely: Int64Array = found[plain | wide | of_map]
    return likely


def _leads_on(log: LogBytes, at: int, beyond: int, dead: set[int]) -> bool:
    """Return whether records follow each other from `at` on, past `beyond` and some further.

    Places from which they do not are noted in `dead`, so that none is followed twice.
    """
    passed: list[int] = []
    while len(passed) <= _FURTHER or at <= beyond:
        place = look(log, at)
        if place.kind != "frame" or at in dead:
            if passed and place.kind in ("end", "padding", "zeros") and at > beyond:
                return True
            dead.update(passed)
            return False
        passed.append(at)
        at = place.end
    return True
