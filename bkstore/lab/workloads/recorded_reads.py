"""Reads of a bookie or storage, recorded while it runs, and loaded again as a trace. The file is
text: a line that names the format, then a line per read, in the order in which they were answered:
scope, ledger, first entry, number of entries. Failed reads are not recorded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from bkstore.errors import InvalidArgument
from bkstore.files.disk_changes import StrPath
from bkstore.files.user_outputs import check_output, write_output
from bkstore.formats.entry import RecordBatch, record_header
from bkstore.ids import Int64Array, LedgerId
from bkstore.lab.workloads.traces import Trace
from bkstore.storage.bookie import Bookie
from bkstore.storage.ledger_storage import LedgerStorage

_FORMAT_LINE = "bkstore-reads 1"

MAX_ENTRIES = 10_000_000  # the maximal number of entry reads in a trace


@contextmanager
def record_reads(source: Bookie | LedgerStorage, target: StrPath) -> Iterator[None]:
    """Record the reads of a bookie or storage while the ``with`` block runs, also those of other
    threads, such as a server's. The file `target` is written when the block ends, even by an
    exception. A line has scope, ledger, first entry and number of entries."""
    check_output(Path(target))
    lines: list[str] = []

    # These replace the methods of `source`, and call those of its class.
    def read_entry(*args: Any, **kwargs: Any) -> bytes:
        record = type(source).read_entry(source, *args, **kwargs)  # type: ignore[arg-type]
        header = record_header(record)
        _append_line(lines, header.ledger, header.entry_id, 1)
        return record

    def read_entries(*args: Any, **kwargs: Any) -> RecordBatch:
        batch = type(source).read_entries(source, *args, **kwargs)  # type: ignore[arg-type]
        if len(batch):
            ledger = LedgerId.of(kwargs["ledger"] if "ledger" in kwargs else args[0])
            _append_line(lines, ledger, int(batch.entries[0]), len(batch))
        return batch

    overridden = {"read_entry": read_entry, "read_entries": read_entries}
    # Attributes of the instance hide the methods of its class until they are deleted.
    vars(source).update(overridden)
    try:
        yield
    finally:
        for method in overridden:
            del vars(source)[method]
        write_output(Path(target), "".join(f"{line}\n" for line in (_FORMAT_LINE, *lines)).encode())


def _append_line(lines: list[str], ledger: LedgerId, first_entry: int, count: int) -> None:
    lines.append(f"{ledger.scope} {ledger.ledger} {first_entry} {count}")


def read_recording(source: StrPath) -> Trace:
    """Return the reads that `record_reads` recorded: a trace has the distinct ledgers, and for each
    entry that was read the number of its ledger and its id. Raises `InvalidArgument` if the file is
    not a recording, or has more than `MAX_ENTRIES` reads."""
    try:
        format_line, *lines = Path(source).read_text(encoding="ascii").splitlines() or [""]
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"{source}: no recording can be read: {error}") from error
    if format_line != _FORMAT_LINE or not lines:
        raise InvalidArgument(f"{source}: no recorded reads: it begins with {format_line[:40]!r}")
    ledger_numbers: dict[LedgerId, int] = {}
    numbers_of_reads, entries, total = [], [], 0
    for line_number, line in enumerate(lines, 2):
        ledger, first_entry, count = _parse_line(source, line_number, line)
        total += count
        if total > MAX_ENTRIES:
            fault = f"more than {MAX_ENTRIES:,} entries are read"
            raise InvalidArgument(f"{source}: line {line_number}: {fault}")
        ledger_number = ledger_numbers.setdefault(ledger, len(ledger_numbers))
        numbers_of_reads.append(np.full(count, ledger_number))
        entries.append(np.arange(first_entry, first_entry + count))
    return Trace(list(ledger_numbers), np.concatenate(numbers_of_reads), np.concatenate(entries))


def _parse_line(source: StrPath, line_number: int, line: str) -> tuple[LedgerId, int, int]:
    """Return (ledger id, first entry, number of entries) of a line of a recording."""
    try:
        scope, ledger, first_entry, count = map(int, line.split())
        ledger_id = LedgerId(scope, ledger)
    except ValueError as error:
        raise InvalidArgument(f"{source}: line {line_number}: {error}") from error
    if not (0 <= first_entry and 1 <= count and first_entry + count < 2**63):
        fault = f"{count} entries from {first_entry} on"
        raise InvalidArgument(f"{source}: line {line_number}: {fault}")
    return ledger_id, first_entry, count


def span_entries(reads: Trace, max_entries: int) -> dict[LedgerId, Int64Array]:
    """Return for each ledger all entry ids from the lowest to the highest one that is read, so that
    a storage can be filled to repeat the reads. Raises `InvalidArgument` if these are more than
    `max_entries` in total."""
    spans = {}
    for number, ledger_id in enumerate(reads.ledgers):
        entry_ids = reads.entry_ids[reads.ledger_numbers == number]
        spans[ledger_id] = int(entry_ids.min()), int(entry_ids.max()) + 1
    total = sum(end - first for first, end in spans.values())
    if total > max_entries:
        limit = f"more than {max_entries:,}"
        raise InvalidArgument(f"the recorded reads span {total:,} entries: {limit}")
    return {ledger_id: np.arange(first, end) for ledger_id, (first, end) in spans.items()}
