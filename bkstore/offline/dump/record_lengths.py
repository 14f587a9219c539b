"""Lengths of the records that index rows point at, and the publish times of Pulsar's messages in
them, read from the entry logs in bulk.

A location points just past the 4 bytes of the record's size. Rows are processed log by log in the
order of positions; records near each other share one read. A length is checked as a bookie checks
it: size, ledger and entry id must match, else it is unknown.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from bkstore.counts import format_count
from bkstore.errors import BkstoreError, SystemRefused
from bkstore.files.os_errors import read_error
from bkstore.formats.entry import V1_HEADER, V2_HEADER, record_ids
from bkstore.formats.entrylog import HEADER_SIZE, SIZE_FIELD_BYTES
from bkstore.formats.syntax.framing import integers_at_every_offset
from bkstore.ids import Int64Array, LedgerId, log_ids_of, positions_of
from bkstore.index.api import Finding, IndexBatch
from bkstore.index.damage_runs import DamageRuns
from bkstore.pulsar.entries import EntryProblem
from bkstore.pulsar.entries.published_messages import HEAD_BYTES, PublishedMessages, RecordHeads
from bkstore.storage.directories.file_listing import LogFile
from bkstore.storage.entry_log.reader import OpenFile

_MAX_GAP_BYTES = 16384
"""Bytes between two records up to which one read of both is cheaper than two."""

_WINDOW_BYTES = 4 << 20
_MAX_HEAD_BYTES = 8 << 20  # of a record; a whole message has at most 5 MiB by default
_MAX_OPEN_LOGS = 64
_MAX_LEDGERS = 1000


@dataclass
class _UnlistedEntries:
    """Entries without a length of the ledgers beyond the limit, which are one finding."""

    first_ledger: LedgerId
    count: int = 0


class RecordColumns(NamedTuple):
    """Of each row the record's length, and if they are read, when its messages were published and
    how many they are: all masked where they are unknown. `messages` are also masked, without a
    finding, in ledgers that are no topic's."""

    length: np.ma.MaskedArray[Any, Any]
    publish_time: np.ma.MaskedArray[Any, Any]
    messages: np.ma.MaskedArray[Any, Any]


class _LogColumns:
    """The columns of one log's rows, 0 where unknown. `codes` are the codes of the reasons why a
    length is unknown, `message_codes` those of messages; 0: it is known."""

    def __init__(self, row_count: int) -> None:
        self.lengths, self.codes, self.publish_times, self.messages, self.message_codes = (
            np.zeros(row_count, np.int64) for _ in range(5)
        )


class RecordLengths:
    """Lengths of the records in the given logs, and findings on unknown ones; `with_messages`: also
    the columns of Pulsar's messages.

    Memory: a 4 MiB window, 64 open files. Cost: a read for all records within 16 KiB of each other.
    """

    def __init__(self, logs: Iterable[LogFile], *, with_messages: bool = False) -> None:
        self._published = PublishedMessages() if with_messages else None
        # How much of each record is read at first: its header, or also that of a message.
        self._head_bytes = HEAD_BYTES if with_messages else V2_HEADER
        # Of several logs of one directory and id, the first one counts.
        self._paths = {(log.dir_index, log.log_id): log.path for log in reversed(list(logs))}
        self._open_files: dict[str, OpenFile] = {}
        self._findings: list[Finding] = []
        self._runs = DamageRuns(self._findings, max_runs=1)
        # A reason is (path, what is wrong). In arrays its code stands for it, from 1 on; 0: none.
        self._code_of_reason: dict[tuple[str, str], int] = {}
        # By the code of a reason: ledgers so far and the last one; what is not listed any more.
        self._ledger_counts: dict[int, tuple[int, LedgerId]] = {}
        self._unlisted: dict[int, _UnlistedEntries] = {}

    def read_lengths(self, rows: IndexBatch) -> np.ma.MaskedArray[Any, Any]:
        """Return the length of each row's record, masked where it is unknown."""
        return self.read_columns(rows).length

    def read_columns(self, rows: IndexBatch) -> RecordColumns:
        """Return the columns of each row's record."""
        columns = _LogColumns(rows.entry_id.size)
        # Go log by log, in the order of positions.
        order = np.lexsort((rows.location, rows.dir_index))
        logs, dir_indexes = log_ids_of(rows.location)[order], rows.dir_index[order]
        log_starts = np.flatnonzero((np.diff(logs) != 0) | (np.diff(dir_indexes) != 0)) + 1
        for row_numbers in np.split(order, log_starts):
            if row_numbers.size:
                log_rows = IndexBatch(*(column[row_numbers] for column in rows))
                in_log = self._columns_in_log(log_rows)
                # Put the values of this log where its rows are in the batch.
                for name, column in vars(columns).items():
                    column[row_numbers] = getattr(in_log, name)
        self._add_findings(rows, columns.codes)
        self._add_findings(rows, columns.message_codes)
        no_messages = columns.messages == 0
        return RecordColumns(
            np.ma.masked_array(columns.lengths, columns.lengths == 0),
            np.ma.masked_array(columns.publish_times, no_messages),
            np.ma.masked_array(columns.messages, no_messages),
        )

    def findings(self) -> list[Finding]:
        """Return findings by log, reason and ledger; after 1,000 of a reason, one for the rest."""
        reasons = {code: reason for reason, code in self._code_of_reason.items()}
        findings = list(self._findings)
        for code, unlisted in self._unlisted.items():
            path, reason = reasons[code]
            entries = format_count(unlisted.count, "entry", "entries")
            ledgers = f"{entries} of more ledgers, from {unlisted.first_ledger} on"
            findings.append(Finding("damage", f"{ledgers}: {reason}", path))
        return findings

    def _add_findings(self, rows: IndexBatch, codes: Int64Array) -> None:
        """Add findings on the rows whose code in `codes` is that of a reason, not 0: consecutive
        entries of a ledger with the same reason become one finding."""
        unknown = np.flatnonzero(codes)
        if not unknown.size:
            return
        reasons = {code: reason for reason, code in self._code_of_reason.items()}
        codes, rows = codes[unknown], IndexBatch(*(column[unknown] for column in rows))
        start = 0
        for ledger, entries, locations in rows.by_ledger():
            ledger_codes = codes[start : start + entries.size]  # rows are in the order of ledgers
            start += entries.size
            for code in np.unique(ledger_codes).tolist():
                entry_ids = entries[ledger_codes == code]
                if self._count_ledger(code, ledger) > _MAX_LEDGERS:
                    self._unlisted.setdefault(
                        code, _UnlistedEntries(ledger)
                    ).count += entry_ids.size
                    continue
                starts = positions_of(locations[ledger_codes == code])
                path, reason = reasons[code]
                damage = Finding("damage", reason, path, int(starts[0]), ledger)
                self._runs.add(damage, entry_ids, int(starts[-1]))

    def _count_ledger(self, code: int, ledger: LedgerId) -> int:
        """Count the ledger, unless it is still the last one; return the reason's ledgers so far."""
        count, last_ledger = self._ledger_counts.get(code, (0, None))
        count += ledger != last_ledger
        self._ledger_counts[code] = count, ledger
        return count

    def _reason_code(self, path: str, reason: str, lacking: str = "length") -> int:
        """Return the code of a reason, a new one if it is new; `lacking` is what is unknown."""
        next_code = len(self._code_of_reason) + 1
        return self._code_of_reason.setdefault((path, f"no {lacking}: {reason}"), next_code)

    def _columns_in_log(self, rows: IndexBatch) -> _LogColumns:
        """Return the columns of rows that point into one log, in the order of their positions."""
        columns = _LogColumns(rows.entry_id.size)
        lengths, codes = columns.lengths, columns.codes
        dir_index, log_id = int(rows.dir_index[0]), int(log_ids_of(rows.location[:1])[0])
        path = self._paths.get((dir_index, log_id))
        if path is None:
            codes[:] = self._reason_code(f"{log_id:x}.log", "no such entry log")
            return columns
        try:
            file = self._open_file(path)
            log_size = os.fstat(file.fd).st_size
            # Leave out rows whose location is no record's.
            starts = positions_of(rows.location)
            is_past_end = starts + V1_HEADER > log_size
            if is_past_end.any():
                size = format_count(log_size, "byte")
                reason = f"location points past the end of the log ({size})"
                codes[is_past_end] = self._reason_code(path, reason)
            is_in_header = starts < HEADER_SIZE + SIZE_FIELD_BYTES
            if is_in_header.any():
                codes[is_in_header] = self._reason_code(path, "location points into the log header")
            # Read the heads of the records of the other rows, some megabytes at a time.
            inside_rows = np.flatnonzero(codes == 0)
            for heads in _read_records(file.fd, starts, inside_rows, self._head_bytes):
                row_numbers = heads.row_numbers
                read_rows = IndexBatch(*(column[row_numbers] for column in rows))
                sizes = _read_sizes(heads, read_rows, log_size - starts[row_numbers])
                lengths[row_numbers] = sizes
                if not sizes.all():
                    code = self._reason_code(path, "the record is of another entry, or truncated")
                    codes[row_numbers[sizes == 0]] = code
                if self._published is not None:
                    self._read_messages(file, rows, heads, columns)
        except OSError as error:  # the reason for all rows that have neither length nor reason
            reason = Finding.of(read_error(error, path)).detail.removeprefix(f"{path}: ")
            codes[(lengths == 0) & (codes == 0)] = self._reason_code(path, reason)
        except SystemRefused:
            raise
        except BkstoreError as error:
            reason = str(error).removeprefix(f"{path}: ")
            codes[(lengths == 0) & (codes == 0)] = self._reason_code(path, reason)
        return columns

    def _read_messages(
        self, file: OpenFile, rows: IndexBatch, heads: RecordHeads, columns: _LogColumns
    ) -> None:
        """Set the columns of messages in `columns`, for the records in `heads` whose length is
        known. Where a message's header is longer than the head, more of the record is read."""
        assert self._published is not None
        head_bytes = self._head_bytes
        pending = [heads]
        while pending:
            heads = _of_known_length(pending.pop(), columns.lengths)
            row_numbers = heads.row_numbers
            if not row_numbers.size:
                continue
            read_rows = IndexBatch(*(column[row_numbers] for column in rows))
            decoded = self._published.decode(read_rows, heads)
            columns.publish_times[row_numbers] = decoded.publish_time
            columns.messages[row_numbers] = decoded.messages
            columns.message_codes[row_numbers] = 0
            for problem in np.unique(decoded.problem[decoded.problem > 0]).tolist():
                code = self._reason_code(file.path, EntryProblem(problem).reason, "message")
                columns.message_codes[row_numbers[decoded.problem == problem]] = code
            # `needed` is how many bytes of the record have its header, if they were not read. Until
            # they are, and for good if they are too many, this is the reason.
            code = self._reason_code(file.path, "its header was not read to the end", "message")
            columns.message_codes[row_numbers[decoded.needed > 0]] = code
            is_short = decoded.needed <= _MAX_HEAD_BYTES
            unread = row_numbers[(decoded.needed > 0) & is_short]
            if unread.size:
                # Grow by a factor at least: a header's length may become known step by step.
                needed_bytes = int(decoded.needed[is_short].max())
                head_bytes = min(max(8 * head_bytes, needed_bytes), _MAX_HEAD_BYTES)
                pending += _read_records(file.fd, positions_of(rows.location), unread, head_bytes)

    def _open_file(self, path: str) -> OpenFile:
        file = self._open_files.get(path)
        if file is None:
            file = self._open_files[path] = OpenFile(path)
            while len(self._open_files) > _MAX_OPEN_LOGS:
                self._open_files.pop(next(iter(self._open_files)))  # the one opened first
        return file


def _read_sizes(heads: RecordHeads, rows: IndexBatch, limits: Int64Array) -> Int64Array:
    """Return the sizes of the rows' records: 0 if the record is of another entry, or longer than
    its limit, the bytes left in its log."""
    data, offsets = heads.data, heads.offsets
    size_fields = integers_at_every_offset(data, ">i4")[offsets - SIZE_FIELD_BYTES]
    sizes: Int64Array = size_fields.astype(np.int64)
    scopes, ledgers, entries = record_ids(data, offsets)
    is_same = (scopes == rows.scope_id) & (ledgers == rows.ledger_id) & (entries == rows.entry_id)
    min_sizes = np.where(rows.scope_id == 0, V1_HEADER, V2_HEADER)
    return np.where(is_same & (sizes >= min_sizes) & (sizes <= limits), sizes, 0)


def _of_known_length(heads: RecordHeads, lengths: Int64Array) -> RecordHeads:
    """Return the records whose length is known, with their ends in `data`; what was read beyond the
    end of a record is no longer `available`."""
    known = np.flatnonzero(lengths[heads.row_numbers])
    row_numbers, offsets = heads.row_numbers[known], heads.offsets[known]
    ends = offsets + lengths[row_numbers]
    available = np.minimum(heads.available[known], ends)
    return RecordHeads(row_numbers, heads.data, offsets, available, ends)


def _read_records(
    fd: int, all_starts: Int64Array, row_numbers: Int64Array, head_bytes: int
) -> Iterator[RecordHeads]:
    """Yield the first `head_bytes` or more of the records of the rows `row_numbers`, with ends of
    0: not known yet. `all_starts` are the positions of the records of all rows, ascending."""
    starts = all_starts[row_numbers]
    if not starts.size:
        return
    # One read has the size fields and heads of the records firsts[i] to stops[i] - 1.
    is_far = (np.diff(starts) > _MAX_GAP_BYTES) | (np.diff(starts // _WINDOW_BYTES) != 0)
    firsts = np.concatenate(([0], np.flatnonzero(is_far) + 1))
    stops = np.append(firsts[1:], starts.size)
    read_starts, read_ends = starts[firsts] - SIZE_FIELD_BYTES, starts[stops - 1] + head_bytes
    read_sizes = read_ends - read_starts
    # The bytes of several reads, of about a window, are joined and yielded together.
    windows = (np.cumsum(read_sizes) - read_sizes) // _WINDOW_BYTES
    for reads in np.split(np.arange(firsts.size), np.flatnonzero(np.diff(windows)) + 1):
        ranges = zip(read_starts[reads].tolist(), read_sizes[reads].tolist())
        # The last record may be shorter than the head read for it: zeros follow it.
        data = b"".join([os.pread(fd, size, start).ljust(size, b"\0") for start, size in ranges])
        # In `data` a read begins after the sizes before it, not at its start in the log.
        shifts = np.cumsum(read_sizes[reads]) - read_sizes[reads] - read_starts[reads]
        first, stop = int(firsts[reads[0]]), int(stops[reads[-1]])
        counts = stops[reads] - firsts[reads]
        offsets = starts[first:stop] + np.repeat(shifts, counts)
        available = np.repeat(np.cumsum(read_sizes[reads]), counts)
        yield RecordHeads(
            row_numbers[first:stop],
            np.frombuffer(data, np.uint8),
            offsets,
            available,
            np.zeros(offsets.size, np.int64),
        )
