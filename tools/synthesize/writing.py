"""Writing a synthetic cluster: the dump, bookie by bookie in several processes, and metadata."""

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

from bkstore.files.disk_changes import UnsyncedFiles
from bkstore.formats.entrylog import HEADER_SIZE
from bkstore.formats.metadata.json_file import ClusterMetadata, encode_file
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerMetadata, Segment
from bkstore.offline.dump.dump_job import TABLES, BookieDump, bookie_to_json, file_to_json
from bkstore.offline.dump.dump_piece import WrittenFile, write_piece
from bkstore.offline.dump.file_names import dump_file_path, file_name
from bkstore.offline.dump.index_rows import PieceIndex
from bkstore.offline.dump.parquet import ParquetTableWriter
from bkstore.offline.dump.partial_dump import PartialDump
from bkstore.offline.dump.plan import DumpPiece
from bkstore.offline.reading.manifest import MANIFEST, encode_manifest
from bkstore.offline.staging_directory import check_target
from bkstore.tables import BOOKIE_FINDINGS, ENTRY_LOGS, LOG_LEDGERS, ConstantColumn, Schema, Table
from tools.synthesize.bookie_entries import RECORD_BYTES, BookieEntries
from tools.synthesize.cluster import ORPHAN, UNCLOSED, SyntheticCluster, bookie_name
from tools.synthesize.expected_results import count_planted
from tools.synthesize.shape import ClusterShape

_LOG_BYTES = 1 << 30

Progress = Callable[[int], None]  # a callback that gets the number of bookies written so far


class _BookieTask(NamedTuple):
    shape: ClusterShape
    bookie: int
    folder: Path
    log_bytes: int


def write_cluster(
    shape: ClusterShape,
    out: str | os.PathLike[str],
    *,
    jobs: int = 1,
    log_bytes: int = _LOG_BYTES,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Write `dump`, `metadata.json` and `planted.json` into the new or empty folder `out`. Returns
    the planted numbers. `jobs` processes write, each with the arrays of the whole cluster. Raises
    `InvalidArgument` if `out` is not empty, `WriteFailed` if the system refuses to write. A million
    entries take about half a second."""
    directory = Path(out)
    check_target(directory)
    directory.mkdir(parents=True, exist_ok=True)
    cluster = SyntheticCluster(shape)
    numbers = count_planted(cluster)
    with PartialDump(directory / "dump", files=UnsyncedFiles()) as partial:
        tasks = [
            _BookieTask(shape, bookie, partial.work, log_bytes) for bookie in range(shape.bookies)
        ]
        tables: dict[str, list[dict[str, Any]]] = {schema.name: [] for schema in TABLES}
        bookies = []
        for task, files in zip(tasks, _write_bookies(tasks, jobs)):
            bookies.append(_add_to_dump(partial, bookie_name(task.bookie), files, tables))
            if progress is not None:
                progress(len(bookies))
        file_names = [file["path"] for files in tables.values() for file in files]
        manifest = encode_manifest(bookies, tables, (), {"length": False})
        partial.finish(file_names, {MANIFEST: manifest})
    numbers["entries"] = sum(file["rows"] for file in tables["entries"])
    (directory / "metadata.json").write_bytes(encode_file(_cluster_metadata(cluster)))
    (directory / "planted.json").write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")
    return numbers


def _write_bookies(tasks: list[_BookieTask], jobs: int) -> Iterator[list[WrittenFile]]:
    if jobs == 1:
        yield from map(_write_bookie, tasks)
        return
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        yield from pool.map(_write_bookie, tasks, chunksize=4)


def _ignore_progress(rows: int) -> None:
    """Ignore a progress report."""


@cache
def _cached_cluster(shape: ClusterShape) -> SyntheticCluster:
    return SyntheticCluster(shape)


def _write_bookie(task: _BookieTask) -> list[WrittenFile]:
    """Write a bookie's files: of its index, as a piece of a dump, then about its logs."""
    name = bookie_name(task.bookie)
    entries = BookieEntries(_cached_cluster(task.shape), task.bookie, task.log_bytes)
    piece = DumpPiece(name, "index", 0, entries.total, live=False, with_lengths=False, logs=())
    index = cast(PieceIndex, entries)  # it has the methods that write_piece calls
    files = write_piece(piece, task.folder, _ignore_progress, UnsyncedFiles(), index).files
    for table in (*_log_tables(name, entries), Table.from_rows(BOOKIE_FINDINGS, [])):
        path = task.folder / f"{file_name(name)}.{table.schema.name}"
        with ParquetTableWriter(path, table.schema, UnsyncedFiles()) as file:
            file.write(table)
        counts = (file.row_count, file.byte_count, file.ledger_range)
        files.append(WrittenFile(table.schema.name, path.name, *counts))
    return files


def _log_tables(bookie: str, entries: BookieEntries) -> Iterator[Table]:
    """Yield the tables `entry_logs` and `log_ledgers` of a bookie, which has one directory."""
    log, ledger, record_counts = entries.logs()
    logs, first_rows, ledger_counts = np.unique(log, return_index=True, return_counts=True)
    log_records = np.add.reduceat(record_counts, first_rows) if logs.size else record_counts
    file_names = [f"{log_id:x}.log" for log_id in logs.tolist()]
    file_bytes = HEADER_SIZE + log_records * RECORD_BYTES
    dir_index, has_map = np.zeros(logs.size, np.int64), np.ones(logs.size, np.bool_)
    columns = (dir_index, logs, file_names, file_bytes, has_map, ledger_counts)
    yield _table(ENTRY_LOGS, bookie, *columns)
    dir_index, ledger_bytes = np.zeros(log.size, np.int64), record_counts * RECORD_BYTES
    yield _table(LOG_LEDGERS, bookie, dir_index, log, *entries.signed_ids(ledger), ledger_bytes)


def _table(schema: Schema, bookie: str, *columns: Any) -> Table:
    bookie_column = ConstantColumn(bookie, len(columns[0]))
    return Table(schema, dict(zip(schema.names, (bookie_column, *columns), strict=True)))


def _add_to_dump(
    partial: PartialDump,
    bookie: str,
    files: list[WrittenFile],
    tables: dict[str, list[dict[str, Any]]],
) -> dict[str, Any]:
    """Move a bookie's files into the dump; return its description for the manifest."""
    bookie_dump = BookieDump(bookie, f"synthetic/{bookie}", None, "idx")
    for file in files:
        path = dump_file_path(file.table, bookie, 0)
        partial.add_file(file, path)
        bookie_dump.rows[file.table] = file.rows
        tables[file.table].append(file_to_json(path, bookie, file))
    return bookie_to_json(bookie_dump)


def _cluster_metadata(cluster: SyntheticCluster) -> ClusterMetadata:
    """Return the metadata of all ledgers except the orphans."""
    shape = cluster.shape
    scopes, numbers = (column.tolist() for column in cluster.ids())
    bookies = frozenset(map(bookie_name, range(shape.bookies)))
    ledgers = []
    for ledger in np.flatnonzero(cluster.kinds != ORPHAN).tolist():
        is_open = cluster.kinds[ledger] == UNCLOSED
        size = int(cluster.sizes[ledger])
        metadata = LedgerMetadata(
            LedgerId.from_signed(scopes[ledger], numbers[ledger]),
            shape.ensemble_size,
            shape.write_quorum,
            shape.ack_quorum,
            tuple(Segment(first, tuple(names)) for first, names in cluster.ensembles_of(ledger)),
            state="OPEN" if is_open else "CLOSED",
            last_entry_id=-1 if is_open else size - 1,
            length=0 if is_open else size * RECORD_BYTES,
        )
        ledgers.append(metadata)
    return ClusterMetadata(tuple(ledgers), bookies, frozenset(), {})
