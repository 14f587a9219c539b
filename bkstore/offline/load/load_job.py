"""Load a dump into a new index: `entries` and `ledgers` of one bookie, RocksDB or index files.

A `LoadEngine` writes the rows as pieces, RocksDB table files or trees of index files, which
`offline.index_building` assembles; the index is compared with the dump, then published.
`LocalLoadEngine` runs in one process; Spark's is `bkstore.spark.load`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from bkstore.arguments import boolean, integer, optional
from bkstore.errors import CorruptionError, UnsupportedLayout
from bkstore.files.disk_changes import OS_FILES, Files
from bkstore.files.user_outputs import refuse_inputs
from bkstore.ids import LedgerId
from bkstore.index.api import EntryIndex, Finding, IndexBatch, LedgerState
from bkstore.offline.index_building.assembly import build_index, current_dirs
from bkstore.offline.index_building.ledger_states import check_storable, compare_states
from bkstore.offline.index_building.row_comparison import compare_rows
from bkstore.offline.index_building.row_writers import TableFile, open_row_writer
from bkstore.offline.load.dump_rows import LoadSource, open_load_source
from bkstore.offline.load.key_order import RUN_ROWS, OrderedRows, survey_order
from bkstore.offline.load.merged_ledger_states import read_states
from bkstore.offline.reading.file_locations import is_remote, require_local_path
from bkstore.offline.staging_directory import StagingDirectory, check_target
from bkstore.storage.directories.layout import check_layout
from bkstore.storage.read_only.bookie_dir import open_index

IndexLayout = Literal["rocksdb", "idx"]


class LoadProgress(NamedTuple):
    """Progress of a load: current step, rows done and in total (all steps), rows of this step."""

    step: str
    done: int
    total: int
    rows: int


@dataclass
class LoadResult:
    """What a load made: `rows` are in the index, `duplicates` were dropped for other rows."""

    bookie: str
    layout: IndexLayout
    rows: int = 0
    duplicates: int = 0
    ledgers: int = 0
    directories: int = 1
    compared: bool = False
    findings: list[Finding] = field(default_factory=list)


@dataclass(frozen=True)
class LoadJob:
    """The input of an engine: read `source`, write pieces for layout `layout` below `work`."""

    source: LoadSource
    states: dict[LedgerId, LedgerState]
    layout: IndexLayout
    work: Path
    files: Files
    report: Callable[[str, int], None]


class LoadEngine(Protocol):
    """Writes the rows of a dump as pieces, and compares them with an index afterwards."""

    def write(self, job: LoadJob) -> tuple[list[TableFile], int]:
        """Write rows in order, one per key; return the pieces and the number of duplicates."""

    def compare(self, job: LoadJob, index: EntryIndex, data: Path) -> int:
        """Return the number of rows in both; raise `CorruptionError` if the index differs."""


class LocalLoadEngine:
    """Runs in this process: rows in order are passed on, others are sorted on disk."""

    def __init__(self, run_rows: int = RUN_ROWS) -> None:
        self._run_rows = integer(1)("run_rows", run_rows)
        self._ordered_rows: list[OrderedRows] = []

    def write(self, job: LoadJob) -> tuple[list[TableFile], int]:
        """Write all rows in key order; return the files with their rows, and the number of
        duplicates. Reads the dump twice, the first time for its order. Some 0.3 us a row."""
        scratch = job.work / "sorted"
        self._ordered_rows = [
            OrderedRows(job.source, directory_rows, dir_index, scratch, self._run_rows, job.files)
            for dir_index, directory_rows in enumerate(survey_order(job.source))
        ]
        row_count = 0
        with open_row_writer(job.layout, job.work / "local", job.files, job.states) as writer:
            for dir_index, ordered_rows in enumerate(self._ordered_rows):
                for batch in ordered_rows:
                    writer.add(dir_index, batch)
                    row_count += batch.entry_id.size
                    job.report("written", row_count)
            pieces = writer.finish()
        return pieces, sum(ordered.duplicates for ordered in self._ordered_rows)

    def compare(self, job: LoadJob, index: EntryIndex, data: Path) -> int:
        """Read the rows again, batch by batch with those of the index."""
        return compare_rows(self._read_rows(job), index.scan(), data)

    def _read_rows(self, job: LoadJob) -> Iterator[IndexBatch]:
        """Yield the rows that were written, again, and report how many were compared."""
        row_count = 0
        for ordered_rows in self._ordered_rows:
            for batch in ordered_rows:
                yield batch
                row_count += batch.entry_id.size
                job.report("compared", row_count)


def load(
    dump: str | os.PathLike[str],
    out: str | os.PathLike[str],
    to: IndexLayout = "rocksdb",
    progress: Callable[[LoadProgress], None] | None = None,
    *,
    bookie: str | None = None,
    directories: int | None = None,
    compare: bool = True,
    engine: LoadEngine | None = None,
    files: Files = OS_FILES,
) -> LoadResult:
    """Build the index of a dumped bookie at `out`, which is new or an empty folder; return counts.

    `dump` is a path, or a URI (`docs/spark.md`); `bookie` selects one of several. Entries may come
    in any order, and more than once: the highest location (log id, then position) wins. Ledgers
    keep their master keys, flags and explicit LACs. A RocksDB bookie of several directories becomes
    ``out/ledgers0``, ...; else `out` has one ``current/``. Unless `compare` is False, each row and
    state of the index is then compared with the dump. The index is built in ``OUT.partial`` and
    renamed to `out` at the end; a folder of that name that is not from a load is refused unchanged.

    Raises `InvalidArgument` for bad arguments, `CorruptionError` for a file that is not a dump's,
    `UnsupportedLayout` for one with other columns, or a state or directories that the layout cannot
    have, `WriteFailed` if the system refuses; `out` does not exist then. Memory: some 300 bytes a
    ledger, and about 300 MiB.

    >>> import tempfile
    >>> from bkstore import open_index
    >>> from bkstore.index.hierarchical import HierarchicalIndex
    >>> from bkstore.offline.dump import dump
    >>> with tempfile.TemporaryDirectory() as top:
    ...     with HierarchicalIndex(f"{top}/b", writable=True) as index:
    ...         index.put_many(7, [0, 1, 3], [1028, 1100, 1200])
    ...     result = dump([f"{top}/b"], f"{top}/dump")
    ...     made = load(f"{top}/dump", f"{top}/rocks", "rocksdb")
    ...     with open_index(f"{top}/rocks") as index:
    ...         made.rows, index.layout, index.get(7, 3)
    (3, 'rocksdb', 1200)
    """
    _check_arguments(to, directories, compare)
    require_local_path(out, "an index")
    source = open_load_source(dump, bookie, directories)
    target = Path(out)
    _check_target(source, target, to)
    result = LoadResult(source.bookie, to, findings=list(source.findings))
    result.directories = source.directories
    states = read_states(source, result.findings)
    check_storable(states, to)
    # Write the rows in key order, build the index from them, compare it, then give it its name.
    with StagingDirectory(target, "load", files) as staging:
        report = _make_reporter(progress, source.rows, passes=2 if compare else 1)
        job = LoadJob(source, states, to, staging.work, files, report)
        engine = engine or LocalLoadEngine()
        pieces, result.duplicates = engine.write(job)
        result.rows, result.ledgers = sum(piece.rows for piece in pieces), len(states)
        build_index(to, current_dirs(staging.data, source.directories), pieces, states, files)
        if compare:
            _compare_index(engine, job, staging.data, result)
        staging.publish()
    return result


def _check_arguments(to: Any, directories: Any, compare: Any) -> None:
    check_layout("to", to)
    optional(integer(1))("directories", directories)
    boolean("compare", compare)


def _check_target(source: LoadSource, out: Path, to: IndexLayout) -> None:
    """Refuse an `out` that exists or is in the dump, and a layout that cannot hold the index."""
    check_target(out)
    if not is_remote(source.dump):
        refuse_inputs(out, [source.dump])
    if to == "idx" and source.directories > 1:
        raise UnsupportedLayout(
            f"bookie {source.bookie} has {source.directories} directories, each with entry logs "
            "of the same ids, which index files cannot distinguish: load to rocksdb"
        )


def _make_reporter(
    progress: Callable[[LoadProgress], None] | None, source_rows: int, passes: int
) -> Callable[[str, int], None]:
    """Return a function of a step and its rows so far: first "written", then "compared"."""

    def report(step: str, rows: int) -> None:
        if progress is not None:
            rows_before = source_rows if step == "compared" else 0
            progress(LoadProgress(step, rows_before + rows, passes * source_rows, rows))

    return report


def _compare_index(engine: LoadEngine, job: LoadJob, data: Path, result: LoadResult) -> None:
    """Compare rows, states and ledgers of the new index with the dump. Raises `CorruptionError` if
    they differ."""
    states = job.states
    with open_index(data, layout=job.layout) as index:
        rows = engine.compare(job, index, data)
        if rows != result.rows:
            raise CorruptionError(data, None, f"has {rows} rows, {result.rows} were written")
        compare_states(index, states, data)
        # The index has the ledgers with a state. Index files list a ledger that has rows only, too.
        indexed = set(index.ledgers())
        may_have_more = job.layout == "idx"
        if not (indexed >= states.keys() if may_have_more else indexed == states.keys()):
            ledger_id = min(indexed ^ states.keys())
            raise CorruptionError(data, None, f"ledger {ledger_id} is not in both index and dump")
    result.compared = True
