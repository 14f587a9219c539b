"""The rows of each view of `bkstore rocks`. Damage becomes a finding of the database."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from bkstore.cli.rocksdb.database_choice import ChosenDatabase
from bkstore.errors import CorruptionError, UnsupportedLayout
from bkstore.ids import LedgerId
from bkstore.index.api import Finding
from bkstore.index.damage_runs import add_unreported
from bkstore.index.rocks.files.log_file import FramedLogReader
from bkstore.index.rocks.inspection.internal_rows import InternalRow, iterate_rows
from bkstore.index.rocks.inspection.key_meanings import decode_key
from bkstore.index.rocks.inspection.live_rows import read_live_rows
from bkstore.index.rocks.inspection.row_tables import (
    RowSource,
    make_file_row,
    make_row,
)
from bkstore.index.rocks.inspection.table_contents import (
    TableSummary,
    read_properties,
    read_table_rows,
    summarize_table,
)

_Row = tuple[Any, ...]
_LOG_SUFFIX = ".log"


class ViewOptions(NamedTuple):
    """Which rows are shown: those of a file ("" for all), of a ledger, with master keys or not."""

    file_name: str
    ledger: LedgerId | None
    show_keys: bool
    live: bool


def _file_rows(database: ChosenDatabase, _options: ViewOptions) -> Iterator[_Row]:
    """Yield a row per file; a table that cannot be read has no counts."""
    for file in database.files.files():
        counts: TableSummary | None = None
        if file.table is not None and file.size is not None:
            path = database.files.path / file.name
            try:
                counts = summarize_table(path, file.table.largest_sequence)
            except (CorruptionError, UnsupportedLayout) as error:
                _add_finding(database, Finding.of(error))
        yield make_file_row(database.name, database.dir_index, file, counts)


def _property_rows(database: ChosenDatabase, options: ViewOptions) -> Iterator[_Row]:
    """Yield the properties of the chosen table, or of all tables."""
    file_names = [options.file_name]
    if not options.file_name:
        file_names = [table.file_name for table in database.files.tables()]
    for file_name in file_names:
        path = database.files.path / file_name
        try:
            properties = read_properties(path, _largest_sequence(database, file_name))
        except (CorruptionError, UnsupportedLayout) as error:
            _add_finding(database, Finding.of(error))
            continue
        for name_and_value in properties:
            yield (database.name, database.dir_index, file_name, *name_and_value)


def _largest_sequence(database: ChosenDatabase, file_name: str) -> int | None:
    """Return a table's largest sequence number in the manifest, None if that does not list the
    table. In an ingested file it is the number of all rows, which have none of their own."""
    sequences = {table.file_name: table.largest_sequence for table in database.files.tables()}
    return sequences.get(file_name)


def _rows(database: ChosenDatabase, options: ViewOptions) -> Iterator[_Row]:
    """Yield the rows of the chosen file, a log or a table, or else the live rows of all files."""
    file_name = options.file_name
    if file_name.endswith(_LOG_SUFFIX):
        yield from _log_rows(database, options)
    elif file_name:
        path = database.files.path / file_name
        rows = read_table_rows(path, _largest_sequence(database, file_name))
        yield from _table_rows(database, file_name, rows, options)
    else:
        findings: list[Finding] = []
        rows = read_live_rows(database.files.path, findings, options.live, options.ledger)
        yield from _table_rows(database, None, rows, options)
        # Some of these may have been found when the database was opened.
        add_unreported(database.files.findings, findings)


def _log_rows(database: ChosenDatabase, options: ViewOptions) -> Iterator[_Row]:
    """Yield the rows of the needed logs, or of the one that was named."""
    if options.file_name:
        paths = [database.files.path / options.file_name]
    else:
        paths = database.files.logs()
    for path in paths:
        yield from _rows_of_log(database, path, options)


def _rows_of_log(database: ChosenDatabase, path: Path, options: ViewOptions) -> Iterator[_Row]:
    """Yield the rows of one log; a torn tail is a finding, but not while the bookie runs."""
    reader = FramedLogReader(path)
    yield from _table_rows(database, path.name, iterate_rows(reader.rows()), options)
    if reader.torn_offset is not None and not options.live:
        _add_finding(database, Finding("oddity", reader.torn_detail, str(path), reader.torn_offset))


def _table_rows(
    database: ChosenDatabase,
    file_name: str | None,
    rows: Iterable[InternalRow],
    options: ViewOptions,
) -> Iterator[_Row]:
    """Yield the chosen ledger's rows as rows of the table, up to damage."""
    source = RowSource(database.name, database.dir_index, file_name)
    try:
        for row in rows:
            if options.ledger in (None, decode_key(database.name, row.key).ledger):
                yield make_row(source, row, options.show_keys)
    except (CorruptionError, UnsupportedLayout) as error:
        _add_finding(database, Finding.of(error))


def _add_finding(database: ChosenDatabase, finding: Finding) -> None:
    """Report a finding with the database, unless it is reported already."""
    add_unreported(database.files.findings, [finding])


view_rows: Mapping[str, Callable[[ChosenDatabase, ViewOptions], Iterator[_Row]]] = {
    "--files": _file_rows,
    "--properties": _property_rows,
    "--rows": _rows,
    "--log": _log_rows,
}
"""By option of the command: the rows of one database."""
