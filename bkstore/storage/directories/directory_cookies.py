"""OwnedDirectories: the directories that a bookie writes to, and the cookie that identifies it.

The cookie (`VERSION`, see `docs/formats/cookie.md`) is in every directory. It guards against a
disk that is not mounted, directories of another bookie, and a changed order of directories, which
determines where a ledger is in db storage and with several journals.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bkstore.arguments import optional, paths, text
from bkstore.errors import InvalidArgument, UnsupportedLayout
from bkstore.files.disk_changes import Files, StrPath
from bkstore.files.os_errors import convert_write_errors
from bkstore.formats import cookie as cookie_format
from bkstore.formats.cookie import Cookie
from bkstore.index.hierarchical.file_tree import current_directory
from bkstore.storage.directories.conf_directories import choose_journal_dirs, configured_directories
from bkstore.storage.directories.layout import (
    BookieFolders,
    check_distinct,
    find_folders,
    find_holdings,
    order_by_names,
    read_cookie,
)
from bkstore.storage.options import StorageKind

_check_id = optional(text)


@dataclass(frozen=True)
class OwnedDirectories:
    """The ``current/`` directories of one bookie, by role, in configured order."""

    ledger: list[Path]
    index: list[Path]
    journal: list[Path]
    cookie: Cookie | None = None

    @classmethod
    def of_path(cls, path: StrPath) -> OwnedDirectories:
        """Return the directories below a root (or named by a `bk_server.conf`).

        A root that is missing or has no ``current/`` gets `ledgers` and `journal`; a single ledger
        directory has its journal next to its logs. The paths of a conf are used literally, never
        those of copies; if it names no journals, the cookie's are used, then BookKeeper's default
        `/tmp/bk-txn`. Raises `UnsupportedLayout` if some of the conf's directories are missing
        while others have data.
        """
        root = Path(os.path.abspath(path))
        if root.is_file():
            return cls._of_conf(root)
        if not root.exists() or (root.is_dir() and not any(root.glob("**/current"))):
            return cls.of_dirs([root / "ledgers"], [root / "journal"])
        return cls._of_folders(find_folders(root))

    @classmethod
    def _of_conf(cls, conf: Path) -> OwnedDirectories:
        """Return the directories of a `bk_server.conf`; if one of them has data, all must exist."""
        dirs_by_role = configured_directories(conf)
        all_dirs = [*dirs_by_role["ledger"], *dirs_by_role["index"], *dirs_by_role["journal"]]
        existing_dirs = [directory for directory in all_dirs if (directory / "current").is_dir()]
        if _have_data(directory / "current" for directory in existing_dirs):
            for directory in all_dirs:
                if directory not in existing_dirs:
                    reason = f"names {directory}, which has no current/ here"
                    raise UnsupportedLayout(f"{conf}: {reason}")
        cookie = read_cookie([directory / "current" for directory in existing_dirs])
        cookie_journals = () if cookie is None else cookie.journal_dirs
        journal_dirs = choose_journal_dirs(dirs_by_role["journal"], cookie_journals)
        return cls.of_dirs(dirs_by_role["ledger"], journal_dirs, dirs_by_role["index"])

    @classmethod
    def _of_folders(cls, folders: BookieFolders) -> OwnedDirectories:
        """Return the directories of folders found on disk, the journals in the cookie's order.
        Without a journal directory, the journal is in the first ledger directory."""
        journal = list(folders.journal) or list(folders.ledger[:1])
        if folders.cookie is not None:
            journal = order_by_names(journal, folders.cookie.journal_dirs) or journal
        return cls(list(folders.ledger), list(folders.index), journal, folders.cookie)

    @classmethod
    def of_dirs(
        cls,
        ledger_dirs: Sequence[StrPath],
        journal_dirs: Sequence[StrPath],
        index_dirs: Sequence[StrPath] | None = None,
    ) -> OwnedDirectories:
        """Return the ``current/`` of each of these directories, in the given order, and the cookie
        in them, if any. Without `index_dirs` the ledger directories have the index."""
        if not ledger_dirs or not journal_dirs:
            raise InvalidArgument("a bookie needs a ledger directory and a journal directory")
        ledger, journal = (
            _current_directories("ledger", ledger_dirs),
            _current_directories("journal", journal_dirs),
        )
        index = _current_directories("index", index_dirs) if index_dirs else list(ledger)
        for role, currents in (("ledger", ledger), ("index", index), ("journal", journal)):
            check_distinct(role, currents)
        existing = [current for current in {*ledger, *index, *journal} if current.is_dir()]
        return cls(ledger, index, journal, read_cookie(sorted(existing)))

    @property
    def all(self) -> list[Path]:
        """All directories, each once."""
        return list(dict.fromkeys([*self.ledger, *self.index, *self.journal]))

    @property
    def separate_journals(self) -> list[Path]:
        """The journal directories that are not ledger or index directories, even through links."""
        shared = {os.path.realpath(current) for current in (*self.ledger, *self.index)}
        return [current for current in self.journal if os.path.realpath(current) not in shared]

    def choose_storage(self, requested: StorageKind | None) -> StorageKind:
        """Return `requested` if given, else "db" if there are RocksDB databases, else "sorted":
        with index files, or without an index."""
        if requested is not None:
            return requested
        index_holdings = [find_holdings(current) for current in self.index if current.is_dir()]
        return "db" if any("rocksdb" in held for held in index_holdings) else "sorted"

    # -- the cookie

    def check_cookie(self, bookie_id: str | None, instance_id: str | None = None) -> None:
        """Raise `UnsupportedLayout` if the cookie is not of these directories, bookie and cluster.

        A copy may have other paths, but number and order of the directories must match the cookie,
        as far as their names tell. If there is data, a directory that alone has no cookie is taken
        for a foreign or empty disk.
        """
        cookie = self.cookie
        _check_id("bookie_id", bookie_id), _check_id("instance_id", instance_id)
        if cookie is None:
            return
        missing = self.list_without_cookie()
        if missing and self.has_data():  # without data, a first start may have been interrupted
            raise UnsupportedLayout(
                f"{missing[0]}: no cookie here, but the others have that of "
                f"bookie {cookie.bookie_id!r}: is a disk not mounted, or another bookie's?"
            )
        if bookie_id not in (None, cookie.bookie_id):
            raise UnsupportedLayout(
                f"{self.all[0]}: the cookie is of bookie {cookie.bookie_id!r}, not of {bookie_id!r}"
            )
        if instance_id not in (None, cookie.instance_id):
            own = f"of cluster {cookie.instance_id}" if cookie.instance_id else "of no cluster"
            reason = f"the cookie is {own}, not of cluster {instance_id}"
            raise UnsupportedLayout(f"{self.all[0]}: {reason}")
        _check_dirs_match_cookie("ledger", self.ledger, cookie.ledger_dirs)
        _check_dirs_match_cookie("index", self.index, cookie.index_dirs or cookie.ledger_dirs)
        _check_dirs_match_cookie("journal", self.journal, cookie.journal_dirs)

    def list_without_cookie(self) -> list[Path]:
        """Return the directories that have no cookie, or do not exist."""
        return [c for c in self.all if not (c / cookie_format.FILE_NAME).is_file()]

    def has_data(self) -> bool:
        """Return whether a directory has entry logs, index files or journals."""
        return _have_data(current for current in self.all if current.is_dir())

    def write_cookie(self, bookie_id: str | None, instance_id: str | None, files: Files) -> Cookie:
        """Write the cookie, the file that names the bookie and all its directories, to every
        directory without one; return it. A bookie that has none yet gets a new one."""
        cookie = self.cookie
        if cookie is None:
            bookie_dir = self.ledger[0].parent.parent  # the ledgers are in its ledgers/current
            cookie = Cookie(
                cookie_format.NEWEST_VERSION,
                bookie_id or bookie_dir.name or "bookie",
                _dir_paths(self.journal),
                _dir_paths(self.ledger),
                index_dirs=None if self.index == self.ledger else _dir_paths(self.index),
                instance_id=instance_id,
            )
        data = cookie_format.encode(cookie)
        for current in self.list_without_cookie():
            path = current / cookie_format.FILE_NAME
            with convert_write_errors(path):
                files.write_file(path, data)
        return cookie


def _have_data(currents: Iterable[Path]) -> bool:
    return any(find_holdings(current) & {"logs", "journal", "idx"} for current in currents)


def _current_directories(role: str, directories: Sequence[StrPath]) -> list[Path]:
    given_paths = paths(f"{role}_dirs", directories)
    return [current_directory(Path(os.path.abspath(path))) for path in given_paths]


def _dir_paths(currents: Sequence[Path]) -> tuple[str, ...]:
    return tuple(str(current.parent) for current in currents)


def _check_dirs_match_cookie(role: str, currents: list[Path], cookie_dirs: Sequence[str]) -> None:
    """Raise `UnsupportedLayout` if the directories of a role are not as many as the cookie names,
    or are in another order."""
    if len(currents) != len(cookie_dirs):
        raise UnsupportedLayout(
            f"{currents[0]}: the cookie names {len(cookie_dirs)} {role} directories, "
            f"{len(currents)} are given"
        )
    in_cookie_order = order_by_names(currents, cookie_dirs)
    # None if the names do not identify the directories, as in some copies: nothing to check.
    if in_cookie_order is not None and in_cookie_order != currents:
        raise UnsupportedLayout(
            f"{currents[0]}: the cookie has the {role} directories in another order: "
            + ", ".join(cookie_dirs)
        )
