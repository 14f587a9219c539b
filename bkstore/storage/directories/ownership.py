"""OwnedDirectories: those that a bookie writes to, and the cookie that says they are its own.

The cookie (`VERSION`, see `docs/formats/cookie.md`) stands in every directory. It guards against
a disk that was not mounted, directories of another bookie, and another order of them, which in
db storage and with several journals decides where a ledger lies.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bkstore.arguments import optional, paths, text
from bkstore.errors import InvalidArgument, UnsupportedLayout
from bkstore.files.disk_changes import Files, StrPath
from bkstore.files.os_errors import writing
from bkstore.formats import cookie as cookie_format
from bkstore.formats.cookie import Cookie
from bkstore.storage.directories.conf_file import configured_directories
from bkstore.storage.directories.layout import (
    BookieFolders,
    check_distinct,
    find_folders,
    holdings,
    matched,
    read_cookie,
)
from bkstore.storage.options import Storage

_check_id = optional(text)
_DEFAULT_JOURNAL = "/tmp/bk-txn"  # noqa: S108 (as `journalDirectory` of BookKeeper)


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

        A root without any, or that does not exist, is to have `ledgers` and `journal`; a
        ledger directory alone has its journal beside its logs. A conf is taken at its word: its
        directories are, or are to be, where it says, not where copies of them lie; one that names
        no journal has it where the cookie says, else in BookKeeper's default, `/tmp/bk-txn`.
        Raises `UnsupportedLayout` where some of them are missing, and the others hold anything.
        """
        root = Path(os.path.abspath(path))
        if root.is_file():
            return cls._of_conf(root)
        if not root.exists() or (root.is_dir() and not any(root.glob("**/current"))):
            return cls.of_dirs([root / "ledgers"], [root / "journal"])
        folders = find_folders(root)
        return cls._of_folders(folders)

    @classmethod
    def _of_conf(cls, conf: Path) -> OwnedDirectories:
        lists = configured_directories(conf)
        every = [*lists["ledger"], *lists["index"], *lists["journal"]]
        there = [place for place in every if (place / "current").is_dir()]
        if _hold_anything(place / "current" for place in there):
            for place in every:
                if place not in there:
                    raise UnsupportedLayout(f"{conf}: names {place}, which has no current/ here")
        cookie = read_cookie([place / "current" for place in there])
        journal: Sequence[StrPath] = lists["journal"]
        if not journal:
            journal = [_DEFAULT_JOURNAL] if cookie is None else cookie.journal_dirs
        return cls.of_dirs(lists["ledger"], journal, lists["index"])

    @classmethod
    def _of_folders(cls, folders: BookieFolders) -> OwnedDirectories:
        journal = list(folders.journal) or list(folders.ledger[:1])
        if folders.cookie is not None:
            journal = matched(journal, folders.cookie.journal_dirs) or journal
        return cls(list(folders.ledger), list(folders.index), journal, folders.cookie)

    @classmethod
    def of_dirs(
        cls,
        ledger_dirs: Sequence[StrPath],
        journal_dirs: Sequence[StrPath],
        index_dirs: Sequence[StrPath] | None = None,
    ) -> OwnedDirectories:
        """Return directories as they are given, in this order."""
        if not ledger_dirs or not journal_dirs:
            raise InvalidArgument("a bookie has a ledger directory and a journal directory")
        ledger, journal = _currents("ledger", ledger_dirs), _currents("journal", journal_dirs)
        index = _currents("index", index_dirs) if index_dirs else list(ledger)
        for role, found in (("ledger", ledger), ("index", index), ("journal", journal)):
            check_distinct(role, found)
        there = [current for current in {*ledger, *index, *journal} if current.is_dir()]
        return cls(ledger, index, journal, read_cookie(sorted(there)))

    @property
    def all(self) -> list[Path]:
        """Every directory once."""
        return list(dict.fromkeys([*self.ledger, *self.index, *self.journal]))

    @property
    def separate_journals(self) -> list[Path]:
        """The journal directories that hold no ledgers or indexes, through links either."""
        shared = {os.path.realpath(current) for current in (*self.ledger, *self.index)}
        return [current for current in self.journal if os.path.realpath(current) not in shared]

    def storage(self, asked: Storage | None) -> Storage:
        """Return the storage asked for, else the one whose index is here, else sorted."""
        if asked is not None:
            return asked
        here = [holdings(current) for current in self.index if current.is_dir()]
        return "db" if any("rocksdb" in held for held in here) else "sorted"

    # -- the cookie

    def check_cookie(self, bookie_id: str | None, instance_id: str | None = None) -> None:
        """Raise `UnsupportedLayout` where the cookie does not fit these directories, or is of
        another bookie or cluster than is given.

        The paths of a copy are others; number and order must be those of the cookie, as far
        as the names tell. A directory without cookie beside ones that have it is a foreign or
        an empty disk.
        """
        cookie = self.cookie
        _check_id("bookie_id", bookie_id), _check_id("instance_id", instance_id)
        if cookie is None:
            return
        for current in self.without_cookie() if self.holds_anything() else ():
            raise UnsupportedLayout(
                f"{current}: no cookie here, while the others have that of bookie "
                f"{cookie.bookie_id!r}: a disk that is not mounted, or not this bookie's?"
            )
        if bookie_id not in (None, cookie.bookie_id):
            raise UnsupportedLayout(
                f"{self.all[0]}: the cookie of bookie {cookie.bookie_id!r}, not of {bookie_id!r}"
            )
        if instance_id not in (None, cookie.instance_id):
            made = f"of cluster {cookie.instance_id}" if cookie.instance_id else "made without one"
            raise UnsupportedLayout(
                f"{self.all[0]}: the cookie is {made}, not of cluster {instance_id}"
            )
        _check_listed("ledger", self.ledger, cookie.ledger_dirs)
        _check_listed("index", self.index, cookie.index_dirs or cookie.ledger_dirs)
        _check_listed("journal", self.journal, cookie.journal_dirs)

    def without_cookie(self) -> list[Path]:
        """Return the directories that have no cookie, or are not there."""
        return [c for c in self.all if not (c / cookie_format.FILE_NAME).is_file()]

    def holds_anything(self) -> bool:
        """Return whether anything was ever stored; else a first start may have been interrupted."""
        return _hold_anything(current for current in self.all if current.is_dir())

    def write_cookie(self, bookie_id: str | None, instance_id: str | None, files: Files) -> Cookie:
        """Write the cookie into every directory that has none; return the one in force."""
        cookie = self.cookie
        if cookie is None:
            cookie = Cookie(
                cookie_format.NEWEST_VERSION,
                bookie_id or self.ledger[0].parent.parent.name or "bookie",
                _names(self.journal),
                _names(self.ledger),
                index_dirs=None if self.index == self.ledger else _names(self.index),
                instance_id=instance_id,
            )
        data = cookie_format.encode(cookie)
        for current in self.without_cookie():
            path = current / cookie_format.FILE_NAME
            with writing(path):
                files.write_file(path, data)
        return cookie


def _hold_anything(currents: Iterable[Path]) -> bool:
    return any(holdings(current) & {"logs", "journal", "idx"} for current in currents)


def _currents(role: str, folders: Sequence[StrPath]) -> list[Path]:
    places = [Path(os.path.abspath(folder)) for folder in paths(f"{role}_dirs", folders)]
    return [place if place.name == "current" else place / "current" for place in places]


def _names(currents: Sequence[Path]) -> tuple[str, ...]:
    return tuple(str(current.parent) for current in currents)


def _check_listed(role: str, currents: list[Path], configured: Sequence[str]) -> None:
    if len(currents) != len(configured):
        raise UnsupportedLayout(
            f"{currents[0]}: the cookie names {len(configured)} {role} directories, "
            f"{len(currents)} are given"
        )
    ordered = matched(currents, configured)
    if ordered is not None and ordered != currents:
        raise UnsupportedLayout(
            f"{currents[0]}: the cookie has the {role} directories in another order: "
            + ", ".join(configured)
        )
