"""What a load reads: the `entries` and `ledgers` files of one bookie of a dump.

A dump says in its manifest which files it has. A folder without one is taken too, if it has
`entries/` and `ledgers/` with Parquet files of the declared columns: what another program has
made of dumps. Footers are looked at before any row is: a file that is no Parquet, or has other
columns, is refused by name. Format: `docs/formats/dump.md`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bkstore.counts import counted
from bkstore.errors import CorruptionError, InvalidArgument, UnsupportedLayout
from bkstore.files.opening import files_below
from bkstore.files.os_errors import readable
from bkstore.ids import MAX_ENTRY_ID, MAX_LOG_ID, Int64Array, LedgerId
from bkstore.index.api import Finding, IndexBatch
from bkstore.offline.reading.dump_file import DumpFile, check_footer
from bkstore.offline.reading.dump_folder import DumpFolder, no_dump
from bkstore.offline.reading.ledger_ranges import SORTED_BY
from bkstore.offline.reading.manifest import MANIFEST
from bkstore.offline.reading.open_dump import open_dump as read_dump
from bkstore.offline.reading.places import opened_parquet
from bkstore.offline.reading.read_tasks import Read, read_of
from bkstore.offline.reading.row_stream import read_rows as stored_rows
from bkstore.tables import ENTRIES, LEDGERS, Schema, require_pyarrow
from bkstore.tables.dump import DUMP_TABLES

if TYPE_CHECKING:
    import pyarrow as pa

ENTRY_COLUMNS = ("bookie", "dir_index", "scope_id", "ledger_id", "entry_id", "log_id", "position")
"""The columns of `entries` that a load reads; others are passed over."""

_LEDGER_COLUMNS = (
    "bookie",
    "scope_id",
    "ledger_id",
    "entries",
    "fenced",
    "limbo",
    "explicit_lac",
    "master_key",
    "layout",
)
_BATCH = 1 << 18


@dataclass(frozen=True)
class LoadSource:
    """One bookie of a dump: its files in order, and what is known of them by their footers.

    `files` are those of `entries`, with other bookies' rows too unless `pure`. `directories` are
    the ledger directories it is spread over: ledger L lies in number ``L mod n``; with
    index files there is one place, whatever `dir_index` says. `findings` tell what the dump
    itself lacks.
    """

    dump: str
    bookie: str
    layout: str
    files: tuple[DumpFile, ...]
    ledgers: tuple[str, ...]
    pure: bool
    directories: int = 1
    findings: tuple[Finding, ...] = field(default=())

    @property
    def rows(self) -> int:
        """Rows of all files together."""
        return sum(file.rows for file in self.files)

    @property
    def entries(self) -> tuple[str, ...]:
        """Where the files of `entries` lie."""
        return tuple(file.path for file in self.files)


def open_dump(
    dump: str | os.PathLike[str], bookie: str | None = None, directories: int | None = None
) -> LoadSource:
    """Return the bookie of that name, or the only one. Reads footers, and names of bookies.

    `dump` is a path or a URI (`docs/spark.md`), a URI only of a dump with its manifest.
    `directories` is for folders without one (default 1). Raises `InvalidArgument` where
    `dump` is none, or which bookie is meant cannot be told; `CorruptionError` for a file that
    is no Parquet or not as the manifest says; `UnsupportedLayout` for other columns.
    """
    require_pyarrow("load")
    folder = DumpFolder(dump)
    if folder.has(MANIFEST):
        if directories is not None:
            raise InvalidArgument(f"{folder}: its manifest says how many directories there are")
        return _by_manifest(folder, bookie)
    if folder.is_remote:
        raise folder.lacking(f"{MANIFEST}, without which only folders of this machine are loaded")
    return _by_files(Path(folder.place), bookie, directories or 1)


def _by_manifest(folder: DumpFolder, bookie: str | None) -> LoadSource:
    dump = read_dump(folder)
    by_name = {said["id"]: said for said in dump.manifest["bookies"]}
    name = _chosen(folder, list(by_name), bookie)
    if name in dump.unread:
        raise InvalidArgument(f"{folder}: {dump.unread[name]}")
    try:
        index = by_name[name]["directories"]["index"]
        layout, damage = by_name[name]["layout"], by_name[name]["damage"]
    except (KeyError, TypeError) as error:
        raise CorruptionError(folder.of(MANIFEST), None, f"lacks {error}") from None
    entries, ledgers = (
        tuple(file for file in dump.files[table] if file.bookie == name)
        for table in ("entries", "ledgers")
    )
    for file in (*entries, *ledgers):
        _footer(file.path, DUMP_TABLES[file.table], file.rows)
    findings: tuple[Finding, ...] = ()
    if damage:
        some = counted(damage, "finding")
        detail = f"{some} of damage: what bookie {name} could not read is not loaded"
        findings = (Finding("damage", detail, folder.of("findings")),)
    spread = len(index) if layout == "rocksdb" else 1
    paths = tuple(file.path for file in ledgers)
    return LoadSource(str(folder), name, layout, entries, paths, True, spread, findings)


def _by_files(dump: Path, bookie: str | None, directories: int) -> LoadSource:
    files: dict[str, list[Path]] = {}
    entries: list[DumpFile] = []
    for schema in (ENTRIES, LEDGERS):
        folder = dump / schema.name
        if not folder.is_dir():
            raise no_dump(dump, f"{MANIFEST} and no {schema.name}/")
        files[schema.name] = _parquet_files(folder)
        for path in files[schema.name]:
            rows = _footer(str(path), schema)
            if schema is ENTRIES:
                entries.append(DumpFile(str(path), schema.name, "", rows, False))
    names = {name for paths in files.values() for name in _distinct(paths, "bookie")}
    name = _chosen(dump, sorted(names), bookie)
    known = tuple(map(str, files["ledgers"]))
    source = LoadSource(str(dump), name, "idx", tuple(entries), known, names == {name}, directories)
    layouts = {str(row["layout"]) for row in read_ledgers(source)}
    if len(layouts) > 1:
        raise InvalidArgument(f"{dump}: bookie {name} is of several layouts: {sorted(layouts)}")
    layout = layouts.pop() if layouts else "idx"
    return LoadSource(**{**vars(source), "layout": layout})


def _parquet_files(folder: Path) -> list[Path]:
    """Return the Parquet files below; as readers do, without names that begin with _ or a dot."""
    with readable(folder):
        found = sorted(path for path in files_below(folder) if path.suffix == ".parquet")
    return [path for path in found if not any(p[0] in "_." for p in path.relative_to(folder).parts)]


def _chosen(dump: Path | DumpFolder, names: Sequence[str], asked: str | None) -> str:
    if asked is None and len(names) == 1:
        return names[0]
    listed = ", ".join(names) or "none"
    if asked is None:
        raise InvalidArgument(f"{dump}: which bookie? say --bookie NAME; it has {listed}")
    if asked not in names:
        raise InvalidArgument(f"{dump}: no bookie {asked!r} is in it; it has {listed}")
    return asked


# -- files


def _footer(path: str, schema: Schema, rows: int | None = None) -> int:
    """Return how many rows a file has; refuse it unless it has the columns that are read."""
    wanted = ENTRY_COLUMNS if schema is ENTRIES else _LEDGER_COLUMNS
    with opened_parquet(path) as file:
        check_footer(path, file, schema, wanted, rows)
        return int(file.metadata.num_rows)


def _batches(
    path: str | Path, columns: Sequence[str], validate: bool = False
) -> Iterator[pa.RecordBatch]:
    """Yield the file's rows; `validate` where texts are taken out, which may be no UTF-8."""
    with opened_parquet(str(path)) as file:
        for batch in file.iter_batches(_BATCH, columns=list(columns), use_threads=False):
            if validate:
                batch.validate(full=True)
            yield batch


def _distinct(paths: Sequence[Path], column: str) -> set[str]:
    found: set[str] = set()
    for path in paths:
        for batch in _batches(path, [column], validate=True):
            found.update(batch.column(0).unique().to_pylist())
    if None in found:
        raise UnsupportedLayout(f"{paths[0].parent}: null in column {column}")
    return found


def _mine(source: LoadSource, batch: pa.RecordBatch) -> pa.RecordBatch:
    if source.pure:
        return batch
    import pyarrow.compute as pc

    return batch.filter(pc.equal(batch.column("bookie"), source.bookie))


# -- rows


def read_ledgers(source: LoadSource) -> Iterator[dict[str, Any]]:
    """Yield the rows of `ledgers` of the bookie as dicts, in the order of the files."""
    for path in source.ledgers:
        for batch in _batches(path, _LEDGER_COLUMNS, validate=True):
            for row in _mine(source, batch).to_pylist():
                if None in (row["scope_id"], row["ledger_id"]):
                    raise CorruptionError(path, None, "a ledger's id is null")
                try:
                    row["name"] = LedgerId.from_signed(row["scope_id"], row["ledger_id"])
                except InvalidArgument as error:
                    raise CorruptionError(path, None, str(error)) from None
                yield row


def read_rows(source: LoadSource, files: Sequence[DumpFile] | None = None) -> Iterator[IndexBatch]:
    """Yield the bookie's rows of `entries` as the files have them, in bounded memory.

    Raises `CorruptionError` for rows that no index has: null or out of range; and for those that
    are not sorted as the manifest says, or outside the ledgers that it says.
    """
    for file in source.files if files is None else files:
        yield from read_part(source, read_of(file))


def read_part(source: LoadSource, read: Read) -> Iterator[IndexBatch]:
    """Yield the rows of a part of a file, checked as those of `read_rows`."""
    names = ENTRY_COLUMNS[1:] if source.pure else ENTRY_COLUMNS
    for batch in stored_rows(read, names, SORTED_BY["entries"]):
        yield _checked(source, read.path, _mine(source, batch))


def _checked(source: LoadSource, path: str, batch: pa.RecordBatch) -> IndexBatch:
    columns = {}
    for name in ENTRY_COLUMNS[1:]:
        column = batch.column(name)
        if column.null_count:
            raise CorruptionError(path, None, f"null in column {name}")
        columns[name] = column.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    place, scope, ledger, entry, log, position = columns.values()
    _refuse(path, "scope 0 has ledgers up to 2^63-1 only", (scope == 0) & (ledger < 0), columns)
    _refuse(path, f"entry ids are 0..{MAX_ENTRY_ID}", _beyond(entry, MAX_ENTRY_ID), columns)
    _refuse(path, f"log ids are 0..{MAX_LOG_ID}", _beyond(log, MAX_LOG_ID), columns)
    _refuse(path, "positions are 32 bits", _beyond(position, (1 << 32) - 1), columns)
    location = log << np.int64(32) | position
    _refuse(path, "log 0, position 0 is no location", location == 0, columns)
    if source.layout == "rocksdb":
        homes = ledger.view(np.uint64) % np.uint64(source.directories)
        reason = (
            f"with {counted(source.directories, 'directory', 'directories')} a ledger's place is "
            "its id modulo that (--directories says how many there are)"
        )
        _refuse(path, reason, homes != place.view(np.uint64), columns)
    return IndexBatch(place, scope, ledger, entry, location)


def _beyond(values: Int64Array, most: int) -> Any:
    return values.view(np.uint64) > np.uint64(most)  # negative ones are above too


def _refuse(path: str, rule: str, bad: Any, columns: dict[str, Int64Array]) -> None:
    if bad.any():
        at = int(np.flatnonzero(bad)[0])
        shown = ", ".join(f"{name} {int(values[at])}" for name, values in columns.items())
        raise CorruptionError(path, None, f"no row of an index ({rule}): {shown}")
