"""Writing a synthetic cluster: the dump, bookie by bookie in some processes, and its metadata."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from bkstore.files.disk_changes import Files
from bkstore.formats.metadata.json_file import ClusterMetadata, encode_file
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerMetadata, Segment
from bkstore.offline.dump.index_rows import PieceIndex
from bkstore.offline.dump.parquet import ParquetFile
from bkstore.offline.dump.partial_dump import PartialDump, dumped_name
from bkstore.offline.dump.piece import FileDone, write_piece
from bkstore.offline.dump.plan import Piece, file_name
from bkstore.offline.dump.run import TABLES, BookieDump, described, listed
from bkstore.offline.reading.manifest import encode_manifest
from bkstore.offline.staging_directory import check_target
from bkstore.tables import BOOKIE_FINDINGS, ENTRY_LOGS, LOG_LEDGERS, Repeated, Schema, Table
from tools.synthesize.bookie_entries import RECORD, BookieEntries
from tools.synthesize.cluster import ORPHAN, UNCLOSED, Cluster, bookie_name
from tools.synthesize.planted import planted
from tools.synthesize.shape import Shape

_LOG_BYTES = 1 << 30

Progress = Callable[[int], None]
"""Told how many bookies are written."""


class _Unsynced(Files):
    """Files of which nothing is made durable: they can be made again."""

    def fsync(self, fd: int) -> None:
        """Do nothing."""

    def sync_dir(self, path: str | os.PathLike[str]) -> None:
        """Do nothing."""


class _Job(NamedTuple):
    """One bookie, and where its files go."""

    shape: Shape
    bookie: int
    folder: Path
    log_bytes: int


def write(
    shape: Shape,
    out: str | os.PathLike[str],
    *,
    jobs: int = 1,
    log_bytes: int = _LOG_BYTES,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Write `dump`, `metadata.json` and `planted.json` into the new or empty folder `out`.

    Returns what is planted. `jobs` processes write, each with the arrays of the whole cluster.
    Raises `InvalidArgument` where something is there already, `WriteFailed` where the system
    refuses. Cost: about half a second for a million entries.
    """
    top = Path(out)
    check_target(top)
    top.mkdir(parents=True, exist_ok=True)
    cluster = Cluster(shape)
    numbers = planted(cluster)
    with PartialDump(top / "dump", files=_Unsynced()) as partial:
        work = [_Job(shape, n, partial.work, log_bytes) for n in range(shape.bookies)]
        tables: dict[str, list[dict[str, Any]]] = {schema.name: [] for schema in TABLES}
        bookies = []
        for job, files in zip(work, _made(work, jobs)):
            bookies.append(_take(partial, bookie_name(job.bookie), files, tables))
            if progress is not None:
                progress(len(bookies))
        names = [file["path"] for files in tables.values() for file in files]
        partial.finish(names, encode_manifest(bookies, tables, (), {"length": False}))
    numbers["entries"] = sum(file["rows"] for file in tables["entries"])
    (top / "metadata.json").write_bytes(encode_file(_metadata(cluster)))
    (top / "planted.json").write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")
    return numbers


def _made(work: list[_Job], jobs: int) -> Iterator[list[FileDone]]:
    """Yield the files of each bookie, in order."""
    if jobs == 1:
        yield from map(_write_bookie, work)
        return
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        yield from pool.map(_write_bookie, work, chunksize=4)


def _say_nothing(rows: int) -> None:
    """Take how far a piece is."""


@cache
def _cluster(shape: Shape) -> Cluster:
    return Cluster(shape)


def _write_bookie(job: _Job) -> list[FileDone]:
    """Write all files of one bookie into the work folder."""
    name = bookie_name(job.bookie)
    entries = BookieEntries(_cluster(job.shape), job.bookie, job.log_bytes)
    piece = Piece(name, "index", 0, entries.total, False, False, ())
    index = cast(PieceIndex, entries)  # it answers what writing a piece asks
    done = write_piece(piece, job.folder, _say_nothing, _Unsynced(), index).files
    for table in (*_log_tables(name, entries), Table.from_rows(BOOKIE_FINDINGS, [])):
        path = job.folder / f"{file_name(name)}.{table.schema.name}"
        with ParquetFile(path, table.schema, _Unsynced()) as file:
            file.write(table)
        done.append(FileDone(table.schema.name, path.name, file.rows, file.bytes, file.ledgers))
    return done


def _log_tables(name: str, entries: BookieEntries) -> Iterator[Table]:
    """Yield `entry_logs` and `log_ledgers` of a bookie."""
    log, ledger, records = entries.logs()
    logs, first, ledgers = np.unique(log, return_index=True, return_counts=True)
    sums = np.add.reduceat(records, first) if logs.size else records
    yield _table(
        ENTRY_LOGS,
        name,
        np.zeros(logs.size, np.int64),
        logs,
        [f"{each:x}.log" for each in logs.tolist()],
        sums * RECORD + 1024,
        np.ones(logs.size, np.bool_),
        ledgers,
    )
    where = np.zeros(log.size, np.int64)
    yield _table(LOG_LEDGERS, name, where, log, *entries.ids_of(ledger), records * RECORD)


def _table(schema: Schema, name: str, *columns: Any) -> Table:
    first = Repeated(name, len(columns[0]))
    return Table(schema, dict(zip(schema.names, (first, *columns), strict=True)))


def _take(
    partial: PartialDump,
    name: str,
    files: list[FileDone],
    tables: dict[str, list[dict[str, Any]]],
) -> dict[str, Any]:
    """Take a bookie's files out of work; return what the manifest says of it."""
    made = BookieDump(name, f"synthetic/{name}", None, "idx")
    for file in files:
        path = dumped_name(file.table, name, 0)
        partial.add(file, path)
        made.rows[file.table] = file.rows
        tables[file.table].append(listed(path, name, file))
    return described(made)


def _metadata(cluster: Cluster) -> ClusterMetadata:
    """Return the metadata of all ledgers but the orphans."""
    shape = cluster.shape
    scopes, numbers = (column.tolist() for column in cluster.ids())
    bookies = frozenset(map(bookie_name, range(shape.bookies)))
    ledgers = []
    for ledger in np.flatnonzero(cluster.kinds != ORPHAN).tolist():
        is_open = cluster.kinds[ledger] == UNCLOSED
        size = int(cluster.sizes[ledger])
        said = LedgerMetadata(
            LedgerId.from_signed(scopes[ledger], numbers[ledger]),
            shape.ensemble_size,
            shape.write_quorum,
            shape.ack_quorum,
            tuple(Segment(first, tuple(names)) for first, names in cluster.ensembles_of(ledger)),
            state="OPEN" if is_open else "CLOSED",
            last_entry_id=-1 if is_open else size - 1,
            length=0 if is_open else size * RECORD,
        )
        ledgers.append(said)
    return ClusterMetadata(tuple(ledgers), bookies, frozenset(), {})
