"""The changes of an index of .idx files that are not durable yet. A new file is called
``<name>.idx.new`` until the first `flush`, which syncs its bytes and renames it: after any crash, a
file under a ledger's name has a complete header. `file_tree` ignores files that are still called
``.new``, as does a real bookie. BookKeeper's `FileInfo` creates the file in place, and after a
crash rewrites a torn header if it is given the master key."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from bkstore.errors import SyncFailed
from bkstore.files.disk_changes import Files
from bkstore.files.os_errors import convert_sync_errors, convert_write_errors
from bkstore.formats.idxfile import index_path
from bkstore.ids import LedgerId
from bkstore.index.scope_marker import write_marker

NEW_SUFFIX = ".new"


class UnsyncedChanges:
    """The files and folders that the next `flush` has to sync. Not locked: the owner locks. A
    failed sync is final, as the system may have dropped the data, and reports that only once:
    `check_writable` raises the error from then on."""

    def __init__(self, files: Files) -> None:
        """Begin with no changes; files are synced and renamed through `files`."""
        self._files = files
        self.new_paths: dict[LedgerId, str] = {}
        """Current paths of new files that no flush has renamed yet."""
        self._unsynced_files: set[str] = set()
        self._unsynced_folders: set[str] = set()
        self._noted_folders: set[str] = set()  # all that ever were in `_unsynced_folders`
        self._sync_error: SyncFailed | None = None

    def check_writable(self) -> None:
        """Raise the `SyncFailed` of an earlier flush, if there was one."""
        if self._sync_error is not None:
            raise self._sync_error

    def final_path_of(self, ledger: LedgerId) -> str:
        """Return the path that a new file gets at the next flush."""
        return self.new_paths[ledger].removesuffix(NEW_SUFFIX)

    def final_paths(self) -> dict[LedgerId, str]:
        """Return the paths that new files get at the next flush."""
        return {ledger: self.final_path_of(ledger) for ledger in self.new_paths}

    def create(self, current_dir: Path, ledger_id: LedgerId, header: bytes) -> tuple[int, str]:
        """Create a ledger's file below ``current/``; return (descriptor, path)."""
        final_path = current_dir / index_path(ledger_id)
        path = f"{final_path}{NEW_SUFFIX}"
        with convert_write_errors(path):
            if ledger_id.scope:
                write_marker(current_dir, self._files)
            self._make_folders(final_path.parent)
            # Replaces a leftover of a crash: a file that was never flushed.
            fd = self._files.create_new(path)
            try:
                self._files.pwrite(fd, header, 0)
            except BaseException:
                self._files.close(fd)
                raise
        self.note_changed(path)
        self.new_paths[ledger_id] = path
        return fd, path

    def _make_folders(self, folder: Path) -> None:
        """Make a folder and its missing parents. Each gets its name in its own parent, so the next
        flush syncs these parents, each once."""
        missing: list[Path] = []
        while not folder.is_dir():
            missing.append(folder)
            folder = folder.parent
        for new_folder in reversed(missing):
            self._files.mkdir(new_folder)
            self._unsynced_folders.add(str(new_folder.parent))

    def note_changed(self, path: str) -> None:
        """Record that a file's bytes change. The first flush syncs the folders above it too: an
        earlier writer may have created one and never synced its name."""
        self._unsynced_files.add(path)
        folder = os.path.dirname(path)
        while folder not in self._noted_folders:
            self._noted_folders.add(folder)
            self._unsynced_folders.add(folder)
            if os.path.basename(folder) != "current":  # otherwise the loop ends: it is noted now
                folder = os.path.dirname(folder)

    def drop_new(self, ledger_id: LedgerId) -> None:
        """Remove the ledger's new file, if it has one that no flush has renamed yet."""
        path = self.new_paths.get(ledger_id)
        if path is not None:
            with convert_write_errors(path):
                self._files.unlink(path)
            self._unsynced_files.discard(path)
            del self.new_paths[ledger_id]

    def remove(self, path: str) -> None:
        """Remove a file."""
        with convert_write_errors(path):
            self._files.unlink(path)
        self._unsynced_files.discard(path)
        self._unsynced_folders.add(os.path.dirname(path))

    def flush(self, on_renamed: Callable[[LedgerId, str], None]) -> None:
        """Make every change durable: sync the files, give new files their final names, and sync the
        folders. In this order a name never refers to bytes that a crash could lose. `on_renamed` is
        called with each new file's ledger and final path. After an error the next flush goes on
        with what is left; after `SyncFailed` every flush raises it, as a repeated fsync may succeed
        although the bytes are lost."""
        self.check_writable()
        try:
            for path in sorted(self._unsynced_files):
                with convert_sync_errors(path):
                    self._files.sync_file(path)
                self._unsynced_files.discard(path)
            for ledger_id, path in list(self.new_paths.items()):
                on_renamed(ledger_id, self._rename_new(ledger_id, path))
            for folder in sorted(self._unsynced_folders):
                with convert_sync_errors(folder):
                    self._files.sync_dir(folder)
                self._unsynced_folders.discard(folder)
        except SyncFailed as error:
            self._sync_error = error
            raise

    def _rename_new(self, ledger_id: LedgerId, path: str) -> str:
        """Rename a ledger's new file, at `path` so far, to its final path, and return that. The
        folder is noted for a sync: until then a crash may undo the rename."""
        final_path = self.final_path_of(ledger_id)
        with convert_write_errors(final_path):
            self._files.replace(path, final_path)
        self._unsynced_folders.add(os.path.dirname(final_path))
        del self.new_paths[ledger_id]
        return final_path
