"""The directories named by a `bk_server.conf`, and how to find them in a copy.

On the bookie they are at the paths in the file. A copy has them elsewhere: below a root given by
the caller, else next to the file. There a directory is identified by the last components of its
path; an ambiguous one is refused, never guessed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

from bkstore.errors import InvalidArgument, UnsupportedLayout
from bkstore.files.disk_changes import StrPath
from bkstore.files.opening import is_folder
from bkstore.formats.syntax.configuration import Configuration
from bkstore.storage.directories.server_conf import not_a_conf_error, read_server_conf

_Role = Literal["ledger", "index", "journal"]

_DEFAULT_JOURNAL = "/tmp/bk-txn"  # noqa: S108 (as `journalDirectory` of BookKeeper)

_MAX_DEPTH = 6
"""Depth of the search below a root: leaves room for mount points and folders per host."""


def configured_directories(conf: Path) -> dict[str, list[Path]]:
    """Return the directories that the file names, by role ("ledger", "index", "journal"); relative
    paths start at its folder. Raises `UnsupportedLayout` if it is not a `bk_server.conf`, or names
    no ledger directory or one with an empty name."""
    settings = read_server_conf(conf)
    roles: tuple[_Role, ...] = ("ledger", "index", "journal")
    try:
        names_by_role = {role: directory_names(settings, role) for role in roles}
    except InvalidArgument as error:
        raise UnsupportedLayout(f"{conf}: {error}") from None
    dirs_by_role = {str(role): _resolve_paths(conf, names) for role, names in names_by_role.items()}
    if not dirs_by_role["ledger"]:
        raise not_a_conf_error(conf, "names no ledgerDirectories")
    return dirs_by_role


def directory_names(settings: Configuration, role: _Role) -> list[str]:
    """Return the names of the directories of a role, which may be none; journals are taken from
    `journalDirectories`, else from the older `journalDirectory`."""
    if role != "journal":
        return settings.strings(f"{role}Directories")
    directories = settings.strings("journalDirectories")
    if directories not in ([], [""]):  # an empty value counts as none
        return directories
    older_setting = settings.string("journalDirectory", None)
    return [] if older_setting is None else [older_setting]


def choose_journal_dirs(in_conf: Sequence[Path], in_cookie: Sequence[str]) -> Sequence[StrPath]:
    """Return the journal directories: those of the conf, of the cookie, or BookKeeper's default."""
    return in_conf or in_cookie or [_DEFAULT_JOURNAL]


def _resolve_paths(conf: Path, names: list[str]) -> list[Path]:
    """Return configured paths, relative ones from the file's directory."""
    if "" in names:
        raise UnsupportedLayout(f"{conf}: lists a directory with an empty name: {', '.join(names)}")
    for name in names:
        if "\0" in name:
            raise UnsupportedLayout(f"{conf}: names {name!r}, which is not a directory path")
    return [conf.parent / name for name in names]


def locate_directories(conf: Path, paths: Iterable[Path], root: Path | None) -> dict[Path, Path]:
    """Return the actual path of each configured directory, a folder with a ``current/``.

    Without `root`, these are the configured paths if any of them exists, else folders next to the
    file. With it, folders below `root`: at the full path (as ``cp --parents`` and backups make
    it), else by the last components. Raises `UnsupportedLayout` if one is missing, matches several
    folders, or two match the same. Searches to a depth of 6, but not inside directories found.
    """
    distinct = list(dict.fromkeys(paths))
    existing = [directory for directory in distinct if _is_bookie_dir(directory)]
    if root is None and existing:
        for directory in distinct:
            if directory not in existing:
                raise UnsupportedLayout(f"{conf}: names {directory}, which has no current/ here")
        return {directory: directory for directory in distinct}
    top = conf.parent if root is None else root
    bookie_dirs = sorted(_walk_bookie_dirs(top, _MAX_DEPTH))
    actual_paths = {path: _find_copy(conf, path, top, bookie_dirs) for path in distinct}
    # No two configured directories may have one copy.
    configured_by_copy: dict[Path, Path] = {}
    for directory, actual_path in actual_paths.items():
        first = configured_by_copy.setdefault(actual_path.resolve(), directory)
        if first != directory:
            raise UnsupportedLayout(
                f"{conf}: names {first} and {directory}, but only {actual_path} was found for both"
            )
    return actual_paths


def _is_bookie_dir(folder: Path) -> bool:
    return (folder / "current").is_dir()


def _walk_bookie_dirs(top: Path, depth: int) -> Iterable[Path]:
    """Yield the folders with a ``current/``, at most `depth` levels below `top`. Does not search
    inside those, nor behind links, which may lead in a circle."""
    try:
        inside = sorted(entry.path for entry in os.scandir(top) if is_folder(entry))
    except PermissionError:  # as for lost+found; no copy of a bookie is where the user cannot read
        return
    for path in map(Path, inside):
        if _is_bookie_dir(path):
            yield path
        elif depth > 1 and not path.is_symlink():
            yield from _walk_bookie_dirs(path, depth - 1)


def _find_copy(conf: Path, directory: Path, top: Path, bookie_dirs: list[Path]) -> Path:
    """Return the copy of a configured directory below `top`: at its full path there, else the one
    of `bookie_dirs` that shares the most last components with it, if just one does."""
    # The first of an absolute path's parts is the root directory.
    full_path = top.joinpath(*directory.parts[1:]) if directory.is_absolute() else top / directory
    if _is_bookie_dir(full_path):
        return full_path
    suffix_lengths = {folder: _common_suffix_length(folder, directory) for folder in bookie_dirs}
    longest = max(suffix_lengths.values(), default=0)
    matches = [folder for folder in bookie_dirs if suffix_lengths[folder] == longest]
    if longest == 0:
        raise UnsupportedLayout(
            f"{conf}: names {directory}, which is not here; {top} has no folder {directory.name!r} "
            f"with a current/; give the folder that has the directories (root=, --root)"
        )
    if len(matches) > 1:
        names = ", ".join(map(str, matches))
        raise UnsupportedLayout(f"{conf}: names {directory}, which matches {names}")
    return matches[0]


def _common_suffix_length(folder: Path, directory: Path) -> int:
    """Return the number of last components that two paths share."""
    count = 0
    for one, other in zip(reversed(folder.parts), reversed(directory.parts)):
        if one != other:
            break
        count += 1
    return count
