"""Do the entry logs reach as far as the index points into them?

One pass over the index, of which the highest location of each log is kept; then a look at the
size of each log, and at four bytes of it. A log that lost its end, or is gone, is found without
reading the others.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

import numpy as np

from bkstore.counts import counted
from bkstore.errors import BkstoreError
from bkstore.files.opening import open_regular
from bkstore.files.os_errors import readable
from bkstore.formats.entry import V1_HEADER
from bkstore.formats.syntax.framing import PREFIX
from bkstore.ids import Int64Array, LedgerId, log_ids, positions
from bkstore.index.api import Finding, IndexBatch
from bkstore.index.damage_runs import add_unreported
from bkstore.storage.directories.file_listing import LogFile
from bkstore.storage.read_only.bookie_dir import BookieDir

_Place = tuple[int, int]  # directory number, log id


@dataclass(slots=True)
class _Reach:
    """How far the index points into a log: the highest location, and whose it is.

    `behind` counts the locations behind the log's end, of `ledgers`.
    """

    position: int = -1
    ledger: LedgerId | None = None
    entry: int = 0
    behind: int = 0
    ledgers: set[LedgerId] = field(default_factory=set)


def check_log_ends(bookie: BookieDir, findings: list[Finding]) -> int:
    """Return how many rows the index has; add a finding for each log that ends before one.

    So is one for each log that the index points into and that is not here, and one for damage
    that the pass meets. Cost: a pass over the index (0.1 to 0.3 us a row) and a read a log.
    Memory: a scan batch, a few words a log, and the ledgers of logs that are short.
    """
    logs = {(log.dir_index, log.log_id): log for log in reversed(bookie.entry_logs)}
    reaches: dict[_Place, _Reach] = {}
    rows = 0
    met: list[Finding] = []
    for batch in bookie.scan(findings=met):
        rows += batch.entry_id.size
        for part in _by_log(batch):
            place = int(part.dir_index[0]), int(log_ids(part.location[:1])[0])
            _note(reaches.setdefault(place, _Reach()), part, logs.get(place))
    add_unreported(findings, met)
    for place in sorted(reaches):
        found = _finding(reaches[place], logs.get(place), place[1])
        if found is not None:
            findings.append(found)
    return rows


def _by_log(rows: IndexBatch) -> list[IndexBatch]:
    """Return the rows of each log and directory, each log once."""
    logs, numbers = log_ids(rows.location), rows.dir_index
    if (logs == logs[0]).all() and (numbers == numbers[0]).all():
        return [rows]
    order = np.lexsort((logs, numbers))
    cuts = np.flatnonzero((np.diff(logs[order]) != 0) | (np.diff(numbers[order]) != 0)) + 1
    return [IndexBatch(*(column[part] for column in rows)) for part in np.split(order, cuts)]


def _note(reach: _Reach, rows: IndexBatch, log: LogFile | None) -> None:
    places = positions(rows.location)
    at = int(np.argmax(places))
    if int(places[at]) > reach.position:
        reach.position, reach.entry = int(places[at]), int(rows.entry_id[at])
        reach.ledger = _ledger(rows, at)
    behind = np.flatnonzero(places >= (0 if log is None else log.bytes))
    if behind.size:
        reach.behind += behind.size
        reach.ledgers.update(_ledgers(rows, behind))


def _ledger(rows: IndexBatch, at: int) -> LedgerId:
    return LedgerId.from_signed(int(rows.scope_id[at]), int(rows.ledger_id[at]))


def _ledgers(rows: IndexBatch, chosen: Int64Array) -> set[LedgerId]:
    pairs = np.unique(np.stack((rows.scope_id[chosen], rows.ledger_id[chosen])), axis=1)
    return {LedgerId.from_signed(scope, ledger) for scope, ledger in pairs.T.tolist()}


def _finding(reach: _Reach, log: LogFile | None, log_id: int) -> Finding | None:
    """Return what is wrong with a log, None if it holds all that the index points at."""
    whose = f"entry {reach.entry} of ledger {reach.ledger}"
    ledgers = counted(len(reach.ledgers), "ledger")
    lost = counted(reach.behind, f"location of {ledgers} is", f"locations of {ledgers} are")
    if log is None:
        detail = f"no such entry log, but {lost} in it, the last one {whose} at"
        return Finding("damage", f"{detail} {reach.position}", f"{log_id:x}.log")
    try:
        size, end = _size_and_end(log.path, reach.position)
    except BkstoreError as error:
        return Finding.of(error)
    if reach.position >= size:  # of a log that grew meanwhile the new size counts
        detail = f"the log ends at {size}, but {lost} behind that, the last one {whose} at"
        return Finding("damage", f"{detail} {reach.position}", log.path, size)
    if end > size:
        detail = f"the log ends at {size}, inside the record of {whose}, which begins here"
        return Finding("damage", detail, log.path, reach.position)
    return None


def _size_and_end(path: str, position: int) -> tuple[int, int]:
    """Return a log's size, and where the record at `position` ends by the size before it."""
    with readable(path):
        fd = open_regular(path)
        try:
            size = os.fstat(fd).st_size
            frame = os.pread(fd, PREFIX, max(position - PREFIX, 0))
        finally:
            os.close(fd)
    stated = int.from_bytes(frame, "big", signed=True)
    return size, position + max(stated, V1_HEADER)
