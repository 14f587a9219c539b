"""Opening a dump: its manifest, and its files, which must be as that says."""

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
    described,
    row_groups,
)
from bkstore.offline.reading.dump_folder import DumpFolder
from bkstore.offline.reading.manifest import MANIFEST, read_manifest
from bkstore.offline.reading.places import opened_parquet
from bkstore.offline.reading.row_stream import check_bookie
from bkstore.tables import require_pyarrow
from bkstore.tables.columns import schema
from bkstore.tables.dump import DUMP_TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

BOOKIES = schema("bookies", "bookie is_read:bool")
"""One row a bookie of the manifest, read or not."""

_THREADS = 16
"""Footers that are read at once: most of a remote one is waiting."""


@dataclass(frozen=True)
class Dump:
    """A dump as its manifest has it. `path` is where it lies: a whole path, or a URI.

    `bookies` were read; those in `unread`, with the reason, were not, and count as not dumped.
    `damage` is how many findings of it the dump has. Files are held against the manifest where
    they are read, and by `check`.
    """

    path: str
    manifest: Mapping[str, Any]
    files: Mapping[str, tuple[DumpFile, ...]]
    bookies: tuple[str, ...]
    unread: Mapping[str, str]
    damage: int = 0
    is_remote: bool = False
    _checked: set[str] = field(default_factory=set, compare=False)

    def paths(self, table: str) -> list[str]:
        """Return the files of a table."""
        return [file.path for file in self.files[table]]

    def check(self, *tables: str) -> None:
        """Look at the footers of these tables' files, each once.

        Raises `CorruptionError` for files that are no Parquet or not as the manifest says,
        `UnsupportedLayout` for other columns. Cost: some 0.3 ms a file, in threads.
        """
        for table in tables:
            self._check(table, self.files[table])

    def check_empty(self, table: str) -> None:
        """Look at the footers of files that are said to have no rows; raises as `check`.

        Who plans by the manifest opens them no more.
        """
        self._check(f"{table} without rows", [f for f in self.files[table] if not f.rows])

    def _check(self, what: str, files: Sequence[DumpFile]) -> None:
        if what not in self._checked:
            with ThreadPoolExecutor(_THREADS) as pool:
                deque(pool.map(check_file, files), 0)
            self._checked.add(what)

    def read(self, table: str) -> pa.Table:
        """Return all rows of a table, in the manifest's order of files; raises as `check`."""
        import pyarrow as pa

        schema = DUMP_TABLES[table].to_arrow()
        parts = []
        for each in self.files[table]:
            with opened_parquet(each.path) as file:
                check_footer(each.path, file, DUMP_TABLES[table], None, each.rows)
                parts.append(file.read().cast(schema))
        return pa.concat_tables(parts) if parts else schema.empty_table()

    def bookie_rows(self) -> pa.Table:
        """Return the table `BOOKIES`."""
        import pyarrow as pa

        names = [*self.bookies, *self.unread]
        read = [True] * len(self.bookies) + [False] * len(self.unread)
        return pa.table([pa.array(names, pa.string()), pa.array(read)], schema=BOOKIES.to_arrow())


def check_file(file: DumpFile) -> None:
    """Raise unless a file is there, of its table, with as many rows as the manifest says, all of
    its bookie, and, as far as statistics tell, with the ledgers and the order that it says.
    """
    with opened_parquet(file.path) as opened:
        check_footer(file.path, opened, DUMP_TABLES[file.table], None, file.rows)
        if file.ledgers is not None:
            check_row_groups(file.path, row_groups(opened.metadata), file.ledgers)
        if file.pure:
            check_bookie(file.path, opened, file.bookie)


def open_dump(place: str | os.PathLike[str] | DumpFolder) -> Dump:
    """Return the dump at a path or a URI (`docs/spark.md`); reads its manifest and nothing else.

    Raises `InvalidArgument` where there is none, or no such file system, `MissingDependency`
    where that needs a package, `CorruptionError` for a manifest that makes no sense, and what
    `read_manifest` raises. Memory: some 1 KB a file.
    """
    require_pyarrow("reading a dump")
    folder = place if isinstance(place, DumpFolder) else DumpFolder(place)
    manifest = read_manifest(folder)
    try:
        files = {name: tuple(_files(folder, manifest, name)) for name in DUMP_TABLES}
        bookies = tuple(each["id"] for each in manifest["bookies"] if each["read"])
        unread = {e["id"]: str(e["reason"]) for e in manifest["bookies"] if not e["read"]}
        damage = sum(each["damage"] for each in manifest["bookies"])
    except (KeyError, TypeError) as error:
        raise CorruptionError(folder.of(MANIFEST), None, f"lacks {error}") from None
    return Dump(
        folder.absolute(),
        manifest,
        MappingProxyType(files),
        bookies,
        MappingProxyType(unread),
        damage,
        folder.is_remote,
    )


def _files(folder: DumpFolder, manifest: Mapping[str, Any], table: str) -> Iterator[DumpFile]:
    for said in manifest["tables"][table]["files"]:
        path = folder.file(said["path"], MANIFEST)
        yield described(path, {**said, "rows": _whole(said["rows"])}, table)


def _whole(rows: Any) -> int:
    if type(rows) is not int or rows < 0:
        raise TypeError(f"a number of rows: {rows!r:.40} is none")
    return rows
