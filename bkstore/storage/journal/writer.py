"""JournalWriter: appends records to journal files, pads, syncs, preallocates and rolls.

Source: `bookie/Journal`, `bookie/JournalChannel`. Format: `docs/formats/journal.md`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

from bkstore import forks
from bkstore.arguments import integer, optional
from bkstore.errors import IllegalOperation, InvalidArgument, WriteFailed
from bkstore.files.disk_changes import OS_FILES, Files, check_files
from bkstore.files.os_errors import convert_sync_errors, convert_write_errors
from bkstore.formats.entry import RecordBatch
from bkstore.formats.journal import (
    PADDED_VERSION,
    SPECIAL_VERSIONS,
    LogMark,
    check_record_size,
    encode_header,
    encode_record,
    encode_special,
    padding_record,
)
from bkstore.index.api import Closeable, LedgerLike
from bkstore.storage.journal.group_commit import GroupCommit
from bkstore.storage.journal.last_mark import journal_name, list_journal_files
from bkstore.storage.options import JournalOptions


class JournalWriter(Closeable):
    """Writes the journal of one directory; each writer starts a new file.

    `current` is the journal directory's ``current/``, which must exist. The first file's id is one
    above the newest there, else `first_id`, else the clock's milliseconds + 1. The file is durable
    when the constructor returns. A flush that leaves the position above `max_size` rolls: it
    creates the file of the next id before it returns. Each file is preallocated in steps of
    `preallocate` bytes (0 = not at all), a multiple of `alignment`, which is a multiple of 512.

    Records are buffered, up to `write_buffer` bytes; they are durable only after `sync` or `flush`.
    Versions 5 and 6 pad to `alignment` before each flush, 4 does not.

    Threads: every method may be called from any thread. Appends take one lock, which is not held
    during an fsync (except at a roll). So threads that append and then `sync` share fsyncs: those
    that the running one covers return when it ends, and one of the others makes the next for all of
    them (`GroupCommit`). Fork: closed in the child. The bookie's lock keeps second writers out.

    A failed write (`WriteFailed`) or fsync (`SyncFailed`) ends the writer: every later append and
    flush raises `IllegalOperation`. The file may then end in half a record, behind which a reader
    finds nothing; and a second fsync may succeed although the first one lost pages. `mark` still
    returns what is durable; a new writer on the directory starts a new file.

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
        """Start a file; `settings` are fields of `JournalOptions`, used if `options` is None."""
        options = JournalOptions(**settings) if options is None else options
        first_id = optional(integer(0))("first_id", first_id)
        self.current = Path(current)
        self.version = options.version
        self._header = encode_header(options.version)
        self._files = check_files("files", files)
        self._max_size = options.max_size
        self._preallocation_step = options.preallocate
        self._alignment = options.alignment
        self._buffer_limit = options.write_buffer
        self._lock = threading.Lock()  # guards the buffer, the file and `_closed`
        self._commit = GroupCommit()  # one fsync, roll or close at a time; taken before _lock
        self._failure: BaseException | None = None
        self._buffer = bytearray()
        self._closed = False
        forks.register(self)
        existing_files = list_journal_files(self.current)
        if existing_files:
            last_id, _ = existing_files[-1]
            first_id = last_id + 1
        elif first_id is None:
            # As BookKeeper does: the first id is the time, and later ids count on from it.
            first_id = int(options.clock() * 1000) + 1
        self._open_file(first_id)

    # -- positions

    @property
    def mark(self) -> LogMark:
        """The position before which everything is durable. Its file exists."""
        return self._commit.durable

    @property
    def has_failed(self) -> bool:
        """Whether a write or fsync failed; the writer takes no more records then."""
        return self._failure is not None

    @property
    def failure(self) -> BaseException | None:
        """The error of the write or fsync that failed, None if none did."""
        return self._failure

    @property
    def position(self) -> LogMark:
        """The position after the last record appended, buffered or not."""
        with self._lock:
            return self._end_position()

    def _end_position(self) -> LogMark:
        """Return the position after the last record; the caller holds `_lock`."""
        return LogMark(self._journal_id, self._written_bytes + len(self._buffer))

    # -- appending

    def append(self, data: bytes) -> LogMark:
        """Append one record and return the position after it, which `sync` makes durable. Raises
        `InvalidArgument` for a record below 16 bytes, which has no ids, or above 2^31-1."""
        return self._append(encode_record(data))

    def append_many(self, records: Iterable[bytes]) -> LogMark:
        """Append records in order, all or none; return the position after the last."""
        return self._append(b"".join(map(encode_record, records)))

    def append_batch(self, batch: RecordBatch) -> LogMark:
        """Append the records of a batch in order, all of them or none.

        Writes the same bytes and raises the same errors as `append_many`. A batch as large as the
        write buffer is written directly: one write, without a copy if the batch is framed.

        >>> import tempfile
        >>> batch = RecordBatch.of([bytes(16), bytes(40)], [0, 1])
        >>> with tempfile.TemporaryDirectory() as current:
        ...     with JournalWriter(Path(current), first_id=7, preallocate=0) as writer:
        ...         writer.append_batch(batch)
        LogMark(journal_id=7, position=576)
        """
        if len(batch):
            check_record_size(int(batch.sizes.min()))
            check_record_size(int(batch.sizes.max()))
        return self._append(batch.framed().buffer)

    def _append(self, framed: bytes | memoryview) -> LogMark:
        with self._lock:
            self._check_usable()
            self._buffer_records(framed)
            return self._end_position()

    def append_special(self, kind: str, ledger: LedgerLike, body: bytes = b"") -> LogMark | None:
        """Append a special record; return None, writing nothing, if the version lacks this kind
        (below 6, "explicit_lac"), as BookKeeper does. See `formats.journal.encode_special`."""
        data = encode_special(kind, ledger, body)
        return None if self.version < SPECIAL_VERSIONS[kind] else self.append(data)

    def _buffer_records(self, data: bytes | memoryview) -> None:
        """Buffer whole records, or write them if larger than the buffer; preallocate space."""
        end_position = self._written_bytes + len(self._buffer) + len(data)
        if self._preallocation_step and end_position > self._allocated_bytes:
            # As many steps as are needed, so that the zeros lie behind all that is written. The
            # single step that BookKeeper takes can end inside a record longer than a step.
            step = self._preallocation_step
            self._allocated_bytes += -(-(end_position - self._allocated_bytes) // step) * step
            self._preallocate()
        if len(data) >= max(self._buffer_limit, 1):
            self._write_buffered()
            self._write_out(data)
            return
        self._buffer += data
        if len(self._buffer) >= self._buffer_limit:
            self._write_buffered()

    def _preallocate(self) -> None:
        """Write zeros at the end of the allocated space, which extends the file."""
        with self._fail_on_error(convert_write_errors, self._path):
            zeros = bytes(self._alignment)
            self._files.pwrite(self._fd, zeros, self._allocated_bytes - self._alignment)

    def _write_buffered(self) -> None:
        """Write the buffer, without padding: only flushes pad."""
        if self._buffer:
            self._write_out(self._buffer)
            self._buffer = bytearray()

    def _write_out(self, data: bytes | bytearray | memoryview) -> None:
        """Write `data` at the end of the file; take back a partial write."""
        try:
            with self._fail_on_error(convert_write_errors, self._path):
                self._files.pwrite(self._fd, data, self._written_bytes)
        except WriteFailed:
            # Half a record before preallocated zeros looks like a whole one, so cut it off. An
            # error of that is ignored: the writer has failed already.
            with suppress(OSError):
                self._files.truncate(self._fd, self._written_bytes)
            raise
        self._written_bytes += len(data)

    # -- making durable

    def sync(self, upto: LogMark | None = None) -> LogMark:
        """Block until everything before `upto` is durable (None: all appended records).

        Returns the position reached. Needs no fsync if another thread's covered it. Raises
        `InvalidArgument` if `upto` is after the last record, `WriteFailed` or `SyncFailed` if the
        write fails, and `IllegalOperation` if an earlier one failed and `upto` is not durable.
        """
        position = self.position if upto is None else upto
        if self._commit.durable < position:
            with self._commit.leading(position) as is_leader:
                if is_leader:
                    self._flush(sync=True)
            if self._commit.durable < position:
                raise InvalidArgument(f"{self.current}: no append ended at {position}")
        return self._commit.durable

    def flush(self, sync: bool = True) -> LogMark:
        """Pad and write the buffer, with an fsync if `sync`; return the position reached."""
        with self._commit.leading():
            return self._flush(sync)

    def _flush(self, sync: bool) -> LogMark:
        """Write what is buffered, sync it if `sync`, and start the next file if this one is too
        large. The caller leads the group commit: nobody else syncs, rolls or closes meanwhile."""
        with self._lock:
            self._check_usable()
            reached = self._pad_and_write()
        if sync:
            self._fsync(reached)
        if reached.position > self._max_size:
            self._start_next_file()
        return reached

    def _pad_and_write(self) -> LogMark:
        """Write the buffer, padded to the alignment if the version has padding; return its end."""
        if self.version >= PADDED_VERSION:
            end_position = self._written_bytes + len(self._buffer)
            self._buffer_records(padding_record(end_position, self._alignment))
        self._write_buffered()
        return self._end_position()

    def _fsync(self, reached: LogMark) -> None:
        """Make durable what was written up to `reached`; appends may continue meanwhile."""
        if self._commit.durable < reached:
            with self._fail_on_error(convert_sync_errors, self._path):
                self._files.fsync(self._fd)
            self._commit.durable = reached

    # -- files

    def _open_file(self, journal_id: int) -> None:
        """Start a new file: write header and preallocation, sync file and directory."""
        path = self.current / journal_name(journal_id)
        with self._fail_on_error(convert_write_errors, path):
            fd = self._files.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        try:
            with self._fail_on_error(convert_write_errors, path):
                # Zeros at the end of the preallocated space extend the file. They are written first
                # because the header may overlap them.
                if self._preallocation_step:
                    zeros = bytes(self._alignment)
                    self._files.pwrite(fd, zeros, self._preallocation_step - self._alignment)
                self._files.pwrite(fd, self._header, 0)
            with self._fail_on_error(convert_sync_errors, path):
                self._files.fsync(fd)
                self._files.sync_dir(self.current)
        except BaseException:
            with convert_write_errors(path):
                self._files.close(fd)
            raise
        self._fd, self._journal_id, self._path = fd, journal_id, path
        self._written_bytes, self._allocated_bytes = len(self._header), self._preallocation_step
        self._commit.durable = LogMark(journal_id, self._written_bytes)

    def _start_next_file(self) -> None:
        """Sync the file and continue in the next one; an error fails the writer."""
        with self._lock:
            if self._failure is not None:  # an append since the flush failed and has raised it
                return
            self._fsync(self._pad_and_write())  # others appended since the flush
            old_fd, old_path = self._fd, self._path
            self._open_file(self._journal_id + 1)
            with self._fail_on_error(convert_write_errors, old_path):
                self._files.close(old_fd)

    def close(self) -> None:
        """Flush, sync and close the file; idempotent. After a failure, only close it."""
        with self._commit.leading():
            with self._lock:
                if self._closed:
                    return
                self._closed = True  # no more appends from here on
            try:
                if self._failure is None:
                    self._fsync(self._pad_and_write())
            finally:
                with convert_write_errors(self._path):
                    self._files.close(self._fd)

    def _forked(self) -> None:
        self._closed = True
        self._lock, self._commit = threading.Lock(), GroupCommit(self.mark)

    def _check_usable(self) -> None:
        """Raise if the journal is closed, or an earlier write failed."""
        if self._closed:
            raise forks.closed_error(f"{self.current}: the journal")
        if self._failure is not None:
            raise IllegalOperation(
                f"{self._path}: an earlier write failed ({self._failure}) and may have left "
                "a partial record: no more appends; reopen the bookie"
            ) from self._failure

    @contextmanager
    def _fail_on_error(
        self, convert_errors: Callable[[Path], AbstractContextManager[None]], path: Path
    ) -> Iterator[None]:
        """Run the ``with`` block in `convert_errors`, which converts the system's errors to those
        of writing or syncing. Any error ends the writer: it is kept as `_failure`."""
        try:
            with convert_errors(path):
                yield
        except BaseException as error:
            self._failure = error
            raise
