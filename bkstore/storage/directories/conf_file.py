"""The directories that a `bk_server.conf` names, and where they lie in a copy.

On the bookie they lie where the file says. A copy has them elsewhere: below a root that the
caller names, else beside the file. There a directory is told by the last components of its path;
one that several fit is refused, never guessed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from bkstore.errors import InvalidArgument, UnsupportedLayout
from bkstore.formats.syntax.configuration import Configuration
from bkstore.storage.directories.server_conf import no_conf, read_server_conf

_Role = Literal["ledger", "index", "journal"]

_DEPTH = 6
"""How far below a root directories are looked for: mount points and folders of hosts fit."""


def configured_directories(conf: Path) -> dict[str, list[Path]]:
    """Return the directories that the file names, by role ("ledger", "index", "journal").

    Relative ones are taken from the file's folder. Raises `UnsupportedLayout` for what is no
    `bk_server.conf`, as `read_server_conf`, and for an empty name.
    """
    settings = read_server_conf(conf)
    roles: tuple[_Role, ...] = ("ledger", "index", "journal")
    try:
        names = {role: directory_names(settings, role) for role in roles}
    except InvalidArgument as error:
        raise UnsupportedLayout(f"{conf}: {error}") from None
    lists: dict[str, list[Path]] = {role: _paths(conf, found) for role, found in names.items()}
    if not lists["ledger"]:
        raise no_conf(conf, "names no ledgerDirectories")
    return lists


def directory_names(settings: Configuration, role: _Role) -> list[str]:
    """Return the names of the directories of a role; none where the file names none.

    Journals are those of `journalDirectories`, else the one of the older `journalDirectory`.
    """
    if role != "journal":
        return settings.strings(f"{role}Directories")
    several = settings.strings("journalDirectories")
    if several not in ([], [""]):
        return several
    single = settings.string("journalDirectory", None)
    return [] if single is None else [single]


def _paths(conf: Path, names: list[str]) -> list[Path]:
    if "" in names:
        raise UnsupportedLayout(f"{conf}: names a directory without a name: {', '.join(names)}")
    for name in names:
        if "\0" in name:
            raise UnsupportedLayout(f"{conf}: names {name!r}, which is no path of a directory")
    return [conf.parent / name for name in names]


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
