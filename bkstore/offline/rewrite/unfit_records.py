"""Records of a log whose digest does not fit: they are left out, as other damaged bytes are.

A record does not say its digest's type, so one type and password are given for all ledgers. A
known ledger of which no record in the log fits has another type or password, as far as anyone can
tell: its records stay, and that is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from bkstore.counts import counted
from bkstore.formats.entry import Coder, RecordBatch, rows_of_ledgers
from bkstore.formats.entrylog import PREFIX
from bkstore.ids import LedgerId
from bkstore.index.api import Finding, IndexBatch
from bkstore.offline.rewrite.fresh_logs import LogRecords, LostBytes
from bkstore.storage.directories.file_listing import LogFile
from bkstore.storage.entry_log.resync import LogBytes

_WINDOW = 4 << 20


def leave_out_unfit(
    log: LogFile,
    data: LogBytes,
    found: LogRecords,
    coder: Coder,
    known: Callable[[LedgerId], bool],
) -> list[Finding]:
    """Take the records whose digest does not fit out of `found`; return what is told of the rest.

    Those that the index names become `missing`, their bytes `lost`. `known` says which ledgers the
    bookie has, whose records may be of another type. Memory: a window of the log, a byte a record.
    Cost: a second reading of the log, some 100 ns a record and its digest.
    """
    unfit = _unfit(data, found, coder)
    told = []
    for name, rows in rows_of_ledgers(found.scope_id, found.ledger_id):
        if known(name) and unfit[rows].all():
            unfit[rows] = False
            told.append(_another_type(log, name, rows.size, coder))
    if unfit.any():
        _leave_out(log, found, unfit, f"the {coder.digest.name} digest of its record does not fit")
    return told


def _unfit(data: LogBytes, found: LogRecords, coder: Coder) -> npt.NDArray[np.bool_]:
    unfit = np.zeros(found.position.size, np.bool_)
    for start, stop in _windows(found):
        begin = int(found.position[start])
        end = int((found.position[start:stop] + found.size[start:stop]).max())
        batch = RecordBatch(
            found.entry_id[start:stop],
            data.peek(begin, end - begin),
            found.position[start:stop] - begin,
            found.size[start:stop],
        )
        unfit[[start + at for at in coder.decode_batch(batch).failed]] = True
    return unfit


def _windows(found: LogRecords) -> Iterator[tuple[int, int]]:
    """Yield numbers of records, half open, that lie within a window; one at least."""
    ends = np.maximum.accumulate(found.position + found.size)
    start = 0
    while start < ends.size:
        stop = int(np.searchsorted(ends, found.position[start] + _WINDOW, "right"))
        yield start, max(stop, start + 1)
        start = max(stop, start + 1)


def _another_type(log: LogFile, name: LedgerId, count: int, coder: Coder) -> Finding:
    detail = (
        f"ledger {name}: no digest of {counted(count, 'record')} fits {coder.digest.name} and the "
        "password: taken as they are"
    )
    return Finding("damage", detail, log.path, None, name)


def _leave_out(log: LogFile, found: LogRecords, unfit: npt.NDArray[np.bool_], why: str) -> None:
    named = unfit & found.confirmed
    place = (np.int64(log.log_id) << np.int64(32)) | found.position[named]
    directory = np.full(place.size, log.dir_index, np.int64)
    rows = (directory, found.scope_id[named], found.ledger_id[named], found.entry_id[named], place)
    found.missing = IndexBatch(
        *(np.concatenate(both) for both in zip(found.missing, rows, strict=True))
    )
    starts, sizes = found.position[unfit] - PREFIX, found.size[unfit] + PREFIX
    found.lost += [LostBytes(at, size, why) for at, size in zip(starts.tolist(), sizes.tolist())]
    found.lost.sort()
    fits = ~unfit
    found.scope_id, found.ledger_id = found.scope_id[fits], found.ledger_id[fits]
    found.entry_id, found.position = found.entry_id[fits], found.position[fits]
    found.size, found.confirmed = found.size[fits], found.confirmed[fits]
    found.damaged = True
