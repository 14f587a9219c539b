"""Scanning a journal file: its records in order, and where and how its data end.

A journal has no checksums; a length says where the next record begins. So the end of the data
is told by what stands in a length's place: nothing (the file ends), zero (preallocated space),
or something that cannot be a length. What the real scanner (`Journal.scanJournal`) passes over
in silence is a finding here. Format: `docs/formats/journal.md`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from bkstore.counts import counted
from bkstore.errors import CorruptionError, DirectoryInUse, InvalidArgument
from bkstore.files.opening import open_regular, read_fully
from bkstore.files.os_errors import readable
from bkstore.formats.entry import RecordBatch
from bkstore.formats.journal import (
    ALIGNMENT,
    PADDED_VERSION,
    PADDING_MASK,
    JournalRecord,
    decode_header,
    decode_record,
    entry_ids_among,
)
from bkstore.formats.syntax.framing import PREFIX, Frames, find_frames
from bkstore.ids import Int64Array
from bkstore.index.api import Finding
from bkstore.storage.journal.blank_sectors import lacks_ids

CHUNK = 1 << 20
"""How much is read at once. More is no quicker: a MiB stays in the processor's cache."""

_LOOK_BEHIND_END = 16 << 20
"""How far behind a zero length data are looked for: one step of preallocation."""


class ScannedRecord(NamedTuple):
    """One record: the offset of its length field, and its bytes without the length."""

    offset: int
    data: bytes


class _Window:
    """A file read forward in large pieces: `data` is what stands at `base`."""

    def __init__(self, fd: int, path: Path) -> None:
        self.fd = fd
        self.path = path
        self.size = os.fstat(fd).st_size
        self.base = 0
        self.data = b""

    def read(self, at: int, count: int) -> bytes:
        """Return `count` bytes, which lie within the file's size."""
        skip = self.hold(at, count)
        return self.data[skip : skip + count]

    def hold(self, at: int, count: int) -> int:
        """See that `data` has `count` bytes from `at` on; return where in it they begin."""
        skip = at - self.base
        if skip < 0 or skip + count > len(self.data):
            self.data = b""  # let go before as much is read
            with readable(self.path):
                self.data = read_fully(self.fd, max(count, CHUNK), at)
            self.base, skip = at, 0
            if len(self.data) < count:
                raise DirectoryInUse(f"{self.path}: became shorter while it was read")
        return skip


class JournalScan:
    """The records of one journal file, from `start` (0 = the first) to the end of its data.

    Iterating yields `ScannedRecord`; `records()` yields decoded ones, `batches()` entries in
    arrays. Each iteration reads the file anew, in pieces of 1 MiB (a record longer than that is
    read whole; a length is checked against the file's size first). About 0.5 microseconds a
    record, 2 decoded; in batches 0.1 where records are of one size, else 0.3. Threads: one
    iteration at a time.

    `version` is the file's from the beginning. After an iteration has ended, `stop` is the
    position where it did, which is what the real scanner answers and what lastMark is set to after
    a replay: behind the length field that ended it, or the file's end. `findings` lists what was
    odd: a record or length that is cut off, a `start` beyond the end, data behind the end (the
    first 16 MiB there are looked at), negative lengths with `skip_invalid`, and with `skip_torn`
    records that were written up to a sector's end inside their ids: decoded, they are passed over.

    Raises `BkstoreError` for a file that is missing or cannot be opened, and `CorruptionError`
    with file and offset: at once for what is no file, or of a version that does not exist; on the
    way where the medium fails, or for a negative length that is no padding's (with
    `skip_invalid` the scan ends there, as upstream's `skipReplayJournalInvalidRecord`).
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        start: int = 0,
        *,
        skip_invalid: bool = False,
        skip_torn: bool = False,
    ) -> None:
        if start < 0:
            raise InvalidArgument(f"a scan does not start at position {start}")
        self.path = Path(path)
        self.skip_invalid = skip_invalid
        self.skip_torn = skip_torn
        with self._opened() as fd, readable(self.path):
            first = os.pread(fd, 8, 0)
        try:
            header = decode_header(first)
        except CorruptionError as error:
            raise error.within(self.path) from None
        self.version = header.version
        self.start = start or header.size
        self.stop = self.start
        self.findings: list[Finding] = []

    def __iter__(self) -> Iterator[ScannedRecord]:
        for base, data, frames in self._frames():
            for at, size in zip(frames.offsets.tolist(), frames.sizes.tolist()):
                yield ScannedRecord(base + at - PREFIX, data[at : at + size])

    def _frames(self) -> Iterator[tuple[int, bytes, Frames]]:
        """Yield pieces of the file: where one begins, its bytes, the records that lie in it."""
        self.stop, self.findings = self.start, []
        with self._opened() as fd:
            yield from self._walk(_Window(fd, self.path))

    @contextmanager
    def _opened(self) -> Iterator[int]:
        with readable(self.path):
            fd = open_regular(self.path)
        try:
            yield fd
        finally:
            os.close(fd)

    def records(self) -> Iterator[tuple[int, JournalRecord]]:
        """Yield (offset of the length field, decoded record).

        Raises `CorruptionError` for a record that is none, or that the file's version does not
        have. Entries are not verified: the journal does not know their digests.
        """
        for offset, data in self:
            record = self._decoded(offset, data)
            if record is not None:
                yield offset, record

    def _decoded(self, offset: int, data: bytes) -> JournalRecord | None:
        """Return a record; None, with a finding, for a torn one that is to be passed over."""
        try:
            return decode_record(data, self.version)
        except CorruptionError as error:
            if self.skip_torn and lacks_ids(self.path, offset, data):
                detail = f"record is torn, its ids end in zeros ({error.reason}): passed over"
                self.findings.append(Finding("damage", detail, str(self.path), offset))
                return None
            raise error.within(self.path, offset + PREFIX) from None

    def batches(self) -> Iterator[tuple[Int64Array, RecordBatch | JournalRecord]]:
        """Yield (offsets of the length fields, int64[n]; n entries as a batch), in order.

        Other records come one by one, decoded, with one offset. What `records()` yields and
        raises, so does this, but n entries at a time: as many as follow each other in a piece of
        the file, of whatever ledgers. The batch shares the piece; `entries` has the entry ids.

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
        for base, data, (offsets, sizes, _) in self._frames():
            entries = entry_ids_among(np.frombuffer(data, np.uint8), offsets, sizes)
            places = offsets + (base - PREFIX)
            for start, stop in _runs(entries >= 0):
                part = slice(start, stop)
                batch = _batch(entries[part], data, offsets[part], sizes[part])
                if entries[start] >= 0:
                    yield places[part], batch
                    continue
                for at, one in zip(range(start, stop), batch.records()):
                    record = self._decoded(int(places[at]), one)
                    if record is not None:
                        yield places[at : at + 1], record

    def _walk(self, window: _Window) -> Iterator[tuple[int, bytes, Frames]]:
        size, at = window.size, self.start
        padding = PADDING_MASK if self.version >= PADDED_VERSION else None
        while at + PREFIX <= size:
            # What stands in a length's place says what follows: a record, the end of the data,
            # padding up to an aligned offset, or nothing that can be.
            length = int.from_bytes(window.read(at, PREFIX), "big", signed=True)
            if length > size - at - PREFIX:
                left = counted(size - at - PREFIX, "is", "are")
                detail = f"record of {counted(length, 'byte')} is cut off: {left} left"
                return self._end(size, "damage", detail, at)
            if length > 0:  # all records that follow each other in the window, at once
                skip = window.hold(at, PREFIX + length)
                frames = find_frames(np.frombuffer(window.data, np.uint8), skip, 1, padding)
                yield window.base, window.data, frames
                at = window.base + frames.end
            elif length == 0:
                return self._end_of_data(window, at + PREFIX)
            elif length == padding:
                behind = self._behind_padding(window, at)
                if behind is None:
                    return None
                at = behind
            else:
                return self._invalid(at, at + PREFIX, f"record length {length} is negative")
        return self._end_of_file(window, at)

    def _behind_padding(self, window: _Window, at: int) -> int | None:
        """Return the position behind a padding record; None where it ends the scan."""
        size = window.size
        if at + 8 > size:
            self._end(size, "oddity", "padding record is cut off in its length", at)
            return None
        zeros = int.from_bytes(window.read(at + 4, 4), "big", signed=True)
        if zeros < 0:
            self._invalid(at, at + 8, f"padding length {zeros} is negative")
            return None
        if zeros > size - at - 8:
            left = counted(size - at - 8, "is", "are")
            detail = f"padding of {counted(zeros, 'byte')} is cut off: {left} left"
            self._end(size, "oddity", detail, at)
            return None
        return at + 8 + zeros

    def _end_of_file(self, window: _Window, at: int) -> None:
        size = window.size
        self.stop = max(at, size)  # beyond the size where the scan began beyond it
        if at < size and not self._is_preallocated(window, at):
            return self._end(
                size, "damage", f"record length is cut off: {counted(size - at, 'byte')}", at
            )
        if at > size:
            detail = f"file ends at {size}, the scan was to begin at {at}"
            self.findings.append(Finding("damage", detail, str(self.path), size))
        return None

    def _is_preallocated(self, window: _Window, at: int) -> bool:
        """Return whether the last bytes of a file are space behind its records.

        Only without padding can records leave fewer than four bytes of a preallocated unit.
        """
        if self.version >= PADDED_VERSION or window.size % ALIGNMENT:
            return False
        return not any(window.read(at, window.size - at))

    def _end_of_data(self, window: _Window, at: int) -> None:
        """Stop behind a zero length; say so if the space behind it is not empty."""
        self.stop = at
        last = min(window.size, at + _LOOK_BEHIND_END)
        for place in range(at, last, CHUNK):
            piece = window.read(place, min(CHUNK, last - place))
            if np.frombuffer(piece, np.uint8).max():
                used = place + len(piece) - len(piece.lstrip(b"\0"))
                detail = f"data at {used}, behind the zero length that ends the file's records"
                self.findings.append(Finding("damage", detail, str(self.path), at - 4))
                return

    def _invalid(self, at: int, stop: int, reason: str) -> None:
        if not self.skip_invalid:
            raise CorruptionError(self.path, at, reason)
        self._end(stop, "damage", reason, at)

    def _end(self, stop: int, severity: Literal["damage", "oddity"], why: str, at: int) -> None:
        self.stop = stop
        self.findings.append(Finding(severity, why, str(self.path), at))


def _batch(entries: Int64Array, data: bytes, offsets: Int64Array, sizes: Int64Array) -> RecordBatch:
    """Return whole frames as a batch; where no padding is among them, they are known to be so."""
    padded = (offsets[1:] != offsets[:-1] + sizes[:-1] + PREFIX).any()
    made = RecordBatch if padded else RecordBatch.of_frames
    return made(entries, data, offsets, sizes)


def _runs(same: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return (start, stop) of each stretch of equal values."""
    edges = np.flatnonzero(same[1:] != same[:-1]) + 1
    bounds = [0, *edges.tolist(), same.size]
    return list(pairwise(bounds))


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
