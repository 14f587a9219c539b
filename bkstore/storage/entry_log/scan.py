"""Scanning an entry log: its records in arrays, what is damaged in it, which ledgers it has.

What upstream's scan (`DefaultEntryLogger.scanEntryLog`) passes over in silence, or takes for
records, is a finding here. Padding is no damage: 0xF0 up to a multiple of 4096 and zeros to the
end, as the direct-IO logger leaves them. Format: `docs/formats/entrylog.md`.

One kind of damage cannot be seen here: a size that is wrong, and yet leads to the beginning of
another record. Digests tell it, which a scan computes only beside other damage.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from bkstore.counts import counted
from bkstore.errors import BkstoreError, CorruptionError, UnsupportedLayout
from bkstore.formats.entry import RecordBatch, rows_of_ledgers
from bkstore.formats.entrylog import (
    HEADER_SIZE,
    LogHeader,
    LogMetadata,
    decode_header,
    decode_map_batch,
)
from bkstore.formats.syntax.framing import PREFIX, Bytes, words
from bkstore.ids import Int64Array, LedgerId
from bkstore.index.api import Finding
from bkstore.index.damage_runs import DamageRuns
from bkstore.storage.entry_log.log_account import LogAccount
from bkstore.storage.entry_log.resync import (
    ENTRY,
    FILLER,
    MAP,
    LogBytes,
    Place,
    Run,
    look,
    next_record,
    read_run,
    suspects,
)

StrPath = str | os.PathLike[str]
_Accept = Callable[[LedgerId], bool]

_LARGEST_BATCH = 20 + 24 * 10_000  # of a ledgers map
_HEADER_FIELDS = 20


@dataclass(frozen=True)
class LogBatch:
    """Records of a log in their order, as equally long int64 columns over one buffer.

    Ids are in two's complement. `position` is the record's file offset, as a location has it
    (4 behind that of its size), `size` its bytes; `base` is the file offset of the buffer.
    """

    scope_id: Int64Array
    ledger_id: Int64Array
    entry_id: Int64Array
    position: Int64Array
    size: Int64Array
    buffer: Bytes
    base: int

    def __len__(self) -> int:
        return int(self.position.size)

    def record(self, at: int) -> bytes:
        """Return a copy of record number `at`."""
        start = int(self.position[at]) - self.base
        return self.buffer[start : start + int(self.size[at])].tobytes()

    def records(self) -> RecordBatch:
        """Return the records as a batch over the same buffer."""
        return RecordBatch(self.entry_id, self.buffer.data, self.position - self.base, self.size)

    def lac_and_length(self) -> tuple[Int64Array, Int64Array]:
        """Return what the records say of the LAC and of the ledger's length, int64[n] each."""
        fields = self.position - self.base + np.where(self.scope_id == 0, 16, 25)
        return words(self.buffer, fields), words(self.buffer, fields, 8)

    def ledgers(self) -> list[tuple[LedgerId, Int64Array]]:
        """Return (ledger, row numbers) for each ledger here, rows in log order."""
        return rows_of_ledgers(self.scope_id, self.ledger_id)

    def where(self, rows: Int64Array) -> LogBatch:
        """Return some of the records; shares the buffer."""
        return LogBatch(
            self.scope_id[rows],
            self.ledger_id[rows],
            self.entry_id[rows],
            self.position[rows],
            self.size[rows],
            self.buffer,
            self.base,
        )


def scan_log(
    path: StrPath,
    findings: list[Finding] | None = None,
    accept: _Accept | None = None,
    account: LogAccount | None = None,
) -> Iterator[LogBatch]:
    """Yield the records of an entry log in batches of about 4 MiB, in their order.

    With `accept` only those of ledgers for which it returns True (asked once a ledger). Records
    are not verified: the log does not know their digests. An empty file has no records.

    With a `findings` list, damage is appended to it and the scan goes on behind it; of more than
    64 places of one kind the last finding takes the rest (`DamageRuns`). Without,
    `CorruptionError` is raised, after the records before it were yielded. A record longer than
    a window is read whole, its size having been checked. About 200 ns a record. An `account`
    learns what every byte of the log is for; it is complete when the scan is.

    >>> import tempfile
    >>> from bkstore.formats.entrylog import encode_header
    >>> record = bytes(7) + b"\\x07" + bytes(56)
    >>> with tempfile.NamedTemporaryFile(suffix=".log") as file:
    ...     data = encode_header(LogHeader()) + (64).to_bytes(4, "big") + record
    ...     file.write(data), file.flush()
    ...     for batch in scan_log(file.name):
    ...         batch.ledger_id, batch.position, batch.record(0) == record
    (1092, None)
    (array([7]), array([1028]), True)
    """
    with LogBytes(path) as log:
        scan = _Scan(log, findings, LogAccount() if account is None else account)
        known: dict[LedgerId, bool] = {}
        for run in scan.runs():
            rows = np.flatnonzero(run.kinds == ENTRY)
            batch = LogBatch(
                run.scopes[rows],
                run.ledgers[rows],
                run.entries[rows],
                run.offsets[rows] + run.base,
                run.sizes[rows],
                run.data,
                run.base,
            )
            if accept is not None:
                batch = _accepted(batch, accept, known)
            if len(batch):
                yield batch


def _accepted(batch: LogBatch, accept: _Accept, known: dict[LedgerId, bool]) -> LogBatch:
    keep = np.zeros(len(batch), np.bool_)
    for name, rows in batch.ledgers():
        if name not in known:
            known[name] = accept(name)
        keep[rows] = known[name]
    return batch if keep.all() else batch.where(np.flatnonzero(keep))


class _Scan:
    """One walk through a log: stretches of frames, and what is wrong between them."""

    def __init__(self, log: LogBytes, findings: list[Finding] | None, account: LogAccount) -> None:
        self._log = log
        self._account = account
        self._findings = findings
        self._runs = None if findings is None else DamageRuns(findings, noun="places")
        self._damaged = False
        self._map_seen = False
        self._direct = False

    def runs(self) -> Iterator[Run]:
        """Yield the frames from the header on, in stretches that one read brings."""
        log, at = self._log, HEADER_SIZE
        if log.size == 0:  # created, its header still in the writer's buffer
            return
        header = self._header()
        self._account.header = min(log.size, HEADER_SIZE)
        while True:
            place = look(log, at)
            if place.kind == "frame":
                run = read_run(log, at)
                self._note(run, header)
                behind = look(log, run.end)
                if behind.kind != "garbage":
                    self._read()
                    self._account.take(run)
                    yield run
                    at = run.end
                    continue
                doubtful = suspects(log, run)
                found = next_record(log, run.end, run.start(doubtful))
                while doubtful < run.count and run.start(doubtful + 1) <= found:
                    doubtful += 1
                if doubtful:
                    self._read()
                    self._account.take(run.first(doubtful))
                yield run.first(doubtful)
                lost = run.start(doubtful)
                why = behind.reason if lost == run.end else "a size that leads into another record"
                at = self._skipped(lost, found, why)
            elif place.kind == "garbage":
                at = self._skipped(at, next_record(log, at, at), place.reason)
            elif place.kind == "padding":
                self._account.padding += place.end - at
                at = place.end
            else:
                self._account.padding += place.end - at
                self._at_end(at, place, header)
                return

    def _read(self) -> None:
        """Note that records were read: damage behind them is another run."""
        if self._runs is not None:
            self._runs.end()

    def _header(self) -> LogHeader:
        try:
            header = decode_header(self._log.peek(0, _HEADER_FIELDS))
            if self._log.size < HEADER_SIZE:
                reason = f"header is cut off: {HEADER_SIZE} bytes needed"
                raise CorruptionError(None, self._log.size, reason)
        except CorruptionError as error:
            self._report(error.within(self._log.path))
        except UnsupportedLayout as error:
            self._report(UnsupportedLayout(f"{self._log.path}: {error}"))
        else:
            return header
        return LogHeader()  # which claims nothing

    def _note(self, run: Run, header: LogHeader) -> None:
        for at in np.flatnonzero(run.kinds != ENTRY).tolist():
            self._direct |= bool(run.kinds[at] == FILLER)
            place = run.base + int(run.offsets[at]) - PREFIX
            self._map_seen |= bool(run.kinds[at] == MAP) and place == header.map_offset

    def _skipped(self, at: int, found: int, reason: str) -> int:
        """Report the bytes at..found, which hold no record that can be read; return `found`."""
        self._account.passed_over.append((at, found))
        upto = "to the end of the log" if found == self._log.size else f"up to {found}"
        passed = counted(found - at, f"byte {upto} is", f"bytes {upto} are")
        detail = f"{reason}; {passed} passed over"
        self._report(CorruptionError(self._log.path, at, detail))
        return found

    def _at_end(self, at: int, place: Place, header: LogHeader) -> None:
        if header.map_offset and not self._map_seen and not self._damaged:
            reason = f"the ledgers map is not at {header.map_offset}, where the header says it is"
            self._report(CorruptionError(self._log.path, at, f"{reason}: records may be missing"))
        elif place.kind == "zeros" and not self._direct and self._findings is not None:
            detail = f"{counted(place.end - at, 'zero byte')} to the end, which only a crash leaves"
            self._findings.append(Finding("oddity", detail, str(self._log.path), at))

    def _report(self, error: BkstoreError) -> None:
        self._damaged = True
        if self._runs is None:
            raise error
        self._runs.add(Finding.of(error))


# -- which ledgers a log has


def read_log_metadata(
    path: StrPath, log_id: int, findings: list[Finding] | None = None
) -> tuple[LogMetadata, Literal["map", "scan"]]:
    """Return which ledgers a log has, with their bytes, and where that is from.

    By the ledgers map, which the header of a closed log points at: some reads. Where there is
    none, or it is broken, by a scan (whose damage goes to `findings`, or is raised). A broken
    map is an oddity there: it says nothing that the records do not say.
    """
    with LogBytes(path) as log:
        try:
            header = decode_header(log.peek(0, _HEADER_FIELDS))
            if header.version > 0 and header.map_offset > 0:
                return _by_map(log, log_id, header), "map"
        except CorruptionError as error:
            # Where it is the header that is broken, the scan reports it.
            if error.offset is None and findings is not None:  # the medium failed, once at least
                findings.append(Finding.of(error))
            elif error.offset is not None and error.offset >= HEADER_SIZE and findings is not None:
                detail = f"ledgers map is broken, records were counted instead: {error.reason}"
                findings.append(Finding("oddity", detail, str(Path(path)), error.offset))
        except UnsupportedLayout:
            pass  # likewise
    metadata = LogMetadata(log_id)
    for batch in scan_log(path, findings):
        for name, rows in batch.ledgers():
            metadata.add(name, int(batch.size[rows].sum()) + PREFIX * rows.size)
    return metadata, "scan"


def _by_map(log: LogBytes, log_id: int, header: LogHeader) -> LogMetadata:
    metadata, at = LogMetadata(log_id), header.map_offset
    while at + PREFIX <= log.size:
        size = int.from_bytes(log.peek(at, PREFIX), "big", signed=True)
        if size <= 0:  # padding
            break
        if size > min(_LARGEST_BATCH, log.size - at - PREFIX):
            raise CorruptionError(None, at, f"ledgers map batch of {counted(size, 'byte')}")
        try:
            metadata.add_all(decode_map_batch(log.peek(at + PREFIX, size)))
        except CorruptionError as error:
            raise CorruptionError(None, at, error.reason) from None
        at += PREFIX + size
    found = len(metadata.ledgers)
    if found != header.ledgers or found == 0:
        reason = f"ledgers map has {counted(found, 'ledger')}, the header says {header.ledgers}"
        raise CorruptionError(None, max(header.map_offset, HEADER_SIZE), reason)
    room = header.map_offset - HEADER_SIZE
    if metadata.total_size > room:
        reason = f"ledgers map counts {counted(metadata.total_size, 'byte')}, {room} are before it"
        raise CorruptionError(None, header.map_offset, reason)
    return metadata
