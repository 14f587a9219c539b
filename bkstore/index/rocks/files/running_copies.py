"""Copies of databases that RocksDB has open: as a killed process would leave them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from bkstore.files.disk_changes import StrPath
from bkstore.index.rocks.files.database_directory import in_use_error

_MAX_COPY_ATTEMPTS = 20


def copy_running_database(source: StrPath, target: StrPath) -> None:
    """Copy a database to an empty directory, without what later writes add.

    Starts over if RocksDB's compactions or flushes added, changed or removed a file meanwhile:
    otherwise the copied manifest might name a file that was not copied. Raises `DirectoryInUse` if
    each of 20 attempts meets such a change.
    """
    for _ in range(_MAX_COPY_ATTEMPTS):
        for name in os.listdir(target):
            os.unlink(os.path.join(target, name))
        try:
            sizes = _list_sizes(source)
            for name in sizes:
                shutil.copyfile(os.path.join(source, name), os.path.join(target, name))
            if sizes == _list_sizes(source):
                return
        except FileNotFoundError:
            continue
    raise in_use_error(Path(source), "changes faster than it can be copied")


def _list_sizes(folder: StrPath) -> dict[str, int]:
    """Return the files of a database with their lengths; 0 for write-ahead logs, which may grow."""
    sizes = {}
    for name in os.listdir(folder):
        if not name.startswith("LOG"):  # RocksDB's information log
            size = os.stat(os.path.join(folder, name)).st_size
            sizes[name] = 0 if name.endswith(".log") else size
    return sizes


def copy_running_tree(source: StrPath, target: StrPath) -> None:
    """Copy a tree of directories to a new one, such as that of a bookie that runs in this process
    and is asked nothing meanwhile. Symbolic links are copied as links; the databases below are
    copied by `copy_running_database`, which raises `DirectoryInUse`."""
    databases: list[tuple[str, str]] = []  # directory and name

    def list_databases(folder: str, names: list[str]) -> list[str]:
        """Return the names in a directory that are databases, which `copytree` leaves out."""
        here = [name for name in names if os.path.lexists(os.path.join(folder, name, "CURRENT"))]
        databases.extend((folder, name) for name in here)
        return here

    shutil.copytree(source, target, symlinks=True, ignore=list_databases)
    for folder, name in databases:
        copied = os.path.join(target, os.path.relpath(folder, source), name)
        os.mkdir(copied)
        copy_running_database(os.path.join(folder, name), copied)
