"""Comparing a new index with sorted files range by range: what a task reads of both sides.

The ranges of a ledger directory follow each other without a gap, so that a row of the index that
no file has is in one of them too.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from bkstore.errors import CorruptionError
from bkstore.formats.idxfile import index_path
from bkstore.ids import LedgerId
from bkstore.index.api import Finding, IndexBatch
from bkstore.offline.dump.index_rows import PieceIndex
from bkstore.offline.dump.plan import Piece
from bkstore.offline.index_building.assembly import currents
from bkstore.offline.index_building.row_comparison import compare_rows
from bkstore.offline.load.declared_order import declared, task_rows
from bkstore.offline.load.dump_rows import LoadSource
from bkstore.offline.reading.dump_file import row_groups
from bkstore.offline.reading.file_parts import NO_PART, part_of
from bkstore.offline.reading.places import opened_parquet
from bkstore.offline.reading.read_tasks import Read, Task, sorted_tasks

_LOWEST = LedgerId(0, 0)


class ComparedRange(NamedTuple):
    """A share of a file, and the ledgers of the ledger directory `home` that go with it.

    The first share of a file goes on from the file before, the last one of all to the end.
    `ledgers` are those of the file's range that have an index file. No `read`: all of a directory
    of which the dump has nothing.
    """

    home: int
    read: Read | None
    ledgers: tuple[LedgerId, ...]

    @property
    def rows(self) -> int:
        """About how many rows the dump has of them."""
        return 0 if self.read is None else self.read.about


def compared_ranges(
    source: LoadSource, rows: int, ledgers: Sequence[LedgerId]
) -> Iterator[ComparedRange]:
    """Yield ranges of about `rows` rows that are all of a source whose files are declared sorted.

    `ledgers` are those of the index, in order, where it is index files; else none.
    """
    for home, files in enumerate(declared(source)):
        lasts = {file.path: file.ledgers.last for file in files.ready if file.ledgers is not None}
        reads = [task.sides[0][0] for task in sorted_tasks([files.ready], rows)]
        above, at = None, 0
        for path, shares in groupby(reads, key=lambda read: read.path):
            upto = None if path == reads[-1].path else lasts[path]
            till = len(ledgers) if upto is None else bisect_right(ledgers, upto)
            for read in shares:
                mine = read._replace(above=above, upto=upto)
                yield ComparedRange(home, mine, tuple(ledgers[at:till]))
            above, at = upto, till
        if not reads:
            yield ComparedRange(home, None, tuple(ledgers))


def _behind(ledger: LedgerId) -> LedgerId:
    """Return the ledger behind one that is not the last there can be."""
    most = 2**63 - 1 if ledger.scope == 0 else 2**64 - 1
    if ledger.ledger < most:
        return LedgerId(ledger.scope, ledger.ledger + 1)
    return LedgerId(ledger.scope + 1, 0)


def compare_range(source: LoadSource, to: str, data: Path, part: ComparedRange) -> int:
    """Return how many rows the index below `data` and the dump have of a range.

    Both are read in order, a batch of each at a time. Raises `CorruptionError` at the first row
    that differs, and for what cannot be read.
    """
    above, upto = None, None
    if part.read is not None:
        with opened_parquet(part.read.path) as file:
            found = part_of(part.read, row_groups(file.metadata))
        if found == NO_PART:
            return 0  # the file has fewer shares than it was cut into
        above, upto = found.above, found.upto
    mine = (n for n in part.ledgers if (above is None or n > above) and (upto is None or n <= upto))
    current = currents(data, source.directories)[part.home]
    piece = Piece(
        source.bookie,
        "index",
        number=0,
        weight=0,
        live=False,
        length=False,
        logs=(),
        layout="idx" if to == "idx" else "rocksdb",
        currents=(current,),
        first=_LOWEST if above is None else _behind(above),
        stop=None if upto is None else _behind(upto),
        files=tuple((name, str(current / index_path(name))) for name in mine),
    )
    task = Task((() if part.read is None else (part.read,),))
    with PieceIndex(piece) as index:
        return compare_rows(task_rows(source, part.home, task), _sound(index), data)


def _sound(index: PieceIndex) -> Iterator[IndexBatch]:
    """Yield the rows of an index; raise what it finds."""
    findings: list[Finding] = []
    for rows in index.rows(findings):
        _raise(findings)
        yield rows
    _raise(findings)


def _raise(findings: Sequence[Finding]) -> None:
    for found in findings:
        raise CorruptionError(found.file, found.offset, found.detail)
