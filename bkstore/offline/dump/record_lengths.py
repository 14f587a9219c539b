"""How long the records are that index rows point at: read from the entry logs, in bulk.

A location points 4 bytes behind the record's size. Rows are taken log by log in the order of
positions; records near each other come with one read. What is believed is checked as a bookie
checks it: size, ledger and entry id must fit, else the length is not known.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from bkstore.counts import counted
from bkstore.errors import BkstoreError, SystemRefused
from bkstore.files.os_errors import unreadable
from bkstore.formats.entry import V1_HEADER, V2_HEADER, record_ids
from bkstore.formats.entrylog import HEADER_SIZE, PREFIX
from bkstore.formats.syntax.framing import words_at
from bkstore.ids import Int64Array, LedgerId, log_ids, positions
from bkstore.index.api import Finding, IndexBatch
from bkstore.index.damage_runs import DamageRuns
from bkstore.storage.directories.file_listing import LogFile
from bkstore.storage.entry_log.reader import OpenFile

_GAP = 16384
"""From one record to the next: up to that, one read for both is cheaper than two."""

_WINDOW = 4 << 20
_OPEN_LOGS = 64
_MOST_LEDGERS = 1000


class RecordLengths:
    """Lengths of the records in the given logs, and what was wrong with some.

    Memory: a window of 4 MiB, and 64 open files. Cost: one read for records that lie within
    16 KiB of each other, one each for those that do not.
    """

    def __init__(self, logs: Iterable[LogFile]) -> None:
        self._paths = {(log.dir_index, log.log_id): log.path for log in reversed(list(logs))}
        self._open: dict[str, OpenFile] = {}
        self._whys: dict[tuple[str, str], int] = {}
        self._found: list[Finding] = []
        self._runs = DamageRuns(self._found, most=1)
        self._told: dict[int, tuple[int, LedgerId]] = {}
        self._more: dict[int, list[Any]] = {}

    def of(self, rows: IndexBatch) -> np.ma.MaskedArray[Any, Any]:
        """Return the length of each row's record, masked where it is not known."""
        lengths = np.zeros(rows.entry_id.size, np.int64)
        whys = np.zeros(rows.entry_id.size, np.int64)
        order = np.lexsort((rows.location, rows.dir_index))
        logs = log_ids(rows.location)[order]
        numbers = rows.dir_index[order]
        cuts = np.flatnonzero((np.diff(logs) != 0) | (np.diff(numbers) != 0)) + 1
        for part in np.split(order, cuts):
            if part.size:
                own = IndexBatch(*(column[part] for column in rows))
                lengths[part], whys[part] = self._in_log(own)
        self._tell(rows, whys)
        return np.ma.masked_array(lengths, lengths == 0)

    def findings(self) -> list[Finding]:
        """Return what was wrong: a finding for each log, reason and ledger.

        Of a reason that many ledgers share the first thousand are told apart.
        """
        said = {number: why for why, number in self._whys.items()}
        more = [
            Finding(
                "damage",
                f"{counted(count, 'entry', 'entries')} of more ledgers, from {ledger} on: {reason}",
                path,
            )
            for why, (count, ledger) in self._more.items()
            for path, reason in [said[why]]
        ]
        return self._found + more

    def _tell(self, rows: IndexBatch, whys: Int64Array) -> None:
        """Tell of the rows without a length; `whys` are numbers of reasons, 0 = none."""
        bad = np.flatnonzero(whys)
        if not bad.size:
            return
        reasons = {number: why for why, number in self._whys.items()}
        whys, rows = whys[bad], IndexBatch(*(column[bad] for column in rows))
        at = 0
        for ledger, entries, locations in rows.by_ledger():
            own = whys[at : at + entries.size]
            at += entries.size
            for why in np.unique(own).tolist():
                chosen = entries[own == why]
                if self._is_one_more(why, ledger, chosen.size):
                    continue
                places = positions(locations[own == why])
                path, reason = reasons[why]
                damage = Finding("damage", reason, path, int(places[0]), ledger)
                self._runs.add(damage, chosen, int(places[-1]))

    def _is_one_more(self, why: int, ledger: LedgerId, entries: int) -> bool:
        """Count the ledgers of a reason; True if this one is no longer told of by itself."""
        count, last = self._told.get(why, (0, None))
        count += ledger != last
        self._told[why] = count, ledger
        if count <= _MOST_LEDGERS:
            return False
        self._more.setdefault(why, [0, ledger])[0] += entries
        return True

    def _why(self, path: str, reason: str) -> int:
        """Return the number that stands for a reason of a log."""
        return self._whys.setdefault((path, f"no length: {reason}"), len(self._whys) + 1)

    def _in_log(self, rows: IndexBatch) -> tuple[Int64Array, Int64Array]:
        """Return the lengths of rows of one log, in ascending positions, and why they are 0."""
        lengths = np.zeros(rows.entry_id.size, np.int64)
        whys = np.zeros(lengths.size, np.int64)
        number, log_id = int(rows.dir_index[0]), int(log_ids(rows.location[:1])[0])
        path = self._paths.get((number, log_id))
        if path is None:
            whys[:] = self._why(f"{log_id:x}.log", "no such entry log")
            return lengths, whys
        try:
            file = self._file(path)
            size = os.fstat(file.fd).st_size
            places = positions(rows.location)
            inside = (places >= HEADER_SIZE + PREFIX) & (places + V1_HEADER <= size)
            if not inside.all():
                whys[~inside] = self._why(
                    path, f"location points out of the log ({counted(size, 'byte')})"
                )
            here = np.flatnonzero(inside)
            for part, data, offsets in _read(file.fd, places, here):
                own = IndexBatch(*(column[part] for column in rows))
                lengths[part] = found = _sizes(data, offsets, own, size - places[part])
                if not found.all():
                    why = self._why(path, "the record is not the entry, or is cut")
                    whys[part[found == 0]] = why
        except OSError as error:
            unread = Finding.of(unreadable(error, path))
            whys[lengths == 0] = self._why(path, unread.detail.removeprefix(f"{path}: "))
        except SystemRefused:
            raise
        except BkstoreError as error:
            whys[lengths == 0] = self._why(path, str(error).removeprefix(f"{path}: "))
        return lengths, whys

    def _file(self, path: str) -> OpenFile:
        file = self._open.get(path)
        if file is None:
            file = self._open[path] = OpenFile(path)
            while len(self._open) > _OPEN_LOGS:
                self._open.pop(next(iter(self._open)))
        return file


def _sizes(data: Any, offsets: Int64Array, rows: IndexBatch, left: Int64Array) -> Int64Array:
    """Return the sizes of the records at `offsets`, 0 where one is not the row's."""
    sizes: Int64Array = words_at(data, ">i4")[offsets - PREFIX].astype(np.int64)
    scopes, ledgers, entries = record_ids(data, offsets)
    same = (scopes == rows.scope_id) & (ledgers == rows.ledger_id) & (entries == rows.entry_id)
    least = np.where(rows.scope_id == 0, V1_HEADER, V2_HEADER)
    return np.where(same & (sizes >= least) & (sizes <= left), sizes, 0)


def _read(
    fd: int, places: Int64Array, here: Int64Array
) -> Iterator[tuple[Int64Array, Any, Int64Array]]:
    """Yield (row numbers, bytes, offsets of their records in them) of the rows `here`."""
    found = places[here]
    if not found.size:
        return
    far = (np.diff(found) > _GAP) | (np.diff(found // _WINDOW) != 0)
    starts = np.concatenate(([0], np.flatnonzero(far) + 1))
    stops = np.append(starts[1:], found.size)
    begins, ends = found[starts] - PREFIX, found[stops - 1] + V2_HEADER
    spans = ends - begins
    batches = (np.cumsum(spans) - spans) // _WINDOW
    for group in np.split(np.arange(starts.size), np.flatnonzero(np.diff(batches)) + 1):
        pairs = zip(begins[group].tolist(), spans[group].tolist())
        # The last record may end before what is read for its header: zeros stand for that.
        data = b"".join([os.pread(fd, span, at).ljust(span, b"\0") for at, span in pairs])
        bases = np.cumsum(spans[group]) - spans[group] - begins[group]
        lo, hi = int(starts[group[0]]), int(stops[group[-1]])
        offsets = found[lo:hi] + np.repeat(bases, stops[group] - starts[group])
        yield here[lo:hi], np.frombuffer(data, np.uint8), offsets
