"""Leave out the records of a log whose digest does not match, like other damaged bytes.

One digest type and password are given for all ledgers. If no record of a known ledger in the log
matches, it probably has another type or password: its records are kept, with a finding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from bkstore.counts import format_count
from bkstore.formats.entry import Coder, RecordBatch, rows_of_ledgers
from bkstore.formats.entrylog import SIZE_FIELD_BYTES
from bkstore.ids import LedgerId
from bkstore.index.api import Finding, IndexBatch
from bkstore.offline.rewrite.salvaged_log import LogRecords, LostBytes
from bkstore.storage.directories.file_listing import LogFile
from bkstore.storage.entry_log.resynchronization import LogBytes

_WINDOW_BYTES = 4 << 20


def drop_digest_mismatches(
    log: LogFile,
    data: LogBytes,
    records: LogRecords,
    coder: Coder,
    is_known: Callable[[LedgerId], bool],
) -> list[Finding]:
    """Remove records with a wrong digest from `records`; return findings on ledgers kept anyway.

    Removed records in the index are added to `missing_rows`, their bytes to `lost_ranges`.
    `is_known` returns whether the bookie knows a ledger: records of any other are probably garbage.
    Memory: a window of the log, a byte a record. Cost: reading the log again, 100 ns a record.
    """
    is_mismatch = _find_mismatches(data, records, coder)
    findings = []
    for ledger_id, record_indexes in rows_of_ledgers(records.scope_id, records.ledger_id):
        # A ledger of which no record matches probably has another digest type or password: its
        # records are kept.
        if is_known(ledger_id) and is_mismatch[record_indexes].all():
            is_mismatch[record_indexes] = False
            findings.append(_other_digest_finding(log, ledger_id, record_indexes.size, coder))
    if is_mismatch.any():
        reason = f"the {coder.digest.name} digest of its record does not match"
        _drop_records(log, records, is_mismatch, reason)
    return findings


def _find_mismatches(data: LogBytes, records: LogRecords, coder: Coder) -> npt.NDArray[np.bool_]:
    """Return which records have a digest that does not match, reading window by window."""
    is_mismatch = np.zeros(records.position.size, np.bool_)
    for first, stop in _log_windows(records):
        positions, sizes = records.position[first:stop], records.size[first:stop]
        start, end = int(positions[0]), int((positions + sizes).max())
        window = data.read(start, end - start)
        batch = RecordBatch(records.entry_id[first:stop], window, positions - start, sizes)
        # `failed` has the indexes of records in the window.
        is_mismatch[[first + index for index in coder.decode_batch(batch).failed]] = True
    return is_mismatch


def _log_windows(records: LogRecords) -> Iterator[tuple[int, int]]:
    """Yield half-open ranges of record indexes: a window of the log each, at least one record."""
    # The highest end so far, as records of a damaged log may overlap.
    ends = np.maximum.accumulate(records.position + records.size)
    first = 0
    while first < ends.size:
        stop = int(np.searchsorted(ends, records.position[first] + _WINDOW_BYTES, "right"))
        yield first, max(stop, first + 1)
        first = max(stop, first + 1)


def _other_digest_finding(log: LogFile, ledger_id: LedgerId, count: int, coder: Coder) -> Finding:
    records = format_count(count, "record")
    detail = (
        f"ledger {ledger_id}: no digest of {records} matches {coder.digest.name} and the "
        "password: taken unverified"
    )
    return Finding("damage", detail, log.path, None, ledger_id)


def _drop_records(
    log: LogFile, records: LogRecords, is_mismatch: npt.NDArray[np.bool_], reason: str
) -> None:
    """Remove records from `records`, and note there what that loses: index rows and bytes."""
    # Rows of the old index that point at a dropped record have no record any more.
    indexed = is_mismatch & records.confirmed
    locations = (np.int64(log.log_id) << np.int64(32)) | records.position[indexed]
    dir_indexes = np.full(locations.size, log.dir_index, np.int64)
    ids = (records.scope_id[indexed], records.ledger_id[indexed], records.entry_id[indexed])
    new_missing = (dir_indexes, *ids, locations)
    # Append them to the columns of `missing_rows`.
    columns = zip(records.missing_rows, new_missing, strict=True)
    records.missing_rows = IndexBatch(*map(np.concatenate, columns))
    # The bytes of the dropped records, with their length prefixes, are lost.
    starts = records.position[is_mismatch] - SIZE_FIELD_BYTES
    sizes = records.size[is_mismatch] + SIZE_FIELD_BYTES
    records.lost_ranges += [
        LostBytes(offset, size, reason) for offset, size in zip(starts.tolist(), sizes.tolist())
    ]
    records.lost_ranges.sort()
    # Keep the rest; `damaged` has the log rewritten without the dropped records.
    is_kept = ~is_mismatch
    records.scope_id, records.ledger_id = records.scope_id[is_kept], records.ledger_id[is_kept]
    records.entry_id, records.position = records.entry_id[is_kept], records.position[is_kept]
    records.size, records.confirmed = records.size[is_kept], records.confirmed[is_kept]
    records.damaged = True
