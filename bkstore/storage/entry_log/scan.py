"""Scans an entry log: yields its records in arrays, reports damage, lists its ledgers.

What BookKeeper's scan (`DefaultEntryLogger.scanEntryLog`) skips silently, or takes for records, is
a finding here. Padding is no damage: 0xF0 up to a multiple of 4096, and zeros to the end, as the
direct-IO logger writes them. A wrong size that leads to the start of another record is found only
next to other damage, where digests are computed. Format: `docs/formats/entrylog.md`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from bkstore.counts import format_count
from bkstore.errors import BkstoreError, CorruptionError, UnsupportedLayout
from bkstore.formats.entry import RecordBatch, rows_of_ledgers
from bkstore.formats.entrylog import (
    HEADER_SIZE,
    LogHeader,
    LogMetadata,
    decode_header,
    decode_map_batch,
)
from bkstore.formats.syntax.framing import SIZE_FIELD_BYTES, Bytes, read_int64s
from bkstore.ids import Int64Array, LedgerId
from bkstore.index.api import Finding
from bkstore.index.damage_runs import DamageRuns
from bkstore.storage.entry_log.byte_usage import LogByteUsage
from bkstore.storage.entry_log.resynchronization import (
    ENTRY,
    FILLER,
    MAP,
    FrameRun,
    LogBytes,
    Region,
    classify_at,
    find_doubtful_frame,
    find_next_record,
    read_frames,
)

StrPath = str | os.PathLike[str]
_Accept = Callable[[LedgerId], bool]

_MAX_MAP_BATCH_SIZE = 20 + 24 * 10_000  # of a ledgers map
_HEADER_FIELDS_SIZE = 20


@dataclass(frozen=True)
class LogBatch:
    """Records of a log in their order, as int64 columns of equal length over one buffer, which is
    at file offset `buffer_offset`. Ids are in two's complement. `position` is the record's file
    offset, as in a location (4 after that of its size), `size` its size in bytes."""

    scope_id: Int64Array
    ledger_id: Int64Array
    entry_id: Int64Array
    position: Int64Array
    size: Int64Array
    buffer: Bytes
    buffer_offset: int

    def __len__(self) -> int:
        return int(self.position.size)

    def record(self, row: int) -> bytes:
        """Return a copy of the record at row `row`."""
        start = int(self.position[row]) - self.buffer_offset
        return self.buffer[start : start + int(self.size[row])].tobytes()

    def records(self) -> RecordBatch:
        """Return the records as a batch over the same buffer."""
        offsets = self.position - self.buffer_offset
        return RecordBatch(self.entry_id, self.buffer.data, offsets, self.size)

    def lac_and_length(self) -> tuple[Int64Array, Int64Array]:
        """Return the LAC and ledger length fields of the records, int64[n] each. They follow the
        ids: 16 bytes, or 25 in version 2, with flags and a scope (upper half of the ledger id)."""
        field_offsets = self.position - self.buffer_offset + np.where(self.scope_id == 0, 16, 25)
        return read_int64s(self.buffer, field_offsets), read_int64s(self.buffer, field_offsets, 8)

    def ledgers(self) -> list[tuple[LedgerId, Int64Array]]:
        """Return (ledger id, rows) for each ledger, rows in log order."""
        return rows_of_ledgers(self.scope_id, self.ledger_id)

    def where(self, rows: Int64Array) -> LogBatch:
        """Return the records of these rows; shares the buffer."""
        ids = self.scope_id[rows], self.ledger_id[rows], self.entry_id[rows]
        positions, sizes = self.position[rows], self.size[rows]
        return LogBatch(*ids, positions, sizes, self.buffer, self.buffer_offset)


def scan_log(
    path: StrPath,
    findings: list[Finding] | None = None,
    accept: _Accept | None = None,
    usage: LogByteUsage | None = None,
    open_log: Callable[[StrPath], AbstractContextManager[LogBytes]] = LogBytes,
) -> Iterator[LogBatch]:
    """Yield the records of an entry log in batches of about 4 MiB, in their order.

    With `accept`, only those of ledgers for which it returns True (called once per ledger).
    Records are not verified: the log does not know their digests. An empty file has no records.

    With a `findings` list, damage is appended to it and the scan continues after it; from the
    64th place of one kind on, the last finding covers the rest (`DamageRuns`). Without the list,
    `CorruptionError` is raised after the records before the damage are yielded. A record longer
    than a window is read whole, after its size is checked. About 200 ns a record. An `usage`
    counts what every byte of the log is used for; it is complete when the scan is. `open_log` opens
    the file, for readers that go on after sectors that cannot be read.

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
    with open_log(path) as log:
        scan = _Scan(log, findings, LogByteUsage() if usage is None else usage)
        verdicts: dict[LedgerId, bool] = {}
        for run in scan.runs():
            ids, positions = (run.scopes, run.ledgers, run.entries), run.offsets + run.data_offset
            frames = LogBatch(*ids, positions, run.sizes, run.data, run.data_offset)
            batch = frames.where(np.flatnonzero(run.kinds == ENTRY))
            if accept is not None:
                batch = _filter_ledgers(batch, accept, verdicts)
            if len(batch):
                yield batch


def _filter_ledgers(batch: LogBatch, accept: _Accept, verdicts: dict[LedgerId, bool]) -> LogBatch:
    """Return the records of accepted ledgers; `verdicts` keeps what `accept` returned."""
    is_kept = np.zeros(len(batch), np.bool_)
    for ledger_id, rows in batch.ledgers():
        if ledger_id not in verdicts:
            verdicts[ledger_id] = accept(ledger_id)
        is_kept[rows] = verdicts[ledger_id]
    return batch if is_kept.all() else batch.where(np.flatnonzero(is_kept))


class _Scan:
    """One pass over a log: runs of frames, and the damage between them."""

    def __init__(self, log: LogBytes, findings: list[Finding] | None, usage: LogByteUsage) -> None:
        self._log = log
        self._usage = usage
        self._findings = findings
        # Adds damage to `findings`, merging adjacent places; None: damage is raised.
        self._damage_runs = None if findings is None else DamageRuns(findings, noun="places")
        self._has_damage = False
        self._has_seen_map = False  # the ledgers map, where the header says that it is
        self._is_direct_io = False  # a filler after the header shows a log of the direct-IO logger

    def runs(self) -> Iterator[FrameRun]:
        """Yield the frames (size and record) from the header on, in runs: adjacent frames that one
        read returns. Report what is between the runs and is not padding as damage."""
        log, offset = self._log, HEADER_SIZE
        if log.size == 0:  # created, its header still in the writer's buffer
            return
        header = self._read_header()
        self._usage.header_bytes = min(log.size, HEADER_SIZE)
        while True:
            region = classify_at(log, offset)
            if region.kind == "frame":
                run = read_frames(log, offset)
                self._note_other_frames(run, header)
                next_region = classify_at(log, run.end)
                if next_region.kind != "garbage":
                    self._end_damage_run()
                    self._usage.count_frames(run)
                    yield run
                    offset = run.end
                    continue
                # Garbage after a run: the size of one of its last frames may be wrong. Search the
                # next record, and drop the frames from the one that it shows to be wrong.
                intact_count = find_doubtful_frame(log, run)
                next_offset = find_next_record(log, run.end, run.start_of(intact_count))
                while intact_count < run.count and run.start_of(intact_count + 1) <= next_offset:
                    intact_count += 1
                if intact_count:
                    self._end_damage_run()
                    self._usage.count_frames(run.first(intact_count))
                yield run.first(intact_count)
                damage_start = run.start_of(intact_count)
                reason = next_region.reason
                if damage_start != run.end:
                    reason = "a size that ends inside another record"
                offset = self._report_skipped(damage_start, next_offset, reason)
            elif region.kind == "garbage":
                next_offset = find_next_record(log, offset, offset)
                offset = self._report_skipped(offset, next_offset, region.reason)
            elif region.kind == "padding":
                self._usage.padding_bytes += region.end - offset
                offset = region.end
            else:
                self._usage.padding_bytes += region.end - offset
                self._check_end(offset, region, header)
                return

    def _end_damage_run(self) -> None:
        """Note that records were read, so that later damage counts as another run."""
        if self._damage_runs is not None:
            self._damage_runs.end_runs()

    def _read_header(self) -> LogHeader:
        """Return the log's header; report a broken one and return an empty header."""
        try:
            header = decode_header(self._log.read(0, _HEADER_FIELDS_SIZE))
            if self._log.size < HEADER_SIZE:
                reason = f"header is cut off: {HEADER_SIZE} bytes are needed"
                raise CorruptionError(None, self._log.size, reason)
        except CorruptionError as error:
            self._report_damage(error.relocate(self._log.path))
        except UnsupportedLayout as error:
            self._report_damage(UnsupportedLayout(f"{self._log.path}: {error}"))
        else:
            return header
        return LogHeader()  # without version and map

    def _note_other_frames(self, run: FrameRun, header: LogHeader) -> None:
        """Note whether a run has the ledgers map that the header names, or a filler."""
        for frame in np.flatnonzero(run.kinds != ENTRY).tolist():
            self._is_direct_io |= bool(run.kinds[frame] == FILLER)
            is_map = bool(run.kinds[frame] == MAP)
            self._has_seen_map |= is_map and run.start_of(frame) == header.map_offset

    def _report_skipped(self, start: int, stop: int, reason: str) -> int:
        """Report start..stop, which has no readable record, as damage; return `stop`."""
        self._usage.skipped_ranges.append((start, stop))
        range_end = "to the end of the log" if stop == self._log.size else f"up to {stop}"
        skipped_bytes = format_count(stop - start, f"byte {range_end} is", f"bytes {range_end} are")
        detail = f"{reason}; {skipped_bytes} skipped"
        self._report_damage(CorruptionError(self._log.path, start, detail))
        return stop

    def _check_end(self, start: int, tail: Region, header: LogHeader) -> None:
        """Report a ledgers map that the header names and the scan did not meet, or zeros at the
        end: a bookie writes these zeros only with direct I/O, else a crash left them."""
        if header.map_offset and not self._has_seen_map and not self._has_damage:
            place = f"{header.map_offset}, where the header places it"
            reason = f"the ledgers map is not at {place}: records may be missing"
            self._report_damage(CorruptionError(self._log.path, start, reason))
        elif tail.kind == "zeros" and not self._is_direct_io and self._findings is not None:
            detail = f"{format_count(tail.end - start, 'zero byte')} at the end, left by a crash"
            self._findings.append(Finding("oddity", detail, str(self._log.path), start))

    def _report_damage(self, error: BkstoreError) -> None:
        """Add damage to the findings, or raise it if there is no list."""
        self._has_damage = True
        if self._damage_runs is None:
            raise error
        self._damage_runs.add(Finding.of(error))


# -- the ledgers of a log


def read_log_metadata(
    path: StrPath, log_id: int, findings: list[Finding] | None = None
) -> tuple[LogMetadata, Literal["map", "scan"]]:
    """Return the ledgers of a log with their bytes, and whether they are from map or scan.

    Reads the ledgers map, at which the header of a closed log points; if it is missing or broken,
    scans the log: damage is added to `findings`, or raised. A broken map is an oddity, as the map
    only repeats the records, and is not reported beside damage of the log.
    """
    map_oddity: Finding | None = None
    with LogBytes(path) as log:
        try:
            header = decode_header(log.read(0, _HEADER_FIELDS_SIZE))
            if header.version > 0 and header.map_offset > 0:  # else it has no map
                return _read_ledgers_map(log, log_id, header), "map"
        except CorruptionError as error:
            # A broken header is left to the scan to report.
            if findings is not None and error.offset is None:  # a read failed, perhaps only once
                findings.append(Finding.of(error))
            elif findings is not None and error.offset is not None and error.offset >= HEADER_SIZE:
                detail = f"ledgers map is invalid, records were counted instead: {error.reason}"
                map_oddity = Finding("oddity", detail, str(Path(path)), error.offset)
        except UnsupportedLayout:
            pass  # left to the scan, too
    metadata, findings_before = LogMetadata(log_id), len(findings or ())
    for batch in scan_log(path, findings):
        for ledger_id, rows in batch.ledgers():
            metadata.add(ledger_id, int(batch.size[rows].sum()) + SIZE_FIELD_BYTES * rows.size)
    if findings is not None and map_oddity is not None and len(findings) == findings_before:
        findings.append(map_oddity)
    return metadata, "scan"


def _read_ledgers_map(log: LogBytes, log_id: int, header: LogHeader) -> LogMetadata:
    """Read the ledgers map, in which a closed log lists its ledgers with their bytes, in batches.
    Raises `CorruptionError` if it is inconsistent with itself or the header."""
    metadata, batch_offset = LogMetadata(log_id), header.map_offset
    while batch_offset + SIZE_FIELD_BYTES <= log.size:
        size = int.from_bytes(log.read(batch_offset, SIZE_FIELD_BYTES), "big", signed=True)
        if size <= 0:  # padding
            break
        if size > min(_MAX_MAP_BATCH_SIZE, log.size - batch_offset - SIZE_FIELD_BYTES):
            reason = f"ledgers map batch of {format_count(size, 'byte')}"
            raise CorruptionError(None, batch_offset, reason)
        try:
            metadata.add_all(decode_map_batch(log.read(batch_offset + SIZE_FIELD_BYTES, size)))
        except CorruptionError as error:
            raise CorruptionError(None, batch_offset, error.reason) from None
        batch_offset += SIZE_FIELD_BYTES + size
    ledger_count = len(metadata.ledgers)
    if ledger_count != header.ledger_count or ledger_count == 0:
        mapped = format_count(ledger_count, "ledger")
        # An offset inside the header would show an error of the header (`read_log_metadata`).
        reason = f"ledgers map has {mapped}, the header says {header.ledger_count}"
        raise CorruptionError(None, max(header.map_offset, HEADER_SIZE), reason)
    bytes_before_map = header.map_offset - HEADER_SIZE
    if metadata.total_size > bytes_before_map:
        counted = format_count(metadata.total_size, "byte")
        reason = f"ledgers map counts {counted}, {bytes_before_map} precede it"
        raise CorruptionError(None, header.map_offset, reason)
    return metadata
