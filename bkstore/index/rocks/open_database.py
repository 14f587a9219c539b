"""One RocksDB database opened by RocksDB, raw: in place for writing, or for reading through a
scratch directory of links. It accepts a truncated manifest or write-ahead log, so both are checked
before. Its errors are plain exceptions with text, so they are translated (`errors`)."""

from __future__ import annotations

import time
import weakref
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path

from rocksdict import AccessType, Options, Rdict

from bkstore import forks
from bkstore.errors import SyncFailed, SystemRefused, UnsupportedLayout, WriteFailed
from bkstore.files.disk_changes import OS_FILES, Files
from bkstore.files.os_errors import convert_write_errors, parse_rocksdb_error
from bkstore.index.rocks.errors import translate_errors
from bkstore.index.rocks.files import after_fork, database_directory, scratch_links
from bkstore.index.rocks.files.manifest_file import (
    Manifest,
    TornTail,
    check_logs,
    check_tables,
    needed_logs,
    read_manifest,
)
from bkstore.index.rocks.options import count_opening_threads, reading_options

_SIDE_FILE = "rocksdict-config.json"
_MAX_LIVE_TRIES = 20


def _refuse_tracked_logs(manifest: Manifest) -> None:
    """Raise `UnsupportedLayout` if the manifest tracks write-ahead logs. RocksDB 9.8 would end the
    process when it opens such a database to read: `DBImpl::Recover` uses a pointer that is null
    then, unless the option that tracks logs is set, which rocksdict cannot set."""
    if manifest.version.tracked_logs:
        raise UnsupportedLayout(
            f"{manifest.path}: tracks write-ahead logs (track_and_verify_wals_in_manifest), with"
            " which RocksDB cannot open a database to read"
        )


class OpenDatabase:
    """A raw-mode RocksDB database, read-only or read-write. Read-only goes through a scratch
    directory (`scratch_links.link_copy`) and is a snapshot; `oddities` has what the check of its
    files found, as (file, offset, detail). Threads: reads may run concurrently; iterators hold the
    interpreter lock. Fork: closed in the child, which may reopen it if `after_fork` permits."""

    def __init__(
        self,
        path: Path,
        options: Options | None = None,
        live: bool = False,
        files: Files = OS_FILES,
    ) -> None:
        """Open for writing with `options`, or for reading if these are None; with `live` also while
        a writer has it open. A new database's directory is created durably through `files`, which
        is notified of each sync; RocksDB itself writes the files in it."""
        self.path = path
        self._files = files
        self._sync_error: SyncFailed | None = None
        self.oddities: list[tuple[Path, int | None, str]] = []
        self._scratch = ""  # the directory of links that a reader opens
        self._writable = options is not None
        self._db: Rdict | None = None
        self._unexpected_widths: bool | None = None
        self._resources = ExitStack()
        # Clean up even if `close` is not called: at collection, or at interpreter exit.
        self._cleanup = weakref.finalize(self, self._resources.close)
        forks.register(self)
        try:
            with self._translating_errors():
                if options is not None:
                    self._db = self._open_writing(options)
                else:
                    self._db = self._open_live() if live else self._open_reading()
        except BaseException:
            self._cleanup()
            raise

    # -- opening

    def _open_writing(self, options: Options) -> Rdict:
        """Create the directory if it is missing, then open the database in place for writing."""
        after_fork.check_may_write(self.path)
        with convert_write_errors(self.path):
            self._files.makedirs(self.path)
        database_directory.check_not_in_use(self.path)
        database_directory.check_files(self.path)
        self._files.database_opened(self.path, options)
        database_directory.register_writer(self.path)
        self._resources.callback(database_directory.unregister_writer, self.path)
        after_fork.note_opened()  # a child forked from now on lacks RocksDB's threads
        options.set_max_file_opening_threads(count_opening_threads(self.path))
        return Rdict(str(self.path), options, column_families={"default": options})

    def _open_reading(self) -> Rdict:
        """Check the manifest, table files and write-ahead logs, then open the database through a
        directory of links, as RocksDB writes files into the directory that it opens. What a crash
        explains is noted in `oddities`; other damage raises `CorruptionError`."""
        database_directory.check_not_in_use(self.path)
        manifest = database_directory.find_manifest(self.path)
        contents = read_manifest(manifest)
        _refuse_tracked_logs(contents)
        if contents.torn_offset is not None:
            self.oddities.append((manifest, contents.torn_offset, "manifest ends inside a record"))
        for table_path in check_tables(contents, self.path):
            detail = "table file that no manifest lists: left by a crash; RocksDB deletes it"
            self.oddities.append((table_path, None, detail))
        torn_tails = check_logs(contents, needed_logs(contents, self.path))
        self.oddities += torn_tails
        if contents.unsupported is not None:
            detail = f"missing files would go unnoticed: it has {contents.unsupported}"
            self.oddities.append((manifest, None, detail))
        if contents.torn_offset is not None:
            torn_tails.append(TornTail(manifest, contents.torn_offset, "ends inside a record"))
        return self._open_links(torn_tails, open_files=None)

    def _open_links(self, torn_tails: Sequence[TornTail], open_files: ExitStack | None) -> Rdict:
        """Open through a scratch directory of links, without the incomplete records at the end of
        files (`torn_tails`). For a database in use, `open_files` keeps its files open
        (None: it is not in use), and the linked logs are checked here."""
        scratch = self._resources.enter_context(scratch_links.link_copy(self.path, open_files))
        self._scratch = str(scratch)
        if open_files is not None:
            contents = read_manifest(database_directory.find_manifest(scratch))
            _refuse_tracked_logs(contents)
            torn_tails = check_logs(contents, needed_logs(contents, scratch))
        scratch_links.truncate_torn_tails(scratch, torn_tails)
        options = reading_options()
        options.set_max_file_opening_threads(count_opening_threads(scratch))
        after_fork.note_opened()
        read_only = AccessType.read_only(error_if_log_file_exist=False)  # so it reads the logs
        return Rdict(self._scratch, options, {"default": options}, read_only)

    def _open_live(self) -> Rdict:
        """Open while another process writes the database; try again if it removed a file between
        the links and their opening. Raises `DirectoryInUse` after the last try."""
        for attempt in range(_MAX_LIVE_TRIES):
            time.sleep(0.002 * attempt)
            logs = list(self.path.glob("*.log"))
            try:
                with ExitStack() as open_files:
                    database = self._open_links((), open_files)
            except Exception as error:
                self._resources.close()
                if isinstance(error, SystemRefused) or attempt + 1 == _MAX_LIVE_TRIES:
                    raise
                continue
            if scratch_links.CAN_REOPEN_UNLINKED or all(log_path.exists() for log_path in logs):
                return database
            database.close()  # it may lack rows of a log that was removed before it was read
            self._resources.close()
        raise database_directory.in_use_error(self.path, "changes too fast to be read")

    def _translating_errors(self) -> AbstractContextManager[None]:
        """Return a context that translates RocksDB's textual errors to `BkstoreError`s."""
        return translate_errors(self.path, lambda: self._scratch)

    @property
    def _handle(self) -> Rdict:
        if self._db is None:
            raise forks.closed_error(f"{self.path}: the database")
        return self._db

    def _forked(self) -> None:
        """Become closed: the child has neither the parent's locks nor RocksDB's threads. The handle
        is leaked, as destroying it would wait forever for a thread; the scratch directory stays."""
        forks.keep_forever((self._db, self._resources))
        self._cleanup.detach()
        self._db = None

    def close(self) -> None:
        """Close; idempotent. Removes the scratch directory, or rocksdict's side file. A writable
        database flushes its rows to table files; if that fails, it raises `WriteFailed` and is
        closed all the same: synced rows are in its write-ahead logs."""
        database, self._db = self._db, None
        if database is None:
            return
        try:
            database.close()
        except Exception as error:
            if type(error) is not Exception or not self._writable:  # not an error of RocksDB's
                raise
            raise WriteFailed(self.path, parse_rocksdb_error(str(error))) from error
        finally:
            del database  # an Rdict that failed to close holds the lock until it is destroyed
            self._cleanup()
            if self._writable:
                with convert_write_errors(self.path), suppress(FileNotFoundError):
                    OS_FILES.unlink(self.path / _SIDE_FILE)
