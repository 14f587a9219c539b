"""Many small index files at once: read into one buffer, their headers and slots judged together.

A file of one page costs the system calls that open, read and close it, and little more: what
numpy costs a call is shared by some hundred files. Only what is certain is answered here. A file
that is long, torn, odd in any field or not to be opened is left to the call for a single ledger,
which says what is wrong with it; so both ways give the same answers.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bkstore.availability.sequence_groups import BoolArray
from bkstore.formats.idxfile import HEADER_SIZE, MIN_EXPLICIT_LAC, SLOT_SIZE, VERSION_0, VERSION_1
from bkstore.ids import Int64Array, LedgerId
from bkstore.index.api import IndexBatch

LONGEST = HEADER_SIZE + (1 << 17)
"""Bytes of the longest file that is read with others: 16,384 slots."""

_TOGETHER = 1 << 20
"""Bytes read before they are judged: a second-level cache's worth."""

_HEADER_WORDS = HEADER_SIZE // SLOT_SIZE
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_SIGN_BYTE = np.int64(np.array([1 << 63], ">u8").view(np.int64)[0])
_BEGINS = [
    np.frombuffer(b"BKLE" + version.to_bytes(4, "big"), np.int64)[0]
    for version in (VERSION_0, VERSION_1)
]


class Read(NamedTuple):
    """Ledgers in the order given, and what was read of the files of some of them.

    `read` are the numbers (places in `names`) of those whose file is as it should be; the others
    must be asked one by one. Slot 0 of the i-th of them is ``words[base[i]]``; words are as they
    lie in the file, and zero between the slots of two files. They are valid until the next step.
    """

    names: list[LedgerId]
    read: list[int]
    words: Int64Array
    base: Int64Array

    def rows(self) -> Iterator[tuple[int, int, IndexBatch]]:
        """Yield (first, stop, rows) of each stretch of `names` all of whose files were read."""
        read = np.array(self.read, np.int64)
        cuts = np.flatnonzero(np.diff(read) != 1) + 1
        ends = np.append(self.base[1:] - _HEADER_WORDS, self.words.size)
        for some in np.split(np.arange(read.size), cuts):
            if some.size:
                # The slots of neighbours lie one behind the other: one look finds all that hold a
                # location, and where each file begins says whose each is.
                lo, hi = int(some[0]), int(some[-1])
                begin = int(self.base[lo])
                here = np.flatnonzero(self.words[begin : int(ends[hi])]) + begin
                owner = np.searchsorted(self.base, here, "right") - 1
                stretch = self.names[int(read[lo]) : int(read[hi]) + 1]
                scopes, numbers = np.array([name.signed for name in stretch], np.int64).T
                locations = self.words[here].view(">i8").astype(np.int64)
                none = np.broadcast_to(np.int64(0), here.shape)
                ids = scopes[owner - lo], numbers[owner - lo]
                rows = IndexBatch(none, *ids, here - self.base[owner], locations)
                yield int(read[lo]), int(read[hi]) + 1, rows


def read_files(files: Iterable[tuple[LedgerId, str | None]], page_size: int) -> Iterator[Read]:
    """Yield what lies in the files of ledgers, many at a time; None is for one to be left out.

    Files with a body that is not of whole `page_size` bytes are left out too. Memory: 1 MiB.
    """
    buffer = np.empty((_TOGETHER + LONGEST) // SLOT_SIZE + 1, np.int64)
    view = buffer.data.cast("B")
    names: list[LedgerId] = []
    places: list[int] = []
    numbers: list[int] = []
    at = 0
    for name, path in files:
        got = 0
        try:
            if path is not None:
                fd = os.open(path, _FLAGS)
                try:
                    got = os.readv(fd, (view[at : at + LONGEST + 1],))
                finally:
                    os.close(fd)
        except OSError:  # which one, the call for a single ledger says
            pass
        if HEADER_SIZE <= got <= LONGEST and not (got - HEADER_SIZE) % page_size:
            places.append(at)
            numbers.append(len(names))
            at += got
        names.append(name)
        if at >= _TOGETHER:
            yield _judged(names, numbers, buffer[: at // SLOT_SIZE], places)
            names, places, numbers, at = [], [], [], 0
    if names:
        yield _judged(names, numbers, buffer[: at // SLOT_SIZE], places)


def _judged(names: list[LedgerId], numbers: list[int], words: Int64Array, at: list[int]) -> Read:
    # Headers go to zeros once they are judged: what is left of the buffer are slots.
    begin = np.array(at, np.int64) // SLOT_SIZE
    good = _good_headers(words, begin)
    _clear_headers(words, begin)
    # One pass says whether any location is negative; which files have one is rarely asked.
    if words.size and np.bitwise_or.reduce(words) & _SIGN_BYTE:
        negative = np.flatnonzero(words & _SIGN_BYTE)
        good[np.searchsorted(begin, negative, "right") - 1] = False
    # Files that are not certain are left out as if they had not been read.
    if not good.all():
        ends = np.concatenate((begin[1:], [words.size]))
        for one in np.flatnonzero(~good).tolist():
            words[begin[one] : ends[one]] = 0
        numbers = [number for number, fits in zip(numbers, good.tolist()) if fits]
        begin = begin[good]
    return Read(names, numbers, words, begin + _HEADER_WORDS)


def _clear_headers(words: Int64Array, begin: Int64Array) -> None:
    if begin.size and (np.diff(begin, append=words.size) == words.size // begin.size).all():
        words.reshape(begin.size, -1)[:, :_HEADER_WORDS] = 0  # all of one size, as most are
    else:
        words[(begin[:, None] + np.arange(_HEADER_WORDS)).ravel()] = 0


def _good_headers(words: Int64Array, begin: Int64Array) -> BoolArray:
    """Return which headers `idxfile.decode_header` takes, for certain."""
    first = words[begin]
    explicit = first == _BEGINS[VERSION_1]
    key = _int32(words, begin * SLOT_SIZE + 8)
    good: BoolArray = explicit | (first == _BEGINS[VERSION_0])
    good &= (key >= 0) & (key <= HEADER_SIZE - 16 - 4 * explicit)
    lac = _int32(words, begin * SLOT_SIZE + 16 + np.where(good & explicit, key, 0))
    fits = (lac >= MIN_EXPLICIT_LAC) & (lac <= HEADER_SIZE - 20 - key)
    good &= ~explicit | (lac == 0) | fits
    return good


def _int32(words: Int64Array, at: Int64Array) -> Int64Array:
    """Return the big-endian int32 at each byte offset, on no border."""
    parts: npt.NDArray[np.uint8] = words.view(np.uint8)[at[:, None] + np.arange(4)]
    return parts.view(">i4").ravel().astype(np.int64)
