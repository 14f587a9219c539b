"""Which ledgers have an index file below ``current/``, and which stray files are there. The files
of ledgers of scope 0 are two hex directories deep, those of other scopes three. The start-up scan
of a real bookie (`IndexPersistenceMgr.getActiveLedgers`) also sees `.rloc` files, left by an
interrupted move: it deletes one whose `.idx` exists and renames any other."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bkstore.errors import CorruptionError
from bkstore.files.opening import is_folder
from bkstore.files.os_errors import read_error
from bkstore.formats.idxfile import index_path, parse_index_path
from bkstore.ids import LedgerId
from bkstore.index.api import Finding
from bkstore.index.hierarchical.lost_folders import (
    SCOPED_DIGITS,
    LostFolder,
    ledgers_below,
)

_LEVEL_NAME = re.compile(r"[0-9a-f]{1,2}|[0-9a-f]{8}")
_SUFFIXES = (".idx", ".idx.rloc")
_BYTE_OF_NAME = {f"{byte:x}": byte for byte in range(256)}


@dataclass
class IndexFileTree:
    """The index files of several directories: path by ledger id, and findings."""

    files: dict[LedgerId, str] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    lost_folders: list[LostFolder] = field(default_factory=list)
    """Files in the place of a folder of index files: what it had is unknown."""
    irregular_ledgers: set[LedgerId] = field(default_factory=set)
    """Ledgers whose file is a link, a leftover, or no file at all."""
    has_file_types: bool = True
    """Whether `irregular_ledgers` is complete; if not, file types were not checked."""


class _Walk:
    """One pass over a ``current/``: index files under canonical paths, and all others."""

    def __init__(self, current_dir: Path, tree: IndexFileTree) -> None:
        """Walk through the tree below one ``current/``; `tree` gets errors and irregular files."""
        self.files: dict[LedgerId, str] = {}
        self.others: list[tuple[tuple[str, ...], bool]] = []
        """Index files (.idx) and leftovers of moves (.rloc) that are not in the place of a ledger's
        file: the parts of each path, and whether it is a regular file."""
        self._tree = tree
        for top in self._iterate_folders(str(current_dir), ()):
            is_scoped = len(top.name) == SCOPED_DIGITS  # of a scope other than 0
            for middle in self._iterate_folders(top.path, (top.name,)):
                if not is_scoped:  # two levels, else three
                    self._add_files(middle.path, (top.name, middle.name))
                    continue
                parents = (top.name, middle.name)
                for lowest in self._iterate_folders(middle.path, parents):
                    self._add_files(lowest.path, (*parents, lowest.name))

    def _iterate_folders(self, path: str, parts: tuple[str, ...]) -> Iterator[os.DirEntry[str]]:
        """Yield the folders in `path` that may hold index files, or folders with these. An index
        file beside them is too high in the tree, so it goes to `others`. A file with the name of
        such a folder becomes one of the tree's lost folders."""
        for entry in _list_entries(path):
            if entry.name.endswith(_SUFFIXES):
                self.others.append(((*parts, entry.name), entry.is_file(follow_symlinks=False)))
            elif entry.name in _BYTE_OF_NAME or _LEVEL_NAME.fullmatch(entry.name):
                if is_folder(entry):
                    yield entry
                else:
                    unknown = ledgers_below((*parts, entry.name))
                    self._tree.lost_folders.append(LostFolder(_not_a_folder(entry.path), unknown))

    def _add_files(self, path: str, parts: tuple[str, ...]) -> None:
        """Add the index files of a lowest-level folder to `files`, or to `others`."""
        # The two folder names are the low 16 bits of the ledger ids in them; -1 equals no id's.
        low_16_bits = -1
        if len(parts) == 2 and parts[0] in _BYTE_OF_NAME and parts[1] in _BYTE_OF_NAME:
            low_16_bits = _BYTE_OF_NAME[parts[0]] << 8 | _BYTE_OF_NAME[parts[1]]
        for entry in _list_entries(path):
            file_name = entry.name
            if not file_name.endswith(_SUFFIXES):
                continue
            try:
                number = int(file_name[:-4], 16)  # without ".idx"; no number in a leftover's name
            except ValueError:
                number = -1
            # The file is where `index_path` has it, and is named so. The test does not build that
            # path, because it runs for each file.
            is_in_place = number & 0xFFFF == low_16_bits and number < 1 << 63
            if is_in_place and file_name == f"{number:x}.idx":
                ledger: LedgerId = tuple.__new__(LedgerId, (0, number))  # valid: spares its checks
                self.files[ledger] = entry.path
                if not entry.is_file(follow_symlinks=False):
                    self._tree.irregular_ledgers.add(ledger)
            else:
                self.others.append(((*parts, file_name), entry.is_file(follow_symlinks=False)))


def _list_entries(path: str) -> list[os.DirEntry[str]]:
    try:
        return list(os.scandir(path))
    except FileNotFoundError:
        return []


def _not_a_folder(path: str) -> CorruptionError:
    return CorruptionError(path, None, "is not a directory: its index files cannot be read")


def scan_trees(current_dirs: list[Path]) -> IndexFileTree:
    """Return the index files below several ``current/`` directories, in configured order. If two
    have a file of the same ledger, the first one counts, as in BookKeeper's look-up; the other is a
    finding. Reads each directory; opens no file."""
    tree = IndexFileTree()
    leftovers: list[tuple[LedgerId, str]] = []
    for current_dir in current_dirs:
        # Take the files with a ledger's own path and name. If an earlier directory has the ledger,
        # the file is handled below with `others`, as a second file.
        walk = _Walk(current_dir, tree)
        duplicate_ids = walk.files.keys() & tree.files.keys() if tree.files else ()
        walk.others += ((tuple(index_path(each).split("/")), True) for each in duplicate_ids)
        tree.files = walk.files | tree.files
        # Each of the others is a ledger's under an unusual name (such as in upper case), a leftover
        # of a move, or no ledger's.
        for parts, is_regular in sorted(walk.others):
            path = os.path.join(current_dir, *parts)
            ledger = parse_index_path(parts)
            if ledger is None:
                detail = "not a ledger's index file: name and path do not match; a bookie's lookup"
                tree.findings.append(Finding("oddity", f"{detail} cannot reach it", path))
            elif path.endswith(".rloc"):
                leftovers.append((ledger, path))
            elif ledger in tree.files:
                detail = f"second index file of ledger {ledger}; {tree.files[ledger]} is used"
                tree.findings.append(Finding("oddity", detail, path, ledger=ledger))
            else:
                tree.files[ledger] = path
                if not is_regular:
                    tree.irregular_ledgers.add(ledger)
    # Leftovers come last, as one is used only if no directory has the ledger's file.
    for ledger, path in leftovers:
        _add_leftover(tree, ledger, path)
    tree.findings += [folder.finding() for folder in tree.lost_folders]
    return tree


def _add_leftover(tree: IndexFileTree, ledger: LedgerId, path: str) -> None:
    """Add a finding for a leftover (.rloc), the copy that a bookie makes while it moves an index
    file to another directory. It is used as the ledger's file if the tree has no other."""
    if ledger in tree.files:
        detail = "leftover of an interrupted move; a bookie deletes it at start"
    else:
        tree.files[ledger] = path
        tree.irregular_ledgers.add(ledger)
        detail = "leftover of an interrupted move, the only file of its ledger; read as the index"
    tree.findings.append(Finding("oddity", detail, path, ledger=ledger))


def current_directory(directory: Path) -> Path:
    """Return the ``current/`` of an index directory, or the directory if it is one itself."""
    return directory if directory.name == "current" else directory / "current"


def find_index_file(current_dirs: list[Path], relative: str) -> str | None:
    """Return the path of a ledger's index file, None if it has none; `relative` is its path below
    ``current/``. Of several directories the first one that has it counts. A copy that ends in
    .rloc, which a bookie makes while it moves the file to another directory, is used only if none
    has the file itself. Raises `CorruptionError` if a file is in the place of a folder."""
    for suffix in ("", ".rloc"):
        for current_dir in current_dirs:
            path = os.path.join(current_dir, relative + suffix)
            try:
                os.lstat(path)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:  # whether it exists is unknown
                raise read_error(error, path) from error
            return path
    for current_dir in current_dirs:
        _check_folders(current_dir, os.path.dirname(relative))
    return None


def find_regular_file(current_dirs: list[Path], relative: str) -> str | None:
    """Return the path of an index file in the first directory that has one. None if there is none,
    or if it is not a regular file: these cases are left to `find_index_file`."""
    for current_dir in current_dirs:
        path = f"{current_dir}/{relative}"
        try:
            return path if stat.S_ISREG(os.lstat(path).st_mode) else None
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            return None
    return None


def _check_folders(current_dir: Path, relative: str) -> None:
    """Raise `CorruptionError` if anything on the path `relative` exists but is not a folder."""
    if os.path.isdir(os.path.join(current_dir, relative)):
        return
    folder = str(current_dir)
    for folder_name in relative.split("/"):
        folder = os.path.join(folder, folder_name)
        if not os.path.isdir(folder):
            if os.path.lexists(folder):
                raise _not_a_folder(folder)
            return


def is_level_name(name: str) -> bool:
    """Return whether a folder of this name may hold index files."""
    return _LEVEL_NAME.fullmatch(name) is not None


def has_index_files(current_dir: Path) -> bool:
    """Return whether there is any index file two or three levels below; stops at the first."""
    for top in _list_level_folders(current_dir):
        for parent in _list_level_folders(top):
            for folder in (parent, *_list_level_folders(parent)):
                if any(name.endswith(_SUFFIXES) for name in os.listdir(folder)):
                    return True
    return False


def find_stray_files(current_dir: Path) -> Iterator[str]:
    """Yield, in order, the paths of files in the folders of index files that do not end like one
    (.idx, .rloc), such as copies under other names. Cost: one read of each directory."""
    for top in _list_level_folders(current_dir):
        # Ledgers of scope 0 have two levels of folders, those of other scopes (the upper 64 bits of
        # an id), whose folder names have more digits, three.
        is_scoped = len(os.path.basename(top)) == SCOPED_DIGITS
        for middle in _scan_level(top):
            if isinstance(middle, str):  # the path of a stray file
                yield middle
                continue
            for lowest in _scan_level(middle.path) if is_scoped else [middle]:
                if isinstance(lowest, str):
                    yield lowest
                    continue
                paths = sorted(entry.path for entry in _list_entries(lowest.path))
                yield from (path for path in paths if not path.endswith(_SUFFIXES))


def _scan_level(path: str) -> Iterator[os.DirEntry[str] | str]:
    """Yield the level folders in `path`, and the paths of other names except index files."""
    for entry in sorted(_list_entries(path), key=lambda entry: entry.name):
        if _LEVEL_NAME.fullmatch(entry.name):
            if is_folder(entry):  # `scan_trees` reports those that are not
                yield entry
        elif not entry.name.endswith(_SUFFIXES):
            yield entry.path


def _list_level_folders(path: str | Path) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return sorted(e.path for e in entries if _LEVEL_NAME.fullmatch(e.name) and is_folder(e))
    except FileNotFoundError:
        return []
