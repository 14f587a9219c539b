"""What an index of .idx files has changed and not made durable yet.

A file that is new is called ``<name>.idx.new`` until the first `flush`, which syncs its bytes
and renames it: whatever a crash leaves, a file that has a ledger's name has a whole header.
Trees (`file_tree`) do not see such files, nor does a real bookie. Upstream's `FileInfo` creates
the file in place, and after a crash rewrites a torn header if it is given the master key.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from bkstore.errors import SyncFailed
from bkstore.files.disk_changes import Files
from bkstore.files.os_errors import syncing, writing
from bkstore.formats.idxfile import index_path
from bkstore.ids import LedgerId
from bkstore.index.scope_marker import write_marker

NEW_SUFFIX = ".new"


class Changes:
    """The files and folders that the next `flush` has to sync. Not locked: its owner is.

    A sync that fails is final: the system may have dropped what it was to write, and says so
    once only. `check` raises it from then on.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self.new: dict[LedgerId, str] = {}
        """Where files lie that no flush has given their names yet."""
        self._dirty: set[str] = set()
        self._folders: set[str] = set()
        self._reached: set[str] = set()
        self._failed: SyncFailed | None = None

    def check(self) -> None:
        """Raise the `SyncFailed` of an earlier flush, if there was one."""
        if self._failed is not None:
            raise self._failed

    def name_of(self, ledger: LedgerId) -> str:
        """Return the path that the next flush gives a new file."""
        return self.new[ledger].removesuffix(NEW_SUFFIX)

    def names(self) -> dict[LedgerId, str]:
        """Return the paths that the next flush gives to new files."""
        return {ledger: self.name_of(ledger) for ledger in self.new}

    def create(self, current: Path, name: LedgerId, header: bytes) -> tuple[int, str]:
        """Create a ledger's file below ``current/``; return (descriptor, path)."""
        final = current / index_path(name)
        path = f"{final}{NEW_SUFFIX}"
        with writing(path):
            if name.scope:
                write_marker(current, self._files)
            self._make_folders(final.parent)
            # One that is there already is what a crash left of a file that never was flushed.
            fd = self._files.fresh(path)
            try:
                self._files.pwrite(fd, header, 0)
            except BaseException:
                self._files.close(fd)
                raise
        self.wrote(path)
        self.new[name] = path
        return fd, path

    def _make_folders(self, folder: Path) -> None:
        """Make a folder and those above it; their names are synced at the flush, once each."""
        missing: list[Path] = []
        while not folder.is_dir():
            missing.append(folder)
            folder = folder.parent
        for place in reversed(missing):
            self._files.mkdir(place)
            self._folders.add(str(place.parent))

    def wrote(self, path: str) -> None:
        """Note that a file's bytes are to change.

        A name that was there before, of the file or of a folder above it, may be one that an
        earlier writer gave and never synced: the first flush makes it durable too.
        """
        self._dirty.add(path)
        folder = os.path.dirname(path)
        while folder not in self._reached:
            self._reached.add(folder)
            self._folders.add(folder)
            if os.path.basename(folder) != "current":
                folder = os.path.dirname(folder)

    def drop_new(self, name: LedgerId) -> None:
        """Remove the ledger's file if no flush has given it its name."""
        path = self.new.get(name)
        if path is not None:
            with writing(path):
                self._files.unlink(path)
            self._dirty.discard(path)
            del self.new[name]

    def remove(self, path: str) -> None:
        """Remove a file."""
        with writing(path):
            self._files.unlink(path)
        self._dirty.discard(path)
        self._folders.add(os.path.dirname(path))

    def flush(self, named: Callable[[LedgerId, str], None]) -> None:
        """Make every change durable; `named` is told each new file's path.

        Bytes first, then names: a name never stands for bytes that may go. What was not done
        when an error came is done at the next flush; after `SyncFailed` there is none.
        """
        self.check()
        try:
            for path in sorted(self._dirty):
                with syncing(path):
                    self._files.sync_file(path)
                self._dirty.discard(path)
            for name, path in list(self.new.items()):
                named(name, self._give_name(name, path))
            for folder in sorted(self._folders):
                with syncing(folder):
                    self._files.sync_dir(folder)
                self._folders.discard(folder)
        except SyncFailed as error:
            self._failed = error
            raise

    def _give_name(self, name: LedgerId, path: str) -> str:
        final = self.name_of(name)
        with writing(final):
            self._files.replace(path, final)
        self._folders.add(os.path.dirname(final))
        del self.new[name]
        return final
