"""Internal rows of a database: keys with sequence number, kind and value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from bkstore.formats.rocksdb.log.write_batch import BatchRows


class InternalRow(NamedTuple):
    """One internal row: its key without the trailer, and what that says. A sequence of -1 is not
    known."""

    key: bytes
    sequence: int
    kind: int
    value: bytes


def iterate_rows(batches: Iterable[BatchRows]) -> Iterator[InternalRow]:
    """Yield the rows of write batches."""
    for batch in batches:
        numbers = zip(batch.sequences.tolist(), batch.kinds.tolist())
        for row, (sequence, kind) in enumerate(numbers):
            yield InternalRow(batch.key(row), sequence, kind, batch.value(row))
