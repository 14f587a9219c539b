"""Which ledgers have an index file below ``current/``, and what else lies about there.

Real ledgers of scope 0 lie two hex directories deep, other scopes three. The start-up scan of
a real bookie (`IndexPersistenceMgr.getActiveLedgers`) also sees `.rloc` files, left behind by
an interrupted move: it deletes one whose `.idx` exists and renames one whose `.idx` does not.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from bkstore.errors import CorruptionError
from bkstore.files.opening import is_folder
from bkstore.files.os_errors import unreadable
from bkstore.formats.idxfile import ledger_of_path
from bkstore.ids import LedgerId
from bkstore.index.api import Finding

__all__ = ["Tree", "current_of", "find_index_file", "has_index_files", "scan_trees"]

_LEVEL = re.compile(r"[0-9a-f]{1,2}|[0-9a-f]{8}")


@dataclass
class Tree:
    """The index files of several directories: path by ledger, and what is odd."""

    files: dict[LedgerId, str] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    hidden: list[CorruptionError] = field(default_factory=list)
    """What stands where a folder of index files should: what it hides is not known."""


def _walk(current: Path, hidden: list[CorruptionError]) -> list[tuple[str, ...]]:
    """Return the path parts of every .idx and .idx.rloc file, sorted."""
    found: list[tuple[str, ...]] = []
    stack: list[tuple[str, ...]] = [()]
    while stack:
        parts = stack.pop()
        deepest = len(parts) == (3 if parts and len(parts[0]) == 8 else 2)
        try:
            entries = list(os.scandir(os.path.join(current, *parts)))
        except FileNotFoundError:
            continue
        for entry in entries:
            if entry.name.endswith((".idx", ".idx.rloc")):
                found.append((*parts, entry.name))
            elif not deepest and _LEVEL.fullmatch(entry.name):
                if is_folder(entry):
                    stack.append((*parts, entry.name))
                else:
                    hidden.append(_no_folder(entry.path))
    return sorted(found)


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
        for parts in _walk(current, tree.hidden):
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
    for ledger, path in leftovers:
        _add_leftover(tree, ledger, path)
    tree.findings += map(Finding.of, tree.hidden)
    return tree


def _add_leftover(tree: Tree, ledger: LedgerId, path: str) -> None:
    if ledger in tree.files:
        detail = "leftover of an interrupted move; a bookie deletes it at start"
    else:
        tree.files[ledger] = path
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


def has_index_files(current: Path) -> bool:
    """Return whether any index file lies below; stops at the first."""
    suffixes = (".idx", ".idx.rloc")
    for top in _directories(current):
        for parent in _directories(top):
            if any(name.endswith(suffixes) for name in os.listdir(parent)):
                return True
            if any(
                name.endswith(suffixes)
                for deepest in _directories(parent)
                for name in os.listdir(deepest)
            ):
                return True
    return False


def _directories(path: str | Path) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return sorted(e.path for e in entries if _LEVEL.fullmatch(e.name) and is_folder(e))
    except FileNotFoundError:
        return []
