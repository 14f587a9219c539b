"""Opening a dump by its manifest, and checking its files against the manifest."""

from __future__ import annotations

import os
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from bkstore.errors import CorruptionError
from bkstore.offline.reading.dump_file import (
    DumpFile,
    check_footer,
    check_row_groups,
    parse_file_object,
    row_groups,
)
from bkstore.offline.reading.dump_folder import DumpFolder
from bkstore.offline.reading.file_locations import opened_parquet
from bkstore.offline.reading.manifest import MANIFEST, read_manifest
from bkstore.offline.reading.row_stream import check_bookie
from bkstore.tables import require_pyarrow
from bkstore.tables.columns import make_schema
from bkstore.tables.dump import DUMP_TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

BOOKIES = make_schema("bookies", "bookie is_read:bool")
"""One row per bookie of the manifest, read or not."""

_FOOTER_THREADS = 16
"""Number of footers that are read concurrently: reading a remote one is mostly waiting."""


@dataclass(frozen=True)
class Dump:
    """A dump as its manifest describes it. `path` is an absolute path, or a URI.

    `bookies` were read; those in `unread_bookies` were not, for the given reason. `damage_count`
    counts findings of damage. Reading, and `check`, compare files with the manifest.
    """

    path: str
    manifest: Mapping[str, Any]
    files: Mapping[str, tuple[DumpFile, ...]]
    bookies: tuple[str, ...]
    unread_bookies: Mapping[str, str]
    damage_count: int = 0
    is_remote: bool = False
    _checked: set[str] = field(default_factory=set, compare=False)

    def paths(self, table: str) -> list[str]:
        """Return the files of a table."""
        return [file.path for file in self.files[table]]

    def check(self, *tables: str) -> None:
        """Check the footers of these tables' files; a table that was checked is skipped.

        Raises `CorruptionError` for files that are not Parquet or not as the manifest says,
        `UnsupportedLayout` for other columns. Cost: some 0.3 ms per file, in threads.
        """
        for table in tables:
            self._check_once(table, self.files[table])

    def check_empty_files(self, table: str) -> None:
        """Check the footers of declared-empty files, which no task opens, as `check` does."""
        self._check_once(f"{table} without rows", [f for f in self.files[table] if not f.rows])

    def _check_once(self, label: str, files: Sequence[DumpFile]) -> None:
        """Check the footers of files, unless it was done before; `label` says which files."""
        if label not in self._checked:
            with ThreadPoolExecutor(_FOOTER_THREADS) as pool:
                deque(pool.map(check_file, files), 0)  # wait for all, raise the first error
            self._checked.add(label)

    def read(self, table: str) -> pa.Table:
        """Return all rows of a table, in the manifest's order of files; raises as `check`."""
        import pyarrow as pa

        schema = DUMP_TABLES[table]
        tables = []
        for dump_file in self.files[table]:
            with opened_parquet(dump_file.path) as file:
                check_footer(dump_file.path, file, schema, columns=None, rows=dump_file.rows)
                # `entries` may have further columns.
                tables.append(file.read(schema.names).cast(schema.to_arrow()))
        return pa.concat_tables(tables) if tables else schema.to_arrow().empty_table()

    def bookie_rows(self) -> pa.Table:
        """Return the table `BOOKIES`."""
        import pyarrow as pa

        bookies = [*self.bookies, *self.unread_bookies]
        is_read = [True] * len(self.bookies) + [False] * len(self.unread_bookies)
        columns = [pa.array(bookies, pa.string()), pa.array(is_read)]
        return pa.table(columns, schema=BOOKIES.to_arrow())


def check_file(file: DumpFile) -> None:
    """Raise unless the footer shows the declared columns, rows, bookie, ledgers and order."""
    with opened_parquet(file.path) as parquet_file:
        schema = DUMP_TABLES[file.table]
        check_footer(file.path, parquet_file, schema, columns=None, rows=file.rows)
        if file.ledger_range is not None:
            check_row_groups(file.path, row_groups(parquet_file.metadata), file.ledger_range)
        if file.has_one_bookie:
            check_bookie(file.path, parquet_file, file.bookie)


def open_dump(location: str | os.PathLike[str] | DumpFolder) -> Dump:
    """Return the dump at a path or a URI (`docs/spark.md`); reads only its manifest.

    Raises `InvalidArgument` if there is no dump or no such file system, `MissingDependency` if that
    needs a package, and what `read_manifest` raises. Memory: some 1 KB per file.
    """
    require_pyarrow("reading a dump")
    folder = location if isinstance(location, DumpFolder) else DumpFolder(location)
    manifest = read_manifest(folder)
    try:
        files = {name: tuple(_parse_files(folder, manifest, name)) for name in DUMP_TABLES}
        bookies = tuple(b["id"] for b in manifest["bookies"] if b["read"])
        unread = {b["id"]: str(b["reason"]) for b in manifest["bookies"] if not b["read"]}
        damage = sum(b["damage"] for b in manifest["bookies"])
    except (KeyError, TypeError) as error:
        raise CorruptionError(folder.locate(MANIFEST), None, f"lacks {error}") from None
    path, files_of_tables = folder.absolute(), MappingProxyType(files)
    unread_bookies, is_remote = MappingProxyType(unread), folder.is_remote
    return Dump(path, manifest, files_of_tables, bookies, unread_bookies, damage, is_remote)


def _parse_files(folder: DumpFolder, manifest: Mapping[str, Any], table: str) -> Iterator[DumpFile]:
    """Yield the files of a table; raises for a manifest that is invalid there."""
    for file_object in manifest["tables"][table]["files"]:
        path = folder.locate_file(file_object["path"], MANIFEST)
        rows = file_object["rows"]
        if type(rows) is not int or rows < 0:
            raise TypeError(f"not a number of rows: {rows!r:.40}")
        yield parse_file_object(path, file_object, table)
