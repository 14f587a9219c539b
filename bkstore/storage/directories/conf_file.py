"""The directories that a `bk_server.conf` names, and where they lie in a copy.

On the bookie they lie where the file says. A copy has them elsewhere: below a root that the
caller names, else beside the file. There a directory is told by the last components of its path;
one that several fit is refused, never guessed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from bkstore.errors import UnsupportedLayout
from bkstore.files.opening import opened

__all__ = ["configured_directories", "configured_settings", "place_directories"]

_LIMIT = 1 << 20
_KEYS = {
    "ledger": ("ledgerDirectories", "ledgerDirectory"),
    "index": ("indexDirectories", "indexDirectory"),
    "journal": ("journalDirectories", "journalDirectory"),
}
_DEPTH = 6
"""How far below a root directories are looked for: mount points and folders of hosts fit."""


def configured_directories(conf: Path) -> dict[str, list[Path]]:
    """Return the directories that the file names, by role ("ledger", "index", "journal").

    Relative ones are taken from the file's folder. Raises `UnsupportedLayout` for what is no
    `bk_server.conf`.
    """
    settings = configured_settings(conf)
    lists = {role: _paths(conf, settings, keys) for role, keys in _KEYS.items()}
    if not lists["ledger"]:
        raise _no_conf(conf, "names no ledgerDirectories")
    return lists


def configured_settings(conf: Path) -> dict[str, str]:
    """Return what a file of settings says, by key; `UnsupportedLayout` for what is no text."""
    settings = {}
    for line in _text(conf).splitlines():
        key, separator, value = line.partition("=")
        if separator and not key.lstrip().startswith("#"):
            settings[key.strip()] = value.strip()
    return settings


def _no_conf(path: Path, why: str) -> UnsupportedLayout:
    return UnsupportedLayout(
        f"{path}: is a file, and no bk_server.conf (it {why}): a bookie's directory is wanted, or "
        "its bk_server.conf"
    )


def _text(path: Path) -> str:
    with opened(path) as file:
        data = file.read(_LIMIT + 1)
    if len(data) > _LIMIT or b"\0" in data:
        raise _no_conf(path, "is longer" if len(data) > _LIMIT else "is no text")
    return data.decode("utf-8", "replace")


def _paths(conf: Path, settings: dict[str, str], keys: Iterable[str]) -> list[Path]:
    for key in keys:
        if settings.get(key):
            return [conf.parent / part.strip() for part in settings[key].split(",") if part.strip()]
    return []


def place_directories(
    conf: Path, directories: Iterable[Path], root: Path | None
) -> dict[Path, Path]:
    """Return where each configured directory lies, as a folder with a ``current/``.

    Without `root`: as configured if any of them is there, else beside the file. With it: below
    `root`, at their whole path (as ``cp --parents`` and backups have it), else by their last
    components. Raises `UnsupportedLayout` where one is not there, fits several folders, or two
    fit the same. Lists the folders to a depth of 6, those with a ``current/`` not from inside.
    """
    wanted = list(dict.fromkeys(directories))
    there = [directory for directory in wanted if _is_bookies(directory)]
    if root is None and there:
        for directory in wanted:
            if directory not in there:
                raise UnsupportedLayout(f"{conf}: names {directory}, which has no current/ here")
        return {directory: directory for directory in wanted}
    top = conf.parent if root is None else root
    below = sorted(_folders(top, _DEPTH))
    found = {directory: _fitting(conf, directory, top, below) for directory in wanted}
    owners: dict[Path, Path] = {}
    for directory, place in found.items():
        other = owners.setdefault(place.resolve(), directory)
        if other != directory:
            raise UnsupportedLayout(
                f"{conf}: names {other} and {directory}, and for both only {place} is here"
            )
    return found


def _is_bookies(folder: Path) -> bool:
    return (folder / "current").is_dir()


def _folders(top: Path, depth: int) -> Iterable[Path]:
    """Yield the folders below `top` that have a ``current/``."""
    try:
        inside = sorted(entry.path for entry in os.scandir(top) if entry.is_dir())
    except PermissionError:  # as lost+found: nobody copied a bookie there for this user
        return
    for path in map(Path, inside):
        if _is_bookies(path):
            yield path
        elif depth > 1 and not path.is_symlink():
            yield from _folders(path, depth - 1)


def _fitting(conf: Path, directory: Path, top: Path, below: list[Path]) -> Path:
    whole = top.joinpath(*directory.parts[1:]) if directory.is_absolute() else top / directory
    if _is_bookies(whole):
        return whole
    common = {folder: _common_end(folder, directory) for folder in below}
    most = max(common.values(), default=0)
    fitting = [folder for folder in below if common[folder] == most]
    if most == 0:
        raise UnsupportedLayout(
            f"{conf}: names {directory}, which is not here; no folder {directory.name!r} with a "
            f"current/ is below {top}; say where they are (root=, --root)"
        )
    if len(fitting) > 1:
        names = ", ".join(map(str, fitting))
        raise UnsupportedLayout(f"{conf}: names {directory}, which may be any of {names}")
    return fitting[0]


def _common_end(folder: Path, directory: Path) -> int:
    """Return how many last components two paths have in common."""
    count = 0
    for one, other in zip(reversed(folder.parts), reversed(directory.parts)):
        if one != other:
            break
        count += 1
    return count
