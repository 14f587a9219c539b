"""bkstore listfiles: the files of a bookie, by what they are."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from bkstore.cli.terminal.output_options import add_output, write_output
from bkstore.cli.terminal.parser import Parser
from bkstore.cli.terminal.shared_options import add_directory, open_bookie
from bkstore.files.opening import list_files
from bkstore.files.os_errors import convert_read_errors, is_absent
from bkstore.storage.directories.layout import DATABASE_NAMES, BookieFolders
from bkstore.storage.directories.unknown_files import METADATA_CACHE, find_unknown_files
from bkstore.tables import BOOKIE_FILES, Table

FileRow = tuple[str, int, str, int]
FileRows = Iterator[FileRow]
_DATABASES = (*DATABASE_NAMES, METADATA_CACHE)


def add_arguments(parser: Parser) -> None:
    """Declare the command's arguments."""
    add_directory(parser)
    for name, (description, _) in _KINDS.items():
        help_text = f"only {description} (and others named)"
        parser.add_argument(f"--{name}", action="store_true", help=help_text)
    add_output(parser, BOOKIE_FILES)


def run(args: argparse.Namespace) -> int:
    """Print a row for each file of the chosen kinds; without a choice, of all kinds."""
    chosen = [name for name in _KINDS if getattr(args, name)] or list(_KINDS)
    with open_bookie(args, needs_index=False) as bookie, convert_read_errors(bookie.path):
        rows: list[FileRow] = []
        for name in chosen:
            _, list_files_of_kind = _KINDS[name]
            rows += list_files_of_kind(bookie.folders)
        bookie.check_unchanged()
    write_output(args, BOOKIE_FILES, [Table.from_rows(BOOKIE_FILES, rows)])
    return 0


def _rows_of_dirs(kind: str, dirs: list[Path], is_wanted: Callable[[str], bool]) -> FileRows:
    for dir_index, directory in enumerate(dirs):
        names = sorted(filter(is_wanted, os.listdir(directory)), key=lambda name: (len(name), name))
        yield from (_file_row(kind, dir_index, directory / name) for name in names)


def _file_row(kind: str, dir_index: int, path: Path) -> FileRow:
    """Return the row of a file in directory number `dir_index`."""
    try:
        size = path.stat().st_size
    except OSError as error:
        if not is_absent(error):
            raise
        size = 0  # a dangling link
    return kind, dir_index, str(path), size


def _journal_rows(folders: BookieFolders) -> FileRows:
    return _rows_of_dirs("journal", folders.journal, lambda name: name.endswith(".txn"))


def _entry_logs(folders: BookieFolders) -> FileRows:
    """Yield the entry logs, including those that an unfinished compaction left."""
    return _rows_of_dirs("entrylog", folders.ledger, lambda name: ".log" in name)


def _index_rows(folders: BookieFolders) -> FileRows:
    """Yield index files, and files in the folders of RocksDB databases."""
    for dir_index, directory in enumerate(folders.index):
        index_paths = []
        for path in list_files(directory):
            is_database_file = path.parent.parent == directory and path.parent.name in _DATABASES
            if is_database_file or path.name.endswith((".idx", ".idx.rloc")):
                index_paths.append(path)
        yield from (_file_row("index", dir_index, path) for path in sorted(index_paths))


def _other_rows(folders: BookieFolders) -> FileRows:
    """Yield files with names that no bookie uses, except those that `_entry_logs` lists."""
    directories = list(dict.fromkeys([*folders.ledger, *folders.index, *folders.journal]))
    for dir_index, directory in enumerate(directories):
        for unknown_file in find_unknown_files([directory]):
            if ".log" not in unknown_file.path.name or directory not in folders.ledger:
                yield _file_row("other", dir_index, unknown_file.path)


_KINDS: dict[str, tuple[str, Callable[[BookieFolders], FileRows]]] = {
    "journal": ("journal files", _journal_rows),
    "entrylog": ("entry logs", _entry_logs),
    "index": ("index files, or files of RocksDB databases", _index_rows),
    "other": ("files with names that no bookie uses", _other_rows),
}
