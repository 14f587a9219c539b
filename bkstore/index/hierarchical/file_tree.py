"""Which ledgers have an index file below ``current/``, and what else lies about there.

Real ledgers of scope 0 lie two hex directories deep, other scopes three. The start-up scan of
a real bookie (`IndexPersistenceMgr.getActiveLedgers`) also sees `.rloc` files, left behind by
an interrupted move: it deletes one whose `.idx` exists and renames one whose `.idx` does not.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bkstore.errors import CorruptionError
from bkstore.files.opening import is_folder
from bkstore.files.os_errors import unreadable
from bkstore.formats.idxfile import index_path, ledger_of_path
from bkstore.ids import LedgerId
from bkstore.index.api import Finding

_LEVEL = re.compile(r"[0-9a-f]{1,2}|[0-9a-f]{8}")
_SUFFIXES = (".idx", ".idx.rloc")
_BYTES = {f"{byte:x}": byte for byte in range(256)}


@dataclass
class Tree:
    """The index files of several directories: path by ledger, and what is odd."""

    files: dict[LedgerId, str] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    hidden: list[CorruptionError] = field(default_factory=list)
    """What stands where a folder of index files should: what it hides is not known."""
    unusual: set[LedgerId] = field(default_factory=set)
    """Ledgers whose file is a link, a leftover, or no file at all."""
    looked_at: bool = True
    """Whether `unusual` has them all; else nobody looked."""


class _Walk:
    """One pass over a ``current/``: files whose name and place fit are told apart at once."""

    def __init__(self, current: Path, tree: Tree) -> None:
        self.files: dict[LedgerId, str] = {}
        self.others: list[tuple[tuple[str, ...], bool]] = []
        """The path parts of what else ends in .idx or .idx.rloc, and whether it is a file."""
        self._tree = tree
        for top in self._folders(str(current), ()):
            deep = len(top.name) == 8
            for middle in self._folders(top.path, (top.name,)):
                if not deep:
                    self._take(middle.path, (top.name, middle.name))
                    continue
                for lowest in self._folders(middle.path, (top.name, middle.name)):
                    self._take(lowest.path, (top.name, middle.name, lowest.name))

    def _folders(self, path: str, parts: tuple[str, ...]) -> Iterator[os.DirEntry[str]]:
        for entry in _entries(path):
            name = entry.name
            if name.endswith(_SUFFIXES):
                self.others.append(((*parts, name), entry.is_file(follow_symlinks=False)))
            elif name in _BYTES or _LEVEL.fullmatch(name):
                if entry.is_dir(follow_symlinks=False) or is_folder(entry):
                    yield entry
                else:
                    self._tree.hidden.append(_no_folder(entry.path))

    def _take(self, path: str, parts: tuple[str, ...]) -> None:
        """Note the index files of a folder that has no folders in it."""
        low = -1
        if len(parts) == 2 and parts[0] in _BYTES and parts[1] in _BYTES:
            low = _BYTES[parts[0]] << 8 | _BYTES[parts[1]]
        for entry in _entries(path):
            name = entry.name
            if not name.endswith(_SUFFIXES):
                continue
            try:
                number = int(name[:-4], 16)
            except ValueError:
                number = -1
            # As `index_path` says it, without making the path: this is done for each file.
            if number & 0xFFFF == low and number < 1 << 63 and name == f"{number:x}.idx":
                ledger: LedgerId = tuple.__new__(LedgerId, (0, number))
                self.files[ledger] = entry.path
                if not entry.is_file(follow_symlinks=False):
                    self._tree.unusual.add(ledger)
            else:
                self.others.append(((*parts, name), entry.is_file(follow_symlinks=False)))


def _entries(path: str) -> list[os.DirEntry[str]]:
    try:
        return list(os.scandir(path))
    except FileNotFoundError:
        return []


def _no_folder(path: str) -> CorruptionError:
    return CorruptionError(path, None, "is no folder: index files in it cannot be read")


def scan_trees(currents: list[Path]) -> Tree:
    """Return the index files below several ``current/`` directories, in configured order.

    The first directory that has a ledger wins, as in upstream's look-up. Cost: one directory
    read for each directory that exists (about 5 us a file); opens no file.
    """
    tree = Tree()
    leftovers: list[tuple[LedgerId, str]] = []
    for current in currents:
        # Files by their canonical names; those of ledgers that an earlier directory has are judged
        # with the odd names below.
        walk = _Walk(current, tree)
        second = walk.files.keys() & tree.files.keys() if tree.files else ()
        walk.others += ((tuple(index_path(name).split("/")), True) for name in second)
        tree.files = walk.files | tree.files
        # Other names may be a ledger's all the same (upper case, say), or leftovers, or nothing.
        for parts, regular in sorted(walk.others):
            path = os.path.join(current, *parts)
            ledger = ledger_of_path(parts)
            if ledger is None:
                detail = "no ledger's index file: name and place do not fit; a bookie's look-up"
                tree.findings.append(Finding("oddity", f"{detail} cannot reach it", path))
            elif path.endswith(".rloc"):
                leftovers.append((ledger, path))
            elif ledger in tree.files:
                detail = f"second index file of ledger {ledger}; {tree.files[ledger]} is used"
                tree.findings.append(Finding("oddity", detail, path, ledger=ledger))
            else:
                tree.files[ledger] = path
                if not regular:
                    tree.unusual.add(ledger)
    # Last, as a leftover counts only where no directory has the ledger's file.
    for ledger, path in leftovers:
        _add_leftover(tree, ledger, path)
    tree.findings += map(Finding.of, tree.hidden)
    return tree


def _add_leftover(tree: Tree, ledger: LedgerId, path: str) -> None:
    if ledger in tree.files:
        detail = "leftover of an interrupted move; a bookie deletes it at start"
    else:
        tree.files[ledger] = path
        tree.unusual.add(ledger)
        detail = "leftover of an interrupted move, the only file of its ledger; read as the index"
    tree.findings.append(Finding("oddity", detail, path, ledger=ledger))


def current_of(directory: Path) -> Path:
    """Return the ``current/`` of an index directory, or the directory if it is one itself."""
    return directory if directory.name == "current" else directory / "current"


def find_index_file(currents: list[Path], relative: str) -> str | None:
    """Return the path of one index file, first directory first, `.idx` before `.rloc`.

    Raises `CorruptionError` where what should be a folder on the way there is none.
    """
    for suffix in ("", ".rloc"):
        for current in currents:
            path = os.path.join(current, relative + suffix)
            try:
                os.lstat(path)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:  # not the same as absent
                raise unreadable(error, path) from error
            return path
    for current in currents:
        _check_folders(current, os.path.dirname(relative))
    return None


def find_plain_file(currents: list[Path], relative: str) -> str | None:
    """Return what `find_index_file` finds, if that is a regular file and no leftover."""
    for current in currents:
        path = f"{current}/{relative}"
        try:
            return path if stat.S_ISREG(os.lstat(path).st_mode) else None
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            return None
    return None


def _check_folders(current: Path, relative: str) -> None:
    if os.path.isdir(os.path.join(current, relative)):
        return
    place = str(current)
    for part in relative.split("/"):
        place = os.path.join(place, part)
        if not os.path.isdir(place):
            if os.path.lexists(place):
                raise _no_folder(place)
            return


def is_level(name: str) -> bool:
    """Return whether a folder of this name may hold index files."""
    return _LEVEL.fullmatch(name) is not None


def has_index_files(current: Path) -> bool:
    """Return whether any index file lies below; stops at the first."""
    for top in _directories(current):
        for parent in _directories(top):
            if any(name.endswith(_SUFFIXES) for name in os.listdir(parent)):
                return True
            if any(
                name.endswith(_SUFFIXES)
                for deepest in _directories(parent)
                for name in os.listdir(deepest)
            ):
                return True
    return False


def stray_files(current: Path) -> Iterator[str]:
    """Yield what lies in the folders of index files and has no such file's name, in order.

    Copies under other names, and what an interrupted copy left: nothing reads them. Cost: one
    directory read for each folder; opens no file.
    """
    for top in _directories(current):
        for middle in _level(top):
            if isinstance(middle, str):
                yield middle
                continue
            for lowest in _level(middle.path) if len(os.path.basename(top)) == 8 else [middle]:
                if isinstance(lowest, str):
                    yield lowest
                    continue
                names = sorted(entry.path for entry in _entries(lowest.path))
                yield from (path for path in names if not path.endswith(_SUFFIXES))


def _level(path: str) -> Iterator[os.DirEntry[str] | str]:
    """Yield the folders of a folder of folders, and the paths of what is none and no index file."""
    for entry in sorted(_entries(path), key=lambda entry: entry.name):
        if _LEVEL.fullmatch(entry.name):
            if is_folder(entry):  # what is none is told by `scan_trees`
                yield entry
        elif not entry.name.endswith(_SUFFIXES):
            yield entry.path


def _directories(path: str | Path) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return sorted(e.path for e in entries if _LEVEL.fullmatch(e.name) and is_folder(e))
    except FileNotFoundError:
        return []
