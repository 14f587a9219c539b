"""Reads of a bookie or storage, written down while it runs, and read again as a trace.

The file is text: a line that names the format, then a line a read, in the order in which they were
answered: scope, ledger, first entry, how many entries. Reads that were not answered are not there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from bkstore import Bookie, LedgerStorage
from bkstore.errors import InvalidArgument
from bkstore.files.disk_changes import StrPath
from bkstore.files.user_outputs import check_output, write_output
from bkstore.formats.entry import RecordBatch, record_header
from bkstore.ids import Int64Array, LedgerId
from tools.lab.workloads.traces import Trace

_FIRST = "bkstore-reads 1"

MOST = 10_000_000
"""Entries that are read in a trace, at most."""


@contextmanager
def recording(source: Bookie | LedgerStorage, target: StrPath) -> Iterator[None]:
    """Write down what is read of a bookie or storage while the block runs.

    Other threads' reads too, such as those of a server over the bookie. The file is written at
    the end of the block, however it ends.
    """
    check_output(Path(target))
    lines: list[str] = []

    def read_entry(*words: Any, **named: Any) -> bytes:
        record = type(source).read_entry(source, *words, **named)  # type: ignore[arg-type]
        header = record_header(record)
        _note(lines, header.ledger, header.entry_id, 1)
        return record

    def read_entries(*words: Any, **named: Any) -> RecordBatch:
        batch = type(source).read_entries(source, *words, **named)  # type: ignore[arg-type]
        if len(batch):
            ledger = LedgerId.of(named["ledger"] if "ledger" in named else words[0])
            _note(lines, ledger, int(batch.entries[0]), len(batch))
        return batch

    overridden = {"read_entry": read_entry, "read_entries": read_entries}
    vars(source).update(overridden)
    try:
        yield
    finally:
        for name in overridden:
            del vars(source)[name]
        write_output(Path(target), "".join(f"{line}\n" for line in (_FIRST, *lines)).encode())


def _note(lines: list[str], ledger: LedgerId, first: int, count: int) -> None:
    lines.append(f"{ledger.scope} {ledger.ledger} {first} {count}")


def read_recording(source: StrPath) -> Trace:
    """Return the reads of a recording, one an entry; `InvalidArgument` for what is none."""
    try:
        first, *lines = Path(source).read_text(encoding="ascii").splitlines() or [""]
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"{source}: no recording can be read: {error}") from error
    if first != _FIRST or not lines:
        raise InvalidArgument(f"{source}: no recorded reads: it begins with {first[:40]!r}")
    numbers: dict[LedgerId, int] = {}
    which, entries, asked = [], [], 0
    for at, line in enumerate(lines, 2):
        ledger, begin, count = _fields(source, at, line)
        asked += count
        if asked > MOST:
            raise InvalidArgument(f"{source}: line {at}: more than {MOST:,} entries are read")
        which.append(np.full(count, numbers.setdefault(ledger, len(numbers))))
        entries.append(np.arange(begin, begin + count))
    return Trace(list(numbers), np.concatenate(which), np.concatenate(entries))


def _fields(source: StrPath, at: int, line: str) -> tuple[LedgerId, int, int]:
    try:
        scope, ledger, begin, count = map(int, line.split())
        name = LedgerId(scope, ledger)
    except ValueError as error:
        raise InvalidArgument(f"{source}: line {at}: {error}") from error
    if not (0 <= begin and 1 <= count and begin + count < 2**63):
        raise InvalidArgument(f"{source}: line {at}: {count} entries from {begin} on")
    return name, begin, count


def spanned(reads: Trace, most: int) -> dict[LedgerId, Int64Array]:
    """Return for each ledger the entries from the lowest to the highest that is read.

    Raises `InvalidArgument` where they are more than `most` together.
    """
    spans = [
        (int(reads.entry[reads.which == at].min()), int(reads.entry[reads.which == at].max()))
        for at in range(len(reads.ledgers))
    ]
    size = sum(last - first + 1 for first, last in spans)
    if size > most:
        raise InvalidArgument(f"the recorded reads span {size:,} entries: more than {most:,}")
    return {name: np.arange(a, b + 1) for name, (a, b) in zip(reads.ledgers, spans)}
