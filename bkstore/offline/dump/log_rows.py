"""Tables of the entry logs and their ledgers, and findings of logs that are gone. A closed log ends
with a ledgers map, the bytes that each ledger has in it; a log without one is scanned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bkstore.availability import Availability
from bkstore.errors import BkstoreError, CorruptionError, UnsupportedLayout
from bkstore.files.opening import open_for_reading
from bkstore.files.os_errors import convert_read_errors
from bkstore.formats.entrylog import LogMetadata, decode_header
from bkstore.index.api import Finding
from bkstore.offline.dump.plan import DumpPiece
from bkstore.storage.directories.file_listing import LogFile
from bkstore.storage.entry_log.scan import read_log_metadata
from bkstore.tables import ENTRY_LOGS, LOG_LEDGERS, Table

_HEADER_FIELD_BYTES = 20


def log_tables(piece: DumpPiece, findings: list[Finding]) -> Iterator[Table]:
    """Yield a table `entry_logs` for each log of the piece, and a table `log_ledgers` if it has
    ledgers. A log without a ledgers map is scanned, 200 ns a record; damage is added to `findings`,
    and leaves the values null that it hides."""
    for log in piece.logs:
        metadata: LogMetadata | None = None
        closed: bool | None = None
        try:
            with convert_read_errors(log.path):
                closed = _is_closed(log)
                metadata, _ = read_log_metadata(log.path, log.log_id, findings)
        except BkstoreError as error:
            findings.append(Finding.of(error))
        yield _log_table(piece.bookie_id, log, closed, metadata)
        if metadata is not None and metadata.ledgers:
            yield _log_ledgers_table(piece.bookie_id, log, metadata)


def find_missing_logs(piece: DumpPiece, log_ids: Sequence[Sequence[int]]) -> list[Finding]:
    """Return a finding for each entry log that the piece's locations name, but that is in no
    directory; `log_ids` are the named logs, as inclusive ranges.

    There are no findings if the piece has no logs at all, as in a copy of the index alone; for a
    running bookie, which removes logs after a compaction and creates new ones; and if lengths are
    read from the logs, as the entries without a length are findings then.
    """
    if not piece.logs or piece.live or piece.with_lengths:
        return []
    logs_here = Availability.from_entries([log.log_id for log in piece.logs])
    named_logs = Availability.from_ranges([(first, last) for first, last in log_ids])
    detail = "no such entry log, but the index has locations in it"
    return [Finding("damage", detail, f"{log_id:x}.log") for log_id in named_logs - logs_here]


def _is_closed(log: LogFile) -> bool | None:
    """Return whether the header locates a ledgers map, None if the header is damaged."""
    with open_for_reading(log.path) as file:
        header_bytes = file.read(_HEADER_FIELD_BYTES)
    try:
        header = decode_header(header_bytes)
    except (CorruptionError, UnsupportedLayout):  # the scan reports it
        return None if header_bytes else False  # an empty file is a log that was just created
    return header.version > 0 and header.map_offset > 0


def _log_table(
    bookie_id: str, log: LogFile, is_closed: bool | None, metadata: LogMetadata | None
) -> Table:
    ledger_count = None if metadata is None else len(metadata.ledgers)
    log_key = (bookie_id, log.dir_index, log.log_id, Path(log.path).name)
    return Table.from_rows(ENTRY_LOGS, [(*log_key, log.bytes, is_closed, ledger_count)])


def _log_ledgers_table(bookie_id: str, log: LogFile, metadata: LogMetadata) -> Table:
    log_key = (bookie_id, log.dir_index, log.log_id)
    rows: list[tuple[Any, ...]] = [
        (*log_key, *ledger_id.signed, size) for ledger_id, size in sorted(metadata.ledgers.items())
    ]
    return Table.from_rows(LOG_LEDGERS, rows)
