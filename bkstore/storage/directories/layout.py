"""Finds the directories of a bookie, their order, and what they hold.

The caller gives one directory, a root with several, or a `bk_server.conf`. The order of the ledger
directories matters for db storage, where ledger L is in directory ``L mod n``: it is taken from
the configuration, else from the cookie, else from the ledgers found.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from bkstore.arguments import choice, optional
from bkstore.errors import CorruptionError, InvalidArgument, UnsupportedLayout
from bkstore.files.opening import read_file
from bkstore.files.os_errors import read_error
from bkstore.index.api import Finding
from bkstore.index.hierarchical.file_tree import has_index_files
from bkstore.storage.directories.conf_directories import configured_directories, locate_directories

if TYPE_CHECKING:
    from bkstore.formats.cookie import Cookie

Layout = Literal["idx", "rocksdb"]
check_layout = choice("idx", "rocksdb")
Holding = Literal["idx", "rocksdb", "logs", "journal"]

_LEDGER_FILE_NAMES = re.compile(
    r"[0-9a-f]{1,16}\.log(\.compacting|\.[0-9a-f]{1,16}\.compacted)?"
    r"|lastId|lastMark(\.\d+)?|DIRTY"
)
_JOURNAL_NAMES = re.compile(r"[0-9a-f]{1,16}\.txn")
DATABASE_NAMES = ("locations", "ledgers", "locations-128", "ledgers-128")
_NAMES_IN_EMPTY = re.compile(r"VERSION|BKSTORE-128|metadata-cache|[0-9a-f]{1,2}|[0-9a-f]{8}")
"""Names that an empty ``current/`` may have: index folders remain after a delete."""
_MAX_COOKIE_BYTES = 1 << 20


@dataclass
class BookieFolders:
    """The ``current/`` directories of one bookie, by role and in order.

    `order_source` is the source of the order of the ledger directories; "names" means that there is
    none but their names. `configured` has the path in the `bk_server.conf` for each: if the
    directory is elsewhere, the conf is a copy. `holdings` has what each examined one holds.
    """

    ledger: list[Path] = field(default_factory=list)
    index: list[Path] = field(default_factory=list)
    journal: list[Path] = field(default_factory=list)
    order_source: Literal["conf", "cookie", "names"] = "names"
    cookie: Cookie | None = None
    configured: dict[Path, Path] = field(default_factory=dict)
    holdings: dict[Path, set[Holding]] = field(default_factory=dict)


def find_holdings(current: Path, file_names: Collection[str] | None = None) -> set[Holding]:
    """Return which kinds of a bookie's files a ``current/`` directory holds: "logs", "journal", and
    the index as "idx" files or "rocksdb" databases. `file_names` are its names (None: list them).
    """
    file_names = os.listdir(current) if file_names is None else file_names
    held: set[Holding] = set()
    if not {*DATABASE_NAMES}.isdisjoint(file_names):  # a database, or a file that took its place
        held.add("rocksdb")
    if any(map(_LEDGER_FILE_NAMES.fullmatch, file_names)):
        held.add("logs")
    if any(map(_JOURNAL_NAMES.fullmatch, file_names)):
        held.add("journal")
    if has_index_files(current):
        held.add("idx")
    return held


def find_folders(
    path: Path, root: Path | None = None, cookie_damage: list[Finding] | None = None
) -> BookieFolders:
    """Return the directories of the bookie at `path`: a directory, or a `bk_server.conf` that lists
    them. `root` is for a conf only: a folder with copies of those directories. Raises
    `UnsupportedLayout` if this is no bookie, `InvalidArgument` for a `root` without a conf, and as
    `read_cookie`."""
    if os.path.lexists(path) and not path.is_dir():
        return _from_conf(path, root, cookie_damage)
    if root is not None:
        raise InvalidArgument(f"{path}: root requires a bk_server.conf, which this is not")
    if not path.is_dir():
        raise UnsupportedLayout(f"{path}: no such directory")
    # The path is one directory's current/, or a folder with one or several of them.
    if path.name == "current":
        currents = [path]
    else:
        own_current = path / "current"
        currents = [own_current] if own_current.is_dir() else _find_currents(path)
    # Keep those with a bookie's files, or empty as a bookie leaves them.
    held: dict[Path, set[Holding]] = {}
    for current in currents:
        names = os.listdir(current)
        kinds = find_holdings(current, names)
        # A directory with other files only does not belong to a bookie.
        if kinds or not names or any(map(_NAMES_IN_EMPTY.fullmatch, names)):
            held[current] = kinds
    if not held:
        raise UnsupportedLayout(f"{currents[0]}: contains no files of a bookie")
    # What they hold gives their roles; the cookie, if there is one, their order.
    cookie = read_cookie(list(held), cookie_damage)
    folders = _assign_roles(held, cookie)
    if cookie is not None:
        _order_by_cookie(folders, cookie)
    return folders


def _find_currents(root: Path) -> list[Path]:
    """Return the ``current/`` of each child; raise `UnsupportedLayout` if there is none."""
    currents = (child / "current" for child in root.iterdir() if child.is_dir())
    existing = list(filter(_is_directory, currents))
    if existing:
        return sorted(existing, key=lambda current: _natural_sort_key(current.parent.name))
    # The root may be one level too high: name what would do.
    deeper = sorted(str(child) for child in root.iterdir() if list(child.glob("*/current")))
    examples = ", ".join(deeper[:3]) + (", ..." if len(deeper) > 3 else "")
    hint = f"; some are one level down, give one of: {examples}" if deeper else ""
    reason = f"neither it nor a folder in it has a current/{hint}"
    raise UnsupportedLayout(f"{root}: not a bookie directory: {reason}")


def _is_directory(current: Path) -> bool:
    """Return whether the folder exists; raise `CorruptionError` if it is not a folder."""
    if current.is_dir():
        return True
    if os.path.lexists(current):
        raise CorruptionError(current, None, "is not a directory: its content cannot be read")
    return False


def _natural_sort_key(name: str) -> list[tuple[int, int | str]]:
    """Return a key by which ``ledgers10`` sorts after ``ledgers9``."""
    parts = re.split(r"(\d+)", name)
    # The 0 and 1 sort numbers before text, as the two cannot be compared.
    return [(0, int(part)) if part.isdecimal() else (1, part) for part in parts if part]


def _assign_roles(held: dict[Path, set[Holding]], cookie: Cookie | None) -> BookieFolders:
    """Return the directories by role, which is what they hold: journals, index, entry logs. One
    directory can have several roles; an empty one has that of its name."""
    folders = BookieFolders(cookie=cookie, holdings=held)
    for current, kinds in held.items():
        roles = kinds or {_role_of_empty(current.parent.name, cookie)}
        if "journal" in roles:
            folders.journal.append(current)
        if roles & {"idx", "rocksdb"}:
            folders.index.append(current)
        if "logs" in roles:
            folders.ledger.append(current)
    _share_directories(folders)
    return folders


def _role_of_empty(name: str, cookie: Cookie | None) -> Holding:
    """Return the role of an empty directory: by the cookie, else by its name."""
    if cookie is not None:
        roles: tuple[tuple[Holding, tuple[str, ...]], ...] = (
            ("logs", cookie.ledger_dirs),
            ("journal", cookie.journal_dirs),
            ("idx", cookie.index_dirs or ()),
        )
        for role, paths in roles:
            if any(Path(path).name == name for path in paths):
                return role
    if name.lower().startswith("journal"):
        return "journal"
    return "idx" if name.lower().startswith("index") else "logs"


def _share_directories(folders: BookieFolders) -> None:
    """Use the ledger directories as index directories if there are no others, or vice versa."""
    if set(folders.index) <= set(folders.ledger):
        folders.index = list(folders.ledger)
    elif not folders.ledger:
        folders.ledger = list(folders.index)
    if not folders.index and not folders.ledger:  # journals only
        folders.ledger = folders.index = list(folders.journal)


def _from_conf(path: Path, root: Path | None, cookie_damage: list[Finding] | None) -> BookieFolders:
    """Return the directories that a `bk_server.conf` lists; if `root` is given, their copies below
    that folder."""
    dirs_by_role = configured_directories(path)
    actual_paths = locate_directories(path, chain.from_iterable(dirs_by_role.values()), root)
    currents = {
        role: [actual_paths[directory] / "current" for directory in role_dirs]
        for role, role_dirs in dirs_by_role.items()
    }
    for role, role_dirs in currents.items():
        if len({current.resolve() for current in role_dirs}) < len(role_dirs):
            raise UnsupportedLayout(f"{path}: lists a {role} directory twice")
    # Without index directories the ledger directories have the index.
    ledger, journal = currents["ledger"], currents["journal"]
    index = currents["index"] or list(ledger)
    configured = {actual / "current": directory for directory, actual in actual_paths.items()}
    currents_with_cookie = list(dict.fromkeys([*ledger, *index, *journal]))
    cookie = read_cookie(currents_with_cookie, cookie_damage)
    return BookieFolders(
        ledger, index, journal, order_source="conf", cookie=cookie, configured=configured
    )


def check_distinct(role: str, currents: Sequence[Path]) -> None:
    """Raise `InvalidArgument` if a directory is given twice, even through links."""
    real_paths: set[str] = set()
    for current in currents:
        if (real_path := os.path.realpath(current)) in real_paths:
            raise InvalidArgument(f"{current}: this {role} directory is given twice")
        real_paths.add(real_path)


def read_cookie(currents: list[Path], damage: list[Finding] | None = None) -> Cookie | None:
    """Return the cookie of the directories, or None; some may lack it, but none may differ
    (`UnsupportedLayout`). Raises `CorruptionError` for one that cannot be read; with a list
    `damage`, a finding is added to it instead."""
    first_path, first_cookie = Path(), None
    for current in currents:
        path = current / "VERSION"
        try:
            cookie = _read_cookie_file(path)
        except FileNotFoundError:
            continue
        except CorruptionError as error:
            if damage is None:
                raise
            damage.append(Finding.of(error))
            continue
        if first_cookie is None:
            first_path, first_cookie = path, cookie
        elif cookie != first_cookie:
            raise UnsupportedLayout(
                f"{path}: cookie of bookie {cookie.bookie_id!r} differs from that of "
                f"{first_cookie.bookie_id!r} in {first_path}: these are directories of several "
                "bookies, or of different times; give one bookie's"
            )
    return first_cookie


def _read_cookie_file(path: Path) -> Cookie:
    try:
        data = read_file(path, _MAX_COOKIE_BYTES)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise read_error(error, path) from error
    from bkstore.formats import cookie as cookie_format  # loads protobuf

    try:
        return cookie_format.decode(data)
    except CorruptionError as error:
        raise error.relocate(path) from None


def _order_by_cookie(folders: BookieFolders, cookie: Cookie) -> None:
    """Put the directories in the cookie's order, if their names match its paths."""
    ledger = order_by_names(folders.ledger, cookie.ledger_dirs)
    index = order_by_names(folders.index, cookie.index_dirs or cookie.ledger_dirs)
    if ledger and index:
        folders.ledger, folders.index, folders.order_source = ledger, index, "cookie"


def order_by_names(currents: list[Path], configured: Sequence[str]) -> list[Path] | None:
    """Return `currents` in configured order; None unless each path matches just one of them. A
    single directory needs no match: it has only one order."""
    if len(currents) != len(configured):
        return None
    ordered: list[Path] = []
    for path in configured:
        components = [component for component in Path(path).parts if component != "/"]
        # A copy of /mnt/ledgers1/bk is often called bk, or ledgers1: try the last component first.
        matches = [each for each in currents if each.parent.name in components[-1:]]
        if len(matches) != 1:
            matches = [each for each in currents if each.parent.name in components]
        if len(matches) != 1 or matches[0] in ordered:
            return list(currents) if len(currents) == 1 else None
        ordered.append(matches[0])
    return ordered


def order_by_residue(dir_names: Sequence[str], ledgers: Sequence[Iterable[int]]) -> list[int]:
    """Return the configured order of db storage's directories, as indexes into `dir_names`.

    With n directories a bookie puts ledger L into the one at position L modulo n, so the ledgers
    found in each, `ledgers`, tell its position. Empty directories take the free positions, by name.
    Raises `UnsupportedLayout` if no order matches.

    >>> order_by_residue(["a", "b"], [[1, 3], [2]])
    [1, 0]
    """
    dir_count = len(dir_names)
    dir_of_position: dict[int, int] = {}
    for index, ledger_ids in enumerate(ledgers):
        residues = {ledger % dir_count for ledger in ledger_ids}
        if not residues:
            continue
        # The first directory with ledgers of a position takes it: no other may have such ledgers.
        clash = next((dir_of_position[i] for i in residues if i in dir_of_position), None)
        if len(residues) > 1 or clash is not None:
            other = f" as {dir_names[clash]} does" if clash is not None else ""
            held_positions = f"ledgers of positions {sorted(residues)} of {dir_count}{other}"
            raise UnsupportedLayout(
                f"{dir_names[index]} holds {held_positions}: directories are missing, or their "
                "order is unknown; give a bk_server.conf"
            )
        dir_of_position[residues.pop()] = index
    free_dirs = [index for index in range(dir_count) if index not in dir_of_position.values()]
    return [
        dir_of_position[position] if position in dir_of_position else free_dirs.pop(0)
        for position in range(dir_count)
    ]


def check_order(dir_names: Sequence[str], ledgers: Sequence[Iterable[int]], source: str) -> None:
    """Raise `UnsupportedLayout` if a directory is at a position to which none of its ledgers belong
    (ledger L is at ``L mod n``): no look-up would find them. A single stray ledger is permitted."""
    count = len(dir_names)
    for index, ledger_ids in enumerate(ledgers):
        residues = {ledger % count for ledger in ledger_ids}
        if residues and index not in residues:
            raise UnsupportedLayout(
                f"{dir_names[index]} is directory {index} of {count} by the {source}, but holds "
                f"only ledgers of {sorted(residues)}: directories are missing or in another order"
            )


def pick_layout(folders: BookieFolders, requested: Layout | None) -> Layout:
    """Return the layout of the directories' index, "idx" (index files) or "rocksdb": the one that
    they have. If they have both or none, return `requested`; without it, "idx" for none. Raises
    `UnsupportedLayout` for both without `requested`, or if they have only the other layout."""
    optional(check_layout)("layout", requested)
    examples: dict[str, Path] = {}
    for current in folders.index:
        if current not in folders.holdings:  # named by a bk_server.conf, and not examined so far
            folders.holdings[current] = find_holdings(current)
        for layout in folders.holdings[current] & {"idx", "rocksdb"}:
            examples.setdefault(layout, current)
    if requested is not None:
        if examples and requested not in examples:
            other = next(iter(examples))
            reason = f"the index here is {other}, not {requested}"
            raise UnsupportedLayout(f"{examples[other]}: {reason}")
        return requested
    if len(examples) == 2:
        raise UnsupportedLayout(
            f"both index files ({examples['idx']}) and RocksDB databases ({examples['rocksdb']}) "
            "are here (an interrupted conversion?); choose one (layout=, --layout)"
        )
    return "rocksdb" if "rocksdb" in examples else "idx"
