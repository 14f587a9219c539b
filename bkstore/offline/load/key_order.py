"""Rows of a dump in the order of an index's keys, one a key, whatever order they come in.

The order is unsigned: scope, ledger, entry. Of several rows of one entry, that with the highest
location wins (log id, then position): entry logs grow, so it is the one that was put last, and
the order of rows and files says nothing. Rows that come in order are passed on. Others are
spread over bucket files by key ranges, and sorted bucket by bucket: memory is one bucket, disk
32 bytes a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bkstore.files.disk_changes import OS_FILES, Files
from bkstore.files.os_errors import writing
from bkstore.files.spill_files import append_spill, read_spill
from bkstore.ids import Int64Array
from bkstore.index.api import IndexBatch
from bkstore.offline.index_building.row_writers import rows_of_directory
from bkstore.offline.load.declared_order import declared, task_rows
from bkstore.offline.load.dump_rows import LoadSource, read_rows
from bkstore.offline.reading.dump_file import DumpFile
from bkstore.offline.reading.read_tasks import sorted_tasks

BUCKET_ROWS = 1 << 21
"""Rows that a bucket aims at: 64 MiB, and as much again while they are sorted."""

_SAMPLES = 64
"""Sampled keys a bucket: buckets come out within some 40 % of their aim."""

_KEY = np.dtype("S24")
Keys = npt.NDArray[Any]


@dataclass
class _Place:
    """What was seen of the rows of one directory, or is `declared` of them."""

    rows: int = 0
    ordered: bool = True
    last: tuple[int, int, int] = (-1, -1, -1)
    samples: list[Keys] = field(default_factory=list)
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


def survey(source: LoadSource, bucket_rows: int = BUCKET_ROWS) -> Survey:
    """Say how the rows lie: as the manifest says, or as is seen by reading all of them once.

    Reading takes about 40 ns a row; memory: the sampled keys.
    Raises `CorruptionError` for rows that no index has.
    """
    lies = declared(source)
    if not any(files.others for files in lies):
        return Survey([_Place.of(files.ready) for files in lies])
    made = Survey([_Place() for _ in range(source.directories)])
    step = max(bucket_rows // _SAMPLES, 1)
    for file in source.files:
        for rows in read_rows(source, [file]):
            for at, place in enumerate(made.places):
                part = rows_of_directory(rows, at, source.directories)
                if part.entry_id.size:
                    _look(place, part, step)
                    if file not in place.files[-1:]:
                        place.files.append(file)
    return made


def _look(place: _Place, rows: IndexBatch, step: int) -> None:
    if place.ordered:
        place.ordered = _ascending(rows, place.last)
        scope, ledger, entry = (int(column[-1:].view(np.uint64)[0]) for column in rows[1:4])
        place.last = scope, ledger, entry
    first = -place.rows % step
    place.samples.append(_packed(IndexBatch(*(column[first::step] for column in rows))))
    place.rows += rows.entry_id.size


def _ascending(rows: IndexBatch, last: tuple[int, int, int]) -> bool:
    """Whether the keys ascend strictly, from above `last` on."""
    scope, ledger, entry = (column.view(np.uint64) for column in rows[1:4])
    if (int(scope[0]), int(ledger[0]), int(entry[0])) <= last:
        return False
    further = (ledger[1:] == ledger[:-1]) & (entry[1:] > entry[:-1])
    up = (ledger[1:] > ledger[:-1]) | further
    return bool(((scope[1:] > scope[:-1]) | (scope[1:] == scope[:-1]) & up).all())


def _packed(rows: IndexBatch) -> Keys:
    """Return the keys as 24 big-endian bytes, whose order is the order of keys.

    Only compared, never taken out: numpy strips their trailing zeros then.
    """
    words = np.empty((rows.entry_id.size, 3), ">i8")
    for at, column in enumerate(rows[1:4]):
        words[:, at] = column
    packed: Keys = words.view(_KEY).ravel()
    return packed


class OrderedRows:
    """The rows of one directory in the order of keys, one a key, as often as they are asked for.

    `duplicates` counts the rows that lost against another of the same key, after a pass.
    `scratch` takes the bucket files, if there must be any; they stay for the next pass.
    """

    def __init__(
        self,
        source: LoadSource,
        seen: Survey,
        directory: int,
        scratch: Path,
        bucket_rows: int = BUCKET_ROWS,
        files: Files = OS_FILES,
    ) -> None:
        self.duplicates = 0
        self._source = source
        self._place = seen.places[directory]
        self._directory = directory
        self._scratch = scratch
        self._files = files
        self._bucket_rows = bucket_rows
        self._buckets: list[Path] | None = None

    def __iter__(self) -> Iterator[IndexBatch]:
        if self._place.ordered:
            yield from self._raw()
            return
        if self._buckets is None:
            self._buckets = self._spread()
        self.duplicates = 0
        for path in self._buckets:
            columns = np.frombuffer(read_spill(path), np.int64).reshape(-1, 4).T
            rows = _sorted_distinct(columns)
            self.duplicates += columns.shape[1] - rows.entry_id.size
            if rows.entry_id.size:
                yield rows

    def _raw(self) -> Iterator[IndexBatch]:
        if self._place.declared:
            for task in sorted_tasks([self._place.files], self._place.rows):
                yield from task_rows(self._source, self._directory, task)
            return
        for rows in read_rows(self._source, self._place.files):
            part = rows_of_directory(rows, self._directory, self._source.directories)
            if part.entry_id.size:
                yield part

    def _spread(self) -> list[Path]:
        """Write every row into the bucket of its key, and return the buckets in order."""
        splits = _splits(self._place.samples, self._place.rows, self._bucket_rows)
        count = len(splits) + 1
        buckets = [self._scratch / f"bucket-{self._directory}-{n:05d}" for n in range(count)]
        with writing(self._scratch):
            self._files.makedirs(self._scratch)
        for path in buckets:
            append_spill(path, b"", self._files)  # an empty bucket is a file, too
        for rows in self._raw():
            homes = np.searchsorted(splits, _packed(rows), side="right")
            order = np.argsort(homes, kind="stable")
            data = np.stack(rows[1:], axis=1)[order]
            borders = np.searchsorted(homes[order], np.arange(count + 1))
            for path, lo, hi in zip(buckets, borders, borders[1:]):
                if hi > lo:
                    append_spill(path, data[lo:hi].data, self._files)
        return buckets


def _splits(samples: Sequence[Keys], rows: int, bucket_rows: int) -> Keys:
    """Return the keys at which buckets begin, but for the first."""
    count = -(-rows // bucket_rows)
    keys = np.sort(np.concatenate(samples)) if samples else np.empty(0, _KEY)
    at = np.arange(1, count) * keys.size // max(count, 1)
    return keys[at]


def _sorted_distinct(columns: Int64Array) -> IndexBatch:
    """Return the rows of (scope, ledger, entry, location) in order, the last of each key."""
    flip = np.int64(-(1 << 63))
    scope, ledger, entry, location = columns
    order = np.lexsort((location, entry, ledger ^ flip, scope ^ flip))
    scope, ledger, entry, location = (np.ascontiguousarray(c[order]) for c in columns)
    same = (scope[1:] == scope[:-1]) & (ledger[1:] == ledger[:-1]) & (entry[1:] == entry[:-1])
    keep = np.concatenate((~same, np.ones(min(entry.size, 1), bool)))
    zero = np.broadcast_to(np.int64(0), int(keep.sum()))
    return IndexBatch(zero, scope[keep], ledger[keep], entry[keep], location[keep])
