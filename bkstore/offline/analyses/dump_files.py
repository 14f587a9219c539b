"""A dump as analyses read it: its manifest, and files that are what the manifest says."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from bkstore.errors import CorruptionError, UnsupportedLayout
from bkstore.offline.dump import TABLES
from bkstore.offline.dump.manifest import MANIFEST, file_in, read_manifest
from bkstore.offline.reading.dump_file import DumpFile, described
from bkstore.offline.reading.places import opened_parquet
from bkstore.tables import Schema, require_pyarrow
from bkstore.tables.table import schema

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

__all__ = ["BOOKIES", "Dump", "open_dump"]

BOOKIES = schema("bookies", ("bookie", "string"), ("is_read", "bool"))
"""One row a bookie of the manifest, read or not."""


@dataclass(frozen=True)
class Dump:
    """A dump that was looked at: every file is there, with the declared columns.

    `bookies` were read; those in `unread`, with the reason, were not, and count as not dumped.
    `damage` is how many findings of it the dump has.
    """

    path: Path
    manifest: Mapping[str, Any]
    files: Mapping[str, tuple[DumpFile, ...]]
    bookies: tuple[str, ...]
    unread: Mapping[str, str]
    damage: int = 0

    def paths(self, table: str) -> list[str]:
        """Return the files of a table."""
        return [file.path for file in self.files[table]]

    def read(self, table: str) -> pa.Table:
        """Return all rows of a table, in the manifest's order of files."""
        import pyarrow as pa

        (schema,) = (each.to_arrow() for each in TABLES if each.name == table)
        parts = []
        for path in self.paths(table):
            with opened_parquet(path) as file:
                parts.append(file.read().cast(schema))
        return pa.concat_tables(parts) if parts else schema.empty_table()

    def bookie_rows(self) -> pa.Table:
        """Return the table `BOOKIES`."""
        import pyarrow as pa

        names = [*self.bookies, *self.unread]
        read = [name in self.bookies for name in names]
        return pa.table([pa.array(names, pa.string()), pa.array(read)], schema=BOOKIES.to_arrow())


def open_dump(path: str | os.PathLike[str]) -> Dump:
    """Return the dump at `path`; reads its manifest and the footers of its files.

    Raises `InvalidArgument` where there is none, `CorruptionError` for files that are no
    Parquet or not as the manifest says, `UnsupportedLayout` for other columns, and what
    `read_manifest` raises.
    """
    require_pyarrow("reading a dump")
    top = Path(path).absolute()
    manifest = read_manifest(top)
    try:
        files = {each.name: tuple(_files(top, manifest, each)) for each in TABLES}
        bookies = tuple(each["id"] for each in manifest["bookies"] if each["read"])
        unread = {e["id"]: str(e["reason"]) for e in manifest["bookies"] if not e["read"]}
        damage = sum(each["damage"] for each in manifest["bookies"])
    except (KeyError, TypeError) as error:
        raise CorruptionError(top / MANIFEST, None, f"lacks {error}") from None
    return Dump(top, manifest, MappingProxyType(files), bookies, MappingProxyType(unread), damage)


def _files(top: Path, manifest: Mapping[str, Any], table: Schema) -> list[DumpFile]:
    found = []
    for said in manifest["tables"][table.name]["files"]:
        path = file_in(top, said["path"])
        footer = _footer(path, table)
        rows = int(footer.num_rows)
        if rows != said["rows"]:
            raise CorruptionError(path, None, f"has {rows} rows, the manifest says {said['rows']}")
        found.append(described(path, said, footer, table.name))
    return found


def _footer(path: Path, table: Schema) -> Any:
    """Return the metadata of a Parquet file; refuse it unless it is of the table."""
    with opened_parquet(str(path)) as file:
        here, footer = file.schema_arrow, file.metadata
    wanted = table.to_arrow()
    if here.names != wanted.names or here.types != wanted.types:
        odd = [f"{f.name} {f.type}" for f in here if f not in wanted] or here.names
        lost = [f.name for f in wanted if f.name not in here.names]
        said = f"it has {', '.join(odd)}" + (f", it lacks {', '.join(lost)}" if lost else "")
        raise UnsupportedLayout(f"{path}: not the table {table.name} of a dump: {said}")
    return footer
