"""EntryLogger: appends records to entry logs, rolls them, and hands out locations.

Formats: `docs/formats/entrylog.md`. Upstream's counterparts are `DefaultEntryLogger`,
`EntryLogManagerForSingleEntryLog` and `EntryLoggerAllocator`. Reading is `reader`'s; this
module only makes sure that what is asked for has left the write buffer.

A log is never opened again for appending: each start begins a new one.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from threading import RLock

from bkstore.arguments import call, optional, truth, whole
from bkstore.errors import (
    BkstoreError,
    CorruptionError,
    ReadOnlyError,
    SyncFailed,
)
from bkstore.files.disk_changes import OS_FILES, Files, check_files
from bkstore.files.opening import read_whole
from bkstore.files.os_errors import readable, syncing, writing
from bkstore.formats import entrylog
from bkstore.formats.entry import BatchLedgers, RecordBatch, record_header
from bkstore.formats.entrylog import HEADER_SIZE, PREFIX, LogHeader, LogMetadata
from bkstore.ids import MAX_LOG_ID, Int64Array, LedgerId
from bkstore.index.api import Closing
from bkstore.storage.entry_log.open_log import HARD_LIMIT, OpenLog
from bkstore.storage.entry_log.reader import LogReader
from bkstore.storage.options import DEFAULT_LOG_SIZE, check_log_size

LAST_ID = "lastId"
_LAST_ID_LIMIT = 1 << 16


class EntryLogger(Closing):
    """Appends to entry logs in the ``current/`` of one or more ledger directories.

    `size_limit` rolls a log before the record that would pass it. `per_ledger` keeps one open
    log for each ledger (`entryLogPerLedgerEnabled`), at most `max_active` of them. A new log goes
    to a directory that `choose` picks among the numbers 0..n-1; a bookie picks at random.

    Threads: one lock guards writing; reading needs none. Fork: only to read; the storage that has
    it is closed in the child. Processes: one writer. A
    write that fails (`WriteFailed`, a full disk say) leaves everything in the buffer, to be
    written at the same place by the next try; after `SyncFailed` the logger takes no more.

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
        self._currents = list(currents)
        self._size_limit = check_log_size("size_limit", size_limit)
        self._per_ledger = truth("per_ledger", per_ledger)
        self._max_active = whole(1)("max_active", max_active)
        self._choose = optional(call)("choose", choose) or random.randrange
        self.files = check_files("files", files)
        self._lock = RLock()
        self._active: dict[LedgerId | None, OpenLog] = {}
        self._writing: dict[int, OpenLog] = {}
        self._rotated: list[OpenLog] = []
        self._paths: dict[int, Path] = {}
        for current in self._currents:
            self._paths.update(_logs_in(current))
        self._last_id = last_log_id(self._currents)
        self._failed: SyncFailed | None = None
        self.reader = LogReader(self._paths.get)

    # -- what is here

    @property
    def currents(self) -> list[Path]:
        """The ``current/`` directories it writes to."""
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
        """Return the path of a log; `CorruptionError` if there is none of that id."""
        found = self._paths.get(log_id)
        if found is None:
            raise CorruptionError(f"{log_id:x}.log", None, "no such entry log")
        return found

    def metadata_of(self, log_id: int) -> LogMetadata | None:
        """Return the metadata of a log that is being written, None for any other."""
        with self._lock:
            log = self._writing.get(log_id)
            return None if log is None else log.metadata

    # -- reading

    def read(self, location: int, ledger: LedgerId, entry_id: int) -> bytes:
        """Return one record; as `LogReader.read`, records in the write buffer included."""
        log = self._writing.get(location >> 32)
        if log is not None and (location & 0xFFFFFFFF) >= log.written:
            record = self._buffered(log, location & 0xFFFFFFFF)
            if record is not None and record_header(record)[:2] == (ledger, entry_id):
                return record
        return self.reader.read(location, ledger, entry_id)

    def _buffered(self, log: OpenLog, position: int) -> bytes | None:
        """Return a record of the write buffer, None if it has left it."""
        with self._lock:
            at = position - log.written
            if at < PREFIX:
                return None
            size = int.from_bytes(log.buffer[at - PREFIX : at], "big")
            return bytes(log.buffer[at : at + size])

    def push(self, log_id: int | None = None) -> None:
        """Hand buffered records of one log, or of all, to the operating system. No sync."""
        with self._lock:
            for log in list(self._writing.values()):
                if log_id in (None, log.log_id):
                    log.push()

    # -- appending

    def add(self, ledger: LedgerId, record: bytes, *, roll: bool = True) -> int:
        """Append one record and return its location. Without `roll` only 2^31-1 is a limit."""
        with self._lock:
            limit = self._size_limit if roll else HARD_LIMIT
            log = None if self._per_ledger or self._failed else self._active.get(None)
            if log is not None and ledger.scope == 0:
                location = log.try_add(ledger, record, limit)
                if location:
                    return location
            log = self._log_for(ledger, len(record), roll)
            if ledger.scope:
                log.mark_wide()
            return log.add(ledger, record)

    def add_batch(
        self, batch: RecordBatch, ledgers: BatchLedgers, *, roll: bool = True
    ) -> Iterator[Int64Array]:
        """Append the records of a framed batch; yield the locations of each stretch, int64[m].

        A stretch lies in one log, in which it is one write: all of it is there or nothing.
        The logs are those of single adds.
        """
        if self._per_ledger:
            for name, start, stop in ledgers.runs(len(batch)):
                yield from self._stretches(batch, BatchLedgers([name]), start, stop, roll)
        else:
            yield from self._stretches(batch, ledgers, 0, len(batch), roll)

    def _stretches(
        self, batch: RecordBatch, ledgers: BatchLedgers, start: int, stop: int, roll: bool
    ) -> Iterator[Int64Array]:
        """Append the records start..stop, as many at once as one log takes."""
        limit = self._size_limit if roll else HARD_LIMIT
        ends = batch.offsets + batch.sizes
        while start < stop:
            with self._lock:
                log = self._log_for(ledgers.names[0], int(batch.sizes[start]), roll)
                begin = int(batch.offsets[start]) - PREFIX
                upto = int(ends.searchsorted(limit - log.end + begin, "right"))
                upto = min(max(upto, start + 1), stop)
                whole = (start, upto) == (0, len(batch))
                part = ledgers if whole else ledgers.between(start, upto)
                if any(name.scope for name in part.names):
                    log.mark_wide()
                found = log.add_batch(batch.between(start, upto).framed(), part)
            yield found
            start = upto

    def _log_for(self, ledger: LedgerId, size: int, roll: bool) -> OpenLog:
        """Return the log that takes a record of `size` bytes, rolling first where it must.

        A full buffer is written before, so that nothing is taken where that fails.
        """
        self._check_writable()
        key = ledger if self._per_ledger else None
        log = self._active.get(key)
        if log is not None:
            log.push_if_full()
        limit = self._size_limit if roll else HARD_LIMIT
        if log is not None and log.end + PREFIX + size > limit and log.end > HEADER_SIZE:
            self._rotate(key)
            log = None
        if log is None:
            log = self._active[key] = self._create()
        if key is not None:
            self._used(key)
        return log

    def _used(self, key: LedgerId) -> None:
        """Note which ledger's log was used last; too many of them are closed, the oldest first."""
        self._active[key] = self._active.pop(key)
        while len(self._active) > self._max_active:
            self._rotate(next(iter(self._active)))
        if len(self._rotated) >= self._max_active:
            self._release_rotated()

    def ledger_deleted(self, ledger: LedgerId) -> None:
        """Close the ledger's own log, so that it can be collected."""
        with self._lock:
            if ledger in self._active:
                self._rotate(ledger)

    def _create(self, suffix: str = "") -> OpenLog:
        log_id = self._next_id(suffix)
        at = self._choose(len(self._currents)) if len(self._currents) > 1 else 0
        path = self._currents[at] / (entrylog.log_name(log_id) + suffix)
        with writing(path):
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

    def _next_id(self, suffix: str) -> int:
        """Allocate an id: the one behind the last, 0 behind the highest, skipping taken names."""
        log_id = self._last_id
        while True:
            log_id = log_id + 1 if log_id + 1 < MAX_LOG_ID else 0
            name = entrylog.log_name(log_id) + suffix
            if not any(os.path.lexists(current / name) for current in self._currents):
                break
        for current in self._currents:
            with writing(current):
                # Not durable: without it the names of the logs say enough.
                self.files.write_file(current / LAST_ID, f"{log_id:x}\n".encode(), durable=False)
        self._last_id = log_id
        return log_id

    # -- rolling and syncing

    def roll(self) -> None:
        """Close the logs that take records; the next record begins another."""
        with self._lock:
            for key in list(self._active):
                self._rotate(key)

    def roll_if_over_limit(self) -> None:
        """Roll logs that grew past the size limit (after a flush that might not roll)."""
        with self._lock:
            for key, log in list(self._active.items()):
                if log.end > self._size_limit:
                    self._rotate(key)

    def roll_those(self, is_meant: Callable[[LogMetadata], bool]) -> None:
        """Close the logs that take records, have some, and are meant by what they hold."""
        with self._lock:
            for key, log in list(self._active.items()):
                if log.metadata.ledgers and is_meant(log.metadata):
                    self._rotate(key)

    def _rotate(self, key: LedgerId | None) -> None:
        log = self._active[key]
        log.finish()  # may fail, and is tried again then
        del self._active[key]
        self._rotated.append(log)

    def flush(self) -> None:
        """Make every record that was added durable."""
        with self._lock:
            self._sync(list(self._active.values()))
            self._release_rotated()

    def _release_rotated(self) -> None:
        """Sync the logs that take no more, and close them."""
        self._sync(self._rotated)
        while self._rotated:
            log = self._rotated.pop()
            self._writing.pop(log.log_id, None)
            log.close()

    def _sync(self, logs: Sequence[OpenLog]) -> None:
        """Write and sync logs and their names; after `SyncFailed` nothing is taken any more."""
        self._check_writable()
        try:
            for log in logs:
                log.sync()
            for folder in sorted({log.path.parent for log in logs}):
                with syncing(folder):
                    self.files.sync_dir(folder)
        except SyncFailed as error:
            self._failed = error
            raise

    def _check_writable(self) -> None:
        if self._failed is not None:
            raise ReadOnlyError(f"no more writes after a failed sync ({self._failed}); reopen")

    # -- logs written by compaction, under another name until they are whole

    def create_temporary(self, suffix: str) -> OpenLog:
        """Begin a log of a new id under its name and `suffix`, out of every reader's sight."""
        with self._lock:
            log = self._create(suffix)
            del self._paths[log.log_id], self._writing[log.log_id]
            return log

    # -- removing

    def adopt(self, log_id: int, path: Path) -> None:
        """Make a finished log known to readers."""
        with self._lock:
            self._paths[log_id] = path

    def remove(self, log_id: int) -> None:
        """Remove a log that takes no records any more."""
        with self._lock:
            if log_id in self._writing:
                raise BkstoreError(f"entry log {log_id:x}.log is still being written")
            path = self.path(log_id)
            with writing(path):
                self.files.unlink(path)
            del self._paths[log_id]
            self.reader.forget(log_id)

    def close(self) -> None:
        """Push what is buffered and close the files; syncs nothing. Idempotent."""
        with self._lock:
            try:
                self.push()
            finally:
                self._active.clear()
                self._rotated.clear()
                while self._writing:
                    self._writing.popitem()[1].close()
                self.reader.close()


def _logs_in(current: Path) -> dict[int, Path]:
    found = {}
    for name in os.listdir(current):
        log_id = entrylog.log_id_of(name)
        if log_id is not None:
            found[log_id] = current / name
    return found


def last_log_id(currents: Sequence[Path]) -> int:
    """Return the last log id given out: of `lastId` and of the logs that are there; -1 if none.

    A `lastId` that says nothing sensible is passed over, as upstream does: the names say enough.
    """
    last = -1
    for current in currents:
        last = max([last, *_logs_in(current)])
        text = ""
        with readable(current / LAST_ID), suppress(FileNotFoundError):
            text = read_whole(current / LAST_ID, _LAST_ID_LIMIT).decode("utf-8", "replace")
        with suppress(ValueError):
            last = max(last, int(text.strip(), 16))
    return last
