"""EntryLogger: appends records to entry logs, rolls them, and returns locations.

BookKeeper's counterparts are `DefaultEntryLogger`, `EntryLogManagerForSingleEntryLog` and
`EntryLoggerAllocator`. `reader` reads records, this module those still in the write buffer. Each
start begins a new log; none is reopened for appending. Formats: `docs/formats/entrylog.md`.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from threading import RLock

from bkstore.arguments import boolean, function, integer, optional
from bkstore.errors import BkstoreError, CorruptionError, ReadOnlyError, SyncFailed
from bkstore.files.disk_changes import OS_FILES, Files, check_files
from bkstore.files.opening import read_file
from bkstore.files.os_errors import convert_read_errors, convert_sync_errors, convert_write_errors
from bkstore.formats import entrylog
from bkstore.formats.entry import BatchLedgers, RecordBatch, record_header
from bkstore.formats.entrylog import HEADER_SIZE, SIZE_FIELD_BYTES, LogHeader, LogMetadata
from bkstore.ids import MAX_LOG_ID, Int64Array, LedgerId
from bkstore.index.api import Closeable
from bkstore.storage.entry_log.open_log import MAX_LOG_BYTES, OpenLog
from bkstore.storage.entry_log.reader import LogReader
from bkstore.storage.options import DEFAULT_LOG_SIZE, check_log_size

LAST_ID_NAME = "lastId"
_MAX_LAST_ID_BYTES = 1 << 16


class EntryLogger(Closeable):
    """Appends to entry logs in the ``current/`` of one or more ledger directories.

    A log is rolled before a record that would exceed `size_limit`. `per_ledger` keeps one open
    log for each ledger (`entryLogPerLedgerEnabled`), at most `max_active` of them. `choose(n)`
    returns the index, 0..n-1, of the directory for a new log; the default is random.

    Threads: one lock guards writing; reading needs none. Fork: the child may only read, as its
    storage is closed. Processes: one writer. A failed write (`WriteFailed`, such as on a full
    disk) leaves everything in the buffer, and the next attempt writes at the same position; after
    `SyncFailed` the logger takes no more records.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as top, EntryLogger([Path(top)]) as logger:
    ...     record = bytes(7) + b"\\x07" + bytes(56)
    ...     location = logger.add(LedgerId(ledger=7), record)
    ...     location, logger.read(location, LedgerId(ledger=7), 0) == record
    (1028, True)
    """

    def __init__(
        self,
        currents: Sequence[Path],
        *,
        size_limit: int = DEFAULT_LOG_SIZE,
        per_ledger: bool = False,
        max_active: int = 500,
        choose: Callable[[int], int] | None = None,
        files: Files = OS_FILES,
    ) -> None:
        """Check the options and list the existing logs; the first record creates a log."""
        self._currents = list(currents)
        self._size_limit = check_log_size("size_limit", size_limit)
        self._per_ledger = boolean("per_ledger", per_ledger)
        self._max_active = integer(1)("max_active", max_active)
        self._choose = optional(function)("choose", choose) or random.randrange
        self.files = check_files("files", files)
        self._lock = RLock()
        self._active: dict[LedgerId | None, OpenLog] = {}
        """The logs that take records: one for each ledger with `per_ledger`, else one, of None."""
        self._writing: dict[int, OpenLog] = {}
        """The logs whose files are open for writing, by id: active, rotated, compaction output."""
        self._rotated: list[OpenLog] = []
        """The logs that take no more records, and that the next flush syncs and closes."""
        self._paths: dict[int, Path] = {}
        for current in self._currents:
            self._paths.update(_list_logs(current))
        self._last_id = find_last_log_id(self._currents)
        self._sync_failure: SyncFailed | None = None
        self.reader = LogReader(self._paths.get)

    # -- the logs

    @property
    def currents(self) -> list[Path]:
        """The ``current/`` directories in which logs are created."""
        return list(self._currents)

    @property
    def log_ids(self) -> list[int]:
        """The ids of all logs, ascending."""
        with self._lock:
            return sorted(self._paths)

    @property
    def active_ids(self) -> list[int]:
        """The ids of the logs that take records now."""
        with self._lock:
            return sorted(log.log_id for log in self._active.values())

    def path(self, log_id: int) -> Path:
        """Return the path of a log; raise `CorruptionError` if there is no such log."""
        path = self._paths.get(log_id)
        if path is None:
            raise CorruptionError(f"{log_id:x}.log", None, "no such entry log")
        return path

    def metadata_of(self, log_id: int) -> LogMetadata | None:
        """Return the metadata of a log that is being written, None for any other."""
        with self._lock:
            log = self._writing.get(log_id)
            return None if log is None else log.metadata

    # -- reading

    def read(self, location: int, ledger: LedgerId, entry_id: int) -> bytes:
        """Return one record, as `LogReader.read` does, or from the write buffer."""
        log = self._writing.get(location >> 32)
        if log is not None and (location & 0xFFFFFFFF) >= log.written_bytes:
            record = self._read_buffered(log, location & 0xFFFFFFFF)
            if record is not None and record_header(record)[:2] == (ledger, entry_id):
                return record
        return self.reader.read(location, ledger, entry_id)

    def _read_buffered(self, log: OpenLog, position: int) -> bytes | None:
        """Return a record from the write buffer, None if it was written meanwhile."""
        with self._lock:
            start = position - log.written_bytes
            if start < SIZE_FIELD_BYTES:
                return None
            size = int.from_bytes(log.buffer[start - SIZE_FIELD_BYTES : start], "big")
            return bytes(log.buffer[start : start + size])

    def write_buffered(self, log_id: int | None = None) -> None:
        """Write the buffered records of one log, or of all, without a sync."""
        with self._lock:
            for log in list(self._writing.values()):
                if log_id in (None, log.log_id):
                    log.write_buffered()

    # -- appending

    def add(self, ledger: LedgerId, record: bytes, *, roll: bool = True) -> int:
        """Append one record and return its location. A record that exceeds the log's size limit
        rolls: it goes to a new log. Without `roll` the limit is that of all logs, 2^31-1 bytes."""
        with self._lock:
            limit = self._size_limit if roll else MAX_LOG_BYTES
            # Fast path: there is one log for all ledgers (key None), and it has room. A ledger id
            # with a scope (an upper half) needs a log of version 2 first.
            log = None if self._per_ledger or self._sync_failure else self._active.get(None)
            if log is not None and ledger.scope == 0:
                location = log.try_add(ledger, record, limit)
                if location:
                    return location
            log = self._log_for(ledger, len(record), roll)
            if ledger.scope:
                log.set_version_2()
            return log.add(ledger, record)

    def add_batch(
        self, batch: RecordBatch, ledgers: BatchLedgers, *, roll: bool = True
    ) -> Iterator[Int64Array]:
        """Append the records of a framed batch; yield the locations, int64[m], of each run: of the
        adjacent records that go to one log, in one write that appends all or none. Each record goes
        to the log to which `add` would append it."""
        if self._per_ledger:
            for ledger_id, start, stop in ledgers.runs(len(batch)):
                yield from self._append_runs(batch, BatchLedgers([ledger_id]), start, stop, roll)
        else:
            yield from self._append_runs(batch, ledgers, 0, len(batch), roll)

    def _append_runs(
        self, batch: RecordBatch, ledgers: BatchLedgers, start: int, stop: int, roll: bool
    ) -> Iterator[Int64Array]:
        """Append the records start..stop (half open), each time as many as fit in the log."""
        limit = self._size_limit if roll else MAX_LOG_BYTES
        record_ends = batch.offsets + batch.sizes
        while start < stop:
            with self._lock:
                # Any ledger of the batch gives the log: with a log per ledger, it has just one.
                log = self._log_for(ledgers.ledger_ids[0], int(batch.sizes[start]), roll)
                # Take as many records as end within the log's limit, but at least one.
                run_offset = int(batch.offsets[start]) - SIZE_FIELD_BYTES
                run_stop = int(record_ends.searchsorted(limit - log.end + run_offset, "right"))
                run_stop = min(max(run_stop, start + 1), stop)
                is_whole_batch = (start, run_stop) == (0, len(batch))
                run_ledgers = ledgers if is_whole_batch else ledgers.between(start, run_stop)
                if any(ledger_id.scope for ledger_id in run_ledgers.ledger_ids):
                    log.set_version_2()
                locations = log.add_batch(batch.between(start, run_stop).framed(), run_ledgers)
            yield locations
            start = run_stop

    def _log_for(self, ledger: LedgerId, size: int, roll: bool) -> OpenLog:
        """Return the log to append a record of `size` bytes to; roll first if it does not fit (a
        log without records takes any). A full buffer is written here, before the record is
        appended, so that an error leaves no record that nobody confirmed."""
        self._check_writable()
        key = ledger if self._per_ledger else None
        log = self._active.get(key)
        if log is not None:
            log.write_if_full()
        limit = self._size_limit if roll else MAX_LOG_BYTES
        if log is not None and log.end + SIZE_FIELD_BYTES + size > limit and log.end > HEADER_SIZE:
            self._rotate_log(key)
            log = None
        if log is None:
            log = self._active[key] = self._create_log()
        if key is not None:
            self._mark_used(key)
        return log

    def _mark_used(self, key: LedgerId) -> None:
        """Mark a ledger's log as last used, and rotate the least recently used beyond the limit.
        Rotated logs stay open for the next flush: sync and close them once they are as many as the
        limit, so that at most twice as many files are open."""
        self._active[key] = self._active.pop(key)
        while len(self._active) > self._max_active:
            self._rotate_log(next(iter(self._active)))
        if len(self._rotated) >= self._max_active:
            self._release_rotated()

    def close_ledger_log(self, ledger: LedgerId) -> None:
        """Close the ledger's own log, so that it can be collected."""
        with self._lock:
            if ledger in self._active:
                self._rotate_log(ledger)

    def _create_log(self, suffix: str = "") -> OpenLog:
        """Create a log of a new id, with a header, in some directory; `suffix` ends the name."""
        log_id = self._allocate_id(suffix)
        dir_index = self._choose(len(self._currents)) if len(self._currents) > 1 else 0
        path = self._currents[dir_index] / (entrylog.log_name(log_id) + suffix)
        with convert_write_errors(path):
            fd = self.files.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
            log = OpenLog(log_id, path, fd, self.files)
            try:
                self.files.pwrite(fd, entrylog.encode_header(LogHeader()), 0)
            except BaseException:
                self.files.close(fd)
                raise
        self._paths[log_id] = path
        self._writing[log_id] = log
        return log

    def _allocate_id(self, suffix: str) -> int:
        """Allocate the id after the last, or 0 after the highest; skip existing file names."""
        log_id = self._last_id
        while True:
            log_id = log_id + 1 if log_id + 1 < MAX_LOG_ID else 0
            name = entrylog.log_name(log_id) + suffix
            if not any(os.path.lexists(current / name) for current in self._currents):
                break
        for current in self._currents:
            with convert_write_errors(current):
                # Not durable: if it is lost, the ids are taken from the log names.
                id_line = f"{log_id:x}\n".encode()
                self.files.write_file(current / LAST_ID_NAME, id_line, durable=False)
        self._last_id = log_id
        return log_id

    # -- rolling and syncing

    def roll(self) -> None:
        """Close the active logs; the next record starts another."""
        with self._lock:
            for key in list(self._active):
                self._rotate_log(key)

    def roll_if_over_limit(self) -> None:
        """Roll logs that grew past the size limit (after a flush that might not roll)."""
        with self._lock:
            for key, log in list(self._active.items()):
                if log.end > self._size_limit:
                    self._rotate_log(key)

    def roll_matching(self, is_match: Callable[[LogMetadata], bool]) -> None:
        """Close the active logs that have records and whose metadata `is_match` accepts."""
        with self._lock:
            for key, log in list(self._active.items()):
                if log.metadata.ledgers and is_match(log.metadata):
                    self._rotate_log(key)

    def _rotate_log(self, key: LedgerId | None) -> None:
        """Close an active log to further records; the next flush syncs it."""
        log = self._active[key]
        log.write_ledgers_map()  # if this fails, the log stays active, and it is tried again
        del self._active[key]
        self._rotated.append(log)

    def flush(self) -> None:
        """Make all added records durable."""
        with self._lock:
            self._sync_logs(list(self._active.values()))
            self._release_rotated()

    def _release_rotated(self) -> None:
        """Sync the rotated logs and close their files."""
        self._sync_logs(self._rotated)
        while self._rotated:
            log = self._rotated.pop()
            self._writing.pop(log.log_id, None)
            log.close()

    def _sync_logs(self, logs: Sequence[OpenLog]) -> None:
        """Write and sync logs and their directories; refuse records after `SyncFailed`."""
        self._check_writable()
        try:
            for log in logs:
                log.sync()
            for directory in sorted({log.path.parent for log in logs}):
                with convert_sync_errors(directory):
                    self.files.sync_dir(directory)
        except SyncFailed as error:
            self._sync_failure = error
            raise

    def _check_writable(self) -> None:
        if self._sync_failure is not None:
            cause = self._sync_failure
            raise ReadOnlyError(f"no more writes after a failed sync ({cause}); reopen")

    # -- logs written by compaction, under a temporary name until complete

    def create_temporary(self, suffix: str) -> OpenLog:
        """Create a log of a new id, with `suffix` after its name, invisible to readers."""
        with self._lock:
            log = self._create_log(suffix)
            del self._paths[log.log_id], self._writing[log.log_id]
            return log

    # -- removing

    def publish(self, log_id: int, path: Path) -> None:
        """Make a finished log visible to readers."""
        with self._lock:
            self._paths[log_id] = path

    def remove(self, log_id: int) -> None:
        """Delete a closed log; raise `BkstoreError` if it is still being written."""
        with self._lock:
            if log_id in self._writing:
                raise BkstoreError(f"entry log {log_id:x}.log is still being written")
            path = self.path(log_id)
            with convert_write_errors(path):
                self.files.unlink(path)
            del self._paths[log_id]
            self.reader.close_log(log_id)

    def close(self) -> None:
        """Write buffered records, without a sync, and close the files. Idempotent."""
        with self._lock:
            try:
                self.write_buffered()
            finally:
                self._active.clear()
                self._rotated.clear()
                while self._writing:
                    self._writing.popitem()[1].close()
                self.reader.close()


def _list_logs(current: Path) -> dict[int, Path]:
    """Return the entry logs of a directory by log id."""
    paths = {}
    for name in os.listdir(current):
        log_id = entrylog.parse_log_name(name)
        if log_id is not None:
            paths[log_id] = current / name
    return paths


def find_last_log_id(currents: Sequence[Path]) -> int:
    """Return the highest id in `lastId` files and log names, -1 if there is none. As BookKeeper,
    ignores an unreadable number in `lastId`: the log names suffice."""
    highest_id = -1
    for current in currents:
        highest_id = max([highest_id, *_list_logs(current)])
        id_text = ""
        with convert_read_errors(current / LAST_ID_NAME), suppress(FileNotFoundError):
            data = read_file(current / LAST_ID_NAME, _MAX_LAST_ID_BYTES)
            id_text = data.decode("utf-8", "replace")
        with suppress(ValueError):
            highest_id = max(highest_id, int(id_text.strip(), 16))
    return highest_id
