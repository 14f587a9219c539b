"""JournalWriter: appends records to journal files, pads, syncs, preallocates and rolls.

Source: `bookie/Journal` (grouping, padding, rolling), `bookie/JournalChannel` (header,
preallocation). Format: `docs/formats/journal.md`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

from bkstore import forks
from bkstore.arguments import optional, whole
from bkstore.errors import IllegalOperation, InvalidArgument, WriteFailed
from bkstore.files.disk_changes import OS_FILES, Files, check_files
from bkstore.files.os_errors import syncing, writing
from bkstore.formats.entry import RecordBatch
from bkstore.formats.journal import (
    PADDED_VERSION,
    SPECIAL_VERSIONS,
    LogMark,
    check_size,
    encode_header,
    encode_record,
    encode_special,
    padding,
)
from bkstore.ids import LedgerId
from bkstore.index.api import Closing
from bkstore.storage.journal.group_commit import GroupCommit
from bkstore.storage.journal.last_mark import journal_files, journal_name
from bkstore.storage.options import JournalOptions


class JournalWriter(Closing):
    """Writes the journal of one directory, in a new file from each start on.

    `current` is the journal directory's ``current/``, which must exist. The first file's id is
    one above the newest there, else `first_id`, else the clock's milliseconds + 1. It is there,
    durably, when the constructor returns. A flush that leaves the position above `max_size` rolls:
    the next id's file is made before the flush returns. Each file is preallocated in steps of
    `preallocate` bytes (0 = not at all). `alignment` is a multiple of 512,
    `preallocate` one of `alignment`.

    Records are buffered, up to `write_buffer` bytes; nothing is durable before `sync` or
    `flush` says so. Versions 5 and 6 pad to `alignment` before each flush, 4 does not.

    Threads: every method may be called from any thread. Appends take one lock, which is not held
    during an fsync (but at a roll); so many threads that append and then `sync` share few
    fsyncs: while one runs, the others wait; those it covers return when it ends, and one of the
    rest makes the next for all of them (`GroupCommit`). Fork: closed in the child. Nothing here
    keeps a second writer out of the directory; the bookie's lock does.

    Whatever fails in a write (`WriteFailed`) or an fsync (`SyncFailed`) ends the writer: from then
    on every append and flush raises `IllegalOperation`. The file may end in half a record then,
    and a reader would find nothing behind it; nor does a second fsync tell the truth about pages
    that a first one lost. `mark` still says what is durable; a new writer on the directory
    begins a new file.

    >>> import tempfile
    >>> from bkstore.formats.journal import encode_special
    >>> with tempfile.TemporaryDirectory() as current:
    ...     with JournalWriter(Path(current), first_id=7, preallocate=0) as writer:
    ...         writer.append(encode_special("fence", 1)), writer.sync()
    (LogMark(journal_id=7, position=532), LogMark(journal_id=7, position=1024))
    """

    def __init__(
        self,
        current: Path,
        *,
        files: Files = OS_FILES,
        first_id: int | None = None,
        options: JournalOptions | None = None,
        **settings: Any,
    ) -> None:
        """Begin a file; `settings` are fields of `JournalOptions`, for who has no `options`."""
        options = JournalOptions(**settings) if options is None else options
        first_id = optional(whole(0))("first_id", first_id)
        self.current = Path(current)
        self.version = options.version
        self._header = encode_header(options.version)
        self._files = check_files("files", files)
        self._max_size = options.max_size
        self._step = options.preallocate
        self._alignment = options.alignment
        self._write_buffer = options.write_buffer
        self._lock = threading.Lock()  # the buffer, the file, closed or not
        self._commit = GroupCommit()  # one fsync, roll or close at a time; before _lock
        self._failure: BaseException | None = None
        self._buffer = bytearray()
        self._closed = False
        forks.register(self)
        there = journal_files(self.current)
        if there:
            first_id = there[-1][0] + 1
        elif first_id is None:
            first_id = int(options.clock() * 1000) + 1
        self._open(first_id)

    # -- where we are

    @property
    def mark(self) -> LogMark:
        """The place before which everything is durable. Its file exists."""
        return self._commit.durable

    @property
    def failed(self) -> bool:
        """Whether a write or fsync failed, after which it takes no more."""
        return self._failure is not None

    @property
    def position(self) -> LogMark:
        """The place behind the last record appended, buffered or not."""
        with self._lock:
            return self._place()

    def _place(self) -> LogMark:
        return LogMark(self._id, self._written + len(self._buffer))

    # -- appending

    def append(self, data: bytes) -> LogMark:
        """Append one record and return the place behind it; it is not durable yet.

        `sync(place)` makes it so. Raises `InvalidArgument` for a record below 16 bytes (it has
        no ids; an empty one would read as the end of the file) or above 2^31-1.
        """
        return self._append(encode_record(data))

    def append_many(self, records: Iterable[bytes]) -> LogMark:
        """Append records in order and return the place behind the last; all of them or none."""
        return self._append(b"".join(map(encode_record, records)))

    def append_batch(self, batch: RecordBatch) -> LogMark:
        """Append the records of a batch in order, all of them or none.

        The same bytes as `append_many`, and the same errors. A batch as large as the write
        buffer is written at once, from where it lies: one write, no copy of a framed one.

        >>> import tempfile
        >>> batch = RecordBatch.of([bytes(16), bytes(40)], [0, 1])
        >>> with tempfile.TemporaryDirectory() as current:
        ...     with JournalWriter(Path(current), first_id=7, preallocate=0) as writer:
        ...         writer.append_batch(batch)
        LogMark(journal_id=7, position=576)
        """
        if len(batch):
            check_size(int(batch.sizes.min()))
            check_size(int(batch.sizes.max()))
        return self._append(batch.framed().buffer)

    def _append(self, framed: bytes | memoryview) -> LogMark:
        with self._lock:
            self._check()
            self._put(framed)
            return self._place()

    def append_special(
        self, kind: str, ledger: int | LedgerId, body: bytes = b""
    ) -> LogMark | None:
        """Append a special record; None, and nothing written, where the version has no such kind.

        That is "explicit_lac" below version 6: an explicit LAC is then not in the journal, as
        upstream. See `formats.journal.encode_special`.
        """
        data = encode_special(kind, ledger, body)
        return None if self.version < SPECIAL_VERSIONS[kind] else self.append(data)

    def _put(self, data: bytes | memoryview) -> None:
        """Buffer whole records, or write what is as large as the buffer; preallocate for them."""
        end = self._written + len(self._buffer) + len(data)
        if self._step and end > self._reserved:
            # Whole steps, so that the zeros lie behind everything that was written: a single
            # step, which is what upstream takes, can fall into a record longer than one.
            self._reserved += -(-(end - self._reserved) // self._step) * self._step
            self._preallocate()
        if len(data) >= max(self._write_buffer, 1):
            self._drain()
            self._write_out(data)
            return
        self._buffer += data
        if len(self._buffer) >= self._write_buffer:
            self._drain()

    def _preallocate(self) -> None:
        with self._ending_on_failure(writing, self._path):
            zeros = bytes(self._alignment)
            self._files.pwrite(self._fd, zeros, self._reserved - self._alignment)

    def _drain(self) -> None:
        """Write the buffer as it is; a reader meets padding only where a flush put it."""
        if self._buffer:
            self._write_out(self._buffer)
            self._buffer = bytearray()

    def _write_out(self, data: bytes | bytearray | memoryview) -> None:
        try:
            with self._ending_on_failure(writing, self._path):
                self._files.pwrite(self._fd, data, self._written)
        except WriteFailed:
            # Half a record before preallocated zeros looks like a whole one. If it cannot
            # be taken back either, the error that is raised says no less.
            with suppress(OSError):
                self._files.truncate(self._fd, self._written)
            raise
        self._written += len(data)

    # -- making durable

    def sync(self, upto: LogMark | None = None) -> LogMark:
        """Return when everything before `upto` is durable (None: all that was appended).

        Returns `mark`. Costs no fsync if another thread's covered it. Raises `InvalidArgument`
        for a place that nothing was appended up to, `WriteFailed` or `SyncFailed` where the
        system refuses, `IllegalOperation` where it has before and `upto` is not durable.
        """
        place = self.position if upto is None else upto
        if self._commit.durable < place:
            with self._commit.leading(place) as leads:
                if leads:
                    self._flush(sync=True)
            if self._commit.durable < place:
                raise InvalidArgument(f"{self.current}: nothing was appended up to {place}")
        return self._commit.durable

    def flush(self, sync: bool = True) -> LogMark:
        """Pad and write the buffer, make it durable if `sync`; return the place reached."""
        with self._commit.leading():
            return self._flush(sync)

    def _flush(self, sync: bool) -> LogMark:
        with self._lock:
            self._check()
            reached = self._write()
        if sync:
            self._fsync(reached)
        if reached.position > self._max_size:
            self._roll()
        return reached

    def _write(self) -> LogMark:
        """Pad and write the buffer; return the place reached."""
        if self.version >= PADDED_VERSION:
            self._put(padding(self._written + len(self._buffer), self._alignment))
        self._drain()
        return self._place()

    def _fsync(self, reached: LogMark) -> None:
        """Make durable what was written up to `reached`; appends may go on meanwhile."""
        if self._commit.durable < reached:
            with self._ending_on_failure(syncing, self._path):
                self._files.fsync(self._fd)
            self._commit.durable = reached

    # -- files

    def _open(self, number: int) -> None:
        """Begin a new file: header and first preallocation, both durable, and its name."""
        path = self.current / journal_name(number)
        with self._ending_on_failure(writing, path):
            fd = self._files.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        try:
            with self._ending_on_failure(writing, path):
                if self._step:  # first, as a step of one alignment unit is where the header goes
                    zeros = bytes(self._alignment)
                    self._files.pwrite(fd, zeros, self._step - self._alignment)
                self._files.pwrite(fd, self._header, 0)
            with self._ending_on_failure(syncing, path):
                self._files.fsync(fd)
                self._files.sync_dir(self.current)
        except BaseException:
            with writing(path):
                self._files.close(fd)
            raise
        self._fd, self._id, self._path = fd, number, path
        self._written, self._reserved = len(self._header), self._step
        self._commit.durable = LogMark(number, self._written)

    def _roll(self) -> None:
        """Go on in the next file.

        What fails here comes out of the call that flushed, though its own records are durable.
        """
        with self._lock:
            if self._failure is not None:  # of an append since the flush: that one has raised it
                return
            self._fsync(self._write())  # others appended since the flush
            old, path = self._fd, self._path
            self._open(self._id + 1)
            with self._ending_on_failure(writing, path):
                self._files.close(old)

    def close(self) -> None:
        """Flush, make durable, and close the file. Idempotent; after a failure it only closes."""
        with self._commit.leading():
            with self._lock:
                if self._closed:
                    return
                self._closed = True  # nothing is appended behind what is made durable here
            try:
                if self._failure is None:
                    self._fsync(self._write())
            finally:
                with writing(self._path):
                    self._files.close(self._fd)

    def _forked(self) -> None:
        self._closed = True
        self._lock, self._commit = threading.Lock(), GroupCommit(self.mark)

    def _check(self) -> None:
        if self._closed:
            raise forks.closed(f"{self.current}: the journal")
        if self._failure is not None:
            raise IllegalOperation(
                f"{self._path}: writing failed before ({self._failure}), and the file may end in "
                "half a record: nothing is appended behind it; open the bookie anew"
            ) from self._failure

    @contextmanager
    def _ending_on_failure(
        self, named: Callable[[Path], AbstractContextManager[None]], path: Path
    ) -> Iterator[None]:
        """Run what is inside as `named` (writing, syncing) does; a failure ends the writer."""
        try:
            with named(path):
                yield
        except BaseException as error:
            self._failure = error
            raise
