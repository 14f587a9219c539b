"""Rows of a dump in the order of an index's keys, one a key, whatever order they come in.

The order is unsigned: scope, ledger, entry. Of several rows of one entry, that with the highest
location wins (log id, then position): entry logs grow, so it is the one that was put last, and
the order of rows and files says nothing. Rows that come in order are passed on, others are sorted
on disk.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from bkstore.files.disk_changes import OS_FILES, Files
from bkstore.index.api import IndexBatch
from bkstore.offline.index_building.row_writers import rows_of_directory
from bkstore.offline.load.declared_order import declared, task_rows
from bkstore.offline.load.dump_rows import LoadSource, read_rows
from bkstore.offline.reading.dump_file import DumpFile
from bkstore.offline.reading.read_tasks import sorted_tasks
from bkstore.offline.spilled_rows.rows_by_key import RowsByKey

RUN_ROWS = 1 << 20
"""Rows that are sorted at a time: 48 MiB, and as much again while they are sorted."""


@dataclass
class _Place:
    """What was seen of the rows of one directory, or is `declared` of them."""

    rows: int = 0
    ordered: bool = True
    last: tuple[int, int, int] = (-1, -1, -1)
    files: list[DumpFile] = field(default_factory=list)
    declared: bool = False

    @classmethod
    def of(cls, files: list[DumpFile]) -> _Place:
        """Return what is declared of sorted files."""
        return cls(sum(file.rows for file in files), files=files, declared=True)


@dataclass
class Survey:
    """How many rows there are, and for each directory which files have any, in order or not."""

    places: list[_Place]

    @property
    def rows(self) -> int:
        """Rows of the bookie, duplicates too."""
        return sum(place.rows for place in self.places)


def survey(source: LoadSource) -> Survey:
    """Return how the rows lie: as the manifest says, or as is seen by reading all of them once.

    Reading takes about 40 ns a row. Raises `CorruptionError` for rows that no index has.
    """
    lies = declared(source)
    if not any(files.others for files in lies):
        return Survey([_Place.of(files.ready) for files in lies])
    made = Survey([_Place() for _ in range(source.directories)])
    for file in source.files:
        for rows in read_rows(source, [file]):
            for at, place in enumerate(made.places):
                part = rows_of_directory(rows, at, source.directories)
                if part.entry_id.size:
                    _look(place, part)
                    if file not in place.files[-1:]:
                        place.files.append(file)
    return made


def _look(place: _Place, rows: IndexBatch) -> None:
    if place.ordered:
        place.ordered = _ascending(rows, place.last)
        scope, ledger, entry = (int(column[-1:].view(np.uint64)[0]) for column in rows[1:4])
        place.last = scope, ledger, entry
    place.rows += rows.entry_id.size


def _ascending(rows: IndexBatch, last: tuple[int, int, int]) -> bool:
    """Whether the keys ascend strictly, from above `last` on."""
    scope, ledger, entry = (column.view(np.uint64) for column in rows[1:4])
    if (int(scope[0]), int(ledger[0]), int(entry[0])) <= last:
        return False
    further = (ledger[1:] == ledger[:-1]) & (entry[1:] > entry[:-1])
    up = (ledger[1:] > ledger[:-1]) | further
    return bool(((scope[1:] > scope[:-1]) | (scope[1:] == scope[:-1]) & up).all())


class OrderedRows:
    """The rows of one directory in the order of keys, one a key, as often as they are asked for.

    `duplicates` counts the rows that lost against another of the same key, after a pass.
    `scratch` takes the runs of rows that are not in order; they stay for the next pass.
    """

    def __init__(
        self,
        source: LoadSource,
        seen: Survey,
        directory: int,
        scratch: Path,
        run_rows: int = RUN_ROWS,
        files: Files = OS_FILES,
    ) -> None:
        self.duplicates = 0
        self._source = source
        self._place = seen.places[directory]
        self._directory = directory
        self._sorted = RowsByKey(scratch, f"rows-{directory}", files, run_rows)

    def __iter__(self) -> Iterator[IndexBatch]:
        if self._place.ordered:
            yield from self._raw()
            return
        if not self._sorted.rows:
            for rows in self._raw():
                self._sorted.add(rows, rows.location)
        yield from self._sorted
        self.duplicates = self._sorted.duplicates

    def _raw(self) -> Iterator[IndexBatch]:
        if self._place.declared:
            for task in sorted_tasks([self._place.files], self._place.rows):
                yield from task_rows(self._source, self._directory, task)
            return
        for rows in read_rows(self._source, self._place.files):
            part = rows_of_directory(rows, self._directory, self._source.directories)
            if part.entry_id.size:
                yield part
