"""Which ledgers entry logs have, as tables: by their ledgers maps, else by a scan."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bkstore.errors import BkstoreError, CorruptionError, UnsupportedLayout
from bkstore.files.opening import opened
from bkstore.files.os_errors import readable
from bkstore.formats.entrylog import LogMetadata, decode_header
from bkstore.index.api import Finding
from bkstore.offline.dump.plan import Piece
from bkstore.storage.directories.file_listing import LogFile
from bkstore.storage.entry_log.scan import read_log_metadata
from bkstore.tables import ENTRY_LOGS, LOG_LEDGERS, Table

_HEADER_FIELDS = 20


def log_tables(piece: Piece, findings: list[Finding]) -> Iterator[Table]:
    """Yield tables of `entry_logs` and `log_ledgers` for the logs of a piece, log by log.

    Cost: some reads for a log with a ledgers map, else a scan of it (200 ns a record).
    """
    for log in piece.logs:
        metadata: LogMetadata | None = None
        closed: bool | None = None
        try:
            with readable(log.path):
                closed = _is_closed(log)
                metadata, _ = read_log_metadata(log.path, log.log_id, findings)
        except BkstoreError as error:
            findings.append(Finding.of(error))
        yield _log_row(piece.bookie, log, closed, metadata)
        if metadata is not None and metadata.ledgers:
            yield _ledger_rows(piece.bookie, log, metadata)


def _is_closed(log: LogFile) -> bool | None:
    """Return whether the header says where a ledgers map is; None where it says nothing."""
    with opened(log.path) as file:
        data = file.read(_HEADER_FIELDS)
    try:
        header = decode_header(data)
    except (CorruptionError, UnsupportedLayout):  # the scan reports it
        return None if data else False
    return header.version > 0 and header.map_offset > 0


def _log_row(
    bookie_id: str, log: LogFile, closed: bool | None, metadata: LogMetadata | None
) -> Table:
    ledgers = None if metadata is None else len(metadata.ledgers)
    place = (bookie_id, log.dir_index, log.log_id, Path(log.path).name)
    return Table.from_rows(ENTRY_LOGS, [(*place, log.bytes, closed, ledgers)])


def _ledger_rows(bookie_id: str, log: LogFile, metadata: LogMetadata) -> Table:
    place = (bookie_id, log.dir_index, log.log_id)
    rows: list[tuple[Any, ...]] = [
        (*place, *name.signed, size) for name, size in sorted(metadata.ledgers.items())
    ]
    return Table.from_rows(LOG_LEDGERS, rows)
