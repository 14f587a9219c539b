"""The RocksDB databases that a command reads: those of a bookie's directories, or one by itself."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from bkstore.cli.terminal.shared_options import open_bookie
from bkstore.errors import InvalidArgument, UnsupportedLayout
from bkstore.index.rocks.inspection.database_files import DatabaseFiles
from bkstore.storage.directories.layout import DATABASE_NAMES
from bkstore.storage.read_only.bookie_dir import BookieDir

_CURRENT = "CURRENT"


class ChosenDatabase(NamedTuple):
    """A database, and the number of its index directory."""

    dir_index: int
    files: DatabaseFiles

    @property
    def name(self) -> str:
        """The database's name, that of its directory: `locations`, `ledgers-128` and so on."""
        return self.files.path.name


@contextmanager
def open_databases(
    args: argparse.Namespace,
) -> Iterator[tuple[list[ChosenDatabase], BookieDir | None]]:
    """Yield the databases of DIR, those of --database if it is given, and the bookie's directories,
    None if DIR is a database itself.

    Raises `UnsupportedLayout` if DIR has none; else as `BookieDir` and `DatabaseFiles.open`.
    """
    directory: Path = args.directory
    if directory.suffix in (".sst", ".log") and directory.is_file():
        raise InvalidArgument(
            f"{directory}: is one file of a database; give the database's directory, "
            f"{directory.parent}, with --rows {directory.name} or --properties {directory.name}"
        )
    if (directory / _CURRENT).is_file() or directory.name in DATABASE_NAMES:
        yield _open([(0, directory)], args), None
        return
    with open_bookie(args, needs_index=False) as bookie:
        paths = [
            (dir_index, current / name)
            for dir_index, current in enumerate(bookie.folders.index)
            for name in DATABASE_NAMES
            if (current / name).is_dir()
        ]
        if not paths:
            reason = "contains no RocksDB database (locations, ledgers)"
            raise UnsupportedLayout(f"{directory}: {reason}")
        yield _open(paths, args), bookie


def _open(paths: list[tuple[int, Path]], args: argparse.Namespace) -> list[ChosenDatabase]:
    """Open the databases of the name that was chosen, of all without --database."""
    wanted = args.database
    if wanted is not None and all(path.name != wanted for _, path in paths):
        names = ", ".join(dict.fromkeys(path.name for _, path in paths))
        raise InvalidArgument(f"--database {wanted[:60]}: there is no such one, only {names}")
    return [
        ChosenDatabase(dir_index, DatabaseFiles.open(path, args.live))
        for dir_index, path in paths
        if wanted in (None, path.name)
    ]
