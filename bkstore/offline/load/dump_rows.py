"""The input of a load: the `entries` and `ledgers` files of one bookie of a dump.

A manifest lists a dump's files. A folder without one is accepted if it has `entries/` and
`ledgers/` with Parquet files of the declared columns, as other programs derive them from dumps. A
file that is not Parquet, or has other columns, is refused before rows are read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bkstore.counts import format_count
from bkstore.errors import CorruptionError, InvalidArgument, UnsupportedLayout
from bkstore.files.opening import list_files
from bkstore.files.os_errors import convert_read_errors
from bkstore.ids import MAX_ENTRY_ID, MAX_LOG_ID, Int64Array, LedgerId
from bkstore.index.api import Finding, IndexBatch
from bkstore.offline.reading.dump_file import DumpFile, check_footer
from bkstore.offline.reading.dump_folder import DumpFolder, not_a_dump_error
from bkstore.offline.reading.file_locations import opened_parquet
from bkstore.offline.reading.ledger_ranges import SORTED_BY
from bkstore.offline.reading.manifest import MANIFEST
from bkstore.offline.reading.open_dump import open_dump as read_dump
from bkstore.offline.reading.read_tasks import FileRead, plan_read
from bkstore.offline.reading.row_stream import read_rows as stored_rows
from bkstore.tables import ENTRIES, LEDGERS, Schema, require_pyarrow
from bkstore.tables.dump import DUMP_TABLES

if TYPE_CHECKING:
    import pyarrow as pa

ENTRY_COLUMNS = ("bookie", "dir_index", "scope_id", "ledger_id", "entry_id", "log_id", "position")
"""The columns of `entries` that a load reads; others are ignored."""

_STATE_COLUMNS = ("fenced", "limbo", "explicit_lac", "master_key")
_LEDGER_COLUMNS = ("bookie", "scope_id", "ledger_id", "entries", *_STATE_COLUMNS, "layout")
_BATCH_ROWS = 1 << 18


@dataclass(frozen=True)
class LoadSource:
    """One bookie of a dump: its files in order, and facts from their footers.

    `files` are those of `entries`, with other bookies' rows too unless `has_one_bookie`.
    `directories` is the number n of ledger directories: ledger L is in number ``L mod n``. It is 1
    for index files, whatever `dir_index` is. `findings` report what the dump itself lacks.
    """

    dump: str
    bookie: str
    layout: str
    files: tuple[DumpFile, ...]
    ledgers: tuple[str, ...]
    has_one_bookie: bool
    directories: int = 1
    findings: tuple[Finding, ...] = field(default=())

    @property
    def rows(self) -> int:
        """The number of rows in all files."""
        return sum(file.rows for file in self.files)

    @property
    def entries(self) -> tuple[str, ...]:
        """The locations of the files of `entries`."""
        return tuple(file.path for file in self.files)


def open_load_source(
    dump: str | os.PathLike[str], bookie: str | None = None, directories: int | None = None
) -> LoadSource:
    """Return what to load: the bookie with the id `bookie`, or the only one. Reads footers, and of
    a folder without a manifest the columns of bookies and layouts.

    `dump` is a path, or the URI (`docs/spark.md`) of a dump with a manifest. `directories` is for
    folders without a manifest (default 1). Raises `InvalidArgument` if `dump` is not a dump or
    `bookie` does not select one bookie, `CorruptionError` for a file that is not Parquet or
    contradicts the manifest, `UnsupportedLayout` for other columns.
    """
    require_pyarrow("load")
    folder = DumpFolder(dump)
    if folder.has(MANIFEST):
        if directories is not None:
            raise InvalidArgument(f"{folder}: the manifest states the number of directories")
        return _open_with_manifest(folder, bookie)
    if folder.is_remote:
        raise folder.missing_file_error(f"{MANIFEST}; without it only local folders can be loaded")
    return _open_folder(Path(folder.location), bookie, directories or 1)


def _open_with_manifest(folder: DumpFolder, bookie: str | None) -> LoadSource:
    """Return the source of one bookie of a dump; its files have the columns and row counts that
    the manifest states."""
    dump = read_dump(folder)
    bookies = {entry["id"]: entry for entry in dump.manifest["bookies"]}
    bookie_id = _choose_bookie(folder, list(bookies), bookie)
    if bookie_id in dump.unread_bookies:
        raise InvalidArgument(f"{folder}: {dump.unread_bookies[bookie_id]}")
    try:
        index_dirs = bookies[bookie_id]["directories"]["index"]
        layout, damage = bookies[bookie_id]["layout"], bookies[bookie_id]["damage"]
    except (KeyError, TypeError) as error:
        raise CorruptionError(folder.locate(MANIFEST), None, f"lacks {error}") from None
    entries_files, ledgers_files = (
        tuple(file for file in dump.files[table] if file.bookie == bookie_id)
        for table in ("entries", "ledgers")
    )
    for file in (*entries_files, *ledgers_files):
        _check_footer(file.path, DUMP_TABLES[file.table], file.rows)
    # What the dump could not read, the load cannot restore: say so.
    findings: tuple[Finding, ...] = ()
    if damage:
        finding_count = format_count(damage, "finding")
        detail = f"{finding_count} of damage: what bookie {bookie_id} could not read is not loaded"
        findings = (Finding("damage", detail, folder.locate("findings")),)
    # Of several databases each has its own ledgers (L mod n); index files may be anywhere.
    directories = len(index_dirs) if layout == "rocksdb" else 1
    ledgers_paths = tuple(file.path for file in ledgers_files)
    return LoadSource(
        str(folder), bookie_id, layout, entries_files, ledgers_paths, True, directories, findings
    )


def _open_folder(dump: Path, bookie: str | None, directories: int) -> LoadSource:
    """Return the source of a folder without a manifest. Which bookies it has, and their layouts, is
    found by reading columns of all files."""
    paths: dict[str, list[Path]] = {}
    row_counts: dict[Path, int] = {}
    for schema in (ENTRIES, LEDGERS):
        folder = dump / schema.name
        if not folder.is_dir():
            raise not_a_dump_error(dump, f"{MANIFEST} and no {schema.name}/")
        paths[schema.name] = _parquet_files(folder)
        row_counts |= {path: _check_footer(str(path), schema) for path in paths[schema.name]}
    # The files may have rows of several bookies: those of the others are skipped by reading.
    ids = {value for listed in paths.values() for value in _distinct_values(listed, "bookie")}
    chosen = _choose_bookie(dump, sorted(ids), bookie)
    files = [
        DumpFile(str(path), "entries", bookie="", rows=row_counts[path], has_one_bookie=False)
        for path in paths["entries"]
    ]
    ledgers, has_one = tuple(map(str, paths["ledgers"])), ids == {chosen}
    # The rows of `ledgers` have the layout, which is "idx" if there are none.
    source = LoadSource(str(dump), chosen, "idx", tuple(files), ledgers, has_one, directories)
    layouts = {str(row["layout"]) for row in read_ledgers(source)}
    if len(layouts) > 1:
        raise InvalidArgument(f"{dump}: bookie {chosen} is of several layouts: {sorted(layouts)}")
    return replace(source, layout=layouts.pop()) if layouts else source


def _parquet_files(folder: Path) -> list[Path]:
    """Return the Parquet files below; names that begin with _ or a dot are skipped."""
    with convert_read_errors(folder):
        paths = sorted(path for path in list_files(folder) if path.suffix == ".parquet")
    return [path for path in paths if not any(p[0] in "_." for p in path.relative_to(folder).parts)]


def _choose_bookie(
    dump: Path | DumpFolder, bookie_ids: Sequence[str], requested_id: str | None
) -> str:
    """Return the bookie to load: the requested one, or the only one."""
    if requested_id is None and len(bookie_ids) == 1:
        return bookie_ids[0]
    choices = ", ".join(bookie_ids) or "none"
    if requested_id is None:
        raise InvalidArgument(f"{dump}: choose a bookie by --bookie NAME; it has {choices}")
    if requested_id not in bookie_ids:
        raise InvalidArgument(f"{dump}: has no bookie {requested_id!r}; it has {choices}")
    return requested_id


# -- files


def _check_footer(path: str, schema: Schema, rows: int | None = None) -> int:
    """Return the number of rows of a file; raise if columns that are read are missing."""
    columns = ENTRY_COLUMNS if schema is ENTRIES else _LEDGER_COLUMNS
    with opened_parquet(path) as file:
        check_footer(path, file, schema, columns, rows)
        return int(file.metadata.num_rows)


def _read_batches(
    path: str | Path, columns: Sequence[str], validate: bool = False
) -> Iterator[pa.RecordBatch]:
    """Yield the file's rows. With `validate`, invalid text (not UTF-8) raises here, not where it is
    converted."""
    with opened_parquet(str(path)) as file:
        for batch in file.iter_batches(_BATCH_ROWS, columns=list(columns), use_threads=False):
            if validate:
                batch.validate(full=True)
            yield batch


def _distinct_values(paths: Sequence[Path], column: str) -> set[str]:
    """Return the values of a column in several files; raises `UnsupportedLayout` for null."""
    values: set[str] = set()
    for path in paths:
        for batch in _read_batches(path, [column], validate=True):
            values.update(batch.column(0).unique().to_pylist())
    if None in values:
        raise UnsupportedLayout(f"{paths[0].parent}: null in column {column}")
    return values


def _select_bookie(source: LoadSource, batch: pa.RecordBatch) -> pa.RecordBatch:
    if source.has_one_bookie:
        return batch
    import pyarrow.compute as pc

    return batch.filter(pc.equal(batch.column("bookie"), source.bookie))


# -- rows


def read_ledgers(source: LoadSource) -> Iterator[dict[str, Any]]:
    """Yield the bookie's rows of `ledgers` as dicts, with its `LedgerId` as ``name``."""
    for path in source.ledgers:
        for batch in _read_batches(path, _LEDGER_COLUMNS, validate=True):
            for row in _select_bookie(source, batch).to_pylist():
                if None in (row["scope_id"], row["ledger_id"]):
                    raise CorruptionError(path, None, "a ledger's id is null")
                try:
                    row["name"] = LedgerId.from_signed(row["scope_id"], row["ledger_id"])
                except InvalidArgument as error:
                    raise CorruptionError(path, None, str(error)) from None
                yield row


def read_entry_rows(
    source: LoadSource, files: Sequence[DumpFile] | None = None
) -> Iterator[IndexBatch]:
    """Yield the bookie's rows of `entries` in the order of the files, in bounded memory.

    Raises `CorruptionError` for null or out-of-range values, and rows that contradict the manifest.
    """
    for file in source.files if files is None else files:
        yield from read_file_part(source, plan_read(file))


def read_file_part(source: LoadSource, read: FileRead) -> Iterator[IndexBatch]:
    """Yield the rows of a part of a file, checked like those of `read_entry_rows`."""
    columns = ENTRY_COLUMNS[1:] if source.has_one_bookie else ENTRY_COLUMNS
    for batch in stored_rows(read, columns, SORTED_BY["entries"]):
        yield _check_rows(source, read.path, _select_bookie(source, batch))


def _check_rows(source: LoadSource, path: str, batch: pa.RecordBatch) -> IndexBatch:
    """Return a batch of a file as index rows; raises `CorruptionError` for the first row that an
    index cannot have."""
    columns = {}
    for column_name in ENTRY_COLUMNS[1:]:  # all but the bookie
        column = batch.column(column_name)
        if column.null_count:
            raise CorruptionError(path, None, f"null in column {column_name}")
        columns[column_name] = column.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    dir_index, scope, ledger, entry, log_id, position = columns.values()  # as `ENTRY_COLUMNS`
    location = log_id << np.int64(32) | position
    for rule, is_bad in (
        ("ledger ids in scope 0 are at most 2^63-1", (scope == 0) & (ledger < 0)),
        (f"entry ids are 0..{MAX_ENTRY_ID}", _exceeds_unsigned(entry, MAX_ENTRY_ID)),
        (f"log ids are 0..{MAX_LOG_ID}", _exceeds_unsigned(log_id, MAX_LOG_ID)),
        ("positions are 32 bits", _exceeds_unsigned(position, (1 << 32) - 1)),
        ("log 0, position 0 is not a location", location == 0),
    ):
        _refuse_bad_row(path, rule, is_bad, columns)
    if source.layout == "rocksdb":  # ledger L is in directory L mod n
        home_dirs = ledger.view(np.uint64) % np.uint64(source.directories)
        count = format_count(source.directories, "directory", "directories")
        modulo = "the one at its id modulo that (--directories sets their number)"
        reason = f"with {count} a ledger belongs to {modulo}"
        _refuse_bad_row(path, reason, home_dirs != dir_index.view(np.uint64), columns)
    return IndexBatch(dir_index, scope, ledger, entry, location)


def _exceeds_unsigned(values: Int64Array, limit: int) -> Any:
    return values.view(np.uint64) > np.uint64(limit)  # negative ones are above too


def _refuse_bad_row(path: str, rule: str, is_bad: Any, columns: dict[str, Int64Array]) -> None:
    """Raise `CorruptionError` that shows the first bad row, if there is any."""
    if is_bad.any():
        row = int(np.flatnonzero(is_bad)[0])
        description = ", ".join(f"{name} {int(values[row])}" for name, values in columns.items())
        raise CorruptionError(path, None, f"not a row of an index ({rule}): {description}")
