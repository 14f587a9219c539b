"""Which directories a bookie has, in which order, and what they hold.

Three ways to say them: one directory, a root with several, or a `bk_server.conf`. The order of
the ledger directories matters for db storage, where ledger L lies in number ``L mod n``: it
comes from the configuration, else from the cookie, else from where the ledgers lie.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from bkstore.arguments import choice, optional
from bkstore.errors import CorruptionError, InvalidArgument, UnsupportedLayout
from bkstore.files.opening import read_whole
from bkstore.index.hierarchical.file_tree import has_index_files
from bkstore.storage.directories.conf_file import configured_directories, place_directories

if TYPE_CHECKING:
    from bkstore.formats.cookie import Cookie

Layout = Literal["idx", "rocksdb"]
check_layout = choice("idx", "rocksdb")
Holding = Literal["idx", "rocksdb", "logs", "journal"]

_LEDGER_FILES = re.compile(
    r"[0-9a-f]{1,16}\.log(\.compacting|\.[0-9a-f]{1,16}\.compacted)?"
    r"|lastId|lastMark(\.\d+)?|DIRTY"
)
_JOURNAL = re.compile(r"[0-9a-f]{1,16}\.txn")
DATABASES = ("locations", "ledgers", "locations-128", "ledgers-128")
_OTHERS = re.compile(r"VERSION|BKSTORE-128|metadata-cache|[0-9a-f]{1,2}|[0-9a-f]{8}")
"""What the ``current/`` of an empty bookie may hold: index folders stay after a delete."""
_COOKIE_LIMIT = 1 << 20


@dataclass
class BookieFolders:
    """The ``current/`` directories of one bookie, by role and in order.

    `ordered` says where the order of the ledger directories comes from; "names" means that
    nothing but their names says it. `configured` has the path that a `bk_server.conf` names for
    each: where that is not where the directory is, the conf is a copy. `held` has what each
    directory holds, of those that were looked at.
    """

    ledger: list[Path] = field(default_factory=list)
    index: list[Path] = field(default_factory=list)
    journal: list[Path] = field(default_factory=list)
    ordered: Literal["conf", "cookie", "names"] = "names"
    cookie: Cookie | None = None
    configured: dict[Path, Path] = field(default_factory=dict)
    held: dict[Path, set[Holding]] = field(default_factory=dict)


def holdings(current: Path, names: Collection[str] | None = None) -> set[Holding]:
    """Return what a ``current/`` directory holds. Reads names only; `names` if they were read."""
    names = os.listdir(current) if names is None else names
    held: set[Holding] = set()
    if not {*DATABASES}.isdisjoint(names):  # one that is no folder too: it is not absent
        held.add("rocksdb")
    if any(map(_LEDGER_FILES.fullmatch, names)):
        held.add("logs")
    if any(map(_JOURNAL.fullmatch, names)):
        held.add("journal")
    if has_index_files(current):
        held.add("idx")
    return held


def find_folders(path: Path, root: Path | None = None) -> BookieFolders:
    """Return the directories that `path` stands for; `UnsupportedLayout` if it is no bookie.

    `root` says below which folder those of a `bk_server.conf` lie; `InvalidArgument` for others.
    """
    if os.path.lexists(path) and not path.is_dir():
        return _from_conf(path, root)
    if root is not None:
        raise InvalidArgument(f"{path}: root goes with a bk_server.conf, and this is none")
    if not path.is_dir():
        raise UnsupportedLayout(f"{path}: no such directory")
    if path.name == "current" or not (path / "current").is_dir():
        currents = [path] if path.name == "current" else _children(path)
    else:
        currents = [path / "current"]
    held: dict[Path, set[Holding]] = {}
    for current in currents:
        names = os.listdir(current)
        kinds = holdings(current, names)
        # One that is not empty, and has nothing of a bookie, is somebody else's.
        if kinds or not names or any(map(_OTHERS.fullmatch, names)):
            held[current] = kinds
    if not held:
        raise UnsupportedLayout(f"{currents[0]}: holds nothing of a bookie's")
    cookie = read_cookie(list(held))
    folders = _by_role(held, cookie)
    if cookie is not None:
        _order_by_cookie(folders, cookie)
    return folders


def _children(root: Path) -> list[Path]:
    currents = (child / "current" for child in root.iterdir() if child.is_dir())
    found = sorted(filter(_is_there, currents), key=lambda current: _natural(current.parent.name))
    if found:
        return found
    deeper = sorted(str(child) for child in root.iterdir() if list(child.glob("*/current")))
    shown = ", ".join(deeper[:3]) + (", ..." if len(deeper) > 3 else "")
    hint = f"; one level down there are, give one of: {shown}" if deeper else ""
    raise UnsupportedLayout(
        f"{root}: not a bookie directory: neither it nor a folder in it has a current/{hint}"
    )


def _is_there(current: Path) -> bool:
    """Return whether there is such a folder; `CorruptionError` for what is none."""
    if current.is_dir():
        return True
    if os.path.lexists(current):
        raise CorruptionError(current, None, "is no folder: what is in it cannot be read")
    return False


def _natural(name: str) -> list[tuple[int, int | str]]:
    parts = re.split(r"(\d+)", name)
    return [(0, int(part)) if part.isdecimal() else (1, part) for part in parts if part]


def _by_role(held: dict[Path, set[Holding]], cookie: Cookie | None) -> BookieFolders:
    folders = BookieFolders(cookie=cookie, held=held)
    for current, kinds in held.items():
        roles = kinds or {_role_by_name(current.parent.name, cookie)}
        if "journal" in roles:
            folders.journal.append(current)
        if roles & {"idx", "rocksdb"}:
            folders.index.append(current)
        if "logs" in roles:
            folders.ledger.append(current)
    _settle_index(folders)
    return folders


def _role_by_name(name: str, cookie: Cookie | None) -> Holding:
    """Return what an empty directory is for: what the cookie says, else what its name says."""
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


def _settle_index(folders: BookieFolders) -> None:
    """Without a directory of their own, the indexes lie in the ledger directories."""
    if set(folders.index) <= set(folders.ledger):
        folders.index = list(folders.ledger)
    elif not folders.ledger:
        folders.ledger = list(folders.index)
    if not folders.index and not folders.ledger:  # journals only
        folders.ledger = folders.index = list(folders.journal)


def _from_conf(path: Path, root: Path | None) -> BookieFolders:
    lists = configured_directories(path)
    places = place_directories(path, [d for found in lists.values() for d in found], root)
    currents = {role: [places[d] / "current" for d in found] for role, found in lists.items()}
    for role, found in currents.items():
        if len({current.resolve() for current in found}) < len(found):
            raise UnsupportedLayout(f"{path}: names a {role} directory twice")
    folders = BookieFolders(
        currents["ledger"],
        currents["index"] or list(currents["ledger"]),
        currents["journal"],
        "conf",
        configured={place / "current": directory for directory, place in places.items()},
    )
    everything = [*folders.ledger, *folders.index, *folders.journal]
    folders.cookie = read_cookie(list(dict.fromkeys(everything)))
    return folders


def check_distinct(role: str, currents: Sequence[Path]) -> None:
    """Raise `InvalidArgument` where one directory is given twice, through links too."""
    seen: set[str] = set()
    for current in currents:
        if (real := os.path.realpath(current)) in seen:
            raise InvalidArgument(f"{current}: this {role} directory is given twice")
        seen.add(real)


def read_cookie(currents: list[Path]) -> Cookie | None:
    """Return the cookie that all directories agree on; one may lack it, none may differ."""
    found: tuple[Path, Cookie] | None = None
    for current in currents:
        path = current / "VERSION"
        try:
            data = read_whole(path, _COOKIE_LIMIT)
        except FileNotFoundError:
            continue
        from bkstore.formats import cookie as cookie_format  # loads protobuf

        try:
            cookie = cookie_format.decode(data)
        except CorruptionError as error:
            raise error.within(path) from None
        if found is not None and cookie != found[1]:
            raise UnsupportedLayout(
                f"{path}: cookie of bookie {cookie.bookie_id!r} differs from that of "
                f"{found[1].bookie_id!r} in {found[0]}: these are directories of several "
                "bookies, or of different times; give one bookie's"
            )
        found = found or (path, cookie)
    return None if found is None else found[1]


def _order_by_cookie(folders: BookieFolders, cookie: Cookie) -> None:
    """Put the directories in the configured order, if their names fit the configured paths."""
    ledger = matched(folders.ledger, cookie.ledger_dirs)
    index = matched(folders.index, cookie.index_dirs or cookie.ledger_dirs)
    if ledger and index:
        folders.ledger, folders.index, folders.ordered = ledger, index, "cookie"


def matched(currents: list[Path], configured: Sequence[str]) -> list[Path] | None:
    """Return `currents` in configured order; None unless every name fits just one path."""
    if len(currents) != len(configured):
        return None
    ordered: list[Path] = []
    for path in configured:
        parts = [part for part in Path(path).parts if part != "/"]
        exact = [c for c in currents if parts and c.parent.name == parts[-1]]
        fits = exact if len(exact) == 1 else [c for c in currents if c.parent.name in parts]
        if len(fits) != 1 or fits[0] in ordered:
            return list(currents) if len(currents) == 1 else None
        ordered.append(fits[0])
    return ordered


def order_by_residue(names: Sequence[str], ledgers: Sequence[Iterable[int]]) -> list[int]:
    """Return the positions of directories, judged by the ledgers they hold.

    With n directories, one that holds ledgers holds those of a single residue modulo n. The
    result gives, for each position, the number of the directory. Empty directories take what
    is left, by name. Raises `UnsupportedLayout` where no order explains what is there.

    >>> order_by_residue(["a", "b"], [[1, 3], [2]])
    [1, 0]
    """
    size = len(names)
    taken: dict[int, int] = {}
    for number, held in enumerate(ledgers):
        residues = {ledger % size for ledger in held}
        if not residues:
            continue
        clash = next((taken[r] for r in residues if r in taken), None)
        if len(residues) > 1 or clash is not None:
            other = f" as {names[clash]} does" if clash is not None else ""
            raise UnsupportedLayout(
                f"{names[number]} holds ledgers of positions {sorted(residues)} of {size}{other}: "
                "directories are missing, or their order cannot be told; give a bk_server.conf"
            )
        taken[residues.pop()] = number
    free = [number for number in range(size) if number not in taken.values()]
    return [taken[at] if at in taken else free.pop(0) for at in range(size)]


def check_order(names: Sequence[str], ledgers: Sequence[Iterable[int]], said_by: str) -> None:
    """Raise `UnsupportedLayout` where a stated order contradicts what the directories hold.

    A stray ledger is a finding; a directory whose ledgers all belong elsewhere means that the
    order is wrong, and every look-up in it would say "not here".
    """
    size = len(names)
    for number, held in enumerate(ledgers):
        residues = {ledger % size for ledger in held}
        if residues and number not in residues:
            raise UnsupportedLayout(
                f"{names[number]} is directory {number} of {size} by the {said_by}, but holds only "
                f"ledgers of {sorted(residues)}: directories are missing or in another order"
            )


def pick_layout(folders: BookieFolders, asked: Layout | None) -> Layout:
    """Return the index layout of the directories; refuse a mix unless told which one to read."""
    optional(check_layout)("layout", asked)
    by_kind: dict[str, Path] = {}
    for current in folders.index:
        if current not in folders.held:  # of a bk_server.conf
            folders.held[current] = holdings(current)
        for kind in folders.held[current] & {"idx", "rocksdb"}:
            by_kind.setdefault(kind, current)
    if asked is not None:
        if by_kind and asked not in by_kind:
            other = next(iter(by_kind))
            raise UnsupportedLayout(f"{by_kind[other]}: the index here is {other}, not {asked}")
        return asked
    if len(by_kind) == 2:
        raise UnsupportedLayout(
            f"both index files ({by_kind['idx']}) and RocksDB databases ({by_kind['rocksdb']}) "
            "are here (an interrupted conversion?); say which to read (layout=, --layout)"
        )
    return "rocksdb" if "rocksdb" in by_kind else "idx"
