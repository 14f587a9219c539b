"""Salvage: what can be read out of damaged entry logs, as a bookie, and an account of the rest.

A log without damage goes over as it is. Of a damaged one a fresh log is written under its id, with
every record that a scan or the old index finds. All ledgers with a record are made, unless it is
asked otherwise: a damaged index cannot tell a deleted ledger from one that it lost. Of several
copies of an entry the one that the old index names wins, where its record is there; else the last
in log order.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from bkstore.arguments import truth
from bkstore.availability import Availability
from bkstore.errors import BkstoreError, DirectoryInUse, InvalidArgument
from bkstore.files.disk_changes import OS_FILES, Files
from bkstore.files.os_errors import writing
from bkstore.formats.entry import Coder, rows_of_ledgers
from bkstore.formats.entrylog import log_name
from bkstore.ids import Int64Array, LedgerId, log_ids
from bkstore.index.api import EntryIndex, Finding, IndexBatch
from bkstore.index.damage_runs import add_unreported
from bkstore.offline.rewrite.frame import (
    AS_IT_LIES,
    Opening,
    Rewrite,
    RewriteProgress,
    RewriteResult,
)
from bkstore.offline.rewrite.fresh_logs import (
    LogRecords,
    add_hidden_records,
    fresh_positions,
    read_records,
    write_fresh,
)
from bkstore.offline.rewrite.known_states import known_ledgers
from bkstore.offline.rewrite.log_names import LogNames, in_log_order
from bkstore.offline.rewrite.rebuild import Choice, old_flags, tell_ledgers
from bkstore.offline.rewrite.unfit_records import leave_out_unfit
from bkstore.offline.spilled_rows.rows_by_key import RowsByKey
from bkstore.offline.spilled_rows.rows_by_log import RowsByLog
from bkstore.storage.directories.file_listing import LogFile
from bkstore.storage.directories.layout import Layout
from bkstore.storage.entry_log.resync import LogBytes


@dataclass(frozen=True, slots=True)
class Loss:
    """What a salvage could not save.

    kind "bytes": `bytes` of `file` from `offset` on hold nothing that can be read. kind "entries":
    `entries` of `ledger` from `first_entry` to `last_entry`, which the old index knew, are in no
    log; `file` is the log that it named, `offset` where the first of them lay.
    """

    kind: Literal["bytes", "entries"]
    file: str
    offset: int
    detail: str
    bytes: int | None = None
    ledger: LedgerId | None = None
    first_entry: int | None = None
    last_entry: int | None = None
    entries: int | None = None


@dataclass
class SalvageResult:
    """What a salvage made, and lost: `fresh` logs were written anew, the others copied.

    `hidden` counts records that only the old index found. `findings` of `made` tell what the scans
    met, in runs; `losses` are all there are.
    """

    made: RewriteResult
    losses: list[Loss]
    fresh: int = 0
    hidden: int = 0

    @property
    def lost_bytes(self) -> int:
        """Bytes of entry logs that hold nothing that can be read."""
        return sum(loss.bytes or 0 for loss in self.losses)

    @property
    def lost_entries(self) -> int:
        """Entries that the old index knew and that are lost."""
        return sum(loss.entries or 0 for loss in self.losses)


def salvage(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    to: Layout | None = None,
    progress: Callable[[RewriteProgress], None] | None = None,
    *,
    known_only: bool = False,
    digest_type: str | None = None,
    password: bytes | str | None = None,
    link: bool = False,
    opening: Opening = AS_IT_LIES,
    files: Files = OS_FILES,
) -> SalvageResult:
    """Make `target`, new or an empty folder, a bookie of all that can be read out of `source`.

    `to` is the layout of its index, the source's by default. Every record with a whole frame is
    taken, found by a scan or named by the old index; with a `digest_type` (and `password`) only
    those whose digest fits, if any of their ledger does in the same log (`leave_out_unfit`). With
    `known_only` ledgers that the bookie does not know are left out. States as `rebuild_index`
    makes them; the index is compared with the records taken. Logs without damage, journals, marks
    and cookies are copies (`link` makes hard links of those logs).

    Raises as `rebuild_index`, and `InvalidArgument` for a digest type that is none, or a password
    without one. Memory: some 100 bytes a record of one log, 300 bytes a ledger, and
    about 300 MiB. Cost: about 2 us a record, and the copy.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from bkstore import LedgerStorage
    >>> from bkstore.formats.entry import Entry, encode
    >>> with tempfile.TemporaryDirectory() as top:
    ...     with LedgerStorage.open(f"{top}/b", storage="sorted") as storage:
    ...         storage.set_master_key(7, b"key")
    ...         for entry in range(3):
    ...             _ = storage.add_entry(encode(Entry(7, entry, -1, 5, b"x" * 40), "CRC32C"))
    ...     log = Path(top, "b", "current", "0.log")
    ...     data = bytearray(log.read_bytes())
    ...     data[1024 + 80 : 1024 + 84] = b"oops"  # the size of entry 1
    ...     _ = log.write_bytes(data)
    ...     done = salvage(f"{top}/b", f"{top}/c")
    ...     done.made.entries, [(loss.kind, loss.first_entry, loss.bytes) for loss in done.losses]
    (2, [('bytes', None, 80), ('entries', 1, None)])
    """
    truth("known_only", known_only)
    coder = None if digest_type is None else Coder(digest_type, password)
    if coder is None and password is not None:
        raise InvalidArgument("a password verifies digests of digest_type, which is not given")
    with Rewrite(
        "salvage",
        source,
        target,
        to,
        needs_index=False,
        opening=opening,
        link=link,
        progress=progress,
        files=files,
    ) as job:
        return _Salvage(job, known_only, coder).run()


class _Salvage:
    """One salvage: the old index's rows by log, then log by log, then index, account, the rest."""

    def __init__(self, job: Rewrite, known_only: bool, coder: Coder | None) -> None:
        self.job = job
        self.coder = coder
        self.result = SalvageResult(job.result, [])
        self.logs = job.bookie.entry_logs
        known = known_ledgers(job.bookie, job.result.findings)
        self.choice = Choice(job, known, every=not (known_only and known.told))
        count = job.result.directories
        self.names = LogNames(self.logs, self.choice.by_directory, job.to, count)
        self.old = RowsByLog(job.work / "old", job.files)
        self.rows = RowsByKey(job.work, "rows", job.files)
        self.missing = RowsByKey(job.work, "missing", job.files)

    def run(self) -> SalvageResult:
        job, known = self.job, self.choice.known
        self._read_old_rows()
        self._take_logs()
        self._note_missing_logs()
        states = known.states(self.choice.taken)
        job.write_index(self.rows, states, old_flags(job), self.rows.rows)
        job.result.duplicates = self.rows.duplicates
        tell_ledgers(job.result, self.choice)
        job.carry_rest_and_compare(self.names, self.logs, self.rows, states)
        with job.opened() as made:
            self.result.losses += self._lost_entries(made.index)
        job.finish()
        return self.result

    # -- what the old index says

    def _read_old_rows(self) -> None:
        """Spread the rows that can be read by log; what cannot is told already, or a finding."""
        bookie, met = self.job.bookie, list[Finding]()
        self.job.step("reading the index", None)
        try:
            for rows in bookie.scan(findings=met):
                self.old.add(rows)
                self.job.did(rows.entry_id.size)
        except DirectoryInUse:
            raise
        except BkstoreError as error:
            met.append(Finding.of(error))
        self.old.finish()
        add_unreported(self.job.result.findings, met)

    # -- logs

    def _take_logs(self) -> None:
        job = self.job
        job.step("entry logs", sum(log.bytes for log in self.logs))
        kept = {(log.dir_index, log.log_id) for log in self.names.kept}
        sound = []
        for log in in_log_order(self.logs):
            old = self.old.of(log.dir_index, log.log_id)
            found = read_records(log, old, job.result.findings, self.choice.most)
            if found.unreadable:
                detail = "the log cannot be read"
                self.result.losses.append(Loss("bytes", log.path, 0, detail, log.bytes))
            else:
                is_kept = (log.dir_index, log.log_id) in kept
                with LogBytes(log.path) as data:
                    self._complete(log, data, found)
                    if is_kept and found.damaged:
                        self._write(log, data, found)
                if is_kept and not found.damaged:
                    sound.append(log)
            self.missing.add(found.missing)
            located = fresh_positions(found) if found.damaged else found.position
            self._add(log, found, located)
            job.did(log.bytes, found.position.size)
        job.carry_logs(self.names, sound)
        job.result.logs += self.result.fresh

    def _complete(self, log: LogFile, data: LogBytes, found: LogRecords) -> None:
        """Add what only the index finds, leave out what does not fit its digest, note losses."""
        add_hidden_records(data, found, self.choice.most)
        if self.coder is not None:
            known = self._may_be_another_s
            self.job.result.findings += leave_out_unfit(log, data, found, self.coder, known)
        for offset, size, why in found.lost:
            self.result.losses.append(Loss("bytes", log.path, offset, why, size))

    def _may_be_another_s(self, name: LedgerId) -> bool:
        """Whether a ledger may have a digest type of its own: not if nobody knows it."""
        known = self.choice.known
        return not known.told or name in known

    def _write(self, log: LogFile, data: LogBytes, found: LogRecords) -> None:
        folder = self.job.ledger_currents()[log.dir_index]
        with writing(folder):
            self.job.files.makedirs(folder)
        target = folder / log_name(self.names.new_id(log.dir_index, log.log_id))
        size = write_fresh(data, target, found, self.job.files)
        self.job.result.log_bytes += size
        self.result.fresh += 1
        self.result.hidden += found.hidden

    def _add(self, log: LogFile, found: LogRecords, located: Int64Array) -> None:
        """Add the records of ledgers that count; those that the index names weigh more."""
        rows = found.rows(log.dir_index, log.log_id, located)
        keep = np.zeros(rows.entry_id.size, np.bool_)
        for name, here in rows_of_ledgers(found.scope_id, found.ledger_id):
            keep[here] = self.choice.takes(name, log.dir_index)
        some = IndexBatch(*(column[keep] for column in rows))
        self.rows.add(self.names.located(some), found.confirmed[keep].astype(np.int64))

    # -- entries that are nowhere

    def _note_missing_logs(self) -> None:
        here = {(log.dir_index, log.log_id) for log in self.logs}
        for directory, log_id in self.old.logs():
            if (directory, log_id) not in here:
                self.missing.add(self.old.of(directory, log_id))

    def _lost_entries(self, made: EntryIndex) -> Iterator[Loss]:
        """Yield the entries that the old index knew and the new one has not, in runs by log."""
        known = self.choice.known
        for rows in self.missing:
            at = 0
            for name, entries, locations in rows.by_ledger():
                numbers = rows.dir_index[at : at + entries.size]
                at += entries.size
                if name not in known:
                    continue
                gone = np.flatnonzero(made.get_many(name, entries) == 0)
                for log in np.unique(np.stack((numbers[gone], log_ids(locations[gone]))), axis=1).T:
                    mine = gone[(numbers[gone] == log[0]) & (log_ids(locations[gone]) == log[1])]
                    yield from self._runs(name, entries[mine], locations[mine], int(log[0]))

    def _runs(
        self, name: LedgerId, entries: Int64Array, locations: Int64Array, number: int
    ) -> Iterator[Loss]:
        log_id = int(locations[0]) >> 32
        here = any((log.dir_index, log.log_id) == (number, log_id) for log in self.logs)
        folder = self.job.bookie.folders.ledger[max(number, 0)]
        why = "its record is damaged" if here else "its entry log is not here"
        for first, last in Availability.from_entries(entries).ranges().tolist():
            at = int(np.searchsorted(entries, first))
            count = last - first + 1
            yield Loss(
                "entries",
                str(folder / log_name(log_id)),
                int(locations[at]) & 0xFFFFFFFF,
                why if count == 1 else why.replace("its record is", "their records are"),
                None,
                name,
                first,
                last,
                count,
            )
