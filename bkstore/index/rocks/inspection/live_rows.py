"""The live rows of a database: what a reader of it gets, after all files were merged."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from bkstore.errors import CorruptionError, UnsupportedLayout
from bkstore.formats.rocksdb.keys import ValueType
from bkstore.ids import LedgerId
from bkstore.index.api import Finding
from bkstore.index.rocks.inspection.internal_rows import InternalRow
from bkstore.index.rocks.keys import key_words, ledger_range
from bkstore.index.rocks.tables.damage import UnknownRange
from bkstore.index.rocks.tables.database_reader import DatabaseReader

_WORDS_OF_KEY = {"locations": 2, "locations-128": 3}


def read_live_rows(
    path: Path, findings: list[Finding], live: bool = False, ledger: LedgerId | None = None
) -> Iterator[InternalRow]:
    """Yield the live rows of the database at `path` in the order of keys: those that are neither
    deleted nor replaced. Each has the sequence number of its write, -1 in `ledgers`. Of `locations`
    only the rows of `ledger`, if it is given. Ranges of keys that damage makes unknown are left
    out, and are findings. Memory: some MiB for `locations`, all rows for `ledgers`."""
    unknown: list[UnknownRange] = []
    words = _WORDS_OF_KEY.get(path.name)  # None for `ledgers`: its keys have several widths
    if words is not None and ledger is not None and words != key_words(ledger):
        return  # the ledger is in the database of the other key width
    try:
        with closing(DatabaseReader(path, live=live)) as reader:
            if words is None:
                for key, value in reader.items(unknown):
                    yield InternalRow(key, -1, ValueType.VALUE, value)
                return
            start, stop = (None, None) if ledger is None else ledger_range(ledger)
            for batch in reader.rows(words, start, stop, damage=unknown):
                numbers = zip(batch.sequences.tolist(), batch.values.tolist())
                for row, (sequence, value) in enumerate(numbers):
                    stored = value.to_bytes(8, "big", signed=True)
                    yield InternalRow(batch.key_at(row), sequence, ValueType.VALUE, stored)
    except (CorruptionError, UnsupportedLayout) as error:
        findings.append(Finding.of(error))
    finally:
        findings += [Finding.of(each.error()) for each in unknown]
