"""What stands at a place of an entry log, and where records go on behind damage.

Entry logs have no marks: a size and ids that can be, a chain of such records that leads on, and
a digest that fits (those that need no password) tell a record from other bytes. Upstream
(`DefaultEntryLogger`) trusts the size alone and steps on byte by byte where it is none; here
damage is told from padding.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from bkstore.errors import DirectoryInUse
from bkstore.files.opening import open_regular, past_hole, read_fully
from bkstore.files.os_errors import readable
from bkstore.formats.entry import V1_HEADER, V2_HEADER, fitting_checksum, record_header, record_ids
from bkstore.formats.entrylog import DIRECT_HEADER_SIZE, HEADER_SIZE
from bkstore.formats.syntax.framing import PREFIX, Bytes, find_frames, run_end, words, words_at
from bkstore.ids import Int64Array
from bkstore.index.api import Closing

WINDOW = 4 << 20
"""Bytes read at a time."""

ENTRY, MAP, FILLER, NONE = 1, 2, 3, 0
"""What a frame holds: an entry, a batch of the ledgers map, the rest of a direct-IO header."""

_HEAD = PREFIX + V2_HEADER
_ALIGNMENT = 4096  # of the direct-IO logger
_PADDING = 0xF0
_FURTHER = 2  # records that must follow one for it to be believed
_LOOK_BACK = 8  # frames, for one whose digest fits
_ENOUGH = 1000  # records that agree are records, wherever they lead
_LONGEST_VERIFIED = 1 << 20
_OF_MAP = 0xFF  # the first byte of ledger -1
_ZEROS = b"\0\0\0\0"
_MAP_ROOM = 20  # of a batch, before its ledgers


class LogBytes(Closing):
    """One entry log file, open for reading; its size is that at the opening."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        with readable(self.path):
            self._fd = open_regular(self.path)
            self.size = os.fstat(self._fd).st_size

    def close(self) -> None:
        """Close the file. Idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def peek(self, at: int, count: int) -> bytes:
        """Return the bytes of at..at+count; fewer where the file ends."""
        wanted = max(min(count, self.size - at), 0)
        with readable(self.path):
            data = read_fully(self._fd, wanted, at)
        if len(data) < wanted:
            raise DirectoryInUse(f"{self.path}: became shorter while it was read")
        return data

    def read(self, at: int, count: int | None = None) -> Bytes:
        """Return `count` bytes from `at` on (None: a window) as an array; fewer at the end."""
        return np.frombuffer(self.peek(at, WINDOW if count is None else count), np.uint8)

    def run_end(self, at: int, value: int) -> int:
        """Return where a run of bytes `value` that begins at `at` ends; `size` at the latest."""
        while at < self.size:
            if value == 0:
                at = self._past_hole(at)
            data = self.read(at, 1 << 16)
            end = run_end(data, 0, value)
            at += end
            if end < data.size:
                break
        return at

    def _past_hole(self, at: int) -> int:
        with readable(self.path):
            data = past_hole(self._fd, at)
        return self.size if data is None else min(data, self.size)


@dataclass(frozen=True)
class Run:
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
    def count(self) -> int:
        """The number of frames."""
        return int(self.offsets.size)

    def start(self, number: int) -> int:
        """Return the file offset of a frame's size; `end` for the number behind the last."""
        return self.base + int(self.offsets[number]) - PREFIX if number < self.count else self.end

    def first(self, count: int) -> Run:
        """Return the first `count` frames."""
        return Run(
            self.data,
            self.base,
            self.offsets[:count],
            self.sizes[:count],
            self.scopes[:count],
            self.ledgers[:count],
            self.entries[:count],
            self.kinds[:count],
            self.start(count),
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


def suspects(log: LogBytes, run: Run) -> int:
    """Return the number of the first frame of a run that what stands behind it makes doubtful.

    A wrong size may lead over the beginnings of other records, and the frame that it leads to
    may look right by chance. A digest that fits clears a frame and all before it; where none of
    the last frames has one that can be computed, it is the last frame, and those before it as
    long as they are not in order.
    """
    last = run.count - 1
    for at in range(last, max(last - _LOOK_BACK, -1), -1):
        if _verifies(log, run.start(at)):
            return at + 1
    at = last
    while at > max(last - _LOOK_BACK, 0) and not _in_order(log, run.start(at)):
        at -= 1
    return at


def next_record(log: LogBytes, at: int, start: int) -> int:
    """Return where records go on, given that none stands at `at`; the file's size if nowhere.

    The search begins behind `start`, where the first doubtful frame before `at` begins (`at` if
    there is none); an answer below `at` says that it is wrong indeed. A place is believed where
    the digest fits, else if a chain of records leads on from it, over `at` and two records
    further, or in order to the end, and nothing better stands between it and that chain.
    """
    # The size at `at` may be right and only what it counts damaged: then records go on behind it.
    size = int.from_bytes(log.peek(at, PREFIX), "big", signed=True)
    behind, dead = at + PREFIX + size, set[int]()
    if size >= V1_HEADER and (behind == log.size or _chain(log, behind, at, dead)):
        return behind
    # Else no size can be trusted: every place where a record could begin is tried, in order.
    chain, known, limit, ordered = list[int](), set[int](), log.size, False
    begin = start + 1 if start == at else start + PREFIX + V1_HEADER
    while begin < limit:
        data = log.read(begin)
        for place in (_candidates(data, log.size - begin) + begin).tolist():
            if place >= limit:
                break
            if _verifies(log, place):
                return int(place)
            if ordered or place in known or not (here := _chain(log, place, at, dead)):
                continue
            # The first chain stays unless one in order comes; the search ends where its records
            # are known to be right, as nothing better can stand behind that.
            ordered = _in_order(log, place)
            if not chain:
                near = here[1 : 1 + _LOOK_BACK]
                limit = next((p for p in near if _verifies(log, p)), here[-1])
            if ordered or not chain:
                chain, known = here, set(here)
        if begin + data.size >= min(limit, log.size):
            break
        begin += data.size - _HEAD  # the windows overlap: no head is cut in two
    return chain[0] if chain else log.size


def _verifies(log: LogBytes, at: int) -> bool:
    """Return whether the frame at `at` has a digest that needs no password, and that fits."""
    head = log.peek(at, PREFIX + 1)
    size = int.from_bytes(head[:PREFIX], "big", signed=True)
    if not V1_HEADER <= size <= min(_LONGEST_VERIFIED, log.size - at - PREFIX):
        return False
    record = log.peek(at + PREFIX, size)
    return fitting_checksum(record) is not None


def _candidates(data: Bytes, left: int) -> Int64Array:
    """Return the offsets where a size that can be stands before ids that can be, int64[n]."""
    count = data.size - PREFIX - V1_HEADER + 1
    if count <= 0:
        return np.empty(0, np.int64)
    sizes = words_at(data, ">i4")[:count].astype(np.int64)
    found = np.flatnonzero((sizes >= V1_HEADER) & (sizes <= left - PREFIX - np.arange(count)))
    first, second = words(data, found, PREFIX), words(data, found, PREFIX + 8)
    plain = (first >= 0) & (second >= 0)
    lac = words(data, found, PREFIX + 16)
    plain &= (lac >= -1) & (words(data, found, PREFIX + 24) >= 0)
    plain &= (lac < second) | (sizes[found] <= _LONGEST_VERIFIED)  # else nothing speaks for it
    flags = data[found + PREFIX]
    wide = (flags >= 0xA1) & (flags <= 0xA4)
    of_map = (first == -1) & ((second == -2) | (second == -3))
    likely: Int64Array = found[plain | wide | of_map]
    return likely


def _chain(log: LogBytes, at: int, beyond: int, dead: set[int]) -> list[int]:
    """Return the places of records that follow each other from `at` on, past `beyond` and some
    further, and where they go on; nothing if they do not.

    Places from which they do not are noted in `dead`, so that none is followed twice.
    """
    passed: list[int] = []
    while len(passed) <= _FURTHER or (at <= beyond and len(passed) < _ENOUGH):
        place = look(log, at)
        if place.kind != "frame" or at in dead:
            ended = place.kind in ("end", "padding") and at > beyond
            if ended and passed and all(_in_order(log, p) for p in passed):
                break
            dead.update(passed)
            return []
        passed.append(at)
        at = place.end
    return [*passed, at]


def _in_order(log: LogBytes, at: int) -> bool:
    """Return whether the record at `at` confirms entries before its own only, as most do.

    A batch of the ledgers map will do.
    """
    head = log.peek(at + PREFIX, V2_HEADER)
    if head[0] == _OF_MAP:
        return True
    header = record_header(head)
    return header.lac < header.entry_id
